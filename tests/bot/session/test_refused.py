"""Tokens that a service refuses while a body runs: dropped, asked for once more, and then an end; no body runs on unseen.

What lives here: what a refused token leads to, and workers that die on the way. What does not: the gate (test_signing.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from bot.connections.errors import Unauthorized
from bot.context import ToolContext
from bot.history import ResultStatus
from bot.tools import tool
from durable_core.failpoints import arm
from tests.bot.session.accounts import DRIVE, HUB, SHOP, StandIn, body, connect, with_accounts
from tests.bot.session.actors import calls, die
from tests.bot.session.gated import answered, ask, prompts, results
from tests.bot.session.kit import ALICE, Thread

LOOP = "Alice connected GitHub for this call, but it does not take their account. It was begun, and was not run again."


def starved(thread: Thread) -> StandIn:
    """An account whose token is not taken any more."""
    accounts = with_accounts(thread)
    accounts.refusing.add(accounts.keep(HUB).token)
    return accounts


@pytest.mark.parametrize("name", ["open_issue", "read_issue"])
async def test_it_is_dropped_and_asked_for_once_and_the_call_runs_again_from_its_start(thread: Thread, name: str) -> None:
    accounts = starved(thread)
    await ask(thread, (name, {}))
    assert accounts.dropped == [1]
    asked = await thread.prompt()
    assert (asked.kind, body(asked)["reason"], body(asked)["text"]) == ("sign-in", "refused", "Connect GitHub again to go on")
    await connect(thread)
    await thread.work()
    assert [(one, attempt) for one, attempt, *_ in thread.log.runs] == [(name, 2)]
    assert results(thread) == [(ResultStatus.COMPLETED, f"{name} as Alice with token-2")]


async def test_refused_again_right_after_it_ends(thread: Thread) -> None:
    accounts = starved(thread)
    accounts.refusing.add("token-2")
    await ask(thread, ("open_issue", {}))
    await connect(thread)
    await thread.work()
    assert results(thread) == [(ResultStatus.FAILED, LOOP)]
    assert accounts.dropped == [1, 2]


async def test_refused_right_after_the_first_sign_in_it_ends(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.refusing.add("token-1")
    await ask(thread, ("open_issue", {}))
    await connect(thread)
    await thread.work()
    assert results(thread) == [(ResultStatus.FAILED, LOOP)]
    assert await prompts(thread) == []


async def test_side_by_side_they_drop_it_once_and_share_one_request(thread: Thread) -> None:
    accounts = starved(thread)
    await ask(thread, ("open_issue", {}), ("read_issue", {}), ("close_issue", {}))
    assert accounts.dropped == [1]
    approval, sign_in = sorted(await prompts(thread), key=lambda one: one.kind)
    await answered(thread, "approve", prompt=approval)
    assert [one.prompt_id for one in await prompts(thread)] == [sign_in.prompt_id]
    await connect(thread)
    await thread.work()
    assert sorted(thread.log.names()) == ["close_issue", "open_issue", "read_issue"]


async def test_one_that_is_newer_by_now_is_used_at_once(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)

    @tool(effect="write", connections=[HUB])
    async def slow(ctx: ToolContext[Any]) -> str:
        """Take long, while the person connects anew elsewhere."""
        token = await ctx.token(HUB)
        if token == "token-1":
            accounts.keep(HUB)
            raise Unauthorized(HUB)
        return f"{token} at attempt {ctx.attempt}"

    await ask(thread, ("slow", {}), tools=(*thread.tools, slow))
    assert results(thread) == [(ResultStatus.COMPLETED, "token-2 at attempt 2")]
    assert accounts.dropped == []


async def test_one_that_is_newer_each_time_is_not_tried_for_ever(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)
    runs: list[str] = []

    @tool(effect="read", connections=[HUB])
    async def never(ctx: ToolContext[Any]) -> str:
        """Refuse whatever it is given."""
        runs.append(await ctx.token(HUB))
        accounts.keep(HUB)
        raise Unauthorized(HUB)

    await ask(thread, ("never", {}), tools=(*thread.tools, never))
    assert len(runs) == 2
    assert body(await thread.prompt())["reason"] == "refused"
    await connect(thread)
    await thread.work()
    assert len(runs) == 3
    assert results(thread)[0][0] is ResultStatus.FAILED


async def test_a_tool_that_says_so_without_a_token_asks_too(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)
    raised = [Unauthorized(HUB)]

    @tool(effect="write", connections=[HUB])
    def look_up(ctx: ToolContext[Any]) -> str:
        """Find out in another way that the account is no good."""
        if raised:
            raise raised.pop()
        return "fine"

    await ask(thread, ("look_up", {}), tools=(*thread.tools, look_up))
    assert accounts.dropped == []
    await connect(thread)
    await thread.work()
    assert results(thread) == [(ResultStatus.COMPLETED, "fine")]


async def test_an_account_that_may_not_do_it_is_kept_and_asked_for_more(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)
    raised = [Unauthorized(HUB, reason="scopes")]

    @tool(effect="write", connections=[HUB])
    async def push(ctx: ToolContext[Any]) -> str:
        """Be told that the account may not."""
        await ctx.token(HUB)
        if raised:
            raise raised.pop()
        return "pushed"

    await ask(thread, ("push", {}), tools=(*thread.tools, push))
    assert accounts.dropped == []
    assert body(await thread.prompt())["text"] == "Allow more on GitHub to go on"
    await connect(thread)
    await thread.work()
    assert results(thread) == [(ResultStatus.COMPLETED, "pushed")]


async def test_one_of_another_connection_is_a_failure_like_any_other(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)

    @tool(effect="write", connections=[HUB])
    async def odd(ctx: ToolContext[Any]) -> str:
        """Name an account that it does not declare."""
        raise Unauthorized(DRIVE)

    await ask(thread, ("odd", {}), tools=(*thread.tools, odd))
    (told,) = results(thread)
    assert told[0] is ResultStatus.FAILED
    assert "drive" in told[1]


async def test_the_app_s_own_account_asks_nobody(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.refusing.add(accounts.keep(SHOP, "app:").token)
    await ask(thread, ("order", {}))
    assert results(thread) == [
        (
            ResultStatus.FAILED,
            "Run: moorings connections connect shop (app_not_connected). It was begun, and was not run again.",
        )
    ]
    assert accounts.dropped == [1]


async def test_declined_the_model_hears_that_it_was_begun(thread: Thread) -> None:
    starved(thread)
    await ask(thread, ("open_issue", {}))
    await answered(thread, "cancel")
    assert results(thread) == [(ResultStatus.REJECTED, "Alice did not connect GitHub. It was begun, and was not run again.")]


async def test_an_approval_counts_over_a_refused_token(thread: Thread) -> None:
    starved(thread)
    await ask(thread, ("close_issue", {"number": 7}))
    await answered(thread, "approve")
    await connect(thread)
    await thread.work()
    assert [(name, attempt, approver) for name, attempt, _, approver in thread.log.runs] == [("close_issue", 2, ALICE.id)]
    kinds = [event.data["requests"][0]["kind"] for event in await thread.events() if event.type == "input.requested"]
    assert kinds == ["approval", "sign-in"]


# ── workers that die ──


async def begin(thread: Thread) -> None:
    thread.model.script = [calls(("open_issue", {}))]
    await thread.say("go")


async def test_killed_once_the_refusal_is_kept_the_person_is_asked_to_connect_not_to_run_it_again(thread: Thread) -> None:
    accounts = starved(thread)
    await begin(thread)
    with arm("record.after_commit", die, on=3):  # the reply, the start, the refusal
        await thread.killed("w2")
    assert accounts.dropped == []
    await thread.work()
    assert accounts.dropped == [1]
    assert (await thread.prompt()).kind == "sign-in"
    await connect(thread)
    await thread.work()
    assert [(name, attempt) for name, attempt, *_ in thread.log.runs] == [("open_issue", 2)]


async def test_killed_before_the_refusal_is_kept_nobody_knows_and_it_is_asked(thread: Thread) -> None:
    accounts = starved(thread)
    await begin(thread)
    with arm("tool.after_effect", die):
        await thread.killed("w2")
    await thread.work()
    rerun = await thread.prompt()
    assert rerun.kind == "rerun"
    assert accounts.dropped == []
    await answered(thread, "rerun", prompt=rerun)
    assert (await thread.prompt()).kind == "sign-in"
    await connect(thread)
    await thread.work()
    assert results(thread)[0][0] is ResultStatus.COMPLETED


async def test_cut_off_and_then_without_an_account_its_effect_stays_unknown(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)
    await begin(thread)
    with arm("tool.after_effect", die):
        await thread.killed("w2")
    await thread.work()
    accounts.kept.clear()
    await answered(thread, "rerun")
    await answered(thread, "cancel")
    (told,) = results(thread)
    assert told == (
        ResultStatus.UNKNOWN,
        (
            "Alice did not connect GitHub. It was cut off while it ran, and was not run again. "
            "Whether it took effect is not known."
        ),
    )


async def test_killed_while_it_runs_again_on_a_newer_one_it_counts_as_cut_off(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)

    @tool(effect="write", connections=[HUB])
    async def slow(ctx: ToolContext[Any]) -> str:
        """Die in the second run, if told so."""
        token = await ctx.token(HUB)
        if token == "token-1":
            accounts.keep(HUB)
            raise Unauthorized(HUB)
        return token

    thread.tools = (*thread.tools, slow)
    thread.hire("w1")
    thread.model.script = [calls(("slow", {}))]
    await thread.say("go")
    with arm("tool.after_effect", die, on=2):
        await thread.killed("w2")
    await thread.work()
    assert (await thread.prompt()).kind == "rerun"
    await answered(thread, "rerun")
    assert results(thread) == [(ResultStatus.COMPLETED, "token-2")]
