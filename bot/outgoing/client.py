"""The guarded HTTP client: https to public hosts, and to the origins that the app itself trusts.

What lives here: sending one request and reading its answer. What does not: the rules (origins.py, addresses.py), retries.
"""

from __future__ import annotations

import asyncio
import io
import re
import socket
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from bot.outgoing.addresses import is_public
from bot.outgoing.errors import NotAllowed, OutgoingError, TooLarge, Unreachable
from bot.outgoing.fetched import Fetched
from bot.outgoing.origins import Target, origin_of, read

LIMIT: Final = 1 << 20
SECONDS: Final = 15.0
_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"})
_OUR_HEADERS: Final = frozenset({"connection", "content-length", "host", "transfer-encoding", "upgrade"})
"""Headers that frame a request or route it: not the caller's."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")


class _NotPublic(OSError):
    """Raised where the socket would be made; always the same words, so that several addresses give one error."""

    def __init__(self) -> None:
        super().__init__("not a public address")


class Outgoing:
    """Ask hosts that somebody else named. One per app; `close` it.

    Refuses whatever is not https on port 443 or 8443 to a public address, with no user in the URL. The address is looked at
    where the socket is made: a check in the resolver is passed by for literal addresses, and a second look at a name may get
    another answer than the first. No redirects, no proxy from the environment, no cookies, no connection used twice: so no
    request is ever sent again by itself.

    `trusted` names origins (`http://127.0.0.1:8080`) that may be anything: the app's own in demo and dev, a provider in the
    own network that the author names, tests'.
    """

    def __init__(self, *, trusted: Collection[str] = (), resolver: AbstractResolver | None = None) -> None:
        self._trusted = frozenset(origin_of(URL(origin)) for origin in trusted)
        if "" in self._trusted:
            raise ValueError("trusted= takes origins, as in 'http://127.0.0.1:8080'")
        self._resolver = resolver
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    def check(self, url: str, *, named_by: str | None = None) -> str:
        """Judge a URL by its words alone, for one that is kept or handed on; returns its origin.

        `named_by` is the URL whose answer named it: a stranger's answer leads to no trusted origin.

        Raises: NotAllowed.
        """
        strangers = named_by is not None and not read(named_by, self._trusted).trusted
        target = read(url, frozenset() if strangers else self._trusted)
        if target.problem:
            raise NotAllowed(target.origin, target.problem)
        return target.origin

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        limit: int = LIMIT,
        seconds: float = SECONDS,
    ) -> Fetched:
        """Send one request and read the whole answer, of `limit` bytes at most, within `seconds` altogether.

        Raises: NotAllowed, Unreachable, TooLarge.
        """
        self.check(url)
        target = read(url, self._trusted)
        problem = _request_problem(method, headers or {})
        if problem:
            raise NotAllowed(target.origin, problem)
        sent = SimpleNamespace(yet=False)
        failed: OutgoingError
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(method, target, headers=headers or {}, body=body, limit=limit, sent=sent)
        except TimeoutError:
            failed = Unreachable(target.origin, f"it took more than {seconds:g} s", sent=sent.yet)
        except OutgoingError as error:
            failed = error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failed = _failure(target.origin, error, sent=sent.yet)
        raise failed  # out here, so that it holds no error of aiohttp's, which hold the URL and the headers

    async def close(self) -> None:
        """Close what is open; a later `fetch` opens it again."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def _ask(
        self, method: str, target: Target, *, headers: Mapping[str, str], body: bytes | None, limit: int, sent: SimpleNamespace
    ) -> Fetched:
        session = self._session(trusted=target.trusted)
        sending = io.BytesIO(body) if body is not None and len(body) > LIMIT else body  # aiohttp warns of large bytes
        async with session.request(
            method, target.url, headers=headers, data=sending, allow_redirects=False, trace_request_ctx=sent
        ) as answer:
            whole = bytearray()
            async for chunk in answer.content.iter_chunked(1 << 16):
                whole += chunk
                if len(whole) > limit:
                    raise TooLarge(target.origin, limit)
            return Fetched(answer.status, answer.headers, bytes(whole))

    def _session(self, *, trusted: bool) -> aiohttp.ClientSession:
        if trusted not in self._sessions:
            connector = aiohttp.TCPConnector(
                resolver=self._resolver or ThreadedResolver(),
                socket_factory=None if trusted else _guarded_socket,
                force_close=True,  # a kept connection may be gone: whether a request was acted on would be unknown for nothing
                limit=0,
                use_dns_cache=False,
            )
            self._sessions[trusted] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "moorings"},  # some refuse a request without one
                timeout=aiohttp.ClientTimeout(total=None),  # `fetch` counts
                trace_configs=[_trace()],
                trust_env=False,
            )
        return self._sessions[trusted]


def _guarded_socket(info: tuple[Any, ...]) -> socket.socket:
    family, kind, proto, _, address = info
    if not is_public(str(address[0])):
        raise _NotPublic
    return socket.socket(family=family, type=kind, proto=proto)


def _trace() -> aiohttp.TraceConfig:
    """Note when a request is about to leave: from there on it may have arrived."""

    async def leaves(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
        context.trace_request_ctx.yet = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(leaves)
    return trace


def _request_problem(method: str, headers: Mapping[str, str]) -> str | None:
    if method not in _METHODS:
        return "the method is none of " + ", ".join(sorted(_METHODS))
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            return "a header holds a character that none may hold"
        if name.lower() in _OUR_HEADERS:
            return f"the header {name.lower()} is not the caller's to set"
    return None


def _failure(origin: str, error: Exception, *, sent: bool) -> OutgoingError:
    """Say what went wrong in words of ours: aiohttp's hold addresses and URLs."""
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, _NotPublic):
        return NotAllowed(origin, "it is not at a public address")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable(origin, "its name is not known", sent=False)
    if isinstance(error, aiohttp.ClientSSLError):
        return Unreachable(origin, "its certificate or TLS is not right", sent=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        return Unreachable(origin, "it takes no connection", sent=False)
    if isinstance(error, aiohttp.InvalidURL):
        return NotAllowed(origin, "it is no URL")
    return Unreachable(origin, "the connection broke off or what came is no HTTP", sent=sent)
