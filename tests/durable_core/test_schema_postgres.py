"""Migrations on PostgreSQL: into a schema of their own, taking turns, and refused in one sentence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, inspect, make_url, pool

from durable_core import schema, tables
from durable_core.errors import Broken, Unavailable

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
