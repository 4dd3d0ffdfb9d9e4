"""The session API as an OpenAPI document: /openapi.json.

What lives here: the document, made of the same tables that bodies are read by. What does not: the calls (api.py, prompts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson
from aiohttp import web

from bot.server import bodies
from bot.server.bodies import Field
from bot.server.limits import Limits
from bot.session_api import ControlStatus, JsonObject, ResponseStatus
from bot.settings import version
from bot.turn.state import TurnPolicy

_LIMITS: Final = Limits()
_TEXT: Final[JsonObject] = {"type": "string"}
_WHOLE: Final[JsonObject] = {"type": "integer"}
_FLAG: Final[JsonObject] = {"type": "boolean"}
_OBJECT: Final[JsonObject] = {"type": "object"}
_MAYBE: Final[JsonObject] = {"type": ["string", "null"]}
_FILLED: Final[JsonObject] = {"type": "string", "pattern": r"\S"}
_WORD: Final[JsonObject] = {**_FILLED, "minLength": 1, "maxLength": bodies.WORD_LENGTH}
_ID: Final[JsonObject] = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,80}$"}
_PART: Final[JsonObject] = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": _TEXT},
    "required": ["type", "text"],
    "additionalProperties": False,
}
_PARTS: Final[JsonObject] = {
    "type": "array",
    "items": _PART,
    "minItems": 1,
    "maxItems": _LIMITS.parts,
    "contains": {"properties": {"text": _FILLED}},
}
_TYPES: Final[Mapping[str, JsonObject]] = {
    "string": _TEXT,
    "word": _WORD,
    "object": _OBJECT,
    "list": {"type": "array"},
    "message": {"oneOf": [_FILLED, _PARTS]},
}


class Call(NamedTuple):
    """One call: what it takes and what a success answers."""

    method: str
    path: str
    says: str
    status: int
    scope: str = "sessions"
    body: Mapping[str, Field] | None = None
    query: Mapping[str, JsonObject] | None = None
    answer: JsonObject = _OBJECT
    nothing_to_do: bool = False
    """Whether there may be nothing to do, which is a success of its own."""
    streams: bool = False


_MORE: Final[Mapping[str, JsonObject]] = {
    "turn_policy": {"enum": list(TurnPolicy)},
    "responses": {"minItems": 1, "maxItems": _LIMITS.responses},
    "edits": {"minProperties": 1, "maxProperties": _LIMITS.edits},
}
"""What fields of these names hold, beside their kind."""
_ANSWERED: Final[JsonObject] = {"anyOf": [{"required": ["option_id"]}, {"required": ["text"], "properties": {"text": _FILLED}}]}


def _object(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties}


def _of(fields: Mapping[str, Field]) -> JsonObject:
    """Describe a body as it is read: strictly."""
    properties = {name: _TYPES[field.kind] | _MORE.get(name, {}) for name, field in fields.items()}
    if fields is bodies.RESPONSES:
        properties["responses"]["items"] = _of(bodies.RESPONSE) | _ANSWERED
    if fields is bodies.OVERRIDE:
        properties["reason"] = {**_FILLED, "maxLength": _LIMITS.reason}
    required = [name for name, field in fields.items() if field.required]
    described: JsonObject = {"type": "object", "properties": properties, "additionalProperties": False}
    return described | ({"required": required} if required else {})


_RESULT: Final = _object(
    request_id=_TEXT, submission_id=_TEXT, status={"type": "string", "enum": list(ResponseStatus)}, reason=_TEXT
)
_CONTROL: Final = _object(status={"type": "string", "enum": list(ControlStatus)})
_LIST: Final[JsonObject] = {"type": "array", "items": {"type": "object"}}
_PAGE: Final[Mapping[str, JsonObject]] = {"limit": _WHOLE | {"minimum": 1, "maximum": _LIMITS.page}}
_ACCEPTED: Final[Mapping[str, JsonObject]] = {"session_id": _TEXT, "submission_id": _TEXT, "deduplicated": _FLAG}
_STANDS: Final = _object(
    submission_id=_TEXT,
    session_id=_TEXT,
    turn_id=_MAYBE,
    status=_TEXT,
    reply={"type": ["object", "null"]},
    error={"type": ["object", "null"]},
    accepted_at=_TEXT,
    done_at=_MAYBE,
)
_SESSION_VIEW: Final = _object(
    session_id=_TEXT,
    agent=_TEXT,
    status={"type": "string", "enum": ["idle", "running", "waiting", "ended"]},
    turn_id=_MAYBE,
    open_prompts=_LIST,
    events=_WHOLE,
    metadata=_OBJECT,
    created_at=_TEXT,
    ends_at=_MAYBE,
    end_reason=_MAYBE,
)
_SESSION: Final = "/v1/sessions/{session_id}"

CALLS: Final = (
    Call(
        "post",
        "/v1/sessions",
        "Make a session, with or without a first message.",
        202,
        body=bodies.CREATE,
        answer=_object(**_ACCEPTED, status={"const": "accepted"}),
    ),
    Call("get", _SESSION, "A session as it stands, with its open requests.", 200, answer=_SESSION_VIEW),
    Call("post", f"{_SESSION}/messages", "Write into a session.", 202, body=bodies.MESSAGE, answer=_object(**_ACCEPTED)),
    Call(
        "post",
        f"{_SESSION}/responses",
        "Answer requests.",
        202,
        body=bodies.RESPONSES,
        answer=_object(results={"type": "array", "items": _RESULT}),
    ),
    Call("post", f"{_SESSION}/cancel", "Stop the turn that runs.", 202, body=bodies.CANCEL, answer=_CONTROL, nothing_to_do=True),
    Call("post", f"{_SESSION}/reset", "End a session for good.", 202, body=bodies.RESET, answer=_CONTROL, nothing_to_do=True),
    Call("get", f"{_SESSION}/events", "Events as a stream.", 200, query={"start": _WHOLE, "follow": _FLAG}, streams=True),
    Call(
        "get",
        "/v1/submissions/{submission_id}",
        "Where an input stands.",
        200,
        query={"wait": {"type": "number", "minimum": 0, "maximum": _LIMITS.wait}},
        answer=_STANDS,
    ),
    Call(
        "get",
        "/v1/prompts",
        "Open requests that concern the caller; with the scope prompts:read all of them.",
        200,
        query={"session_id": _ID, "mine": _FLAG, "after": _ID, **_PAGE},
        answer=_object(prompts=_LIST, next=_MAYBE),
    ),
    Call(
        "post",
        "/v1/prompts/{prompt_id}/override",
        "Decide a request in place of those who were asked.",
        202,
        scope="prompts:override",
        body=bodies.OVERRIDE,
        answer=_RESULT,
    ),
    Call(
        "post",
        "/v1/prompts/{prompt_id}/connect",
        "Make a fresh link to connect an account; only whoever the sign-in request asks gets one.",
        200,
        body=bodies.CONNECT,
        answer=_object(url=_TEXT, code=_MAYBE, expires_at=_TEXT),
    ),
    Call(
        "get",
        "/v1/audit",
        "Entries of the audit, by number.",
        200,
        scope="audit:read",
        query={"session_id": _ID, "request_id": _ID, "after": _WHOLE | {"minimum": 0, "maximum": 10**15 - 1}, **_PAGE},
        answer=_object(entries=_LIST, next={"type": ["integer", "null"]}),
    ),
)


def document() -> JsonObject:
    """Return the document."""
    paths: dict[str, JsonObject] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method] = _operation(call)
    error = _object(error=_object(code=_TEXT, message=_TEXT, retryable=_FLAG, error_id=_TEXT))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Moorings session API", "version": version()},
        "paths": paths,
        "components": {"schemas": {"Error": error}, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(call: Call) -> JsonObject:
    parts = [part[1:-1] for part in call.path.split("/") if part.startswith("{")]
    parameters: list[Any] = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in parts]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in (call.query or {}).items()]
    if call.method == "post":
        key = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": f"^{bodies.KEY}$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    kinds = ("application/x-ndjson", "text/event-stream") if call.streams else ("application/json",)
    answer = {"description": "Done.", "content": {kind: {"schema": _TEXT if call.streams else call.answer} for kind in kinds}}
    failed = {"description": "Refused.", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    found: JsonObject = {
        "summary": call.says,
        "security": [{"token": [call.scope]}],
        "parameters": parameters,
        "responses": {str(call.status): answer, "default": failed},
    }
    if call.nothing_to_do:
        found["responses"]["200"] = answer | {"description": "There was nothing to do."}
    if call.body is not None:
        needed = any(field.required for field in call.body.values())
        found["requestBody"] = {"required": needed, "content": {"application/json": {"schema": _of(call.body)}}}
    return found


async def serve(_request: web.Request) -> web.Response:
    """GET /openapi.json; it says nothing that the documentation doesn't."""
    return web.Response(body=orjson.dumps(document()), content_type="application/json")
