"""What exactly a yes was given to, as a digest that is compared again when the call is about to run.

What lives here: the digest. What does not: who compares it when (bot/session/calls.py, edits.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_core import to_json, to_jsonable_python


def binding(tool: str, schema: Mapping[str, JsonValue], arguments: Mapping[str, JsonValue]) -> str:
    """Digest a call: SHA-256 in hex over the tool's name, its JSON Schema and the arguments, whatever the order of keys."""
    return hashlib.sha256(to_json([tool, _sorted(dict(schema)), _sorted(dict(arguments))], inf_nan_mode="strings")).hexdigest()


def meaning(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Digest what each argument has come to once it is validated; of one that can't be told, nothing.

    A default or a validator of the author's may make another value at another time, and people were shown this one.
    """
    found = {}
    for name, value in arguments.items():
        with suppress(Exception):  # the values' own code
            found[name] = hashlib.sha256(to_json(_plain(value), inf_nan_mode="strings")).hexdigest()[:16]
    return found


def _plain(value: Any) -> Any:
    """Give equal values of an equal kind the same JSON in every process: sets have no order of their own."""
    match value:
        case BaseModel():
            return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
        case Mapping():
            return sorted(([_plain(name), _plain(part)] for name, part in value.items()), key=repr)
        case set() | frozenset():
            return sorted(map(_plain, value), key=repr)
        case list() | tuple():
            return [_plain(part) for part in value]
        case _:
            return to_jsonable_python(
                value, inf_nan_mode="strings", bytes_mode="base64", fallback=lambda other: type(other).__name__
            )


def _sorted(value: JsonValue) -> JsonValue:
    """Give equal values equal bytes; the order of a schema's lists means something, that of its keys does not."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(part) for part in value]
    return value
