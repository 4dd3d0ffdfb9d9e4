"""Claimed keys, the same for every database: how a key is stored, and what is made of its row.

What lives here: hashing and reading. What does not: statements, which belong to a dialect.

No event tells of a claim (S32): it belongs to the namespace and changes nothing that its run is. Its row says all there is, whose
it is included, and outlives the run's content, which an event in the run's list would not.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from durable_core.errors import ContentGone
from durable_core.model import ClaimedKey, ClaimState, KeyFate
from durable_core.stores.rows import Columns, Opener
from durable_core.stores.sealing import Place

COLUMNS: Final = "claim_id, run_id, operation, attempt, at, done_at, done_run, value"
RETURNED: Final = ", ".join(f"c.{name}" for name in COLUMNS.split(", "))
"""They again, of `moor_claim c`."""


def stored(key: str) -> str:
    """Return the form in which a key is stored: a hash, so that a key that can't be guessed can't be read.

    Not a keyed one, as payloads have: that changes with the ring's current key, and the same key would be claimed once more
    after it was replaced, or by two processes of which one knows the new ring already.
    """
    return sha256(b"moorings claim\0" + key.encode()).hexdigest()


def value(name: str) -> Place:
    """Return the place of a done key's value, by the key's stored form; it is sealed for the run that gave it."""
    return Place("moor_claim", name, "value")


def read(opener: Opener, name: str, row: Columns, *, claim_id: str) -> ClaimedKey:
    """Read `COLUMNS` for whoever asks with a claim of its own."""
    found, run_id, operation, attempt, at, done_at, done_run, sealed = row
    state = ClaimState.DONE if done_at is not None else ClaimState.CLAIMED if found == claim_id else ClaimState.PENDING
    opened = None
    if sealed:
        try:
            opened = opener.open(done_run, sealed, value(name))
        except ContentGone:  # it was deleted between two statements
            opened = None
    return ClaimedKey(
        state=state,
        claim_id=found,
        run_id=run_id,
        operation_id=operation,
        attempt=attempt,
        at=at,
        done_at=done_at,
        value=opened,
        value_gone=done_at is not None and opened is None,
    )


def fate(claim: ClaimedKey, *, busy: bool) -> KeyFate:
    """Decide what an operator's word about a claim does; ``busy`` is the run that claimed."""
    if claim.state is ClaimState.DONE:
        return KeyFate.DONE
    return KeyFate.BUSY if busy else KeyFate.SETTLED
