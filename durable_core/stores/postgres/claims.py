"""Claims: taking runs, keeping them, giving them back, and taking them from the dead.

What lives here: everything about a run's lease. What does not: what a worker writes under it (`commits.py`), and what a claim
brings along (`loading.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from durable_core.errors import DurableError, LeaseLost
from durable_core.model import ALONE_AFTER_CRASHES, Abilities, Claim, ClaimRequest, EventDraft, Signals
from durable_core.stores import history, rows
from durable_core.stores.postgres import events, loading
from durable_core.stores.postgres.runs import fence, released_wake
from durable_core.stores.postgres.sql import now, storable
from durable_core.stores.postgres.tx import UNOPENABLE_MS, Tx

log = logging.getLogger("moorings.store")

TAKABLE: Final = """
    wake_at IS NOT NULL AND owner IS NULL AND status = 'open' AND spec_version BETWEEN $1 AND $2
    AND CASE kind WHEN 'session' THEN $3::boolean ELSE name = ANY($4::text[]) END
    AND (stranded_code IS NULL OR stranded_code <> $5) AND last_at >= $6::bigint
"""
"""What one worker may take, once it is due (CORE 10); the parameters are `able`'s."""
_RECOVERING: Final = "(interrupted = 1 AND last_at < wake_at)"
_SOME: Final = f"""
    SELECT run_id AS id, wake_at AS due_at, crashes AS crashed FROM moor_run
    WHERE {TAKABLE} AND wake_at <= ({{until}}) AND {{which}}
    ORDER BY wake_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
"""
_UNTIL: Final = "SELECT CASE WHEN count(*) < {limit}::bigint THEN (SELECT now FROM t) ELSE max(due_at) END FROM others"


def due(*, time: str, limit: str, recovering: str, crashes: str) -> str:
    """Return the parts of a statement that lock what is due: `t` has the time, `due` the runs' `id`, `due_at` and `crashed`.

    Those that lost their worker and got nothing from anybody since are looked for apart, so that others come past them (S49).
    """
    others = _SOME.format(until="SELECT now FROM t", which=f"NOT {_RECOVERING} AND {crashes}", limit=limit)
    # none is locked beyond the room there is: others take the rest meanwhile
    most = f"least({recovering}::bigint, {limit}::bigint)"
    lost = _SOME.format(until=_UNTIL.format(limit=limit), which=f"{_RECOVERING} AND {crashes}", limit=most)
    # the time as a scalar subquery serves as a bound of the index scan
    return f"""
    t AS MATERIALIZED (SELECT {now(time)} AS now),
    others AS MATERIALIZED ({others}), lost AS MATERIALIZED ({lost}),
    due AS MATERIALIZED (
        SELECT * FROM (SELECT * FROM others UNION ALL SELECT * FROM lost) x ORDER BY due_at LIMIT {limit}
    )"""


