"""The schema's version: which one this code needs, which one a database has, and how to get there.

What lives here: the migrations folder, the version, the upgrade. What does not: tables (`tables.py`), revisions (`migrations/`).
Importing this module loads neither SQLAlchemy nor Alembic; only `migrated_script` and `upgrade` of what exists do.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from durable_core import revisions
from durable_core.errors import Broken, OlderWorkers, Unavailable
from durable_core.stores.postgres.hosts import dsn, wanted

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection, Engine
    from sqlalchemy.exc import DBAPIError

HEAD: Final = "0007_pre_open_prompts"
"""The newest revision of this code; which others it works with, revisions.py says."""
VERSION_TABLE: Final = "moor_alembic"
REVISION_TABLE: Final = "moor_revision"
UTF8: Final = "UTF8"
WRONG_ENCODING: Final = "the database's encoding is {}, which can't hold every name; use one made with ENCODING 'UTF8'"
ALIVE_MS: Final = 60_000
"""How old the last word of a worker that is alive may be."""

SCRIPT: Final = "head.sqlite.sql"
"""In the migrations folder: the whole schema for a new SQLite file."""
_CONNECT_SECONDS: Final = 10
_SQLITE: Final = "sqlite:///"
_LOCK: Final = 0x6D6F6F72
"""PostgreSQL's advisory lock of whoever migrates ("moor")."""


def migrations_folder() -> Path:
    """Return the folder of the revisions: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise Broken("the migrations are missing; install moorings again")


def known() -> tuple[str, ...]:
    """Return the names of this code's revisions, in order."""
    return revisions.known(migrations_folder())


