"""What exactly a yes was given to, as a digest that is compared again when the call is about to run.

What lives here: the digest. What does not: who compares it when (bot/session/calls.py, edits.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import to_json


def binding(tool: str, schema: Mapping[str, JsonValue], arguments: Mapping[str, JsonValue]) -> str:
    """Digest a call: SHA-256 in hex over the tool's name, its JSON Schema and the arguments, whatever the order of keys."""
    return hashlib.sha256(to_json([tool, _sorted(dict(schema)), _sorted(dict(arguments))], inf_nan_mode="strings")).hexdigest()


def _sorted(value: JsonValue) -> JsonValue:
    """Give equal values equal bytes; the order of a schema's lists means something, that of its keys does not."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(part) for part in value]
    return value
