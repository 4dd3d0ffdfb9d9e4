"""What goes on by itself: from a code to an end, from an end to whoever waits, and what a process that is gone has left.

What lives here: the order of it, the sweep. What does not: the exchange (exchange.py), words for the conversation (settle.py).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import Final

from bot.signins.attempt import ENDED, Attempt, Stage
from bot.signins.device import Devices
from bot.signins.exchange import AGAIN, Exchange, failed
from bot.signins.keeping import Attempts, Kept
from bot.signins.settle import Settling
from bot.signins.waiting import Waiting
from durable_core.errors import Unavailable
from durable_core.failpoints import hit

log = logging.getLogger("moorings.signins")

WAIT_SECONDS: Final = 8.0
"""How long a callback is kept waiting for the exchange; then a page says that it goes on."""
SWEEP_SECONDS: Final = 2.0
_LATER_MS: Final = 60_000
_BATCH: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Driving:
    """Drives attempts on, in this process or after another one. Every step may be done twice and is taken once."""

    attempts: Attempts
    exchange: Exchange
    settling: Settling
    waiting: Waiting
    devices: Devices
    patience: float = WAIT_SECONDS
    """How many seconds a browser is kept waiting."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Exchanges under way, which no browser's patience ends."""

    async def patiently(self, kept: Kept) -> None:
        """Drive an attempt on without letting the browser decide whether it ends, and wait for it a while."""
        task = asyncio.create_task(self._safely(kept), name=f"moorings-sign-in-{kept.attempt.attempt_id}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        await asyncio.wait({task}, timeout=self.patience)

    async def ended(self, kept: Kept, attempt: Attempt) -> Kept:
        """End an attempt and tell; where somebody has moved it meanwhile, theirs is returned and this is nothing."""
        moved = await self.attempts.move(kept, attempt)
        if moved is None:
            return await self.attempts.find(attempt.attempt_id) or kept
        log.info("sign-in %s: %s (%s)", attempt.attempt_id, attempt.stage.value, attempt.fault or "done")
        await self.tell(moved)
        return moved

    async def tell(self, kept: Kept) -> None:
        """Tell all whom it concerns what came of an attempt, and note that they were told."""
        if kept.attempt.ended and not kept.attempt.settled:
            hit("connect.before_settle")
            await self.settling.tell(kept.attempt)
            await self.waiting.serve(kept.attempt)
            await self.attempts.move(kept, replace(kept.attempt, settled=True))

    async def sweep(self) -> int:
        """Go on with what a process that is gone has left, and end what can't be gone on with; how many there were."""
        due = await self.attempts.due(_BATCH)
        alike: dict[str, list[Kept]] = {}
        for kept in due:
            alike.setdefault(kept.attempt.prompt_id or kept.attempt.attempt_id, []).append(kept)
        for error in await asyncio.gather(*map(self._in_turn, alike.values()), return_exceptions=True):
            if error is not None:
                raise error
        return len(due)

    async def _in_turn(self, alike: list[Kept]) -> None:
        """Go on with all attempts of one request; beside others', so that a provider which hangs holds up nobody else."""
        for kept in alike:
            try:
                await self._go_on(kept)
            except Unavailable:
                raise
            except Exception:
                log.exception("sign-in %s can't be gone on with now", kept.attempt.attempt_id)
                await self.attempts.move(kept, kept.attempt, due_at=kept.at + _LATER_MS)

    async def keep_sweeping(self) -> None:
        """Sweep for as long as the process runs."""
        while True:
            try:
                await self.sweep()
            except Unavailable as error:
                log.info("sign-ins are looked at later: %s", error)
            except Exception:
                log.exception("sign-ins could not be looked at")
            await asyncio.sleep(SWEEP_SECONDS)

    async def close(self, seconds: float) -> None:
        """Wait for exchanges under way; what isn't done by then is gone on with, or asked anew, by whoever runs next."""
        if self.tasks:
            _, left = await asyncio.wait(self.tasks, timeout=seconds)
            for task in left:
                task.cancel()

    async def _go_on(self, kept: Kept) -> None:
        match kept.attempt.stage:
            case Stage.RETURNED:
                await self._drive(kept)
            case Stage.POLLING:
                ended = await self.devices.ask(kept)
                if ended is not None:
                    await self.tell(ended)
            case Stage.EXCHANGING:
                title = self.exchange.title(kept.attempt)
                reason = f"It was cut off while {title} was asked, so it isn't certain what {title} gave. {AGAIN}"
                await self.ended(kept, failed(kept.attempt, "cut_off", reason))
            case stage if stage in ENDED:
                await self.tell(kept)
            case _:
                await self.attempts.move(kept, kept.attempt)

    async def _safely(self, kept: Kept) -> None:
        try:
            await self._drive(kept)
        except Exception:
            log.exception("sign-in %s was cut off; it is looked at again", kept.attempt.attempt_id)

    async def _drive(self, kept: Kept) -> None:
        await self.tell(await self.exchange.drive(kept))