def found_version(path: str | Path) -> str | None:
    """Return the revision of a SQLite file, None where there is no file or no schema in it.

    Raises:
        Broken: the file is no database.
    """
    rows = _rows(path, f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - a constant
    return rows[0] if rows else None


def check(path: str | Path) -> None:
    """See that this code can work on a SQLite file, as `revisions.check` says.

    Raises:
        Broken: the file is no database.
        SchemaOutdated: its schema isn't one for this code.
    """
    ours, found = known(), found_version(path)
    # only what isn't known here needs the names of all that was applied
    applied = () if found is None or found in ours else _rows(path, f"SELECT name FROM {REVISION_TABLE}")  # noqa: S608 - a constant
    revisions.check(ours, found, applied)


def _rows(path: str | Path, sql: str) -> tuple[str, ...]:
    """Read one column of a SQLite file; nothing where there is no file or no such table."""
    if not Path(path).is_file():
        return ()
    try:
        connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
        try:
            return tuple(str(value) for (value,) in connection.execute(sql).fetchall())
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return ()
        raise Broken(f"can't read {path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise Broken(f"{path} is not a SQLite database: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """What a migration did."""

    at: str
    """The revision the database is at now."""
    changed: bool
    waiting: tuple[str, ...] = ()
    """Revisions of this code that wait for `finish`."""


def upgrade(url: str, *, namespace: str | None = None, finish: bool = False) -> Migrated:
    """Bring a database to this code's revisions; two processes that do so at once take turns. Blocks: call it in a thread.

    Without `finish` it stops before the first revision that older code can't work with; with it, no older worker may be alive.
    A database that is newer stays as it is. `namespace` is the PostgreSQL schema of the tables; it is made where it is missing.

    Raises:
        OlderWorkers: they are named.
        Unavailable, Broken: the database can't be reached, or doesn't let this user do it.
    """
    if url.startswith(_SQLITE) and _make_new(url.removeprefix(_SQLITE)):
        return Migrated(at=HEAD, changed=True)
    from sqlalchemy.exc import DBAPIError, OperationalError  # noqa: PLC0415 - heavy, and only migrating needs it

    engine = _engine(url)
    try:
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                _check_encoding(str(connection.exec_driver_sql("SHOW server_encoding").scalar()))
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
                if namespace is not None:
                    _enter(connection, namespace)
            return _run(connection, finish=finish)
    except OperationalError as error:
        raise Unavailable(_said(error)) from error
    except DBAPIError as error:
        raise Broken(f"the database can't be migrated: {_said(error)}") from error
    finally:
        engine.dispose()


def _check_encoding(encoding: str) -> None:
    if encoding != UTF8:
        raise Broken(WRONG_ENCODING.format(encoding))


def _enter(connection: Connection, namespace: str) -> None:
    """Let names without a schema mean this one, until the transaction ends: a pooler keeps nothing longer."""
    name = '"' + namespace.replace('"', '""') + '"'
    found = connection.exec_driver_sql("SELECT 1 FROM pg_namespace WHERE nspname = %s", (namespace,)).first()
    if found is None:  # a user who may not make schemas can use one that was made for it
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")
    connection.exec_driver_sql(f"SET LOCAL search_path TO {name}")


def _said(error: DBAPIError) -> str:
    """Return what the database said, without SQLAlchemy's words around it."""
    return " ".join(str(error.orig).split())


def _make_new(path: str) -> bool:
    """Make the schema in a SQLite file that is new or empty; False where something is in it."""
    try:
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect only before the first table
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
                return False
            for statement in memory_script().split(";\n"):
                connection.execute(statement)
            connection.execute("COMMIT")
        finally:
            connection.close()
    except sqlite3.Error:
        return False  # the migrations meet it again, and say what is wrong
    return True


@cache
def memory_script() -> str:
    """Return the statements that make the schema in an empty SQLite database.

    They are kept beside the migrations, so that a first start needn't load Alembic and SQLAlchemy, which takes a second and
    30 MB. They are what the migrations make, to the letter (a test holds them to it; `python -m durable_core.schema` writes
    them).
    """
    return (migrations_folder() / SCRIPT).read_text(encoding="utf-8")


def migrated_script() -> str:
    """Return the statements that the migrations come to on SQLite, one after the other, each ended by `;` and a line break."""
    engine = _engine("sqlite:///:memory:")
    try:
        with engine.connect() as connection:
            with connection.begin():
                _run(connection, finish=True)
            driver = connection.connection.driver_connection
            if not isinstance(driver, sqlite3.Connection):
                raise Broken("SQLAlchemy's SQLite driver is not sqlite3")
            return "".join(f"{line}\n" for line in driver.iterdump() if not line.startswith(("BEGIN", "COMMIT")))
    finally:
        engine.dispose()


def config() -> Config:
    """Return Alembic's settings; no file holds them."""
    from alembic.config import Config  # noqa: PLC0415 - heavy, and only migrating needs it

    settings = Config()
    settings.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return settings


def _run(connection: Connection, *, finish: bool) -> Migrated:
    from alembic import command  # noqa: PLC0415 - heavy, and only migrating needs it
    from alembic.migration import MigrationContext  # noqa: PLC0415 - same

    ours = known()
    found = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()
    goal = revisions.target(ours, found, finish=finish)
    if goal is not None:
        posts = [name for name in revisions.pending(ours, found) if revisions.is_post(name)]
        if found is not None and finish and posts:
            _refuse_older(connection, posts[-1])
        settings = config()
        settings.attributes["connection"] = connection
        command.upgrade(settings, goal)
    at = goal or found or HEAD
    return Migrated(at=at, changed=goal is not None, waiting=revisions.waiting(ours, at))


def _refuse_older(connection: Connection, revision: str) -> None:
    """See that no live worker was written before a revision. Raises: OlderWorkers."""
    from sqlalchemy import inspect, text  # noqa: PLC0415 - heavy, and only migrating needs it

    postgres = connection.dialect.name == "postgresql"
    now = "(extract(epoch from clock_timestamp()) * 1000)" if postgres else str(int(time.time() * 1000))
    columns = {column["name"] for column in inspect(connection).get_columns("moor_worker")}
    # without these columns everything that is enrolled is older
    knows, here = ("revision", "gone_at IS NULL AND") if "revision" in columns else ("''", "")
    sql = f"SELECT deployment, host, pid, {knows} FROM moor_worker WHERE {here} heartbeat > {now} - {ALIVE_MS}"  # noqa: S608 - constants
    found = connection.execute(text(sql)).fetchall()
    older = sorted(f"{deployment} ({host}, process {pid})" for deployment, host, pid, needs in found if needs < revision)
    if older:
        raise OlderWorkers(revision, tuple(older))


def _engine(url: str) -> Engine:
    from sqlalchemy import URL, create_engine, event, pool  # noqa: PLC0415 - heavy, and only migrating needs it

    if url.startswith("postgres"):
        import psycopg  # noqa: PLC0415 - same

        # the driver reads the URL: SQLAlchemy can't read several hosts as the other driver wants them
        settings: dict[str, Any] = {} if wanted(url) else {"target_session_attrs": "read-write"}
        # prepared statements would outlive the transaction on a pooler's connection
        settings |= {"prepare_threshold": None, "client_encoding": "utf8", "connect_timeout": _CONNECT_SECONDS}
        return create_engine(
            "postgresql+psycopg://", poolclass=pool.NullPool, creator=lambda: psycopg.connect(dsn(url), **settings)
        )
    # of a file the rest is its name as it stands: a `?` or `%41` in it is no syntax
    engine = create_engine(URL.create("sqlite", database=url.removeprefix(_SQLITE)), poolclass=pool.StaticPool)

    # sqlite3 begins a transaction only before INSERT, UPDATE and DELETE, so that a revision would be half
    # applied after a crash; SQLAlchemy's documented cure is to begin by hand.
    @event.listens_for(engine, "connect")
    def _(driver: sqlite3.Connection, _record: object) -> None:
        driver.isolation_level = None
        driver.execute("PRAGMA busy_timeout = 30000")

    @event.listens_for(engine, "begin")
    def _(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


if __name__ == "__main__":
    (migrations_folder() / SCRIPT).write_text(migrated_script(), encoding="utf-8")
