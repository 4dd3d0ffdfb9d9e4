"""The aiohttp application: which routes there are, and what surrounds each of them.

What lives here: putting routes together, the access log and the error boundary. What does not: a call's meaning, listening.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Middleware

from bot.server import openapi
from bot.server.api import SessionRoutes
from bot.server.auth import Authenticator
from bot.server.channels import ChannelRoutes
from bot.server.errors import error_response, internal, known, new_error_id, of_http
from bot.server.health import HealthRoutes
from bot.server.limits import Limits
from bot.server.prompts import PromptRoutes
from bot.session_api import RunningApp
from bot.settings import ApiToken

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger("bot.server")
_access_log = logging.getLogger("bot.server.access")
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def build_app(
    running: RunningApp, *, tokens: Sequence[ApiToken] = (), guards: Sequence[Middleware] = (), limits: Limits | None = None
) -> web.Application:
    """Build the application of a running bot.

    `tokens` are who may call /v1; without any, only programs on this machine may. `guards` are middlewares that stand between
    the error boundary and every route, such as the loopback guard of the demo.
    """
    bounds = limits or Limits()
    app = web.Application(middlewares=[boundary, *guards], client_max_size=bounds.body)
    health = HealthRoutes(running)
    auth = Authenticator(tokens)
    sessions = SessionRoutes(running.sessions, auth=auth, limits=bounds)
    app.add_routes(health.routes())
    app.add_routes(sessions.routes())
    app.add_routes(PromptRoutes(running.prompts, auth=auth, limits=bounds).routes())
    if running.sign_ins is not None:
        from bot.server.connect import ConnectRoutes  # noqa: PLC0415 - templates, only where somebody can sign in

        app.add_routes(ConnectRoutes(running.sign_ins, limits=bounds).routes())
    app.router.add_get("/openapi.json", openapi.serve)
    app.add_routes(ChannelRoutes(running, limits=bounds).routes())
    app.on_response_prepare.append(_harden)
    app.on_shutdown.append(health.stop)
    app.on_shutdown.append(sessions.stop)
    return app


def runner_of(app: web.Application, *, drain: float) -> web.AppRunner:
    """Build what serves an application; `drain` is how many seconds open requests have once it stops."""
    log = logging.getLogger("bot.server.http")
    log.addFilter(_readable)
    return web.AppRunner(app, access_log=None, logger=log, shutdown_timeout=drain)


def _readable(record: logging.LogRecord) -> bool:
    """Leave out what aiohttp says of bytes that aren't HTTP: its text quotes them, and a line too long may hold a token."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


@web.middleware
async def boundary(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every request in our shape, and log it: path without query, since a query may hold a key."""
    started = time.monotonic()
    status = 500
    try:
        response = await handler(request)
        status = response.status
        return response
    except web.HTTPRedirection as error:
        status = error.status
        raise
    except Exception as error:  # noqa: BLE001 - this is where every error ends
        response = _refuse(request, error)
        status = response.status
        return response
    finally:
        took = (time.monotonic() - started) * 1000
        _access_log.info("%s %s %d %.1f ms", request.method, _shown_path(request), status, took)


def _refuse(request: web.Request, error: Exception) -> web.StreamResponse:
    """Turn an error into its answer. A fault of ours is logged in full and told as an id."""
    if isinstance(error, web.HTTPException):
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        return error_response(of_http(error, request.method), new_error_id(), headers=headers)
    error_id = new_error_id()
    problem = known(error)
    if problem is None:
        _log.error("%s %s failed (%s)", request.method, _shown_path(request), error_id, exc_info=error)
        problem = internal(error_id, retryable=bool(getattr(error, "retryable", False)))
    elif problem.status >= 500:
        _log.warning("%s %s: %s (%s)", request.method, _shown_path(request), error, error_id)
    return error_response(problem, error_id)


def _shown_path(request: web.Request) -> str:
    """Show the path as sent, still quoted: it can't hold a line break. What no route knows is shown as such."""
    resource = request.match_info.route.resource
    if resource is None:
        return "(unknown path)"
    return request.rel_url.raw_path if resource.canonical.startswith("/v1/") else resource.canonical


async def _harden(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = "moorings"  # aiohttp would tell its version and Python's
