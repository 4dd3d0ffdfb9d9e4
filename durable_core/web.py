"""An engine's few routes: webhooks of workflows, and a call that advances what is due.

What lives here: reading requests, words for what went wrong. What does not: who may start or see runs, which is the app's.
`POST /hooks/{token}` takes JSON, or text; the token is the secret. `POST /run-due` needs the bearer secret that it was made with.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from durable_core import codec
from durable_core.engine.engine import Engine
from durable_core.engine.signals import TOKEN_PREFIX
from durable_core.errors import Conflict, NotFound, SessionEnded, TooLarge, Unavailable, Unstorable

log = logging.getLogger("moorings.web")

BODY_LIMIT: Final = 1024 * 1024
MAX_RUNS: Final = 10_000
"""Most runs that one call advances."""
MIN_SECRET: Final = 16

_Handler = Callable[[web.Request], Awaitable[web.Response]]


class _Refused(Exception):
    """A request that can't be taken, and why."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def web_app(engine: Engine, *, run_due_secret: str | None = None) -> web.Application:
    """Return an application with the engine's routes, to be served or mounted; the engine is opened by whoever opens it.

    Args:
        engine: whose runs are signalled and advanced.
        run_due_secret: what a scheduler has to bring as `Authorization: Bearer …`; without it there is no such route.

    Raises:
        ValueError: the secret is too short to be one, or the engine works by itself.
    """
    app = web.Application(client_max_size=BODY_LIMIT)
    app.router.add_post("/hooks/{token}", _guarded(lambda request: _hook(engine, request)))
    if run_due_secret is not None:
        if len(run_due_secret) < MIN_SECRET:
            raise ValueError(f"a secret has {MIN_SECRET} characters or more")
        if engine.works:
            raise ValueError("this engine works by itself; run-due is for Engine(..., work=False)")
        app.router.add_post("/run-due", _guarded(lambda request: _run_due(engine, request, run_due_secret)))
    return app


async def _hook(engine: Engine, request: web.Request) -> web.Response:
    value, token = await _value(request), request.match_info["token"]
    if not token.startswith(TOKEN_PREFIX):  # hooks that authors name are no secrets: the app signals them, for whom it knows
        raise NotFound("hook", token)
    await engine.signal(token, value, key=request.headers.get("Idempotency-Key"), by="webhook")
    return web.json_response({"status": "accepted"}, status=202)


async def _run_due(engine: Engine, request: web.Request, secret: str) -> web.Response:
    given = request.headers.get("Authorization", "")
    if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {secret}".encode()):
        raise _Refused(401, "unauthorized", "a bearer secret is needed")
    text = request.query.get("limit", str(MAX_RUNS))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_RUNS:
        raise _Refused(400, "bad_request", f"limit is a number from 1 to {MAX_RUNS}")
    return web.json_response({"advanced": await engine.run_due(limit=int(text))})


async def _value(request: web.Request) -> Any:
    """Read a payload: JSON, or text as it stands."""
    body = await request.read()
    if request.content_type.startswith("text/"):
        try:
            return body.decode(request.charset or "utf-8")
        except (UnicodeDecodeError, LookupError):
            raise _Refused(400, "bad_request", "the body is not text in its charset") from None
    said = request.content_type if "Content-Type" in request.headers else "application/json"
    if body and said != "application/json" and not said.endswith("+json"):
        raise _Refused(415, "unsupported_media_type", "send application/json or text/plain")
    try:
        return codec.read_json(body) if body else None
    except ValueError:
        raise _Refused(400, "bad_request", "the body is not JSON") from None


def _guarded(handler: _Handler) -> _Handler:
    async def guarded(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets an answer
            return _answer_to(error)

    return guarded


def _answer_to(error: Exception) -> web.Response:
    match error:
        case _Refused():
            return _error(error.status, error.code, error.message)
        case web.HTTPRequestEntityTooLarge():
            return _error(413, "too_large", f"the body is over {BODY_LIMIT} bytes")
        case NotFound():
            return _error(404, "not_found", "nobody waits here")
        case SessionEnded():
            return _error(410, "ended", "the run has ended")
        case Conflict():
            return _error(409, "conflict", "the idempotency key was used with another body")
        case Unstorable() | TooLarge():
            return _error(422, "unstorable", str(error))
        case Unavailable():
            return _error(503, "unavailable", "the database is away; try again", retry_after=5)
        case _:
            log.error("a request failed", exc_info=error)
            return _error(500, "internal", "something went wrong here; it was written down")


def _error(status: int, code: str, message: str, *, retry_after: int | None = None) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    body = {"error": {"code": code, "message": message, "retryable": status == 503}}
    return web.json_response(body, status=status, headers=headers)
