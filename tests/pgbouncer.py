"""A pooler in transaction mode before the private PostgreSQL server.

What lives here: starting and stopping it. What does not: what a store does differently behind one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import URL

from tests.parts import missing
from tests.postgres import PrivatePostgres, unprivileged

PLACES = ("/usr/sbin/pgbouncer", "/usr/bin/pgbouncer")
PORT = 6432
PATIENCE_SECONDS = 30


class Pooler:
    """One pgbouncer in a folder of its own; two connections to the server for however many clients."""

    def __init__(self, program: str, server: PrivatePostgres) -> None:
        owner = unprivileged() if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="moor-pb-", dir="/tmp"))
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={server.folder} user=postgres\n"
            "[pgbouncer]\npool_mode = transaction\ndefault_pool_size = 2\nauth_type = any\nlisten_addr =\n"
            f"unix_socket_dir = {self.folder}\nlisten_port = {PORT}\n"
        )
        if owner is not None:
            for path in (self.folder, settings):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        self._process = subprocess.Popen(
            [program, "-q", settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            user=owner and owner.pw_uid,
            group=owner and owner.pw_gid,
            extra_groups=owner and [],
        )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def url(self, database: str) -> str:
        query = {"host": str(self.folder), "port": str(PORT)}
        return URL.create("postgresql+psycopg", "postgres", database=database, query=query).render_as_string()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as tried:
                tried.connect(str(self.folder / f".s.PGSQL.{PORT}"))
                return
            time.sleep(0.02)
        raise OSError("pgbouncer doesn't start")


@pytest.fixture(scope="session")
def pgbouncer(postgres: PrivatePostgres) -> Iterator[Pooler]:
    program = next((place for place in (shutil.which("pgbouncer"), *PLACES) if place and Path(place).exists()), None)
    if program is None:
        missing("pgbouncer", "it is not installed")
    try:
        pooler = Pooler(program, postgres)
    except OSError as error:
        missing("pgbouncer", str(error))
    yield pooler
    pooler.stop()
