"""Databases of both kinds for the soak tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.durable_core.conformance.sqlite import new_file


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Give a fresh file with the schema in it."""
    path = tmp_path / "moorings.db"
    path.write_bytes(new_file())
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """Give a fresh database of either kind."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "migrated_url"))
