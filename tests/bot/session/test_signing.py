"""Calls that act with somebody's account: each asks for it once, runs as them once it is there, and ends where it is not.

What lives here: the gate in whole turns. What does not: refused tokens (test_refused.py), answers and buttons
(test_sign_in_answers.py), who sees what came of it (test_private.py).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bot.access import Action, Allow, Decision, Deny
from bot.context import ToolContext
from bot.ending import end_session
from bot.history import ResultStatus
from bot.principal import Principal
from bot.tools import tool
from bot.turn.state import TurnPolicy
from channels.contract import Capabilities
from channels.errors import DeliveryFailed
from channels.events import Place
from durable_core.failpoints import arm
from durable_core.model import Outcome, PromptOutcome
from tests.bot.session import kit
from tests.bot.session.accounts import DRIVE, HUB, SHOP, body, connect, settle, with_accounts
from tests.bot.session.actors import ADDRESS, CHANNEL, calls, die, says
from tests.bot.session.gated import answered, ask, prompts, results
from tests.bot.session.kit import ALICE, BOB, Thread, person

DAY = 24 * 60 * 60


def card_texts(thread: Thread) -> list[tuple[str | None, str, str]]:
    """What was shown, in order: to whom alone, the question, how it ended."""
    return [
        (one.message.private_to, one.card.question, one.card.outcome.text if one.card.outcome else "")
        for one in thread.channel.cards
    ]


async def test_with_the_account_there_nobody_is_asked(thread: Thread) -> None:
    accounts = with_accounts(thread)
    accounts.keep(HUB)
    await ask(thread, ("open_issue", {}))
    assert results(thread) == [(ResultStatus.COMPLETED, "open_issue as Alice with token-1")]
    assert thread.channel.cards == []


async def test_without_it_the_person_is_asked_alone_and_the_others_see_who_is_waited_for(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("open_issue", {"title": "broken"}))
    assert thread.log.runs == []
    asked = await thread.prompt()
    assert (asked.kind, asked.requester, asked.policy.value) == ("sign-in", ALICE.id, "requester")
    assert card_texts(thread) == [
        (None, "Paused: waiting for Alice to connect GitHub.", ""),
        ("alice", "Connect GitHub to go on", ""),
    ]
    status, private = (shown.card for shown in thread.channel.cards)
    assert (status.buttons, status.fields, status.detail, status.expires_at) == ((), (), "", None)
    assert [button.label for button in private.buttons] == ["Connect GitHub", "Cancel"]
    assert private.fields == (("Account", "GitHub"), ("It may", "repo"), ("Tool", "open_issue"))
    stored = body(asked)
    assert {name: stored[name] for name in ("connection", "title", "scopes", "agent", "channel", "address", "reason")} == {
        "connection": "hub",
        "title": "GitHub",
        "scopes": ["repo"],
        "agent": "support",
        "channel": CHANNEL,
        "address": ADDRESS,
        "reason": "missing",
    }
    assert (stored["session_id"], stored["turn_id"]) == (thread.run_id, "turn_0")
    assert (await thread.types())[-3:] == ["authorization.required", "step.completed", "turn.waiting"]
    await thread.cancel()
    await thread.work()


async def test_connected_it_runs_once_as_them_and_both_cards_say_so(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    await connect(thread)
    await thread.work()
    assert [(name, attempt, approver) for name, attempt, _, approver in thread.log.runs] == [("open_issue", 1, None)]
    assert results(thread) == [(ResultStatus.COMPLETED, "open_issue as Alice with token-1")]
    assert card_texts(thread)[2:] == [
        (None, "Alice connected GitHub.", "Alice connected GitHub."),
        ("alice", "Connect GitHub to go on", "Alice connected GitHub."),
    ]
    assert [shown.edits for shown in thread.channel.cards] == [None, None, "m0", "m1"]
    assert "alice@hub" not in str(thread.channel.cards[2])
    types = await thread.types()
    assert types[types.index("turn.waiting") + 1 :][:5] == [
        "authorization.completed",
        "input.resolved",
        "step.started",
        "action.result",
        "step.completed",
    ]
    (completed,) = [event.data for event in await thread.events() if event.type == "authorization.completed"]
    assert (completed["name"], completed["outcome"], completed["responder"]) == ("hub", "authorized", ALICE.id)


async def test_calls_of_one_turn_share_one_request(thread: Thread) -> None:
    accounts = with_accounts(thread)
    await ask(thread, ("open_issue", {"title": "a"}), ("read_issue", {}), ("delete_repo", {}), ("look", {}))
    assert thread.log.names() == ["look"]
    asked = await thread.prompt()
    assert body(asked)["scopes"] == ["repo", "admin"]
    assert body(asked)["fields"][-1] == ["Tool", "open_issue, read_issue, delete_repo"]
    assert len(thread.channel.cards) == 2
    await connect(thread)
    await thread.work()
    assert sorted(thread.log.names()) == ["delete_repo", "look", "open_issue", "read_issue"]
    assert {status for status, _ in results(thread)} == {ResultStatus.COMPLETED}
    assert accounts.versions == 1


async def test_a_shared_request_that_is_declined_ends_all_of_its_calls(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("open_issue", {}), ("read_issue", {}))
    await answered(thread, "cancel")
    assert results(thread) == [(ResultStatus.REJECTED, "Alice did not connect GitHub. The call did not run.")] * 2
    assert card_texts(thread)[-1][2] == "Alice did not connect GitHub."


async def test_a_call_that_is_approved_meanwhile_joins_what_is_asked(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("open_issue", {}), ("close_issue", {"number": 7}))
    approval, sign_in = sorted(await prompts(thread), key=lambda one: one.kind)
    assert (approval.kind, sign_in.kind) == ("approval", "sign-in")
    await answered(thread, "approve", prompt=approval)
    assert thread.log.runs == []
    assert [one.prompt_id for one in await prompts(thread)] == [sign_in.prompt_id]
    await connect(thread)
    await thread.work()
    assert [(name, approver) for name, _, _, approver in thread.log.runs] == [("open_issue", None), ("close_issue", ALICE.id)]


async def test_a_call_that_needs_more_than_what_is_asked_asks_for_the_rest_later(thread: Thread) -> None:
    @tool(effect="write", connections=[HUB.scoped("admin")], approval=thread.tools[4].approval)
    async def refund_as(ctx: ToolContext[Any], amount: int) -> str:
        """Refund as the person."""
        return await ctx.token(HUB)

    with_accounts(thread, refund_as)
    await ask(thread, ("open_issue", {}), ("refund_as", {"amount": 5}))
    approval = next(one for one in await prompts(thread) if one.kind == "approval")
    await answered(thread, "approve", prompt=approval)
    assert len(await prompts(thread)) == 1
    await connect(thread)
    await thread.work()
    (more,) = await prompts(thread)
    assert (body(more)["reason"], body(more)["scopes"]) == ("scopes", ["repo", "admin"])
    assert thread.log.names() == ["open_issue"]
    await connect(thread)
    await thread.work()
    assert results(thread)[1] == (ResultStatus.COMPLETED, "token-2")


async def test_several_accounts_are_asked_for_one_after_the_other(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("export", {}))
    await connect(thread, HUB)
    await thread.work()
    assert thread.log.runs == []
    asked = await thread.prompt()
    assert body(asked)["connection"] == "drive"
    await connect(thread, DRIVE)
    await thread.work()
    assert results(thread) == [(ResultStatus.COMPLETED, "export as Alice with token-1 token-2")]


async def test_approved_first_then_signed_in_once_each(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("close_issue", {"number": 7}))
    approval = await thread.prompt()
    assert approval.kind == "approval"
    await thread.click("approve", edits={"number": 8}, note="fine")
    await thread.work()
    sign_in = await thread.prompt()
    assert (sign_in.kind, body(sign_in)["action"]["input"]) == ("sign-in", {"number": 8})
    thread.later_s(3600)
    await connect(thread)
    await thread.work()
    assert [(name, attempt, approver) for name, attempt, _, approver in thread.log.runs] == [("close_issue", 1, ALICE.id)]
    (told,) = results(thread)
    assert told[0] is ResultStatus.COMPLETED
    assert "Alice changed number from 7 to 8 before approving this call." in told[1]
    kinds = [event.data["requests"][0]["kind"] for event in await thread.events() if event.type == "input.requested"]
    assert kinds == ["approval", "sign-in"]
    on_approval = [one for one in thread.channel.cards if one.card.question == "Close 7?"]
    assert on_approval[-1].card.outcome is not None
    assert on_approval[-1].card.outcome.result == "Done."


async def test_approvals_on_one_card_keep_what_came_of_each_over_the_sign_in(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("close_issue", {"number": 1}), ("close_issue", {"number": 2}))
    first, second = await prompts(thread)
    await answered(thread, "approve", prompt=first)
    await answered(thread, "deny", prompt=second)
    await connect(thread)
    await thread.work()
    card = [one for one in thread.channel.cards if one.card.items][-1].card
    assert [item.outcome.result for item in card.items if item.outcome is not None] == ["Done.", ""]


async def test_a_tool_that_changed_between_the_yes_and_the_sign_in_does_not_run(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("close_issue", {"number": 7}))
    await answered(thread, "approve")

    @tool(name="close_issue", effect="write", connections=[HUB])
    async def changed(ctx: ToolContext[Any], number: int = 1, hard: bool = True) -> str:
        """Close an issue, or delete it."""
        raise AssertionError

    thread.tools = (*(one for one in thread.tools if one.name != "close_issue"), changed)
    thread.hire("w2")
    await connect(thread)
    await thread.work()
    (told,) = results(thread)
    assert told[0] is ResultStatus.REJECTED
    assert "has changed since" in told[1]


async def test_whoever_may_not_use_the_bot_any_more_gets_nothing_run(thread: Thread) -> None:
    barred: list[str] = []

    def access(who: Principal, place: Place, action: Action) -> Decision:
        return Deny("left") if who.id in barred else Allow()

    thread.access = access
    with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    barred.append(ALICE.id)
    await connect(thread)
    await thread.work()
    assert thread.log.runs == []
    (told,) = results(thread)
    assert told[0] is ResultStatus.REJECTED
    assert told[1].startswith("The call did not run. Alice may not use this bot here any more")


async def test_nobody_in_particular_has_no_account(thread: Thread) -> None:
    thread.access = lambda _, __, ___: Allow()
    with_accounts(thread)
    thread.model.script = [issue()]
    await thread.say("go", person(""))
    await thread.work()
    assert results(thread) == [
        (ResultStatus.REJECTED, "GitHub works with the account of whoever asks (principal_required). The call did not run.")
    ]


def issue() -> Any:

    return calls(("open_issue", {}))


async def test_the_app_s_own_account_is_connected_by_no_user(thread: Thread) -> None:
    accounts = with_accounts(thread)
    await ask(thread, ("order", {}))
    (told,) = results(thread)
    assert told == (
        ResultStatus.REJECTED,
        "Run: moorings connections connect shop (app_not_connected). The call did not run.",
    )
    accounts.keep(SHOP, "app:")
    await ask(thread, ("order", {}))
    assert results(thread)[-1] == (ResultStatus.COMPLETED, "order as Alice with token-1")
    assert await thread.store.open_prompts(thread.run_id) == []


async def test_less_than_what_is_needed_ends_the_call_there_is_no_second_request(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("delete_repo", {}))
    await connect(thread, scopes=["repo"])
    await thread.work()
    assert results(thread) == [
        (
            ResultStatus.REJECTED,
            "Alice connected GitHub for this call, but the account may not do all that the call needs. The call did not run.",
        )
    ]


async def test_an_account_that_is_gone_again_ends_the_call(thread: Thread) -> None:
    accounts = with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    await connect(thread)
    accounts.kept.clear()
    await thread.work()
    assert results(thread) == [
        (ResultStatus.REJECTED, "Alice connected GitHub for this call, but it is not connected any more. The call did not run.")
    ]


async def test_declined_at_the_service_the_model_is_told_why(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    await settle(thread, await thread.prompt(), option="declined", outcome=PromptOutcome.DENIED, note="Alice declined at GitHub.")
    await thread.work()
    assert results(thread) == [
        (ResultStatus.REJECTED, "Alice did not connect GitHub. Alice declined at GitHub. The call did not run.")
    ]


async def test_nobody_connects_it_in_time(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("open_issue", {}), ("read_issue", {}))
    thread.later_s(4 * 3600)
    await thread.work()
    (reminder,) = [one.message for one in thread.channel.shown if "Still unanswered" in one.message.text]
    assert (reminder.private_to, reminder.mentions) == ("alice", ("alice",))
    thread.later_s(DAY)
    await thread.work()
    assert results(thread) == [(ResultStatus.EXPIRED, "Nobody connected GitHub in time. The call did not run.")] * 2
    assert [text for _, _, text in card_texts(thread)[-2:]] == ["Nobody connected GitHub in time."] * 2
    (completed,) = [event.data for event in await thread.events() if event.type == "authorization.completed"]
    assert completed["outcome"] == "timed-out"


async def test_writing_on_ends_it_and_the_words_are_taken_in(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("open_issue", {}), ("export", {}))
    await thread.say("never mind")
    await thread.work()
    text = "The person wrote a new message instead of connecting GitHub. The call did not run."
    assert results(thread) == [(ResultStatus.REJECTED, text)] * 2
    assert {text for _, _, text in card_texts(thread)[2:]} == {"GitHub was not connected: Alice wrote on."}


async def test_a_word_of_somebody_else_waits(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    await thread.say("me too", BOB)
    await thread.work()
    assert len(await prompts(thread)) == 1
    await connect(thread)
    await thread.work()
    assert thread.log.names() == ["open_issue"]


async def test_cancel_withdraws_it_and_a_late_sign_in_settles_nothing(thread: Thread) -> None:
    with_accounts(thread)
    receipt = await thread.say("first")
    await thread.work()
    await ask(thread, ("open_issue", {}), ("read_issue", {}))
    asked = await thread.prompt()
    await thread.cancel()
    late = await settle(thread, asked)
    await thread.work()
    assert (late.status.value, late.reason) in {("refused", "cancelled"), ("already_settled", None)}
    assert thread.log.runs == []
    assert await thread.outcome(receipt) is Outcome.COMPLETED
    assert {text for _, _, text in card_texts(thread)[2:]} == {"GitHub was not connected: it is not needed any more."}


async def test_a_session_that_is_ended_withdraws_it(thread: Thread) -> None:

    with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    asked = await thread.prompt()
    await end_session(thread.store, await thread.store.run(thread.run_id), reason="reset", by=ALICE.id, note=None)
    await thread.work()
    late = await settle(thread, asked)
    assert late.status.value in {"refused", "already_settled"}
    thread.run_id = ""  # it ended in the middle of a call: there is no whole history to check
    assert {text for _, _, text in card_texts(thread)[2:]} == {"GitHub was not connected: it is not needed any more."}


async def test_a_queued_word_that_came_first_keeps_the_question_from_being_put(thread: Thread) -> None:
    with_accounts(thread)

    async def reply(request: Any, on_text: Any) -> Any:
        await thread.say("wait", policy=TurnPolicy.STEER)
        return issue()

    thread.model.script = [reply, says("fine")]
    await thread.say("go")
    await thread.work()
    assert [text for _, text in results(thread)] in (
        ["Nobody was asked to connect hub: the person wrote on. The call did not run."],
        [],
    )
    assert thread.log.runs == []


# ── where it is asked ──


async def test_in_a_conversation_of_theirs_alone_there_is_one_card(thread: Thread, monkeypatch: Any) -> None:
    monkeypatch.setattr(kit, "PLACE", Place("direct"))
    with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    assert card_texts(thread) == [(None, "Connect GitHub to go on", "")]
    await connect(thread)
    await thread.work()
    assert card_texts(thread)[-1] == (None, "Connect GitHub to go on", "Alice connected GitHub.")


async def test_where_nobody_can_be_asked_alone_nothing_is_sent(thread: Thread, monkeypatch: Any) -> None:
    monkeypatch.setattr(type(thread.channel), "capabilities", Capabilities(buttons=True, edit=True))
    with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    assert thread.channel.cards == []
    (told,) = results(thread)
    assert told == (
        ResultStatus.REJECTED,
        (
            "Alice has to connect GitHub first, and can't be asked privately here. They may write to this bot directly. "
            "The call did not run."
        ),
    )
    monkeypatch.setattr(kit, "PLACE", Place("direct"))
    await ask(thread, ("open_issue", {}))
    assert card_texts(thread) == [(None, "Connect GitHub to go on", "")]
    await connect(thread)
    await thread.work()


async def test_a_private_card_that_can_t_be_delivered_ends_the_call(thread: Thread) -> None:
    with_accounts(thread)
    thread.model.script = [issue()]
    await thread.say("go")
    real = thread.channel._try

    def fails(delivery: Any) -> None:
        if delivery.message.private_to is not None and delivery.message.card is not None:
            raise DeliveryFailed("channel_not_found", permanent=True)
        real(delivery)

    thread.channel._try = fails  # type: ignore[method-assign]
    await thread.work()
    (told,) = results(thread)
    assert told == (
        ResultStatus.REJECTED,
        "Alice could not be asked privately to connect GitHub: channel_not_found. The call did not run.",
    )
    assert card_texts(thread)[0][1] == "Paused: waiting for Alice to connect GitHub."
    assert card_texts(thread)[1][1] == "GitHub was not connected: it is not needed any more."
    assert "input.undeliverable" in await thread.types()


async def test_a_status_that_can_t_be_shown_is_no_reason_to_end_anything(thread: Thread) -> None:
    with_accounts(thread)
    thread.model.script = [issue()]
    await thread.say("go")
    thread.channel.failures = [DeliveryFailed("archived", permanent=True)]
    await thread.work()
    assert card_texts(thread) == [("alice", "Connect GitHub to go on", "")]
    await connect(thread)
    await thread.work()
    assert thread.log.names() == ["open_issue"]


async def test_in_a_conversation_of_theirs_alone_it_may_be_plain_text(thread: Thread, monkeypatch: Any) -> None:
    monkeypatch.setattr(kit, "PLACE", Place("direct"))
    with_accounts(thread)
    thread.model.script = [issue()]
    await thread.say("go")
    thread.channel.failures = [DeliveryFailed("invalid_blocks", permanent=True)]
    await thread.work()
    assert "Connect GitHub" in thread.channel.texts[-1]
    await thread.cancel()
    await thread.work()
    thread.model.script = [issue()]
    await thread.say("again")
    thread.channel.failures = [DeliveryFailed("gone", permanent=True), DeliveryFailed("gone", permanent=True)]
    await thread.work()
    assert "could not be asked privately to connect GitHub: gone." in results(thread)[-1][1]


# ── workers that die ──


async def test_killed_after_the_request_was_put_it_is_not_put_twice(thread: Thread) -> None:
    with_accounts(thread)
    thread.model.script = [issue()]
    await thread.say("go")
    with arm("park.after_commit", die):
        await thread.killed("w2")
    await thread.work()
    assert len(await prompts(thread)) == 1
    await connect(thread)
    with arm("tool.before_start", die):
        await thread.killed("w3")
    await thread.work()
    assert [(name, attempt) for name, attempt, *_ in thread.log.runs] == [("open_issue", 1)]


async def test_killed_before_the_request_is_kept_it_is_made_anew_and_the_others_stand(thread: Thread) -> None:

    with_accounts(thread)
    thread.model.script = [calls(("put", {}), ("open_issue", {}))]
    await thread.say("go")
    with arm("tool.after_record", die):
        await thread.killed("w2")
    await thread.work()
    assert thread.log.names() == ["put"]
    assert len(await prompts(thread)) == 1
    assert len(thread.model.requests) == 1
    await connect(thread)
    await thread.work()
    assert thread.log.names() == ["put", "open_issue"]


async def test_connected_while_no_worker_runs_it_is_found_by_the_next(thread: Thread) -> None:
    with_accounts(thread)
    await ask(thread, ("open_issue", {}))
    await connect(thread)
    thread.hire("w2")
    thread.clock.advance(timedelta(days=10))
    await thread.work()
    assert thread.log.names() == ["open_issue"]
