"""The loop of one claimed session: decide, do, commit, until nothing is left to do.

What lives here: the shell of the turn engine. What does not: the decisions (bot/turn/), single calls (thinking.py, calls.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from bot.access import AccessPolicy, Action, Deny, members_only
from bot.access import decide as decide_access
from bot.answerers import POLICY_SECONDS
from bot.deciding import Deciding
from bot.edge import Threads, being_cancelled
from bot.errors import ModelFailed
from bot.history import ResultItem
from bot.model import ModelReply, ModelRequest, reply_to_json
from bot.people import LOOK_UP_BUDGET_MS, LookUpFailed, People
from bot.principal import Principal
from bot.session.batch import Batch, Grace, Reconsider
from bot.session.calls import AccessUnknown, CallRunner, Due, unasked
from bot.session.commits import commit, event_draft
from bot.session.gates import Ask, Gates, Refused, Run, shown_actions
from bot.session.handoff import Deploy, opening
from bot.session.live import REPLY_KEY, UNKNOWN_AUTHOR, Judged, LiveSession, WarmHistories
from bot.session.ready import ReadyAgent
from bot.session.replies import calls_of
from bot.session.thinking import Patience, ask_model
from bot.session.verdicts import Verdicts
from bot.turn import changes
from bot.turn.change import Begun, Change, Draft, NewPrompt
from bot.turn.decide import Dismiss, End, Fail, Open, Refuse, Resolve, Rest, Stop, Think, decide, interrupts, steering_of
from bot.turn.state import Limits, MessageBody, Turn
from channels.events import Place
from durable_core import codec
from durable_core.errors import LeaseLost, PromptTaken, Redacted, Stranded
from durable_core.failpoints import hit
from durable_core.ids import new_id
from durable_core.model import MAX_CHARGED, Move, Record, RecordKind
from durable_core.retry import RetryPolicy
from durable_core.store import Store
from durable_core.worker import Held

log = logging.getLogger("moorings.session")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRunner:
    """Advances sessions of an app's agents."""

    store: Store
    agents: Mapping[str, ReadyAgent]
    deps: object
    warm: WarmHistories
    access: AccessPolicy = members_only
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    grace: Grace = field(default_factory=Grace)
    threads: Threads = field(default_factory=Threads)
    """Where plain tools run."""
    policies: Threads = field(default_factory=Threads)
    """Where an author's plain access and approval functions run: tools that block must not hold up decisions."""
    access_seconds: float = POLICY_SECONDS
    people: People = field(default_factory=People)
    deploy: Deploy = field(default_factory=Deploy)

    async def advance(self, held: Held) -> None:
        """Advance a claimed session until it is given back."""
        try:
            session = await self.warm.load(held)
            await self._advance(session)
        except Stranded as error:
            log.warning("%s; it is left to a newer version", error)
            await self.store.strand(held.claim.run_id, held.claim.epoch, reason=str(error), code=self.deploy.code)

    async def _advance(self, session: LiveSession) -> None:
        try:
            await session.take_in(session.held.claim, self.judge)
            await self._loop(session)
        except asyncio.CancelledError as error:
            if not being_cancelled():
                raise RuntimeError("a cancellation leaked from inside of the step") from error
            # a drain: the step is given back as it is, not charged; what it recorded stays
            with contextlib.suppress(LeaseLost):
                await asyncio.shield(
                    self.store.release(session.run_id, session.epoch, timer_at=session.now, seen=session.seen, unused=False)
                )
            raise
        self.warm.keep(session)

    async def judge(self, body: MessageBody, busy: bool) -> Judged:  # noqa: FBT001 - the shape live.Judge asks for
        """Find out who wrote and whether they may."""
        author, place = await self.people.resolve(body.author, body.place, body.address)
        denied = await self._denied(author, place, Action.STEER if busy else Action.MESSAGE)
        return Judged(replace(body, author=author, place=place), denied)

    async def _denied(self, who: Principal, place: Place, action: Action) -> str | None:
        decision = await decide_access(self.access, who, place, action, threads=self.policies, seconds=self.access_seconds)
        return decision.text if isinstance(decision, Deny) else None

    async def _still_denied(self, session: LiveSession, turn: Turn) -> str | None:
        """Why a turn's requester may not use the bot any more. Raises: AccessUnknown; the last attempt refuses (CORE 14)."""
        try:
            who, place = await self.people.ask(turn.requester, turn.place, turn.address)
            return await self._denied(who, place, Action.MESSAGE)
        except LookUpFailed:
            since = min((one.consent.at for one in turn.pending if one.consent is not None), default=session.now)
            if session.now - since >= LOOK_UP_BUDGET_MS:
                return UNKNOWN_AUTHOR
            raise
        except Exception as error:
            log.exception("%s: whether %s may still use the bot could not be decided", session.run_id, turn.requester.id)
            if session.charged + 1 >= MAX_CHARGED:
                return UNKNOWN_AUTHOR
            raise AccessUnknown from error

    async def _loop(self, session: LiveSession) -> None:
        while True:
            try:
                if await self._once(session):
                    return
            except (Reconsider, PromptTaken, Redacted):
                await self.warm.refresh(session, self.judge)

    async def _once(self, session: LiveSession) -> bool:
        """Do one action; True when the session was given back."""
        action = decide(session.view(self.limits))
        match action:
            case Rest(timer_at=timer_at):
                return await self._rest(session, timer_at)
            case Open():
                change, move = await opening(self.store, session, action, self.deploy)
                return await self._commit(session, change, move)
            case Refuse():
                return await self._commit(session, changes.refused(session.state, action))
            case Dismiss():
                return await self._commit(session, changes.dismissed(session.state, action))
            case End(reason=reason):
                return await self._commit(session, changes.ended(session.state, reason))
            case _:
                if session.state.turn is None:
                    raise RuntimeError(f"{type(action).__name__} without a turn")
                return await self._in_turn(session, session.state.turn, action)

    async def _in_turn(self, session: LiveSession, turn: Turn, action: Think | Resolve | Stop | Fail) -> bool:
        match action:
            case Think():
                return await self._think(session, turn)
            case Resolve():
                return await self._resolve(session, turn, action)
            case Stop():
                return await self._commit(session, changes.stopped(session.state, turn, action, self._begun(session, turn)))
            case Fail():
                return await self._fail(session, turn, action)

    async def _rest(self, session: LiveSession, timer_at: int | None) -> bool:
        """Give the session back. Where a message waits for a failed look-up of its author, that is what is tried again."""
        turn = session.state.turn
        if session.look_up_at is not None and session.unjudged:
            wake = session.look_up_at if timer_at is None else min(timer_at, session.look_up_at)
            unused = not session.worked
            await self.store.release(session.run_id, session.epoch, timer_at=wake, seen=session.seen, unused=unused)
        elif session.unjudged and (turn is None or turn.pending):
            await self._look_up_later(session)
        else:
            await self.store.release(
                session.run_id, session.epoch, timer_at=timer_at, seen=session.seen, unused=not session.worked
            )
        return True

    async def _look_up_later(self, session: LiveSession) -> None:
        retry_at = await self.store.now() + self.retry.delay_ms(session.charged + 1)
        error = "who may speak here could not be looked up"
        await self.store.charge(session.run_id, session.epoch, error=error, retry_at=retry_at, seen=session.seen)

    # ── model steps ──

    async def _think(self, session: LiveSession, turn: Turn) -> bool:
        agent = self.agents[session.held.claim.name]
        reply = session.reply()
        await self._announce(session, turn, reused=reply is not None)
        if reply is None:
            try:
                reply = await self._ask(session, turn, agent)
            except ModelFailed as error:
                return await self._model_failed(session, turn, error)
        calls = calls_of(turn, reply)
        gates = self._gates(agent, session)
        now, results, asks = [], {}, []
        for call in calls:  # one that was let through is not asked about again: with another answer it would run twice
            begun = session.started(call.call_id) or session.result(call.call_id) is not None
            gate = Run() if begun else await gates.check(call, turn, session.history, session.now, grants=session.state.grants)
            if isinstance(gate, Ask):
                asks.append(gate.prompt)
            elif isinstance(gate, Refused):
                results[call.call_id] = gate.result
            else:
                now.append(Due(call))
        batch = await self._runner(agent, session, turn).run(session, turn, now) if now else Batch()
        prompts: list[NewPrompt] = [*asks, *batch.again]
        if prompts and await self._wrote_on(session, turn):
            results.update({prompt.call.call_id: unasked(prompt) for prompt in prompts})
            prompts = []
        refused = frozenset(results)
        results.update(batch.results)
        ordered = [results[call.call_id] for call in calls if call.call_id in results]
        change = changes.thought(
            session.state, turn, reply, n=session.step_no, calls=calls, results=ordered, prompts=prompts, refused=refused
        )
        return await self._commit(session, change)

    async def _ask(self, session: LiveSession, turn: Turn, agent: ReadyAgent) -> ModelReply:
        request = ModelRequest(
            agent.instructions,
            tuple(session.history),
            tools=agent.specs,
            attempt=session.charged + 1,
            session_id=session.run_id,
            sequence=session.state.sequence,
        )
        hit("model.before_call")
        reply = await ask_model(
            self.store,
            session,
            turn,
            agent.model,
            request,
            stops=lambda began: self._stops(session, steering=not began),
            patience=self.patience,
            grace=self.grace,
            most=self.limits.value_bytes,
        )
        hit("model.after_reply")
        if reply.calls:
            await self._record_reply(session, turn, reply)
        return reply

    async def _record_reply(self, session: LiveSession, turn: Turn, reply: ModelReply) -> None:
        """Keep a paid reply before any tool starts; a reply without calls is kept by the step's own commit."""
        actions = shown_actions(self.agents[session.held.claim.name].tools, calls_of(turn, reply))
        body = codec.encode({"reply": reply_to_json(reply), "actions": actions}, limit=codec.MOST)
        data: dict[str, JsonValue] = {"turn_id": turn.turn_id, "step_index": turn.step_index, "sequence": session.state.sequence}
        event = Draft(type="actions.requested", data=data, refs=(("actions", f"record:{session.step_no}:{REPLY_KEY}#/actions"),))
        input_hash = f"{len(session.history)}"
        await self.store.record(
            session.run_id,
            session.epoch,
            step_n=session.step_no,
            key=REPLY_KEY,
            kind=RecordKind.REPLY,
            input_hash=input_hash,
            body=body,
            events=(event_draft(event),),
        )
        session.records[REPLY_KEY] = Record(
            key=REPLY_KEY, kind=RecordKind.REPLY, input_hash=input_hash, body=body, attempt=session.attempt, at=session.now
        )

    async def _model_failed(self, session: LiveSession, turn: Turn, error: ModelFailed) -> bool:
        """Try again later, or end the turn; a wait holds no worker."""
        charged = session.charged + 1
        if not error.retryable or charged >= MAX_CHARGED:
            return await self._fail(session, turn, Fail(code=error.code, message=error.message))
        retry_at = await self.store.now() + self.retry.delay_ms(charged, retry_after=error.retry_after)
        data: dict[str, JsonValue] = {
            "turn_id": turn.turn_id,
            "step_index": turn.step_index,
            "code": error.code,
            "message": error.message,
            "retry_at": retry_at,
        }
        await self.store.charge(
            session.run_id,
            session.epoch,
            error=f"{error.code}: {error.message}",
            retry_at=retry_at,
            seen=session.seen,
            events=(event_draft(Draft(type="step.failed", data=data)),),
        )
        return True

    # ── released, refused and steered calls ──

    async def _resolve(self, session: LiveSession, turn: Turn, action: Resolve) -> bool:
        agent = self.agents[session.held.claim.name]
        batch = Batch()
        unput: dict[str, ResultItem] = {}
        if action.run:
            await self._announce(session, turn, reused=False)
            due = [Due(pending.call, pending) for pending in action.run]
            try:
                batch = await self._runner(agent, session, turn).run(session, turn, due)
            except AccessUnknown:
                await self._look_up_later(session)
                return True
            except LookUpFailed as error:
                again = await self.store.now() + error.again_in_ms(5_000)
                await self.store.release(session.run_id, session.epoch, timer_at=again, seen=session.seen, unused=False)
                return True
            if batch.again and await self._wrote_on(session, turn):
                unput = {prompt.call.call_id: unasked(prompt) for prompt in batch.again}
                batch.again.clear()
        # what an earlier attempt streamed belongs to its step: what comes next is another one
        announced = session.announced or (session.attempt > 1 and not turn.pending)
        change = changes.resolved(
            self._gates(agent, session).granting(session.state, turn, action),
            turn,
            action,
            results={**batch.results, **unput},
            again=batch.again,
            begun=Begun(announced=announced),
            refused=frozenset(unput),
        )
        return await self._commit(session, change)

    async def _fail(self, session: LiveSession, turn: Turn, action: Fail) -> bool:
        error_id = new_id("err")
        log.warning("%s %s failed: %s: %s (error %s)", session.run_id, turn.turn_id, action.code, action.message, error_id)
        change = changes.failed(session.state, turn, action, self._begun(session, turn), error_id=error_id)
        return await self._commit(session, change)

    # ── parts ──

    def _gates(self, agent: ReadyAgent, session: LiveSession) -> Gates:
        decides = Deciding(threads=self.policies, seconds=self.access_seconds, model=agent.model)
        return Gates(tools=agent.tools, access=self.access, deciding=decides, verdicts=Verdicts(self.store, session))

    def _runner(self, agent: ReadyAgent, session: LiveSession, turn: Turn) -> CallRunner:
        return CallRunner(
            store=self.store,
            tools=agent.tools,
            gates=self._gates(agent, session),
            deps=self.deps,
            denied=lambda: self._still_denied(session, turn),
            interrupted=lambda: self._stops(session),
            threads=self.threads,
            grace=self.grace,
        )

    async def _wrote_on(self, session: LiveSession, turn: Turn) -> bool:
        """Whether the requester wrote on before a question could be put to them (CORE 9). Raises: Reconsider."""
        if await self._stops(session):
            raise Reconsider
        return bool(steering_of(session.view(self.limits), turn))

    def _begun(self, session: LiveSession, turn: Turn) -> Begun:
        """What the pending step had done, for a turn that ends now."""
        reply = session.reply()
        calls = calls_of(turn, reply) if reply is not None else tuple(pending.call for pending in turn.pending)
        results: dict[str, ResultItem] = {}
        for call in calls:
            result = session.result(call.call_id)
            if result is not None:
                results[call.call_id] = result
        return Begun(
            reply=reply,
            calls=calls,
            results=results,
            started=frozenset(call.call_id for call in calls if session.started(call.call_id)),
            announced=session.announced,
        )

    async def _announce(self, session: LiveSession, turn: Turn, *, reused: bool) -> None:
        """Tell readers that an attempt begins, and what it found recorded; it voids what an earlier attempt streamed."""
        if session.announced:
            return
        claim = session.held.claim
        data: dict[str, JsonValue] = {
            "turn_id": turn.turn_id,
            "step_index": turn.step_index,
            "sequence": session.state.sequence,
        }
        if session.attempt > 1 and not session.worked:
            tools: list[JsonValue] = [key.removeprefix("result:") for key in session.records if key.startswith("result:")]
            data["reused"] = {"model": reused, "tools": tools}
            data["previous"] = "killed" if claim.interrupted else "error" if claim.last_error else "released"
        signals = await self.store.append(session.run_id, session.epoch, (event_draft(Draft(type="step.started", data=data)),))
        session.announced = True
        session.worked = True
        if signals.inbox_seq > session.seen or signals.cancel_pending:
            session.held.changed.set()

    async def _stops(self, session: LiveSession, *, steering: bool = False) -> bool:
        """Look at what came in: must the step stop what it does? Not for what only newer code reads: that has time."""
        try:
            await session.take_in(await self.store.refresh(session.run_id, session.epoch), self.judge)
        except Stranded:
            return False
        return interrupts(session.view(self.limits), steering=steering)

    async def _commit(self, session: LiveSession, change: Change, move: Move | None = None) -> bool:
        return await commit(self.store, session, change, limits=self.limits, judge=self.judge, move=move)
