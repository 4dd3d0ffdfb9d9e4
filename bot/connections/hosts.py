"""Whom a connection's token may be sent to: an exact comparison of parsed addresses, never of texts.

What lives here: bounds and what is in them. What does not: which addresses the network lets us reach (bot/outgoing).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?|\[[0-9a-f:.]+\]"
)
_SPACE: Final = re.compile(r"[\s\\\x00-\x1f\x7f]")
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Bound:
    """One origin that a token may go to, and the path that every request there begins with."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def of(cls, given: str, public_url: str | None) -> Bound:
        """Read an entry of ``hosts=``, which `host_problem` has nothing against; "/…" is on the app's own public URL."""
        own = given.startswith("/")
        parts = urlsplit(f"{(public_url or '').rstrip('/')}{given}" if own else given if "://" in given else f"https://{given}")
        return cls(parts.scheme, _host(parts), parts.port or _PORTS.get(parts.scheme, 0), parts.path.rstrip("/"))

    @property
    def origin(self) -> str:
        """The origin as an address begins."""
        port = "" if _PORTS.get(self.scheme) == self.port else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"

    def holds(self, url: str) -> bool:
        """Tell whether a full address is in these bounds: same scheme, host, port and path; no user, no way around them."""
        if _SPACE.search(url):
            return False
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError:
            return False
        if parts.username is not None or parts.password is not None or "@" in parts.netloc or parts.fragment:
            return False
        if (parts.scheme, _host(parts), port) != (self.scheme, self.host, self.port):
            return False
        if any(unquote(part) in {".", ".."} for part in re.split(r"/|%2f|%5c", parts.path, flags=re.IGNORECASE)):
            return False
        return parts.path == self.path or parts.path.startswith(f"{self.path}/")


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").lower()
    return f"[{host}]" if ":" in host else host


def host_problem(given: str) -> str | None:
    """Say what is wrong with an entry of ``hosts=``; None if nothing is."""
    wrong = (
        f"hosts= names {given!r}; give a host such as api.github.com, an https address without query, or a path on the app's own"
    )
    if given.startswith("/"):
        return wrong if given.startswith("//") or _SPACE.search(given) else None
    try:
        parts = urlsplit(given if "://" in given else f"https://{given}")
        port = parts.port
    except ValueError:
        return wrong
    plain = not ("@" in parts.netloc or parts.query or parts.fragment or port == 0 or _SPACE.search(given))
    local = parts.scheme == "http" and parts.hostname in {"127.0.0.1", "localhost", "::1"}
    return None if plain and (parts.scheme == "https" or local) and _HOST.fullmatch(_host(parts)) else wrong