# The time comes along, due runs or none.
_DUE: Final = f"""
    WITH {due(time="$10", limit="$9", recovering="$11", crashes="($8::boolean OR crashes < $7::bigint)")}
    SELECT t.now, due.id, due.crashed >= $7::bigint FROM t LEFT JOIN due ON true ORDER BY due.due_at
"""
_TAKE: Final = f"""
    UPDATE moor_run SET
        owner = $2, lease_until = $3, epoch = epoch + 1, attempt = attempt + 1, wake_at = NULL,
        step_started_at = coalesce(step_started_at, greatest(last_at, $4::bigint)), progressed = 0
    WHERE run_id = ANY($1::text[])
    RETURNING {rows.CLAIM}, {loading.ALONG}
"""
# The one who held it did not give it back: charged, unless it got something done (CORE 15); the new epoch fences it. Rows are
# locked in one order; with SKIP LOCKED whoever holds one is just giving it back, or taking it.
_LOSE: Final = """
    UPDATE moor_run SET
        owner = NULL, lease_until = NULL, epoch = epoch + 1, interrupted = 1, wake_at = $1,
        charged = charged + 1 - progressed, crashes = crashes + 1 - progressed, last_error = {error}
    WHERE run_id IN (SELECT run_id FROM moor_run WHERE owner IS NOT NULL AND {which} ORDER BY run_id FOR UPDATE {skip})
    RETURNING run_id
"""
_LOSE_EXPIRED: Final = _LOSE.format(error="'lease expired'", which="lease_until < $1", skip="SKIP LOCKED")
_LOSE_OWNED: Final = _LOSE.format(error="'worker died'", which="owner = $2", skip="")
_HELD: Final = f"""
    SELECT {rows.CLAIM}, {loading.ALONG}, {now("$3")} FROM moor_run
    WHERE run_id = $1 AND epoch = $2 AND owner IS NOT NULL AND status = 'open'
"""
_RENEW: Final = f"""
    WITH beat AS (UPDATE moor_worker SET heartbeat = {now("$5")} WHERE owner = $3),
    held AS (
        SELECT r.run_id FROM moor_run r JOIN unnest($1::text[], $2::bigint[]) AS x (run_id, epoch)
            ON r.run_id = x.run_id AND r.epoch = x.epoch
        WHERE r.owner = $3 ORDER BY r.run_id FOR UPDATE OF r
    )
    UPDATE moor_run r SET lease_until = {now("$5")} + $4::bigint FROM held WHERE r.run_id = held.run_id
    RETURNING r.run_id, r.inbox_seq, r.cancel_seq
"""
_RELEASE: Final = f"""
    UPDATE moor_run SET
        owner = NULL, lease_until = NULL, wake_at = {released_wake(seen="$2", now="$3", timer_at="$4")},
        attempt = attempt - $5::bigint, interrupted = interrupted * $5::bigint,
        step_started_at = CASE WHEN attempt > $5::bigint THEN step_started_at END
    WHERE run_id = $1
"""
_CHARGE: Final = f"""
    UPDATE moor_run SET
        owner = NULL, lease_until = NULL, wake_at = {released_wake(seen="$2", now="$3", timer_at="$4")},
        interrupted = 0, charged = charged + 1, last_error = $5, retry_at = $4
    WHERE run_id = $1
"""
_STRAND: Final = """
    UPDATE moor_run SET
        owner = NULL, lease_until = NULL, wake_at = $2, attempt = attempt - 1, stranded = $3, stranded_code = $4
    WHERE run_id = $1
"""
_UNSTRAND: Final = f"""
    UPDATE moor_run SET stranded = NULL, stranded_code = NULL, wake_at = least(wake_at, {now("$2")})
    WHERE run_id = $1 AND stranded IS NOT NULL AND status = 'open'
"""
# A run that was taken and can't be opened: as if it hadn't been taken, but for its epoch, and not due for a while.
_LEAVE: Final = """
    UPDATE moor_run SET
        owner = NULL, lease_until = NULL, wake_at = $2, last_error = $3, attempt = attempt - 1,
        step_started_at = CASE WHEN attempt > 1 THEN step_started_at END
    WHERE run_id = $1
"""


def able(abilities: Abilities) -> tuple[Any, ...]:
    """Return the parameters of `TAKABLE`."""
    workflows = list(abilities.workflows)
    return abilities.min_readable, abilities.current, abilities.sessions, workflows, abilities.code, abilities.since


async def claim(tx: Tx, request: ClaimRequest, *, sweep: bool) -> list[tuple[Claim, loading.Position]]:
    """Take due runs, the longest due first; with `sweep`, those whose lease is over too.

    A run that crashed its workers is taken by itself or not at all.
    """
    if sweep:
        await lose_expired(tx)
    able_to, wanted_most = able(request.abilities), (request.limit, tx.override, request.recovering)
    found = await tx.all(_DUE, *able_to, ALONE_AFTER_CRASHES, request.alone, *wanted_most)
    tx.note_now(found[0][0])
    offered = [(run_id, crasher) for _, run_id, crasher in found if run_id is not None]
    if offered and offered[0][1]:
        offered = offered[:1]
    wanted = [run_id for run_id, crasher in offered if not crasher or len(offered) == 1]
    if not wanted:
        return []
    at = await tx.now()
    taken = {row[0]: row for row in await tx.all(_TAKE, wanted, request.owner, at + request.lease_ms, at)}
    claims = []
    for run_id, got in zip(wanted, await loading.load(tx, [taken[run_id] for run_id in wanted]), strict=True):
        if isinstance(got, DurableError):
            await leave(tx, run_id, got, at)
        else:
            claims.append(got)
    return claims


