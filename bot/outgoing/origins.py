"""Which URLs may be asked at all, before any name is resolved.

What lives here: reading a URL and what is wrong with it. What does not: the address it resolves to (addresses.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from yarl import URL

PORTS: Final = frozenset({443, 8443})
LENGTH: Final = 8_000
"""Characters of a URL at most."""

_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\]")  # what parsers disagree about
_USER: Final = re.compile(r"[^/?#]*//[^/?#]*@")  # the words themselves: yarl drops an empty user
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """A URL as it will be asked, and the origin that may be told."""

    url: URL = field(repr=False)
    origin: str
    trusted: bool
    problem: str | None
    """Why it may not be asked; None where it may."""


def origin_of(url: URL) -> str:
    """Return `scheme://host[:port]`, without the port where it is the scheme's own; empty without a host."""
    if not url.scheme or not url.raw_host:
        return ""
    host = f"[{url.raw_host}]" if ":" in url.raw_host else url.raw_host
    port = "" if url.explicit_port in (None, _DEFAULT_PORTS.get(url.scheme)) else f":{url.explicit_port}"
    return f"{url.scheme}://{host}{port}"


def read(url: str, trusted: frozenset[str]) -> Target:
    """Judge a URL by its words."""
    if len(url) > LENGTH or _UNSAFE.search(url):
        return Target(URL(), "", trusted=False, problem="the URL is too long or holds a character that no URL may hold")
    try:
        found = URL(url)
        origin = origin_of(found)
        port = found.port
    except ValueError:
        return Target(URL(), "", trusted=False, problem="it is no URL")
    known = origin in trusted
    problem = "the URL names a user" if _USER.match(url) else _problem(found, origin, port, trusted=known)
    return Target(found, origin, known, problem)


def _problem(url: URL, origin: str, port: int | None, *, trusted: bool) -> str | None:
    if not origin:
        return "it names no host"
    if trusted:
        return None
    if url.scheme != "https":
        return "only https is"
    return None if port in PORTS else f"only ports {', '.join(map(str, sorted(PORTS)))} are"
