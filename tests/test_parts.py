"""The strict switch and the private PostgreSQL keep their word."""

from __future__ import annotations

import os
import select
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text

from tests import parts
from tests.postgres import PrivatePostgres, copy_programs, find_binaries


def test_a_missing_part_skips_unless_the_run_requires_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(parts.SWITCH, "")
    with pytest.raises(pytest.skip.Exception, match="no Chromium"):
        parts.missing("browser", "no Chromium")
    monkeypatch.setenv(parts.SWITCH, "postgres")
    with pytest.raises(pytest.skip.Exception):
        parts.missing("browser", "no Chromium")
    monkeypatch.setenv(parts.SWITCH, "postgres, browser")
    with pytest.raises(pytest.fail.Exception, match="browser is required here: no Chromium"):
        parts.missing("browser", "no Chromium")


def test_an_unknown_part_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(parts.SWITCH, "postgres,browsr")
    with pytest.raises(parts.UnknownPart, match="browsr"):
        parts.required()
    with pytest.raises(parts.UnknownPart, match="mail"):
        parts.missing("mail", "no server")


def _tables(url: str) -> list[str]:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return list(connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).scalars())
    finally:
        engine.dispose()


def test_each_database_is_fresh(postgres: PrivatePostgres, postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE mine (id int)"))
    engine.dispose()
    other = postgres.create()
    assert _tables(postgres_url) == ["mine"]
    assert _tables(postgres.url(other)) == []
    postgres.drop(other)
    with pytest.raises(psycopg.OperationalError, match=other):
        psycopg.connect(host=str(postgres.folder), user="postgres", dbname=other)


def test_the_server_is_gone_after_stop(postgres: PrivatePostgres) -> None:
    binaries = find_binaries()
    assert binaries is not None
    second = PrivatePostgres(binaries)
    assert second.folder != postgres.folder
    pid = int((second.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    watch = os.pidfd_open(pid)
    try:
        second.stop()
        ended, _, _ = select.select([watch], [], [], 10)
    finally:
        os.close(watch)
    assert ended == [watch]
    assert not second.folder.exists()


def test_the_programs_may_lie_where_only_this_user_can_reach_them(tmp_path: Path) -> None:
    binaries = find_binaries()
    assert binaries is not None
    tmp_path.chmod(0o700)
    server = PrivatePostgres(copy_programs(binaries, tmp_path / "private"))
    try:
        assert _tables(server.url(server.create())) == []
    finally:
        server.stop()
    assert tmp_path.stat().st_mode & 0o777 == 0o700
