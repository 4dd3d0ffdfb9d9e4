"""What a provider says of itself: issuers, addresses, and where a description may not lead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from multidict import MultiDict

from bot.connections.protocol import Provider, ProviderDown, ProviderNonsense
from bot.connections.protocol.discovery import covers, inserted, read_endpoints, read_resource
from bot.connections.protocol.reading import Answer
from bot.outgoing import Outgoing
from tests.bot.connections.protocol.asking import PUBLIC, SignIn
from tests.bot.connections.protocol.hostile import Hostile

OPENID = "/.well-known/openid-configuration"
SERVER = "/.well-known/oauth-authorization-server"


@pytest.mark.parametrize("at", [OPENID, SERVER])
async def test_a_provider_is_found_at_either_place(hostile: Hostile, reaching: Outgoing, at: str) -> None:
    hostile.answers[at] = hostile.answers.pop(OPENID)
    provider = hostile.provider(reaching)
    endpoints = await provider.endpoints()
    assert endpoints.token == f"{hostile.origin}/token"
    assert endpoints.issuer == hostile.origin
    assert await provider.endpoints() is endpoints
    assert len([path for path in hostile.paths() if "well-known" in path]) == (1 if at == OPENID else 2)


async def test_an_issuer_with_a_path(hostile: Hostile, reaching: Outgoing) -> None:
    for place in (f"{SERVER}/tenant", f"/tenant{OPENID}"):
        hostile.answers = {place: {"issuer": f"{hostile.origin}/tenant", "token_endpoint": f"{hostile.origin}/t"}}
        endpoints = await hostile.provider(reaching, issuer=f"{hostile.origin}/tenant").endpoints()
        assert endpoints.token == f"{hostile.origin}/t"


@pytest.mark.parametrize("issuer", ["https://evil.example", "", None, 5, ["{origin}"], "{origin}/", "{origin}/other"])
async def test_another_issuers_description_is_refused(hostile: Hostile, reaching: Outgoing, issuer: Any) -> None:
    hostile.describe(issuer=issuer.replace("{origin}", hostile.origin) if isinstance(issuer, str) else issuer)
    with pytest.raises(ProviderNonsense, match="another issuer"):
        await hostile.provider(reaching).endpoints()


@pytest.mark.parametrize(
    "address",
    [
        "http://provider.example/token",
        "https://provider.example:22/token",
        "https://user:pass@provider.example/token",
        "ftp://provider.example/",
        "file:///etc/passwd",
        "/token",
        "javascript:alert(1)",
        5,
        ["https://provider.example/token"],
    ],
)
@pytest.mark.parametrize(
    "name", ["token_endpoint", "authorization_endpoint", "jwks_uri", "userinfo_endpoint", "registration_endpoint"]
)
async def test_a_description_leads_to_no_address_that_may_not_be_asked(
    hostile: Hostile, reaching: Outgoing, name: str, address: Any
) -> None:
    hostile.describe(**{name: address})
    with pytest.raises(ProviderNonsense):
        await hostile.provider(reaching).endpoints()
    assert set(hostile.paths()) <= {OPENID, SERVER}


async def test_a_strangers_description_leads_to_no_trusted_address(hostile: Hostile) -> None:
    """The app trusts its own address; a provider that it doesn't trust must not lead it there."""
    inner, stranger = "http://127.0.0.1:8700", "https://provider.example"
    trusting = Outgoing(trusted=[hostile.origin, inner])
    hostile.describe(token_endpoint=f"{inner}/token")
    assert (await hostile.provider(trusting).endpoints()).token == f"{inner}/token"
    await trusting.close()
    for name in ("token_endpoint", "jwks_uri", "userinfo_endpoint", "registration_endpoint"):
        with pytest.raises(ProviderNonsense, match="nowhere that may be asked"):
            read_endpoints(trusting, Answer({"issuer": stranger, name: f"{inner}/x"}, "it"), stranger)
    for server in (f"{stranger}/mcp", inner):
        described = Answer({"resource": server, "authorization_servers": [inner]}, "it")
        if server == inner:
            assert read_resource(trusting, described, server).issuer == inner
        else:
            with pytest.raises(ProviderNonsense, match="nowhere that may be asked"):
                read_resource(trusting, described, server)


