"""The SQLite stores that the suites run against.

What lives here: making them, with a schema made once a process. What does not: opening and closing, which the users do.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from durable_core.clock import Clock
from durable_core.crypto import KeyRing
from durable_core.schema import upgrade
from durable_core.store import Store
from durable_core.stores.sqlite.store import SqliteStore

KEYS = "test:" + "A" * 43 + "="
"""One key for all: two stores on one file, and two processes, have to read each other."""


@cache
def new_file() -> bytes:
    """Return what a new file holds: the schema."""
    with tempfile.TemporaryDirectory(prefix="moor-new-") as folder:
        path = Path(folder) / "new.db"
        upgrade(f"sqlite:///{path}")
        return path.read_bytes()


async def memory_store(clock: Clock) -> Store:
    """Return a store in memory."""
    return SqliteStore(":memory:", keys=KeyRing.parse(KEYS), clock=clock)


async def file_store(clock: Clock, place: Path) -> Store:
    """Return a store on the one file of a folder; the first caller makes the file."""
    path = place / "moorings.db"
    if not path.exists():
        path.write_bytes(new_file())
    return SqliteStore(str(path), keys=KeyRing.parse(KEYS), clock=clock)


def own_incarnation(store: Store) -> str:
    """Return the owner's name under which a store's own process is known to be alive."""
    assert isinstance(store, SqliteStore)
    return store.incarnation
