"""Workers: who has started, what they can read, what they hold, and when something is due.

What lives here: worker rows, and giving back all that one holds. What does not: single leases (`claims.py`, `outbox.py`), and
who lives (`listen.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.model import Abilities, DueWork, Incarnation
from durable_core.schema import HEAD
from durable_core.stores import rows
from durable_core.stores.postgres import claims, outbox
from durable_core.stores.postgres.sql import now
from durable_core.stores.postgres.tx import Tx

_ENROL: Final = """
    INSERT INTO moor_worker
        (owner, deployment, min_readable, current, host, pid, started_at, heartbeat, code, workflows, revision)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10)
    ON CONFLICT (owner) DO UPDATE SET
        deployment = $2, min_readable = $3, current = $4, host = $5, pid = $6, heartbeat = $7, code = $8, workflows = $9,
        revision = $10, gone_at = NULL
"""
# Whoever has gone is remembered for a while: what it could read is not stranded at once (CORE 10).
_GONE: Final = "UPDATE moor_worker SET gone_at = $2 WHERE owner = $1 AND gone_at IS NULL"
_FORGET: Final = "DELETE FROM moor_worker WHERE gone_at < $1"
# A drain: nothing is charged, the epoch ends what might still be on its way.
_LET_GO: Final = """
    UPDATE moor_run SET owner = NULL, lease_until = NULL, epoch = epoch + 1, interrupted = 0, wake_at = $1
    WHERE run_id IN (SELECT run_id FROM moor_run WHERE owner = $2 ORDER BY run_id FOR UPDATE)
    RETURNING run_id
"""
_INTERACTIONS: Final = """
    UPDATE moor_interaction SET owner = NULL, epoch = epoch + 1, due_at = $1 WHERE status IS NULL AND owner = $2
    RETURNING run_id
"""
# Distinct owners by steps through the index, however many rows each of them holds.
_HOLDERS: Final = """
    (WITH RECURSIVE o AS (
        (SELECT owner FROM {table} WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
        UNION ALL
        SELECT (SELECT owner FROM {table} WHERE owner IS NOT NULL AND owner > o.owner ORDER BY owner LIMIT 1)
        FROM o WHERE o.owner IS NOT NULL
    ) SELECT owner FROM o WHERE owner IS NOT NULL)
"""
# A lease that is over is due too: its owner may be alive and frozen, and whoever claims takes it back.
_DUE: Final = f"""
    SELECT
        least((SELECT wake_at FROM moor_run WHERE {claims.TAKABLE} ORDER BY wake_at LIMIT 1),
              (SELECT min(lease_until) FROM moor_run WHERE owner IS NOT NULL AND lease_until < {now("$8")})),
        least((SELECT due_at FROM moor_lane
               WHERE due_at IS NOT NULL AND owner IS NULL AND ($7::text[] IS NULL OR channel = ANY($7)) ORDER BY due_at LIMIT 1),
              (SELECT min(lease_until) FROM moor_lane WHERE owner IS NOT NULL AND lease_until < {now("$8")})),
        (SELECT due_at FROM moor_interaction WHERE status IS NULL ORDER BY due_at LIMIT 1),
        {now("$8")},
        ARRAY({_HOLDERS.format(table="moor_run")}
              UNION {_HOLDERS.format(table="moor_lane")}
              UNION SELECT owner FROM moor_interaction WHERE status IS NULL AND owner IS NOT NULL
              UNION SELECT owner FROM moor_worker WHERE gone_at IS NULL)
"""


async def enrol(tx: Tx, incarnation: Incarnation) -> None:
    """Say that a worker has started."""
    able = incarnation.abilities
    await tx.run(
        _ENROL,
        incarnation.owner,
        incarnation.deployment,
        able.min_readable,
        able.current,
        incarnation.host,
        incarnation.pid,
        await tx.now(),
        able.code,
        rows.names(able.workflows),
        HEAD,
    )
    await tx.run(_FORGET, await tx.now() - rows.REMEMBERED_MS)


async def withdraw(tx: Tx, owner: str) -> None:
    """Say that a worker has stopped, and release what it holds."""
    tx.changed.update(run_id for (run_id,) in await tx.all(_LET_GO, await tx.now(), owner))
    await _give_back(tx, owner)


async def reap(tx: Tx, owner: str, *, alive: bool) -> int:
    """Take back what a dead incarnation holds and every lease that is over; return the number of runs."""
    lost = await claims.lose_expired(tx)
    if not alive:
        lost += await claims.lose_owned(tx, owner)
        await _give_back(tx, owner)
    await outbox.take_back_expired(tx)
    return lost


async def due(tx: Tx, abilities: Abilities) -> DueWork:
    """Return when something is due next that this worker may take."""
    channels = None if abilities.channels is None else list(abilities.channels)
    row = await tx.one(_DUE, *claims.able(abilities), channels, tx.override)
    if row is None:
        return DueWork(run_at=None, lane_at=None, interaction_at=None, now=await tx.now())
    run_at, lane_at, interaction_at, now, owners = row
    return DueWork(run_at=run_at, lane_at=lane_at, interaction_at=interaction_at, now=now, owners=tuple(owners))


async def _give_back(tx: Tx, owner: str) -> None:
    await outbox.take_back(tx, owner)
    tx.changed.update(run_id for (run_id,) in await tx.all(_INTERACTIONS, await tx.now(), owner))
    await tx.run(_GONE, owner, await tx.now())
    await tx.run(_FORGET, await tx.now() - rows.REMEMBERED_MS)
