"""A yes against a no, a cancel, a reset, a correction and the end of the time, from two processes on one store.

What lives here: the races, and what has to come of each: one outcome, on which the row, the stream, the audit and the card agree.
What does not: the processes (racer.py). A plain run does a seeded tenth; MOORINGS_TEST_FULL=1 does a thousand rounds.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from bot.principal import Principal
from bot.runtime import Runtime, open_runtime
from bot.settings import Role, Settings, sqlite_url
from channels.console.channel import ADDRESS
from channels.events import Standing
from durable_core import schema
from durable_core.clock import ManualClock
from durable_core.crypto import new_key_entry
from durable_core.model import Phase, Prompt, PromptOutcome, RunStatus
from durable_core.streams import Streams
from tests.bot.answers.racer import EXPIRES, the_bot
from tests.durable_core.soak.scale import chance, scaled

ROUNDS: Final = scaled(1_000)
AT_ONCE: Final = 10
START: Final = 1_700_000_000_000
STEP_MS: Final = 11_000
"""How far the clock goes for an expiry: over the time of a request, far from the end of a lease."""
AGAINST: Final = ("deny", "cancel", "reset", "steer", "expire")
ENDS: Final = {
    "deny": {PromptOutcome.APPROVED, PromptOutcome.DENIED},
    "cancel": {PromptOutcome.APPROVED, PromptOutcome.CANCELLED},
    "reset": {PromptOutcome.APPROVED, PromptOutcome.CANCELLED},
    "steer": {PromptOutcome.APPROVED, PromptOutcome.IGNORED},
    "expire": {PromptOutcome.APPROVED, PromptOutcome.EXPIRED},
}
PATIENCE: Final = 60.0


@dataclass(slots=True, kw_only=True)
class Round:
    """One session in which two people do opposite things at once."""

    against: str
    thread: str
    run_id: str
    prompt: Prompt | None = None
    said: dict[str, str] | None = None
    """What the two were told, by what they did."""

    @property
    def address(self) -> str:
        return ADDRESS.encode(self.thread)


@dataclass(slots=True, kw_only=True)
class Ring:
    """The store, seen by the one who starts the races."""

    runtime: Runtime
    streams: Streams
    racers: tuple[Process, Process]
    alice: Principal
    now: int = START

    async def begin(self, against: Sequence[str], first: int) -> list[Round]:
        """Have Alice ask for something, once a race."""
        assert self.runtime.console is not None
        rounds = []
        for number, what in enumerate(against, start=first):
            posted = await self.runtime.console.post(None, "alice", "do it", f"begin-{number}")
            run = await self.runtime.store.run_at("console", ADDRESS.encode(posted["thread_id"]))
            assert run is not None
            rounds.append(Round(against=what, thread=posted["thread_id"], run_id=run.run_id))
        for one in rounds:
            one.prompt = await self._until(lambda run_id=one.run_id: self._open(run_id))
        return rounds

    async def race(self, rounds: Sequence[Round], rng: random.Random) -> None:
        """Have both act at once, one on each side of every race."""
        clock = self.now + (STEP_MS if any(one.against == "expire" for one in rounds) else 0)
        acts: tuple[list[Any], list[Any]] = ([], [])
        sides = []
        for one in rounds:
            assert one.prompt is not None
            about = {"session": one.run_id, "thread": one.thread, "prompt": one.prompt.prompt_id, "address": one.address}
            sides.append(rng.randrange(2))
            for act, side in (("approve", sides[-1]), (one.against, 1 - sides[-1])):
                acts[side].append({**about, "act": act, "alice": self.alice.to_json(), "clock": clock})
        for racer, wanted in zip(self.racers, acts, strict=True):
            assert racer.stdin is not None
            racer.stdin.write(json.dumps({"clock": self.now, "acts": wanted}).encode() + b"\n")
        told = [await heard(racer) for racer in self.racers]
        for number, (one, side) in enumerate(zip(rounds, sides, strict=True)):
            one.said = {"approve": told[side][number], one.against: told[1 - side][number]}
        self.now = clock
        for racer in self.racers:  # both have the later time now: what is left open is over
            assert racer.stdin is not None
            racer.stdin.write(json.dumps({"clock": clock, "acts": []}).encode() + b"\n")
        for racer in self.racers:
            await heard(racer)

    async def settled(self, one: Round) -> Prompt:
        """Wait until nothing more happens to a session, and its card says how it ended."""
        assert one.prompt is not None
        prompt_id = one.prompt.prompt_id

        async def look() -> Prompt | None:
            prompt = await self.runtime.store.prompt(prompt_id)
            run = await self.runtime.store.run(one.run_id)
            resting = run.status is RunStatus.ENDED or (run.phase is Phase.IDLE and run.turn_id is None)
            owed = await self.runtime.store.rows(
                "SELECT 1 FROM moor_outbox WHERE run_id = :run AND state = 'pending' LIMIT 1", {"run": one.run_id}
            )
            return prompt if prompt.outcome is not None and resting and not owed else None

        return await self._until(look)

    async def card(self, one: Round) -> dict[str, Any]:
        """Return the card as it stands."""
        assert self.runtime.platform is not None
        messages = await self.runtime.platform.messages(one.thread, viewer="alice")
        (card,) = [message.card for message in messages if message.card is not None]
        return dict(card)

    async def _open(self, run_id: str) -> Prompt | None:
        found = await self.runtime.store.open_prompts(run_id)
        return found[0] if found else None

    async def _until(self, look: Any) -> Any:
        changed = asyncio.Event()
        unwatch = self.runtime.store.watch(lambda _: changed.set())
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    changed.clear()
                    if (found := await look()) is not None:
                        return found
                    await changed.wait()
        finally:
            unwatch()


async def heard(racer: Process) -> Any:
    assert racer.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = await racer.stdout.readline()
    assert line, "a process ended"
    return json.loads(line)


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = sqlite_url(tmp_path)
    if request.param == "postgres":
        url = request.getfixturevalue("migrated_url")
    else:
        await asyncio.to_thread(schema.upgrade, url)
    return Settings(tmp_path, url, encryption_keys=new_key_entry(), deployment="race")


@asynccontextmanager
async def ring(settings: Settings, rng: random.Random) -> AsyncIterator[Ring]:
    told = {"data": str(settings.data), "url": settings.database_url, "keys": settings.encryption_keys, "clock": START}
    runtime = await open_runtime(the_bot(), settings, role=Role.WEB, console=True, clock=ManualClock(START))
    racers = []
    try:
        assert runtime.platform is not None
        platform = await runtime.platform.platform_id()
        for _ in range(2):
            config = json.dumps({**told, "seed": rng.randrange(1 << 30)})
            racers.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "tests.bot.answers.racer", config, stdin=PIPE, stdout=PIPE, limit=1 << 20
                )
            )
        for racer in racers:
            assert await heard(racer) == "ready"
        first, second = racers
        alice = Principal(f"console:{platform}:alice", "Alice", Standing.MEMBER, channel="console")
        yield Ring(runtime=runtime, streams=Streams(runtime.store), racers=(first, second), alice=alice)
    finally:
        for racer in racers:
            if racer.stdin is not None:
                racer.stdin.close()
        for racer in racers:
            try:
                async with asyncio.timeout(PATIENCE):
                    await racer.wait()
            except TimeoutError:
                racer.kill()
                await racer.wait()
        await runtime.close()


async def test_of_two_opposite_acts_at_once_one_counts_and_everything_agrees(settings: Settings) -> None:
    assert EXPIRES.total_seconds() * 1000 < STEP_MS
    rng = chance("answers at once")
    tally: Counter[str] = Counter()
    async with ring(settings, rng) as at:
        for first in range(0, ROUNDS, AT_ONCE):
            expiring = first // AT_ONCE % len(AGAINST) == 0  # the clock is everybody's: these races are among themselves
            others = [one for one in AGAINST if one != "expire"]
            against = ["expire" if expiring else rng.choice(others) for _ in range(min(AT_ONCE, ROUNDS - first))]
            rounds = await at.begin(against, first)
            await at.race(rounds, rng)
            for one in rounds:
                outcome = await agreed(at, one)
                tally[f"{one.against}: {outcome}"] += 1
    print(dict(sorted(tally.items())))
    assert sum(tally.values()) == ROUNDS


async def agreed(at: Ring, one: Round) -> str:
    """Check one race: exactly one outcome, told alike everywhere."""
    prompt = await at.settled(one)
    assert prompt.outcome is not None
    assert one.said is not None
    story = f"approve against {one.against}: {one.said}, {prompt.outcome}"
    assert prompt.outcome in ENDS[one.against], story
    yes = prompt.outcome is PromptOutcome.APPROVED
    assert (one.said["approve"] == "settled") is yes, story
    if one.against == "deny":
        assert (one.said["deny"] == "settled") is not yes, story
    events = await at.streams.read(one.run_id, start=0)
    resolved = [
        told["outcome"]
        for event in events
        if event.type == "input.resolved"
        for told in event.data["resolutions"]
        if told["request_id"] == prompt.prompt_id
    ]
    assert resolved == [prompt.outcome.value], f"{story}; the stream says {resolved}"
    results = [event.data["status"] for event in events if event.type == "action.result"]
    assert results.count("completed") <= int(yes), f"{story}; {results}"
    entries = [entry for entry in await at.runtime.store.audit(prompt_id=prompt.prompt_id) if entry.act == "settled"]
    assert [entry.outcome for entry in entries] == [prompt.outcome.value], story
    card = await at.card(one)
    shown = card.get("outcome") or {}
    assert not card.get("buttons"), f"{story}; the card still has buttons"
    assert shown.get("kind") == prompt.outcome.value, f"{story}; the card says {shown}"
    return prompt.outcome.value
