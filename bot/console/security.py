"""Who may reach a server that has no login: this machine, from its own pages.

What lives here: the loopback guard of demo and dev, and the headers of the console's answers. What does not: the console's key.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiohttp.typedefs import Middleware

_FORWARDED = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "CF-Connecting-IP")
"""What proxies say that they are there by. One that says nothing can't be told from a program of this machine."""
_DEFAULT_PORT = 80
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


def loopback_guard(*, port: int | None = None, spared: Sequence[str] = (), allow_network: bool = False) -> Middleware:
    """Build the middleware that answers 403 to whoever is not this machine's own page or program.

    `port` is the one people use (None: the socket's own). Paths at or under a prefix in `spared` are open to everybody.
    With `allow_network` other machines and host names are let in, other sites' pages still are not.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        if not any(_under(request.path, prefix) for prefix in spared):
            reason = refusal(request, port=port, allow_network=allow_network)
            if reason is not None:
                return _forbidden(request, reason)
        return await handler(request)

    return guard


def refusal(request: web.BaseRequest, *, port: int | None, allow_network: bool = False) -> str | None:
    """Say in a sentence why a request must not be served, None if it may."""
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1:
        return "A request needs exactly one Host header."
    host = hosts[0].strip().lower()
    if not allow_network:
        reason = _not_local(request, host, port)
        if reason is not None:
            return reason
    origins = request.headers.getall("Origin", [])
    if origins and origins != [f"{request.scheme}://{host}"]:
        return "Pages of other sites may not call this server."
    return _cross_site(request)


def _not_local(request: web.BaseRequest, host: str, port: int | None) -> str | None:
    """Check peer, proxies and Host; a rebound DNS name carries a foreign Host though the peer is local."""
    if not _peer_is_local(request):
        return "This server answers only to the machine it runs on. Start it with --allow-network to change that."
    if any(name in request.headers for name in _FORWARDED):
        return "This server answers only to the machine it runs on, and this request came through a proxy."
    wanted = port if port is not None else _bound_port(request)
    names = {f"{name}:{wanted}" for name in ("127.0.0.1", "localhost", "[::1]")}
    if wanted == _DEFAULT_PORT:
        names |= {"127.0.0.1", "localhost", "[::1]"}
    if host not in names:
        return f"This server answers only to http://127.0.0.1:{wanted} and http://localhost:{wanted}. Open one of these."
    return None


def _cross_site(request: web.BaseRequest) -> str | None:
    """Check Fetch Metadata (W3C): other sites never, other ports of this machine only to open a page."""
    sites = request.headers.getall("Sec-Fetch-Site", [])
    opens_page = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    if not sites or sites in (["same-origin"], ["none"]) or (sites == ["same-site"] and opens_page):
        return None
    return "Pages of other sites may not call this server. Type or paste the address instead of following a link."


def _peer_is_local(request: web.BaseRequest) -> bool:
    if request.transport is None:
        return False
    peer = request.transport.get_extra_info("peername")
    if isinstance(peer, (str, bytes)):  # a Unix socket
        return True
    if not isinstance(peer, tuple) or not peer:
        return False
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _bound_port(request: web.BaseRequest) -> int | None:
    name = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return int(name[1]) if isinstance(name, tuple) else None


def _under(path: str, prefix: str) -> bool:
    bare = prefix.rstrip("/")
    return path == bare or path.startswith(f"{bare}/")


def _forbidden(request: web.Request, reason: str) -> web.Response:
    if "text/html" in request.headers.get("Accept", ""):
        return web.Response(status=403, text=f"{reason}\n", headers=_PLAIN)
    error = {"code": "forbidden", "message": reason, "retryable": False}
    return web.json_response({"error": error}, status=403, headers=_PLAIN)


_PLAIN = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


async def harden(request: web.Request, response: web.StreamResponse) -> None:
    """Add the console's headers to a response (an `on_response_prepare` signal)."""
    if not _under(request.path, "/console"):
        return
    response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["X-Frame-Options"] = "DENY"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    if not _under(request.path, "/console/static"):
        response.headers["Cache-Control"] = "no-store"
