"""What every version so far has written reads under this code."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine, pool

from bot import formats
from bot.formats import Kind
from bot.history import from_json
from bot.model import reply_from_json
from bot.turn.state import body_from_json, state_from_json
from channels.cards import Card
from durable_core import codec, schema, versions
from durable_core.crypto import KeyRing
from durable_core.model import AnswerPolicy, Prompt, PromptOutcome, RecordKind
from tests.bot.session.kit import open_thread
from tests.durable_core.conformance.sqlite import KEYS
from tests.durable_core.samples.loading import HERE, Sample, bodies, first_file, into, states
from tests.durable_core.samples.make import KINDS

VERSIONS = range(versions.MIN_READABLE_SPEC, versions.CURRENT_SPEC + 1)


def understood(sample: Sample) -> object:
    """Make of a body what the code makes of it that acts on it."""
    value = formats.read(Kind(sample.kind), sample.body, run_id="ses_sample")
    match sample.kind:
        case "command" if sample.of == "message":
            return body_from_json(value)
        case "command" if sample.of == "response":
            return (value["prompt_id"], PromptOutcome(value["outcome"]))
        case "step":
            return [from_json(item) for item in value["items"]], state_from_json(value["state"])
        case "record" if sample.of == RecordKind.REPLY:
            return reply_from_json(value["reply"])
        case "record" if sample.of == RecordKind.RESULT:
            return from_json(value)
        case "prompt":
            return card_of(sample)
        case "outbox":
            return value["kind"]
        case "answer":
            return value["principal"], value["place"]
        case _:
            return value


def card_of(sample: Sample) -> Card:
    from bot.cards import card

    prompt = Prompt(
        prompt_id="prm_sample",
        run_id="ses_sample",
        kind=sample.of,
        step_n=0,
        call_id=None,
        body=sample.body,
        requester="fake:alice",
        policy=AnswerPolicy.REQUESTER,
        created_seq=1,
        created_at=0,
        expires_at=None,
    )
    return card([prompt])


def test_no_version_is_without_samples() -> None:
    for version in VERSIONS:
        kinds = {sample.kind for sample in bodies(version)}
        assert kinds == set(KINDS), f"v{version}: run python -m tests.durable_core.samples.make before the format changes again"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_sample_reads_under_this_code(version: int) -> None:
    for sample in bodies(version):
        assert codec.written_by(sample.body) == version
        understood(sample)


async def test_a_file_of_the_first_revision_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "moorings.db"
    first_file(path)
    assert schema.found_version(path) == "0001_pre_spine"
    assert schema.upgrade(f"sqlite:///{path}").changed
    assert schema.found_version(path) == schema.HEAD
    thread = await open_thread(str(path), keys=KeyRing.parse(KEYS))
    thread.later_s(6 * 3_600)
    try:
        found = await thread.store.run_at("fake", "fake:v1:parked")
        assert found is not None
        thread.run_id = found.run_id
        # what a killed worker left is taken up, what waits for a person is answered
        (died,) = [owner for (owner,) in await thread.store.rows("SELECT owner FROM moor_run WHERE owner IS NOT NULL", {})]
        await thread.store.reap(str(died))
        await thread.click("approve")
        await thread.work()
        assert sorted(thread.log.names()) == ["put_once", "refund"]
        await thread.check(rebuilt=False)  # the first version told less in a run's list
        before = await thread.store.steps(found.run_id)
        await thread.say("and once more", address="fake:v1:parked")
        await thread.work()
        assert len(await thread.store.steps(found.run_id)) > len(before)
        assert (await thread.store.run(found.run_id)).deployment == "d1"
    finally:
        await thread.store.close()


def test_a_database_of_the_first_revision_keeps_its_rows_on_postgres(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=pool.NullPool)
    settings = schema.config()
    with engine.begin() as connection:
        settings.attributes["connection"] = connection
        command.upgrade(settings, "0001_pre_spine")
        into(connection)
        before = dict(states(connection))
    assert before["moor_run"] == 3
    done = schema.upgrade(postgres_url, finish=True)
    assert (done.at, done.changed) == (schema.HEAD, True)
    with engine.connect() as connection:
        assert dict(states(connection)) == before
        names = connection.exec_driver_sql("SELECT name FROM moor_revision ORDER BY name").scalars().all()
        kinds = connection.exec_driver_sql("SELECT DISTINCT kind FROM moor_run").scalars().all()
    assert tuple(names) == schema.known()
    assert kinds == ["session"]
    engine.dispose()


def test_the_samples_are_beside_the_script_that_made_them() -> None:
    assert (HERE / "make.py").is_file()
