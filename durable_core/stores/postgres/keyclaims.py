"""Claimed keys: claiming, finishing and releasing one, under the fence of the run that asks.

What lives here: statements. What does not: how a key is stored and read (`stores/keyclaims.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.errors import Broken
from durable_core.model import ClaimedKey, KeyRequest
from durable_core.stores import keyclaims
from durable_core.stores.keyclaims import COLUMNS
from durable_core.stores.postgres.runs import fence
from durable_core.stores.postgres.tx import Row, Tx

_RETURNED: Final = ", ".join(f"c.{name}" for name in COLUMNS.split(", "))
# The unique key decides races; the loser waits for the winner's transaction and reads its row.
_CLAIM: Final = f"""
    INSERT INTO moor_claim AS c (key, claim_id, run_id, operation, attempt, at) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (key) DO UPDATE SET at = c.at RETURNING {_RETURNED}
"""
# What is done stays as it was first said, also when the claim was released meanwhile or is another one's by now.
_FINISH: Final = f"""
    INSERT INTO moor_claim AS c (key, claim_id, run_id, operation, attempt, at, done_at, done_run, value)
    VALUES ($1, $2, $3, $4, $5, $6, $6, $3, $7)
    ON CONFLICT (key) DO UPDATE SET
        done_at = coalesce(c.done_at, excluded.done_at), done_run = coalesce(c.done_run, excluded.done_run),
        value = CASE WHEN c.done_at IS NULL THEN excluded.value ELSE c.value END
    RETURNING {_RETURNED}
"""
_RELEASE: Final = "DELETE FROM moor_claim WHERE key = $1 AND claim_id = $2 AND done_at IS NULL"


async def claim(tx: Tx, request: KeyRequest) -> ClaimedKey:
    """Claim a key for a held run, or say how it stands.

    Raises:
        LeaseLost: another worker has the run.
    """
    at = (await fence(tx, request.run_id, request.epoch)).at(await tx.now())
    return await _read(tx, request, await tx.one(_CLAIM, *_first(request, at)))


async def finish(tx: Tx, request: KeyRequest, value: bytes) -> ClaimedKey:
    """Say that what a key stands for is done; the first value stays.

    Raises:
        LeaseLost: another worker has the run.
    """
    at = (await fence(tx, request.run_id, request.epoch)).at(await tx.now())
    sealed = tx.seal(request.run_id, value, keyclaims.value(keyclaims.stored(request.key)))
    return await _read(tx, request, await tx.one(_FINISH, *_first(request, at), sealed))


async def release(tx: Tx, request: KeyRequest) -> None:
    """Let a key be claimed anew, if that claim still stands and isn't done.

    Raises:
        LeaseLost: another worker has the run.
    """
    await fence(tx, request.run_id, request.epoch)
    await tx.run(_RELEASE, keyclaims.stored(request.key), request.claim_id)


def _first(request: KeyRequest, at: int) -> tuple[str | int, ...]:
    name = keyclaims.stored(request.key)
    return (name, request.claim_id, request.run_id, request.operation_id, request.attempt, at)


async def _read(tx: Tx, request: KeyRequest, row: Row | None) -> ClaimedKey:
    if row is None:
        raise Broken("a claimed key has no row")
    done_run, sealed = row[6], row[7]
    if sealed:
        await tx.know(done_run)
    return keyclaims.read(tx, keyclaims.stored(request.key), row, claim_id=request.claim_id)
