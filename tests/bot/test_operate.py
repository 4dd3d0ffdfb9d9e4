"""The operators' commands, on a file that a few conversations left; refusals in real processes."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from typer.testing import CliRunner

from bot.cli import commands
from durable_core import schema
from durable_core.clock import ManualClock
from durable_core.crypto import KeyRing
from durable_core.model import Abilities, Buried, CommandKind, Incarnation, NewRun, RunKind, ToNew
from durable_core.testing.builders import message
from tests.bot.command import environment, refusal, run
from tests.bot.session.actors import calls
from tests.bot.session.kit import Thread, open_thread
from tests.bot.session.versions import NEXT, PRESENT, new_code, next_format
from tests.durable_core.conformance.sqlite import KEYS

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A folder with a database, and who is in it."""

    folder: Path
    env: dict[str, str]
    idle: str
    parked: str
    workflow: str
    newer: str
    dead: str

    def say(self, *arguments: str) -> str:
        done = CliRunner().invoke(commands, arguments, env=self.env, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def ask(self, act: Callable[[Thread], Awaitable[T]]) -> T:
        """Look into the store."""

        async def look() -> T:
            clock = ManualClock(int(time.time() * 1000) + 1000)
            thread = await open_thread(str(self.folder / "m.db"), clock=clock, keys=KeyRing.parse(KEYS))
            try:
                return await act(thread)
            finally:
                await thread.store.close()

        return asyncio.run(look())


async def filled(path: str) -> dict[str, str]:
    """Have an idle session, a parked one, a stranded workflow run, one that newer code wrote, a dead letter."""
    found = {}
    thread = await open_thread(path, keys=KeyRing.parse(KEYS))
    new_code(thread, "v1")
    await thread.say("hello [bold]you[/bold]", address="fake:v1:idle")
    held = await thread.claim()
    assert held is not None
    await thread.runner.advance(held)
    (lane,) = await thread.store.claim_lanes("w", limit=1, lease_ms=60_000)
    found["dead"] = lane.items[0].delivery_id
    await thread.store.finish(lane, "w", Buried(delivery_id=found["dead"], error="channel_not_found", release=True))
    found["idle"] = thread.run_id
    thread.later_s(60)
    thread.model.script = [calls(("refund", {"amount": 20}))]
    await thread.say("refund 20", address="fake:v1:parked")
    await thread.work()
    found["parked"] = thread.run_id
    thread.later_s(60)
    order = NewRun(
        run_id="run_order", name="order", creator="a", header=b"\x01{}", deployment="v1", lifetime_ms=None, kind=RunKind.WORKFLOW
    )
    await thread.store.admit(message(ToNew(new=order)))
    thread.abilities = Abilities(sessions=False, workflows=("order",), code="c1")
    (claim,) = [(await thread.claim() or pytest.fail("none")).claim]
    assert claim.commands[0].kind is CommandKind.MESSAGE
    await thread.store.strand(claim.run_id, claim.epoch, reason="step:charge is asked, step:pay was recorded", code="c1")
    found["workflow"] = claim.run_id
    thread.later_s(60)
    with next_format():
        new_code(thread, "v2")
        await thread.say("hello", address="fake:v1:newer")
        await thread.work()
    found["newer"] = thread.run_id
    await thread.store.close()
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    path = tmp_path_factory.mktemp("template") / "m.db"
    schema.upgrade(f"sqlite:///{path}")
    return path, asyncio.run(filled(str(path)))


@pytest.fixture
def place(tmp_path: Path, template: tuple[Path, dict[str, str]]) -> Place:
    path, found = template
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(tmp_path / "m.db")) as new:
        old.backup(new)
    env = environment(MOORINGS_DATABASE_URL=f"sqlite:///{tmp_path}/m.db", MOORINGS_ENCRYPTION_KEYS=KEYS)
    return Place(tmp_path, env, **found)


def listed(text: str) -> list[str]:
    return re.findall(r"^((?:ses|run)_\w+)", text, re.MULTILINE)


def test_runs_are_listed_and_narrowed(place: Place) -> None:
    assert listed(place.say("runs")) == [place.newer, place.workflow, place.parked, place.idle]
    assert listed(place.say("runs", "--limit", "1")) == [place.newer]
    assert listed(place.say("runs", "--status", "waiting")) == [place.parked]
    assert listed(place.say("runs", "--status", "ended")) == []
    assert listed(place.say("runs", "--kind", "workflow")) == [place.workflow]
    assert listed(place.say("runs", "--deployment", "v2")) == [place.newer]
    assert listed(place.say("sessions")) == [place.newer, place.parked, place.idle]
    for option in (("--status", "odd"), ("--kind", "odd")):
        assert "odd is not known" in refusal(run(place.folder, "runs", *option, env=place.env))


