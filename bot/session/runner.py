"""The loop of one claimed session: decide, do, commit, until nothing is left to do.

What lives here: the shell of the turn engine. What does not: the decisions (bot/turn/), single calls (thinking.py, calls.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bot.access import AccessPolicy, members_only
from bot.answers import Answers
from bot.deciding import Deciding
from bot.edge import Threads, being_cancelled
from bot.errors import ModelFailed
from bot.flows.begin import Beginning
from bot.history import ResultItem
from bot.model import ModelReply, ModelRequest
from bot.people import LookUpFailed, People
from bot.session.attempts import announce, begun, charge, keep_reply
from bot.session.batch import Batch, Grace, Reconsider
from bot.session.calls import AccessUnknown, CallRunner, Due, unasked
from bot.session.commits import commit
from bot.session.entry import Entry
from bot.session.gates import Gates
from bot.session.handoff import Deploy, opening
from bot.session.live import LiveSession, WarmHistories
from bot.session.parting import asked_limit, mint, part, placed
from bot.session.private import private_of, seen_by
from bot.session.ready import ReadyAgent
from bot.session.releasing import Starter
from bot.session.replies import calls_of
from bot.session.signing import Signing
from bot.session.thinking import Patience, ask_model
from bot.session.typed import give
from bot.session.verdicts import Verdicts
from bot.turn import changes, children, waits
from bot.turn.actions import (
    Answer,
    AskLimit,
    Dismiss,
    End,
    Ending,
    Escalate,
    Fail,
    Interrupt,
    Open,
    Refuse,
    Relay,
    Remind,
    Reroute,
    Resolve,
    Rest,
    Stop,
    Tell,
    Think,
    Waiting,
)
from bot.turn.change import NO_FLOWS, Begun, Change, NewPrompt
from bot.turn.decide import decide, interrupts, steering_of
from bot.turn.held import waiting_after
from bot.turn.state import Limits, Pending, Turn
from durable_core.errors import LeaseLost, PromptTaken, Redacted, Stranded
from durable_core.failpoints import hit
from durable_core.ids import new_id
from durable_core.model import MAX_CHARGED, AnswerPolicy, Move
from durable_core.retry import RetryPolicy
from durable_core.store import Store
from durable_core.worker import Held

log = logging.getLogger("moorings.session")

ACCESS_SECONDS = 10.0
"""How long an author's access function may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRunner:
    """Advances sessions of an app's agents."""

    store: Store
    agents: Mapping[str, ReadyAgent]
    deps: object
    warm: WarmHistories
    answers: Answers
    """Takes what was typed as an answer."""
    access: AccessPolicy = members_only
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    grace: Grace = field(default_factory=Grace)
    threads: Threads = field(default_factory=Threads)
    """Where plain tools run."""
    policies: Threads = field(default_factory=Threads)
    """Where an author's plain access and approval functions run: tools that block must not hold up decisions."""
    access_seconds: float = ACCESS_SECONDS
    people: People = field(default_factory=People)
    signing: Signing = field(default_factory=Signing)
    """Has people connect the accounts that calls act with."""
    deploy: Deploy = field(default_factory=Deploy)
    keep_ms: int | None = None
    """How long the content of workflow runs is kept."""

    @property
    def entry(self) -> Entry:
        """Says who may speak."""
        return Entry(people=self.people, threads=self.policies, access=self.access, seconds=self.access_seconds)

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
            await session.take_in(session.held.claim, self.entry.judge)
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

    async def _loop(self, session: LiveSession) -> None:
        while True:
            try:
                if await self._once(session):
                    return
            except (Reconsider, PromptTaken, Redacted):
                await self.warm.refresh(session, self.entry.judge)

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

    async def _in_turn(self, session: LiveSession, turn: Turn, action: Think | AskLimit | Resolve | Ending | Waiting) -> bool:
        match action:
            case Think():
                return await self._think(session, turn)
            case Resolve():
                return await self._resolve(session, turn, action)
            case Fail():
                return await self._fail(session, turn, action)
            case Stop():
                return await self._commit(session, changes.stopped(session.state, turn, action, begun(session, turn)))
            case _:
                return await self._commit(session, await self._wait(session, turn, action))

    async def _wait(self, session: LiveSession, turn: Turn, action: AskLimit | Waiting) -> Change:
        """Do what a turn does that waits, or begins to."""
        match action:
            case AskLimit():
                prompt = asked_limit(turn, action, self.limits, now=session.now)
                return waits.limited(session.state, turn, prompt)
            case Answer():
                detail = await give(self.store, self.answers, session, action)
                await session.take_in(await self.store.refresh(session.run_id, session.epoch), self.entry.judge)
                return waits.answered(session.state, turn, action, detail)
            case Remind():
                return waits.reminded(session.state, turn, action, session.open)
            case Escalate():
                return waits.escalated(session.state, turn, action, session.open, now=session.now, mint=mint)
            case Reroute():
                log.warning("%s: a card can't be delivered (%s); fallback: %s", session.run_id, action.signal.error, action.to)
                return waits.rerouted(session.state, turn, action, mint=mint)
            case Tell():
                return waits.told(session.state, turn, action)
            case Relay():
                return children.relayed(session.state, turn, action)
            case Interrupt():
                return children.interrupted(session.state, turn, action, now=session.now)

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
        await announce(self.store, session, turn, reused=reply is not None, deployment=self.deploy.name)
        if reply is None:
            try:
                reply = await self._ask(session, turn, agent)
            except ModelFailed as error:
                return await self._model_failed(session, turn, error)
        calls = calls_of(turn, reply)
        policy = AnswerPolicy.REQUESTER if self.access is members_only else AnswerPolicy.FUNCTION
        parted = await part(self._gates(agent, session), session, turn, calls, policy=policy)
        results = parted.results
        batch = await self._runner(agent, session, turn).run(session, turn, parted.now) if parted.now else Batch()
        asks: tuple[NewPrompt | Pending, ...] = (*parted.asks, *batch.asks)
        if asks and await self._wrote_on(session, turn):
            results.update({one.call.call_id: unasked(one) for one in asks})
            parted.asks.clear()
            batch.ask_nobody()
        begins = Starter(tools=agent.tools, keep_ms=self.keep_ms, agent=agent.name).start(session, turn, parted.flows)
        results.update(begins.results)
        refused = frozenset(results)
        results.update(batch.results)
        change = changes.thought(
            session.state,
            turn,
            reply,
            n=session.step_no,
            calls=calls,
            results=[results[call.call_id] for call in calls if call.call_id in results],
            prompts=placed(turn, (*parted.asks, *batch.again), now=session.now),
            asleep=parted.asleep,
            joined=batch.joined,
            flows=begins.flows,
            refused=refused,
            silent=parted.silent,
            private=private_of(session.history, turn),
        )
        return await self._commit(session, change)

    async def _ask(self, session: LiveSession, turn: Turn, agent: ReadyAgent) -> ModelReply:
        request = ModelRequest(
            agent.instructions,
            seen_by(session.history, turn.requester.id),
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
            await keep_reply(self.store, session, turn, reply, agent.tools)
        return reply

    async def _model_failed(self, session: LiveSession, turn: Turn, error: ModelFailed) -> bool:
        """Try again later, or end the turn; a wait holds no worker."""
        if not error.retryable or session.charged + 1 >= MAX_CHARGED:
            return await self._fail(session, turn, Fail(code=error.code, message=error.message))
        await charge(self.store, session, turn, error, retry=self.retry)
        return True

    # ── released, refused and steered calls ──

    async def _resolve(self, session: LiveSession, turn: Turn, action: Resolve) -> bool:
        agent = self.agents[session.held.claim.name]
        batch = Batch()
        begins = Beginning(flows=NO_FLOWS)
        unput: dict[str, ResultItem] = {}
        starter = Starter(tools=agent.tools, keep_ms=self.keep_ms, agent=agent.name)
        runner, waiting = self._runner(agent, session, turn), waiting_after(turn, action)
        action = replace(action, closed=starter.said(action.closed))
        if action.run:
            await announce(self.store, session, turn, reused=False, deployment=self.deploy.name)
            flows, here = starter.sort(action.run)
            try:
                batch = await runner.run(session, turn, [Due(pending.call, pending) for pending in here], waiting=waiting)
                begins = await starter.release(runner, session, turn, flows)
            except AccessUnknown:
                await self._look_up_later(session)
                return True
            except LookUpFailed as error:
                again = await self.store.now() + error.again_in_ms(5_000)
                await self.store.release(session.run_id, session.epoch, timer_at=again, seen=session.seen, unused=False)
                return True
            if batch.asks and await self._wrote_on(session, turn):
                unput = {one.call.call_id: unasked(one) for one in batch.asks}
                batch.ask_nobody()
        # what an earlier attempt streamed belongs to its step: what comes next is another one
        announced = session.announced or (session.attempt > 1 and not turn.pending)
        change = changes.resolved(
            self._gates(agent, session).granting(session.state, turn, action),
            turn,
            action,
            results={**batch.results, **unput, **begins.results},
            again=placed(turn, batch.again, now=session.now),
            joined=batch.joined,
            flows=begins.flows,
            begun=Begun(announced=announced),
            refused=frozenset({*unput, *begins.results}),
        )
        return await self._commit(session, change)

    async def _fail(self, session: LiveSession, turn: Turn, action: Fail) -> bool:
        error_id = new_id("err")
        log.warning("%s %s failed: %s: %s (error %s)", session.run_id, turn.turn_id, action.code, action.message, error_id)
        change = changes.failed(session.state, turn, action, begun(session, turn), error_id=error_id)
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
            denied=lambda: self.entry.still_denied(session, turn),
            interrupted=lambda: self._stops(session),
            signing=self.signing,
            threads=self.threads,
            grace=self.grace,
        )

    async def _wrote_on(self, session: LiveSession, turn: Turn) -> bool:
        """Whether the requester wrote on before a question could be put to them (CORE 9). Raises: Reconsider."""
        if await self._stops(session):
            raise Reconsider
        return bool(steering_of(session.view(self.limits), turn))

    async def _stops(self, session: LiveSession, *, steering: bool = False) -> bool:
        """Look at what came in: must the step stop what it does? Not for what only newer code reads: that has time."""
        try:
            await session.take_in(await self.store.refresh(session.run_id, session.epoch), self.entry.judge)
        except Stranded:
            return False
        return interrupts(session.view(self.limits), steering=steering)

    async def _commit(self, session: LiveSession, change: Change, move: Move | None = None) -> bool:
        return await commit(self.store, session, change, limits=self.limits, judge=self.entry.judge, move=move)
