"""A thread on a real store, advanced by hand: who speaks, who clicks, which worker takes what and where it dies.

What lives here: driving the shell without a worker's loop, so that nothing waits for real time. What does not: the actors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from bot.access import AccessPolicy, members_only
from bot.agent import Agent
from bot.answers import Answers, Way
from bot.app import Bot
from bot.approvals import Approval
from bot.egress import Egress
from bot.history import Item, from_json, validate_history
from bot.leftovers import Leftovers
from bot.people import People
from bot.policies import When
from bot.principal import Principal
from bot.prompts import Prompts
from bot.session.batch import Grace
from bot.session.handoff import Deploy
from bot.session.live import WarmHistories
from bot.session.ready import ready
from bot.session.runner import SessionRunner
from bot.session.signing import Accounts, Signing
from bot.tools import Tool
from bot.turn.state import Limits, MessageBody, TurnPolicy, body_to_json
from channels.events import Standing
from durable_core import codec
from durable_core.clock import ManualClock
from durable_core.crypto import KeyRing, new_key_entry
from durable_core.ids import new_id
from durable_core.model import (
    SESSIONS,
    Abilities,
    Admission,
    AnswerReceipt,
    AnswerStatus,
    ClaimRequest,
    CommandKind,
    Incarnation,
    NewRun,
    Outcome,
    Prompt,
    Receipt,
    RunStatus,
    Submission,
    ToAddress,
    ToRun,
)
from durable_core.retry import RetryPolicy
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.stranding import Strandings
from durable_core.streams import EventView, Streams
from durable_core.testing.histories import check_store
from durable_core.worker import Held as HeldRun
from tests.bot.session.actors import ADDRESS, CHANNEL, PLACE, TOOLS, FakeChannel, Killed, Log, ToldModel

START = 1_700_000_000_000
LEASE = 60_000


def person(name: str, standing: Standing = Standing.MEMBER, *roles: str) -> Principal:
    return Principal(f"fake:{name}" if name else "", name.title(), standing, frozenset(roles), CHANNEL)


ALICE, BOB, FARAH = person("alice"), person("bob"), person("farah", Standing.MEMBER, "finance")
GUEST = person("gus", Standing.GUEST)


@dataclass
class Thread:
    """One app on one store, with everything it does recorded."""

    store: Store
    clock: ManualClock
    keys: KeyRing
    model: ToldModel = field(default_factory=ToldModel)
    log: Log = field(default_factory=Log)
    channel: FakeChannel = field(default_factory=FakeChannel)
    access: AccessPolicy = members_only
    limits: Limits = field(default_factory=Limits)
    tools: tuple[Tool, ...] = TOOLS
    grace: Grace = field(default_factory=Grace)
    lifetime_ms: int | None = None
    groups: dict[str, Any] = field(default_factory=dict)
    accounts: Accounts | None = None
    approval: Approval | When | None = None
    abilities: Abilities = SESSIONS
    deploy: Deploy = field(default_factory=Deploy)
    owner: str = "w1"
    run_id: str = ""
    held: dict[str, HeldRun] = field(default_factory=dict)
    unwatch: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.streams = Streams(self.store)
        self.hire(self.owner)
        self.unwatch = self.store.watch(self._heard)

    def hire(self, owner: str) -> None:
        """Go on with a fresh worker: cold histories, another name."""
        self.owner = owner
        self.agent = Agent("support", self.model, instructions="Help.", tools=self.tools, approval=self.approval)
        agents = {"support": ready(self.agent)}
        people = People(channels={CHANNEL: self.channel})
        self.leftovers = Leftovers(
            store=self.store, strandings=Strandings(store=self.store, abilities=self.abilities, since=self.clock.override() or 0)
        )
        self.answers = Answers(
            store=self.store,
            agents=agents,
            access=self.access,
            people=people,
            leftovers=self.leftovers,
            groups=self.groups,
        )
        self.prompts = Prompts(store=self.store, answers=self.answers)
        self.runner = SessionRunner(
            store=self.store,
            answers=self.answers,
            agents=agents,
            deps=self.log,
            warm=WarmHistories(self.store),
            access=self.access,
            limits=self.limits,
            retry=RetryPolicy(jitter=0),
            grace=self.grace,
            people=people,
            deploy=self.deploy,
            signing=Signing(accounts=self.accounts, private=lambda _: self.channel.capabilities.private),
        )
        self.egress = Egress(
            store=self.store,
            channels={CHANNEL: self.channel},
            owner=owner,
            retry=RetryPolicy(attempts=5, jitter=0),
            leftovers=self.leftovers,
        )

    @property
    def bot(self) -> Bot:
        return Bot(agents=[self.agent], channels=[self.channel], access=self.access)

    def _heard(self, run_ids: Any) -> None:
        for run_id, held in self.held.items():
            if run_ids is None or run_id in run_ids:
                held.changed.set()

    # ── people ──

    async def say(
        self, text: str, who: Principal = ALICE, *, policy: TurnPolicy = TurnPolicy.STEER, address: str = ADDRESS
    ) -> Receipt:
        body = MessageBody(text=text, author=who, place=PLACE, channel=CHANNEL, address=address, turn_policy=policy)
        encoded = codec.encode(body_to_json(body))
        new = NewRun(
            run_id=new_id("ses"),
            name="support",
            creator=who.id,
            header=codec.encode({"channel": CHANNEL}),
            deployment="d",
            lifetime_ms=self.lifetime_ms,
        )
        receipt = await self.store.admit(
            Admission(
                source=CHANNEL,
                key=new_id("key"),
                digest=b"",
                on_conflict="merge",
                submission_id=new_id("sub"),
                target=ToAddress(channel=CHANNEL, address=address, new=new),
                kind=CommandKind.MESSAGE,
                body=encoded,
                principal=who.id,
            )
        )
        self.run_id = receipt.run_id
        return receipt

    async def cancel(self, turn_id: str | None = None) -> Receipt:
        return await self.store.admit(
            Admission(
                source=CHANNEL,
                key=new_id("key"),
                digest=b"",
                on_conflict="merge",
                submission_id=new_id("sub"),
                target=ToRun(run_id=self.run_id),
                kind=CommandKind.CANCEL,
                body=codec.encode({"turn_id": turn_id}),
                principal=ALICE.id,
                turn_id=turn_id,
            )
        )

    async def click(
        self,
        option: str,
        who: Principal = ALICE,
        *,
        prompt: Prompt | None = None,
        note: str = "",
        key: str | None = None,
        edits: dict[str, Any] | None = None,
        fields: dict[str, str] | None = None,
    ) -> AnswerReceipt:
        asked = prompt or await self.prompt()
        return await self.answers.admit(
            asked.prompt_id,
            option,
            principal=who,
            place=PLACE,
            way=Way(via="button", source=CHANNEL, key=key or new_id("key")),
            words=note,
            fields=fields,
            edits=edits,
        )

    # ── workers ──

    async def claim(self) -> HeldRun | None:
        request = ClaimRequest(owner=self.owner, lease_ms=LEASE, limit=1, abilities=self.abilities)
        claimed = await self.store.claim(request)
        if not claimed:
            claimed = await self.store.claim(replace(request, alone=True))
        if not claimed:
            return None
        held = HeldRun(claimed[0])
        self.held[held.claim.run_id] = held
        return held

    def begin(self) -> asyncio.Task[int]:
        """Take what is due in the background; the test goes on meanwhile."""
        return asyncio.create_task(self.work())

    async def work(self) -> int:
        """Advance all that is due until nothing is; how many claims it took."""
        claims = 0
        while True:
            due = await self.store.due(self.owner, self.abilities)
            progress = False
            if due.interaction_at is not None and due.interaction_at <= due.now:
                for interaction in await self.store.take_interactions(self.owner, limit=4, lease_ms=LEASE):
                    await self.answers.evaluate(interaction)
                    progress = True
            if due.run_at is not None and due.run_at <= due.now and (held := await self.claim()) is not None:
                await self.runner.advance(held)
                claims, progress = claims + 1, True
                assert claims < 50, "the run spins"
            for lane in await self.store.claim_lanes(self.owner, limit=4, lease_ms=LEASE):
                await self.egress.send(lane)
                progress = True
            if not progress:
                return claims

    async def killed(self, successor: str) -> None:
        """Work until the worker dies, then have another take over what it held."""
        dead = self.owner
        await self.store.enrol(Incarnation(owner=dead, deployment="d"))
        died = False
        try:
            await self.work()
        except Killed:
            died = True
        assert died, "nothing killed the worker"
        self.hire(successor)
        await self.store.reap(dead)

    async def deaf(self) -> None:
        """Have the worker hear of nothing any more but what its own writes tell it."""
        for _ in range(5):  # what is on its way arrives first: the store answers in order
            await self.store.run(self.run_id)
        self.held.clear()

    def later_s(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    # ── what is so ──

    async def prompt(self) -> Prompt:
        (prompt,) = await self.store.open_prompts(self.run_id)
        return prompt

    async def history(self) -> list[Item]:
        items: list[Item] = []
        for step in await self.store.steps(self.run_id):
            output: Any = codec.decode(step.output)
            items += [from_json(item) for item in output["items"]]
        return items

    async def events(self) -> list[EventView]:
        return await self.streams.read(self.run_id)

    async def types(self) -> list[str]:
        return [event.type for event in await self.events()]

    async def outcome(self, receipt: Receipt) -> Outcome | None:
        return (await self.submission(receipt)).outcome

    async def submission(self, receipt: Receipt) -> Submission:
        return await self.store.submission(receipt.submission_id)

    async def detail(self, receipt: Receipt) -> Any:
        detail = (await self.submission(receipt)).detail
        return None if detail is None else codec.decode(detail)

    async def ended(self) -> bool:
        return (await self.store.run(self.run_id)).status is RunStatus.ENDED

    async def check(self, *, rebuilt: bool = True) -> None:
        """Check what holds for every settled thread: a whole history, one result a call, each input with one outcome.

        And what holds for every store: among it that runs can be rebuilt from their lists.
        """
        await check_store(self.store, rebuilt=rebuilt)
        run = await self.store.run(self.run_id)
        if run.turn_id is None:
            validate_history(await self.history())
            rows = await self.store.rows("SELECT count(*) FROM moor_admission WHERE outcome IS NULL", {})
            assert rows == [(0,)], "an input has no outcome"
            open_rows = await self.store.open_prompts(self.run_id)
            assert open_rows == []
        events = await self.events()
        asked = [call["call_id"] for event in events if event.type == "actions.requested" for call in event.data["actions"]]
        told = [event.data["call_id"] for event in events if event.type == "action.result"]
        assert len(told) == len(set(told)), "a call has two results"
        if run.turn_id is None:
            assert sorted(told) == sorted(set(asked))
        requested = [one["request_id"] for event in events if event.type == "input.requested" for one in event.data["requests"]]
        resolved = [one["request_id"] for event in events if event.type == "input.resolved" for one in event.data["resolutions"]]
        assert len(resolved) == len(set(resolved)), "a request is resolved twice"
        if run.turn_id is None:
            assert sorted(requested) == sorted(resolved)

    @staticmethod
    def settled(receipt: AnswerReceipt) -> bool:
        return receipt.status is AnswerStatus.SETTLED


async def open_thread(path: str = ":memory:", *, clock: ManualClock | None = None, keys: KeyRing | None = None) -> Thread:
    clock = clock or ManualClock(START)
    keys = keys or KeyRing.parse(new_key_entry())
    store = open_store(f"sqlite:///{path}", keys=keys, clock=clock)
    await store.open()
    return Thread(store, clock, keys)
