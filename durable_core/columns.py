"""Columns and indexes in the few sorts that the tables have.

What lives here: a text, a number, bytes, an index on some rows. What does not: tables (`tables.py`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, LargeBinary, Text, TextClause, text


def text_column(*, primary_key: bool = False, nullable: bool = False, default: str | None = None) -> Column[str]:
    """Return a column of text."""
    return Column(
        Text, primary_key=primary_key, nullable=nullable, server_default=None if default is None else text(f"'{default}'")
    )


def int_column(*, primary_key: bool = False, nullable: bool = False, default: str | None = None) -> Column[int]:
    """Return a column of whole numbers; milliseconds need 64 bits."""
    return Column(
        BigInteger,
        primary_key=primary_key,
        nullable=nullable,
        autoincrement=False,
        server_default=text(default) if default else None,
    )


def bytes_column(*, nullable: bool = False) -> Column[bytes]:
    """Return a column of bytes."""
    return Column(LargeBinary, nullable=nullable)


def partial_index(name: str, *columns: str | TextClause, where: str) -> Index:
    """Return an index on the rows that meet a condition, by columns or by an expression."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))
