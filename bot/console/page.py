"""The console page over HTTP: its key, its files and its JSON API.

What lives here: routes under /console and the redirect from /. What does not: what a call means (port.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import re
import weakref
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from aiohttp import web

from bot.console.bodies import Refused, error_response, read_body, read_form
from bot.console.port import ConsolePortError, UnknownThread
from bot.console.security import harden
from bot.console.timeline import timeline
from channels.signing import wall_clock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from bot.console.port import ConsolePort, JsonObject, PanelPort

    Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Revoke: TypeAlias = Callable[[str], Awaitable[int]]

HEARTBEAT_SECONDS = 10.0
_COOKIE_DAYS = 30
_THREAD_ID = re.compile(r"[A-Za-z0-9_.:~-]{1,120}")
_STEP_INDEX = re.compile(r"[0-9]{1,9}")
_CONTENT_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_log = logging.getLogger("moorings.console")


def install_console(
    app: web.Application,
    port: ConsolePort,
    *,
    key: str,
    public_port: int,
    heartbeat: float = HEARTBEAT_SECONDS,
    revoke: Revoke | None = None,
    panel: PanelPort | None = None,
) -> None:
    """Add the console to an application: routes, response headers, and an end to open streams at shutdown.

    `key` opens the page (`/console/?k=KEY`); `public_port` names the cookie, so that two servers on one host don't share it.
    `revoke` has the demo's account provider end what it granted to a cast member, and says how much that was; without it the
    page has no such button. `panel` tells the time where that is not the machine's, and may move it.
    """
    console = _Console(port, key=key, public_port=public_port, heartbeat=heartbeat, revoke=revoke, panel=panel)
    app.add_routes(console.routes())
    app.on_response_prepare.append(harden)
    app.on_shutdown.append(console.close)


class _Console:
    """The handlers, with what they share."""

    def __init__(
        self,
        port: ConsolePort,
        *,
        key: str,
        public_port: int,
        heartbeat: float,
        revoke: Revoke | None,
        panel: PanelPort | None,
    ) -> None:
        self._port = port
        self._panel = panel
        self._revoke_tokens = revoke
        self._key = key.encode()
        self._cookie = f"moorings_console_{public_port}"
        self._pass = hmac.new(self._key, b"console cookie", hashlib.sha256).hexdigest()
        self._heartbeat = heartbeat
        self._files = _static_files()
        self._streams: weakref.WeakSet[asyncio.Task[object]] = weakref.WeakSet()

    def routes(self) -> list[web.RouteDef]:
        """List every route of the console."""
        api = "/console/api"
        return [
            web.get("/", self._to_page),
            web.get("/console", self._to_page),
            web.get("/console/", self._page),
            web.get("/console/static/{name}", self._static),
            web.get(f"{api}/state", self._call(self._state)),
            web.get(f"{api}/stream", self._call(self._stream), allow_head=False),
            web.post(f"{api}/threads", self._call(self._new_thread)),
            web.get(f"{api}/threads/{{thread}}", self._call(self._thread)),
            web.post(f"{api}/threads/{{thread}}/messages", self._call(self._post)),
            web.post(f"{api}/threads/{{thread}}/clicks", self._call(self._click)),
            web.get(f"{api}/threads/{{thread}}/timeline", self._call(self._timeline)),
            web.get(f"{api}/threads/{{thread}}/steps/{{step}}", self._call(self._step)),
            web.post(f"{api}/worker/kill", self._call(self._kill)),
            *([web.post(f"{api}/tokens/revoke", self._call(self._revoke))] if self._revoke_tokens is not None else []),
            *([web.post(f"{api}/clock", self._call(self._clock))] if self._may("moves") else []),
            *([web.post(f"{api}/deployments", self._call(self._deploy))] if self._may("deploys") else []),
            web.route("*", f"{api}/{{tail:.*}}", self._call(self._unknown)),
        ]

    async def close(self, _app: web.Application) -> None:
        """End the open streams, which would otherwise hold the shutdown back."""
        for task in list(self._streams):
            task.cancel()

    # The page and its files

    async def _to_page(self, request: web.Request) -> web.StreamResponse:
        query = f"?{request.query_string}" if request.query_string else ""
        raise web.HTTPFound(f"/console/{query}")

    async def _page(self, request: web.Request) -> web.StreamResponse:
        given = request.query.get("k")
        if given is not None:
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._key):
                return self._file("locked.html", status=401)
            response = web.Response(status=302, headers={"Location": "/console/"})
            response.set_cookie(
                self._cookie, self._pass, path="/console/", max_age=_COOKIE_DAYS * 86400, httponly=True, samesite="Strict"
            )
            return response
        if not self._may_enter(request):
            return self._file("locked.html", status=401)
        return self._file("index.html")

    async def _static(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in self._files or name.endswith(".html"):
            return web.Response(status=404, text="There is no such file.\n")
        etag = self._files[name][1]
        if request.headers.get("If-None-Match") == f'"{etag}"':
            return web.Response(status=304, headers={"ETag": f'"{etag}"', "Cache-Control": "no-cache"})
        return self._file(name)

    def _file(self, name: str, *, status: int = 200) -> web.Response:
        body, etag, content_type = self._files[name]
        headers = {"ETag": f'"{etag}"', "Cache-Control": "no-cache"}
        return web.Response(status=status, body=body, content_type=content_type, charset="utf-8", headers=headers)

    def _may_enter(self, request: web.Request) -> bool:
        return hmac.compare_digest(request.cookies.get(self._cookie, "").encode("utf-8", "surrogateescape"), self._pass.encode())

    # The JSON API

    def _call(self, answer: Handler) -> Handler:
        """Wrap an API handler: the cookie before it, every failure in the one error shape after it."""

        async def call(request: web.Request) -> web.StreamResponse:
            if not self._may_enter(request):
                return error_response(401, "locked", "Open the address that was printed when the server started.")
            try:
                return await answer(request)
            except Refused as error:
                return error_response(error.status, error.code, error.message, retryable=error.retryable)
            except ConsolePortError as error:
                return error_response(error.status, error.code, str(error), retryable=error.retryable)
            except (web.HTTPException, ConnectionResetError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the page gets an answer it can read
                error_id = f"err_{uuid4().hex[:16]}"
                _log.exception("console call %s failed (%s)", request.path, error_id)
                message = "The server could not do this now. Try again in a moment."
                return error_response(503, "unavailable", message, retryable=_may_retry(error), error_id=error_id)

        return call

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        raise Refused(404, "unknown_call", f"There is no {request.method} of this address.")

    async def _state(self, _request: web.Request) -> web.StreamResponse:
        shown = {"cast": self._port.cast(), "threads": await self._port.threads(), "revokes": self._revoke_tokens is not None}
        return web.json_response(shown | (self._panel.state() if self._panel is not None else {}))

    def _may(self, move: str) -> bool:
        return self._panel is not None and bool(self._panel.state()[move])

    async def _thread(self, request: web.Request) -> web.StreamResponse:
        thread = await self._find(request)
        viewer = self._speaker(request.query.get("viewer", ""), field="viewer")
        return web.json_response({"thread": thread, "messages": await self._port.messages(thread["id"], viewer)})

    async def _new_thread(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, {"author": "text", "text": "text", "client_id": "id"})
        author = self._speaker(body["author"], field="author")
        return web.json_response(await self._port.post(None, author, body["text"], body["client_id"]), status=202)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, {"author": "text", "text": "text", "client_id": "id"})
        thread = await self._find(request)
        author = self._speaker(body["author"], field="author")
        return web.json_response(await self._port.post(thread["id"], author, body["text"], body["client_id"]), status=202)

    async def _click(self, request: web.Request) -> web.StreamResponse:
        body, fields = await read_form(request, {"message_id": "text", "author": "text", "value": "text", "client_id": "id"})
        thread = await self._find(request)
        author = self._speaker(body["author"], field="author")
        answer = await self._port.click(thread["id"], body["message_id"], author, body["value"], body["client_id"], fields=fields)
        return web.json_response(answer)

    async def _timeline(self, request: web.Request) -> web.StreamResponse:
        thread = await self._find(request)
        events = await self._port.events(thread["id"])
        zone = datetime.now().astimezone().tzinfo  # the reader sits at this machine
        now, marks = (self._panel.now(), self._panel.marks()) if self._panel is not None else (wall_clock(), ())
        return web.json_response({"turns": timeline(events, now=now, zone=zone, marks=marks)})

    async def _step(self, request: web.Request) -> web.StreamResponse:
        thread = await self._find(request)
        index = request.match_info["step"]
        found = None
        if _STEP_INDEX.fullmatch(index):
            found = await self._port.step(thread["id"], int(index), turn_id=request.query.get("turn"))
        if found is None:
            raise Refused(404, "unknown_step", "There is no such step in this thread.")
        return web.json_response(found)

    async def _kill(self, request: web.Request) -> web.StreamResponse:
        await read_body(request, {})
        return web.json_response(await self._port.kill_worker(), status=202)

    async def _clock(self, request: web.Request) -> web.StreamResponse:
        await read_body(request, {})
        return web.json_response(await self._of_panel().pass_days())

    async def _deploy(self, request: web.Request) -> web.StreamResponse:
        await read_body(request, {})
        return web.json_response(await self._of_panel().deploy(), status=202)

    def _of_panel(self) -> PanelPort:
        if self._panel is None:
            raise Refused(404, "unknown_call", "This page has no panel.")
        return self._panel

    async def _revoke(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, {"author": "text"})
        author = self._speaker(body["author"], field="author")
        return web.json_response({"revoked": await self._revoke_tokens(author) if self._revoke_tokens is not None else 0})

    async def _find(self, request: web.Request) -> JsonObject:
        thread_id = request.match_info["thread"]
        thread = await self._port.thread(thread_id) if _THREAD_ID.fullmatch(thread_id) else None
        if thread is None:
            raise UnknownThread(thread_id)
        return thread

    def _speaker(self, name: str, *, field: str) -> str:
        if not any(member["id"] == name for member in self._port.cast()):
            raise Refused(400, f"unknown_{field}", f"{field} has to be the id of someone in the cast.")
        return name

    # The stream

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        thread_id = request.query.get("thread") or None
        if thread_id is not None and (not _THREAD_ID.fullmatch(thread_id) or await self._port.thread(thread_id) is None):
            raise UnknownThread(thread_id)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "X-Accel-Buffering": "no"})
        await response.prepare(request)
        task = asyncio.current_task()
        if task is not None:
            self._streams.add(task)
        changes = _with_heartbeat(self._port.changes(thread_id), self._heartbeat)
        with contextlib.suppress(ConnectionResetError):  # the reader left
            async with contextlib.aclosing(changes):
                async for change in changes:
                    await response.write(json.dumps(change, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        return response


async def _with_heartbeat(changes: AsyncIterator[JsonObject], seconds: float) -> AsyncGenerator[JsonObject, None]:
    """Pass changes on, after a greeting and with a beat in every silence; end quietly when the source fails."""
    pending = asyncio.ensure_future(_next(changes))
    try:
        await asyncio.sleep(0)  # let the source subscribe, so that what is read after the greeting misses nothing
        yield {"kind": "hello"}
        while True:
            done, _ = await asyncio.wait({pending}, timeout=seconds)
            if not done:
                yield {"kind": "beat"}
                continue
            change = pending.result()
            if change is None:
                return
            yield change
            pending = asyncio.ensure_future(_next(changes))
    except Exception:  # noqa: BLE001 - the page reconnects, the log has the reason
        _log.exception("console stream ended")
    finally:
        pending.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await pending
        close = getattr(changes, "aclose", None)
        if close is not None:
            await close()


async def _next(changes: AsyncIterator[JsonObject]) -> JsonObject | None:
    return await anext(changes, None)


def _static_files() -> dict[str, tuple[bytes, str, str]]:
    """Read the page's files once: name → (bytes, etag, content type)."""
    found: dict[str, tuple[bytes, str, str]] = {}
    for entry in resources.files("bot.console").joinpath("static").iterdir():
        content_type = _CONTENT_TYPES.get(entry.name[entry.name.rfind(".") :])
        if content_type is not None and entry.is_file():
            body = entry.read_bytes()
            found[entry.name] = (body, hashlib.sha256(body).hexdigest()[:24], content_type)
    return found


def _may_retry(error: Exception) -> bool:
    return bool(getattr(error, "retryable", False))
