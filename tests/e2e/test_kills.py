"""Deaths and drains at moments that no failpoint names: at random, right after a click, in the middle of a tool.

What lives here: those stories. What does not: the matrix (test_crash_matrix.py).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.app import BEGIN
from tests.e2e.data import reading
from tests.e2e.fleet import Fleet, Origin, Server, make_folder, make_template
from tests.e2e.gate import Gate
from tests.e2e.judge import Verdict, judge
from tests.e2e.ledger import Ledger
from tests.e2e.matrix import FULL_VARIABLE
from tests.e2e.person import Client, Door
from tests.e2e.process import DRAIN_VARIABLE, LEASE
from tests.e2e.story import STORIES, Bell, Story, Through, door, live, settle

ROUNDS = 300 if os.environ.get(FULL_VARIABLE) else 30
POSTGRES_ROUNDS = 100 if os.environ.get(FULL_VARIABLE) else 8
AT_ONCE = 3
MOST_DEATHS = 3
"""A step whose processes die four times is given up, as it should be."""
SECONDS = 45.0

BY_NAME = {story.name: story for story in STORIES}


@dataclass(frozen=True, slots=True)
class Ground:
    """A zygote, and a place for folders."""

    fleet: Fleet
    parent: Path
    origin: Origin
    rounds: int

    def folder(self, name: str) -> Path:
        return make_folder(self.parent, name, self.origin)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def ground(request: pytest.FixtureRequest) -> AsyncIterator[Ground]:
    with tempfile.TemporaryDirectory(prefix="kill") as name:
        origin: Origin
        if request.param == "sqlite":
            origin, rounds = await asyncio.to_thread(make_template, Path(name)), ROUNDS
        else:
            origin, rounds = request.getfixturevalue("fresh_databases"), POSTGRES_ROUNDS
        async with Fleet.open() as fleet:
            yield Ground(fleet, Path(name), origin, rounds)


async def ended(server: Server, story: Story, entrance: Door, bell: Bell) -> None:
    while not await server.stop():
        await settle(story, entrance, server, bell, answered=set())


# At random


CROWD = (
    Story("r-console", Through.CONSOLE, ("hello", "read ch_1", "stream")),
    Story("r-refund", Through.CONSOLE, ("refund ch_2", "once ch_3")),
    Story("r-api", Through.API, ("write ch_4", "pay ch_5")),
    Story("r-plain", Through.PLAIN, ("once ch_6", "hello again")),
    Story("r-flow", Through.CONSOLE, ("deploy ch_7",)),
)


async def _round(ground: Ground, seed: int, room: asyncio.Semaphore) -> tuple[int, int, Verdict]:
    rng = random.Random(seed)
    async with room, asyncio.timeout(SECONDS):
        server = Server(ground.fleet, ground.folder(f"r{seed}"))
        try:
            async with Bell.on(server.folder) as bell, Client(server) as client:
                async with asyncio.TaskGroup() as talks:
                    said = [talks.create_task(live(one, door(one, client), server, bell)) for one in CROWD]
                    for _ in range(rng.randint(1, MOST_DEATHS)):
                        await server.up()
                        await asyncio.wait(said, timeout=rng.uniform(0, 0.6))
                        await server.kill()
                await ended(server, CROWD[0], door(CROWD[0], client), bell)
        finally:
            await server.kill()
        return seed, server.deaths, await judge(server.folder, CROWD, deaths=server.deaths)


async def test_random_kills_lose_nothing_and_double_nothing(ground: Ground) -> None:
    first = random.SystemRandom().randrange(10**6)
    seeds = [int(os.environ["MOORINGS_TEST_SEED"])] if "MOORINGS_TEST_SEED" in os.environ else range(first, first + ground.rounds)
    print(f"seeds {seeds}; one again: MOORINGS_TEST_SEED=…")
    room = asyncio.Semaphore(AT_ONCE)
    rounds = await asyncio.gather(*(_round(ground, seed, room) for seed in seeds))
    print(f"{len(rounds)} rounds, {sum(deaths for _, deaths, _ in rounds)} deaths")
    assert {seed: verdict.breaches for seed, _, verdict in rounds if verdict.breaches} == {}
    assert sum(deaths for _, deaths, _ in rounds) >= len(rounds)


# Right after a click


class KillingDoor:
    """The process dies the moment that an answer is acknowledged."""

    def __init__(self, door: Door, server: Server) -> None:
        self._door = door
        self._server = server
        self.kills = 0

    async def say(self, text: str, key: str) -> None:
        await self._door.say(text, key)

    async def answer(self, prompt_id: str, option: str) -> bool:
        taken = await self._door.answer(prompt_id, option)
        if taken:
            self.kills += 1
            await self._server.kill()
        return taken


@pytest.mark.parametrize("name", ["approve, decided by a worker", "approve, decided at once", "approve by API", "workflow"])
async def test_a_click_right_before_a_death_counts_once(ground: Ground, name: str) -> None:
    story = BY_NAME[name]
    server = Server(ground.fleet, ground.folder("click"))
    async with asyncio.timeout(SECONDS), Bell.on(server.folder) as bell, Client(server) as client:
        killing = KillingDoor(door(story, client), server)
        await live(story, killing, server, bell)
        await ended(server, story, killing, bell)
    verdict = await judge(server.folder, (story,), deaths=server.deaths)
    assert verdict.breaches == []
    assert server.deaths == killing.kills
    assert verdict.effects >= len(story.tools)


# In the middle of a tool


@pytest.mark.parametrize("name", ["read", "write, run again"])
async def test_a_drain_lets_go_of_a_tool_uncharged_and_the_next_process_goes_on(ground: Ground, name: str) -> None:
    story = BY_NAME[name]
    folder = ground.folder("drain")
    server = Server(ground.fleet, folder, {DRAIN_VARIABLE: "0.2"})
    async with asyncio.timeout(SECONDS), Bell.on(folder) as bell, Client(server) as client:
        entrance = door(story, client)
        async with Gate.at(folder) as gate:
            await entrance.say(story.said[0], "said-first")
            key = await gate.arrived()
            assert await server.stop()
            with reading(folder) as read:
                (run,) = read("SELECT charged, crashes, interrupted, owner, last_error FROM moor_run")
            assert tuple(run.values()) == (0, 0, 0, None, None)
        await settle(story, entrance, server, bell, answered=set())
        assert await server.stop()
    verdict = await judge(folder, (story,), deaths=0, drains=1)
    assert verdict.breaches == []
    begins = Ledger(folder).lines(BEGIN)
    assert [line.key for line in begins] == [key, key]
    assert len({line.pid for line in begins}) == 2
    assert (verdict.models, verdict.effects) == (2, 1)
    assert verdict.reruns == (name == "write, run again")


async def test_a_drain_lets_a_tool_finish(ground: Ground) -> None:
    story = BY_NAME["write, run again"]
    folder = ground.folder("finish")
    server = Server(ground.fleet, folder)
    async with asyncio.timeout(SECONDS), Bell.on(folder) as bell, Client(server) as client:
        entrance = door(story, client)
        async with Gate.at(folder) as gate:
            await entrance.say(story.said[0], "said-first")
            await gate.arrived()
            process = await server.up()
            os.kill(await process.pid, signal.SIGTERM)
            gate.open()
            assert await server.stop()
        await settle(story, entrance, server, bell, answered=set())
        assert await server.stop()
    verdict = await judge(folder, (story,), deaths=0)
    assert verdict.breaches == []
    assert (verdict.models, verdict.begins, verdict.effects, verdict.reruns) == (2, 1, 1, 0)


async def test_a_neighbour_takes_over_at_once_not_when_the_lease_ends(ground: Ground) -> None:
    story = BY_NAME["read"]
    folder = ground.folder("two")
    servers = {"a": Server(ground.fleet, folder), "b": Server(ground.fleet, folder)}
    async with asyncio.timeout(SECONDS), Bell.on(folder) as bell, Client(servers["a"]) as client:
        pids = {await (await server.up()).pid: server for server in servers.values()}
        assert len(pids) == 2
        entrance = door(story, client)
        async with Gate.at(folder) as gate:
            await entrance.say(story.said[0], "said-first")
            key = await gate.arrived()
            (first,) = Ledger(folder).lines(BEGIN)
            with reading(folder) as read:
                (run,) = read("SELECT lease_until FROM moor_run")
            assert run["lease_until"] > time.time() * 1000 + LEASE * 500, "the lease ends too soon to show anything"
            killed = time.time()
            await pids.pop(first.pid).kill()
            assert await gate.arrived() == key
            assert time.time() - killed < 10
            gate.open()
        (survivor,) = pids.values()
        client.server = survivor
        await settle(story, entrance, survivor, bell, answered=set())
        assert await survivor.stop()
    verdict = await judge(folder, (story,), deaths=1)
    assert verdict.breaches == []
    second = Ledger(folder).lines(BEGIN)[1]
    assert (second.pid != first.pid, second.attempt) == (True, 2)
    assert second.at_ns / 1e9 - killed < LEASE / 6
    assert (verdict.models, verdict.effects) == (2, 1)
