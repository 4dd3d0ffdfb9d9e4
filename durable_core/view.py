"""A view of stored values for people: JSON, cut short, without secrets.

What lives here: from an encoded body to what a person may look at. What does not: opening what is sealed (stores), which pages
and commands show it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final, TypeAlias
from uuid import UUID

from durable_core.codec import JsonValue, decode
from durable_core.errors import DurableError

Shown: TypeAlias = "bool | int | float | str | list[Shown] | dict[str, Shown] | None"
"""Plain JSON."""

HIDDEN: Final = "***"
_MORE: Final = "…"
_SECRET: Final = re.compile(
    r"(?ix) (?: ^ | _ | - ) (?: pass(?:word|wd|phrase)? | secrets? | tokens? | api_?-?keys? | credentials? | authorization |"
    r" cookies? | private_?-?key | session_?-?key ) $"
)
_COUNT: Final = re.compile(r"(?i)(?:input|output|total|max|read|write)_?tokens$")
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SAFE_INT: Final = 2**53
"""Beyond this a reader in JavaScript would round."""


@dataclass(frozen=True, slots=True)
class ViewLimits:
    """How much of a value is shown."""

    _: KW_ONLY
    text: int = 2_000
    items: int = 100
    depth: int = 12


LIMITS: Final = ViewLimits()


def view(body: bytes, *, limits: ViewLimits = LIMITS, redact: Callable[[str], str] | None = None) -> Shown:
    """Return a stored body as plain JSON for people; it never raises on what it is given.

    Texts, lists and objects are cut where they are long, and say by how much. Values under names such as `token` or `api_key` are
    hidden, and every text goes through `redact`. What can't be read says why, as `{"unreadable": reason}`.
    """
    if not body:
        return None
    try:
        value = decode(body)
    except DurableError as error:
        return {"unreadable": str(error)}
    return shown(value, limits=limits, redact=redact)


def shown(value: JsonValue, *, limits: ViewLimits = LIMITS, redact: Callable[[str], str] | None = None) -> Shown:
    """As `view`, of a value that is decoded already."""
    return _Viewer(limits, redact or (lambda text: text)).any(value, 0)


@dataclass(frozen=True, slots=True)
class _Viewer:
    limits: ViewLimits
    redact: Callable[[str], str]

    def any(self, value: JsonValue, depth: int) -> Shown:
        match value:
            case None | bool() | float():
                return value
            case int():
                return value if -_SAFE_INT <= value <= _SAFE_INT else _number(value)
            case str():
                return self.text(value)
            case Decimal() | UUID():
                return str(value)
            case datetime() | date():
                return value.isoformat()
            case bytes():
                return f"{len(value):,} bytes"
            case dict():
                return self.object(value, depth)
            case list() | tuple():
                return self.array(value, depth)

    def text(self, text: str) -> str:
        most = self.limits.text
        clean = self.redact(text[: 2 * most])  # a secret that begins before the cut is known by what follows it
        return clean if len(text) <= most else f"{clean[:most]}{_MORE} ({len(text):,} characters)"

    def array(self, items: Sequence[JsonValue], depth: int) -> Shown:
        if depth >= self.limits.depth and items:
            return f"{_MORE} {len(items):,} items"
        found: list[Shown] = [self.any(item, depth + 1) for item in items[: self.limits.items]]
        rest = len(items) - len(found)
        return [*found, f"{_MORE} {rest:,} more"] if rest else found

    def object(self, fields: Mapping[str, JsonValue], depth: int) -> Shown:
        if depth >= self.limits.depth and fields:
            return f"{_MORE} {len(fields):,} fields"
        found: dict[str, Shown] = {}
        for name, value in list(fields.items())[: self.limits.items]:
            hidden = value not in (None, "", [], {}) and _is_secret(name)
            found[self.text(name)] = HIDDEN if hidden else self.any(value, depth + 1)
        rest = len(fields) - min(len(fields), self.limits.items)
        return {**found, _MORE: f"{rest:,} more"} if rest else found


def _is_secret(name: str) -> bool:
    """Tell whether a field's name says that its value is a secret: `token`, `accessToken`, not `input_tokens_used`."""
    return _SECRET.search(_WORDS.sub("_", name)) is not None and not _COUNT.search(name)


def _number(value: int) -> str:
    """Write a number that JSON readers would round; one of thousands of digits by its length."""
    bits = value.bit_length()
    return str(value) if bits <= 1_000 else f"a number of {bits:,} bits"
