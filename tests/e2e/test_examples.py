"""The examples do what the guide shows, on both databases; an incident that is killed anywhere comes to the same end."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import make_url

from durable_core import DatabaseClock, Engine, KeyRing, RunHandle
from tests import house
from tests.bot.command import ROOT, environment

KEYS = "test:" + "A" * 43 + "="
EXAMPLES = ROOT / "docs" / "examples"
PATIENCE = 60.0
"""Real seconds after which a test that hangs is told so."""

STAGES = ["in collect", "asking level", "asleep", "in plan", "asking apply", "in apply", "in record"]
STEPS = ["collect", "plan", "apply", "record"]
ANSWERS = {"asking level": "high", "asking apply": "apply"}
END = "checkout: 2 actions taken, level high"
RUN_ID = re.compile(r"run_[0-9a-z]{26}")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the address of a database without runs, as a reader would write it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'example.db'}"
    url = make_url(request.getfixturevalue("migrated_url"))
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def shown(name: str) -> str:
    """Return the output that the guide shows of a command."""
    return house.readme_commands((ROOT / "docs" / "workflows.md").read_text())[name]


def alike(text: str) -> str:
    """Return what is said without what differs each time."""
    return RUN_ID.sub("RUN", re.sub(r"(process|kill -9) \d+", r"\1 PID", text)).strip()


async def start(example: str, *arguments: str, folder: Path, log: Path | None = None, **env: str) -> Process:
    output = asyncio.subprocess.PIPE if log is None else os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLES / example),
            *arguments,
            cwd=folder,
            env=environment() | {"MOORINGS_ENCRYPTION_KEYS": KEYS, "PYTHONPATH": str(ROOT)} | env,
            stdout=output,
        )
    finally:
        if log is not None:
            os.close(output)


async def said(example: str, *arguments: str, folder: Path) -> str:
    process = await start(example, *arguments, folder=folder)
    async with asyncio.timeout(PATIENCE):
        output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().rstrip()


async def test_the_step_that_was_killed_says_which_attempt_it_is(database: str, tmp_path: Path) -> None:
    assert alike(await said("crash.py", database, folder=tmp_path)) == alike(shown("crash"))


# ── the incident ──


class FileClock(DatabaseClock):
    """Time as `--fast` has it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def override(self) -> Any:
        return int(self.file.read_text())


@dataclass
class Case:
    """One incident: its database, its clock, its worker, and the way through it."""

    folder: Path
    database: str
    engine: Engine
    run: RunHandle

    async def command(self, *arguments: str) -> str:
        return await said("incident.py", "--database", self.database, "--fast", "clock", *arguments, folder=self.folder)

    @asynccontextmanager
    async def worker(self, *, slow: str = "") -> AsyncIterator[Process]:
        """A worker in a process of its own, which is killed at the end."""
        process = await start(
            "incident.py",
            *("--database", self.database, "--fast", "clock", "work"),
            folder=self.folder,
            log=self.folder / "work.log",
            INCIDENT_SLOW=slow,
        )
        try:
            yield process
        finally:
            process.kill()
            await process.wait()

    def begun(self) -> list[str]:
        log = self.folder / "work.log"
        return log.read_text().splitlines() if log.exists() else []

    async def events(self) -> list[str]:
        return [f"{event.type} {event.data.get('op', '')}" async for event in self.run.events()]

    async def arrived(self, stage: str) -> None:
        """Wait until the incident is there, or past it."""
        how, _, what = stage.partition(" ")
        async with asyncio.timeout(PATIENCE):
            while True:
                events = await self.events()
                if how == "in" and (f"{what}: attempt 1" in self.begun() or f"step.completed step:{what}#0" in events):
                    return
                if how == "asking" and f"input.requested ask:{what}#0" in events:
                    return
                if how == "asleep" and "input.resolved ask:level#0" in events and (await self.run.status()).status == "waiting":
                    return
                await asyncio.sleep(0.02)

    async def leave(self, stage: str) -> None:
        """Do what the incident waits for, if it waits; in this process, for speed."""
        if stage == "asleep":
            file = self.folder / "clock.new"
            file.write_text(str(int((self.folder / "clock").read_text()) + 600_000))
            file.replace(self.folder / "clock")
        elif stage in ANSWERS:
            [prompt] = await self.run.prompts()
            receipt = await self.engine.answer(prompt.prompt_id, option_id=ANSWERS[stage])
            assert receipt.status == "settled"


@pytest_asyncio.fixture
async def case(database: str, tmp_path: Path) -> AsyncIterator[Case]:
    name = await said("incident.py", "--database", database, "--fast", "clock", "start", "checkout", folder=tmp_path)
    assert RUN_ID.fullmatch(name)
    engine = Engine(database, workflows=[], keys=KeyRing.parse(KEYS), work=False, clock=FileClock(tmp_path / "clock"))
    async with engine:
        yield Case(tmp_path, database, engine, engine.run(name))


@pytest.mark.parametrize("stage", STAGES)
async def test_an_incident_that_is_killed_comes_to_the_same_end(case: Case, stage: str) -> None:
    how, _, step = stage.partition(" ")
    place = STAGES.index(stage)
    async with case.worker(slow=step if how == "in" else "") as first:
        for earlier in STAGES[:place]:
            await case.arrived(earlier)
            await case.leave(earlier)
        await case.arrived(stage)
        assert first.returncode is None
    await case.leave(stage)  # while nobody is at work
    async with case.worker():
        for later in STAGES[place + 1 :]:
            await case.arrived(later)
            await case.leave(later)
        assert await case.run.result(timeout=PATIENCE) == END
    steps = await case.engine.store.steps(case.run.run_id)
    assert Counter(one.name for one in steps if one.kind == "step") == Counter(f"step:{name}#0" for name in STEPS)
    assert [one.kind for one in steps].count("end") == 1
    assert await case.engine.store.rows("SELECT count(*) FROM moor_prompt", {}) == [(2,)]
    again = [step] if how == "in" else []
    assert Counter(case.begun()) == Counter(
        [*(f"{name}: attempt 1" for name in STEPS), *(f"{name}: attempt 2" for name in again)]
    )


async def test_the_incident_of_the_guide_goes_as_it_is_shown(case: Case) -> None:
    async with case.worker():
        await case.arrived("asking level")
        asking = await case.command("status", case.run.run_id)
        for stage in STAGES:
            await case.arrived(stage)
            if stage in ANSWERS:
                assert (await case.command("answer", case.run.run_id, ANSWERS[stage])).endswith(f"? {ANSWERS[stage]}: settled")
            elif stage == "asleep":
                await case.command("skip", "10")
        assert await case.run.result(timeout=PATIENCE) == END
    assert alike(asking) == alike(shown("incident_asks"))
    assert alike(await case.command("status", case.run.run_id)) == alike(shown("incident_end"))
    assert await case.command("start", "checkout") == case.run.run_id
