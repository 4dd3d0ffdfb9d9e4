"""The statements of this layer, which have to run on every database as they stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import make_url

from bot.agent import Agent
from bot.app import Bot
from bot.forget import forget_principal, forget_session, traces
from bot.participants import join_session, takes_part
from bot.redaction import words_of
from bot.runtime import Runtime, open_runtime
from bot.settings import Settings, sqlite_url
from durable_core.crypto import new_key_entry
from durable_core.keys import keys_in_use
from durable_core.model import Phase
from durable_core.schema import upgrade
from durable_core.testing.acts import asked, start
from durable_core.testing.builders import ADDRESS, ALICE, BOB, CHANNEL, message, step_commit

NAMESPACE = "support"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """A migrated database; on PostgreSQL the tables are in a schema of their own."""
    if request.param == "sqlite":
        url, namespace = sqlite_url(tmp_path), None
    else:
        given = make_url(request.getfixturevalue("postgres_url"))
        url, namespace = given.set(drivername="postgresql").render_as_string(hide_password=False), NAMESPACE
    upgrade(url, namespace=namespace)
    return Settings(tmp_path, url, namespace=namespace, encryption_keys=new_key_entry(), deployment="d1")


async def opened(settings: Settings) -> Runtime:
    agents = [Agent("support", "scripted")]
    return await open_runtime(Bot(agents=agents), settings, role="web", console=True)


async def test_who_takes_part_is_kept_once(settings: Settings) -> None:
    runtime = await opened(settings)
    try:
        store = runtime.store
        claim = await start(store)
        join = join_session(claim.run_id, ALICE, 1)
        await store.commit(step_commit(claim, extra=(join, join)))
        await store.admit(message(claim.run_id, extra=(join,)))
        assert await takes_part(store, claim.run_id, ALICE)
        assert not await takes_part(store, claim.run_id, BOB)
    finally:
        await runtime.close()


async def test_a_click_counts_where_a_copy_was_put(settings: Settings) -> None:
    runtime = await opened(settings)
    try:
        _, prompt_id = await asked(runtime.store, copies=("here",))
        prompt = await runtime.store.prompt(prompt_id)
        assert await runtime.answers.put_at(prompt, (CHANNEL, "here"))
        assert not await runtime.answers.put_at(prompt, (CHANNEL, "there"))
    finally:
        await runtime.close()


async def test_the_board_knows_which_threads_wait(settings: Settings) -> None:
    runtime = await opened(settings)
    try:
        await asked(runtime.store)
        assert runtime.console is not None
        assert await runtime.console.threads() == []
        sql = "SELECT a.address FROM moor_address a JOIN moor_run r ON r.run_id = a.run_id WHERE r.phase = :phase"
        assert await runtime.store.rows(sql, {"phase": Phase.WAITING.value}) == [(ADDRESS,)]
    finally:
        await runtime.close()


async def test_somebodys_words_are_found_and_forgotten(settings: Settings) -> None:
    runtime = await opened(settings)
    try:
        store = runtime.store
        claim = await start(store)
        found = await traces(store, ALICE)
        assert (found.alone, found.shared) == ((claim.run_id,), ())
        assert await words_of(store, claim.run_id, ALICE) != {}
        await store.admit(replace(message(claim.run_id), principal=BOB))
        found = await traces(store, BOB)
        assert (found.alone, found.shared) == ((), (claim.run_id,))
        forgotten = await forget_principal(store, BOB, by="operator")
        assert set(forgotten.redacted) == {claim.run_id}
        assert await forget_session(store, claim.run_id, by="operator")
        assert await keys_in_use(store) == {}
        assert (await traces(store, ALICE)).alone == ()
    finally:
        await runtime.close()
