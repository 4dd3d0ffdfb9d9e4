"""Opening a store by its URL.

What lives here: which class serves which URL. What does not: connecting, which is the store's `open()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from durable_core.clock import Clock
from durable_core.errors import Broken
from durable_core.keys import Keys
from durable_core.store import Store

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = frozenset({"postgres", "postgresql"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How to use a database that a server keeps; a file takes none of it."""

    namespace: str | None = None
    """The schema that the tables are in; None leaves it to the server's search path."""
    pool: int = 10
    """Connections at most, beside the one that listens."""
    listen_url: str | None = None
    """A way past a pooler, for the one connection that needs a session."""
    pooler: bool = False
    """A pooler in transaction mode stands between."""


PLAIN: Final = StoreOptions()


def open_store(url: str, *, keys: Keys, clock: Clock, options: StoreOptions = PLAIN) -> Store:
    """Return the store of a database URL, not yet connected: `sqlite:///path`, `sqlite:///:memory:` or `postgresql://…`.

    `keys` may be a provider; it is asked when the store opens.

    Raises:
        Broken: no store serves this URL.
    """
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        from durable_core.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - only the store in use is loaded

        return SqliteStore(url.removeprefix(_SQLITE), keys=keys, clock=clock)
    scheme = url.partition(":")[0]
    if scheme.partition("+")[0] in _POSTGRES:
        return _postgres(url, keys=keys, clock=clock, options=options)
    raise Broken(f"no store serves {scheme!r} URLs; use sqlite:///path/to/moorings.db or postgresql://host/database")


def _postgres(url: str, *, keys: Keys, clock: Clock, options: StoreOptions) -> Store:
    try:
        from durable_core.stores.postgres.connect import Settings  # noqa: PLC0415 - only the store in use is loaded
        from durable_core.stores.postgres.store import PostgresStore  # noqa: PLC0415 - same
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise Broken("the package asyncpg is not installed; install it with: pip install 'moorings[postgres]'") from error
    settings = Settings(
        url=url,
        namespace=options.namespace,
        pool=options.pool,
        listen_url=options.listen_url,
        pooler=options.pooler,
    )
    return PostgresStore(settings, keys=keys, clock=clock)
