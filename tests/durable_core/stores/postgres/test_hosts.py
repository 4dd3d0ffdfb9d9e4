"""URLs that name several hosts: one URL each, as the drivers take it."""

from __future__ import annotations

import pytest

from durable_core.stores.postgres.hosts import dsn, each, wanted, wants_other


def test_hosts_in_their_place_keep_their_ports() -> None:
    assert each("postgresql://u:p%40@a:1,b:2/db?sslmode=require") == {
        "a:1": "postgresql://u:p%40@a:1/db?sslmode=require",
        "b:2": "postgresql://u:p%40@b:2/db?sslmode=require",
    }


def test_hosts_and_ports_as_parameters_are_taken_in_pairs() -> None:
    assert each("postgresql://u@/db?host=/run/a,/run/b&port=1,2&sslmode=disable") == {
        "/run/a:1": "postgresql://u@/db?sslmode=disable&host=/run/a&port=1",
        "/run/b:2": "postgresql://u@/db?sslmode=disable&host=/run/b&port=2",
    }


def test_one_port_is_that_of_all() -> None:
    assert each("postgresql://a,b/db?port=7") == {"a:7": "postgresql://a/db?port=7", "b:7": "postgresql://b/db?port=7"}


@pytest.mark.parametrize(
    "url", ["postgresql://u:p@a:1/db", "postgresql:///db", "postgresql://u@/db?host=/run/a", "postgres://[::1]:5/d"]
)
def test_one_host_stays_as_it_is(url: str) -> None:
    assert list(each(url).values()) == [url]


@pytest.mark.parametrize(
    "url", ["postgresql://a:x,b/db", "postgresql://a,,b/db", "postgresql://a,b/db?port=1,2,3", "postgresql://a,b:99999/d"]
)
def test_nonsense_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        each(url)


def test_a_url_may_say_which_server_will_do() -> None:
    assert wanted("postgresql://a,b/db?x=1&target_session_attrs=any") == "any"
    assert wanted("postgresql://a,b/db?x=target_session_attrs") is None
    assert wants_other("postgresql://a/db?target_session_attrs=prefer-standby")
    for url in ("postgresql://a/db", "postgresql://a/db?target_session_attrs=read-write"):
        assert not wants_other(url)


def test_the_name_of_sqlalchemys_driver_is_left_out() -> None:
    assert dsn("postgresql+psycopg://a/db") == "postgresql://a/db"
