"""Run the migrations on a connection or a URL that the caller gives.

What lives here: how Alembic reaches the database. What does not: the schema (durable_core/tables.py, bot/tables.py).

The `Config` is made in code: `script_location` is this folder, and either `attributes["connection"]` holds a synchronous
SQLAlchemy connection, whose transaction stays the caller's, or the option `sqlalchemy.url` names the database.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from alembic.migration import MigrationContext, MigrationInfo
from sqlalchemy import Connection, create_engine, inspect, pool, text
from sqlmodel import AutoString

import bot.tables  # noqa: F401  (adds its tables to the shared metadata)
from durable_core.tables import metadata

VERSION_TABLE = "moor_alembic"
REVISION_TABLE = "moor_revision"
PREFIX = "moor_"


def include_name(name: str | None, kind: str, _parents: object) -> bool:
    """Leave alone the tables of others: the database may be shared."""
    return kind != "table" or (name is not None and name.startswith(PREFIX))


def render_item(kind: str, item: object, _context: AutogenContext) -> str | Literal[False]:
    """Write SQLModel's string type as SQLAlchemy's own, so that a revision needs no other import."""
    if kind == "type" and isinstance(item, AutoString):
        return f"sa.String({item.length or ''})"
    return False


def remember(ctx: MigrationContext, step: MigrationInfo, heads: Collection[object], run_args: Mapping[str, object]) -> None:
    """Keep the names of what is applied, in the same transaction; nothing is kept before there is a table for it."""
    connection = ctx.connection
    if connection is None or not inspect(connection).has_table(REVISION_TABLE):
        return
    change = (
        "INSERT INTO {} (name) VALUES (:name) ON CONFLICT DO NOTHING" if step.is_upgrade else "DELETE FROM {} WHERE name = :name"
    )
    for name in step.up_revision_ids:
        connection.execute(text(change.format(REVISION_TABLE)), {"name": name})


def migrate(connection: Connection) -> None:
    """Bring the schema to the revision that was asked for."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        include_name=include_name,
        render_item=render_item,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        on_version_apply=remember,
    )
    with context.begin_transaction():
        context.run_migrations()


def print_sql(url: str) -> None:
    """Write the statements to the output instead of running them."""
    context.configure(url=url, target_metadata=metadata, version_table=VERSION_TABLE, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


def run() -> None:
    """Take the caller's connection, or make one for the URL."""
    given: Connection | None = context.config.attributes.get("connection")
    if given is not None:
        migrate(given)
        return
    url = context.config.get_main_option("sqlalchemy.url")
    if not url:
        raise RuntimeError("migrations need attributes['connection'] or the option sqlalchemy.url")
    if context.is_offline_mode():
        print_sql(url)
        return
    engine = create_engine(url, poolclass=pool.NullPool)
    try:
        with engine.connect() as connection:
            migrate(connection)
    finally:
        engine.dispose()


run()
