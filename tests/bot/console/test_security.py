"""Who gets past the loopback guard, on a real server."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from aiohttp.test_utils import make_mocked_request

from bot.console.security import loopback_guard, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Transport:
    """A transport with a peer of the test's choice."""

    def __init__(self, peer: object) -> None:
        self.peer = peer

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.peer if name == "peername" else default


async def _ok(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _serve(**options: object) -> tuple[web.AppRunner, int]:
    guard = loopback_guard(spared=("/channels",), allow_network=bool(options.get("allow_network")))
    app = web.Application(middlewares=[guard])
    app.router.add_route("*", "/{tail:.*}", _ok)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    return runner, int(listener.getsockname()[1])


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    runner, port = await _serve()
    yield port
    await runner.cleanup()


async def ask(port: int, headers: dict[str, str], *, method: str = "GET", path: str = "/v1/sessions") -> tuple[int, str]:
    headers = {name: value.replace("PORT", str(port)) for name, value in headers.items()}
    async with ClientSession() as session, session.request(method, f"http://127.0.0.1:{port}{path}", headers=headers) as response:
        return response.status, await response.text()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:PORT"},
        {"Host": "LOCALHOST:PORT"},
        {"Host": "[::1]:PORT"},
        {"Origin": "http://127.0.0.1:PORT"},
        {"Host": "localhost:PORT", "Origin": "http://localhost:PORT"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
async def test_this_machine_is_let_in(port: int, headers: dict[str, str]) -> None:
    assert await ask(port, headers) == (200, "ok")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:PORT"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "127.0.0.1.evil.example:PORT"},
        {"Host": "localhost.:PORT"},
        {"Host": "0.0.0.0:PORT"},
        {"Host": "x@localhost:PORT"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:PORT"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "localhost:PORT", "Origin": "http://127.0.0.1:PORT"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"X-Forwarded-For": "203.0.113.9"},
        {"Forwarded": "for=203.0.113.9"},
        {"X-Real-IP": "203.0.113.9"},
        {"Via": "1.1 proxy"},
    ],
)
async def test_others_are_refused_in_a_sentence(port: int, headers: dict[str, str]) -> None:
    for path in ("/v1", "/v1/sessions", "/console", "/%63onsole/api/state"):
        status, text = await ask(port, headers, path=path, method="POST" if "Mode" not in str(headers) else "GET")
        assert status == 403
        assert '"code": "forbidden"' in text
        assert "." in text


async def test_a_browser_gets_the_sentence_as_text(port: int) -> None:
    status, text = await ask(port, {"Host": "evil.example", "Accept": "text/html,*/*"})
    assert status == 403
    assert text == f"This server answers only to http://127.0.0.1:{port} and http://localhost:{port}. Open one of these.\n"


async def test_only_what_is_spared_is_open(port: int) -> None:
    tunnel = {"Host": "moorings.example", "X-Forwarded-For": "203.0.113.9"}
    assert await ask(port, tunnel, method="POST", path="/channels/slack/events") == (200, "ok")
    for path in ("/", "/healthz", "/channelsx", "/x/channels/slack"):
        assert (await ask(port, tunnel, path=path))[0] == 403


async def test_with_the_network_allowed_other_hosts_come_in_but_no_other_site() -> None:
    runner, port = await _serve(allow_network=True)
    assert (await ask(port, {"Host": "box.lan:PORT"}))[0] == 200
    assert (await ask(port, {"Host": "box.lan:PORT", "Origin": "http://box.lan:PORT"}))[0] == 200
    assert (await ask(port, {"Host": "box.lan:PORT", "Origin": "http://evil.example"}))[0] == 403
    assert (await ask(port, {"Sec-Fetch-Site": "cross-site"}))[0] == 403
    await runner.cleanup()


async def test_two_hosts_are_refused(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /v1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\nConnection: close\r\n\r\n".encode())
    status = (await reader.readline()).split()[1]
    writer.close()
    await writer.wait_closed()
    assert status in {b"400", b"403"}


@pytest.mark.parametrize(
    ("peer", "let_in"),
    [
        (("127.0.0.1", 5), True),
        (("127.8.8.8", 5), True),
        (("::1", 5, 0, 0), True),
        (("::ffff:127.0.0.1", 5, 0, 0), True),
        ("", True),
        (("192.168.1.7", 5), False),
        (("::ffff:192.168.1.7", 5, 0, 0), False),
        (("fe80::1%eth0", 5, 0, 2), False),
        (("not an address", 5), False),
        (None, False),
    ],
)
def test_the_peer_itself_has_to_be_this_machine(peer: object, *, let_in: bool) -> None:
    request = make_mocked_request("GET", "/v1", headers={"Host": "127.0.0.1:8700"}, transport=Transport(peer))
    reason = refusal(request, port=8700)
    assert (reason is None) is let_in
    assert refusal(request, port=8700, allow_network=True) is None
