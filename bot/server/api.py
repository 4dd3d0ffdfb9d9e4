"""The session API over HTTP: /v1.

What lives here: routes, and how each call is read and answered. What does not: sessions, authentication, the form of errors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import orjson
from aiohttp import web

from bot.errors import Problem
from bot.principal import Principal
from bot.server import bodies
from bot.server.auth import Authenticator
from bot.server.errors import not_found
from bot.server.limits import Limits
from bot.server.streams import Followers, Stopped, accepts_sse, write_stream
from bot.session_api import ControlStatus, JsonObject, ResponseResult, SessionApi

SCOPE = "sessions"
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_START = re.compile(r"-?[0-9]{1,15}")
_WAIT = re.compile(r"[0-9]{1,4}(\.[0-9]{1,40})?")
Call: TypeAlias = Callable[[web.Request, Principal], Awaitable[web.StreamResponse]]


class SessionRoutes:
    """The calls of BEHAVIOUR's table; each knows its caller before it reads anything else."""

    def __init__(self, sessions: SessionApi, *, auth: Authenticator, limits: Limits) -> None:
        self._sessions = sessions
        self._auth = auth
        self._limits = limits
        self._followers = Followers(limit=limits.followers)

    @property
    def followers(self) -> Followers:
        """Return who waits on this server."""
        return self._followers

    def routes(self) -> list[web.RouteDef]:
        """List the routes."""
        one = "/v1/sessions/{session_id}"
        return [
            web.post("/v1/sessions", self._known(self.create)),
            web.get(one, self._known(self.view)),
            web.post(f"{one}/messages", self._known(self.message)),
            web.post(f"{one}/responses", self._known(self.respond)),
            web.post(f"{one}/cancel", self._known(self.cancel)),
            web.post(f"{one}/reset", self._known(self.reset)),
            web.get(f"{one}/events", self._known(self.events), allow_head=False),  # a HEAD would follow, unseen
            web.get("/v1/submissions/{submission_id}", self._known(self.submission)),
        ]

    async def stop(self, _app: web.Application) -> None:
        """End streams and waits: the server drains."""
        self._followers.stop()

    def _known(self, call: Call) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def authenticated(request: web.Request) -> web.StreamResponse:
            return await call(request, self._auth.caller(request, SCOPE))

        return authenticated

    async def create(self, request: web.Request, caller: Principal) -> web.Response:
        """POST /v1/sessions."""
        key = bodies.idempotency_key(request)
        read_query(request, set())
        body = await bodies.read_object(request, bodies.CREATE, limits=self._limits)
        created = await self._sessions.create(
            caller,
            message=bodies.message_text(body["message"], limits=self._limits) if "message" in body else None,
            agent=bodies.short(body, "agent"),
            metadata=bodies.metadata(body, limits=self._limits),
            key=key,
        )
        answer: JsonObject = {"session_id": created.session_id}
        if created.submission_id is not None:
            answer["submission_id"] = created.submission_id
        return _accepted(answer | {"status": "accepted"}, deduplicated=created.deduplicated)

    async def message(self, request: web.Request, caller: Principal) -> web.Response:
        """POST /v1/sessions/{id}/messages."""
        session_id = path_id(request, "session")
        key = bodies.idempotency_key(request)
        read_query(request, set())
        body = await bodies.read_object(request, bodies.MESSAGE, limits=self._limits)
        accepted = await self._sessions.message(
            caller,
            session_id,
            message=bodies.message_text(body["message"], limits=self._limits),
            turn_policy=bodies.turn_policy(body),
            key=key,
        )
        answer = {"session_id": accepted.session_id, "submission_id": accepted.submission_id}
        return _accepted(answer, deduplicated=accepted.deduplicated)

    async def respond(self, request: web.Request, caller: Principal) -> web.Response:
        """POST /v1/sessions/{id}/responses."""
        session_id = path_id(request, "session")
        key = bodies.idempotency_key(request)
        read_query(request, set())
        body = await bodies.read_object(request, bodies.RESPONSES, limits=self._limits)
        answers = bodies.responses(body["responses"], limits=self._limits)
        results = await self._sessions.respond(caller, session_id, responses=answers, key=key)
        return json_answer({"results": [result_view(result) for result in results]}, status=202)

    async def cancel(self, request: web.Request, caller: Principal) -> web.Response:
        """POST /v1/sessions/{id}/cancel."""
        session_id = path_id(request, "session")
        key = bodies.idempotency_key(request)
        read_query(request, set())
        body = await bodies.read_object(request, bodies.CANCEL, limits=self._limits)
        return _control(await self._sessions.cancel(caller, session_id, turn_id=bodies.short(body, "turn_id"), key=key))

    async def reset(self, request: web.Request, caller: Principal) -> web.Response:
        """POST /v1/sessions/{id}/reset."""
        session_id = path_id(request, "session")
        key = bodies.idempotency_key(request)
        read_query(request, set())
        body = await bodies.read_object(request, bodies.RESET, limits=self._limits)
        return _control(await self._sessions.reset(caller, session_id, reason=bodies.short(body, "reason"), key=key))

    async def view(self, request: web.Request, caller: Principal) -> web.Response:
        """GET /v1/sessions/{id}."""
        session_id = path_id(request, "session")
        read_query(request, set())
        return json_answer(await self._sessions.view(caller, session_id))

    async def events(self, request: web.Request, caller: Principal) -> web.StreamResponse:
        """GET /v1/sessions/{id}/events."""
        session_id = path_id(request, "session")
        query = read_query(request, {"start", "follow"})
        start, after = _start(request, query.get("start", "0"))
        follow = _follow(query.get("follow", "true"))
        with self._followers.place():
            events = await self._sessions.events(caller, session_id, start=start, follow=follow, after=after)
            return await write_stream(request, events, follow=follow, followers=self._followers, limits=self._limits)

    async def submission(self, request: web.Request, caller: Principal) -> web.Response:
        """GET /v1/submissions/{id}; with `wait`, answers once there is an outcome or the time is over."""
        submission_id = path_id(request, "submission")
        wait = self._wait(read_query(request, {"wait"}).get("wait", "0"))
        if wait:
            with self._followers.place():
                try:
                    return json_answer(await self._followers.wait(self._submission(caller, submission_id, wait)))
                except Stopped:
                    pass
        return json_answer(await self._submission(caller, submission_id, 0.0))

    async def _submission(self, caller: Principal, submission_id: str, wait: float) -> JsonObject:
        return await self._sessions.submission(caller, submission_id, wait=wait)

    def _wait(self, text: str) -> float:
        wait = float(text) if _WAIT.fullmatch(text) else math.inf
        if wait > self._limits.wait:
            raise bad_query(f"wait has to be a number of seconds from 0 to {self._limits.wait:g}.")
        return wait


