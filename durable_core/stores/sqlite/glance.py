"""The glance: a connection that answers small reads on the event loop itself.

What lives here: reads of a row or a few, some 50 µs each. What does not: pages of events, steps, others' SQL (`reader.py`).

Handing a read to a thread and back costs several times what reading a row costs. In WAL mode a reader never waits for a
writer; the rare waits that are left (another process recovers the log) are cut short, and the read goes to the thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final, TypeVar

from durable_core.clock import Clock
from durable_core.stores.sealing import Sealing
from durable_core.stores.sqlite.connect import connect, sorted_error
from durable_core.stores.sqlite.reader import snapshot
from durable_core.stores.sqlite.tx import Tx

T = TypeVar("T")

_PATIENCE_MS: Final = 20
"""How long the loop may stand still for another process's lock."""


class Glance:
    """Small reads, for the loop's thread alone."""

    def __init__(self, path: str, *, clock: Clock, sealing: Sealing) -> None:
        self._connection = connect(path, read_only=True)
        self._connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        self._clock = clock
        self._sealing = sealing

    def read(self, work: Callable[[Tx], T], *, whole: bool) -> T:
        """Read; `whole` is one snapshot, which a read of one statement is anyway, at a third of the cost.

        Raises:
            Unavailable, Broken: the database's own faults; else what `work` raises.
        """
        try:
            if whole:
                return snapshot(self._connection, work, clock=self._clock, sealing=self._sealing)
            return work(Tx(self._connection, clock=self._clock, sealing=self._sealing, fresh={}))
        except sqlite3.Error as error:
            raise sorted_error(error) from error

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
