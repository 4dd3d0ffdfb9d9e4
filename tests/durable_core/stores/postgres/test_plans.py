"""How the server goes about a statement while it knows nothing of a table yet.

What lives here: plans on tables that were filled and never analyzed. What does not: what statements return (conformance/).
"""

from __future__ import annotations

import asyncpg

from durable_core.model import Abilities
from durable_core.stores.postgres import claims, workers
from durable_core.stores.postgres.connect import connect

ROWS = 3_000
FILL = f"""
    INSERT INTO moor_run (run_id, name, status, phase, creator, session_key, header, spec_version, deployment, wake_at,
        created_at, last_at)
    SELECT 'ses_' || n, 'helper', 'open', 'waiting', 'api:alice', ''::bytea, repeat('x', 200)::bytea, 1, 'd', 1000000 + n, 1, 1
    FROM generate_series(1, {ROWS}) n
"""
ABLE = (*claims.able(Abilities()), None, None)


async def test_what_is_due_next_is_one_step_into_its_index_before_a_table_was_analyzed(migrated_url: str) -> None:
    db = await connect(migrated_url)
    try:
        await db.execute("ALTER TABLE moor_run SET (autovacuum_enabled = off)")
        await db.execute(FILL)
        plan = await _plan(db)
        assert "Index Scan using moor_run_due" in plan
        assert "Bitmap" not in plan
    finally:
        await db.execute("ALTER TABLE moor_run RESET (autovacuum_enabled)")
        await db.close()


async def _plan(db: asyncpg.Connection) -> str:
    return "\n".join(row[0] for row in await db.fetch(f"EXPLAIN (COSTS OFF) {workers._DUE}", *ABLE))