@pytest.mark.parametrize(
    "answer", [b"", b"<html>Welcome", [], {}, None, b"{" * 10_000, (200, b"x" * (1 << 19), {}), (302, b"", {"Location": "/x"})]
)
async def test_a_description_that_is_none(hostile: Hostile, reaching: Outgoing, answer: Any) -> None:
    hostile.answers[OPENID] = answer
    with pytest.raises(ProviderNonsense):
        await hostile.provider(reaching).endpoints()


async def test_no_description_anywhere(hostile: Hostile, reaching: Outgoing) -> None:
    del hostile.answers[OPENID]
    with pytest.raises(ProviderNonsense, match="none of the well-known"):
        await hostile.provider(reaching).endpoints()


async def test_a_provider_that_is_down_is_looked_for_again(hostile: Hostile, reaching: Outgoing) -> None:
    there = hostile.answers[OPENID]
    hostile.answers[OPENID] = (503, b"", {})
    provider = hostile.provider(reaching)
    with pytest.raises(ProviderDown):
        await provider.endpoints()
    hostile.answers[OPENID] = there
    assert (await provider.endpoints()).token


async def test_what_the_author_wrote_stands(hostile: Hostile, reaching: Outgoing) -> None:
    provider = hostile.provider(reaching, revoke_url=f"{hostile.origin}/end", userinfo_url="/me")
    endpoints = await provider.endpoints()
    assert (endpoints.revoke, endpoints.userinfo, endpoints.token) == (
        f"{hostile.origin}/end",
        f"{PUBLIC}/me",
        f"{hostile.origin}/token",
    )
    hostile.asked.clear()
    await hostile.static(reaching).endpoints()
    assert hostile.asked == []


async def test_a_description_is_read_again_after_an_hour(hostile: Hostile, reaching: Outgoing) -> None:
    now = [1_000_000.0]
    provider = Provider(hostile.provider(reaching).connection, reaching, public_url=PUBLIC, now=lambda: now[0])
    await provider.endpoints()
    hostile.describe(token_endpoint=f"{hostile.origin}/other")
    now[0] += 3_599
    assert (await provider.endpoints()).token == f"{hostile.origin}/token"
    now[0] += 2
    assert (await provider.endpoints()).token == f"{hostile.origin}/other"


async def test_a_description_that_is_down_later_stands_a_while(hostile: Hostile, reaching: Outgoing) -> None:
    now = [1_000_000.0]
    provider = Provider(hostile.provider(reaching).connection, reaching, public_url=PUBLIC, now=lambda: now[0])
    before = await provider.endpoints()
    there, hostile.answers[OPENID] = hostile.answers[OPENID], (503, b"", {})
    now[0] += 3_601
    assert await provider.endpoints() == before
    assert hostile.paths() == [OPENID, OPENID]
    await provider.endpoints()
    assert hostile.paths() == [OPENID, OPENID]
    hostile.answers[OPENID] = there
    now[0] += 61
    assert await provider.endpoints() == before
    assert hostile.paths() == [OPENID, OPENID, OPENID]
    hostile.describe(issuer="https://evil.example")
    now[0] += 3_601
    with pytest.raises(ProviderNonsense):  # which is another matter
        await provider.endpoints()


