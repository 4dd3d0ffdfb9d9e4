"""The loop of one claimed workflow run: take what comes next, tell the body, commit, until nothing is left to do.

What lives here: the shell around a body. What does not: what comes next (inbox.py), what is written (commits.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from durable_core import codec
from durable_core.authorizing import Lent
from durable_core.clock import Clock
from durable_core.engine.commits import End, end_commit, ends, entry_commit, with_answered, with_end, without_hook
from durable_core.engine.ending import children_of
from durable_core.engine.handles import CANCELLED, COMPLETED, FAILED
from durable_core.engine.inbox import Completion, next_completion, read_command, unanswered
from durable_core.engine.live import GRACE_MS, Live
from durable_core.engine.loading import WarmBodies, cold, warm
from durable_core.engine.starts import read_header
from durable_core.engine.steps import LEAVE_SECONDS, VALUE_LIMIT, unstorable
from durable_core.engine.surface import Alone, Surface
from durable_core.engine.threads import Threads, being_cancelled, storable, wording
from durable_core.errors import (
    AddressTaken,
    DurableError,
    LeaseLost,
    PromptTaken,
    Stranded,
    TooLarge,
    Unstorable,
)
from durable_core.failures import NonDeterminism, Poison
from durable_core.model import MAX_CHARGED, Abilities, Claim, CommandKind, Committed, StepCommit
from durable_core.operations import Entry, EntryKind, Raised
from durable_core.registry import Registry
from durable_core.retry import surely
from durable_core.store import Store
from durable_core.worker import Held

log = logging.getLogger("moorings.engine")

SETTLE_SECONDS: Final = 0.02
"""How long an attempt is waited for before a change of the run is looked at: most changes are this run's own commits."""
_UNTOLD: Final = frozenset({EntryKind.FAILED, EntryKind.ASKED})
"""Entries that the body is not told of."""


class _Anew(Exception):
    """What the body was told did not come to be; build it anew from the log."""


