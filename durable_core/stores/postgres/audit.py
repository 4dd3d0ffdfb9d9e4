"""The audit: entries behind one another, for the whole store.

What lives here: writing and reading them, and the lock under which they are numbered. What does not: what they say
(`stores/auditing.py`), their hashes (`audit.py` of durable_core, which the statement here does over).

The end of the chain is locked last of all in a transaction (CORE 4) and goes to the server together with the COMMIT: nobody holds
it while a client makes up its mind, or is frozen. So the server numbers and hashes. Each statement is one of its own, which sees
what was committed before it got the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from durable_core.audit import NONE_BEFORE, around
from durable_core.model import AuditEntry
from durable_core.stores import rows
from durable_core.stores.postgres.sql import literal, qualified, storable
from durable_core.stores.postgres.tx import Tx

_SPACE: Final = 0x6D6F6F72
"""Of two-part advisory locks ("moor"); those of incarnations have one part, and are others."""
_LOCK: Final = "SELECT pg_advisory_xact_lock({space}, hashtext({namespace}));"
_PUT: Final = f"""
    INSERT INTO moor_audit ({rows.AUDIT})
    SELECT l.n, {{values}}, l.prev,
        encode(sha256(convert_to({{before}} || l.n || {{between}} || l.prev || {{behind}}, 'UTF8')), 'hex')
    FROM (SELECT coalesce(max(n), 0) + 1 AS n,
                 coalesce((SELECT a.hash FROM moor_audit a ORDER BY a.n DESC LIMIT 1), '{NONE_BEFORE}') AS prev
          FROM moor_audit) l;
"""
_READ: Final = f"SELECT {rows.AUDIT} FROM moor_audit WHERE n > $1 {{of}} ORDER BY n LIMIT $2"


def closing(entries: Sequence[AuditEntry], namespace: str | None) -> str:
    """Return the statements that write entries, to go before the COMMIT in one message; nothing where there are none."""
    if not entries:
        return ""
    lock = _LOCK.format(space=_SPACE, namespace=literal(f"audit {namespace or ''}"))
    # the name is part of a template
    put = _PUT if namespace is None else qualified(_PUT, namespace.replace("{", "{{").replace("}", "}}"))
    return lock + "".join(_put(put, entry) for entry in entries)


async def read(tx: Tx, *, after: int, limit: int, run_id: str | None, prompt_id: str | None) -> list[AuditEntry]:
    """Return entries with numbers above `after`, in order."""
    wanted = {name: value for name, value in (("run_id", run_id), ("prompt_id", prompt_id)) if value is not None}
    of = " ".join(f"AND {name} = ${number}" for number, name in enumerate(wanted, start=3))
    return [rows.audit(row) for row in await tx.all(_READ.format(of=of), after, limit, *wanted.values())]


def _put(put: str, entry: AuditEntry) -> str:
    # hashed as it is kept: what people and platforms wrote may hold what the database can't keep
    texts: dict[str, Any] = {name: storable(value) for name, value in asdict(entry).items() if isinstance(value, str)}
    kept = replace(entry, **texts)
    before, between, behind = (literal(text) for text in around(kept))
    values = ", ".join(_value(value) for value in rows.audited(kept)[1:-2])
    return put.format(values=values, before=before, between=between, behind=behind)


def _value(value: str | int | None) -> str:
    return "NULL" if value is None else literal(value) if isinstance(value, str) else str(value)