def path_id(request: web.Request, what: str) -> str:
    """Return the id in the path; one that can't be an id is unknown like any other."""
    value = request.match_info[f"{what}_id"]
    if not _ID.fullmatch(value):
        raise not_found(what)
    return value


def read_query(request: web.Request, known: AbstractSet[str]) -> dict[str, str]:
    """Return the query if each parameter is known and comes once."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in known or name in found:
            shown = orjson.dumps(name[:40].encode("utf-8", "replace").decode()).decode()
            fault = "comes twice" if name in found else "is not known here"
            raise bad_query(f"The query parameter {shown} {fault}. Known: {', '.join(sorted(known)) or 'none'}.")
        found[name] = value
    return found


def _start(request: web.Request, text: str) -> tuple[int, str | None]:
    """Return where to read from: an index, or after which event.

    A browser that connects again says in Last-Event-ID what it has seen: the index that an SSE frame is named by, or `meta.id`.
    """
    seen = request.headers.get("Last-Event-ID")
    if seen is not None and accepts_sse(request):
        if seen.startswith("evt_"):
            return 0, seen
        if not seen.isascii() or not seen.isdigit() or not _START.fullmatch(seen):
            raise Problem(400, "bad_request", "Last-Event-ID has to be the id of an event of this stream.")
        return int(seen) + 1, None
    if not _START.fullmatch(text):
        raise bad_query("start has to be an integer: an index from 0, or negative to count from the tail.")
    return int(text), None


def _follow(text: str) -> bool:
    if text not in {"true", "false"}:
        raise bad_query("follow has to be true or false.")
    return text == "true"


def bad_query(message: str) -> Problem:
    """Refuse a query; the message says what would do."""
    return Problem(400, "invalid_query", message)


def result_view(result: ResponseResult) -> JsonObject:
    """Show what came of an answer."""
    shown: JsonObject = {
        "request_id": result.request_id,
        "submission_id": result.submission_id,
        "status": result.status,
    }
    return shown if result.reason is None else shown | {"reason": result.reason}


def _control(status: ControlStatus) -> web.Response:
    nothing_to_do = status in {ControlStatus.NO_ACTIVE_TURN, ControlStatus.NO_ACTIVE_SESSION}
    return json_answer({"status": status}, status=200 if nothing_to_do else 202)


def _accepted(answer: JsonObject, *, deduplicated: bool) -> web.Response:
    return json_answer(answer | ({"deduplicated": True} if deduplicated else {}), status=202)


def json_answer(value: JsonObject, *, status: int = 200) -> web.Response:
    """Answer with JSON."""
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")
