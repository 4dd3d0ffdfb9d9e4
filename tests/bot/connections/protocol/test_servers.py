"""MCP servers: who issues their tokens, what the tokens are for, and how the app becomes known there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from yarl import URL

from bot.connections.protocol import Client, ClientAuth, NoClient, Provider, ProviderNonsense, ProviderRefused
from bot.connections.protocol.registering import client_document
from bot.outgoing import Outgoing
from tests.bot.connections.protocol.asking import PUBLIC, Kept, SignIn, connection
from tests.bot.connections.protocol.hostile import Hostile, listening
from tests.oidc import OidcPeer

PRM = "/.well-known/oauth-protected-resource"
ELSEWHERE = "https://app.example"


def mcp(server: Hostile, outgoing: Outgoing, *, kept: Kept | None = None, public_url: str = PUBLIC, **changed: Any) -> Provider:
    made = connection(None, **{"client_id": "", "client_secret": None, "resource": f"{server.origin}/mcp", **changed})
    return Provider(made, outgoing, public_url=public_url, registrations=kept if kept is not None else Kept())


def describe(server: Hostile, issuer: str, *, at: str = f"{PRM}/mcp", **changed: Any) -> None:
    server.answers[at] = {"resource": f"{server.origin}/mcp", "authorization_servers": [issuer], **changed}


async def test_a_server_whose_tokens_a_real_provider_issues(oidc: OidcPeer) -> None:
    """From the server's address alone to a token for that server: discovery, registration, code, refresh."""
    async with listening() as server:
        outgoing = Outgoing(trusted=[server.origin, oidc.issuer])
        describe(server, oidc.issuer, scopes_supported=["read"])
        provider = mcp(server, outgoing)
        endpoints = await provider.endpoints()
        assert (endpoints.issuer, endpoints.resource, endpoints.scopes) == (oidc.issuer, f"{server.origin}/mcp", ("read",))
        sign_in = SignIn(provider)
        assert URL(await sign_in.url("read")).query["resource"] == f"{server.origin}/mcp"
        grant = await sign_in.exchange(await sign_in.come_back(oidc, scopes=("read",)))
        assert grant.scopes == ("read",)
        assert grant.refresh_token
        assert (await provider.refresh(grant.refresh_token)).access_token
        await outgoing.close()


@pytest.mark.parametrize("quoted", [True, False])
async def test_the_servers_refusal_says_where_it_is_described(hostile: Hostile, reaching: Outgoing, quoted: bool) -> None:
    where = f"{hostile.origin}/about"
    said = f'"{where}"' if quoted else where
    hostile.answers["/mcp"] = (401, b"", {"WWW-Authenticate": f'Bearer error="invalid_token", resource_metadata={said}'})
    describe(hostile, hostile.origin, at="/about")
    describe(hostile, "https://evil.example")
    assert (await mcp(hostile, reaching).endpoints()).issuer == hostile.origin


@pytest.mark.parametrize("at", [f"{PRM}/mcp", PRM])
async def test_well_known_places_of_a_server(hostile: Hostile, reaching: Outgoing, at: str) -> None:
    describe(hostile, hostile.origin, at=at, resource=hostile.origin if at == PRM else f"{hostile.origin}/mcp")
    endpoints = await mcp(hostile, reaching).endpoints()
    assert endpoints.resource == (hostile.origin if at == PRM else f"{hostile.origin}/mcp")


