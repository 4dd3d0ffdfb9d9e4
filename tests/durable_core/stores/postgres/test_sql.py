"""Statements as PostgreSQL takes them: numbered parameters, tables in a schema, values as every store gives them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from durable_core.clock import DatabaseClock
from durable_core.errors import Broken
from durable_core.stores.postgres.hosts import dsn
from durable_core.stores.postgres.sql import literal, numbered, plain, qualified, storable
from tests.durable_core.stores.postgres.conftest import Open


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT :a, :b, :a", ("SELECT $1, $2, $1", ("a", "b"))),
        ("SELECT :a::bigint", ("SELECT $1::bigint", ("a",))),
        ("SELECT x::text FROM t WHERE y = :y_1", ("SELECT x::text FROM t WHERE y = $1", ("y_1",))),
        ("SELECT ':no', 'it''s :no', :yes", ("SELECT ':no', 'it''s :no', $1", ("yes",))),
        ("SELECT 1", ("SELECT 1", ())),
    ],
)
def test_named_parameters_get_numbers(sql: str, wanted: tuple[str, tuple[str, ...]]) -> None:
    assert numbered(sql) == wanted


def test_tables_are_found_wherever_they_stand() -> None:
    sql = "INSERT INTO moor_lane (seq) VALUES (1) ON CONFLICT DO UPDATE SET seq = moor_lane.seq + 1"
    assert qualified(sql, 'a"b').count('"a""b".moor_lane') == 2
    assert qualified("SELECT x_moor_y, moor FROM moor_run", "s") == 'SELECT x_moor_y, moor FROM "s".moor_run'


@pytest.mark.parametrize(
    ("value", "wanted"), [(None, None), ("a", "a"), (b"a", b"a"), (True, 1), (Decimal(3), 3), (7, 7), (1.5, "1.5")]
)
def test_values_are_those_of_every_store(value: object, wanted: object) -> None:
    found = plain(value)
    assert (found, type(found)) == (wanted, type(wanted))


def test_errors_can_be_stored_whatever_they_say() -> None:
    assert storable("a\0b\ud800c") == "a\ufffdb?c"


def test_a_url_is_given_to_the_driver_without_the_other_drivers_name() -> None:
    assert dsn("postgresql+psycopg://u@h/d?host=/s") == "postgresql://u@h/d?host=/s"


async def test_a_literal_is_what_it_was(open_one: Open) -> None:
    store = await open_one()
    for text in ("plain", "it's", "back\\slash", "\\'; DROP TABLE moor_run; --"):
        assert await store.rows(f"SELECT {literal(text)}", {}) == [(text,)]


async def test_a_statement_from_above_says_what_it_lacks(open_one: Open) -> None:
    store = await open_one()
    assert await store.rows("SELECT count(*) FROM moor_run WHERE run_id = :a OR name = :a", {"a": "x"}) == [(0,)]
    with pytest.raises(Broken):
        await store.rows("SELECT run_id FROM moor_run WHERE run_id = :missing", {})
    with pytest.raises(Broken):
        await store.rows("SELECT nonsense FROM moor_run", {})


async def test_time_is_the_databases(open_one: Open) -> None:
    store = await open_one()
    assert DatabaseClock().override() is None
    first = await store.now()
    assert first <= await store.now()
    assert first > 1_700_000_000_000
