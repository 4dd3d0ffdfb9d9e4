"""A folder's database, read from outside: its SQLite file, or the PostgreSQL database that the folder names.

What lives here: which one it is, and reading rows. What does not: what they have to be (judge.py), how far things are (story.py).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import make_url

from bot.settings import DATABASE_FILE, sqlite_url

URL_FILE = "database.url"
Read = Callable[[str], list[dict[str, Any]]]


def database_url(folder: Path) -> str:
    return url.read_text() if (url := folder / URL_FILE).exists() else sqlite_url(folder)


def name_database(folder: Path, url: str) -> None:
    """Say that a folder's data is in a PostgreSQL database."""
    (folder / URL_FILE).write_text(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False))


def has_file(folder: Path) -> bool:
    return not (folder / URL_FILE).exists()


@contextmanager
def reading(folder: Path) -> Iterator[Read]:
    """Read rows, by the names of their columns; all as of one moment."""
    if has_file(folder):
        with closing(sqlite3.connect(folder / DATABASE_FILE, timeout=10)) as file:
            file.row_factory = sqlite3.Row
            file.execute("BEGIN")
            yield lambda sql: [dict(row) for row in file.execute(sql)]
    else:
        with psycopg.connect(database_url(folder), row_factory=dict_row) as server:
            server.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            yield lambda sql: server.execute(os.fsencode(sql)).fetchall()
