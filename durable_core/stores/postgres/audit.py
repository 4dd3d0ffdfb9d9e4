"""The audit: entries behind one another, for the whole store.

What lives here: writing and reading them, and the lock under which they are numbered. What does not: what they say
(`stores/auditing.py`), their hashes (`audit.py` of durable_core).

The first entry is the lock of the chain: whoever adds to it holds that row until the commit, and reads the last one only then. It
is taken last of all in a transaction (CORE 4), so nobody who holds it waits for anything more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from durable_core.audit import NONE_BEFORE, linked
from durable_core.model import AuditEntry
from durable_core.stores import rows
from durable_core.stores.postgres.sql import storable
from durable_core.stores.postgres.tx import Again, Tx

_LOCK: Final = "SELECT 1 FROM moor_audit WHERE n = 1 FOR UPDATE"
_LAST: Final = "SELECT n, hash FROM moor_audit ORDER BY n DESC LIMIT 1"
_PUT: Final = f"""
    INSERT INTO moor_audit ({rows.AUDIT})
    VALUES ({", ".join(f"${n}" for n, _ in enumerate(rows.AUDIT.split(","), start=1))}) ON CONFLICT DO NOTHING
"""
_READ: Final = f"SELECT {rows.AUDIT} FROM moor_audit WHERE n > $1 {{of}} ORDER BY n LIMIT $2"


async def write(tx: Tx) -> None:
    """Write what an operation noted; nothing may be locked after it.

    Raises:
        Again: there was no entry to lock, and somebody else was first.
    """
    if not tx.entries:
        return
    n, prev = 0, NONE_BEFORE
    if await tx.one(_LOCK) is not None:
        n, prev = await tx.one(_LAST) or (n, prev)
    for entry in tx.entries:
        n += 1
        one = linked(_storable(entry), n=n, prev=prev)
        if not await tx.run(_PUT, *rows.audited(one)):
            raise Again
        prev = one.hash
    tx.entries.clear()


async def read(tx: Tx, *, after: int, limit: int, run_id: str | None, prompt_id: str | None) -> list[AuditEntry]:
    """Return entries with numbers above `after`, in order."""
    wanted = {name: value for name, value in (("run_id", run_id), ("prompt_id", prompt_id)) if value is not None}
    of = " ".join(f"AND {name} = ${number}" for number, name in enumerate(wanted, start=3))
    return [rows.audit(row) for row in await tx.all(_READ.format(of=of), after, limit, *wanted.values())]


def _storable(entry: AuditEntry) -> AuditEntry:
    """Return an entry with what people wrote as the database can keep it: it has to be hashed as it is kept."""
    reason = None if entry.reason is None else storable(entry.reason)
    return replace(entry, reason=reason, where=storable(entry.where), asked=storable(entry.asked))
