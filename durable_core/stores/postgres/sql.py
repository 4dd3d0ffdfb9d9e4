"""SQL text: the one expression of "now", tables in a namespace, statements of the layers above.

What lives here: rewriting of statements, cached. What does not: statements themselves.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

NOW: Final = "coalesce({now}::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
"""The one expression of "now"; `{now}` is the parameter that `Clock.override()` is bound to. Never `now()`: it stands still."""

_TABLE: Final = re.compile(r"\bmoor_(?=\w)")
# strings are left alone, and so are casts (`::bigint`)
_NAME: Final = re.compile(r"'(?:[^']|'')*'|(?<![:\w]):([A-Za-z_]\w*)")


def now(parameter: str) -> str:
    """Return the expression of "now" with the override bound to this parameter (`$3`)."""
    return NOW.format(now=parameter)


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a string constant, for statements that take no parameters."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


@lru_cache(maxsize=1_000)
def qualified(sql: str, namespace: str) -> str:
    """Return a statement with its tables in a schema. A search path set on the connection would not survive a pooler."""
    return _TABLE.sub(f"{quoted(namespace)}.moor_", sql)


@lru_cache(maxsize=1_000)
def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with named parameters (`:name`) as one with numbered ones, and the names in order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:
            return found.group(0)
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _NAME.sub(number, sql), tuple(names)


def storable(text: str) -> str:
    """Return a text as PostgreSQL can store it: what others say of errors may hold NUL and half characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def plain(value: Any) -> str | int | bytes | None:
    """Return a value as every store gives it to the layers above."""
    match value:
        case None | str() | bytes():
            return value
        case bool() | int() | Decimal():
            return int(value)
        case _:
            return str(value)
