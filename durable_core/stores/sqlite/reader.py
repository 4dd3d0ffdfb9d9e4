"""The reader: a connection that can't write, and sees what is committed.

What lives here: one snapshot a read. What does not: the reads themselves (`reads.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from durable_core.clock import Clock
from durable_core.stores.sealing import Sealing
from durable_core.stores.sqlite.connect import sorted_error
from durable_core.stores.sqlite.thread import Op, SqlThread
from durable_core.stores.sqlite.tx import Tx

T = TypeVar("T")


class Reader(SqlThread):
    """Runs each read in a transaction of its own, so that its statements agree with each other."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, clock: Clock, sealing: Sealing) -> None:
        super().__init__("moorings-reader", connect)
        self._clock = clock
        self._sealing = sealing

    def _run(self, connection: sqlite3.Connection, ops: list[Op[Any]]) -> frozenset[str]:
        for op in ops:
            try:
                op.result = snapshot(connection, op.work, clock=self._clock, sealing=self._sealing)
            except sqlite3.Error as error:
                op.error = sorted_error(error)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                op.error = error
        return frozenset()


def snapshot(connection: sqlite3.Connection, work: Callable[[Tx], T], *, clock: Clock, sealing: Sealing) -> T:
    """Run a read in a transaction of its own."""
    connection.execute("BEGIN")
    try:
        return work(Tx(connection, clock=clock, sealing=sealing, fresh={}))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
