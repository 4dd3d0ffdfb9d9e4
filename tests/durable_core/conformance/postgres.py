"""The PostgreSQL stores that the suites run against.

What lives here: making them. What does not: the server and its databases (tests/postgres.py).
"""

from __future__ import annotations

from durable_core.clock import Clock
from durable_core.crypto import KeyRing
from durable_core.stores.postgres.connect import Settings
from durable_core.stores.postgres.store import PostgresStore

KEYS = "test:" + "A" * 43 + "="
"""One key for all: two stores on one database have to read each other."""


def postgres_store(
    url: str, clock: Clock, *, pooler: bool = False, listen_url: str | None = None, namespace: str | None = None, pool: int = 10
) -> PostgresStore:
    """Return a store on a migrated database. The server has just started: nobody has to be waited for."""
    settings = Settings(url=url, namespace=namespace, pool=pool, listen_url=listen_url, pooler=pooler)
    return PostgresStore(settings, keys=KeyRing.parse(KEYS), clock=clock, grace=0)
