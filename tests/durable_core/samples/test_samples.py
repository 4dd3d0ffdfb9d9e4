"""What every version so far has written reads under this code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine, pool

from bot import formats
from bot.flows.origin import read_origin
from bot.formats import Kind
from bot.history import from_json, to_json
from bot.model import reply_from_json, reply_to_json
from bot.turn.state import Purpose, Stage, body_from_json, body_to_json, state_from_json, state_to_json
from bot.undelivered import undelivered_card
from channels.cards import Card
from durable_core import codec, schema, versions
from durable_core.crypto import KeyRing
from durable_core.engine import formats as engine_formats
from durable_core.engine.starts import read_header
from durable_core.model import AnswerPolicy, Prompt, PromptOutcome, RecordKind
from tests.bot.session.kit import open_thread
from tests.durable_core.conformance.sqlite import KEYS
from tests.durable_core.samples.loading import HERE, Sample, bodies, first_file, into, states
from tests.durable_core.samples.make import FLOW, FLOW_KINDS, KINDS, shape

VERSIONS = range(versions.MIN_READABLE_SPEC, versions.CURRENT_SPEC + 1)


def understood(sample: Sample) -> object:
    """Make of a body what the code makes of it that acts on it."""
    if sample.kind.startswith(FLOW):
        return understood_by_an_engine(sample)
    value = formats.read(Kind(sample.kind), sample.body, run_id="ses_sample")
    match sample.kind:
        case "command" if sample.of == "message":
            return body_from_json(value)
        case "command" if sample.of == "response":
            return (value["prompt_id"], PromptOutcome(value["outcome"]))
        case "command" if sample.of == "signal":
            return value["run_id"] if value["kind"] != "undeliverable" else undelivered_card(value)
        case "step":
            return [from_json(item) for item in value["items"]], state_from_json(value["state"])
        case "record" if sample.of == RecordKind.REPLY:
            return reply_from_json(value["reply"])
        case "record" if sample.of == RecordKind.RESULT:
            return from_json(value)
        case "record" if sample.of == "answer":
            return value["seq"], value["prompt_id"], value["option_id"]
        case "prompt":
            return card_of(sample)
        case "outbox":
            return value["kind"]
        case "answer":
            return value["principal"], value["place"]
        case _:
            return value


def understood_by_an_engine(sample: Sample) -> object:
    kind = sample.kind.removeprefix(FLOW)
    if kind == "header":
        start = read_header(sample.body, "run_sample")
        return start, read_origin(start.origin)
    if kind == "event":
        return codec.decode(sample.body)
    value = engine_formats.read(engine_formats.Kind(kind), sample.body, run_id="run_sample")
    match kind:
        case "command" if sample.of in ("signal", "response"):
            return value["kind"] if sample.of == "signal" else value["prompt_id"]
        case "step" if "ok" in value:
            return value["value"] if value["ok"] else value["error"]
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
        of_workflows = FLOW_KINDS if version > versions.FIRST_SPEC else ()
        assert kinds == {*KINDS, *of_workflows}, (
            f"v{version}: run python -m tests.durable_core.samples.make before the format changes again"
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_sample_reads_under_this_code(version: int) -> None:
    for sample in bodies(version):
        assert codec.written_by(sample.body) == version
        understood(sample)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_of_a_sample_is_dropped_by_reading_it(version: int) -> None:
    """A field that was renamed without an upcaster reads as its default: nobody would be told."""
    for sample in bodies(version):
        if sample.kind not in ("step", "command", "record"):
            continue
        stored = formats.read(Kind(sample.kind), sample.body, run_id="ses_sample")
        match sample.kind, sample.of:
            case "step", _:
                again: Any = {
                    "items": [to_json(from_json(item)) for item in stored["items"]],
                    "state": state_to_json(state_from_json(stored["state"])),
                }
                stored = {name: stored[name] for name in again}
            case "command", "message":
                again = body_to_json(body_from_json(stored))
            case "record", "reply":
                again = {**stored, "reply": reply_to_json(reply_from_json(stored["reply"]))}
            case "record", "result":
                again = to_json(from_json(stored))
            case _:
                continue
        assert set(shape(stored)) <= set(shape(again)), sample.of


def test_the_newest_samples_show_whatever_can_be_waited_for() -> None:
    samples = bodies(versions.CURRENT_SPEC)
    values: Any = [(sample.kind, sample.of, codec.decode(sample.body)) for sample in samples]
    states = [state_from_json(value["state"]) for kind, _, value in values if kind == "step"]
    pending = [one for state in states if state.turn is not None for one in state.turn.pending]
    assert {one.stage for one in pending} == set(Stage) - {Stage.READY}, "what is let run, runs in the same step"
    assert {one.purpose for one in pending} == set(Purpose)
    assert any(one.requests for one in pending), "a workflow asks"
    assert any(one.earlier is not None and one.consent is not None for one in pending), "a yes is kept over a sign-in"
    shared = [one.prompt_id for one in pending if one.purpose is Purpose.SIGN_IN]
    assert len(shared) > len(set(shared)), "calls wait for one sign-in"
    items = [item for kind, _, value in values if kind == "step" for item in value["items"]]
    assert any(item.get("private_to") for item in items), "a result is somebody's own"
    assert any(of == "refused" for kind, of, _ in values if kind == "record"), "a token was refused"
    assert any(one.stopping for one in pending), "a workflow was told to stop"
    assert any(state.turn is not None and state.turn.extra_calls for state in states), "a turn may go on past its limit"
    assert any(state.extra_tokens for state in states), "and past its tokens"
    assert any(one.group is not None and one.prompt_id != one.group for one in pending), "calls share a card"
    assert any(state.grants for state in states), "a yes counts for later"
    assert {value.get("quorum", 1) for kind, _, value in values if kind == "prompt"} == {1, 2}
    assert any(value.get("edits") for kind, _, value in values if kind == "note"), "a call was changed before the yes"
    assert any(value.get("origin") for kind, _, value in values if kind == f"{FLOW}header"), "a call started a run"
    signals = {value["kind"] for kind, of, value in values if (kind, of) == ("command", "signal")}
    assert signals == {"asked", "resolved", "progress", "child", "undeliverable"}


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
        shown = next(one.card for one in reversed(thread.channel.cards) if one.card.question == "Refund 20?")
        assert (shown.buttons, shown.outcome and shown.outcome.text) == ((), "Approved by Alice")
        written = [codec.written_by(step.output) for step in await thread.store.steps(found.run_id)]
        assert {written[0], written[-1]} == {versions.FIRST_SPEC, versions.CURRENT_SPEC}
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
