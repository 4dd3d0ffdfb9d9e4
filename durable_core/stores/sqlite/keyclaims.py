"""Claimed keys: claiming, finishing and releasing one, under the fence of the run that asks.

What lives here: statements. What does not: how a key is stored and read (`stores/keyclaims.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.errors import Broken
from durable_core.model import ClaimedKey, KeyRequest
from durable_core.stores import keyclaims
from durable_core.stores.keyclaims import COLUMNS
from durable_core.stores.sqlite.runs import fence
from durable_core.stores.sqlite.tx import Row, Tx

# The unique key decides races; the loser reads the winner's row.
_CLAIM: Final = f"""
    INSERT INTO moor_claim (key, claim_id, run_id, operation, attempt, at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET at = at RETURNING {COLUMNS}
"""
# What is done stays as it was first said, also when the claim was released meanwhile or is another one's by now.
_FINISH: Final = f"""
    INSERT INTO moor_claim (key, claim_id, run_id, operation, attempt, at, done_at, done_run, value)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET
        done_at = coalesce(done_at, excluded.done_at), done_run = coalesce(done_run, excluded.done_run),
        value = CASE WHEN done_at IS NULL THEN excluded.value ELSE value END
    RETURNING {COLUMNS}
"""
_RELEASE: Final = "DELETE FROM moor_claim WHERE key = ? AND claim_id = ? AND done_at IS NULL"


def claim(tx: Tx, request: KeyRequest) -> ClaimedKey:
    """Claim a key for a held run, or say how it stands.

    Raises:
        LeaseLost: another worker has the run.
    """
    at = fence(tx, request.run_id, request.epoch).at(tx.now)
    return _read(tx, request, tx.one(_CLAIM, _first(request, at)))


def finish(tx: Tx, request: KeyRequest, value: bytes) -> ClaimedKey:
    """Say that what a key stands for is done; the first value stays.

    Raises:
        LeaseLost: another worker has the run.
    """
    at = fence(tx, request.run_id, request.epoch).at(tx.now)
    sealed = tx.seal(request.run_id, value, keyclaims.value(keyclaims.stored(request.key)))
    return _read(tx, request, tx.one(_FINISH, (*_first(request, at), at, request.run_id, sealed)))


def release(tx: Tx, request: KeyRequest) -> None:
    """Let a key be claimed anew, if that claim still stands and isn't done.

    Raises:
        LeaseLost: another worker has the run.
    """
    fence(tx, request.run_id, request.epoch)
    tx.run(_RELEASE, (keyclaims.stored(request.key), request.claim_id))


def _first(request: KeyRequest, at: int) -> tuple[str | int, ...]:
    name = keyclaims.stored(request.key)
    return (name, request.claim_id, request.run_id, request.operation_id, request.attempt, at)


def _read(tx: Tx, request: KeyRequest, row: Row | None) -> ClaimedKey:
    if row is None:
        raise Broken("a claimed key has no row")
    return keyclaims.read(tx, keyclaims.stored(request.key), row, claim_id=request.claim_id)
