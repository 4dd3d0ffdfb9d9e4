"""Answers of a provider, read so that nothing in them can surprise.

What lives here: total readers from bytes to checked values; whatever is of a wrong type, too long or unprintable raises
`ProviderNonsense`, which quotes nothing. What does not: which fields an answer has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from bot.connections.protocol.errors import ProviderNonsense
from bot.outgoing import Fetched, NotJson

TEXT: Final = 16_384
"""Characters of one text at most: an access token may hold a directory of groups."""
FORM: Final = "application/x-www-form-urlencoded"
MOST: Final = 500
"""Entries of one list at most."""

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")  # RFC 6749 appendix A: VSCHAR, without the space that ends a header's value


class Answer:
    """One object of somebody else's, with readers for its fields; `what` names it in errors."""

    __slots__ = ("fields", "what")

    def __init__(self, fields: Mapping[str, Any], what: str) -> None:
        self.fields = fields
        self.what = what

    def nonsense(self, name: str, problem: str) -> ProviderNonsense:
        """Make the error for a field; the field's name is ours, never the answer's."""
        return ProviderNonsense(f"{self.what}: {name} {problem}")

    def token(self, name: str) -> str | None:
        """Read something that travels in headers and forms: visible ASCII; None where it is absent, null or empty."""
        found = self.fields.get(name)
        if found is None or found == "":
            return None
        if not isinstance(found, str) or len(found) > TEXT or not _VISIBLE.fullmatch(found):
            raise self.nonsense(name, "is no text that could be sent back")
        return found

    def needed(self, name: str) -> str:
        """Read what must be there."""
        found = self.token(name)
        if found is None:
            raise self.nonsense(name, "is missing")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of texts; empty where it is absent or null."""
        found = self.fields.get(name)
        if found is None:
            return ()
        if not isinstance(found, list) or len(found) > MOST or not all(isinstance(one, str) for one in found):
            raise self.nonsense(name, "is no list of texts")
        return tuple(one for one in found if len(one) <= TEXT and _VISIBLE.fullmatch(one))

    def flag(self, name: str) -> bool:
        """Read a yes; whatever is not plainly true is no."""
        return self.fields.get(name) is True

    def seconds(self, name: str, *, most: int) -> int | None:
        """Read a duration: a number, or one as text as some providers write it; None where it is absent or 0.

        More than `most` counts as `most`.
        """
        found = self.fields.get(name)
        if isinstance(found, str) and re.fullmatch(r"[0-9]{1,18}", found):
            found = int(found)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or found < 0:
            raise self.nonsense(name, "is no duration")
        return int(min(found, most)) or None

    def scopes(self, name: str) -> tuple[str, ...] | None:
        """Read scopes: words apart by spaces, by commas as some providers write them, or a list of texts."""
        found = self.fields.get(name)
        if found is None:
            return None
        if isinstance(found, list):
            return self.texts(name)
        if not isinstance(found, str) or len(found) > TEXT:
            raise self.nonsense(name, "is no list of scopes")
        words = re.split(r"[\s,]+", found.strip(" \t\r\n,"))
        if any(not _VISIBLE.fullmatch(word) for word in words if word):
            raise self.nonsense(name, "is no list of scopes")
        return tuple(dict.fromkeys(word for word in words if word))


def read_object(fetched: Fetched, what: str, *, forms: bool = False) -> Answer:
    """Read a body as one JSON object; with `forms` one that says so may be form-encoded, as GitHub's is unless asked."""
    if forms and fetched.headers.get("Content-Type", "").partition(";")[0].strip().lower() == FORM:
        return Answer(_read_form(fetched.body, what), what)
    try:
        found = fetched.json()
    except NotJson:
        found = None
    if not isinstance(found, dict):
        raise ProviderNonsense(f"{what}: the answer is no JSON object")
    return Answer(found, what)


def _read_form(body: bytes, what: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=64)
    except ValueError:
        pairs = []
    if not pairs or len(dict(pairs)) != len(pairs):
        raise ProviderNonsense(f"{what}: the answer is no form")
    return dict(pairs)


def dig(fields: Any, path: str) -> Any:
    """Follow `a.b.c` into nested objects; None where it leads nowhere."""
    for name in path.split("."):
        fields = fields.get(name) if isinstance(fields, dict) else None
    return fields


def first(fields: Any, paths: Sequence[str], *, limit: int) -> str | None:
    """Return the first of several paths that leads to a text or a whole number, as one printable line."""
    for path in paths:
        found = dig(fields, path)
        if isinstance(found, int) and not isinstance(found, bool):
            found = str(found)
        if isinstance(found, str) and (text := printable(found, limit=limit)):
            return text
    return None


def printable(text: str, *, limit: int) -> str:
    """Return a text as one line of printable characters, cut to `limit`."""
    return " ".join("".join(one if one.isprintable() else " " for one in text[: limit * 4]).split())[:limit]
