"""The audit: entries behind one another, for the whole store.

What lives here: writing and reading them. What does not: what they say (`stores/auditing.py`), their hashes (`audit.py` of
durable_core).
"""

from __future__ import annotations

from typing import Final

from durable_core.audit import NONE_BEFORE, linked
from durable_core.model import AuditEntry
from durable_core.stores import rows
from durable_core.stores.sqlite.tx import Tx

_LAST: Final = "SELECT n, hash FROM moor_audit ORDER BY n DESC LIMIT 1"
_PUT: Final = f"INSERT INTO moor_audit ({rows.AUDIT}) VALUES ({', '.join('?' * len(rows.AUDIT.split(',')))})"
_READ: Final = f"""
    SELECT {rows.AUDIT} FROM moor_audit
    WHERE n > :after {{of}} ORDER BY n LIMIT :limit
"""


def write(tx: Tx) -> None:
    """Write what an operation noted. Nobody else writes meanwhile: a transaction has the file to itself."""
    if not tx.entries:
        return
    n, prev = tx.one(_LAST) or (0, NONE_BEFORE)
    for entry in tx.entries:
        n += 1
        one = linked(entry, n=n, prev=prev)
        tx.run(_PUT, rows.audited(one))
        prev = one.hash
    tx.entries.clear()


def read(tx: Tx, *, after: int, limit: int, run_id: str | None, prompt_id: str | None) -> list[AuditEntry]:
    """Return entries with numbers above `after`, in order."""
    of = " ".join(f"AND {name} = :{name}" for name, value in (("run_id", run_id), ("prompt_id", prompt_id)) if value is not None)
    found = tx.all(_READ.format(of=of), {"after": after, "limit": limit, "run_id": run_id, "prompt_id": prompt_id})
    return [rows.audit(row) for row in found]
