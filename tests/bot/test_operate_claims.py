"""`moorings claims`: what nobody knows of is listed and settled by an operator, on each database, and stands in the audit."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from bot.cli import commands
from bot.errors import NotReady
from durable_core import codec, schema
from durable_core.clock import ManualClock
from durable_core.crypto import KeyRing
from durable_core.errors import NotFound
from durable_core.ids import new_id
from durable_core.model import ClaimState, KeyRequest
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.testing.acts import enrol, park, start
from durable_core.testing.builders import step_commit
from tests.bot.command import environment
from tests.durable_core.conformance.sqlite import KEYS

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A database in which three keys were claimed: by a run that rests, one that is at work, and one that has ended."""

    env: dict[str, str]
    waits: str
    works: str
    ended: str
    runs: dict[str, str]

    def run(self, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(commands, ["claims", *arguments], env=self.env)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    def ask(self, act: Callable[[Store], Awaitable[T]]) -> T:
        return asyncio.run(on(self.env["MOORINGS_DATABASE_URL"], lambda store, _: act(store)))

    def state(self, key: str) -> tuple[ClaimState, Any]:
        """How a key stands for another run."""

        async def look(store: Store) -> tuple[ClaimState, Any]:
            await enrol(store)
            claim = await start(store, address=new_id("other"))
            request = KeyRequest(
                run_id=claim.run_id, epoch=claim.epoch, key=key, claim_id=new_id("clm"), operation_id="0.0.0", attempt=1
            )
            found = await store.claim_key(request)
            await store.release(claim.run_id, claim.epoch, timer_at=None, seen=1, unused=False)
            return found.state, None if found.value is None else codec.decode(found.value)

        return self.ask(look)


async def on(url: str, act: Callable[[Store, ManualClock], Awaitable[T]]) -> T:
    clock = ManualClock(int(time.time() * 1000))
    store = open_store(url, keys=KeyRing.parse(KEYS), clock=clock)
    await store.open()
    try:
        return await act(store, clock)
    finally:
        await store.close()


async def claimed(store: Store, clock: ManualClock) -> dict[str, Any]:
    await enrol(store)
    found: dict[str, Any] = {"runs": {}}
    for name in ("waits", "works", "ended"):
        clock.advance(timedelta(milliseconds=1))
        claim = await start(store, address=f"console:v1:{name}")
        request = KeyRequest(
            run_id=claim.run_id, epoch=claim.epoch, key=name, claim_id=f"clm_{name}", operation_id="2.1.0", attempt=3
        )
        await store.claim_key(request)
        found[name], found["runs"][name] = f"clm_{name}", claim.run_id
        if name == "waits":
            await park(store, claim)
        elif name == "ended":
            await store.commit(step_commit(claim, end="done"))
    return found


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'm.db'}"
        schema.upgrade(url)
    else:
        given = make_url(request.getfixturevalue("migrated_url"))
        url = given.set(drivername="postgresql").render_as_string(hide_password=False)
    env = environment(MOORINGS_DATABASE_URL=url, MOORINGS_ENCRYPTION_KEYS=KEYS)
    return Place(env=env, **asyncio.run(on(url, claimed)))


def test_an_operator_sees_what_nobody_knows_of_and_says_it(place: Place) -> None:
    _, text = place.run()
    assert re.findall(r"^clm_\w+", text, re.MULTILINE) == [place.waits, place.works, place.ended]
    for name, stands in (("waits", "is idle"), ("works", "is worked on"), ("ended", "has ended")):
        (line,) = [line for line in text.splitlines() if line.startswith(f"clm_{name}")]
        assert stands in line
        assert f"{place.runs[name]}  session support  2.1.0" in line
    assert "clm_waits" not in place.run("list", "--key", "ended")[1]
    assert place.run("list", "--key", "never") == (0, "No such claims.\n")

    code, text = place.run("release", place.works, "--reason", "I looked")
    assert (code, f"moorings cancel {place.runs['works']}" in text) == (1, True)
    assert place.state("works") == (ClaimState.PENDING, None)

    code, text = place.run("done", place.waits, "--value", '{"number": 7}', "--reason", "it is in the books", "--as", "api:farah")
    assert (code, text) == (0, "clm_waits is done: whoever asks for its key is told so.\n")
    assert place.state("waits") == (ClaimState.DONE, {"number": 7})
    assert place.run("release", place.waits, "--reason", "no")[0] == 1
    assert "clm_waits" not in place.run()[1]
    assert "clm_waits" in place.run("--done")[1]

    assert place.run("release", place.ended, "--reason", "the bank knows nothing of it")[0] == 0
    assert place.state("ended") == (ClaimState.CLAIMED, None)
    with pytest.raises(NotFound, match="no claim 'clm_ended'"):
        place.run("release", place.ended, "--reason", "again")

    lines = CliRunner().invoke(commands, ["audit", "--json"], env=place.env).output.splitlines()
    assert [(entry["act"], entry["prompt_id"], entry["principal"], entry["reason"]) for entry in map(json.loads, lines)] == [
        ("done", "clm_waits", "api:farah", "it is in the books"),
        ("released", "clm_ended", "cli:operator", "the bank knows nothing of it"),
    ]
    assert "Whole: 2 entries" in CliRunner().invoke(commands, ["audit", "verify"], env=place.env).output


def test_what_can_not_be_kept_is_said(place: Place) -> None:
    for wrong in ("INV-7", "{", "[" * 100_000):
        with pytest.raises(NotReady, match="--value is no JSON that can be kept"):
            place.run("done", place.waits, "--value", wrong, "--reason", "x")
    with pytest.raises(NotReady, match="--reason"):
        place.run("done", place.waits, "--reason", " ")
    for nobody in ("", "farah", "api:"):
        with pytest.raises(NotReady, match="is no principal"):
            place.run("release", place.waits, "--reason", "x", "--as", nobody)
    assert place.ask(lambda store: store.forget(place.runs["ended"]))
    with pytest.raises(NotReady, match="Leave --value out"):
        place.run("done", place.ended, "--value", "7", "--reason", "x")
    assert place.run("done", place.ended, "--reason", "x")[0] == 0
    assert place.state("ended") == (ClaimState.DONE, None)
    assert place.run("done", place.waits, "--reason", "x")[0] == 0
    assert place.state("waits") == (ClaimState.DONE, None)
