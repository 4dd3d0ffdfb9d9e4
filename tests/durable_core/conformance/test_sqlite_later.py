"""This code keeps every promise on the schema of a later version, as long as that only added to it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from durable_core import schema
from durable_core.clock import Clock
from durable_core.crypto import KeyRing
from durable_core.store import Store
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.testing import StoreContract
from durable_core.testing.bench import WindableClock
from tests.durable_core.conformance.sqlite import KEYS
from tests.durable_core.migrating import as_later_code, later_folder

LATER = "9999_pre_mood"


@pytest.fixture(scope="session")
def later_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a file that a later version has migrated."""
    place = tmp_path_factory.mktemp("later")
    path = place / "moorings.db"
    schema.upgrade(f"sqlite:///{path}")
    with as_later_code(later_folder(place, LATER)):
        assert schema.upgrade(f"sqlite:///{path}").at == LATER
    return path


def later_store(clock: Clock, place: Path, later_file: Path) -> Store:
    path = place / "moorings.db"
    if not path.exists():
        shutil.copy(later_file, path)
    return SqliteStore(str(path), keys=KeyRing.parse(KEYS), clock=clock)


class TestSqliteOnALaterSchema(StoreContract):
    shared = True

    @pytest.fixture(autouse=True)
    def _file(self, later_file: Path) -> None:
        self.later_file = later_file

    async def make(self, clock: WindableClock, place: Path) -> Store:
        return later_store(clock, place, self.later_file)
