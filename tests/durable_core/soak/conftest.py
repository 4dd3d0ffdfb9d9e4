"""Databases of both kinds for the soak tests."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from durable_core.schema import memory_script


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Give a fresh file with the schema in it."""
    path = tmp_path / "moorings.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(memory_script())
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """Give a fresh database of either kind."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "migrated_url"))
