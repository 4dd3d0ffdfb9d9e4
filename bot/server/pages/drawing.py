"""A page of /connect/ as HTML: its templates, its files and the headers it goes out with.

What lives here: drawing a `Page`, the stylesheet with the tokens that the console has too, `PAGE_HEADERS`. What does not: what a
page says (bot/signins/page.py), its address and status (bot/server/connect.py), how names are made safe to read (words.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from bot.server.pages import words
from bot.server.pages.scopes import scope_words
from bot.signins.page import Page

PAGE_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": (
            "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "X-Robots-Tag": "noindex, nofollow, noarchive",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
)
"""What every page goes out with. With `no-referrer` a browser sends `Origin: null` when a form of the page is posted (Fetch,
"append a request Origin header"): whoever checks where a post comes from has to read `Sec-Fetch-Site`."""

STYLE_PATH: Final = "/connect/style.css"
MARK_PATH: Final = "/connect/mark.svg"
_FOREVER: Final = "public, max-age=31536000, immutable"
_PROSE: Final = frozenset({"problem", "note", "reason"})
_ADDRESSES: Final = frozenset({"thread_url", "go"})
_TERMS: Final = frozenset({"tool", "account", "error_id"})
_PATHS: Final = frozenset({"action", "decline"})


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the pages: the same for everybody, so it may be kept by whoever likes."""

    body: bytes
    content_type: str
    etag: str

    def headers(self, version: str | None) -> dict[str, str]:
        """Return what it goes out with, where it was asked for as `?v=` with this version (None: without)."""
        kept = _FOREVER if version == self.etag else "no-cache"
        return {"Cache-Control": kept, "ETag": f'"{self.etag}"', "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True)
class _Until:
    machine: str
    words: str


@dataclass(frozen=True, slots=True)
class _Initials:
    agent: str
    service: str


def draw(page: Page) -> str:
    """Draw a page as a whole HTML document; it goes out with `PAGE_HEADERS` and the page's own status."""
    safe = _safe(page)
    scopes, more = scope_words(page.scopes)
    template = _templates().get_template(f"{page.kind.value}.html")
    return template.render(
        page=safe,
        scopes=scopes,
        more=more,
        initials=_Initials(words.initial(safe.agent), words.initial(safe.service)),
        host=words.host_of(safe.go) or "another site",
        until=None if page.expires_at is None else _Until(words.machine_moment(page.expires_at), words.moment(page.expires_at)),
        style=f"{STYLE_PATH}?v={style().etag}",
        icon=f"{MARK_PATH}?v={mark().etag}",
    )


@cache
def style() -> Asset:
    """Return the one stylesheet: the console's tokens, then what is the pages' own."""
    tokens = resources.files("bot.console").joinpath("static", "tokens.css").read_bytes()
    own = resources.files("bot.server.pages").joinpath("style.css").read_bytes()
    return _asset(tokens + b"\n" + own, "text/css")


@cache
def mark() -> Asset:
    """Return the sign that a browser shows beside the title."""
    return _asset(resources.files("bot.console").joinpath("static", "mark.svg").read_bytes(), "image/svg+xml")


def _asset(body: bytes, content_type: str) -> Asset:
    return Asset(body, content_type, hashlib.sha256(body).hexdigest()[:24])


def _safe(page: Page) -> Page:
    """Make every text of a page fit to be shown; an address that may not be a link is left out."""
    given: dict[str, Any] = {field.name: getattr(page, field.name) for field in fields(page) if field.name != "kind"}
    texts = {name: _text(name, value) for name, value in given.items() if isinstance(value, str)}
    return Page(kind=page.kind, **{**given, **texts})


def _text(name: str, value: str) -> str:
    if name in _ADDRESSES:
        return words.linkable(value) or ""
    if name in _PATHS:
        return words.own_path(value)
    if name == "agent":
        return words.capital(words.name(value))
    if name in _PROSE:
        return words.prose(value)
    return words.term(value) if name in _TERMS else words.name(value)


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("bot.server.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
