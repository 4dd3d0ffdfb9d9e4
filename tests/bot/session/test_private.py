"""What was fetched with somebody's own account stays theirs: in other people's turns, for other readers, on cards.

What lives here: results of calls with accounts, as each may read them. What does not: the gate (test_signing.py).
"""

from __future__ import annotations

from typing import Any

from bot.context import ToolContext
from bot.forget import forget_principal
from bot.history import AssistantItem, Call, ResultItem, ResultStatus, Trust, UserItem, from_json, to_json
from bot.policies import auto
from bot.redaction import RESULT_DELETED
from bot.session.handoff import said
from bot.session.private import seen_by, shown_to
from bot.sessions import Sessions
from bot.tools import Tool, tool
from durable_core.streams import Streams
from tests.bot.session.accounts import HUB, SHOP, connect, with_accounts
from tests.bot.session.actors import Log, calls, says
from tests.bot.session.gated import answered, ask, results
from tests.bot.session.kit import ALICE, BOB, Thread
from tests.bot.session.test_forget import stored

HIDDEN = "[fetched with Alice's account; not shown here]"
SEEN = "read_issue as Alice with token-1"


async def fetched(thread: Thread, *more: Tool) -> None:
    accounts = with_accounts(thread, *more)
    accounts.keep(HUB)
    accounts.keep(HUB, BOB)
    accounts.keep(SHOP, "app:")
    await ask(thread, ("read_issue", {}), ("look", {}), ("order", {}))


async def told(thread: Thread, who: Any, kind: str, name: str) -> list[Any]:
    """What a reader of the API is told by events of a kind."""
    sessions = Sessions(
        store=thread.store,
        streams=Streams(thread.store),
        prompts=thread.prompts,
        agents=["support"],
        deployment="d",
        lifetime_ms=None,
    )
    events = [event async for event in await sessions.events(who, thread.run_id, start=0, follow=False)]
    return [event["data"][name] for event in events if event["type"] == kind]


async def test_other_people_s_turns_do_not_see_it_the_person_s_own_do(thread: Thread) -> None:
    await fetched(thread)
    assert [text for _, text in results(thread)] == [SEEN, "saw x", "order as Alice with token-3"]
    await thread.say("and?", BOB)
    await thread.work()
    assert [text for _, text in results(thread)] == [HIDDEN, "saw x", "order as Alice with token-3"]
    await thread.say("and?", ALICE)
    await thread.work()
    assert results(thread)[0][1] == SEEN


async def test_a_cold_worker_keeps_to_it(thread: Thread) -> None:
    await fetched(thread)
    thread.hire("w2")
    await thread.say("and?", BOB)
    await thread.work()
    assert results(thread)[0][1] == HIDDEN


async def test_what_was_posted_of_it_is_there_for_all(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)
    thread.model.script = [calls(("read_issue", {})), says(f"it says {SEEN}")]
    await thread.say("go")
    await thread.work()
    await thread.say("and?", BOB)
    await thread.work()
    texts = [item.text for item in thread.model.requests[-1].history if isinstance(item, AssistantItem)]
    assert f"it says {SEEN}" in texts


async def test_what_the_model_made_of_it_on_its_way_is_not_seen_by_others_either(thread: Thread) -> None:
    """Nobody heard what it said beside its calls, nor what it gave to them."""
    accounts = with_accounts(thread)
    accounts.keep(HUB)
    beside = calls(("look", {"what": f"x for {SEEN}"}), text=f"it says {SEEN}; I look further")
    thread.model.script = [calls(("read_issue", {})), beside, says("all is well")]
    await thread.say("go")
    await thread.work()
    await thread.say("and?", ALICE)
    await thread.work()
    assert str(thread.model.requests[-1].history).count(SEEN) > 2
    thread.hire("w2")
    await thread.say("what did you find?", BOB)
    await thread.work()
    history = thread.model.requests[-1].history
    assert SEEN not in str(history)
    assert [item.text for item in history if isinstance(item, AssistantItem)][:3] == ["", HIDDEN, "all is well"]
    assert [text for _, text in results(thread)] == [HIDDEN, HIDDEN]


async def test_nor_by_whoever_is_told_of_it_in_a_new_session(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)
    beside = calls(("look", {}), text=f"it says {SEEN}")
    thread.model.script = [calls(("look", {}), text="first I look"), calls(("read_issue", {})), beside, says("all is well")]
    await thread.say("go")
    await thread.work()
    lines = said(await thread.store.steps(thread.run_id))
    assert lines == ["Alice: go", "assistant: first I look", "assistant: all is well"]


async def test_readers_of_the_api_see_their_own(thread: Thread) -> None:
    await fetched(thread)
    await thread.say("me too", BOB)
    await thread.work()

    async def read(who: Any) -> list[Any]:
        return await told(thread, who, "action.result", "result")

    assert sorted(await read(ALICE)) == sorted([SEEN, "saw x", "order as Alice with token-3"])
    assert sorted(await read(BOB)) == sorted([HIDDEN, "saw x", "order as Alice with token-3"])


