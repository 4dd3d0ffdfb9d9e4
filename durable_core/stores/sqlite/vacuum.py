"""Making a SQLite file as small as it can be, and able to shrink by itself from then on.

What lives here: one whole rewrite of the file. What does not: giving pages back while working (`retention.py`).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from durable_core.stores.sqlite.connect import connect, sorted_error


def vacuum(path: str) -> tuple[int, int]:
    """Rewrite a file; its size before and after, in bytes. Blocks, and holds up whoever writes meanwhile.

    Raises:
        Unavailable, Broken: somebody writes all the time, the disk is full, or it is no database.
    """
    before = _size(path)
    with closing(connect(path)) as connection:
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            raise sorted_error(error) from error
    return before, _size(path)


def _size(path: str) -> int:
    return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.is_file())
