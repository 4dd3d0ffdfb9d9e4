"""Other people's words as they may stand on our pages.

What lives here: names and titles on one line with nothing hidden, addresses that may become links, moments.
What does not: escaping for HTML (the templates), what a scope means (scopes.py).
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from urllib.parse import urlsplit

from bot.display import reveal

_MOST_NAME = 64
_MOST_TERM = 160
_MOST_TEXT = 600
_JOINERS = re.compile("([\u200c\u200d])")
_OWN_PATH = re.compile(r"/(?!/)[A-Za-z0-9._~/-]*")
_VARIANT = "\ufe0f"


def name(text: str, *, most: int = _MOST_NAME) -> str:
    """Show what somebody is called: one line, nothing unseen, and no longer than a person reads."""
    line = " ".join(text.split())
    cut = line if len(line) <= most else f"{line[:most]}…"
    return _visible(cut)


def capital(text: str) -> str:
    """Write an agent's name as the name that it is: in code it is an identifier, "helper"."""
    return text[:1].upper() + text[1:]


def term(text: str) -> str:
    """Show a word that has to be told exactly, such as a scope or a tool's name: as a name, but longer."""
    return name(text, most=_MOST_TERM)


def prose(text: str) -> str:
    """Show a sentence that came from elsewhere, such as a provider's reason; its line breaks stay."""
    lines = [" ".join(line.split()) for line in text.strip().splitlines()]
    whole = "\n".join(line for line in lines if line)
    cut = whole if len(whole) <= _MOST_TEXT else f"{whole[:_MOST_TEXT]}…"
    return _visible(cut)


def initial(text: str) -> str:
    """Return the letter or digit that stands for a name in a square; a dot where it has none."""
    return next((char.upper()[0] for char in text if char.isalnum()), "·")


def linkable(address: str | None) -> str | None:
    """Return an address that may be a link on a page of ours, and None for any other: scripts, data, our own paths."""
    if address is None or not address.isascii() or any(char.isspace() or char < " " or char in "\"'<>\\" for char in address):
        return None
    try:
        parts = urlsplit(address)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.username
    except ValueError:
        return None
    return address if known else None


def host_of(address: str | None) -> str:
    """Return the host (and an unusual port) of an address, as a person compares it with the address bar."""
    safe = linkable(address)
    return urlsplit(safe).netloc.lower() if safe is not None else ""


def own_path(address: str) -> str:
    """Return an address that a form of ours may be sent to, a path of this very site; "" for any other."""
    return address if _OWN_PATH.fullmatch(address) else ""


def moment(at: int) -> str:
    """Give a moment in milliseconds as the exact time that a page shows on hover."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine_moment(at: int) -> str:
    """Give a moment in milliseconds for a `datetime` attribute."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _visible(text: str) -> str:
    """Make unseen characters visible; joiners stay where a script or an emoji needs them."""
    parts = _JOINERS.split(text)
    shown = [reveal(parts[0])]
    for at in range(1, len(parts), 2):
        joiner, before, after = parts[at], parts[at - 1], parts[at + 1]
        shown.append(joiner if _joins(joiner, before, after) else reveal(joiner))
        shown.append(reveal(after))
    return "".join(shown)


def _joins(joiner: str, before: str, after: str) -> bool:
    if not before or not after:
        return False
    if joiner == "\u200d" and _pictures(before.removesuffix(_VARIANT)[-1:]) and _pictures(after[0]):
        return True
    return _shapes(before[-1]) and _shapes(after[0])


def _pictures(char: str) -> bool:
    return bool(char) and unicodedata.category(char) in {"So", "Sk"}


def _shapes(char: str) -> bool:
    """Tell whether a letter is of a script in which a joiner changes how its neighbours are drawn."""
    if unicodedata.bidirectional(char) == "AL":
        return True
    return 0x0900 <= ord(char) <= 0x0DFF and unicodedata.category(char)[0] in "LM"
