"""Strict reading of plain JSON into values: what is missing, unknown or of another type is `MalformedPayload`.

What lives here: fields of one object. What does not: decoding bytes (`http.read_json`), or any value's own shape.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

from channels.errors import MalformedPayload

Json = dict[str, Any]
Fields = Mapping[str, object]

_T = TypeVar("_T")


def made(make: Callable[[], _T]) -> _T:
    """Make a value that refuses what it can't hold. Raises: MalformedPayload."""
    try:
        return make()
    except ValueError as error:
        raise MalformedPayload(str(error)) from None


def an_object(data: object, names: Collection[str]) -> Fields:
    """Read an object that has these fields and no others. Raises: MalformedPayload."""
    if not isinstance(data, dict):
        raise MalformedPayload(f"an object was expected, not {type(data).__name__}")
    if data.keys() != set(names):
        strange = sorted(str(name)[:40] for name in data.keys() ^ set(names))
        raise MalformedPayload(f"unknown or missing: {', '.join(strange[:5])}")
    return cast("dict[str, object]", data)


def a_string(value: object, name: str) -> str:
    """Read a text. Raises: MalformedPayload."""
    if not isinstance(value, str):
        raise MalformedPayload(f"{name} is not text")
    return value


def text(fields: Fields, name: str) -> str:
    """Read a field that is text. Raises: MalformedPayload."""
    return a_string(fields.get(name), name)


def flag(fields: Fields, name: str) -> bool:
    """Read a field that is true or false. Raises: MalformedPayload."""
    value = fields.get(name)
    if not isinstance(value, bool):
        raise MalformedPayload(f"{name} is neither true nor false")
    return value


def integer(fields: Fields, name: str) -> int:
    """Read a field that is a whole number. Raises: MalformedPayload."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedPayload(f"{name} is not a whole number")
    return value


def a_list(fields: Fields, name: str, *, most: int | None = None) -> list[object]:
    """Read a field that is a list of at most so many. Raises: MalformedPayload."""
    value = fields.get(name)
    if not isinstance(value, list):
        raise MalformedPayload(f"{name} is not a list")
    if most is not None and len(value) > most:
        raise MalformedPayload(f"{name} has more than {most} entries")
    return cast("list[object]", value)


def pairs(fields: Fields, name: str) -> tuple[tuple[str, str], ...]:
    """Read a field that is a list of pairs of texts. Raises: MalformedPayload."""
    found: list[tuple[str, str]] = []
    for item in a_list(fields, name):
        if not isinstance(item, list) or len(item) != 2:
            raise MalformedPayload(f"an entry of {name} is not a pair")
        found.append((a_string(item[0], name), a_string(item[1], name)))
    return tuple(found)


def one_of(fields: Fields, name: str, allowed: tuple[str, ...]) -> str:
    """Read a field that is one of some words. Raises: MalformedPayload."""
    value = text(fields, name)
    if value not in allowed:
        raise MalformedPayload(f"{name} is not one of {', '.join(allowed)}")
    return value


def optional(fields: Fields, name: str, read: Callable[[object], _T]) -> _T | None:
    """Read a field that may be null. Raises: MalformedPayload."""
    value = fields.get(name)
    return None if value is None else read(value)
