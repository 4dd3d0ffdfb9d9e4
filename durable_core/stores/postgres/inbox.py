"""The inbox: accepting inputs, in one statement where they begin a run, in two where it is there.

What lives here: choosing between `starts.py`, `waking.py` and `admission.py`. What does not: SQL but for one look.
"""

from __future__ import annotations

from typing import Final

from durable_core.clock import Clock
from durable_core.model import Admission, ClaimRequest, Receipt, ToAddress
from durable_core.stores import rows
from durable_core.stores.postgres import admission as admissions
from durable_core.stores.postgres import loading, starts, waking
from durable_core.stores.postgres.database import ADMIT, Database
from durable_core.stores.postgres.tx import Tx
from durable_core.stores.postgres.waking import Woken
from durable_core.stores.sealing import Sealing

# An address that is owned, or a key that is known: then the transaction finds its run.
_KNOWN: Final = """
    SELECT EXISTS (SELECT 1 FROM moor_address WHERE channel = $1 AND address = $2)
        OR EXISTS (SELECT 1 FROM moor_admission WHERE source = $3 AND key = $4)
"""


class Inbox:
    """What comes in."""

    def __init__(self, database: Database, *, clock: Clock, sealing: Sealing) -> None:
        self._database = database
        self._clock = clock
        self._sealing = sealing

    async def admit(self, admission: Admission) -> Receipt:
        """Accept one input."""
        return (await self._database.shield(self._admit(admission, None))).receipt

    async def begin(self, admission: Admission, request: ClaimRequest) -> Woken:
        """Accept an input, and take the run that it makes or wakes where that is free."""
        return await self._database.shield(self._admit(admission, request))

    async def _admit(self, admission: Admission, request: ClaimRequest | None) -> Woken:
        new = starts.new_of(admission)
        if new is not None and not await self._is_known(admission):
            taken = request if request and new.wake_at is None and rows.is_able(request.abilities, new) else None
            sql, args, key = starts.start(admission, new, self._sealing, self._clock.override(), taken)
            row = await self._database.attempt(sql, *args, label=ADMIT)
            if row is not None:
                self._sealing.keep({new.run_id: key})
                receipt = Receipt(submission_id=admission.submission_id, run_id=new.run_id, seq=rows.FIRST, created=True)
                if taken is not None:
                    claim = rows.begun(admission, new, taken, at=row[1])
                    return Woken(receipt, (claim, loading.beginning(claim)))
                self._database.tell(frozenset((new.run_id,)))
                return Woken(receipt, None)
        return await self._database.transaction(lambda tx: _put(tx, admission, request), label=ADMIT)

    async def _is_known(self, admission: Admission) -> bool:
        """Tell whether there is a run already; for one without an address its key would say so, and it seldom does."""
        target = admission.target
        if not isinstance(target, ToAddress):
            return False

        async def look(tx: Tx) -> bool:
            row = await tx.one(_KNOWN, target.channel, target.address, admission.source, admission.key)
            return row is not None and bool(row[0])

        return await self._database.lookup(look)


async def _put(tx: Tx, admission: Admission, request: ClaimRequest | None) -> Woken:
    woken = await waking.put(tx, admission, request)
    return woken or Woken(await admissions.admit(tx, admission), None)
