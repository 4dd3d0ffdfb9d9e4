"""Lanes that many runs share, put to, sent from and taken back at the same time: nothing is lost, out of order or in a deadlock.

What lives here: races of several connections. What does not: single promises (the conformance kit).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator

import pytest

from durable_core.clock import DatabaseClock
from durable_core.errors import LeaseLost, PromptTaken
from durable_core.model import (
    AnswerPolicy,
    Buried,
    ClaimRequest,
    Phase,
    Postponed,
    PromptOutcome,
    PromptSettlement,
    Sent,
    Verdict,
)
from durable_core.store import Store
from durable_core.stores.postgres import connect
from durable_core.testing.builders import MINUTE, answer, message, post, prompt, step_commit, to_address
from tests.durable_core.conformance.postgres import postgres_store

RUNS = 24
LANES = [f"lane{n}" for n in range(4)]
SECONDS = 60.0
Parameters = dict[str, str | int | bytes | None]


class Tale:
    """What the actors did, and what they act on."""

    def __init__(self, stores: list[Store], rng: random.Random) -> None:
        self.stores = stores
        self.rng = rng
        self.sent: defaultdict[str, list[str]] = defaultdict(list)
        self.asked: list[tuple[str, str]] = []
        self.over = False

    @property
    def store(self) -> Store:
        return self.rng.choice(self.stores)

    async def ask(self, number: int) -> None:
        """Post a card to some lanes, then let clicks, an expiry that owes more and sometimes the end race."""
        await self.store.admit(message(to_address(f"thread{number}")))
        taken = await self.store.claim(ClaimRequest(owner=f"owner{number}", lease_ms=MINUTE, limit=1))
        while not taken:
            taken = await self.store.claim(ClaimRequest(owner=f"owner{number}", lease_ms=MINUTE, limit=1))
        (claim,) = taken
        question = prompt(policy=self.rng.choice(list(AnswerPolicy)))
        self.asked.append((claim.run_id, question.prompt_id))
        cards = tuple(post(lane, prompt_id=question.prompt_id) for lane in self.rng.sample(LANES, 3))
        await self.store.commit(step_commit(claim, prompts=(question,), outbox=cards, phase=Phase.WAITING))
        expire = PromptSettlement(prompt_id=question.prompt_id, outcome=PromptOutcome.EXPIRED)
        more = tuple(post(lane) for lane in self.rng.sample(LANES, 2))
        late = step_commit(claim, step_n=1, consume=False, settle=(expire,), outbox=more)
        clicks = [self.store.answer(answer(question.prompt_id, outcome=PromptOutcome.DENIED)) for _ in range(3)]
        ends = [self.store.end(claim.run_id, reason="reset", events=())] if number % 4 == 0 else []
        done = await asyncio.gather(*clicks, self.store.commit(late), *ends, return_exceptions=True)
        assert [one for one in done if isinstance(one, BaseException) and not isinstance(one, (PromptTaken, LeaseLost))] == []

    async def decide(self, store: Store, owner: str) -> None:
        while not self.over:
            for one in await store.take_interactions(owner, limit=2, lease_ms=MINUTE):
                tell = post(self.rng.choice(LANES))
                verdict = Verdict(interaction_id=one.interaction_id, epoch=one.epoch, allowed=self.rng.random() < 0.7, tell=tell)
                try:
                    await store.decide(verdict)
                except LeaseLost:  # the run ended meanwhile
                    continue

    async def send(self, store: Store, owner: str) -> None:
        while not self.over:
            for lane in await store.claim_lanes(owner, limit=2, lease_ms=MINUTE, items=3):
                for item in lane.items:
                    ref = f"ref-{item.delivery_id}"
                    fate = self.rng.random()
                    if fate < 0.1:
                        await store.release_lane(lane, owner)
                        break
                    if fate < 0.2:
                        wait = Postponed(delivery_id=item.delivery_id, until=await store.now(), error="429")
                        await store.finish(lane, owner, wait)
                        break
                    assert item.edit_of is None or item.edit_ref == f"ref-{item.edit_of}"
                    last = item is lane.items[-1]
                    await store.finish(lane, owner, Sent(delivery_id=item.delivery_id, ref=ref, release=last))
                    self.sent[lane.address].append(item.delivery_id)


@pytest.fixture
async def stores(migrated_url: str) -> AsyncIterator[list[Store]]:
    made: list[Store] = [postgres_store(migrated_url, DatabaseClock()) for _ in range(3)]
    for store in made:
        await store.open()
    yield made
    for store in made:
        await store.close()


async def test_lanes_under_a_crowd(stores: list[Store], monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    tale = Tale(stores, random.Random(seed))
    collisions: Counter[str] = Counter()

    def collides(error: BaseException) -> bool:
        collisions[str(getattr(error, "sqlstate", None))] += 1
        return connect.collides(error)

    monkeypatch.setattr("durable_core.stores.postgres.database.collides", collides)
    async with asyncio.timeout(SECONDS):
        async with asyncio.TaskGroup() as actors:
            for number, store in enumerate(stores):
                actors.create_task(tale.send(store, f"sender{number}"))
                actors.create_task(tale.decide(store, f"decider{number}"))
            await asyncio.gather(*(tale.ask(number) for number in range(RUNS)))
            left = """
                SELECT (SELECT count(*) FROM moor_outbox WHERE state = 'pending')
                     + (SELECT count(*) FROM moor_interaction WHERE status IS NULL)
            """
            while await stores[0].rows(left, {}) != [(0,)]:
                await asyncio.sleep(0)
            tale.over = True
    assert "40P01" not in collisions, "a deadlock costs whoever is in it a second"
    await _check_lanes(tale)
    await _check_prompts(tale)


async def test_a_dead_letter_that_many_replay_is_owed_once(stores: list[Store]) -> None:
    dead = post(LANES[0])
    await stores[0].admit(message(to_address("thread")))
    (claim,) = await stores[0].claim(ClaimRequest(owner="owner", lease_ms=MINUTE, limit=1))
    await stores[0].commit(step_commit(claim, outbox=(dead,)))
    (lane,) = await stores[0].claim_lanes("sender", limit=1, lease_ms=MINUTE)
    await stores[0].finish(lane, "sender", Buried(delivery_id=dead.delivery_id, error="gone", release=True))
    done = await asyncio.gather(*(store.replay(dead.delivery_id) for store in stores for _ in range(3)))
    assert sorted(done) == [False] * 8 + [True]
    assert await stores[0].rows("SELECT seq, done_seq FROM moor_lane", {}) == [(2, 1)]
    (lane,) = await stores[0].claim_lanes("sender", limit=1, lease_ms=MINUTE)
    assert [item.delivery_id for item in lane.items] == [dead.delivery_id]


async def _check_lanes(tale: Tale) -> None:
    store = tale.stores[0]
    for lane in LANES:
        of: Parameters = {"lane": lane}
        items = await store.rows("SELECT delivery_id, lane_seq FROM moor_outbox WHERE address = :lane ORDER BY lane_seq", of)
        assert [seq for _, seq in items] == list(range(1, len(items) + 1))
        assert [delivery_id for delivery_id, _ in items] == tale.sent[lane]
        (state,) = await store.rows("SELECT seq, done_seq, due_at, owner FROM moor_lane WHERE address = :lane", of)
        assert state == (len(items), len(items), None, None)


async def _check_prompts(tale: Tale) -> None:
    store = tale.stores[0]
    edits = "SELECT count(*) FROM moor_outbox WHERE prompt_id = :prompt AND edit_of IS NOT NULL"
    answers = "SELECT count(*) FROM moor_command WHERE run_id = :run AND kind = 'response'"
    for run_id, prompt_id in tale.asked:
        settled = await store.prompt(prompt_id)
        assert settled.outcome is not None
        assert await store.rows(edits, {"prompt": prompt_id}) == [(3,)]
        assert await store.rows(answers, {"run": run_id}) == [(int(settled.settled_by is not None),)]