async def test_a_server_of_the_first_kind_issues_its_own_tokens(hostile: Hostile, reaching: Outgoing) -> None:
    endpoints = await mcp(hostile, reaching).endpoints()
    assert (endpoints.issuer, endpoints.resource) == (hostile.origin, f"{hostile.origin}/mcp")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"resource": "https://evil.example/mcp"}, "another server"),
        ({"resource": "{origin}/mcp/other"}, "another server"),
        ({"resource": "{origin}/m"}, "another server"),
        ({"resource": None}, "resource is missing"),
        ({"resource": 5}, "no text"),
        ({"authorization_servers": []}, "nobody who issues"),
        ({"authorization_servers": "https://a.example"}, "no list"),
        ({"authorization_servers": [{}]}, "no list"),
        ({"authorization_servers": ["http://169.254.169.254/latest"]}, "nowhere that may be asked"),
        ({"authorization_servers": ["https://127.0.0.1:22"]}, "nowhere that may be asked"),
        ({"authorization_servers": ["https://u:p@a.example"]}, "nowhere that may be asked"),
        ({"authorization_servers": ["https://a.example?x=1"]}, "holds a query"),
    ],
    ids=repr,
)
async def test_a_servers_description_that_lies(
    hostile: Hostile, reaching: Outgoing, changed: dict[str, Any], reason: str
) -> None:
    found = {
        name: value.replace("{origin}", hostile.origin) if isinstance(value, str) else value for name, value in changed.items()
    }
    describe(hostile, hostile.origin, **found)
    with pytest.raises(ProviderNonsense, match=reason):
        await mcp(hostile, reaching).endpoints()


async def test_a_refusal_leads_to_no_inner_address(hostile: Hostile, reaching: Outgoing) -> None:
    for inner in ("http://169.254.169.254/latest", "https://127.0.0.1:22/", "file:///etc/passwd", "x"):
        hostile.answers["/mcp"] = (401, b"", {"WWW-Authenticate": f'Bearer resource_metadata="{inner}"'})
        with pytest.raises(ProviderNonsense, match="nowhere that may be asked"):
            await mcp(hostile, reaching).endpoints()


# How the app becomes known


async def test_the_apps_document_is_its_client_id(hostile: Hostile, reaching: Outgoing) -> None:
    hostile.describe(client_id_metadata_document_supported=True)
    kept = Kept()
    client = await mcp(hostile, reaching, kept=kept, public_url=ELSEWHERE).client()
    document = client_document(ELSEWHERE, [f"{ELSEWHERE}/connect/callback/tracker"])
    assert client == Client(f"{ELSEWHERE}/connect/client.json", auth=ClientAuth.NONE)
    assert document["client_id"] == client.client_id
    assert document["token_endpoint_auth_method"] == "none"
    assert document["redirect_uris"] == [f"{ELSEWHERE}/connect/callback/tracker"]
    assert kept.found == {}
    assert "/register" not in hostile.paths()


async def test_a_document_nobody_can_fetch_is_not_used(hostile: Hostile, reaching: Outgoing) -> None:
    hostile.describe(client_id_metadata_document_supported=True)
    hostile.answers["/register"] = (201, {"client_id": "made"}, {})
    assert (await mcp(hostile, reaching).client()).client_id == "made"


async def test_a_client_that_the_author_has_comes_first(hostile: Hostile, reaching: Outgoing) -> None:
    hostile.describe(client_id_metadata_document_supported=True)
    client = await mcp(hostile, reaching, client_id="mine", client_secret="secret", public_url=ELSEWHERE).client()
    assert client == Client("mine", "secret", auth=ClientAuth.BASIC)


