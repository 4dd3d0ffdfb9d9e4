"""Dead workers: what the next one finds, runs again, asks about, or leaves alone; each count exact.

What lives here: one death in each window of a step. What does not: the store's own crash safety (the crash matrix).
"""

from __future__ import annotations

import asyncio

import pytest

from bot.errors import ModelFailed
from bot.history import ResultItem, ResultStatus
from bot.model import ModelReply, ModelRequest, OnText
from bot.principal import Principal
from bot.session import thinking
from durable_core.failpoints import arm
from durable_core.model import Outcome
from tests.bot.session.actors import Held, Killed, calls, die, says
from tests.bot.session.kit import ALICE, GUEST, Thread
from tests.bot.session.test_approvals import ask


def statuses(thread: Thread, request: int) -> list[ResultStatus]:
    return [item.status for item in thread.model.requests[request].history if isinstance(item, ResultItem)]


async def killed_at(thread: Thread, place: str, on: int = 1) -> None:
    with arm(place, die, on=on):
        await thread.killed("w2")


async def test_before_the_model_call_it_is_made_by_the_next(thread: Thread) -> None:
    await thread.say("hi")
    await killed_at(thread, "model.before_call")
    await thread.work()
    assert len(thread.model.requests) == 1
    assert [request.attempt for request in thread.model.requests] == [2]
    assert thread.channel.texts == ["answer 1"]
    started = [(event.attempt, event.data.get("previous")) for event in await thread.events() if event.type == "step.started"]
    assert started == [(1, None), (2, "killed")]


async def test_before_the_reply_is_kept_the_call_is_made_again(thread: Thread) -> None:
    await thread.say("hi")
    await killed_at(thread, "model.after_reply")
    await thread.work()
    assert len(thread.model.requests) == 2
    assert thread.channel.texts == ["answer 2"]


async def test_a_recorded_reply_is_not_paid_for_again(thread: Thread) -> None:
    thread.model.script = [calls(("put", {}))]
    await thread.say("go")
    await killed_at(thread, "tool.before_start")
    await thread.work()
    assert len(thread.model.requests) == 2
    assert [(name, attempt) for name, attempt, *_ in thread.log.runs] == [("put", 1)]
    started = [event for event in await thread.events() if event.type == "step.started"]
    assert started[1].data["reused"] == {"model": True, "tools": []}


@pytest.mark.parametrize("tool", ["look", "put_once"])
async def test_reads_and_idempotent_writes_run_again_with_the_same_key(thread: Thread, tool: str) -> None:
    thread.model.script = [calls((tool, {}))]
    await thread.say("go")
    await killed_at(thread, "tool.after_effect")
    await thread.work()
    (first, second) = thread.log.runs
    assert first[2] == second[2] == f"{thread.run_id}:0.0.0"
    assert (first[1], second[1]) == (1, 2)
    assert len(thread.model.requests) == 2
    assert statuses(thread, 1) == [ResultStatus.COMPLETED]


async def test_a_recorded_result_is_not_run_again(thread: Thread) -> None:
    thread.model.script = [calls(("put", {}), ("look", {}))]
    thread.log.holds["look"] = hold = Held()
    await thread.say("go")
    await killed_at(thread, "tool.after_record")
    hold.go.set()
    await thread.work()
    assert thread.log.names().count("put") == 1
    assert len(thread.model.requests) == 2
    assert statuses(thread, 1) == [ResultStatus.COMPLETED] * 2


async def cut_off(thread: Thread, tool: str = "put") -> None:
    thread.model.script = [calls((tool, {}))]
    await thread.say("go")
    await killed_at(thread, "tool.after_effect")
    await thread.work()


@pytest.mark.parametrize(("option", "runs"), [("rerun", ["put", "put"]), ("skip", ["put"])])
async def test_any_other_write_is_run_again_only_if_a_person_says_so(thread: Thread, option: str, runs: list[str]) -> None:
    await cut_off(thread)
    assert thread.log.names() == ["put"]
    prompt = await thread.prompt()
    assert prompt.kind == "rerun"
    assert [button.label for button in thread.channel.cards[0].card.buttons] == ["Run again", "Don't run again"]
    await thread.click(option)
    await thread.work()
    assert thread.log.names() == runs
    assert [attempt for _, attempt, *_ in thread.log.runs] == list(range(1, len(runs) + 1))
    assert len({key for *_, key, _ in thread.log.runs}) == 1
    assert statuses(thread, 1) == [ResultStatus.COMPLETED if option == "rerun" else ResultStatus.UNKNOWN]
    assert len(thread.model.requests) == 2


