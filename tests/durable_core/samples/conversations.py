"""Conversations that leave behind a value of every kind and shape that this version stores.

What lives here: what people, models and workflows do. What does not: gathering what that leaves (make.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import JsonValue

from bot.answers import Answers, Way
from bot.approvals import Approval
from bot.context import ToolContext
from bot.egress import Egress
from bot.flows import workflow_tool
from bot.flows.surface import InConversation
from bot.ingress import Ingress
from bot.policies import auto, once
from bot.principal import Principal
from bot.ready_tools import ask_question, sleep
from bot.routes import address, escalate
from bot.session.runner import SessionRunner
from bot.tools import Tool, tool
from bot.turn.state import Limits
from channels.errors import DeliveryFailed
from channels.http import WebhookRequest
from durable_core import codec, internal
from durable_core.context import WorkflowContext
from durable_core.crypto import KeyRing
from durable_core.engine.runner import Runner
from durable_core.engine.signals import signal_admission
from durable_core.failpoints import arm
from durable_core.model import INTERNAL, SESSIONS, Interaction, Lane, Prompt, PromptOutcome, RunKind, ToRun
from durable_core.operations import Option
from durable_core.registry import Registry, step, workflow
from durable_core.retry import RetryPolicy
from durable_core.store import Store
from durable_core.worker import Held
from tests.bot.session.accounts import TOOLS as ACCOUNT_TOOLS
from tests.bot.session.accounts import StandIn, accounts_of, connect, press, settle
from tests.bot.session.actors import PLACE, TOOLS, Killed, Log, ToldModel, calls, die, says
from tests.bot.session.kit import ALICE, BOB, FARAH, Thread, open_thread
from tests.durable_core.conformance.sqlite import KEYS

HOUR = timedelta(hours=1)
ROOM = "fake:v1:finance"


# ── what is called ──


def gated(name: str, **gate: Any) -> Tool:
    """A tool behind an approval."""

    @tool(name=name, effect="write", approval=Approval(ask="Send {amount}?", **gate))
    async def send(ctx: ToolContext[Log], amount: int, to: str = "eve") -> str:
        """Send money."""
        await ctx.deps.run(name, ctx)
        return f"sent {amount} to {to}"

    return send


LISTED = [BOB.id, FARAH.id, ALICE.id]
GATED = (
    gated("voted", by=LISTED, by_text="Finance", quorum=2, remind_after=HOUR, expires=3 * HOUR),
    gated("handed_on", expires=HOUR, on_expiry=[escalate(by=[FARAH.id], by_text="The boss", to=address(ROOM), expires=HOUR)]),
    gated("private", route="direct"),
    gated("changed", edit=("amount",)),
    gated("once", when=once(arguments=["to"])),
    gated("judged", when=auto(ToldModel(), criteria=["it is little"])),
    gated("elsewhere", by=[FARAH.id], route=address(ROOM)),
)


def weigh(parcel: str) -> dict[str, Any]:
    return {"parcel": parcel, "grams": 1_200}


@step(attempts=2, backoff=RetryPolicy(first=timedelta(minutes=10), cap=timedelta(minutes=10)))
def never(parcel: str) -> str:
    raise LookupError(f"no such place: {parcel}")


@workflow
async def label(ctx: WorkflowContext, parcel: str) -> str:
    """Print a label."""
    await ctx.sleep(5)
    return f"label of {parcel}"


@workflow
async def ship(ctx: WorkflowContext, parcel: str) -> str:
    """Ship a parcel.

    Args:
        ctx: The run.
        parcel: What to ship.
    """
    weighed = await ctx.step(weigh, parcel)
    ctx.progress(f"Weighed {parcel}.")
    answer = await ctx.ask("Which way?", [Option("air", "By air", style="primary"), Option("sea", "By sea")], expires=10 * HOUR)
    printed = await ctx.child(label, parcel)
    said = await ctx.ask("Anything else to say?", allow_freeform=True, by={"group": "finance"} if parcel == "stays" else None)
    news = await ctx.wait_for("news") if parcel == "waits" else None
    with suppress(Exception):
        await ctx.step(never, parcel)
    return f"{weighed['grams']} g, {answer.option_id}, {printed}, {said.text}, {news}"


# ── who does it ──


@dataclass
class Sampled(Thread):
    """A thread whose worker runs workflows too, and that shows what passes by."""

    seen: Callable[[str, str, bytes], None] = lambda *_: None
    """Told of what passes by: its kind, what more there is to say of it, the body."""

    def __post_init__(self) -> None:
        self.store = Listening(self.store, record=partial(self._record, self.store))
        super().__post_init__()

    def hire(self, owner: str) -> None:
        registry = Registry((ship, label))
        self.tools = (*TOOLS, *GATED, ask_question, sleep, workflow_tool(ship), *ACCOUNT_TOOLS)
        self.accounts = self.log.accounts = self.accounts or StandIn()
        self.abilities = replace(SESSIONS, workflows=registry.names)
        super().hire(owner)
        flows = Runner(store=self.store, registry=registry, clock=self.clock, surface=InConversation())
        # what the kit's own loop calls, with a look at what passes by
        self.runner = Listening(self.runner, advance=partial(self._advance, self.runner, flows))  # type: ignore[assignment]
        self.egress = Listening(self.egress, send=partial(self._send, self.egress))  # type: ignore[assignment]
        self.answers = Listening(self.answers, evaluate=partial(self._evaluate, self.answers))  # type: ignore[assignment]

    async def _advance(self, sessions: SessionRunner, flows: Runner, held: Held) -> None:
        await (flows.advance(held) if held.claim.kind is RunKind.WORKFLOW else sessions.advance(held))

    async def _send(self, egress: Egress, lane: Lane) -> None:
        for item in lane.items:
            if lane.channel != INTERNAL:
                self.seen("outbox", "edit" if item.edit_of else "post", item.body)
        await (internal.deliver(self.store, lane, self.owner) if lane.channel == INTERNAL else egress.send(lane))

    async def _evaluate(self, answers: Answers, interaction: Interaction) -> None:
        self.seen("answer", interaction.answer.option_id, interaction.answer.body)
        await answers.evaluate(interaction)

    async def _record(self, store: Store, run_id: str, epoch: int, **told: Any) -> Any:
        self.seen("record", told["key"].partition(":")[0], told["body"])
        return await store.record(run_id, epoch, **told)

    async def tell(self, place: str, text: str, who: str = "alice") -> None:
        """Write in a thread, over the channel, as a platform would; and have a worker do what follows."""
        taker = Ingress(
            store=self.store,
            channels={"fake": self.channel},
            agent_of={"fake": "support"},
            answers=self.answers,
            deployment="d1",
            lifetime_ms=2_592_000_000,
        )
        event = {"who": who, "text": text, "key": f"{place}:{text}", "address": f"fake:v1:{place}"}
        taken = await taker.receive("fake", WebhookRequest("POST", "/", headers={}, body=codec.encode(event)))
        self.run_id = taken.receipts[0].run_id

    async def ask(self, place: str, *replies: Any) -> None:
        """Have a turn in a thread in which the model answers this."""
        self.model.script = list(replies)
        await self.tell(place, "go on")
        await self.work()

    async def answer(self, option: str, who: Principal = ALICE, **more: Any) -> None:
        await self.click(option, who, **more)
        await self.work()

    async def of_workflow(self) -> Prompt:
        """The newest question of a workflow."""
        found = await self.store.rows(
            "SELECT p.prompt_id FROM moor_prompt p JOIN moor_run r ON r.run_id = p.run_id WHERE r.kind = 'workflow'"
            " AND p.outcome IS NULL ORDER BY p.created_at DESC, p.prompt_id DESC LIMIT 1",
            {},
        )
        return await self.store.prompt(str(found[0][0]))


class Listening:
    """Stands before somebody, and does a few things in their place."""

    def __init__(self, inner: Any, **instead: Any) -> None:
        self._inner = inner
        self.__dict__ |= instead

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# ── what happens ──


async def conversations(path: str, seen: Callable[[str, str, bytes], None]) -> Sampled:
    """Have what there can be."""
    opened = await open_thread(path, keys=KeyRing.parse(KEYS))
    thread = Sampled(opened.store, opened.clock, opened.keys, seen=seen)
    for happens in (talk, approvals, shared, pauses, limits, places, interrupted, workflows, accounts):
        await happens(thread)
    return thread


async def talk(thread: Sampled) -> None:
    """Text, tools, a refused request, a cancelled and a failed turn."""
    await thread.ask("idle", calls(("look", {"at": "order 7"}), text="Let me see."), says("It is on its way." * 60))
    thread.model.script = [calls(("pay", {"amount": 5}))]
    await thread.tell("idle", "pay 5")
    await thread.work()
    await thread.answer("deny", FARAH, note="not this month")
    thread.model.script = [calls(("refund", {"amount": 3}))]
    await thread.tell("idle", "refund 3")
    await thread.work()
    await thread.cancel()
    await thread.work()
    thread.model.script = [RuntimeError("no such model")] * 4
    await thread.tell("idle", "and now?")
    for _ in range(5):
        await thread.work()
        thread.later_s(3_600)


async def approvals(thread: Sampled) -> None:
    """One that waits; lists and quorums; changes before a yes; a yes that counts for later; one by a typed word."""
    await thread.ask("parked", calls(("refund", {"amount": 20}), text="I'll ask."))
    await thread.ask("voted", calls(("voted", {"amount": 5})))
    await thread.answer("approve", BOB)
    await thread.tell("voted", "I want to know too", who="carl")
    await thread.work()
    thread.clock.advance(HOUR)
    await thread.work()  # it reminds
    await thread.ask("agreed", calls(("voted", {"amount": 6})))
    await thread.answer("approve", BOB)
    await thread.answer("approve", FARAH, note="fine")
    await thread.ask("changed", calls(("changed", {"amount": 7})))
    await thread.answer("approve", edits={"amount": 4}, note="less")
    await thread.ask("overridden", calls(("voted", {"amount": 7})))
    asked, way = await thread.prompt(), Way(via="api", source="api", key="overridden")
    await thread.answers.admit(asked.prompt_id, "approve", principal=FARAH, place=PLACE, way=way, override="Bob is away")
    await thread.work()
    await thread.ask("granted", calls(("once", {"amount": 8})))
    await thread.answer("approve")
    await thread.ask("judged", calls(("judged", {"amount": 4})))
    await thread.ask("typed", calls(("refund", {"amount": 9})))
    await thread.tell("typed", "approve")
    await thread.work()


async def shared(thread: Sampled) -> None:
    """Calls that share a card, one settled and two not; and a card whose calls are all settled."""
    await thread.ask("shared", calls(("refund", {"amount": 1}), ("refund", {"amount": 2}), ("refund", {"amount": 3})))
    first, *_ = await thread.store.open_prompts(thread.run_id)
    await thread.answer("approve", prompt=first)


async def pauses(thread: Sampled) -> None:
    """Questions and sleep, open and over."""
    question: tuple[str, dict[str, JsonValue] | str] = ("ask_question", {"text": "Which colour?", "options": ["Red", "Blue"]})
    await thread.ask("chosen", calls(question))
    await thread.answer("option_2")
    await thread.ask("worded", calls(question))
    await thread.tell("worded", "something greenish")
    await thread.work()
    await thread.ask("asked", calls(question))
    await thread.ask("slept", calls(("sleep", {"seconds": 5})))
    thread.later_s(6)
    await thread.work()
    await thread.ask("asleep", calls(("sleep", {"minutes": 60 * 24 * 7})))


async def limits(thread: Sampled) -> None:
    """Turns that ask whether they may go on: one that may, one that waits."""
    for place, bounds in (("longer", Limits(model_calls=1)), ("dearer", Limits(input_tokens=1)), ("over", Limits(model_calls=1))):
        thread.limits = bounds
        thread.hire("w1")
        await thread.ask(place, calls(("look", {})), says("That is all."))
        if place != "over":
            await thread.answer("continue")
    thread.limits = Limits()
    thread.hire("w1")


async def places(thread: Sampled) -> None:
    """Cards that are private, elsewhere, handed on, and that can't be delivered."""
    await thread.ask("private", calls(("private", {"amount": 10})))
    await thread.ask("handed on", calls(("handed_on", {"amount": 11})))
    thread.clock.advance(HOUR)
    await thread.work()
    thread.model.script = [calls(("elsewhere", {"amount": 12}))]
    await thread.tell("elsewhere", "go on")
    thread.channel.failures = [DeliveryFailed("is_archived", permanent=True)] * 2
    await thread.work()
    thread.channel.failures = []