async def test_other_readers_of_the_api_do_not_see_what_was_made_of_it(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)
    beside = calls(("look", {"what": f"x for {SEEN}"}), text=f"it says {SEEN}; I look further")
    thread.model.script = [calls(("read_issue", {})), beside, says("all is well")]
    await thread.say("go")
    await thread.work()
    thread.model.script = [calls(("look", {"what": "the weather"}), text="I look"), says("rain")]
    await thread.say("hi", BOB)
    await thread.work()
    everything = [
        ("actions.requested", "actions"),
        ("message.completed", "message"),
        ("action.result", "result"),
    ]
    for kind, name in everything:
        assert SEEN in str(await told(thread, ALICE, kind, name)), kind
        assert SEEN not in str(await told(thread, BOB, kind, name)), kind
    assert await told(thread, BOB, "message.completed", "message") == [HIDDEN, "all is well", "I look", "rain"]
    asked = await told(thread, BOB, "actions.requested", "actions")
    assert [(one["tool"], one["input"]) for each in asked for one in each] == [
        ("read_issue", {}),
        ("look", {}),
        ("look", {"what": "the weather"}),
    ]


async def test_what_is_told_on_the_way_is_theirs_too(thread: Thread) -> None:
    @tool(effect="read", connections=[HUB])
    async def search(ctx: ToolContext[Log]) -> str:
        """Search as the person."""
        await ctx.progress("found: the plan to sell")
        return "done"

    accounts = with_accounts(thread, search)
    accounts.keep(HUB)
    await ask(thread, ("search", {}))
    await thread.say("me too", BOB)
    await thread.work()
    assert await told(thread, ALICE, "action.partial", "text") == ["found: the plan to sell"]
    assert await told(thread, BOB, "action.partial", "text") == [HIDDEN]


async def test_a_card_says_only_that_it_is_done(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("close_issue", {"number": 7}))
    await answered(thread, "approve")
    await connect(thread)
    await thread.work()
    outcomes = [one.card.outcome.result for one in thread.channel.cards if one.card.outcome is not None]
    assert [result for result in outcomes if result] == ["Done."]
    thread.log.raises["close_issue"] = LookupError("the issue of Alice's is gone")
    await ask(thread, ("close_issue", {"number": 8}))
    await answered(thread, "approve")
    outcomes = [one.card.outcome.result for one in thread.channel.cards if one.card.outcome is not None]
    assert [result for result in outcomes if result] == ["Done.", "It failed."]


async def test_a_judge_of_somebody_else_s_call_does_not_see_it(thread: Thread) -> None:
    @tool(effect="write", approval=auto(instructions="Is this safe?"))
    async def wipe(ctx: ToolContext[Log], what: str = "x") -> str:
        """Wipe something."""
        return "wiped"

    await fetched(thread, wipe)
    thread.model.script = [calls(("wipe", {})), says('{"safe": false, "reason": "no"}')]
    await thread.say("wipe it", BOB)
    await thread.work()
    judged = thread.model.requests[-1]
    assert "Is this safe?" in str(judged)
    assert SEEN not in str(judged)
    await thread.cancel()
    await thread.work()


async def test_it_is_deleted_when_the_person_is_forgotten(thread: Thread) -> None:
    await fetched(thread)
    await thread.say("and?", BOB)
    await thread.work()
    assert SEEN in await stored(thread)
    gone = await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    assert thread.run_id in gone.redacted
    found = await stored(thread)
    assert SEEN not in found
    assert RESULT_DELETED in found
    assert "order as Alice with token-3" in found, "the app's own account is nobody's"
    again = await forget_principal(thread.store, ALICE.id, by="operator", seconds=0)
    assert not again.redacted
    thread.hire("w2")
    await thread.say("and now?", BOB)
    await thread.work()
    assert [text for _, text in results(thread)][1:] == ["saw x", "order as Alice with token-3"]


def test_a_result_says_whose_it_is_in_its_stored_form() -> None:
    item = ResultItem("0.0.0", "t", status=ResultStatus.COMPLETED, content={"a": 1}, origin="tool:t", private_to=ALICE.id)
    assert from_json(to_json(item)) == item
    older = {name: value for name, value in to_json(item).items() if name != "private_to"}
    assert isinstance(from_json(older), ResultItem)


def test_without_a_name_it_is_somebody_s() -> None:
    call = AssistantItem("", (Call("0.0.0", "t", arguments={}),))
    item = ResultItem("0.0.0", "t", status=ResultStatus.COMPLETED, content="x", origin="tool:t", private_to="fake:zoe")
    assert seen_by([call, item], ALICE.id)[1] == ResultItem(
        "0.0.0",
        "t",
        status=ResultStatus.COMPLETED,
        content="[fetched with somebody's account; not shown here]",
        origin="tool:t",
        private_to="fake:zoe",
    )
    said = UserItem("hi", "Zoe", principal="fake:zoe", origin="fake", trust=Trust.REQUESTER, at=1)
    assert "Zoe's" in str(seen_by([said, call, item], ALICE.id))
    assert seen_by([said, call, item], "fake:zoe") == (said, call, item)


def test_an_event_without_an_owner_is_everybody_s() -> None:
    assert shown_to({"result": "x"}, "") == {"result": "x"}
    assert shown_to({"delta": "x", "private_to": {"id": "a", "name": "A"}}, "")["delta"].startswith("[fetched with A's")
    assert shown_to({"result": "x", "private_to": {"id": "a", "name": "A"}}, "")["result"].startswith("[fetched with A's")
