"""Sessions that this process can't or may not go on with: stranded ones, and those of an earlier start of dev.

What lives here: refusing them, ending stranded ones, their time-out. What does not: who is stranded (durable_core/stranding.py).
None of it runs an author's code.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from bot.ending import end_session
from bot.errors import Problem
from durable_core.errors import DurableError
from durable_core.listing import is_dormant
from durable_core.model import Run
from durable_core.store import Store
from durable_core.stranding import Strandings

log = logging.getLogger("moorings.leftovers")

SWEEP_SECONDS: Final = 60.0
BY: Final = "system"
"""Who ends what nobody can go on with."""

DORMANT: Final = (
    "This conversation was not finished when `moorings dev` was last stopped, so it is left alone. "
    "Start with --resume to go on with it, or reset it to begin anew."
)
# No worker takes these, so nobody else looks at their deadline.
_OVERDUE: Final = """
    SELECT run_id FROM moor_run
    WHERE wake_at IS NOT NULL AND owner IS NULL AND wake_at <= :now
      AND status = 'open' AND kind = 'session' AND deadline_at <= :now
      AND (spec_version < :least OR spec_version > :most OR stranded IS NOT NULL)
    ORDER BY wake_at LIMIT 100
"""


class Dormant(Problem):
    """A session of an earlier start of `moorings dev`."""

    def __init__(self) -> None:
        super().__init__(409, "session_dormant", DORMANT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What earlier versions and earlier starts left, as one process sees it."""

    store: Store
    strandings: Strandings
    dormant_before: int = 0
    """Unfinished sessions to which nothing has happened since then are dormant; 0 where there is no such thing."""

    async def refuse(self, run: Run) -> None:
        """Refuse a session that can't be gone on with.

        Raises:
            Stranded, Dormant: it is such a one.
        """
        await self.strandings.check(run)
        await self.refuse_dormant(run)

    async def refuse_dormant(self, run: Run) -> None:
        """Refuse a session of an earlier start.

        Raises:
            Dormant: it is one.
        """
        if self.dormant_before and await is_dormant(self.store, run.run_id, since=self.dormant_before):
            raise Dormant

    async def is_stranded(self, run: Run) -> bool:
        """Whether nobody can go on with it."""
        return await self.strandings.is_stranded(run)

    async def somebody_reads(self, spec: int) -> bool:
        """Whether somebody who lives reads a format, or did lately."""
        return await self.strandings.somebody_reads(spec)

    async def end_stranded(self, run: Run) -> bool:
        """End a session if it is stranded, so that its address is free; whether it is."""
        if not await self.is_stranded(run):
            return False
        log.warning("%s can't be read by any version that runs; it ends, and a new session begins", run.run_id)
        await self._end(run, "stranded")
        return True

    async def expire(self) -> int:
        """End stranded sessions whose time is over; how many."""
        able = self.strandings.abilities
        given = {"now": await self.store.now(), "least": able.min_readable, "most": able.current}
        ended = 0
        for (run_id,) in await self.store.rows(_OVERDUE, {**given}):
            run = await self.store.run(str(run_id))
            if await self.is_stranded(run):
                ended += await self._end(run, "expired")
        return ended

    async def keep_expiring(self) -> None:
        """Look for overdue ones again and again, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.expire()
            except DurableError as error:
                log.warning("looking for stranded sessions whose time is over: %s", error)

    async def _end(self, run: Run, reason: str) -> bool:
        return await end_session(self.store, run, reason=reason, by=BY)