async def interrupted(thread: Sampled) -> None:
    """A tool that is cut off: one whose worker just died, one that people are asked about."""
    for place, cut_off in (("asked again", "put"), ("killed", "put_once")):
        thread.model.script = [calls(("look", {"at": "a"}), (cut_off, {}))]
        await thread.tell(place, "put it down")
        with arm("tool.after_effect", die, on=2):
            if place == "killed":
                with suppress(Killed):
                    await thread.work()
            else:
                await thread.killed("w2")
        thread.hire("w3")
        await thread.work()


async def accounts(thread: Sampled) -> None:
    """Calls that act with accounts: some wait, one of them approved; others were connected, declined, refused."""
    kept = accounts_of(thread)
    await thread.ask("unsigned", calls(("open_issue", {"title": "a"}), ("delete_repo", {})))
    await thread.ask("signing", calls(("close_issue", {"number": 7})))
    await thread.answer("approve", edits={"number": 8}, note="that one")
    await press(thread, "connect")
    await thread.work()
    await thread.ask("declined", calls(("open_issue", {})))
    await settle(thread, await thread.prompt(), option="declined", outcome=PromptOutcome.DENIED, note="Alice declined.")
    await thread.work()
    await thread.ask("connected", calls(("open_issue", {})))
    await connect(thread)
    await thread.work()
    kept.refusing.add(kept.kept["hub", ALICE.id].token)
    await thread.ask("refused", calls(("open_issue", {})))
    await connect(thread)
    await thread.work()


async def workflows(thread: Sampled) -> None:
    """Workflow calls: one that ends, one that is stopped, one that waits for a person, one for a signal."""
    for place, parcel in (("ended", "a vase"), ("stopped", "a vase"), ("waiting", "stays"), ("signalled", "waits")):
        thread.later_s(60)  # so that its questions are the newest
        await thread.ask(place, calls(("ship", {"parcel": parcel})))
        if place == "stopped":
            await thread.tell(place, "never mind")
            await thread.work()
            continue
        await thread.answer("air", prompt=await thread.of_workflow())
        thread.later_s(6)
        await thread.work()
        if place == "waiting":
            continue
        asked = await thread.of_workflow()
        await thread.answer("", prompt=asked, fields={"text": "no"})
        for _ in range(5):
            await thread.work()
            thread.later_s(3_600)
        if place == "signalled":
            await thread.store.admit(signal_admission(ToRun(run_id=asked.run_id), "news", {"n": 1}, key=None, by="carl"))
