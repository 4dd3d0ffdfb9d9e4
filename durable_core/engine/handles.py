"""Handles: what a caller holds of a run, and how its result is waited for.

What lives here: reading runs and waiting for them. What does not: advancing them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from durable_core import codec
from durable_core.engine import formats
from durable_core.errors import ContentGone, RunCancelled, RunFailed, Unavailable
from durable_core.model import Phase, Prompt, Run, RunStatus
from durable_core.store import Store
from durable_core.streams import EventView

if TYPE_CHECKING:
    from durable_core.engine.engine import Engine

COMPLETED: Final = "completed"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
"""Reasons for which a workflow run ends."""
AGAIN_SECONDS: Final = 1.0
"""How long to wait before a database that didn't answer is asked again."""


class Flag(asyncio.Event):
    """Raised whenever a run may have changed; with how it ended, where that was written here."""

    def __init__(self) -> None:
        super().__init__()
        self.end: tuple[str, bytes] | None = None
        """The reason, and the output of its last step."""


class Waiters:
    """Who waits for which run to change: one listener on the store for all."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._flags: defaultdict[str, set[Flag]] = defaultdict(set)
        self._busy: set[str] = set()
        self._unwatch: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to hear of changes."""
        self._unwatch = self._store.watch(self._on_change)

    def stop(self) -> None:
        """Stop hearing of changes; who waits looks once more, and learns that the engine is closed."""
        self._unwatch()
        for flags in self._flags.values():
            for flag in flags:
                flag.set()

    @contextmanager
    def flag(self, run_id: str) -> Iterator[Flag]:
        """A flag that is raised whenever the run may have changed."""
        flag = Flag()
        self._flags[run_id].add(flag)
        try:
            yield flag
        finally:
            self._flags[run_id].discard(flag)
            if not self._flags[run_id]:
                del self._flags[run_id]

    @contextmanager
    def busy(self, run_id: str) -> Iterator[None]:
        """Raise no flag while this process advances a run: its end comes with the end of that."""
        self._busy.add(run_id)
        try:
            yield
        finally:
            self._busy.discard(run_id)
            self._on_change((run_id,))

    def is_busy(self, run_id: str) -> bool:
        """Whether this process advances a run."""
        return run_id in self._busy

    def ended(self, run_id: str, reason: str, output: bytes) -> None:
        """Tell who waits how a run has ended: its end is committed."""
        for flag in self._flags.get(run_id, ()):
            flag.end = (reason, output)
            flag.set()

    def _on_change(self, run_ids: Sequence[str] | None) -> None:
        for run_id in list(self._flags) if run_ids is None else run_ids:
            if run_id not in self._busy:
                for flag in self._flags.get(run_id, ()):
                    flag.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """Where a workflow run stands: running, waiting, stranded, completed, failed or cancelled; times in milliseconds.

    One that is to start later is waiting until then.
    """

    run_id: str
    workflow: str
    status: str
    reason: str | None
    """Why it is stranded."""
    created_at: int
    ended_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptView:
    """An open question of a run; `body` is what it asks, with its options."""

    prompt_id: str
    run_id: str
    body: dict[str, Any]
    created_at: int
    expires_at: int | None

    @classmethod
    def of(cls, prompt: Prompt) -> PromptView:
        """Read a prompt."""
        return cls(
            prompt_id=prompt.prompt_id,
            run_id=prompt.run_id,
            body=cast("dict[str, Any]", codec.decode(prompt.body)),
            created_at=prompt.created_at,
            expires_at=prompt.expires_at,
        )


