"""Claimed keys: claiming, finishing and releasing one, under the fence of the run that asks; settling one from outside.

What lives here: statements. What does not: how a key is stored and read (`stores/keyclaims.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.errors import Broken, ContentGone, NotFound
from durable_core.model import ClaimedKey, KeyFate, KeyRequest, KeySettled, KeySettlement
from durable_core.stores import auditing, keyclaims
from durable_core.stores.keyclaims import COLUMNS, RETURNED
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
_FOUND: Final = f"""
    SELECT c.key, r.creator, r.session_key, r.owner IS NOT NULL AND r.lease_until > :now, max(r.last_at, :now), {RETURNED}
    FROM moor_claim c JOIN moor_run r ON r.run_id = c.run_id WHERE c.claim_id = :claim_id
"""
_DONE: Final = (
    "UPDATE moor_claim SET done_at = ?, done_run = run_id, value = ? WHERE key = ? AND claim_id = ? AND done_at IS NULL"
)
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


def settle(tx: Tx, said: KeySettlement) -> KeySettled:
    """Say from outside what became of a pending claim.

    Raises:
        NotFound: nothing is claimed by that id.
        ContentGone: the value can't be kept, since the run's content was deleted.
    """
    row = tx.one(_FOUND, {"claim_id": said.claim_id, "now": tx.now})
    if row is None:
        raise NotFound("claim", said.claim_id)
    name, creator, wrapped, busy, at, *columns = row
    claim = keyclaims.read(tx, name, tuple(columns), claim_id="")
    fate = keyclaims.fate(claim, busy=bool(busy))
    if fate is KeyFate.SETTLED:
        if said.done:
            if said.value is not None and not wrapped:
                raise ContentGone(claim.run_id)
            tx.run(_DONE, (at, tx.seal_optional(claim.run_id, said.value, keyclaims.value(name)), name, said.claim_id))
        else:
            tx.run(_RELEASE, (name, said.claim_id))
        tx.entries.append(auditing.of_claim(claim, name, said, creator=creator, at=at))
    return KeySettled(fate=fate, claim=claim)


def _first(request: KeyRequest, at: int) -> tuple[str | int, ...]:
    name = keyclaims.stored(request.key)
    return (name, request.claim_id, request.run_id, request.operation_id, request.attempt, at)


def _read(tx: Tx, request: KeyRequest, row: Row | None) -> ClaimedKey:
    if row is None:
        raise Broken("a claimed key has no row")
    return keyclaims.read(tx, keyclaims.stored(request.key), row, claim_id=request.claim_id)
