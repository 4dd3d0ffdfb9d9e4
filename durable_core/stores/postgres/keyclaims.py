"""Claimed keys: claiming, finishing and releasing one, under the fence of the run that asks; settling one from outside.

What lives here: statements. What does not: how a key is stored and read (`stores/keyclaims.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.errors import Broken, ContentGone, NotFound
from durable_core.model import ClaimedKey, KeyFate, KeyRequest, KeySettled, KeySettlement
from durable_core.stores import auditing, keyclaims
from durable_core.stores.keyclaims import RETURNED
from durable_core.stores.postgres.runs import fence
from durable_core.stores.postgres.sql import now
from durable_core.stores.postgres.tx import Row, Tx

# The unique key decides races; the loser waits for the winner's transaction and reads its row.
_CLAIM: Final = f"""
    INSERT INTO moor_claim AS c (key, claim_id, run_id, operation, attempt, at) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (key) DO UPDATE SET at = c.at RETURNING {RETURNED}
"""
# What is done stays as it was first said, also when the claim was released meanwhile or is another one's by now.
_FINISH: Final = f"""
    INSERT INTO moor_claim AS c (key, claim_id, run_id, operation, attempt, at, done_at, done_run, value)
    VALUES ($1, $2, $3, $4, $5, $6, $6, $3, $7)
    ON CONFLICT (key) DO UPDATE SET
        done_at = coalesce(c.done_at, excluded.done_at), done_run = coalesce(c.done_run, excluded.done_run),
        value = CASE WHEN c.done_at IS NULL THEN excluded.value ELSE c.value END
    RETURNING {RETURNED}
"""
_WHOSE: Final = "SELECT run_id FROM moor_claim WHERE claim_id = $1"
_RUN: Final = f"""
    SELECT creator, session_key, owner IS NOT NULL AND lease_until > {now("$2")}, greatest(last_at, {now("$2")})
    FROM moor_run WHERE run_id = $1 FOR UPDATE
"""
_FOUND: Final = f"SELECT c.key, {RETURNED} FROM moor_claim c WHERE c.claim_id = $1 FOR UPDATE"
_DONE: Final = "UPDATE moor_claim SET done_at = $1, done_run = run_id, value = $2 WHERE key = $3"
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


async def settle(tx: Tx, said: KeySettlement) -> KeySettled:
    """Say from outside what became of a pending claim. The run is locked first (CORE 4): nobody takes it meanwhile.

    Raises:
        NotFound: nothing is claimed by that id.
        ContentGone: the value can't be kept, since the run's content was deleted.
    """
    whose = await tx.one(_WHOSE, said.claim_id)
    run = None if whose is None else await tx.one(_RUN, whose[0], tx.override)
    row = None if run is None else await tx.one(_FOUND, said.claim_id)
    if whose is None or run is None or row is None:
        raise NotFound("claim", said.claim_id)
    creator, wrapped, busy, at = run
    tx.note_key(whose[0], wrapped)
    name, *columns = row
    if columns[-1]:
        await tx.know(columns[-2])
    claim = keyclaims.read(tx, name, columns, claim_id="")
    fate = keyclaims.fate(claim, busy=busy)
    if fate is KeyFate.SETTLED:
        if said.done:
            if said.value is not None and not wrapped:
                raise ContentGone(claim.run_id)
            await tx.run(_DONE, at, tx.seal_optional(claim.run_id, said.value, keyclaims.value(name)), name)
        else:
            await tx.run(_RELEASE, name, said.claim_id)
        tx.entries.append(auditing.of_claim(claim, name, said, creator=creator, at=at))
    return KeySettled(fate=fate, claim=claim)


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