async def leave(tx: Tx, run_id: str, error: DurableError, at: int) -> None:
    """Leave a run alone for a while that was taken and can't be opened."""
    log.error("%s can't be taken, and is left alone for a while: %s", run_id, error)
    await tx.run(_LEAVE, run_id, at + UNOPENABLE_MS, storable(str(error)))


async def lose_expired(tx: Tx) -> int:
    """Take back runs whose lease is over, whoever holds them."""
    return _lost(tx, await tx.all(_LOSE_EXPIRED, await tx.now()))


async def lose_owned(tx: Tx, owner: str) -> int:
    """Take back what a dead incarnation holds."""
    return _lost(tx, await tx.all(_LOSE_OWNED, await tx.now(), owner))


async def refresh(tx: Tx, run_id: str, epoch: int) -> tuple[Claim, loading.Position]:
    """Read a held run again.

    Raises:
        LeaseLost: it isn't held by this epoch.
    """
    row = await tx.one(_HELD, run_id, epoch, tx.override)
    if row is None:
        raise LeaseLost(run_id, epoch)
    tx.note_now(row[loading.WIDTH])
    (got,) = await loading.load(tx, [row])
    if isinstance(got, DurableError):
        raise got
    return got


async def renew(tx: Tx, owner: str, leases: Sequence[tuple[str, int]], *, lease_ms: int) -> dict[str, Signals]:
    """Prolong leases; those that are lost are missing in the answer."""
    ids, epochs = [run_id for run_id, _ in leases], [epoch for _, epoch in leases]
    renewed = await tx.all(_RENEW, ids, epochs, owner, lease_ms, tx.override)
    return {run_id: Signals(inbox_seq=inbox, cancel_pending=cancel > 0) for run_id, inbox, cancel in renewed}


async def release(tx: Tx, run_id: str, epoch: int, *, timer_at: int | None, seen: int, unused: bool) -> None:
    """Give a run back without a step; not charged."""
    await fence(tx, run_id, epoch)
    await tx.run(_RELEASE, run_id, seen, await tx.now(), timer_at, int(unused))
    tx.changed.add(run_id)


async def charge(tx: Tx, run_id: str, epoch: int, *, error: str, retry_at: int, seen: int, drafts: Sequence[EventDraft]) -> None:
    """Give a run back after a failed attempt that counts."""
    await fence(tx, run_id, epoch)
    await events.append(tx, run_id, drafts)
    await tx.run(_CHARGE, run_id, seen, await tx.now(), retry_at, storable(error))
    tx.changed.add(run_id)


async def strand(tx: Tx, run_id: str, epoch: int, *, reason: str, code: str) -> None:
    """Give a run back that this code can't go on with; other code may take it at once."""
    held = await fence(tx, run_id, epoch)
    await events.append(tx, run_id, (history.of_strand(reason, held.step_no),))
    await tx.run(_STRAND, run_id, await tx.now(), storable(reason), code)


async def unstrand(tx: Tx, run_id: str) -> bool:
    """Offer a stranded run to all again; False when it wasn't."""
    found = await tx.run(_UNSTRAND, run_id, tx.override) > 0
    if found:
        await events.append(tx, run_id, (history.of_unstrand(),))
    return found


def _lost(tx: Tx, lost: Sequence[Any]) -> int:
    tx.changed.update(row[0] for row in lost)
    return len(lost)
