"""Keeping: prolonging all that a worker holds while its loop doesn't answer.

What lives here: statements, and the connection that another thread makes for them. What does not: when (durable_core/keeper.py),
the renewal on the loop, which also says what came in (`claims.py`).

The loop's connections are of no use: their sockets are the loop's. One is opened for each time, on a loop of the calling thread,
and closed after it. It is needed every few seconds at most, while something is wrong anyway; one kept for that would be idle for
months, take a place on the server from every process, and perhaps be dead when it is needed.

A transaction that the loop has begun can't end while it is silent, and keeps the rows that it has locked. Nobody else can take
those, but the rest must not wait for them. So what can be had is prolonged at first, and then what is missing is waited for:
whoever waits for a row has it before those who only look again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from durable_core.clock import Clock
from durable_core.errors import Unavailable
from durable_core.model import Holdings
from durable_core.stores.postgres.connect import FAULTS, Settings, connect, sorted_error
from durable_core.stores.postgres.sql import now
from durable_core.stores.postgres.tx import Tx
from durable_core.stores.sealing import Sealing

T = TypeVar("T")

_CLOSE_SECONDS: Final = 1.0
# What a crash of the server may undo needn't wait for the disk.
_BEGIN: Final = "BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = {wait_ms}"

_RUNS: Final = f"""
    WITH held AS (
        SELECT r.run_id FROM moor_run r JOIN unnest($1::text[], $2::bigint[]) AS x (run_id, epoch)
            ON r.run_id = x.run_id AND r.epoch = x.epoch
        WHERE r.owner = $3 ORDER BY r.run_id FOR UPDATE OF r {{busy}}
    )
    UPDATE moor_run r SET lease_until = {now("$5")} + $4::bigint FROM held WHERE r.run_id = held.run_id RETURNING r.run_id
"""
_LANES: Final = f"""
    WITH held AS (
        SELECT l.channel, l.address FROM moor_lane l
        JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS x (channel, address, epoch)
            ON l.channel = x.channel AND l.address = x.address AND l.epoch = x.epoch
        WHERE l.owner = $4 ORDER BY l.channel, l.address FOR UPDATE OF l SKIP LOCKED
    )
    UPDATE moor_lane l SET lease_until = {now("$6")} + $5::bigint
    FROM held WHERE l.channel = held.channel AND l.address = held.address
"""
# until it is decided, `due_at` is when the lease of whoever has it is over
_INTERACTIONS: Final = f"""
    WITH held AS (
        SELECT i.run_id, i.interaction_id FROM moor_interaction i
        JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS x (run_id, interaction_id, epoch)
            ON i.run_id = x.run_id AND i.interaction_id = x.interaction_id AND i.epoch = x.epoch
        WHERE i.owner = $4 AND i.status IS NULL ORDER BY i.run_id, i.interaction_id FOR UPDATE OF i SKIP LOCKED
    )
    UPDATE moor_interaction i SET due_at = {now("$6")} + $5::bigint
    FROM held WHERE i.run_id = held.run_id AND i.interaction_id = held.interaction_id
"""
_BEAT: Final = f"""
    UPDATE moor_worker SET heartbeat = {now("$2")}
    WHERE owner IN (SELECT owner FROM moor_worker WHERE owner = ANY($1::text[]) ORDER BY owner FOR UPDATE SKIP LOCKED)
"""


class Beside:
    """Transactions for a thread that has no loop; each makes a connection of its own."""

    def __init__(self, settings: Settings, *, clock: Clock, sealing: Sealing, patience: float) -> None:
        self._settings = settings
        self._clock = clock
        self._sealing = sealing
        self._patience = patience

    def run(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """Do something in a transaction; it waits for a lock for a quarter of the patience.

        Raises:
            Unavailable, Broken: the database's own faults; Unavailable also where all of it takes longer than the patience.
        """
        return asyncio.run(self._within(work))

    async def _within(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._patience):
                return await self._connected(work)
        except TimeoutError as error:
            raise Unavailable(f"no answer within {self._patience:g} s") from error
        except FAULTS as error:
            raise sorted_error(error) from error

    async def _connected(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        settings = self._settings
        connection = await connect(settings.url, pooler=settings.pooler)
        try:
            await connection.execute(_BEGIN.format(wait_ms=max(1, int(self._patience * 1000 / 4))))
            result = await work(Tx(connection, clock=self._clock, sealing=self._sealing, namespace=settings.namespace))
            await connection.execute("COMMIT")
        except BaseException:
            connection.terminate()
            raise
        with suppress(*FAULTS):
            await connection.close(timeout=_CLOSE_SECONDS)
        return result


def prolong(beside: Beside, owner: str, held: Holdings, *, lease_ms: int, lane_lease_ms: int) -> None:
    """Prolong what is still held under its epoch, and say that its worker lives."""

    async def at_once(tx: Tx) -> set[str]:
        renewed = {
            row[0] for row in await tx.all(_RUNS.format(busy="SKIP LOCKED"), *_runs(held.runs), owner, lease_ms, tx.override)
        }
        await tx.run(_LANES, *_columns(held.lanes), owner, lane_lease_ms, tx.override)
        await tx.run(_INTERACTIONS, *_columns(held.interactions), owner, lane_lease_ms, tx.override)
        await tx.run(_BEAT, [owner], tx.override)
        return renewed

    async def waiting(tx: Tx) -> None:
        await tx.run(_RUNS.format(busy=""), *_runs(left), owner, lease_ms, tx.override)

    renewed = beside.run(at_once)
    left = [one for one in held.runs if one[0] not in renewed]
    if left:
        beside.run(waiting)


def beat(beside: Beside, owners: Sequence[str]) -> None:
    """Say that these workers live."""
    beside.run(lambda tx: tx.run(_BEAT, list(owners), tx.override))


def _runs(held: Sequence[tuple[str, int]]) -> tuple[list[str], list[int]]:
    return [run_id for run_id, _ in held], [epoch for _, epoch in held]


def _columns(held: Sequence[tuple[str, str, int]]) -> tuple[list[str], list[str], list[int]]:
    return [one for one, _, _ in held], [two for _, two, _ in held], [epoch for _, _, epoch in held]
