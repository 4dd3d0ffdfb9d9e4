"""Bodies and errors of the console's JSON API.

What lives here: reading a body strictly, checking its fields, the one shape of an error. What does not: routes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from aiohttp import web

from channels.events import MAX_CLICK_FIELD, MAX_CLICK_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.console.port import JsonObject

BODY_LIMIT = 64 * 1024
FORM_LIMIT = 256 * 1024
_CHUNK = 16 * 1024
_CLIENT_ID = re.compile(r"[A-Za-z0-9_-]{8,80}")


class Refused(Exception):
    """A request that gets an error answer."""

    def __init__(self, status: int, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retryable = retryable


def error_response(status: int, code: str, message: str, *, retryable: bool = False, error_id: str = "") -> web.Response:
    """Build the answer every error has."""
    error: JsonObject = {"code": code, "message": message, "retryable": retryable}
    if error_id:
        error["error_id"] = error_id
    return web.json_response({"error": error}, status=status)


async def read_body(request: web.Request, fields: Mapping[str, str]) -> dict[str, str]:
    """Read a JSON object that has exactly these fields, all strings; `fields` maps a name to its kind, "text" or "id".

    Raises: Refused (400, 413, 415).
    """
    return check_fields(await _read_object(request, BODY_LIMIT), fields)


async def read_form(request: web.Request, fields: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Read the same with what was filled in, an object of texts by the name of `fields` that may be left out.

    Raises: Refused (400, 413, 415).
    """
    body = await _read_object(request, FORM_LIMIT)
    filled = body.pop("fields", {})
    if not isinstance(filled, dict) or len(filled) > MAX_CLICK_FIELDS:
        raise Refused(400, "invalid_field", f"fields has to be an object of at most {MAX_CLICK_FIELDS} texts.")
    for name, value in filled.items():
        if not isinstance(value, str) or not _storable(value) or not _storable(name):
            raise Refused(400, "invalid_field", f"{json.dumps(name)[:80]} has to be a text that can be stored.")
        if len(value) > MAX_CLICK_FIELD:
            raise Refused(400, "too_long", f"A field has at most {MAX_CLICK_FIELD:,} characters. Shorten it.")
    return check_fields(body, fields), filled


async def _read_object(request: web.Request, limit: int) -> JsonObject:
    if request.content_type != "application/json":
        raise Refused(415, "unsupported_media_type", "Send JSON with Content-Type application/json.")
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    raw = bytearray()
    async for chunk in request.content.iter_chunked(_CHUNK):
        raw += chunk
        if len(raw) > limit:
            raise _too_large(limit)
    return parse_object(bytes(raw))


def parse_object(raw: bytes) -> JsonObject:
    """Parse bytes into a JSON object, strictly.

    Raises: Refused (400).
    """
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "malformed", "The body is not valid JSON.") from error
    if not isinstance(value, dict):
        raise Refused(400, "malformed", "The body has to be a JSON object.")
    return value


def check_fields(body: JsonObject, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the body's fields, all present, all strings that can be stored, none unknown.

    Raises: Refused (400).
    """
    unknown = sorted(set(body) - set(fields))
    if unknown:
        raise Refused(400, "unknown_field", f"There is no field {json.dumps(unknown[0])[:80]} in this call.")
    checked: dict[str, str] = {}
    for name, kind in fields.items():
        value = body.get(name)
        if not isinstance(value, str) or not value.strip():
            raise Refused(400, "invalid_field", f"{name} has to be a text that isn't empty.")
        if not _storable(value):
            raise Refused(400, "invalid_field", f"{name} holds characters that can't be stored.")
        if kind == "id" and not _CLIENT_ID.fullmatch(value):
            raise Refused(400, "invalid_field", f"{name} has to be 8 to 80 letters, digits, - or _.")
        checked[name] = value
    return checked


def _storable(text: str) -> bool:
    """Say no to NUL (PostgreSQL) and lone surrogates (UTF-8)."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _too_large(limit: int) -> Refused:
    return Refused(413, "too_large", f"The body is larger than {limit // 1024} KB.")


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found
