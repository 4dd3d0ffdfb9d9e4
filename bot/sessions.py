"""The session API of a running app: sessions as a known caller may use them.

What lives here: `SessionApi` on the store. What does not: HTTP (bot/server/), turns (bot/session/).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import JsonValue

from bot import participants
from bot.ending import end_session
from bot.errors import Problem
from bot.leftovers import Leftovers
from bot.principal import Principal
from bot.prompts import API_PLACE, Prompts, open_of_session
from bot.session.private import shown_to
from bot.session_api import (
    Accepted,
    ControlStatus,
    Created,
    JsonObject,
    Response,
    ResponseResult,
)
from bot.turn.state import Limits, MessageBody, TurnPolicy, body_to_json
from bot.views import error_of, iso, prompt_view, status_of
from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.errors import ContentGone, NotFound, SessionEnded
from durable_core.ids import new_id
from durable_core.model import (
    Admission,
    CommandKind,
    NewRun,
    Outcome,
    Receipt,
    Run,
    RunKind,
    RunStatus,
    Submission,
    ToNew,
    ToRun,
)
from durable_core.store import Store
from durable_core.streams import EventView, Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """`SessionApi` over a store."""

    store: Store
    streams: Streams
    prompts: Prompts
    agents: Sequence[str]
    deployment: str
    lifetime_ms: int | None
    keep_ms: int | None = None
    message_bytes: int = Limits().message_bytes
    leftovers: Leftovers | None = None

    # ── input ──

    async def create(
        self, caller: Principal, *, message: str | None, agent: str | None, metadata: Mapping[str, Any] | None, key: str | None
    ) -> Created:
        """Make a session, with or without a first message."""
        name = self._agent(agent)
        submission_id = new_id("sub")
        asked: dict[str, JsonValue] = {"message": message, "agent": name, "metadata": dict(metadata or {})}
        new = NewRun(
            run_id=new_id("ses"),
            name=name,
            creator=caller.id,
            header=codec.encode({"channel": "api", "metadata": dict(metadata or {})}),
            deployment=self.deployment,
            lifetime_ms=self.lifetime_ms,
            keep_ms=self.keep_ms,
        )
        receipt = await self._admit(
            caller,
            ToNew(new=new),
            CommandKind.MESSAGE if message is not None else None,
            key=key,
            asked=asked,
            text=message,
            submission_id=submission_id,
        )
        return Created(receipt.run_id, receipt.submission_id if message is not None else None, deduplicated=receipt.deduplicated)

    async def message(
        self, caller: Principal, session_id: str, *, message: str, turn_policy: TurnPolicy | None, key: str | None
    ) -> Accepted:
        """Put a message into a session's inbox."""
        await self._usable(caller, session_id)
        policy = turn_policy or TurnPolicy.STEER
        asked: dict[str, JsonValue] = {"session": session_id, "message": message, "turn_policy": policy.value}
        receipt = await self._admit(
            caller,
            ToRun(run_id=session_id),
            CommandKind.MESSAGE,
            key=key,
            asked=asked,
            text=message,
            policy=policy,
            submission_id=new_id("sub"),
        )
        return Accepted(receipt.run_id, receipt.submission_id, deduplicated=receipt.deduplicated)

    async def respond(
        self, caller: Principal, session_id: str, *, responses: Sequence[Response], key: str | None
    ) -> Sequence[ResponseResult]:
        """Answer requests; whoever may answer one need have no part in the session."""
        run = await self._existing(session_id)
        if run.purged_at is not None:
            raise ContentGone(session_id) if await self._mine(caller, run) else NotFound("session", session_id)
        mine = await self._mine(caller, run)
        if mine and self.leftovers is not None:
            await self.leftovers.refuse(run)
        try:
            return await self.prompts.respond(caller, session_id, responses=responses, key=key)
        except NotFound:
            if mine:
                raise
            raise NotFound("session", session_id) from None

    async def cancel(self, caller: Principal, session_id: str, *, turn_id: str | None, key: str | None) -> ControlStatus:
        """Stop the turn that runs."""
        run = await self._usable(caller, session_id)
        if run.status is RunStatus.ENDED:
            return ControlStatus.NO_ACTIVE_TURN
        asked: dict[str, JsonValue] = {"session": session_id, "cancel": turn_id}
        try:
            receipt = await self._admit(
                caller,
                ToRun(run_id=session_id),
                CommandKind.CANCEL,
                key=key,
                asked=asked,
                turn_id=turn_id,
                submission_id=new_id("sub"),
            )
        except SessionEnded:
            return ControlStatus.NO_ACTIVE_TURN
        detail = (await self.store.submission(receipt.submission_id)).detail
        nothing = detail is not None and _object(detail).get("status") == ControlStatus.NO_ACTIVE_TURN.value
        return ControlStatus.NO_ACTIVE_TURN if nothing else ControlStatus.ACCEPTED

    async def reset(self, caller: Principal, session_id: str, *, reason: str | None, key: str | None) -> ControlStatus:
        """End a session for good; its addresses are free at once."""
        run = await self._own(caller, session_id)
        del key  # ending twice is ending once: a repeat is told that the session has ended
        ended = await end_session(self.store, run, reason="reset", by=caller.id, note=reason)
        return ControlStatus.RESET if ended else ControlStatus.NO_ACTIVE_SESSION

    # ── reading ──

    async def view(self, caller: Principal, session_id: str) -> JsonObject:
        """A session as it stands."""
        run = await self._kept(caller, session_id)
        prompts = await open_of_session(self.store, session_id)
        return {
            "session_id": run.run_id,
            "agent": run.name,
            "status": "ended" if run.status is RunStatus.ENDED else run.phase.value,
            "turn_id": run.turn_id,
            "open_prompts": [prompt_view(prompt) for prompt in prompts],
            "events": run.event_count,
            "metadata": _object(run.header).get("metadata", {}),
            "created_at": iso(run.created_at),
            "ends_at": iso(run.deadline_at),
            "end_reason": run.end_reason,
        }

    async def events(
        self, caller: Principal, session_id: str, *, start: int, follow: bool, after: str | None = None
    ) -> AsyncIterator[JsonObject]:
        """A session's events as envelopes; what is stranded can't be followed, only read."""
        await self._kept(caller, session_id)
        if follow:
            await self._usable(caller, session_id)
        if after is not None:
            start = await self.streams.position_after(session_id, after)
        return self._envelopes(caller, session_id, start, follow=follow)

    async def _envelopes(self, caller: Principal, session_id: str, start: int, *, follow: bool) -> AsyncIterator[JsonObject]:
        if follow:
            async for event in self.streams.follow(session_id, start=start):
                yield envelope(event, caller.id)
            return
        position = start
        while page := await self.streams.read(session_id, start=position):
            for event in page:
                yield envelope(event, caller.id)
            position = (page[-1].index or 0) + 1

    async def submission(self, caller: Principal, submission_id: str, *, wait: float) -> JsonObject:
        """Where an input stands; waits for its outcome as long as the caller wants."""
        found = await self.store.submission(submission_id)
        run = await self._existing(found.run_id)  # a workflow's too: an answer to its question is a submission
        if not await self._mine(caller, run):
            raise NotFound("submission", submission_id)
        if run.purged_at is not None:
            raise ContentGone(run.run_id)
        if found.outcome is None and wait > 0:
            found = await self._settled(found, wait)
        return await self._submission(found)

    async def _settled(self, found: Submission, seconds: float) -> Submission:
        changed = asyncio.Event()

        def on_change(run_ids: Sequence[str] | None) -> None:
            if run_ids is None or found.run_id in run_ids:
                changed.set()

        unwatch = self.store.watch(on_change)
        latest = found
        try:
            async with asyncio.timeout(seconds):
                while True:
                    changed.clear()
                    latest = await self.store.submission(found.submission_id)
                    if latest.outcome is not None:
                        return latest
                    await changed.wait()
        except TimeoutError:
            return latest
        finally:
            unwatch()

    async def _submission(self, found: Submission) -> JsonObject:
        reply = None
        if found.reply_step is not None:
            row = f"step:{found.reply_step}"
            content = await self.store.content(found.run_id, [row])
            if row in content:
                reply = {"text": _object(content[row])["items"][0]["text"]}
        detail = _object(found.detail) if found.detail is not None else None
        failed = found.outcome in (Outcome.FAILED, Outcome.ABORTED)
        return {
            "submission_id": found.submission_id,
            "session_id": found.run_id,
            "turn_id": found.turn_id,
            "status": status_of(found),
            "reply": reply,
            "error": error_of(detail) if failed else None,
            "accepted_at": iso(found.at),
            "done_at": iso(found.done_at),
        }

    # ── parts ──

    async def _own(self, caller: Principal, session_id: str) -> Run:
        """The session, if the caller made it or takes part in it; a foreign one is like an unknown one.

        A workflow's run is none, though whoever asked for it made it: it takes no messages, and its session waits for its end.
        """
        run = await self._existing(session_id)
        if run.kind is not RunKind.SESSION or not await self._mine(caller, run):
            raise NotFound("session", session_id)
        return run

    async def _existing(self, session_id: str) -> Run:
        try:
            return await self.store.run(session_id)
        except NotFound:
            raise NotFound("session", session_id) from None

    async def _mine(self, caller: Principal, run: Run) -> bool:
        takes_part = run.creator == caller.id or await participants.takes_part(self.store, run.run_id, caller.id)
        return takes_part and not caller.anonymous

    async def _kept(self, caller: Principal, session_id: str) -> Run:
        """The session, if its content is still there. Raises: NotFound, ContentGone."""
        run = await self._own(caller, session_id)
        if run.purged_at is not None:
            raise ContentGone(session_id)
        return run

    async def _usable(self, caller: Principal, session_id: str) -> Run:
        """As `_own`, for a session that can be gone on with. Raises: NotFound, Stranded, Dormant."""
        run = await self._own(caller, session_id)
        if self.leftovers is not None:
            await self.leftovers.refuse(run)
        return run

    def _agent(self, name: str | None) -> str:
        if name is None and len(self.agents) == 1:
            return self.agents[0]
        if name is None or name not in self.agents:
            choice = ", ".join(self.agents)
            raise Problem(400, "unknown_agent", f'Name one of this app\'s agents in "agent": {choice}.')
        return name

    async def _admit(
        self,
        caller: Principal,
        target: ToNew | ToRun,
        kind: CommandKind | None,
        *,
        key: str | None,
        asked: Mapping[str, JsonValue],
        submission_id: str,
        text: str | None = None,
        policy: TurnPolicy = TurnPolicy.STEER,
        turn_id: str | None = None,
    ) -> Receipt:
        if text is not None:
            body: dict[str, JsonValue] = body_to_json(MessageBody(text=text, author=caller, place=API_PLACE, turn_policy=policy))
        else:
            body = {"turn_id": turn_id}
        return await self.store.admit(
            Admission(
                source=f"api:{caller.id}",
                key=key if key is not None else submission_id,
                digest=payload_digest(codec.encode(dict(asked))),
                on_conflict="refuse",
                submission_id=submission_id,
                target=target,
                kind=kind,
                body=codec.encode(body, limit=self.message_bytes),
                principal=caller.id,
                turn_id=turn_id,
            )
        )


def envelope(event: EventView, reader: str) -> JsonObject:
    """An event as a client reads it: what was fetched with somebody's own account, that person alone."""
    meta = {"id": event.id, "index": event.index, "at": iso(event.at), "attempt": event.attempt}
    return {"type": event.type, "data": shown_to(event.data, reader), "meta": meta}


def _object(body: bytes) -> dict[str, Any]:
    return cast("dict[str, Any]", codec.decode(body))
