"""The session API in memory, as strict as the real one.

What lives here: sessions, prompts, events and idempotency keys in dicts. What does not: agents, storage, time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.errors import Problem
from bot.principal import Principal
from bot.session_api import (
    Accepted,
    ControlStatus,
    Created,
    JsonObject,
    Response,
    ResponseResult,
    ResponseStatus,
)
from bot.signins.api import SignInApi
from bot.turn.state import TurnPolicy
from channels.errors import InvalidSignature
from channels.http import WebhookRequest, WebhookResponse
from durable_core.errors import Conflict, ForeignEvent, NotFound, SessionEnded
from durable_core.ids import parse_event_id


@dataclass
class FakeSession:
    owner: str
    events: list[JsonObject] = field(default_factory=list)
    prompts: dict[str, str | None] = field(default_factory=dict)
    ended: bool = False
    active_turn: str | None = None
    more: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class FakeSessions:
    """Implements SessionApi."""

    sessions: dict[str, FakeSession] = field(default_factory=dict)
    submissions: dict[str, JsonObject] = field(default_factory=dict)
    answers: dict[tuple[str, str, str], tuple[bytes, Any]] = field(default_factory=dict)
    followers: int = 0
    fault: Exception | None = None
    seen: list[tuple[str, Any]] = field(default_factory=list)

    def add(self, owner: str, **session: Any) -> str:
        session_id = f"ses_{len(self.sessions):026d}"
        self.sessions[session_id] = FakeSession(owner, **session)
        return session_id

    def emit(self, session_id: str, type_: str, **data: Any) -> None:
        session = self.sessions[session_id]
        index = len(session.events)
        meta = {"id": f"evt_{index:010x}", "index": index, "at": 0, "attempt": 1}
        session.events.append({"type": type_, "data": data, "meta": meta})
        self._ring(session)

    def end(self, session_id: str) -> None:
        self.sessions[session_id].ended = True
        self._ring(self.sessions[session_id])

    async def create(
        self, caller: Principal, *, message: str | None, agent: str | None, metadata: Mapping[str, Any] | None, key: str | None
    ) -> Created:
        self._check()
        known = self._known(caller, "create", key, [message, agent, metadata])
        if known is not None:
            return Created(known.session_id, known.submission_id, deduplicated=True)
        session_id = self.add(caller.id)
        self.seen.append(("create", (message, agent, metadata)))
        submission_id = self._submit(session_id) if message is not None else None
        return self._keep(caller, "create", key, [message, agent, metadata], Created(session_id, submission_id))

    async def message(
        self, caller: Principal, session_id: str, *, message: str, turn_policy: TurnPolicy | None, key: str | None
    ) -> Accepted:
        session = self._session(caller, session_id)
        known = self._known(caller, session_id, key, [message, turn_policy])
        if known is not None:
            return Accepted(known.session_id, known.submission_id, deduplicated=True)
        if session.ended:
            raise SessionEnded(session_id)
        self.seen.append(("message", (message, turn_policy)))
        accepted = Accepted(session_id, self._submit(session_id))
        return self._keep(caller, session_id, key, [message, turn_policy], accepted)

    async def respond(
        self, caller: Principal, session_id: str, *, responses: Sequence[Response], key: str | None
    ) -> Sequence[ResponseResult]:
        session = self._session(caller, session_id)
        for response in responses:
            if response.request_id not in session.prompts:
                raise NotFound("prompt", response.request_id)
        results = []
        for response in responses:
            settled = session.prompts[response.request_id] is not None
            session.prompts[response.request_id] = session.prompts[response.request_id] or response.option_id or response.text
            status = ResponseStatus.ALREADY_SETTLED if settled else ResponseStatus.SETTLED
            reason = "Settled by Farah." if settled else None
            results.append(ResponseResult(response.request_id, self._submit(session_id), status, reason=reason))
        return results

    async def cancel(self, caller: Principal, session_id: str, *, turn_id: str | None, key: str | None) -> ControlStatus:
        session = self._session(caller, session_id)
        if session.active_turn is None or turn_id not in {None, session.active_turn}:
            return ControlStatus.NO_ACTIVE_TURN
        session.active_turn = None
        return ControlStatus.ACCEPTED

    async def reset(self, caller: Principal, session_id: str, *, reason: str | None, key: str | None) -> ControlStatus:
        session = self._session(caller, session_id)
        if session.ended:
            return ControlStatus.NO_ACTIVE_SESSION
        self.end(session_id)
        return ControlStatus.RESET

    async def view(self, caller: Principal, session_id: str) -> JsonObject:
        session = self._session(caller, session_id)
        return {"session_id": session_id, "status": "ended" if session.ended else "idle", "open_prompts": []}

    async def events(
        self, caller: Principal, session_id: str, *, start: int, follow: bool, after: str | None = None
    ) -> AsyncIterator[JsonObject]:
        if after is not None:
            run, seq = parse_event_id(after)
            if run != session_id.rpartition("_")[2]:
                raise ForeignEvent(after, session_id)
            start = seq + 1
        return self._read(self._session(caller, session_id), start, follow=follow)

    async def submission(self, caller: Principal, submission_id: str, *, wait: float) -> JsonObject:
        self._check()
        found = self.submissions.get(submission_id)
        if found is None:
            raise NotFound("submission", submission_id)
        self._session(caller, found["session_id"], what="submission")
        if wait and found["status"] == "accepted":
            self.followers += 1
            try:
                await asyncio.wait_for(asyncio.Event().wait(), wait)
            except TimeoutError:
                pass
            finally:
                self.followers -= 1
        return found

    async def _read(self, session: FakeSession, start: int, *, follow: bool) -> AsyncIterator[JsonObject]:
        self.followers += 1
        try:
            position = start if start >= 0 else max(0, len(session.events) + start)
            while True:
                while position < len(session.events):
                    yield session.events[position]
                    position += 1
                if not follow or session.ended:
                    return
                await session.more.wait()
        finally:
            self.followers -= 1

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _session(self, caller: Principal, session_id: str, *, what: str = "session") -> FakeSession:
        self._check()
        session = self.sessions.get(session_id)
        if session is None or session.owner != caller.id:
            raise NotFound(what, session_id)
        return session

    def _submit(self, session_id: str) -> str:
        submission_id = f"sub_{len(self.submissions):026d}"
        self.submissions[submission_id] = {
            "submission_id": submission_id,
            "session_id": session_id,
            "turn_id": None,
            "status": "accepted",
            "reply": None,
            "error": None,
        }
        return submission_id

    def _known(self, caller: Principal, scope: str, key: str | None, payload: list[Any]) -> Any:
        if key is None or (caller.id, scope, key) not in self.answers:
            return None
        digest, answer = self.answers[caller.id, scope, key]
        if digest != self._digest(payload):
            raise Conflict(scope, key)
        return answer

    def _keep(self, caller: Principal, scope: str, key: str | None, payload: list[Any], answer: Any) -> Any:
        if key is not None:
            self.answers[caller.id, scope, key] = (self._digest(payload), answer)
        return answer

    @staticmethod
    def _digest(payload: list[Any]) -> bytes:
        return hashlib.sha256(repr(payload).encode()).digest()

    @staticmethod
    def _ring(session: FakeSession) -> None:
        session.more.set()
        session.more = asyncio.Event()


@dataclass
class FakePrompts:
    """Implements PromptApi; says what it was asked."""

    asked: list[JsonObject] = field(default_factory=list)
    overridden: ResponseResult = field(default_factory=lambda: ResponseResult("prm_1", "sub_1", ResponseStatus.SETTLED))

    async def listed(self, caller: Principal, **query: Any) -> JsonObject:
        self.asked.append({"caller": caller.id, **query})
        return {"prompts": [], "next": None}

    async def override(self, caller: Principal, request_id: str, **given: Any) -> ResponseResult:
        self.asked.append({"caller": caller.id, "request_id": request_id, **given})
        if request_id != "prm_1":
            raise NotFound("prompt", request_id)
        return self.overridden

    async def connect(self, caller: Principal, request_id: str, **given: Any) -> JsonObject:
        self.asked.append({"caller": caller.id, "request_id": request_id, **given})
        if request_id != "prm_1":
            raise NotFound("prompt", request_id)
        if caller.id != "api:alice":
            raise Problem(403, "not_yours", "Only the person who is asked to sign in may have a link.")
        return {"url": "https://bot.example/connect/a.b", "code": None, "expires_at": "2026-01-01T00:10:00.000Z"}

    async def audit(self, **query: Any) -> JsonObject:
        self.asked.append(query)
        return {"entries": [], "next": None}


@dataclass
class FakeApp:
    """Implements RunningApp; its one channel `echo` answers with what it got."""

    sessions: FakeSessions = field(default_factory=FakeSessions)
    prompts: FakePrompts = field(default_factory=FakePrompts)
    sign_ins: SignInApi | None = None
    taking: bool = True
    requests: list[WebhookRequest] = field(default_factory=list)

    async def ready(self) -> bool:
        return self.taking

    async def ingress(self, channel: str, request: WebhookRequest) -> WebhookResponse:
        if channel != "echo":
            raise NotFound("channel", channel)
        if request.header("x-signature") == "bad":
            raise InvalidSignature("secret detail")
        self.requests.append(request)
        return WebhookResponse(200, request.body, content_type="text/plain")