def test_stranded_runs_are_listed_with_their_reason(place: Place) -> None:
    text = place.say("runs", "--stranded")
    assert listed(text) == [place.newer, place.workflow]
    assert "step:charge is asked, step:pay was recorded (code c1)" in text
    # who lives and reads it makes it an ordinary one
    abilities = Abilities(current=NEXT, code="c2")

    async def enrol(thread: Thread) -> None:
        await thread.store.enrol(Incarnation(owner="newer", deployment="v2", abilities=abilities))

    place.ask(enrol)
    with closing(sqlite3.connect(place.folder / "m.db")) as file:
        file.execute("UPDATE moor_worker SET heartbeat = unixepoch() * 1000")
        file.commit()
    assert listed(place.say("runs", "--stranded")) == [place.workflow]


def test_a_run_is_shown_with_all_that_is_in_it(place: Place) -> None:
    text = place.say("inspect", place.parked)
    assert f"{place.parked}  session support, open, waiting" in text
    for words in ("Steps", "Requests", "Events", '"Refund 20?"', "input.requested", f"spec_version {PRESENT}", "deployment v1"):
        assert words in text
    assert "hello [bold]you[/bold]" in place.say("inspect", place.idle)
    assert f"format {NEXT}" in place.say("inspect", place.newer)
    done = run(place.folder, "inspect", "ses_nobody", env=place.env)
    assert refusal(done) == "no run 'ses_nobody'"


def test_of_what_was_forgotten_only_ids_and_times_are_shown(place: Place) -> None:
    async def forget(thread: Thread) -> bool:
        await thread.store.end(place.idle, reason="reset", events=())
        return await thread.store.forget(place.idle)

    assert place.ask(forget)
    text = place.say("inspect", place.idle)
    assert "Its content was deleted" in text
    assert "ended" in text
    assert "hello" not in text


def test_a_stranded_run_is_offered_again(place: Place) -> None:
    assert place.say("resume", place.workflow) == f"{place.workflow} is offered to the code that runs again.\n"
    assert listed(place.say("runs", "--stranded")) == [place.newer]
    assert "is not stranded" in place.say("resume", place.idle)


def test_what_a_run_does_is_stopped(place: Place) -> None:
    assert place.say("cancel", place.parked) == f"{place.parked} is told to stop.\n"
    assert place.say("cancel", place.idle) == f"{place.idle} does nothing that could be stopped.\n"

    async def work(thread: Thread) -> str:
        await thread.work()
        return (await thread.store.run(place.parked)).phase.value

    assert place.ask(work) == "idle"


def test_a_deployment_is_retired(place: Place) -> None:
    assert listed(place.say("runs", "retire", "--deployment", "v1")) == [place.workflow, place.parked, place.idle]
    assert len(listed(place.say("runs", "--status", "ended"))) == 0
    text = place.say("runs", "retire", "--deployment", "v1", "--end")
    assert text.endswith("3 runs of v1 were ended.\n")
    assert set(listed(place.say("runs", "--status", "ended"))) == {place.workflow, place.parked, place.idle}
    assert "retired" in place.say("runs")
    assert listed(place.say("runs", "--status", "open")) == [place.newer]


def test_dead_letters_are_listed_and_sent_again(place: Place) -> None:
    text = place.say("outbox")
    assert place.dead in text
    assert "channel_not_found" in text
    assert "owed again" in place.say("outbox", "replay", place.dead)
    assert place.say("outbox") == "Nothing.\n"
    assert place.dead in place.say("outbox", "--pending")
    assert "dead letter" in refusal(run(place.folder, "outbox", "replay", place.dead, env=place.env))

    async def sent(thread: Thread) -> list[str]:
        await thread.work()
        return [shown.delivery.id for shown in thread.channel.shown]

    assert place.ask(sent).count(place.dead) == 1


def test_the_data_of_a_demo_is_found_by_its_folder(place: Place, tmp_path: Path) -> None:
    data = tmp_path / ".moorings"
    data.mkdir()
    (place.folder / "m.db").rename(data / "moorings.db")
    (data / "keys").write_text(KEYS)
    env = environment()
    assert listed(run(tmp_path, "runs", env=env).stdout)[0] == place.newer
    assert listed(run(tmp_path, "runs", "--data", ".moorings", env=env).stdout)[0] == place.newer
    assert "holds no data" in refusal(run(tmp_path, "runs", "--data", "elsewhere", env=env))
    assert "does not say" in refusal(run(tmp_path, "runs", "--dormant", env=env))
    (data / "started").write_text("1700000100000\n")
    assert listed(run(tmp_path, "runs", "--dormant", env=env).stdout) == [place.parked]


def test_without_a_database_there_is_a_reason(tmp_path: Path) -> None:
    assert "MOORINGS_ENCRYPTION_KEYS" in refusal(run(tmp_path, "runs", env=environment()))


@pytest.mark.parametrize(
    "command", [("inspect",), ("cancel",), ("resume",), ("forget",), ("outbox", "replay"), ("runs", "--status")]
)
def test_an_argument_that_is_not_text_is_refused(place: Place, command: tuple[str, ...]) -> None:
    assert "is not text" in refusal(run(place.folder, *command, os.fsdecode(b"ses_\xff"), env=place.env))
