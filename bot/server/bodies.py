"""Bodies, headers and queries, read strictly.

What lives here: bytes to checked values; what is missing, surplus or wrong is refused by name. What does not: routes.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from aiohttp import web
from aiohttp.http import HttpProcessingError

from bot.errors import Problem
from bot.server.limits import Limits
from bot.session_api import JsonObject, Response
from bot.turn.state import TurnPolicy
from channels.errors import MalformedPayload
from channels.http import read_json

_CHUNK = 64 * 1024
WORD_LENGTH = 200
KEY = r"[\x20-\x7e]{1,255}"
_KEY = re.compile(KEY)
_DEPTH = 64
Kind = Literal["string", "word", "object", "list", "message"]
"""A word is an id or a name: a string of 1 to 200 characters, not of blanks alone."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a body."""

    kind: Kind
    required: bool = False


CREATE = {"message": Field("message"), "agent": Field("word"), "metadata": Field("object")}
MESSAGE = {"message": Field("message", required=True), "turn_policy": Field("word")}
RESPONSES = {"responses": Field("list", required=True)}
RESPONSE = {
    "request_id": Field("word", required=True),
    "option_id": Field("word"),
    "text": Field("string"),
    "note": Field("string"),
    "edits": Field("object"),
}
OVERRIDE = {"option_id": Field("word", required=True), "reason": Field("string", required=True), "note": Field("string")}
PART = {"type": Field("string", required=True), "text": Field("string", required=True)}
CANCEL = {"turn_id": Field("word")}
RESET = {"reason": Field("word")}
CONNECT: dict[str, Field] = {}


async def read_bytes(request: web.Request, *, limit: int, seconds: float) -> bytes:
    """Read a body, no more of it than the limit, however long it says to be.

    Raises: Problem (408, 413, 415).
    """
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}:
        raise Problem(415, "unsupported_media_type", "Send the body without Content-Encoding.")
    too_large = Problem(413, "too_large", f"The body is over {limit} bytes. Send less at once.")
    if (request.content_length or 0) > limit:
        raise too_large
    raw = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.content.iter_chunked(_CHUNK):
                raw += chunk
                if len(raw) > limit:
                    raise too_large
    except TimeoutError:
        raise Problem(408, "request_timeout", "The body took too long to come. Send it again.", retryable=True) from None
    except (web.RequestPayloadError, HttpProcessingError, ConnectionError, ValueError) as error:
        raise Problem(400, "bad_request", "The body broke off or its transfer encoding is wrong. Send it again.") from error
    return bytes(raw)


async def read_object(request: web.Request, fields: Mapping[str, Field], *, limits: Limits) -> JsonObject:
    """Read a JSON object with these fields and no others. No body at all is an empty object where nothing is required.

    Raises: Problem (400, 408, 413, 415).
    """
    if not request.can_read_body and not any(field.required for field in fields.values()):
        return {}
    _check_content_type(request)
    raw = await read_bytes(request, limit=limits.body, seconds=limits.body_time)
    try:
        value = read_json(raw)
    except MalformedPayload as error:
        raise Problem(400, "malformed_json", f"The body is not strict JSON in UTF-8 ({error.reason}).") from None
    check_values(value)
    return check_fields(value, fields, where="body")


def check_fields(value: object, fields: Mapping[str, Field], *, where: str) -> JsonObject:
    """Return the object if it has what is required and nothing unknown; null counts as absent where a field is optional.

    Raises: Problem (400) that names every field that is wrong.
    """
    if not isinstance(value, dict):
        raise _invalid(f"{where} has to be a JSON object.")
    wrong = [f"{where} has no field {_shown(name)}" for name in sorted(set(value) - set(fields))]
    found: JsonObject = {}
    for name, field in fields.items():
        given = value.get(name)
        if given is None and not field.required:
            continue
        if given is None:
            wrong.append(f"{where}.{name} is missing" if name not in value else f"{where}.{name} may not be null")
        elif not _fits(given, field.kind):
            wrong.append(f"{where}.{name} has to be {_KINDS[field.kind]}")
        else:
            found[name] = given
    if wrong:
        raise _invalid(f"{'; '.join(wrong[:20])}. Known fields: {', '.join(fields)}.")
    return found


def check_values(value: object) -> None:
    """Refuse what can't be carried everywhere: NUL, numbers too large for a float, deep nesting.

    Raises: Problem (400).
    """
    level = [value]
    for _ in range(_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below += [*item, *item.values()]
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str) and "\x00" in item:
                raise _invalid("A text may not hold the character NUL.")
            elif isinstance(item, float) and not math.isfinite(item):
                raise _invalid("A number is too large.")
            elif isinstance(item, int) and not isinstance(item, bool) and abs(item) >= 2**63:
                raise _invalid("An integer has more than 64 bits. Send it as a string.")
        if not below:
            return
        level = below
    raise _invalid(f"The body is nested deeper than {_DEPTH} levels.")


def message_text(value: object, *, limits: Limits) -> str:
    """Return the text of a message: a string, or text parts, one a line.

    Raises: Problem (400, 413).
    """
    text = value if isinstance(value, str) else "\n".join(_parts(value, limits=limits))
    if not text.strip():
        raise _invalid("body.message is empty. Write something.")
    _check_size("body.message", text, limits.message)
    return text


