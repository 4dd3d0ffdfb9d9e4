"""Passing time: a SQLite file's clock is moved on while processes work on it, as the demo does.

What lives here: keeping what is held while the time jumps. What does not: the clock itself, which is a port (`clock.py`).

Days that pass take nothing from whoever is alive: leases are renewed all along. A jump leaves no time for that, so leases that
are not over move with the clock, in one transaction with it. All else comes due.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Final

from durable_core.stores.sqlite.connect import connect, sorted_error

_LEASES: Final = (
    "UPDATE moor_run SET lease_until = lease_until + :by WHERE owner IS NOT NULL AND lease_until >= :now",
    "UPDATE moor_lane SET lease_until = lease_until + :by WHERE owner IS NOT NULL AND lease_until >= :now",
    "UPDATE moor_interaction SET due_at = due_at + :by WHERE status IS NULL AND owner IS NOT NULL AND due_at >= :now",
    "UPDATE moor_vault SET held_until = held_until + :by WHERE held_until >= :now",
    "UPDATE moor_worker SET heartbeat = heartbeat + :by WHERE gone_at IS NULL",
)


def pass_time(path: str, by_ms: int, *, now: Callable[[], int], move: Callable[[], object]) -> None:
    """Move leases by so many milliseconds, and the clock by `move`, while nobody writes; call it off the event loop.

    `now` is the time before. Whoever waits for a time looks again within a quarter of a second, as after any other process's
    commit. If `move` fails nothing has moved; a crash right after it is one that all leases are over at.

    Raises:
        ValueError: time doesn't go back.
        Unavailable, Broken: the database's own.
    """
    if by_ms < 0:
        raise ValueError(f"time doesn't go back: {by_ms} ms")
    with closing(connect(path)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            at = now()
            for statement in _LEASES:
                connection.execute(statement, {"by": by_ms, "now": at})
            move()
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise sorted_error(error) from error
