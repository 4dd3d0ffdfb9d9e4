"""Lists beside very many who wait: each statement goes to what it looks for by an index, on every database.

What lives here: plans on tables that hold parked sessions, which requests are whose. What does not: how rows look
(server/test_prompts.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bot import outdated, prompts
from bot.approvals import Approval, ToolCall
from bot.context import ToolContext
from bot.participants import join_session
from bot.principal import Principal
from bot.tools import Tool, tool
from durable_core.clock import ManualClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.operations import child_run_id
from durable_core.schema import upgrade
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.testing.builders import START_MS, message
from tests.bot.session.actors import Log, calls
from tests.bot.session.kit import ALICE, BOB, FARAH, GUEST, open_thread, person

CAROL = person("carol")
PARKED = 10_000
SESSION = "ses_01h00000000123456789abcdef"
RUN = """
    INSERT INTO moor_run
        (run_id, name, status, phase, creator, session_key, header, spec_version, deployment, created_at, last_at)
    SELECT id, 'support', 'open', 'waiting', 'api:alice', {none}, {none}, 1, 'd', n, n FROM ({ids}) parked
"""
PROMPT = """
    INSERT INTO moor_prompt (run_id, prompt_id, kind, step_n, body, requester, policy, created_seq, created_at)
    SELECT id, 'prm_' || (n * 7919 % 10000), 'approval', 1, {none}, 'api:alice', 'requester', 1, n FROM ({ids}) parked
"""
SQLITE = {
    "none": "X''",
    "ids": f"""
        WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {PARKED})
        SELECT n, 'ses_01g' || printf('%07d', n) || '0123456789abcdef' AS id FROM numbers""",
}
POSTGRES = {
    "none": "''::bytea",
    "ids": f"""
        SELECT n, 'ses_01g' || lpad(n::text, 7, '0') || '0123456789abcdef' AS id FROM generate_series(1, {PARKED}) n""",
}
SLOW = ("Seq Scan", "Sort", "TEMP B-TREE", "moor_prompt_open")
Given = dict[str, str | int | bytes | None]
OF_OTHERS: Given = {"time": SESSION[4:14], "session": SESSION}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def parked(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Callable[[str], None]]]:
    """A store with parked sessions, of which the database has made no statistics, and a way to tell the database something."""
    url = f"sqlite:///{tmp_path / 'moorings.db'}" if request.param == "sqlite" else request.getfixturevalue("migrated_url")
    upgrade(url)
    store = open_store(url, keys=KeyRing.parse(new_key_entry()), clock=ManualClock(START_MS))
    await store.open()  # looks whether it has the keys, which these rows have none of

    def tell(sql: str) -> None:
        if request.param == "sqlite":
            with closing(sqlite3.connect(tmp_path / "moorings.db")) as file, file:
                file.execute(sql.format(**SQLITE))
        else:
            with psycopg.connect(url.replace("+psycopg", "")) as server:
                server.execute(sql.format(**POSTGRES).encode())

    if request.param == "postgres":  # which would make statistics by itself, sooner or later
        tell("ALTER TABLE moor_run SET (autovacuum_enabled = false); ALTER TABLE moor_prompt SET (autovacuum_enabled = false)")
    for statement in (RUN, PROMPT):
        tell(statement)
    yield store, tell
    await store.close()


async def plan(store: Store, sql: str, given: Given) -> str:
    explain = "EXPLAIN QUERY PLAN" if "sqlite" in type(store).__module__ else "EXPLAIN (COSTS OFF)"
    return "\n".join(str(row[-1]) for row in await store.rows(f"{explain} {sql}", given))


LISTS: list[tuple[str, Given, str]] = [
    (prompts.OF_OTHERS, OF_OTHERS, "moor_prompt_time"),
    (prompts.OPEN, {"at": 5_000, "after": "prm_1", "limit": 200}, "moor_prompt_asked"),
    (prompts.OPEN_TO, {"at": 5_000, "after": "prm_1", "limit": 200, "who": "api:bob", "mine": 0}, "moor_prompt_asked"),
    (outdated.OPEN, {"most": 500}, "moor_prompt_asked"),
]


async def test_a_list_is_an_index_away(parked: tuple[Store, Callable[[str], None]]) -> None:
    store, tell = parked
    before = [await plan(store, sql, given) for sql, given, _ in LISTS]
    tell("ANALYZE")
    after = [await plan(store, sql, given) for sql, given, _ in LISTS]
    for plans in (before, after):
        for found, (_, _, index) in zip(plans, LISTS, strict=True):
            assert index in found
            assert not [slow for slow in SLOW if slow in found], found


def test_a_run_that_works_for_a_session_has_its_time_in_its_id() -> None:
    child = child_run_id(SESSION, "0.0.0")
    assert child[len(child) - 26 :][:10] == SESSION[4:14]
    assert child != SESSION


async def test_a_list_comes_to_its_end_past_all_that_can_not_be_read(parked: tuple[Store, Callable[[str], None]]) -> None:
    store, tell = parked
    tell("DELETE FROM moor_prompt WHERE created_at > 500")
    assert [prompt async for prompt in prompts.every_open(store)] == []


def picky(call: ToolCall, who: Principal) -> bool:
    return who.id == FARAH.id


def pay(name: str, **gate: Any) -> Tool:
    @tool(name=name, approval=Approval(**gate))
    async def run(ctx: ToolContext[Log]) -> str:
        """Pay."""
        return "paid"

    return run


async def test_a_list_has_all_that_is_somebody_s_business_and_nothing_else() -> None:
    thread = await open_thread()
    gates: list[dict[str, Any]] = [{}, {"by": [BOB.id, CAROL.id]}, {"by": picky}, {}]
    thread.tools = tuple(pay(f"pay{number}", **gate) for number, gate in enumerate(gates))
    thread.hire("w1")
    for number in range(len(gates)):
        thread.model.script = [calls((f"pay{number}", {}))]
        thread.clock.advance(timedelta(seconds=1))
        address = f"fake:v1:{number}"
        await thread.say("hello", CAROL if number == 3 else ALICE, address=address)
        await thread.work()
    await thread.store.admit(replace(message(thread.run_id), extra=(join_session(thread.run_id, BOB.id, 1),)))
    every = [prompt async for prompt in prompts.every_open(thread.store)]
    assert len(every) == len(gates)
    for who, seen, own in ((ALICE, [0, 1, 2], [0]), (BOB, [1, 3], [1]), (CAROL, [1, 3], [1, 3]), (GUEST, [], [])):
        for mine, wanted in ((False, seen), (True, own)):
            listed = await thread.prompts.listed(who, everyone=False, session_id=None, mine=mine, after=None, limit=50)
            found = [row["request_id"] for row in listed["prompts"]]
            assert found == [every[place].prompt_id for place in wanted], (who.name, mine)
    everything = await thread.prompts.listed(GUEST, everyone=True, session_id=None, mine=False, after=None, limit=50)
    assert len(everything["prompts"]) == len(gates)
    thread.unwatch()
    await thread.store.close()
