"""Webhook requests and responses as values, and the strict reading of a JSON body.

What lives here: bytes in, bytes out. What does not: a server, a client, or any platform's format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NoReturn

from channels.errors import MalformedPayload

Headers = Mapping[str, str] | Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A request as it arrived: the body is the raw bytes, since signatures cover bytes.

    `headers` is a mapping (a multi-mapping keeps repeated headers) or pairs; names compare case-insensitively.
    """

    method: str
    path: str
    _: KW_ONLY
    headers: Headers = field(default_factory=dict)
    body: bytes = b""
    query: Mapping[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str | None:
        """Return the first header of that name, or None."""
        values = self.header_values(name)
        return values[0] if values else None

    def header_values(self, name: str) -> tuple[str, ...]:
        """Return every value of that header, in order: a repeated header is for the caller to judge."""
        pairs = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
        wanted = name.lower()
        return tuple(value for key, value in pairs if key.lower() == wanted)


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """What to answer a webhook request with."""

    status: int = 200
    body: bytes = b""
    _: KW_ONLY
    content_type: str = "text/plain; charset=utf-8"


def read_json(body: bytes) -> object:
    """Decode a body as strict JSON: UTF-8, no NaN, no repeated keys, no lone surrogates.

    Raises: MalformedPayload, whatever the bytes are (too deep nesting and endless digits included).
    """
    try:
        text = body.decode("utf-8", errors="strict")
        value: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        # An escape such as \ud800 decodes to half a character, which no database or wire can carry on.
        json.dumps(value, ensure_ascii=False).encode("utf-8", errors="strict")
    except MalformedPayload:
        raise
    except RecursionError:
        raise MalformedPayload("nested too deeply") from None
    except ValueError as error:  # bad UTF-8, bad JSON, half characters, numbers too long
        raise MalformedPayload(f"not JSON: {type(error).__name__}") from None
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedPayload("a key is repeated")
    return found


def _no_constant(name: str) -> NoReturn:
    raise MalformedPayload(f"{name} is not JSON")
