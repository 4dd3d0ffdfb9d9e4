"""Keeping: prolonging all that a worker holds while its loop doesn't answer.

What lives here: one operation, run by the writer's thread. What does not: when (durable_core/keeper.py), the renewal on the loop,
which also says what came in (`claims.py`).
"""

from __future__ import annotations

from typing import Final

from durable_core.model import Holdings
from durable_core.stores.sqlite import claims
from durable_core.stores.sqlite.tx import Tx

_LANE: Final = "UPDATE moor_lane SET lease_until = ? WHERE channel = ? AND address = ? AND epoch = ? AND owner = ?"
# until it is decided, `due_at` is when the lease of whoever has it is over
_INTERACTION: Final = """
    UPDATE moor_interaction SET due_at = ?
    WHERE run_id = ? AND interaction_id = ? AND epoch = ? AND owner = ? AND status IS NULL
"""


def prolong(tx: Tx, owner: str, held: Holdings, *, lease_ms: int, lane_lease_ms: int) -> None:
    """Prolong what is still held under its epoch, and say that its worker lives."""
    claims.renew(tx, owner, held.runs, lease_ms=lease_ms)
    until = tx.now + lane_lease_ms
    tx.many(_LANE, [(until, *lane, owner) for lane in held.lanes])
    tx.many(_INTERACTION, [(until, *interaction, owner) for interaction in held.interactions])
