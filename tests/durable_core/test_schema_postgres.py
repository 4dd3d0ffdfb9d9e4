"""Migrations on PostgreSQL: into a schema of their own, taking turns, and refused in one sentence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, inspect, make_url, pool

from durable_core import schema, tables
from durable_core.clock import DatabaseClock
from durable_core.errors import Broken, Unavailable
from tests.durable_core.conformance.postgres import postgres_store
from tests.postgres import PrivatePostgres

ODD = 'a "b"'


def tables_in(url: str, namespace: str) -> set[str]:
    engine = create_engine(url, poolclass=pool.NullPool)
    return set(inspect(engine).get_table_names(schema=namespace))


def test_an_upgrade_says_whether_there_was_anything_to_do(postgres_url: str) -> None:
    assert schema.upgrade(postgres_url).changed
    assert not schema.upgrade(postgres_url).changed


def test_a_namespace_is_made_and_holds_everything(postgres_url: str) -> None:
    assert schema.upgrade(postgres_url, namespace=ODD).changed
    assert tables_in(postgres_url, ODD) == {*tables.metadata.tables, tables.VERSION_TABLE}
    assert tables_in(postgres_url, "public") == set()
    assert not schema.upgrade(postgres_url, namespace=ODD).changed


def test_two_namespaces_of_one_database_know_nothing_of_each_other(postgres_url: str) -> None:
    assert schema.upgrade(postgres_url).changed
    assert schema.upgrade(postgres_url, namespace="other").changed
    assert tables_in(postgres_url, "other") == tables_in(postgres_url, "public")


def test_upgrades_at_once_take_turns(postgres_url: str) -> None:
    with ThreadPoolExecutor() as threads:
        done = [threads.submit(schema.upgrade, postgres_url, namespace="shared") for _ in range(4)]
    assert sorted(one.result().changed for one in done) == [False, False, False, True]


def test_a_plain_url_is_enough(postgres_url: str) -> None:
    for name in ("postgresql", "postgresql+asyncpg"):
        schema.upgrade(make_url(postgres_url).set(drivername=name).render_as_string(hide_password=False))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_can_not_hold_every_name_is_refused(postgres: PrivatePostgres, encoding: str) -> None:
    name = f"moor_{encoding.lower()}"
    postgres._execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}'")
    with pytest.raises(Broken, match=f"{encoding}.*ENCODING 'UTF8'"):
        schema.upgrade(postgres.url(name))
    with pytest.raises(Broken, match=f"{encoding}.*ENCODING 'UTF8'"):
        await postgres_store(postgres.url(name), DatabaseClock()).open()
    postgres.drop(name)


async def test_what_a_database_says_of_isolation_is_not_heeded(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=pool.NullPool)
    with engine.begin() as connection:
        name = connection.engine.url.database
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    schema.upgrade(postgres_url)
    store = postgres_store(postgres_url, DatabaseClock())
    await store.open()
    assert await store.rows("SELECT current_setting('default_transaction_isolation')", {}) == [("read committed",)]
    await store.close()


def test_a_server_that_is_away_is_worth_another_try() -> None:
    with pytest.raises(Unavailable) as caught:
        schema.upgrade("postgresql://localhost:1/nowhere")
    assert "\n" not in str(caught.value)


def test_a_user_who_may_not_is_told_so(postgres_url: str) -> None:
    owner = create_engine(postgres_url, poolclass=pool.NullPool)
    with owner.begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS moor_guest")
        connection.exec_driver_sql("CREATE ROLE moor_guest LOGIN")
    guest = make_url(postgres_url).set(username="moor_guest").render_as_string(hide_password=False)
    with pytest.raises(Broken, match="permission denied"):
        schema.upgrade(guest, namespace="mine")
    with owner.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA mine AUTHORIZATION moor_guest")
    assert schema.upgrade(guest, namespace="mine").changed
    with owner.begin() as connection:
        connection.exec_driver_sql("DROP OWNED BY moor_guest CASCADE")
        connection.exec_driver_sql("DROP ROLE moor_guest")