async def test_an_approved_call_that_was_cut_off_is_not_run_again_for_its_approval(thread: Thread) -> None:
    await ask(thread)
    await thread.click("approve")
    await killed_at(thread, "tool.after_effect")
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert (await thread.prompt()).kind == "rerun"
    await thread.click("rerun")
    await killed_at_again(thread)
    await thread.work()
    assert thread.log.names() == ["refund", "refund"]
    await thread.click("skip")
    await thread.work()
    assert statuses(thread, 1) == [ResultStatus.UNKNOWN]


async def killed_at_again(thread: Thread) -> None:
    with arm("tool.after_effect", die, on=1):
        await thread.killed("w3")


async def test_where_the_author_says_so_the_model_is_told(thread: Thread) -> None:
    await cut_off(thread, "put_told")
    assert thread.log.names() == ["put_told"]
    assert await thread.store.open_prompts(thread.run_id) == []
    assert statuses(thread, 1) == [ResultStatus.UNKNOWN]


async def test_a_refusal_in_between_does_not_make_the_next_one_forget_what_began(thread: Thread) -> None:
    thread.model.script = [calls(("put", {}))]
    await thread.say("go")
    await killed_at(thread, "tool.after_effect")
    guest = await thread.say("let me in", GUEST)
    await thread.work()
    assert len(thread.model.requests) == 1
    assert thread.log.names() == ["put"]
    assert (await thread.prompt()).kind == "rerun"
    assert await thread.outcome(guest) is Outcome.FAILED
    await thread.click("skip")
    await thread.work()


async def streamed_and_died(thread: Thread) -> None:
    async def half(request: ModelRequest, on_text: OnText) -> ModelReply:
        await on_text("half a sen")
        while "message.appended" not in await thread.types():
            await asyncio.sleep(0)
        return says("half a sentence")

    thread.model.script = [half]
    await thread.say("red")
    await killed_at(thread, "model.after_reply")


@pytest.mark.parametrize("who", [ALICE, GUEST])
async def test_what_a_dead_worker_streamed_is_told_apart_from_what_comes_next(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, who: Principal
) -> None:
    monkeypatch.setattr(thinking, "FLUSH_SECONDS", 0)
    await streamed_and_died(thread)
    await thread.say("no, blue", who)
    await thread.work()
    started = [(event.data["step_index"], event.attempt) for event in await thread.events() if event.type == "step.started"]
    assert started == ([(0, 1), (1, 1)] if who is ALICE else [(0, 1), (0, 2)])
    assert [text for text in thread.channel.texts if text.startswith("answer")] == ["answer 2"]


async def test_a_cancel_in_between_ends_the_turn_as_unknown(thread: Thread) -> None:
    thread.model.script = [calls(("put", {}), ("look", {}))]
    thread.log.holds["look"] = Held()
    receipt = await thread.say("go")
    await killed_at(thread, "tool.after_effect")
    await thread.cancel()
    await thread.work()
    results = {item.tool: item.status for item in await thread.history() if isinstance(item, ResultItem)}
    assert results == {"put": ResultStatus.UNKNOWN, "look": ResultStatus.CANCELLED}
    assert await thread.outcome(receipt) is Outcome.ABORTED
    assert thread.log.names().count("put") == 1


async def test_after_the_commit_nothing_is_done_again(thread: Thread) -> None:
    await ask(thread)
    await thread.click("approve")
    await killed_at(thread, "commit.after")
    await thread.work()
    assert thread.log.names() == ["refund"]
    assert len(thread.model.requests) == 2
    assert thread.channel.texts == ["answer 2"]


@pytest.mark.parametrize("tool", ["look", "put_once"])
async def test_a_tool_that_kills_its_worker_each_time_fails_its_turn_only(thread: Thread, tool: str) -> None:
    thread.model.script = [calls((tool, {}))]
    receipt = await thread.say("go")
    deaths = 0
    while await thread.outcome(receipt) is None:
        assert deaths < 10
        try:
            with arm("tool.after_effect", die):
                await thread.work()
        except Killed:
            deaths += 1
            dead, thread.owner = thread.owner, f"w{deaths + 1}"
            thread.hire(thread.owner)
            await thread.store.reap(dead)
    # the first death came with a record made under its claim, which is progress; then four that count
    assert (deaths, len(thread.log.runs)) == (5, 5)
    assert await thread.outcome(receipt) is Outcome.FAILED
    assert (await thread.detail(receipt))["code"] == "attempts_exhausted"
    after = await thread.say("and now?")
    await thread.work()
    assert await thread.outcome(after) is Outcome.COMPLETED
    assert len(thread.model.requests) == 2


async def test_failed_model_calls_do_not_count_as_runs_of_the_tool(thread: Thread) -> None:
    thread.model.script = [ModelFailed("overloaded", "x", retryable=True), calls(("look", {})), says("ok")]
    await thread.say("go")
    await thread.work()
    thread.later_s(60)
    await thread.work()
    assert [attempt for _, attempt, *_ in thread.log.runs] == [1]
