"""Whom a token may be sent to: what an attacker would write, and what the client does with a 401 and a redirect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from bot.connections.client import Access, ConnectionClient
from bot.connections.connection import OAuthConnection
from bot.connections.errors import (
    HostNotBound,
    NotDeclared,
    RequestFailed,
    StatusRefused,
    TokenNotExposed,
    Unauthorized,
)
from bot.connections.hosts import Bound, host_problem
from bot.connections.lent import Lent
from bot.outgoing import Outgoing
from durable_core.store import Store
from tests.bot.connections.keeping import ACCOUNT, ALICE, PUBLIC, ToldProvider, grant, need, replica, tracker

ATTACKS = {
    "a suffix": "https://api.tracker.example.evil.example/x",
    "a prefix": "https://evil-api.tracker.example/x",
    "a subdomain": "https://evil.api.tracker.example/x",
    "the parent": "https://tracker.example/x",
    "a user": "https://api.tracker.example@evil.example/x",
    "a user and password": "https://api.tracker.example:443@evil.example/x",
    "an own user": "https://alice@api.tracker.example/x",
    "an empty user": "https://@api.tracker.example/x",
    "another scheme": "http://api.tracker.example/x",
    "another scheme on the same port": "http://api.tracker.example:443/x",
    "no web at all": "ftp://api.tracker.example/x",
    "a file": "file:///etc/passwd",
    "another port": "https://api.tracker.example:8443/x",
    "plain http's port": "https://api.tracker.example:80/x",
    "a port that is none": "https://api.tracker.example:99999/x",
    "a backslash": "https://evil.example\\@api.tracker.example/x",
    "a backslash behind the host": "https://api.tracker.example\\.evil.example/x",
    "no scheme": "//evil.example/x",
    "an own host without a scheme": "//api.tracker.example/x",
    "a line break": "https://api.tracker.example\n.evil.example/x",
    "a tab": "https://api.tracker.example\t.evil.example/x",
    "a space": "https://api.tracker.example .evil.example/x",
    "a dot more": "https://api.tracker.example./x",
    "letters that look alike": "https://аpi.tracker.example/x",
    "a full-width slash": "https://evil.example／.api.tracker.example/x",
    "a percent sign in the host": "https://api.tracker.example%2eevil.example/x",
    "a fragment": "https://api.tracker.example#@evil.example/x",
    "a question mark": "https://evil.example?@api.tracker.example/x",
    "a semicolon": "https://api.tracker.example;evil.example/x",
    "a number": "https://2130706433/x",
    "this machine": "https://127.0.0.1/x",
    "no host": "https:///x",
    "half an address": "https://[::1/x",
}


def client(connection: OAuthConnection, outgoing: Any = None, **changed: Any) -> ConnectionClient:
    async def access(_: int | None) -> Access:
        return Access(token="c4nary-access", version=1)

    async def refuse(_: int) -> None:
        raise AssertionError("nothing is refused here")

    given = {"access": access, "refuse": refuse, **changed}
    return ConnectionClient(
        connection=connection, bounds=connection.bounds(PUBLIC), outgoing=outgoing, loop=asyncio.get_running_loop(), **given
    )


@pytest.mark.parametrize("url", ATTACKS.values(), ids=ATTACKS)
async def test_a_token_goes_to_no_other_host(url: str) -> None:
    with pytest.raises(HostNotBound) as refused:
        client(tracker()).get(url)
    assert "/x" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.tracker.example/v2/x",
        "https://api.tracker.example/v1evil",
        "https://api.tracker.example/v1/../admin",
        "https://api.tracker.example/v1/%2e%2e/admin",
        "https://api.tracker.example/v1/.%2E/admin",
        "https://api.tracker.example/v1/..%2fadmin",
        "https://api.tracker.example/v1/..%5cadmin",
        "/../admin",
        "https://api.tracker.example/",
    ],
)
async def test_a_token_stays_below_the_path_that_is_named(url: str) -> None:
    with pytest.raises(HostNotBound):
        client(tracker(hosts=("https://api.tracker.example/v1",))).get(url)


async def test_addresses_of_the_connections_own_hosts() -> None:
    one = client(tracker(hosts=("api.tracker.example", "https://files.tracker.example/v1", "/demo")))
    assert one.address("/user") == "https://api.tracker.example/user"
    assert one.address("user", {"a": [1, 2], "b": None, "c": "x y"}) == "https://api.tracker.example/user?a=1&a=2&c=x+y"
    assert one.address("/search?q=a://b", {"n": 1}) == "https://api.tracker.example/search?q=a://b&n=1"
    assert one.address("https://API.tracker.example:443/x") == "https://API.tracker.example:443/x"
    assert one.address("https://files.tracker.example/v1/x") == "https://files.tracker.example/v1/x"
    assert one.address("https://bot.example.com/demo/x") == "https://bot.example.com/demo/x"
    with pytest.raises(HostNotBound):
        one.address("https://bot.example.com/console/")
    with pytest.raises(HostNotBound, match="no hosts="):
        client(tracker(hosts=())).get("/user")


@pytest.mark.parametrize(
    "given",
    [
        "http://api.tracker.example",
        "https://a@b.example",
        "https://b.example?x",
        "b.example/../x y",
        "*.b.example",
        "b_c.example",
        "//x",
        "",
    ],
)
def test_hosts_that_can_not_be_meant(given: str) -> None:
    assert host_problem(given) is not None


@pytest.mark.parametrize(
    "given", ["b.example", "https://b.example:8443/v1", "http://127.0.0.1:9000", "/demo", "xn--bcher-kva.example"]
)
def test_hosts_that_can_be_meant(given: str) -> None:
    assert host_problem(given) is None
    assert Bound.of(given, PUBLIC).holds(f"{Bound.of(given, PUBLIC).origin}{Bound.of(given, PUBLIC).path}/x")


@pytest.mark.parametrize("header", ["Authorization", "host", "Cookie", "content-length", "Proxy-Authorization"])
async def test_headers_that_are_not_the_authors(header: str) -> None:
    with pytest.raises(ValueError, match="itself"):
        client(tracker()).get("/x", headers={header: "x"})


async def test_requests_that_mean_nothing() -> None:
    with pytest.raises(ValueError, match="no method"):
        client(tracker()).request("CONNECT", "/x")
    with pytest.raises(ValueError, match="not both"):
        client(tracker()).post("/x", json={}, data={})


# ── with a server ──

Answer = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """Serve one answer for everything; gives the origin."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def outgoing() -> AsyncIterator[Callable[[str], Outgoing]]:
    made: list[Outgoing] = []

    def trusting(*origins: str) -> Outgoing:
        made.append(Outgoing(trusted=origins))
        return made[-1]

    yield trusting
    for one in made:
        await one.close()


