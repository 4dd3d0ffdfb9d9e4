"""One shape for every error over HTTP, and which error gets which status.

What lives here: the mapping from exceptions to answers. What does not: catching them (app.py) or raising them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from aiohttp import web

from bot.errors import Problem
from channels.errors import ChannelError
from durable_core.errors import (
    BadEventId,
    Conflict,
    ContentGone,
    DurableError,
    FileMoved,
    KeyMissing,
    KeyWrong,
    NotFound,
    SessionEnded,
    Stranded,
    TooLarge,
    Unavailable,
)

_MISSING = {
    "session": "There is no such session, or it isn't yours. Use a session_id that POST /v1/sessions gave.",
    "submission": "There is no such submission, or it isn't yours. Use a submission_id that an accepted message gave.",
    "prompt": "There is no such request in this session, so nothing was taken. Read open_prompts from GET /v1/sessions/{id}.",
    "channel": "There is no channel of this name. The bot's `channels` say which there are.",
}
_HTTP = {
    400: ("bad_request", "The request can't be read. Check its form."),
    404: ("not_found", "There is nothing at this address. Calls start with /v1/, see the documentation of the session API."),
    405: ("method_not_allowed", "This address doesn't take {method}. Use {allow}."),
    408: ("request_timeout", "The body took too long to come. Send it again."),
    413: ("too_large", "The body is too large. Send less at once."),
    417: ("bad_request", "The Expect header asks for what this server doesn't do. Leave it out."),
}


def new_error_id() -> str:
    """Make the id that the caller sees and the log has."""
    return f"err_{secrets.token_hex(8)}"


def error_response(problem: Problem, error_id: str, *, headers: Mapping[str, str] | None = None) -> web.Response:
    """Write the one shape of an error."""
    error = {"code": problem.code, "message": problem.message, "retryable": problem.retryable, "error_id": error_id}
    answer = web.json_response({"error": error}, status=problem.status, headers=headers)
    if problem.status in {408, 413}:  # the rest of the body is not read
        answer.force_close()
    if problem.status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="moorings"'
    if problem.retryable and problem.status in {429, 503}:
        answer.headers.setdefault("Retry-After", str(problem.retry_after))
    return answer


def known(error: Exception) -> Problem | None:
    """Say what an error that was raised on purpose means to the caller; None: not for the caller, a fault of ours."""
    match error:
        case Problem():
            return error
        case DurableError():
            return _durable(error)
        case ChannelError() if error.status < 500:
            return Problem(error.status, _channel_code(error.status), error.public)
        case _:
            return None


def of_http(error: web.HTTPException, method: str) -> Problem:
    """Put aiohttp's own refusals into our shape."""
    default = ("http_error", "The request can't be served.")
    code, message = _HTTP.get(error.status, default)
    allow = " or ".join(sorted(set(error.headers.get("Allow", "").split(",")) - {"HEAD", ""}))
    return Problem(error.status, code, message.format(method=method[:20], allow=allow))


def internal(error_id: str, *, retryable: bool) -> Problem:
    """Answer a fault of ours: nothing about it but where the log has it."""
    return Problem(500, "internal", f"Something went wrong here. The server's log has it under {error_id}.", retryable=retryable)


def not_found(what: str) -> Problem:
    """Answer for what doesn't exist and for what isn't the caller's, alike."""
    return Problem(404, "not_found", _MISSING.get(what, "There is nothing of this id, or it isn't yours."))


def _durable(error: DurableError) -> Problem | None:
    match error:
        case NotFound():
            return not_found(error.what)
        case SessionEnded():
            return Problem(409, "session_ended", "This session has ended and takes no more. Start another: POST /v1/sessions.")
        case ContentGone():
            return Problem(410, "session_expired", "What this session held has been deleted. Start another: POST /v1/sessions.")
        case Stranded():
            by = f"version {error.deployment}" if error.deployment else "a newer version"
            text = f"This session was written by {by} (format {error.spec_version}), which nothing that runs here can read."
            return Problem(409, "session_stranded", f"{text} It can be read, and reset. Start another: POST /v1/sessions.")
        case Conflict():
            return Problem(409, "idempotency_conflict", "This Idempotency-Key came before with another payload. Use a new one.")
        case TooLarge():
            return Problem(413, "too_large", f"This is larger than can be kept ({error.limit} bytes). Send less.")
        case BadEventId():
            return Problem(400, "bad_request", "Last-Event-ID has to be the id of an event of this stream.")
        case Unavailable() | FileMoved():
            return Problem(503, "unavailable", "The database doesn't answer right now. Send the same again.", retryable=True)
        case KeyMissing() | KeyWrong():
            held = "What this session holds can't be read here until its encryption key is put back; nothing of it is lost."
            return Problem(503, "unavailable", f"{held} Send the same again.", retryable=True)
        case _:
            return None


def _channel_code(status: int) -> str:
    return {401: "invalid_signature", 413: "too_large"}.get(status, "bad_request")
