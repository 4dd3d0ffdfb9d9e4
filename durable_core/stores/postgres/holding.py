"""Holding: what a worker writes under its claims, in one statement where that will do.

What lives here: choosing between `plain.py` and `commits.py`, and keeping where held runs stand. What does not: SQL.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from durable_core.clock import Clock
from durable_core.crypto import SessionKey
from durable_core.errors import DurableError, LeaseLost, Unavailable
from durable_core.model import (
    Claim,
    ClaimRequest,
    Committed,
    EventDraft,
    RecordKind,
    Signals,
    StepCommit,
)
from durable_core.stores import history
from durable_core.stores.postgres import claims, commits, loading, plain, taking
from durable_core.stores.postgres.batch import Batches
from durable_core.stores.postgres.database import COMMIT, RECORD, Database
from durable_core.stores.postgres.loading import Position
from durable_core.stores.postgres.runs import fence
from durable_core.stores.postgres.tx import UNOPENABLE, Row, Tx
from durable_core.stores.sealing import Sealing

log = logging.getLogger("moorings.store")

SWEEP_SECONDS: Final = 1.0
"""How often claims look for leases that are over; who died is known at once, this is for those who hang."""


class Holding:
    """The claims of this process."""

    def __init__(self, database: Database, *, clock: Clock, sealing: Sealing) -> None:
        self._database = database
        self._clock = clock
        self._sealing = sealing
        self._positions = plain.Positions()
        self._batches = Batches(database)
        self._swept_at: float | None = None

    async def claim(self, request: ClaimRequest) -> list[Claim]:
        """Take due runs."""
        return await self._database.shield(self._claim(request))

    def begun(self, claim: Claim, place: Position) -> None:
        """Keep where a run stands that was taken with an input."""
        self._positions.put(claim.run_id, place)

    async def refresh(self, run_id: str, epoch: int) -> Claim:
        """Read a held run again."""
        return await self._database.shield(self._refresh(run_id, epoch))

    def let_go(self, run_id: str) -> None:
        """Forget where a run stands that isn't held any more."""
        self._positions.put(run_id, None)

    def begin_anew(self) -> None:
        """Take nothing for granted: the server is another one than before, or was started anew."""
        self._database.doubt(cut=True)
        self._positions.clear()
        self._sealing.drop_all()

    async def commit(self, commit: StepCommit) -> Committed:
        """Finish a step, and tell of it (S32)."""
        if told := history.of_commit(commit):
            commit = replace(commit, events=(*commit.events, *told))
        return await self._database.shield(self._commit(commit))

    async def record(
        self,
        run_id: str,
        epoch: int,
        *,
        step_n: int,
        key: str,
        kind: RecordKind,
        input_hash: str,
        body: bytes,
        drafts: Sequence[EventDraft],
    ) -> Signals:
        """Keep what the pending step has so far."""

        async def work() -> Signals:
            at, session_key = self._standing(run_id, epoch, step_n)
            if at is not None and session_key is not None:
                sql, args = plain.record(
                    run_id,
                    at,
                    session_key,
                    self._clock.override(),
                    name=key,
                    kind=kind,
                    input_hash=input_hash,
                    body=body,
                    drafts=drafts,
                )
                row = await self._database.attempt(sql, *args, label=RECORD)
                if row is not None:
                    return self._appended(run_id, at, drafts, row)
            try:
                signals, place = await self._database.transaction(
                    lambda tx: commits.record(
                        tx,
                        run_id,
                        epoch,
                        step_n=step_n,
                        key=key,
                        kind=kind,
                        input_hash=input_hash,
                        body=body,
                        drafts=drafts,
                    ),
                    label=RECORD,
                )
            except LeaseLost:
                self.let_go(run_id)
                raise
            self._positions.put(run_id, place)
            return signals

        return await self._database.shield(work())

    async def append(self, run_id: str, epoch: int, drafts: Sequence[EventDraft]) -> Signals:
        """Append events of the attempt that runs."""

        async def work() -> Signals:
            at, session_key = self._standing(run_id, epoch, None)
            if at is not None and session_key is not None and drafts:
                sql, args = plain.append(run_id, at, session_key, self._clock.override(), drafts)
                row = await self._database.attempt(sql, *args)
                if row is not None:
                    return self._appended(run_id, at, drafts, row)
            try:
                signals, place = await self._database.transaction(lambda tx: commits.append(tx, run_id, epoch, drafts))
            except LeaseLost:
                self.let_go(run_id)
                raise
            self._positions.put(run_id, place)
            return signals

        return await self._database.shield(work())

    # ── inside ──

    async def _claim(self, request: ClaimRequest) -> list[Claim]:
        sweep = self._is_sweep_due()
        if not sweep and not request.alone:
            sql, args = taking.take(request, self._clock.override())
            found = await self._database.rows_of(sql, *args)
            if found is not None:
                return await self._taken(found)
        claimed = await self._database.transaction(lambda tx: claims.claim(tx, request, sweep=sweep))
        for claim, place in claimed:
            self._positions.put(claim.run_id, place)
        return [claim for claim, _ in claimed]

    async def _taken(self, found: list[Row]) -> list[Claim]:
        """Return the claims of what one statement took."""
        taken = []
        for run_id, epoch, at, got in taking.read(self._sealing, found):
            if isinstance(got, DurableError):
                await self._leave(run_id, epoch, got, at)
            elif got is not None:
                claim, place = got
                self._positions.put(run_id, place)
                taken.append(claim)
            else:
                taken += await self._read_again(run_id, epoch, at)
        return taken

    async def _read_again(self, run_id: str, epoch: int, at: int) -> list[Claim]:
        """Read a run that was taken with what it brings along; none where that can't be."""
        try:
            return [await self._refresh(run_id, epoch)]
        except LeaseLost:
            return []
        except UNOPENABLE as error:
            await self._leave(run_id, epoch, error, at)
        except Unavailable as error:  # as if the answer to the claim had been lost: others are not to wait for it
            log.warning("%s was taken and can't be read; its lease has to be over first: %s", run_id, error)
        return []

    async def _leave(self, run_id: str, epoch: int, error: DurableError, at: int) -> None:
        async def work(tx: Tx) -> None:
            await fence(tx, run_id, epoch)
            await claims.leave(tx, run_id, error, at)

        with suppress(LeaseLost):
            await self._database.transaction(work)

    async def _refresh(self, run_id: str, epoch: int) -> Claim:
        claim, place = await self._database.lookup(lambda tx: claims.refresh(tx, run_id, epoch), whole=True)
        self._positions.put(run_id, place)
        return claim

    async def _commit(self, commit: StepCommit) -> Committed:
        run_id = commit.run_id
        at, session_key = self._standing(run_id, commit.epoch, commit.step_n)
        if at is not None and session_key is not None and plain.is_plain(commit):
            sql, args = plain.commit(commit, at, session_key, self._clock.override())
            if plain.is_uniform(commit):
                row = await self._batches.commit(sql, args, commit.consumed)
            else:
                row = await self._database.attempt(sql, *args, label=COMMIT)
            if row is not None:
                return await self._finished(commit, at, row)
        try:
            committed, place = await self._database.transaction(lambda tx: commits.commit(tx, commit), label=COMMIT)
        except LeaseLost:
            self.let_go(run_id)
            raise
        self._positions.put(run_id, place)
        return committed

    async def _finished(self, commit: StepCommit, before: Position, row: Row) -> Committed:
        """Say what a step in one statement came to."""
        at, now, inbox_seq, cancel_seq = row[:4]
        run_id, seen = commit.run_id, commit.seen
        kept = not (commit.release or commit.end)
        if not kept:
            self.let_go(run_id)
        else:
            after = plain.moved(before, commit.events)
            self._positions.put(run_id, after._replace(step_no=commit.last_n + 1, attempt=1, step_started_at=at))
        self._database.tell(frozenset((run_id,)))
        more = kept and inbox_seq > seen
        return Committed(
            step_no=commit.last_n + 1,
            signals=Signals(inbox_seq=inbox_seq, cancel_pending=cancel_seq > 0),
            commands=await self._database.lookup(lambda tx: loading.commands_after(tx, run_id, seen)) if more else (),
            now=now,
        )

    def _is_sweep_due(self) -> bool:
        """Tell whether to look for leases that are over: now and then, or always where somebody sets the clock."""
        at = asyncio.get_running_loop().time()
        if self._clock.override() is None and self._swept_at is not None and at < self._swept_at + SWEEP_SECONDS:
            return False
        self._swept_at = at
        return True

    def _appended(self, run_id: str, before: Position, drafts: Sequence[EventDraft], row: Row) -> Signals:
        self._positions.put(run_id, plain.moved(before, drafts))
        if drafts:
            self._database.tell(frozenset((run_id,)))
        return Signals(inbox_seq=row[0], cancel_pending=row[1] > 0)

    def _standing(self, run_id: str, epoch: int, step_n: int | None) -> tuple[Position | None, SessionKey | None]:
        place = self._positions.get(run_id, epoch, step_n)
        return place, None if place is None else self._sealing.cached(run_id)
