"""Gates before a call: what each policy does to it, what the prompt says, and whom nobody can reach."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bot.answerers import By, group
from bot.approvals import Approval, ToolCall, always
from bot.context import ToolContext
from bot.history import AssistantItem, Call, Item, NoteItem, ResultItem, ResultStatus, Trust, UserItem
from bot.model import ModelReply, RequestedCall
from bot.policies import Ruling, auto, deny, never, once
from bot.principal import Principal
from bot.routes import address, escalate
from bot.session.evidence import MOST_LINES, evidence
from bot.tools import Tool, tool
from bot.turn.state import Turn
from channels.events import Place
from durable_core.model import AnswerPolicy, AnswerStatus
from tests.bot.session.actors import Log, calls, look, put
from tests.bot.session.gated import answered, ask, body, prompts, results
from tests.bot.session.kit import ALICE, BOB, FARAH, START, Thread
from tests.bot.session.test_approvals import Tainted
from tests.bot.session.test_interruption import killed_at

HOUR = 3_600_000


async def note(ctx: ToolContext[Log], text: str = "x") -> str:
    """Note something."""
    await ctx.deps.run("note", ctx)
    return "noted"


def declared(approval: Any = None, **more: Any) -> Tool:
    return tool(approval=approval, **more)(note)


def no(call: ToolCall) -> Ruling:
    return deny("not on a Friday")


class Judge:
    name = "judge"

    async def reply(self, *_: object) -> Any:
        raise AssertionError("it is not to be asked")


@pytest.mark.parametrize(
    ("gate", "runs"),
    [(None, True), (never, True), (lambda _: "allow", True), (always, False), (once(), False), (lambda _: "ask", False)],
)
async def test_a_policy_lets_it_run_or_asks(thread: Thread, gate: Any, runs: bool) -> None:
    await ask(thread, ("note", {}), tools=(declared(gate),))
    assert thread.log.names() == (["note"] if runs else [])
    assert len(await prompts(thread)) == (0 if runs else 1)
    await thread.cancel()
    await thread.work()


async def test_a_denial_is_a_result_with_its_reason_and_asks_nobody(thread: Thread) -> None:
    await ask(thread, ("note", {}), tools=(declared(no),))
    assert thread.log.runs == []
    assert thread.channel.cards == []
    assert results(thread) == [(ResultStatus.REJECTED, "The policy of note refused this call: not on a Friday. It did not run.")]


@pytest.mark.parametrize("gate", [None, never, lambda _: "allow", auto(Judge(), criteria=["ok"])])
async def test_after_untrusted_content_no_policy_lets_a_write_run_unasked(thread: Thread, gate: Any) -> None:
    thread.tools = (declared(gate),)
    thread.hire("w1")
    object.__setattr__(thread.runner, "warm", Tainted(thread.store))
    await ask(thread, ("note", {}))
    assert thread.log.runs == []
    assert body(await thread.prompt())["evidence"] == ["From outside, not vouched for: mail:eve"]
    await answered(thread, "approve")
    assert thread.log.names() == ["note"]


async def test_nor_does_a_yes_from_before(thread: Thread) -> None:
    await ask(thread, ("note", {}), tools=(declared(once()),))
    await answered(thread, "approve")
    object.__setattr__(thread.runner, "warm", Tainted(thread.store))
    await ask(thread, ("note", {}))
    assert thread.log.names() == ["note"]
    await answered(thread, "deny")


@pytest.mark.parametrize(("gate", "runs"), [(never, True), (no, False)])
async def test_a_tool_may_say_that_untrusted_content_is_no_matter(thread: Thread, gate: Any, runs: bool) -> None:
    thread.tools = (declared(gate, untrusted="allow"),)
    thread.hire("w1")
    object.__setattr__(thread.runner, "warm", Tainted(thread.store))
    await ask(thread, ("note", {}))
    assert (thread.log.names() == ["note"]) is runs
    assert await prompts(thread) == []


async def test_untrusted_content_asks_who_the_policy_names(thread: Thread) -> None:
    thread.tools = (declared(Approval(when=never, by=group("finance"))),)
    thread.hire("w1")
    object.__setattr__(thread.runner, "warm", Tainted(thread.store))
    await ask(thread, ("note", {}))
    assert (await answered(thread, "approve", ALICE)).status is AnswerStatus.REFUSED
    assert (await answered(thread, "approve", FARAH)).status is AnswerStatus.SETTLED


async def test_a_group_is_the_resolvers_to_know(thread: Thread) -> None:
    async def resolver(principal: Principal) -> bool:
        return principal.id == BOB.id

    thread.groups = {"finance": resolver}
    await ask(thread, ("note", {}), tools=(declared(Approval(by=group("finance"))),))
    assert body(await thread.prompt())["waiting_for"] == "Somebody in finance"
    assert (await answered(thread, "approve", FARAH)).status is AnswerStatus.REFUSED
    assert (await answered(thread, "approve", BOB)).status is AnswerStatus.SETTLED
    assert thread.log.names() == ["note"]


async def test_an_agents_approval_holds_for_writes_that_declare_none(thread: Thread) -> None:
    thread.approval = Approval(by=group("finance"))
    free = tool(approval=never, name="free")(note)
    await ask(thread, ("note", {}), ("free", {}), ("look", {}), tools=(declared(), free, look))
    assert sorted(thread.log.names()) == ["look", "note"]
    (asked,) = await prompts(thread)
    assert body(asked)["action"]["tool"] == "note"
    assert (await answered(thread, "approve", ALICE)).status is AnswerStatus.REFUSED
    assert (await answered(thread, "approve", FARAH)).status is AnswerStatus.SETTLED


async def test_a_call_that_began_is_not_asked_about_when_the_policy_changes_its_mind(thread: Thread) -> None:
    answers: list[Ruling] = ["allow"]
    moody = tool(approval=lambda _: answers.pop() if answers else "ask", idempotent=True)(note)
    thread.tools = (moody,)
    thread.hire("w1")
    await thread.say("go")
    thread.model.script = [calls(("note", {}))]
    await killed_at(thread, "tool.after_record")
    await thread.work()
    assert thread.log.names() == ["note"]
    assert await prompts(thread) == []
    assert results(thread) == [(ResultStatus.COMPLETED, "noted")]


class Careful:
    """A judge that has a doubt, and counts how often it is asked."""

    name = "careful"

    def __init__(self) -> None:
        self.asked = 0

    async def reply(self, *_: object) -> ModelReply:
        self.asked += 1
        return ModelReply(
            "", (RequestedCall("verdict", {"verdict": "caution", "reason": f"doubt {self.asked}", "criteria": {"1": True}}),)
        )


async def test_what_a_judge_doubts_stands_on_the_card_and_is_paid_for_once(thread: Thread) -> None:
    judge = Careful()
    gated = declared(auto(judge, criteria=["ok"]))
    thread.tools = (gated, put)
    thread.hire("w1")
    thread.model.script = [calls(("note", {}), ("put", {}))]
    await thread.say("go")
    await killed_at(thread, "tool.before_start")
    await thread.work()
    assert judge.asked == 1
    assert body(await thread.prompt())["evidence"] == ["careful judged this call: doubt 1"]
    await answered(thread, "approve")
    assert thread.log.names() == ["put", "note"]
    await ask(thread, ("note", {}))
    assert judge.asked == 2
    await answered(thread, "deny")


async def test_a_cut_off_call_is_asked_about_without_paying_a_judge(thread: Thread) -> None:
    judge = Careful()
    await ask(thread, ("note", {}), tools=(declared(auto(judge, criteria=["ok"])),))
    await thread.click("approve")
    await killed_at(thread, "tool.after_effect")
    await thread.work()
    assert (await thread.prompt()).kind == "rerun"
    assert judge.asked == 1
    await answered(thread, "skip")


async def test_a_prompt_says_all_that_others_go_by(thread: Thread) -> None:
    gate = Approval(
        by=[BOB.id, FARAH.id, ALICE.id],
        quorum=2,
        expires=timedelta(days=1),
        remind_after=timedelta(hours=2),
        route=address("fake:v1:approvals"),
        on_expiry=[
            escalate(by=group("finance"), expires=timedelta(hours=5)),
            escalate(to=address("fake:v1:boss"), by_text="The boss"),
        ],
    )
    await ask(thread, ("note", {"text": "a\nb"}), tools=(declared(gate),))
    prompt = await thread.prompt()
    stored = body(prompt)
    assert {key: stored[key] for key in stored if key not in ("request_id", "requester", "options", "binding")} == {
        "kind": "approval",
        "turn_id": "turn_0",
        "text": "Run note?",
        "detail": "fake:bob or fake:farah may answer, and 2 of them have to approve. It runs once, as Alice.",
        "waiting_for": "fake:bob or fake:farah",
        "action": {"call_id": "0.0.0", "tool": "note", "input": {"text": "a\nb"}},
        "fields": [["Tool", "note"], ["text", "a\\nb"]],
        "evidence": [],
        "display": "buttons",
        "allow_freeform": False,
        "note": True,
        "edit": [],
        "expires_at": START + 24 * HOUR,
        "by_approval": True,
        "quorum": 2,
        "group": None,
        "masked": [],
        "route": {"to": "address", "channel": "fake", "address": "fake:v1:approvals"},
        "remind_ms": 2 * HOUR,
        "on_expiry": "escalate",
        "levels": [
            {"waiting_for": "Somebody in finance", "channel": None, "address": None, "answerers": None},
            {"waiting_for": "The boss", "channel": "fake", "address": "fake:v1:boss", "answerers": None},
        ],
        "level_ms": [5 * HOUR, 24 * HOUR],
    }
    assert prompt.policy is AnswerPolicy.FUNCTION  # since one of the levels takes a look-up
    await thread.cancel()
    await thread.work()


@pytest.mark.parametrize(
    ("by", "quorum", "expected", "answerers"),
    [
        (None, 1, AnswerPolicy.REQUESTER, None),
        ([BOB.id, FARAH.id, ALICE.id], 1, AnswerPolicy.LISTED, (BOB.id, FARAH.id)),
        (group("finance"), 2, AnswerPolicy.FUNCTION, None),
    ],
)
async def test_whom_the_store_is_told_of(
    thread: Thread, by: By | None, quorum: int, expected: AnswerPolicy, answerers: tuple[str, ...] | None
) -> None:
    drafts: list[Any] = []
    commit = thread.store.commit

    async def kept(made: Any) -> Any:
        drafts.extend(made.prompts)
        return await commit(made)

    object.__setattr__(thread.store, "commit", kept)
    await ask(thread, ("note", {}), tools=(declared(Approval(by=by, quorum=quorum, remind_after=timedelta(hours=1))),))
    (draft,) = drafts
    assert (draft.policy, draft.answerers, draft.quorum) == (expected, answerers or (), quorum)
    assert (draft.remind_at, draft.asked) == (START + HOUR, body(await thread.prompt())["waiting_for"])
    await thread.cancel()
    await thread.work()


@pytest.mark.parametrize(
    ("gate", "remind_ms", "expires_at"),
    [
        (always, 4 * HOUR, START + 72 * HOUR),
        (Approval(expires=timedelta(hours=4)), None, START + 4 * HOUR),
        (Approval(remind_after=None), None, START + 72 * HOUR),
        (Approval(expires=None), 4 * HOUR, None),
    ],
)
async def test_nobody_is_reminded_of_what_is_over(
    thread: Thread, gate: Approval, remind_ms: int | None, expires_at: int | None
) -> None:
    await ask(thread, ("note", {}), tools=(declared(gate),))
    stored = body(await thread.prompt())
    assert (stored["remind_ms"], stored["expires_at"]) == (remind_ms, expires_at)
    await answered(thread, "deny")


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        (Approval(by=[ALICE.id]), "nobody may approve this call"),
        (Approval(by=[ALICE.id, BOB.id], quorum=2), "only 1 of the 2 people it takes may approve this call"),
    ],
)
async def test_what_nobody_could_approve_is_not_asked_for(thread: Thread, gate: Approval, why: str) -> None:
    await ask(thread, ("note", {}), tools=(declared(gate),))
    assert thread.channel.cards == []
    ((status, content),) = results(thread)
    assert status is ResultStatus.REJECTED
    assert content == f"It was not asked for: {why}, since whoever asks may not approve their own. The call did not run."


# ── evidence ──

TURN = Turn(number=1, requester=ALICE, place=Place("channel"), channel=None, address=None, submissions=())


def said(who: Principal, trust: Trust = Trust.REQUESTER) -> UserItem:
    return UserItem("x", who.name, principal=who.id, origin="slack", trust=trust, at=0)


def read(call_id: str, name: str = "look", trust: Trust = Trust.TOOL, **arguments: Any) -> list[Item]:
    return [
        AssistantItem("", (Call(call_id, name, arguments=arguments),)),
        ResultItem(call_id, name, status=ResultStatus.COMPLETED, content="", origin=f"tool:{name}", trust=trust),
    ]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([said(ALICE)], ()),
        ([said(ALICE), *read("0.0.0"), AssistantItem("done"), said(ALICE)], ()),
        ([said(ALICE), *read("1.0.0", at="sea")], ("Read since the request: look(at=sea), from tool:look",)),
        # what was read before a correction in the same turn counts too
        ([said(ALICE), *read("1.0.0", at="sea"), said(ALICE)], ("Read since the request: look(at=sea), from tool:look",)),
        ([said(BOB), said(ALICE)], ("Said since the request: a message of Bob",)),
        ([said(BOB), AssistantItem("hi"), said(ALICE)], ()),
        (
            [NoteItem("", "mail:eve", trust=Trust.UNTRUSTED), said(FARAH, Trust.UNTRUSTED), AssistantItem("hi"), said(ALICE)],
            ("From outside, not vouched for: mail:eve", "From outside, not vouched for: a message of Farah (slack)"),
        ),
        (
            [*read("0.0.0", "fetch", Trust.UNTRUSTED), AssistantItem("hi"), said(ALICE)],
            ("From outside, not vouched for: fetch (tool:fetch)",),
        ),
        (
            [said(ALICE), NoteItem("", "thread", trust=Trust.MEMBER), NoteItem("", "framework", trust=Trust.SYSTEM)],
            ("Read since the request: thread",),
        ),
        ([said(ALICE), *read("1.0.0", at="x" * 90)], (f"Read since the request: look(at={'x' * 79}…), from tool:look",)),
        ([said(ALICE), *read("1.0.0", at="\u202e")], ("Read since the request: look(at=\\u202e), from tool:look",)),
    ],
)
def test_the_evidence_is_what_was_read_and_from_whom(history: list[Item], expected: tuple[str, ...]) -> None:
    assert evidence(history, TURN, {"look": look}) == expected


def test_much_evidence_is_counted() -> None:
    history: list[Item] = [said(ALICE)]
    for number in range(MOST_LINES + 5):
        history += read(f"1.0.{number}", at=str(number))
    lines = evidence(history, TURN, {"look": look})
    assert len(lines) == MOST_LINES
    assert lines[-1] == "And 6 more"