def _parts(value: object, *, limits: Limits) -> list[str]:
    if not isinstance(value, list) or not 1 <= len(value) <= limits.parts:
        raise _invalid(f"body.message has to be a string or a list of 1 to {limits.parts} parts.")
    texts: list[str] = []
    for index, part in enumerate(value):
        where = f"body.message[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind != "text":
            raise Problem(400, "unsupported_part", f'{where} is of type {_shown(kind)}. Only parts of type "text" are taken.')
        texts.append(check_fields(part, PART, where=where)["text"])
    return texts


def responses(value: list[Any], *, limits: Limits) -> list[Response]:
    """Return the answers to requests.

    Raises: Problem (400, 413).
    """
    if not 1 <= len(value) <= limits.responses:
        raise _invalid(f"body.responses has to hold 1 to {limits.responses} responses.")
    found: list[Response] = []
    for index, item in enumerate(value):
        where = f"body.responses[{index}]"
        fields = check_fields(item, RESPONSE, where=where)
        text, note = filled(fields, "text", where=where, limits=limits), filled(fields, "note", where=where, limits=limits)
        option_id = short(fields, "option_id", where=where)
        if option_id is None and text is None:
            raise _invalid(f"{where} needs option_id, text, or both.")
        if note is not None and (option_id is None or text is not None):
            raise _invalid(f"{where}.note goes with an option_id, without text. Send it as text, or leave one of them out.")
        request_id = short(fields, "request_id", where=where) or ""
        if any(request_id == other.request_id for other in found):
            raise _invalid(f"{where}.request_id came before in the same call. Answer each request once.")
        edits = _edits(fields, where=where, limits=limits)
        found.append(Response(request_id, option_id=option_id, text=text, note=note, edits=edits))
    return found


def filled(fields: Mapping[str, Any], name: str, *, where: str = "body", limits: Limits) -> str | None:
    """Return a text that somebody wrote; one of blanks alone is none.

    Raises: Problem (413).
    """
    text: str | None = fields.get(name)
    if text is None or not text.strip():
        return None
    _check_size(f"{where}.{name}", text, limits.response_text)
    return text


def reason(fields: Mapping[str, Any], *, limits: Limits) -> str:
    """Return why somebody overrides.

    Raises: Problem (400).
    """
    text = str(fields["reason"]).strip()
    if not 1 <= len(text) <= limits.reason:
        raise _invalid(f"body.reason has to be 1 to {limits.reason} characters.")
    return text


def _edits(fields: Mapping[str, Any], *, where: str, limits: Limits) -> JsonObject | None:
    value: JsonObject | None = fields.get("edits")
    if value is None:
        return None
    if not 1 <= len(value) <= limits.edits:
        raise _invalid(f"{where}.edits has to name 1 to {limits.edits} arguments.")
    if len(orjson.dumps(value)) > limits.response_text:
        raise Problem(413, "too_large", f"{where}.edits is over {limits.response_text} bytes of JSON. Send less.")
    return value


def short(fields: Mapping[str, Any], name: str, *, where: str = "body") -> str | None:
    """Return a field that is an id or a word.

    Raises: Problem (400).
    """
    text: str | None = fields.get(name)
    if text is not None and not (text.strip() and len(text) <= WORD_LENGTH):
        raise _invalid(f"{where}.{name} has to be 1 to {WORD_LENGTH} characters.")
    return text


def turn_policy(fields: Mapping[str, Any]) -> TurnPolicy | None:
    """Return what the message does to a running turn.

    Raises: Problem (400).
    """
    text = fields.get("turn_policy")
    if text is None:
        return None
    if text not in set(TurnPolicy):
        raise _invalid(f"body.turn_policy has to be one of: {', '.join(TurnPolicy)}.")
    return TurnPolicy(text)


def metadata(fields: Mapping[str, Any], *, limits: Limits) -> JsonObject | None:
    """Return the metadata of a session.

    Raises: Problem (413).
    """
    value: JsonObject | None = fields.get("metadata")
    if value is not None and len(orjson.dumps(value)) > limits.metadata:
        raise Problem(413, "too_large", f"body.metadata is over {limits.metadata} bytes of JSON. Send less.")
    return value


def idempotency_key(request: web.Request) -> str | None:
    """Return the Idempotency-Key.

    Raises: Problem (400).
    """
    values = request.headers.getall("Idempotency-Key", [])
    if not values:
        return None
    if len(values) > 1 or not _KEY.fullmatch(values[0]):
        raise Problem(400, "bad_idempotency_key", "Send one Idempotency-Key of 1 to 255 printable ASCII characters.")
    return values[0]


def _check_content_type(request: web.Request) -> None:
    try:
        wanted = request.content_type == "application/json" and (request.charset or "utf-8").lower() in {"utf-8", "utf8"}
    except ValueError:
        wanted = False
    if not wanted or len(request.headers.getall("Content-Type", [])) != 1:
        raise Problem(415, "unsupported_media_type", "Send JSON in UTF-8, with Content-Type: application/json.")


def _check_size(where: str, text: str, limit: int) -> None:
    if len(text.encode()) > limit:
        raise Problem(413, "too_large", f"{where} is over {limit} bytes. Send less.")


def _fits(value: object, kind: Kind) -> bool:
    match kind:
        case "string" | "word":
            return isinstance(value, str)
        case "object":
            return isinstance(value, dict)
        case "list":
            return isinstance(value, list)
        case "message":
            return isinstance(value, str | list)


_KINDS: dict[Kind, str] = {
    "string": "a string",
    "word": "a string",
    "object": "an object",
    "list": "a list",
    "message": "a string or a list of text parts",
}


def _shown(name: str) -> str:
    return orjson.dumps(name[:40]).decode()


def _invalid(message: str) -> Problem:
    return Problem(400, "invalid_body", message)
