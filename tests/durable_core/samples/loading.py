"""Read samples: bodies by kind, and the rows of the first revision into a database.

What lives here: files to values. What does not: expectations.
"""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, MetaData, Table

HERE = Path(__file__).parent


class Sample(NamedTuple):
    """One stored body."""

    kind: str
    of: str
    body: bytes


def bodies(version: int) -> list[Sample]:
    """Read the samples of a version; raises if there are none."""
    found = json.loads((HERE / f"v{version}" / "bodies.json").read_text())
    return [Sample(kind, entry["of"], b64decode(entry["body"])) for kind, entries in found.items() for entry in entries]


def rows_of_the_first() -> dict[str, list[dict[str, Any]]]:
    """Read the rows, only the columns that the first revision had."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript((HERE / "0001" / "schema.sqlite.sql").read_text())
        found: dict[str, list[dict[str, Any]]] = {}
        for table, kept in json.loads((HERE / "0001" / "rows.json").read_text()).items():
            columns = {name for (name,) in database.execute(f"SELECT name FROM pragma_table_info('{table}')")}
            if columns and table != "moor_alembic":
                found[table] = [{name: _value(one) for name, one in row.items() if name in columns} for row in kept]
        return found


def first_file(path: Path) -> None:
    """Make a SQLite file as the first revision left it."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript((HERE / "0001" / "schema.sqlite.sql").read_text())
        for table, kept in rows_of_the_first().items():
            for row in kept:
                names = ", ".join(row)
                database.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in row)})", row)
        database.commit()


def into(connection: Connection) -> None:
    """Put the rows into a database that is at the first revision."""
    for table, kept in rows_of_the_first().items():
        if kept:
            connection.execute(Table(table, MetaData(), autoload_with=connection).insert(), kept)


def states(connection: Any) -> Iterator[tuple[str, int]]:
    """Count the rows of each table."""
    for table in rows_of_the_first():
        yield table, connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar()


def _value(one: Any) -> Any:
    return b64decode(one["base64"]) if isinstance(one, dict) else one
