"""Who takes part in a session, as statements that join a core transaction.

What lives here: three statements. What does not: the table (tables.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from durable_core.model import Extra

if TYPE_CHECKING:
    from durable_core.store import Store

PARTICIPANT_TABLE: Final = "moor_participant"


def join_session(run_id: str, principal: str, now: int) -> Extra:
    """The statement that makes somebody a participant; joining again changes nothing."""
    sql = (
        "INSERT INTO moor_participant (run_id, principal, joined_at) VALUES (:run_id, :principal, :now) "
        "ON CONFLICT (run_id, principal) DO NOTHING"
    )
    return Extra(sql=sql, parameters={"run_id": run_id, "principal": principal, "now": now})


async def takes_part(store: Store, run_id: str, principal: str) -> bool:
    """Whether somebody takes part in a session."""
    sql = "SELECT 1 FROM moor_participant WHERE run_id = :run_id AND principal = :principal"
    return bool(await store.rows(sql, {"run_id": run_id, "principal": principal}))


async def starter(store: Store, run_id: str) -> str | None:
    """Who was first let into a session, whoever wrote first; nobody yet: None."""
    sql = "SELECT principal FROM moor_participant WHERE run_id = :run_id ORDER BY joined_at, principal LIMIT 1"
    rows = await store.rows(sql, {"run_id": run_id})
    return str(rows[0][0]) if rows else None
