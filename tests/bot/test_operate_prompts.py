"""The commands about requests, the audit, and what an app does with a call, on a file that a few conversations left."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import JsonValue
from typer.testing import CliRunner

from bot.cli import commands
from bot.errors import NotReady
from durable_core import schema
from durable_core.clock import ManualClock
from durable_core.crypto import KeyRing
from durable_core.model import Buried
from tests.bot.command import environment
from tests.bot.session.actors import calls
from tests.bot.session.kit import Thread, open_thread
from tests.bot.session.test_given import by_bob, drop, pay
from tests.durable_core.conformance.sqlite import KEYS

T = TypeVar("T")
ASKED: dict[str, tuple[str, dict[str, JsonValue]]] = {
    "bobs": ("by_bob", {"n": 1}),
    "quorum": ("drop", {}),
    "refund": ("refund", {"amount": 7}),
}
DEMO = ("--app", "bot.demo:bot")


@dataclass(frozen=True)
class Place:
    """A folder with a database, and the requests in it."""

    folder: Path
    env: dict[str, str]
    bobs: str
    quorum: str
    refund: str
    sessions: dict[str, str]

    def run(self, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(commands, arguments, env=self.env)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    def say(self, *arguments: str) -> str:
        code, text = self.run(*arguments)
        assert code == 0, text
        return text

    def ask(self, act: Callable[[Thread], Awaitable[T]]) -> T:
        async def look() -> T:
            thread = await reopened(self.folder)
            try:
                return await act(thread)
            finally:
                await thread.store.close()

        return asyncio.run(look())


async def reopened(folder: Path) -> Thread:
    clock = ManualClock(int(time.time() * 1000) + 1000)
    thread = await open_thread(str(folder / "m.db"), clock=clock, keys=KeyRing.parse(KEYS))
    thread.tools = (*thread.tools, by_bob, drop, pay)
    thread.hire("w2")
    return thread


async def filled(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"sessions": {}}
    thread = await open_thread(str(folder / "m.db"), clock=ManualClock(int(time.time() * 1000)), keys=KeyRing.parse(KEYS))
    for number, (name, asked) in enumerate(ASKED.items()):
        thread.model.script = []
        address = f"fake:v1:{name}"
        thread.tools = (*thread.tools, by_bob, drop, pay) if number == 0 else thread.tools
        thread.hire("w1")
        thread.model.script = [calls(asked)]
        await thread.say("go", address=address)
        held = await thread.claim()
        assert held is not None
        await thread.runner.advance(held)
        found[name] = (await thread.prompt()).prompt_id
        found["sessions"][name] = thread.run_id
        (lane,) = await thread.store.claim_lanes("w1", limit=1, lease_ms=60_000)
        if name == "bobs":
            dead = Buried(delivery_id=lane.items[0].delivery_id, error="channel_not_found", release=True)
            await thread.store.finish(lane, "w1", dead)
        else:
            await thread.store.release_lane(lane, "w1")
        thread.later_s(1)
    await thread.store.close()
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("template")
    schema.upgrade(f"sqlite:///{folder}/m.db")
    return folder / "m.db", asyncio.run(filled(folder))


@pytest.fixture
def place(tmp_path: Path, template: tuple[Path, dict[str, Any]]) -> Place:
    path, found = template
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(tmp_path / "m.db")) as new:
        old.backup(new)
    env = environment(MOORINGS_DATABASE_URL=f"sqlite:///{tmp_path}/m.db", MOORINGS_ENCRYPTION_KEYS=KEYS)
    return Place(tmp_path, env, **found)


def test_open_requests_are_listed_with_what_could_not_be_delivered(place: Place) -> None:
    text = place.say("prompts")
    assert place.say("prompts", "list") == text
    assert re.findall(r"^prm_\w+", text, re.MULTILINE) == [place.bobs, place.quorum, place.refund]
    assert "channel_not_found" in text
    assert "0 of 3" in text
    assert place.refund not in place.say("prompts", "--undeliverable")
    assert place.say("prompts", "list", "--session", place.sessions["refund"]).splitlines()[1].startswith(place.refund)


def test_a_request_is_shown_with_its_cards_and_its_end(place: Place) -> None:
    text = place.say("prompts", "show", place.refund)
    assert "Refund 7?" in text
    assert "approve: Approve" in text
    assert "card at fake fake:v1:refund: pending" in text
    place.say("prompts", "answer", place.refund, "deny", "--as", "fake:alice", "--text", "too dear")
    assert "text: too dear" in place.say("prompts", "show", place.refund)


def test_an_answer_counts_for_who_may_and_for_nobody_else(place: Place) -> None:
    assert place.run("prompts", "answer", place.bobs, "approve", "--as", "fake:alice") == (1, "Only fake:bob may answer this.\n")
    assert place.say("prompts", "answer", place.bobs, "approve", "--as", "fake:bob") == "Approved by bob.\n"
    code, text = place.run("prompts", "answer", place.bobs, "deny", "--as", "fake:bob")
    assert (code, text) == (1, "This was settled before: Approved by bob.\n")
    counted = place.say("prompts", "answer", place.quorum, "approve", "--as", "fake:farah")
    assert counted == "Counted: 1 of 3. 2 more people have to approve.\n"

    async def work(thread: Thread) -> list[str]:
        await thread.work()
        return thread.log.names()

    assert place.ask(work) == ["by_bob"]
    entries = [json.loads(line) for line in place.say("audit", "--json").splitlines()]
    assert [(one["act"], one["via"], one["where"]) for one in entries] == [
        ("refused", "cli", "cli"),
        ("settled", "cli", "cli"),
        ("counted", "cli", "cli"),
    ]


def test_an_override_needs_a_reason_and_is_audited(place: Place) -> None:
    with pytest.raises(NotReady, match="1 to 500"):
        place.run("prompts", "override", place.quorum, "approve", "--reason", " ")
    told = place.say("prompts", "override", place.quorum, "approve", "--reason", "Everybody is away.", "--as", "cli:ops")
    assert told == "Approved by ops by override.\n"
    text = place.say("audit", "--request", place.quorum)
    assert "overridden" in text
    assert "Everybody is away." in text
    assert place.say("audit", "--since", "2999-01-01") == "No such entries.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("answer", "prm_x", "approve", "--as", "bob"),
        ("answer", "prm_x", "approve", "--as", "fake:bob", "--edit", "amount=1"),
        ("answer", "prm_x", "approve", "--as", "fake:bob", "--edit", "amount", *DEMO),
    ],
)
def test_what_can_not_be_meant_is_refused(place: Place, arguments: tuple[str, ...]) -> None:
    with pytest.raises(NotReady):
        place.run("prompts", *arguments)


def test_a_chain_is_whole_until_somebody_changes_it(place: Place) -> None:
    assert place.say("audit", "verify") == "There are no entries yet.\n"
    for who in ("fake:alice", "fake:carol", "fake:bob"):
        place.run("prompts", "answer", place.bobs, "approve", "--as", who)
    whole = place.say("audit", "verify")
    assert whole.startswith("Whole: 3 entries checked. The last is 3, with the hash ")
    kept = whole.split()[-1]
    assert place.say("audit", "verify", "--from", "3", "--expect", kept).startswith("Whole: 1 entries checked.")
    with closing(sqlite3.connect(place.folder / "m.db")) as database, database:
        database.execute("UPDATE moor_audit SET principal = 'fake:mallory' WHERE n = 2")
    assert place.run("audit", "verify") == (1, "Broken at entry 2: its hash does not fit what it says; it was changed.\n")
    assert place.say("audit", "verify", "--from", "3", "--expect", kept)
    with closing(sqlite3.connect(place.folder / "m.db")) as database, database:
        database.execute("DELETE FROM moor_audit WHERE n = 2")
    assert place.run("audit", "verify") == (1, "Broken at entry 2: it is missing.\n")
    with closing(sqlite3.connect(place.folder / "m.db")) as database, database:
        database.execute("DELETE FROM moor_audit")
    code, text = place.run("audit", "verify", "--from", "3", "--expect", kept)
    assert (code, text) == (1, "Broken at entry 3: it is missing; entries were taken away.\n")
    with pytest.raises(NotReady):
        place.run("audit", "verify", "--from", "3")


def test_an_app_explains_what_it_would_do_with_a_call(place: Place) -> None:
    text = place.say("explain", "refund_charge", '{"charge_id": "ch_1", "amount": "500"}', "--as", "console:alice", *DEMO)
    lines = [line.split()[:2] for line in text.splitlines()]
    assert lines[0] == ["passes", "access"]
    assert ["asks", "answer"] in lines
    with pytest.raises(NotReady, match="The tools are"):
        place.run("explain", "unknown", "{}", "--as", "console:alice", *DEMO)


def test_an_app_s_surface_is_one_page_that_ci_compares(place: Place) -> None:
    page = place.say("surface", *DEMO)
    assert "support.refund_charge (write)" in page
    stored = place.folder / "surface.txt"
    stored.write_text(page)
    assert place.say("surface", *DEMO, "--check", str(stored)) == ""
    stored.write_text(page.replace("starts: full members", "starts: anybody", 1))
    code, text = place.run("surface", *DEMO, "--check", str(stored))
    assert code == 1
    assert "-  starts: anybody" in text
    with pytest.raises(NotReady, match="can't be read"):
        place.run("surface", *DEMO, "--check", str(place.folder / "none"))
