"""The PostgreSQL store keeps its promises behind a pooler in transaction mode, and in a schema of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from durable_core.clock import DatabaseClock
from durable_core.errors import Broken
from durable_core.store import Store
from durable_core.stores.postgres.sql import quoted
from durable_core.testing.admission import Admissions
from durable_core.testing.audits import Audits
from durable_core.testing.bench import WindableClock
from durable_core.testing.beside import Beside
from durable_core.testing.commits import Commits
from durable_core.testing.prompts import Prompts
from tests.durable_core.conformance.postgres import postgres_store
from tests.pgbouncer import Pooler
from tests.postgres import PrivatePostgres

ODD = 'a "b" {moor_run}'


class TestBehindPgbouncer(Admissions, Commits, Audits, Beside):
    """What most depends on transactions and statements; two server connections serve all clients, one goes past it to listen."""

    shared = True
    url: str
    direct: str

    @pytest.fixture(autouse=True)
    def database(self, migrated_url: str, pgbouncer: Pooler) -> None:
        self.direct = migrated_url
        self.url = pgbouncer.url(migrated_url.partition("?")[0].rpartition("/")[2])

    async def make(self, clock: WindableClock, place: Path) -> Store:
        return postgres_store(self.url, clock, pooler=True, listen_url=self.direct)


async def test_a_pooler_that_nobody_was_told_of_is_named(migrated_url: str, pgbouncer: Pooler) -> None:
    url = pgbouncer.url(migrated_url.partition("?")[0].rpartition("/")[2])
    with pytest.raises(Broken, match="MOORINGS_DATABASE_POOLER=transaction"):
        await postgres_store(url, DatabaseClock()).open()


@pytest.fixture(scope="session")
def odd(postgres: PrivatePostgres, migrated: str) -> str:
    """Make a database whose tables are in a schema with an odd name."""
    name = postgres.create(migrated)
    with psycopg.connect(host=str(postgres.folder), user="postgres", dbname=name, autocommit=True) as connection:
        connection.execute(f"ALTER SCHEMA public RENAME TO {quoted(ODD)}; CREATE SCHEMA public".encode())
    return name


class TestInANamespace(Prompts, Audits, Beside):
    """What has the most tables in its statements."""

    shared = True
    url: str

    @pytest.fixture(autouse=True)
    def database(self, postgres: PrivatePostgres, odd: str) -> Iterator[None]:
        self.url = postgres.url(odd)
        yield
        postgres.empty(odd)

    async def make(self, clock: WindableClock, place: Path) -> Store:
        return postgres_store(self.url, clock, namespace=ODD)
