"""The scripted model: each journey by text, decided from the request alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.demo import greeting_of
from bot.errors import ModelFailed
from bot.history import AssistantItem, Call, Item, ResultItem, ResultStatus, Trust, UserItem
from bot.model import Finish, Model, ModelReply, ModelRequest, ToolSpec
from bot.scripted import WORD_PAUSE_S, ScriptedModel, plan_reply

TOOLS = [ToolSpec(name, "", schema={}) for name in ("refund_charge", "slow", "open_issue", "disconnect_account")]


def said(text: str, author: str = "Alice") -> UserItem:
    return UserItem(text, author, principal="console:alice", origin="console", trust=Trust.REQUESTER, at=1)


async def ask(*history: Item, attempt: int = 1, tools: Sequence[ToolSpec] = TOOLS, told: str = "") -> ModelReply:
    pieces: list[str] = []

    async def hear(text: str) -> None:
        pieces.append(text)

    async def no_pause(_: float) -> None: ...

    request = ModelRequest(told, history, tools=tools, attempt=attempt, session_id="ses_1", sequence=7)
    reply = await ScriptedModel(pause=no_pause).reply(request, hear)
    assert "".join(pieces) == reply.text
    return reply


def test_it_is_a_model() -> None:
    assert isinstance(ScriptedModel(), Model)


async def test_hello_greets_by_name_and_counts_messages() -> None:
    assert (await ask(said("hello"))).text == "Hello Alice! This is message 1 of this conversation."
    later = await ask(said("x"), AssistantItem("y"), said("Hello!", "Bob\u202e"))
    assert later.text == "Hello Bob\\u202e! This is message 2 of this conversation."
    assert (await ask(said("<@U123> hello"))).text.startswith("Hello Alice!")
    assert (await ask(said("@Moorings: hello"))).text.startswith("Hello Alice!")


@pytest.mark.parametrize(("deployment", "by"), [("v2", ", answered by v2"), ("v17", ", answered by v17")])
async def test_a_later_deployment_of_the_demo_says_which_one_it_is(deployment: str, by: str) -> None:
    reply = await ask(said("hello"), told=f"You help.{greeting_of(deployment)}")
    assert reply.text == f"Hello Alice! This is message 1 of this conversation{by}."


@pytest.mark.parametrize("deployment", ["", "v1", "2.0.1", "v", "vx", "main-v2"])
def test_others_need_no_word_of_it(deployment: str) -> None:
    assert greeting_of(deployment) == ""


async def test_anything_else_comes_back_with_the_number_of_messages() -> None:
    assert (await ask(said("ahoy there"))).text == "You said: ahoy there\nThat makes 1 message so far."
    assert (await ask(said("a"), AssistantItem("b"), said("c"))).text == "You said: c\nThat makes 2 messages so far."
    assert (await ask()).text == "Nobody has said anything yet."


@pytest.mark.parametrize(
    ("text", "amount", "charge"),
    [
        ("refund 20 for ch_1042", "20", "ch_1042"),
        ("Refund  $19.90  FOR  ch-7", "19.90", "ch-7"),
    ],
)
async def test_refund_calls_the_gated_tool(text: str, amount: str, charge: str) -> None:
    reply = await ask(said(text))
    (call,) = reply.calls
    assert (call.tool, call.arguments) == ("refund_charge", {"charge_id": charge, "amount": amount})
    assert (reply.text, reply.finish, call.provider_id) == ("", Finish.TOOLS, "scripted_7")


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("issue Broken link on page 3", "open_issue", {"title": "Broken link on page 3"}),
        ("disconnect tracker", "disconnect_account", {"account": "tracker"}),
        ("Disconnect", "disconnect_account", {"account": "tracker"}),
    ],
)
async def test_accounts_are_used_and_disconnected(text: str, tool: str, arguments: dict[str, str]) -> None:
    (call,) = (await ask(said(text))).calls
    assert (call.tool, call.arguments) == (tool, arguments)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("refund", "refund 20 for ch_1042"),
        ("refund abc for x", "abc is not an amount"),
        ("refund 0.00 for x", "0.00 is not an amount"),
        ("refund -5 for x", "-5 is not an amount"),
        ("refund 1e9 for x", "1e9 is not an amount"),
        ("refund 20 for", "can't tell what"),
        ("refund 20 for two charges", "can't tell what"),
        ("slow", "slow 20"),
        ("issue", "issue Broken link"),
        ("slow down", "slow 20"),
        ("slow -1", "slow 20"),
        ("stream", "stream 100"),
        ("stream 0", "stream 100"),
        ("stream ten", "stream 100"),
        ("fail", "fail 2"),
        ("fail often", "fail 2"),
    ],
)
async def test_a_malformed_command_is_answered_with_help(text: str, hint: str) -> None:
    reply = await ask(said(text))
    assert not reply.calls
    assert hint in reply.text


@pytest.mark.parametrize(("text", "seconds"), [("slow 30", 30.0), ("slow 0.5", 0.5), ("slow 99999999999999", 600.0)])
async def test_slow_calls_its_tool_within_bounds(text: str, seconds: float) -> None:
    (call,) = (await ask(said(text))).calls
    assert (call.tool, call.arguments) == ("slow", {"seconds": seconds})


@pytest.mark.parametrize(("text", "count"), [("stream 1", 1), ("stream 30", 30), ("stream 999999999999", 2000)])
async def test_stream_says_that_many_words_one_by_one(text: str, count: int) -> None:
    pieces: list[str] = []
    pauses: list[float] = []

    async def hear(piece: str) -> None:
        pieces.append(piece)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    reply = await ScriptedModel(pause=pause).reply(ModelRequest("", [said(text)]), hear)
    assert len(pieces) == len(reply.text.split()) == count
    assert "".join(pieces) == reply.text
    assert pauses == [WORD_PAUSE_S] * count


async def test_fail_fails_that_often_and_then_answers() -> None:
    for attempt in (1, 2):
        with pytest.raises(ModelFailed) as caught:
            await ask(said("fail 2"), attempt=attempt)
        assert caught.value.retryable
        assert caught.value.code == "scripted_failure"
    assert (await ask(said("fail 2"), attempt=3)).text == "Answered at attempt 3."
    assert (await ask(said("fail 0"))).text == "Answered at attempt 1."
    with pytest.raises(ModelFailed):
        await ask(said("fail 99999999999"), attempt=100)


def after(status: ResultStatus, content: str | None) -> list[Item]:
    call = Call("0.0.0", "refund_charge", arguments={})
    return [
        said("refund 20 for ch_1"),
        AssistantItem("", (call,)),
        ResultItem("0.0.0", "refund_charge", status=status, content=content, origin="tool:refund_charge"),
    ]


@pytest.mark.parametrize(
    ("status", "content", "answer"),
    [
        (ResultStatus.COMPLETED, "Refunded 20.", "Refunded 20."),
        (ResultStatus.FAILED, "ValueError: no", "refund_charge failed. ValueError: no"),
        (ResultStatus.REJECTED, "too much", "refund_charge was not run: it was denied. too much"),
        (ResultStatus.REJECTED, None, "refund_charge was not run: it was denied."),
        (ResultStatus.EXPIRED, "", "refund_charge was not run: nobody answered in time."),
        (ResultStatus.CANCELLED, "", "refund_charge was cancelled."),
        (ResultStatus.UNKNOWN, "", "refund_charge was interrupted; whether it took effect is not known."),
    ],
)
async def test_an_answer_says_how_the_call_ended(status: ResultStatus, content: str | None, answer: str) -> None:
    reply = await ask(*after(status, content))
    assert (reply.text, reply.calls, reply.finish) == (answer, (), Finish.STOP)


async def test_a_new_message_after_results_is_a_new_command() -> None:
    reply = await ask(*after(ResultStatus.COMPLETED, "Refunded 20."), AssistantItem("Refunded 20."), said("hello"))
    assert reply.text == "Hello Alice! This is message 2 of this conversation."


async def test_an_agent_without_the_tool_says_so() -> None:
    reply = await ask(said("slow 1"), tools=[])
    assert not reply.calls
    assert "no such tool" in reply.text


@given(st.text() | st.builds("{} {}".format, st.sampled_from(["refund", "slow", "stream", "fail"]), st.text()))
def test_any_text_has_an_answer_and_the_same_one_again(text: str) -> None:
    request = ModelRequest("", [said(text)], tools=TOOLS)
    plan = plan_reply(request)
    assert plan.text or plan.call
    assert plan == plan_reply(request)