@dataclass(frozen=True, slots=True)
class RunHandle:
    """One workflow run, by its id."""

    engine: Engine
    run_id: str

    async def result(self, timeout: float | timedelta | None = None) -> Any:  # noqa: ASYNC109 - how asyncio.timeout is best offered
        """Wait for the end, woken by changes, and return what the workflow returned.

        Raises:
            RunFailed, RunCancelled: how else it ended.
            TimeoutError: it has not ended yet.
            RuntimeError: the engine was closed meanwhile.
            ContentGone: it ended so long ago that its result was deleted.
            Stranded: a newer version wrote its result.
            NotFound: there is no such run.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        async with asyncio.timeout(seconds):
            with self.engine.waiters.flag(self.run_id) as flag:
                while True:
                    flag.clear()
                    try:
                        if not self.engine.waiters.is_busy(self.run_id):  # else its end is told, or that it was given back
                            run = await self.engine.store.run(self.run_id)
                            if run.status is RunStatus.ENDED:
                                return await result_of(self.engine.store, run)
                    except Unavailable:
                        await asyncio.sleep(AGAIN_SECONDS)
                    else:
                        await flag.wait()
                    if flag.end is not None:
                        return _result(self.run_id, *flag.end)

    async def status(self) -> RunView:
        """Where it stands. Raises: NotFound."""
        run = await self.engine.store.run(self.run_id)
        return view_of(run, 0 if run.wake_at is None else await self.engine.store.now())

    async def signal(self, name: str, value: Any = None, *, key: str | None = None, by: str = "") -> None:
        """Send it a signal, kept until it waits for it."""
        await self.engine.signal(run_id=self.run_id, name=name, value=value, key=key, by=by)

    async def cancel(self, reason: str = "", *, by: str = "") -> bool:
        """Cancel it; False when it had ended."""
        return await self.engine.cancel(self.run_id, reason, by=by)

    async def prompts(self) -> list[PromptView]:
        """What it asks people, oldest first."""
        return await self.engine.prompts(self.run_id)

    def events(self, *, start: int = 0, follow: bool = False) -> AsyncIterator[EventView]:
        """Its events, from `start` on (negative: from the tail)."""
        return self.engine.events(self.run_id, start=start, follow=follow)


async def result_of(store: Store, run: Run) -> Any:
    """Return what an ended run returned. Raises: RunFailed, RunCancelled, ContentGone, Stranded."""
    reason = run.end_reason or CANCELLED
    if reason not in {COMPLETED, FAILED, CANCELLED}:
        raise RunCancelled(run.run_id, reason, f"it was ended: {reason}")
    row = f"step:{run.step_no - 1}"
    body = (await store.content(run.run_id, [row])).get(row)
    if body is None or run.purged_at is not None:
        raise ContentGone(run.run_id)
    return _result(run.run_id, reason, body)


def _result(run_id: str, reason: str, body: bytes) -> Any:
    output = formats.read(formats.Kind.STEP, body, run_id=run_id)
    if output["ok"]:
        return output["value"]
    error = output["error"]
    if reason == CANCELLED:
        raise RunCancelled(run_id, error["code"], error["message"])
    raise RunFailed(run_id, error["code"], error["message"], error.get("type", ""))


def view_of(run: Run, now: int) -> RunView:
    """Say where a run stands at a time."""
    return RunView(
        run_id=run.run_id,
        workflow=run.name,
        status=status_of(run.status, run.phase, run.end_reason, run.stranded, delayed=is_delayed(run.phase, run.wake_at, now)),
        reason=run.stranded,
        created_at=run.created_at,
        ended_at=run.ended_at,
    )


def is_delayed(phase: str, wake_at: int | None, now: int) -> bool:
    """Whether an open run has not begun, and isn't to begin yet."""
    return phase == Phase.IDLE and wake_at is not None and wake_at > now


def status_of(status: str, phase: str, end_reason: str | None, stranded: str | None, *, delayed: bool) -> str:
    """Say in a word where a run stands."""
    if status == RunStatus.ENDED:
        return end_reason if end_reason in {COMPLETED, FAILED} else CANCELLED
    if stranded is not None:
        return "stranded"
    return "waiting" if phase == Phase.WAITING or delayed else "running"


def row_view(row: tuple[Any, ...], now: int) -> RunView:
    """Return a run as its columns tell of it."""
    run_id, name, status, phase, end_reason, stranded, created_at, ended_at, wake_at = row
    word = status_of(status, phase, end_reason, stranded, delayed=is_delayed(phase, wake_at, now))
    return RunView(run_id=run_id, workflow=name, status=word, reason=stranded, created_at=created_at, ended_at=ended_at)
