"""Which database this code works on, and how far a migration goes."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, pool

from durable_core import revisions, schema
from durable_core.clock import DatabaseClock
from durable_core.crypto import KeyRing
from durable_core.errors import OlderWorkers, SchemaOutdated
from durable_core.model import Incarnation
from durable_core.stores.open import open_store
from tests.durable_core.conformance.sqlite import KEYS
from tests.durable_core.migrating import TAKES, as_later_code, later_folder

OURS = ("0001_pre_a", "0002_pre_b", "0003_post_c", "0004_pre_d", "0005_post_e")
PRE, POST, AFTER = "9997_pre_x", "9998_post_y", "9999_pre_z"


def test_names_and_order_are_those_of_the_chain() -> None:
    chain = [script.revision for script in ScriptDirectory.from_config(schema.config()).walk_revisions()]
    assert tuple(reversed(chain)) == schema.known()
    assert schema.known()[-1] == schema.HEAD
    assert not [name for name in schema.known() if revisions.is_post(name)], "mention the first post in docs/deploys.md"


@pytest.mark.parametrize(
    ("found", "migrate", "finish"),
    [
        (None, "0005_post_e", "0005_post_e"),
        ("0001_pre_a", "0002_pre_b", "0005_post_e"),
        ("0002_pre_b", None, "0005_post_e"),
        ("0003_post_c", "0004_pre_d", "0005_post_e"),
        ("0004_pre_d", None, "0005_post_e"),
        ("0005_post_e", None, None),
        ("0006_pre_unknown", None, None),
    ],
)
def test_a_migration_stops_before_what_older_code_needs(found: str | None, migrate: str | None, finish: str | None) -> None:
    assert revisions.target(OURS, found, finish=False) == migrate
    assert revisions.target(OURS, found, finish=True) == finish


@pytest.mark.parametrize(
    ("found", "applied", "cure"),
    [
        (None, (), "run `moorings migrate`"),
        ("0001_pre_a", (), "run `moorings migrate`"),
        ("0002_pre_b", (), "run `moorings migrate --finish`"),
        ("0003_post_c", (), "run `moorings migrate`"),
        ("0004_pre_d", (), None),
        ("0005_post_e", (), None),
        ("0006_pre_f", (*OURS, "0006_pre_f"), None),
        ("0007_pre_g", (*OURS, "0006_post_f", "0007_pre_g"), "0006_post_f is for newer versions only"),
        ("0006_post_f", (*OURS, "0006_post_f"), "0006_post_f is for newer versions only"),
        ("0006_odd", (*OURS, "0006_odd"), "0006_odd is for newer versions only"),
        ("0006_pre_f", (*OURS[:4], "0006_pre_f"), "run `moorings migrate`"),
        ("elsewhere", (), "run `moorings migrate`"),
    ],
)
def test_code_works_on_what_has_all_it_needs(found: str | None, applied: tuple[str, ...], cure: str | None) -> None:
    if cure is None:
        revisions.check(OURS, found, applied)
        return
    with pytest.raises(SchemaOutdated) as refused:
        revisions.check(OURS, found, applied)
    assert cure in str(refused.value)
    assert refused.value.found == found


async def test_a_newer_schema_that_only_added_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "moorings.db"
    url = f"sqlite:///{path}"
    schema.upgrade(url)
    with as_later_code(later_folder(tmp_path, PRE)):
        assert schema.upgrade(url) == schema.Migrated(at=PRE, changed=True)
    schema.check(path)
    assert schema.upgrade(url) == schema.Migrated(at=PRE, changed=False), "older code leaves a newer schema as it is"
    store = open_store(url, keys=KeyRing.parse(KEYS), clock=DatabaseClock())
    await store.open()
    await store.close()


async def test_a_newer_schema_that_took_something_away_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "moorings.db"
    url = f"sqlite:///{path}"
    schema.upgrade(url)
    with as_later_code(later_folder(tmp_path, POST, AFTER, change=TAKES)):
        # without it, the pre behind it waits as well
        assert schema.upgrade(url) == schema.Migrated(at=schema.HEAD, changed=False, waiting=(POST, AFTER))
        with pytest.raises(SchemaOutdated, match="migrate --finish"):
            schema.check(path)
        assert schema.upgrade(url, finish=True) == schema.Migrated(at=AFTER, changed=True)
        schema.check(path)
    with pytest.raises(SchemaOutdated, match=POST):
        await open_store(url, keys=KeyRing.parse(KEYS), clock=DatabaseClock()).open()


async def test_a_pending_post_keeps_nobody_from_starting(tmp_path: Path) -> None:
    path = tmp_path / "moorings.db"
    schema.upgrade(f"sqlite:///{path}")
    with as_later_code(later_folder(tmp_path, POST, change=TAKES)):
        schema.check(path)
        store = open_store(f"sqlite:///{path}", keys=KeyRing.parse(KEYS), clock=DatabaseClock())
        await store.open()
        await store.close()


async def test_finishing_waits_for_older_workers_and_says_which(tmp_path: Path) -> None:
    path = tmp_path / "moorings.db"
    url = f"sqlite:///{path}"
    schema.upgrade(url)
    store = open_store(url, keys=KeyRing.parse(KEYS), clock=DatabaseClock())
    await store.open()
    await store.enrol(Incarnation(owner="w1", deployment="v1", host="box", pid=17))
    await store.enrol(Incarnation(owner="w2", deployment="v2", host="box", pid=18))
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE moor_worker SET revision = ? WHERE owner = 'w2'", (POST,))
        file.commit()
    with as_later_code(later_folder(tmp_path, PRE, POST)):
        with pytest.raises(OlderWorkers) as refused:
            schema.upgrade(url, finish=True)
        assert (refused.value.revision, refused.value.workers) == (POST, ("v1 (box, process 17)",))
        assert schema.found_version(path) == schema.HEAD, "nothing was applied"
        assert schema.upgrade(url).at == PRE, "what is safe is applied all the same"
        await store.withdraw("w1")
        assert schema.upgrade(url, finish=True) == schema.Migrated(at=POST, changed=True)
    await store.close()


def test_a_worker_of_which_nothing_was_heard_holds_nothing_up(tmp_path: Path) -> None:
    path = tmp_path / "moorings.db"
    schema.upgrade(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as file:
        file.execute(
            "INSERT INTO moor_worker (owner, deployment, min_readable, current, host, pid, started_at, heartbeat)"
            " VALUES ('w', 'v0', 1, 1, 'box', 1, 0, ?)",
            (int(time.time() * 1000) - 2 * schema.ALIVE_MS,),
        )
        file.commit()
    with as_later_code(later_folder(tmp_path, POST, change=TAKES)):
        assert schema.upgrade(f"sqlite:///{path}", finish=True).at == POST


def test_a_worker_that_says_nothing_of_revisions_is_older(postgres_url: str) -> None:
    schema.upgrade(postgres_url)
    engine = create_engine(postgres_url, poolclass=pool.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO moor_worker (owner, deployment, min_readable, current, host, pid, started_at, heartbeat) VALUES"
            " ('w', 'v0', 1, 1, 'box', 1, 0, (extract(epoch from clock_timestamp()) * 1000)::bigint)"
        )
    with engine.connect() as connection, pytest.raises(OlderWorkers, match=r"v0 \(box, process 1\)"):
        schema._refuse_older(connection, POST)
    engine.dispose()
