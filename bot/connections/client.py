"""What a tool talks to an account with: a small HTTP client that adds the token itself, and only where it belongs.

What lives here: requests, replies, one forced refresh after a 401. What does not: sending (bot/outgoing), tokens (tokens.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from pydantic_core import from_json, to_json

from bot.connections.errors import HostNotBound, RequestFailed, StatusRefused, Unauthorized
from durable_core.claiming import StoreCall

if TYPE_CHECKING:
    from bot.connections.connection import OAuthConnection
    from bot.connections.hosts import Bound
    from bot.outgoing import Fetched, Outgoing

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_OURS: Final = frozenset({"authorization", "host", "content-length", "cookie", "proxy-authorization", "transfer-encoding"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A token to be used now, and the version of the credential that it is of."""

    token: str = field(repr=False)
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, whatever its status. Redirects are not followed: a ``location`` is for the author to judge."""

    connection: str
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether the status says that it worked."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Read the body as JSON. Raises: ValueError."""
        return from_json(self.body)

    def raise_for_status(self) -> Reply:
        """Return this, unless the status is 400 or more. Raises: StatusRefused."""
        if self.status >= 400:
            raise StatusRefused(self.connection, self.status)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionClient:
    """Requests as the account of one connection: ``await client.get("/user")``, or ``.wait()`` in a plain function.

    An address is a path on the connection's first host, or a full one on any of its hosts; the token goes nowhere else. A 401
    brings one forced refresh and one more try, then Unauthorized, which has the person asked to sign in again.

    Each request raises:
        HostNotBound: The address is not the connection's; nothing was sent.
        Unauthorized: The token isn't taken, and can't be renewed.
        AccountUnreachable: A new token was needed, and the provider could not be asked for it.
        RequestFailed: There was no answer.
    """

    connection: OAuthConnection
    bounds: tuple[Bound, ...]
    access: Callable[[int | None], Awaitable[Access]] = field(repr=False)
    """Gives a token; told a version, one that is newer."""
    refuse: Callable[[int], Awaitable[None]] = field(repr=False)
    """Told of a version that is refused even though it is new."""
    outgoing: Outgoing = field(repr=False)
    loop: asyncio.AbstractEventLoop = field(repr=False)

    def get(
        self, url: str, *, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> StoreCall[Reply]:
        """Read something."""
        return self.request("GET", url, params=params, headers=headers)

    def post(
        self,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        data: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> StoreCall[Reply]:
        """Send something new."""
        return self.request("POST", url, params=params, json=json, data=data, headers=headers)

    def put(
        self,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        data: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> StoreCall[Reply]:
        """Put something in place of what is there."""
        return self.request("PUT", url, params=params, json=json, data=data, headers=headers)

    def patch(
        self,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        data: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> StoreCall[Reply]:
        """Change something."""
        return self.request("PATCH", url, params=params, json=json, data=data, headers=headers)

    def delete(
        self, url: str, *, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> StoreCall[Reply]:
        """Delete something."""
        return self.request("DELETE", url, params=params, headers=headers)

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        data: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> StoreCall[Reply]:
        """Send any request: ``json`` or ``data`` (a form, or bytes as they are) is its body.

        Raises:
            HostNotBound: At once.
            ValueError: The method, or a header that isn't the author's to set; at once.
        """
        if method.upper() not in _METHODS:
            raise ValueError(f"there is no method {method!r} here")
        if json is not None and data is not None:
            raise ValueError("give json= or data=, not both")
        lines = {**self.connection.headers, **{name.lower(): value for name, value in (headers or {}).items()}}
        if ours := _OURS & lines.keys():
            raise ValueError(f"the client sets {', '.join(sorted(ours))} itself")
        body: bytes | None = None
        if json is not None:
            body, kind = to_json(json), "application/json"
        elif isinstance(data, bytes):
            body, kind = data, "application/octet-stream"
        elif data is not None:
            body, kind = urlencode(data, doseq=True).encode(), "application/x-www-form-urlencoded"
        else:
            kind = ""
        if kind:
            lines.setdefault("content-type", kind)
        return StoreCall(self._send(method.upper(), self.address(url, params), lines, body), self.loop)

    def address(self, url: str, params: Mapping[str, Any] | None = None) -> str:
        """Make the full address of a request. Raises: HostNotBound."""
        if not self.bounds:
            raise HostNotBound(self.connection.name, "any host: it has no hosts=")
        full = url
        if "://" not in url.partition("?")[0] and not url.startswith("//"):
            full = f"{self.bounds[0].origin}{self.bounds[0].path}/{url.lstrip('/')}"
        if not any(bound.holds(full) for bound in self.bounds):
            raise HostNotBound(self.connection.name, _host_of(full))
        given = {name: value for name, value in (params or {}).items() if value is not None}
        return f"{full}{'&' if '?' in full else '?'}{urlencode(given, doseq=True)}" if given else full

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        access = await self.access(None)
        reply = await self._once(method, url, headers, body, access)
        if reply.status != HTTPStatus.UNAUTHORIZED:
            return reply
        access = await self.access(access.version)
        reply = await self._once(method, url, headers, body, access)
        if reply.status == HTTPStatus.UNAUTHORIZED:
            await self.refuse(access.version)
            raise Unauthorized(self.connection)
        return reply

    async def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, access: Access) -> Reply:
        from bot.outgoing import NotAllowed, TooLarge, Unreachable  # noqa: PLC0415 - an HTTP client, only where one is used

        lines = {"accept": "application/json", **headers, "authorization": f"Bearer {access.token}"}
        try:
            got: Fetched = await self.outgoing.fetch(method, url, headers=lines, body=body)
        except NotAllowed as error:
            raise RequestFailed(self.connection.name, str(error), sent=False) from None
        except Unreachable as error:
            raise RequestFailed(self.connection.name, error.reason, sent=error.sent) from None
        except TooLarge:
            raise RequestFailed(self.connection.name, "its answer is too large", sent=True) from None
        return Reply(connection=self.connection.name, status=got.status, headers=got.headers, body=got.body)


def _host_of(url: str) -> str:
    """Name the host of an address for an error; nothing else of it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or "no host"
        return f"{parts.scheme}://{host}" if parts.port is None else f"{parts.scheme}://{host}:{parts.port}"
    except ValueError:
        return "an address that can't be read"