async def test_a_description_is_not_waited_for_for_ever(
    hostile: Hostile, reaching: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = asyncio.Event()

    async def never(_: object) -> bytes:
        await over.wait()
        return b""

    hostile.answers[OPENID] = never
    monkeypatch.setattr("bot.connections.protocol.provider.SEARCH", 0.2)
    with pytest.raises(ProviderDown, match="too long") as down:
        await hostile.provider(reaching).endpoints()
    over.set()
    assert not down.value.sent


@pytest.mark.parametrize("query", ["?state=1", "?a=b&redirect_uri=https://evil.example", "#x", "?code_challenge_method=plain"])
async def test_a_page_that_holds_a_part_of_the_question(hostile: Hostile, reaching: Outgoing, query: str) -> None:
    hostile.describe(authorization_endpoint=f"{hostile.origin}/authorize{query}")
    with pytest.raises(ProviderNonsense, match="part of the question"):
        await SignIn(hostile.provider(reaching)).url()
    hostile.describe(authorization_endpoint=f"{hostile.origin}/authorize?tenant=a%26b")
    assert "/authorize?tenant=a%26b&response_type=code&" in await SignIn(hostile.provider(reaching)).url()


async def test_a_provider_without_pkce_is_not_used(hostile: Hostile, reaching: Outgoing) -> None:
    hostile.describe(code_challenge_methods_supported=["plain"])
    with pytest.raises(ProviderNonsense, match="PKCE"):
        await hostile.provider(reaching).endpoints()
    hostile.describe(code_challenge_methods_supported=["plain", "S256"])
    await hostile.provider(reaching).endpoints()


@pytest.mark.parametrize("missing", ["authorization_endpoint", "token_endpoint"])
async def test_a_description_without_the_address_that_is_needed(hostile: Hostile, reaching: Outgoing, missing: str) -> None:
    hostile.describe(**{missing: None})
    provider = hostile.provider(reaching)
    with pytest.raises(ProviderNonsense, match="the provider has no"):
        await (SignIn(provider).url() if missing == "authorization_endpoint" else provider.refresh("r"))


# Callbacks


@pytest.mark.parametrize(
    ("names_issuer", "params", "fails"),
    [
        (True, {"code": "c", "iss": "{origin}"}, None),
        (True, {"code": "c"}, "does not name the provider"),
        (False, {"code": "c"}, None),
        (False, {"code": "c", "iss": "https://evil.example"}, "another provider"),
        (False, {"code": "c", "iss": ""}, "another provider"),
        (False, {"code": "a b"}, "no code"),
        (False, {"code": "x" * 9_000}, "no code"),
        (False, {}, "no code"),
    ],
)
async def test_callbacks(
    hostile: Hostile, reaching: Outgoing, names_issuer: bool, params: dict[str, str], fails: str | None
) -> None:
    hostile.describe(authorization_response_iss_parameter_supported=names_issuer)
    provider = hostile.provider(reaching)
    given = {name: value.replace("{origin}", hostile.origin) for name, value in params.items()}
    if fails is None:
        assert await provider.check_callback(given) == "c"
    else:
        with pytest.raises(ProviderNonsense, match=fails):
            await provider.check_callback(given)


async def test_a_callback_that_says_two_things_says_nothing(hostile: Hostile, reaching: Outgoing) -> None:
    for pairs in (
        [("code", "a"), ("code", "b")],
        [("code", "a"), ("iss", hostile.origin), ("iss", "https://evil.example")],
        [("code", "a"), ("state", "1"), ("state", "2")],
    ):
        with pytest.raises(ProviderNonsense, match="twice"):
            await hostile.provider(reaching).check_callback(MultiDict(pairs))


# Words


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://a.example", "https://a.example/.well-known/x"),
        ("https://a.example/", "https://a.example/.well-known/x"),
        ("https://a.example/b/c/", "https://a.example/.well-known/x/b/c"),
        ("https://a.example:8443/b?d=1", "https://a.example:8443/.well-known/x/b"),
        ("https://a.example/b%2Fc", "https://a.example/.well-known/x/b%2Fc"),
    ],
)
def test_well_known_addresses(url: str, found: str) -> None:
    assert inserted(url, "x") == found


@pytest.mark.parametrize(
    ("identifier", "resource", "same"),
    [
        ("https://a.example/mcp", "https://a.example/mcp", True),
        ("https://a.example/mcp/", "https://a.example/mcp", True),
        ("https://a.example", "https://a.example/mcp", True),
        ("https://A.example:443/", "https://a.example/mcp", True),
        ("https://a.example/m", "https://a.example/mcp", False),
        ("https://a.example/mcp/x", "https://a.example/mcp", False),
        ("https://a.example/mcp?x", "https://a.example/mcp", False),
        ("http://a.example/mcp", "https://a.example/mcp", False),
        ("https://b.example/mcp", "https://a.example/mcp", False),
        ("https://a.example:8443/mcp", "https://a.example/mcp", False),
        ("mcp", "https://a.example/mcp", False),
        ("", "https://a.example/mcp", False),
    ],
)
def test_what_a_description_covers(identifier: str, resource: str, same: bool) -> None:
    assert covers(identifier, resource) is same
