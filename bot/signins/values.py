"""What signing in hands out: links, and where a browser goes next.

What lives here: values. What does not: the attempt that is kept (attempt.py), pages (page.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.signins.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a person is told, alone, once they press Connect. `url` is "" where there is nothing to open; `words` say why."""

    url: str = field(default="", repr=False)
    code: str | None = field(default=None, repr=False)
    """What the page asks for, or, where `url` is the provider's own, what the provider asks for."""
    expires_at: int | None = None
    words: str = field(default="", repr=False)
    """All of it as one text, link and code included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """A cookie to set: a name and a value; empty takes it back."""

    name: str
    value: str = field(repr=False)
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Leave for another site."""

    url: str = field(repr=False)
    page: Page = field(repr=False)
    """What says so and leaves by itself."""
    cookie: Cookie | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """See what came of an attempt, at its own address: what is in the address bar now must not stay there."""

    attempt_id: str
    cookie: Cookie | None = None