async def test_a_redirect_takes_the_token_nowhere(outgoing: Callable[..., Outgoing]) -> None:
    stolen: list[str] = []

    async def evil(request: web.Request) -> web.Response:
        stolen.append(request.headers.get("Authorization", ""))
        return web.Response()

    async with serving(evil) as elsewhere:

        async def send_on(_: web.Request) -> web.Response:
            raise web.HTTPFound(f"{elsewhere}/take")

        async with serving(send_on) as own:
            reply = await client(tracker(hosts=(own,)), outgoing(own, elsewhere)).get("/x")
            assert (reply.status, reply.headers["Location"]) == (302, f"{elsewhere}/take")
    assert stolen == []


async def test_what_is_sent_and_what_comes_back(outgoing: Callable[..., Outgoing]) -> None:
    seen: list[tuple[str, str, dict[str, str], bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.method, request.path_qs, {k.lower(): v for k, v in request.headers.items()}, await request.read()))
        return web.json_response({"id": 7}, status=201)

    async with serving(answer) as own:
        one = client(tracker(hosts=(own,), headers={"X-Version": "1"}), outgoing(own))
        reply = await one.post("/issues", params={"notify": "yes"}, json={"title": "ü"}, headers={"X-Other": "2"})
        assert (reply.status, reply.ok, reply.json(), reply.raise_for_status()) == (201, True, {"id": 7}, reply)
        await one.put("/form", data={"a": "1"})
        await one.patch("/raw", data=b"raw")
        await one.delete("/gone")
    method, path, headers, body = seen[0]
    assert (method, path, body) == ("POST", "/issues?notify=yes", '{"title":"ü"}'.encode())
    assert headers["authorization"] == "Bearer c4nary-access"
    assert (headers["x-version"], headers["x-other"], headers["content-type"]) == ("1", "2", "application/json")
    assert [(method, path, body) for method, path, _, body in seen[1:]] == [
        ("PUT", "/form", b"a=1"),
        ("PATCH", "/raw", b"raw"),
        ("DELETE", "/gone", b""),
    ]


