"""This code keeps its promises on the PostgreSQL schema of a later version, as long as that only added to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_core import schema
from durable_core.clock import DatabaseClock
from durable_core.errors import SchemaOutdated
from durable_core.store import Store
from durable_core.testing.bench import WindableClock
from durable_core.testing.commits import Commits
from durable_core.testing.deploys import Deploys
from tests.durable_core.conformance.postgres import postgres_store
from tests.durable_core.migrating import TAKES, as_later_code, later_folder
from tests.postgres import PrivatePostgres

LATER = "9999_pre_mood"
POST = "9998_post_votes"


@pytest.fixture(scope="session")
def later(postgres: PrivatePostgres, migrated: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a database that a later version has migrated."""
    name = postgres.create(migrated)
    with as_later_code(later_folder(tmp_path_factory.mktemp("later"), LATER)):
        assert schema.upgrade(postgres.url(name)).at == LATER
    return name


class TestPostgresOnALaterSchema(Commits, Deploys):
    """What writes the most columns, and what deploys need."""

    shared = True
    url: str

    @pytest.fixture(autouse=True)
    def database(self, postgres: PrivatePostgres, later: str) -> Iterator[None]:
        self.url = postgres.url(later)
        yield
        postgres.empty(later)

    async def make(self, clock: WindableClock, place: Path) -> Store:
        return postgres_store(self.url, clock)


@pytest.fixture
def of_its_own(postgres: PrivatePostgres, migrated: str) -> Iterator[str]:
    """Give a database whose schema a test may change."""
    name = postgres.create(migrated)
    yield postgres.url(name)
    postgres.drop(name)


async def opens(url: str, *, pooler: bool) -> None:
    store = postgres_store(url, DatabaseClock(), pooler=pooler)
    await store.open()
    await store.close()


@pytest.mark.parametrize("pooler", [False, True], ids=["direct", "pooled"])
async def test_a_schema_that_took_something_away_is_refused_by_name(of_its_own: str, tmp_path: Path, *, pooler: bool) -> None:
    with as_later_code(later_folder(tmp_path, POST, change=TAKES)):
        await opens(of_its_own, pooler=pooler)  # it waits for `finish`, and keeps nobody from starting
        assert schema.upgrade(of_its_own, finish=True).at == POST
        await opens(of_its_own, pooler=pooler)
    with pytest.raises(SchemaOutdated, match=POST):
        await opens(of_its_own, pooler=pooler)
