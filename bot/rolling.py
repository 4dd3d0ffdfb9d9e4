"""A rolling deploy of the worker's process: a new one starts beside the old one, which then drains.

What lives here: the order of the two. What does not: a process (processes.py), who asks for it (console/panel.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final

from bot.errors import BotError
from bot.processes import WorkerProcess, WorkerState

START_SECONDS: Final = 30.0
"""How long a new worker may take to be at work; then the old one stays."""
DRAIN_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.1


class RolloutStage(StrEnum):
    """How far a deploy is."""

    STARTING = "starting"
    DRAINING = "draining"


class RolloutFailed(BotError):
    """The new worker did not come to work; the old one works on."""

    def __init__(self, deployment: str, seconds: float) -> None:
        super().__init__(f"{deployment} was not at work after {seconds:g} s; what ran before runs on")
        self.deployment = deployment
        self.seconds = seconds


class RollingWorker:
    """A worker as `WorkerProcess` is one, which a worker of another deployment can take the place of without a gap.

    `make` makes the process of a deployment; it is called with the deployment's name.
    """

    def __init__(self, make: Callable[[str], WorkerProcess], deployment: str, *, drain_seconds: float = DRAIN_SECONDS) -> None:
        self._make = make
        self._drain_seconds = drain_seconds
        self._on_change: Callable[[WorkerState, int | None], None] | None = None
        self._current = make(deployment)
        self._other: WorkerProcess | None = None
        """Starting or draining."""
        self._rollout: asyncio.Task[None] | None = None
        self.deployment = deployment
        """Whose worker takes what comes."""
        self.stage: RolloutStage | None = None
        """How far a deploy is; None while there is none."""
        self.leaving: str | None = None
        """Whose worker drains."""

    @property
    def pid(self) -> int | None:
        """Return the process id of the one that takes what comes, while it is up."""
        return self._current.pid

    @property
    def state(self) -> WorkerState:
        """Return whether that one runs."""
        return self._current.state

    def observe(self, on_change: Callable[[WorkerState, int | None], None]) -> None:
        """Set who is told of changes, in place of whoever was before."""
        self._on_change = on_change
        self._current.observe(on_change)

    async def start(self) -> None:
        """Start the first one. Raises: OSError."""
        await self._current.start()

    def kill(self) -> int | None:
        """Kill the one that takes what comes, without a word; it comes back by itself."""
        return self._current.kill()

    def deploy(
        self,
        deployment: str,
        *,
        ready: Callable[[int], Awaitable[bool]],
        adopt: Callable[[], Awaitable[None]],
        seconds: float = START_SECONDS,
    ) -> asyncio.Task[None]:
        """Begin to roll a deployment out; one at a time. The task fails with RolloutFailed or OSError, and the old one works on.

        `ready` is asked, again and again, whether the process with that id is at work; `adopt` is called once it is, before the
        old one is told to end.
        """
        if self.stage is not None:
            raise RuntimeError("a rollout is under way")
        self._become(RolloutStage.STARTING)
        self._rollout = asyncio.create_task(self._roll(deployment, ready, adopt, seconds), name="rollout")
        return self._rollout

    async def stop(self, *, seconds: float) -> int | None:
        """Ask all that run to drain, wait, kill what takes longer; returns the exit code of the one that took what came."""
        rollout = self._rollout
        if rollout is not None and self.stage is RolloutStage.STARTING:
            rollout.cancel()
        ends = [asyncio.ensure_future(self._current.stop(seconds=seconds))]
        waited = [*ends, *([rollout] if rollout is not None else [])]
        _, late = await asyncio.wait(waited, timeout=seconds)
        if late and self._other is not None:
            self._other.kill()
        await asyncio.gather(*waited, return_exceptions=True)
        return ends[0].result()

    async def _roll(
        self, deployment: str, ready: Callable[[int], Awaitable[bool]], adopt: Callable[[], Awaitable[None]], seconds: float
    ) -> None:
        new = self._other = self._make(deployment)
        try:
            await self._bring_up(new, deployment, ready, seconds)
            await adopt()
        except BaseException:
            await new.stop(seconds=0)
            self._become(None)
            raise
        old, self._current = self._current, new
        self._other, self.leaving, self.deployment = old, self.deployment, deployment
        old.observe(lambda *_: None)
        if self._on_change is not None:
            new.observe(self._on_change)
        self._become(RolloutStage.DRAINING)
        try:
            await old.stop(seconds=self._drain_seconds)
        finally:
            self._other = self.leaving = None
            self._become(None)

    async def _bring_up(
        self, new: WorkerProcess, deployment: str, ready: Callable[[int], Awaitable[bool]], seconds: float
    ) -> None:
        try:
            async with asyncio.timeout(seconds):
                await new.start()
                while (pid := new.pid) is None or not await ready(pid):  # noqa: ASYNC110 - it happens in another process
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise RolloutFailed(deployment, seconds) from None

    def _become(self, stage: RolloutStage | None) -> None:
        self.stage = stage
        if self._on_change is not None:
            self._on_change(self.state, self.pid)
