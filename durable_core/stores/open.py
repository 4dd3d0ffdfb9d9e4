"""Opening a store by its URL.

What lives here: which class serves which URL. What does not: connecting, which is the store's `open()`.
"""

from __future__ import annotations

from typing import Final

from durable_core.clock import Clock
from durable_core.errors import Broken
from durable_core.keys import Keys
from durable_core.store import Store

_SQLITE: Final = "sqlite:///"


def open_store(url: str, *, keys: Keys, clock: Clock) -> Store:
    """Return the store of a database URL, not yet connected: `sqlite:///path` or `sqlite:///:memory:`.

    `keys` may be a provider; it is asked when the store opens.

    Raises:
        Broken: no store serves this URL.
    """
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        from durable_core.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - only the store in use is loaded

        return SqliteStore(url.removeprefix(_SQLITE), keys=keys, clock=clock)
    scheme = url.partition(":")[0]
    if scheme.partition("+")[0] in {"postgres", "postgresql"}:
        raise Broken("the PostgreSQL store is not in this version; it will come with the extra moorings[postgres]")
    raise Broken(f"no store serves {scheme!r} URLs; use sqlite:///path/to/moorings.db")