async def test_a_status_may_be_an_error_and_says_nothing_else(outgoing: Callable[..., Outgoing]) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=503, text="c4nary")

    async with serving(refuse) as own:
        reply = await client(tracker(hosts=(own,)), outgoing(own)).get("/secret-path")
        with pytest.raises(StatusRefused) as refused:
            reply.raise_for_status()
    assert (refused.value.retryable, str(refused.value)) == (True, "tracker answered with status 503")
    assert "c4nary" not in repr(reply)


async def test_no_answer_says_whether_the_request_left(outgoing: Callable[..., Outgoing]) -> None:
    async def cut(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with serving(cut) as own:
        one = client(tracker(hosts=(own,)), outgoing(own))
        with pytest.raises(RequestFailed) as failed:
            await one.post("/x")
        assert failed.value.sent
    with pytest.raises(RequestFailed) as failed:
        await one.post("/x")
    assert not failed.value.sent
    inside = client(tracker(hosts=("https://localhost:8443",)), outgoing())
    with pytest.raises(RequestFailed, match="not asked") as failed:
        await inside.get("/x")
    assert not failed.value.sent


async def test_a_401_brings_one_renewal_and_one_more_try(
    store: Store, provider: ToldProvider, outgoing: Callable[..., Outgoing]
) -> None:
    shown: list[str] = []
    good = {"Bearer c4nary-access-2"}

    async def api(request: web.Request) -> web.Response:
        shown.append(request.headers["Authorization"])
        return web.Response(status=200 if shown[-1] in good else 401)

    async with serving(api) as own:
        made = tracker(hosts=(own,))
        one = replica(store, provider, made)
        one._outgoing = lambda: outgoing(own)
        await one.keep(made, ALICE.id, grant(1), ACCOUNT)
        lent = one.lend([need(made)], ALICE)
        assert (await lent.http(made).get("/x")).status == 200
        assert shown == ["Bearer c4nary-access-1", "Bearer c4nary-access-2"]
        assert lent.used == {"tracker": (await one.access(need(made), ALICE)).version}
        good.clear()
        with pytest.raises(Unauthorized) as refused:
            await lent.http(made).get("/x")
        assert (refused.value.connection, refused.value.reason) == ("tracker", "refused")
        assert shown[2:] == ["Bearer c4nary-access-2", "Bearer c4nary-access-3"]
        assert await one.credential(made, ALICE.id) is None  # so that the next check asks the person, and not the API again


async def test_plain_functions_wait(store: Store, provider: ToldProvider, outgoing: Callable[..., Outgoing]) -> None:
    async def api(_: web.Request) -> web.Response:
        return web.json_response("hello")

    async with serving(api) as own:
        made = tracker(hosts=(own,), expose_token=True)
        one = replica(store, provider, made)
        one._outgoing = lambda: outgoing(own)
        await one.keep(made, ALICE.id, grant(1), ACCOUNT)
        lent = one.lend([need(made)], ALICE)
        assert await asyncio.to_thread(lambda: lent.http(made).get("/x").wait().json()) == "hello"
        assert await asyncio.to_thread(lambda: lent.token(made).wait()) == "c4nary-access-1"
        assert await lent.token(made) == "c4nary-access-1"


async def test_a_body_has_what_its_tool_declares(store: Store, provider: ToldProvider) -> None:
    lent: Lent = replica(store, provider).lend([need()], ALICE)
    with pytest.raises(NotDeclared, match=r"'other' is not declared here, tracker is"):
        lent.http("other")
    with pytest.raises(TokenNotExposed, match="keeps its token"):
        lent.token(tracker())