@dataclass(slots=True, kw_only=True)
class Runner:
    """Advances workflow runs: the half of a worker's duties that is about them."""

    store: Store
    registry: Registry
    clock: Clock
    public_url: str | None = None
    """Where webhooks are reached; None leaves their URLs out."""
    keep_ms: int | None = None
    """How long the content of children is kept."""
    warm: WarmBodies = field(default_factory=WarmBodies)
    threads: Threads = field(default_factory=Threads)
    poll: float = 1.0
    """How often a clock that is set by hand is looked at."""
    surface: Surface = field(default_factory=Alone)
    """Where runs show what they ask and how far they are."""
    deps: object = None
    """What steps find in their `step_context().deps`."""
    lend: Callable[[str, Any], Lent] | None = None
    """What each attempt of a step is lent, by its run and where that comes from."""
    on_end: Callable[[str, str, bytes], object] = lambda *_: None
    """Told of each run that it has ended: its id, the reason, the output."""
    abilities: Abilities = field(init=False)
    """What a worker with this runner alone is able to do."""

    def __post_init__(self) -> None:
        registry = self.registry
        self.abilities = Abilities(sessions=False, workflows=registry.names, code=registry.fingerprint, channels=())

    async def advance(self, held: Held) -> None:
        """Advance a claimed run until it is given back; one that a newer version wrote is set aside for that."""
        try:
            await self._advance_held(held)
        except Stranded as stranded:
            await self._set_aside(held.claim, stranded)

    async def _advance_held(self, held: Held) -> None:
        claim = held.claim
        if claim.charged >= MAX_CHARGED:
            message = f"its worker stopped in the middle of it {claim.charged} times: {claim.last_error or 'no reason known'}"
            await self._end_unseen(claim, End.of(FAILED, code="interrupted", message=message))
            return
        while True:
            live = await self._load(held)
            if live is None:
                return
            live.steps.fence = (self.store, claim.epoch)
            live.steps.deps, live.steps.origin, live.steps.lend = self.deps, live.start.origin, self.lend
            try:
                await self._advance(live)
            except _Anew:
                held.claim = await self.store.refresh(claim.run_id, claim.epoch)
            else:
                return

    async def _load(self, held: Held) -> Live | None:
        """Bring the body to where its log ends; None when it can't be, and the run was given back or ended."""
        claim = held.claim
        known = self.warm.take(held)
        if known is not None:
            return warm(known, held)
        steps = await self.store.steps(claim.run_id) if claim.step_no else []
        try:
            workflow = self.registry[claim.name]
            return await cold(
                held, steps, read_header(claim.header, claim.run_id), workflow, clock=self.clock, threads=self.threads
            )
        except Poison as poison:
            await self._poisoned(claim, poison, step_no=claim.step_no)
            return None

    async def _advance(self, live: Live) -> None:
        parked = False
        try:
            parked = await self._loop(live)
        except asyncio.CancelledError as error:
            if not being_cancelled():
                raise RuntimeError("a cancellation leaked from inside of the run") from error
            await asyncio.shield(self._leave(live))
            raise
        except Poison as poison:
            await self._poisoned(live.held.claim, poison, live=live)
        finally:
            live.steps.let_go()
            if parked:
                self.warm.keep(live)
            else:
                live.replay.close()

    async def _leave(self, live: Live) -> None:
        """A drain: the run is given back as it is, not charged."""
        live.steps.let_go()
        await live.steps.left(LEAVE_SECONDS)
        with contextlib.suppress(LeaseLost):
            now = live.now()
            await self.store.release(live.run_id, live.epoch, timer_at=now, seen=live.seen, unused=not live.worked)

    async def _loop(self, live: Live) -> bool:
        """Go on until the run is parked (True) or ended (False)."""
        while True:
            completion = None
            if live.over:
                if not live.wants.unwritten:
                    await self._finish(live)
                    return False
            else:
                await self._read_answers(live)
                completion = next_completion(live, self.public_url)
            if completion is None and (live.over or live.wants.unwritten or (live.step_no == 0 and live.parks(live.wake_at()))):
                completion = Completion(kind=EntryKind.ASKED)
            if completion is not None:
                left = await self._write(live, completion)
                if left is not None:
                    return left
                continue
            live.begin_steps()
            if live.steps.ended:
                continue
            wake_at = live.wake_at()
            if live.parks(wake_at):
                unused = not live.worked
                await self.store.release(live.run_id, live.epoch, timer_at=wake_at, seen=live.seen, unused=unused)
                return True
            await self._wait(live, wake_at)

    async def _read_answers(self, live: Live) -> None:
        while (command := unanswered(live)) is not None:
            prompt = await self.store.prompt(read_command(live, command)["prompt_id"])
            live.settled[prompt.prompt_id] = prompt

    # ── an entry ──

    async def _write(self, live: Live, completion: Completion) -> bool | None:
        """Tell the body what happened and write both down; True when the run was given back with it, False when it ended."""
        at = max(live.at, live.now(), completion.at or 0)
        if completion.kind not in _UNTOLD:
            output = completion.told or cast("dict[str, Any]", codec.decode(completion.output))
            live.replay.deliver(
                Entry(
                    n=live.step_no,
                    kind=completion.kind,
                    op=completion.op,
                    ok=completion.ok,
                    value=output["value"] if completion.ok else output["error"],
                    at=at,
                )
            )
            live.at = at
            self._remember(live, completion, output, at)
        live.look()
        try:
            commit = entry_commit(live, completion, at=at, keep_ms=self.keep_ms, surface=self.surface)
        except (Unstorable, TooLarge) as error:
            await self._end(live, End.of(FAILED, code=unstorable(error).code, message=wording(error)))
            return False
        if ends(live, commit):
            await self._end(live, self._outcome(live), last=commit)
            return False
        committed, released = await self._commit(live, commit, completion)
        live.take_over(committed, commit.consumed)
        return True if released else None

    def _remember(self, live: Live, completion: Completion, output: dict[str, Any], at: int) -> None:
        if completion.kind is EntryKind.CANCEL:
            live.cancel_at = at
        elif completion.kind is EntryKind.CHILD:
            live.wants.end_child(output["run_id"], completion.output)
            live.children.pop(completion.op, None)
        elif completion.kind is EntryKind.ANSWER:
            live.prompts.pop(completion.op, None)
        elif completion.kind is EntryKind.SIGNAL and not completion.ok:
            live.taken.discard(completion.about["name"])

    async def _commit(self, live: Live, commit: StepCommit, completion: Completion) -> tuple[Committed, bool]:
        """Commit; also whether the run was given back with it. An answer that came meanwhile counts where that undoes nothing."""
        while True:
            try:
                return await self._surely(commit), commit.release
            except PromptTaken as taken:
                if taken.prompt_id in completion.prompts or (completion.comes_again and live.steps.idle):
                    raise _Anew from taken
                commit = with_answered(live, commit, await self.store.prompt(taken.prompt_id), self.surface)
            except AddressTaken as taken:  # the body is told by the next entry
                commit = without_hook(live, commit, taken.address)

    # ── waiting ──

    async def _wait(self, live: Live, wake_at: int | None) -> None:
        """Wait for an attempt, a change or a time."""
        await asyncio.sleep(0)  # many a step has ended by then
        if live.steps.ended:
            return
        changed = live.held.changed
        if changed.is_set():
            await self._moved(live, SETTLE_SECONDS)
            if live.steps.ended:
                return
            changed.clear()
            live.take_in(await self.store.refresh(live.run_id, live.epoch))
            return
        seconds = None if wake_at is None else max(0.0, (wake_at - live.now()) / 1000 + 0.001)
        if self.clock.override() is not None:
            seconds = self.poll if seconds is None else min(seconds, self.poll)
        await self._moved(live, seconds, or_changed=True)

    async def _moved(self, live: Live, seconds: float | None, *, or_changed: bool = False) -> None:
        """Wait until an attempt has ended, or also until the run has changed."""
        moved, changed = live.steps.moved, live.held.changed
        over = asyncio.Event()
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, _ring, over, moved)
        try:
            while not live.steps.ended and not over.is_set() and not (or_changed and changed.is_set()):
                moved.clear()
                await moved.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # ── the end ──

    async def _finish(self, live: Live) -> None:
        if live.cancel_at is None:
            await self._end(live, self._outcome(live))
            return
        await self._grace(live, live.cancel_at + GRACE_MS)
        await self._end(live, End.of(CANCELLED, code="cancelled", message="it was cancelled"))

    def _outcome(self, live: Live) -> End:
        """Say how a run that nobody cancelled ends."""
        outcome = live.replay.outcome
        if isinstance(outcome, Raised):
            return _failed(outcome.error)
        value = None if outcome is None else outcome.value
        try:
            return End(COMPLETED, codec.encode({"ok": True, "value": value}, limit=VALUE_LIMIT))
        except (Unstorable, TooLarge) as error:
            why = unstorable(error)
            return End.of(FAILED, code=why.code, message=f"its result: {why.message}", type_name=why.type)

    async def _grace(self, live: Live, until: int) -> None:
        """Let what a cancel stopped come to its end, up to a time."""
        live.steps.let_go()
        while live.steps.stopped and live.now() < until:
            seconds = (until - live.now()) / 1000
            await live.steps.left(min(seconds, self.poll) if self.clock.override() is not None else seconds)

    async def _end(self, live: Live, end: End, *, last: StepCommit | None = None) -> None:
        """End a run, in one commit with the last entry if there is one to write."""
        live.steps.let_go()
        wants = live.wants
        children = [one for one in live.children.values() if one not in wants.results and not wants.outlives(one)]
        at = max(live.at, live.now())
        claim = live.held.claim
        ended = tuple(dict.fromkeys(children))
        shown = live.replay.take_progress()
        commit = end_commit(
            claim,
            live.start,
            end,
            step_no=live.step_no if last is None else live.step_no + 1,
            seen=live.seen,
            at=at,
            children=ended,
            prompts=live.unanswered(),
            shown=shown,
            surface=self.surface,
        )
        await self._surely(commit if last is None else with_end(last, commit))
        self.on_end(claim.run_id, end.reason, end.output)

    async def _end_unseen(self, claim: Claim, end: End) -> None:
        """End a run whose body is not there."""
        start = read_header(claim.header, claim.run_id)
        prompts = tuple(prompt.prompt_id for prompt in claim.prompts if prompt.outcome is None)
        await self._surely(
            end_commit(
                claim,
                start,
                end,
                step_no=claim.step_no,
                seen=claim.signals.inbox_seq,
                at=claim.now,
                children=await children_of(self.store, claim.run_id) if claim.step_no else (),
                prompts=prompts,
                surface=self.surface,
            )
        )

    async def _surely(self, commit: StepCommit) -> Committed:
        return await surely(lambda: self.store.commit(commit))

    async def _poisoned(self, claim: Claim, poison: Poison, *, live: Live | None = None, step_no: int = 0) -> None:
        """Set a run aside that this code can't go on with; end one whose code can't be replayed by anybody."""
        if isinstance(poison, NonDeterminism):
            if any(command.kind is CommandKind.CANCEL for command in claim.commands):
                await self._end_unseen(claim, End.of(CANCELLED, code="cancelled", message="it was cancelled while set aside"))
            else:
                await self._set_aside(claim, poison)
            return
        end = End.of(
            FAILED, code=_CODES.get(type(poison).__name__, "error"), message=wording(poison), type_name=type(poison).__name__
        )
        if live is None:
            await self._end_unseen(claim, end)
        else:
            await self._end(live, end)

    async def _set_aside(self, claim: Claim, why: NonDeterminism | Stranded) -> None:
        log.error("%s (%s) is set aside: %s", claim.run_id, claim.name, why)
        await self.store.strand(claim.run_id, claim.epoch, reason=str(why), code=self.abilities.code)


_CODES: Final = {"NotDurable": "not_durable", "BodyBlocked": "body_blocked"}


def _ring(*bells: asyncio.Event) -> None:
    for bell in bells:
        bell.set()


def _failed(error: BaseException) -> End:
    """Say how a body's error ends its run; errors of steps and children keep their code."""
    code = getattr(error, "code", None) if isinstance(error, DurableError) else None
    code = storable(code) if isinstance(code, str) else "error"
    return End.of(FAILED, code=code, message=wording(error), type_name=type(error).__name__)