@pytest.mark.parametrize(
    ("methods", "auth"),
    [
        (None, ClientAuth.BASIC),
        (["client_secret_post"], ClientAuth.POST),
        (["private_key_jwt", "client_secret_post", "client_secret_basic"], ClientAuth.BASIC),
        (["client_secret_basic", "none"], ClientAuth.NONE),
    ],
)
async def test_what_a_registration_asks_for(hostile: Hostile, reaching: Outgoing, methods: Any, auth: ClientAuth) -> None:
    hostile.describe(token_endpoint_auth_methods_supported=methods)
    asked: list[Any] = []

    def made(request: Any) -> Any:
        asked.append(request)
        secret = {} if auth is ClientAuth.NONE else {"client_secret": "s"}
        return (201, {"client_id": "made", "token_endpoint_auth_method": auth.value, **secret}, {})

    hostile.answers["/register"] = made
    client = await mcp(hostile, reaching).client()
    assert (client.client_id, client.auth) == ("made", auth)
    assert asked


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"client_id": 5},
        {"client_id": "a b"},
        {"client_id": "a", "client_secret": {}},
        {"client_id": "a", "token_endpoint_auth_method": "client_secret_basic"},
        {"client_id": "a", "client_secret": "s", "token_endpoint_auth_method": "private_key_jwt"},
        {"client_id": "a", "redirect_uris": ["https://evil.example/"]},
        {"client_id": "a", "client_secret": "s", "client_secret_expires_at": "never"},
        b"<html>",
        (404, b"", {}),
        (302, b"", {"Location": "/"}),
    ],
    ids=repr,
)
async def test_a_registration_that_is_none(hostile: Hostile, reaching: Outgoing, answer: Any) -> None:
    hostile.answers["/register"] = answer
    kept = Kept()
    with pytest.raises(ProviderNonsense):
        await mcp(hostile, reaching, kept=kept).client()
    assert kept.found == {}


async def test_a_registration_that_is_refused(hostile: Hostile, reaching: Outgoing) -> None:
    hostile.answers["/register"] = (400, {"error": "invalid_client_metadata"}, {})
    with pytest.raises(ProviderRefused) as refused:
        await mcp(hostile, reaching).client()
    assert refused.value.error == "invalid_client_metadata"
    hostile.describe(registration_endpoint=None)
    with pytest.raises(NoClient):
        await mcp(hostile, reaching).client()


async def test_a_secret_that_ends_is_replaced(hostile: Hostile, reaching: Outgoing) -> None:
    now = [1_000_000.0]
    kept = Kept()
    numbers = iter(range(10))

    def made(request: Any) -> Any:
        number = next(numbers)
        return (201, {"client_id": f"c{number}", "client_secret": "s", "client_secret_expires_at": int(now[0]) + 1_000}, {})

    hostile.answers["/register"] = made
    provider = Provider(mcp(hostile, reaching).connection, reaching, public_url=PUBLIC, registrations=kept, now=lambda: now[0])
    assert (await provider.client()).client_id == "c0"
    now[0] += 900
    assert (await provider.client()).client_id == "c0"
    now[0] += 50
    assert (await provider.client()).client_id == "c1"


async def test_two_who_register_at_once_agree(hostile: Hostile, reaching: Outgoing) -> None:
    kept = Kept()
    numbers = iter(range(10))
    hostile.answers["/register"] = lambda _: (201, {"client_id": f"c{next(numbers)}"}, {})
    clients = await asyncio.gather(*(mcp(hostile, reaching, kept=kept).client() for _ in range(2)))
    assert len({client.client_id for client in clients}) == 1


async def test_only_its_own_registration_is_forgotten(hostile: Hostile, reaching: Outgoing) -> None:
    kept = Kept()
    hostile.answers["/register"] = (201, {"client_id": "made"}, {})
    hostile.answers["/token"] = (401, {"error": "invalid_client"}, {})
    provider = mcp(hostile, reaching, kept=kept)
    await provider.client()
    with pytest.raises(ProviderRefused):
        await hostile.provider(reaching).refresh("r")  # another connection, with a client of the author's
    assert len(kept.found) == 1
    [(name, standing)] = kept.found.items()

    def another(_: Any) -> Any:  # another replica has registered anew while this one was asking
        kept.found[name] = replace(standing, client_id="newer")
        return (401, {"error": "invalid_client"}, {})

    hostile.answers["/token"] = another
    with pytest.raises(ProviderRefused):
        await provider.refresh("r")
    assert [one.client_id for one in kept.found.values()] == ["newer"]
    hostile.answers["/token"] = (401, {"error": "invalid_client"}, {})
    with pytest.raises(ProviderRefused):
        await provider.refresh("r")
    assert kept.found == {}
