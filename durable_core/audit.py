"""The audit's chain: each entry bears the hash of the one before, so that none can be changed or left out unseen.

What lives here: what is hashed, linking an entry, checking a chain. What does not: what entries say (`stores/auditing.py`), SQL.

A chain says nothing of entries that were cut off at its end: who has to rule that out keeps the last number and hash elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from hashlib import sha256
from typing import Final

import orjson

from durable_core.model import AuditEntry

FORMAT: Final = "moorings.audit.1"
"""What is hashed begins with this: other fields are another format."""
NONE_BEFORE: Final = ""
"""`prev` of the first entry."""
_HASHED: Final = tuple(field.name for field in fields(AuditEntry) if field.name != "hash")


def canonical(entry: AuditEntry) -> bytes:
    """Return what an entry's hash is made of: the format and all other fields in order, as compact JSON."""
    return orjson.dumps([FORMAT, *(getattr(entry, name) for name in _HASHED)])


def around(entry: AuditEntry) -> tuple[str, str, str]:
    """Return what of `canonical` stands before the number, between it and `prev`, and behind: for who adds those in SQL."""
    rest = orjson.dumps([getattr(entry, name) for name in _HASHED[1:-1]]).decode()
    return f'["{FORMAT}",', f',{rest[1:-1]},"', '"]'


def hash_of(entry: AuditEntry) -> str:
    """Return the SHA-256 of an entry, in hex."""
    return sha256(canonical(entry)).hexdigest()


def linked(entry: AuditEntry, *, n: int, prev: str) -> AuditEntry:
    """Return an entry as the `n`th of a chain, behind the one whose hash is `prev`."""
    entry = replace(entry, n=n, prev=prev)
    return replace(entry, hash=hash_of(entry))


def verify(entries: Iterable[AuditEntry], after: AuditEntry | None = None) -> int | None:
    """Check entries that follow `after`, or begin the chain; return the first number that is missing or wrong, else None.

    They have to be all entries in order, not those of one run: the entries between are links too.
    """
    n, prev = (0, NONE_BEFORE) if after is None else (after.n, after.hash)
    for entry in entries:
        n += 1
        if entry.n != n or entry.prev != prev or entry.hash != hash_of(entry):
            return n
        prev = entry.hash
    return None
