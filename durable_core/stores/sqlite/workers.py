"""Workers: who has started, what they can read, what they hold, and when something is due.

What lives here: worker rows, and giving back all that one holds. What does not: single leases (`claims.py`, `outbox.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.clock import SQLITE_NOW
from durable_core.model import Abilities, DueWork, Incarnation
from durable_core.schema import HEAD
from durable_core.stores import rows
from durable_core.stores.sqlite import claims, outbox
from durable_core.stores.sqlite.tx import Tx

_ENROL: Final = """
    INSERT INTO moor_worker
        (owner, deployment, min_readable, current, host, pid, started_at, heartbeat, code, workflows, revision)
    VALUES (:owner, :deployment, :min_readable, :current, :host, :pid, :now, :now, :code, :workflows, :revision)
    ON CONFLICT (owner) DO UPDATE SET
        deployment = :deployment, min_readable = :min_readable, current = :current, host = :host, pid = :pid, heartbeat = :now,
        code = :code, workflows = :workflows, revision = :revision, gone_at = NULL
"""
# A drain: nothing is charged, the epoch ends what might still be on its way.
_LET_GO: Final = """
    UPDATE moor_run SET owner = NULL, lease_until = NULL, epoch = epoch + 1, interrupted = 0, wake_at = :now
    WHERE owner = :owner RETURNING run_id
"""
_INTERACTIONS: Final = """
    UPDATE moor_interaction SET owner = NULL, epoch = epoch + 1, due_at = :now WHERE status IS NULL AND owner = :owner
    RETURNING run_id
"""
# Whoever has gone is remembered for a while: what it could read is not stranded at once (CORE 10).
_GONE: Final = "UPDATE moor_worker SET gone_at = ? WHERE owner = ? AND gone_at IS NULL"
_FORGET: Final = "DELETE FROM moor_worker WHERE gone_at < ?"
# A lease that is over is due too: its owner may be alive and frozen, and whoever claims takes it back.
_DUE: Final = f"""
    SELECT
        (SELECT wake_at FROM moor_run WHERE {claims.TAKABLE} ORDER BY wake_at LIMIT 1),
        (SELECT min(lease_until) FROM moor_run WHERE owner IS NOT NULL AND lease_until < {SQLITE_NOW}),
        (SELECT due_at FROM moor_lane
         WHERE due_at IS NOT NULL AND owner IS NULL AND {outbox.OF_CHANNELS} ORDER BY due_at LIMIT 1),
        (SELECT min(lease_until) FROM moor_lane WHERE owner IS NOT NULL AND lease_until < {SQLITE_NOW}),
        (SELECT due_at FROM moor_interaction WHERE status IS NULL ORDER BY due_at LIMIT 1),
        {SQLITE_NOW}
"""
_OWNERS: Final = """
    SELECT owner FROM moor_run WHERE owner IS NOT NULL
    UNION SELECT owner FROM moor_lane WHERE owner IS NOT NULL
    UNION SELECT owner FROM moor_interaction WHERE status IS NULL AND owner IS NOT NULL
    UNION SELECT owner FROM moor_worker WHERE gone_at IS NULL
"""


def enrol(tx: Tx, incarnation: Incarnation) -> None:
    """Say that a worker has started."""
    tx.run(
        _ENROL,
        {
            "owner": incarnation.owner,
            "deployment": incarnation.deployment,
            **rows.abilities(incarnation.abilities),
            "host": incarnation.host,
            "pid": incarnation.pid,
            "now": tx.now,
            "revision": HEAD,
        },
    )
    tx.run(_FORGET, (tx.now - rows.REMEMBERED_MS,))


def withdraw(tx: Tx, owner: str) -> None:
    """Say that a worker has stopped, and release what it holds."""
    tx.changed.update(run_id for (run_id,) in tx.all(_LET_GO, {"now": tx.now, "owner": owner}))
    _give_back(tx, owner)


def reap(tx: Tx, owner: str, *, alive: bool) -> int:
    """Take back what a dead incarnation holds and every lease that is over; return the number of runs."""
    lost = claims.lose_expired(tx)
    if not alive:
        lost += claims.lose_owned(tx, owner)
        _give_back(tx, owner)
    outbox.take_back_expired(tx)
    return lost


def due(tx: Tx, abilities: Abilities) -> DueWork:
    """Return when something is due next that this worker may take."""
    parameters = {"now": tx.override, **rows.abilities(abilities), **outbox.of_channels(abilities.channels)}
    ((run_at, run_over, lane_at, lane_over, interaction_at, now),) = tx.all(_DUE, parameters)
    return DueWork(
        run_at=_earlier(run_at, run_over),
        lane_at=_earlier(lane_at, lane_over),
        interaction_at=interaction_at,
        now=now,
        owners=tuple(row[0] for row in tx.all(_OWNERS)),
    )


def _give_back(tx: Tx, owner: str) -> None:
    outbox.take_back(tx, "owner = :owner", {"owner": owner})
    tx.changed.update(run_id for (run_id,) in tx.all(_INTERACTIONS, {"now": tx.now, "owner": owner}))
    tx.run(_GONE, (tx.now, owner))
    tx.run(_FORGET, (tx.now - rows.REMEMBERED_MS,))


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((at for at in (one, other) if at is not None), default=None)
