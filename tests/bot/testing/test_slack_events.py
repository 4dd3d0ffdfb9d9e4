"""What the simulated Slack sends: its form, its signature, its retries.

What lives here: events, clicks and commands as an app hears them. What does not: the Web API.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bot.testing import FakeSlack, StillWaiting
from channels.errors import InvalidSignature
from channels.http import WebhookRequest
from channels.signing import HmacScheme
from tests.bot.testing.kit import Ear, harbour, listening

SCHEME = HmacScheme("X-Slack-Signature", "X-Slack-Request-Timestamp", version="v0")


async def test_a_mention_comes_twice_with_one_ts() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:
        said = await slack.mention("alice", "general", "hello")
        first, second = ear.payloads
        assert [first["event"]["type"], second["event"]["type"]] == ["message", "app_mention"]
        assert first["event_id"] != second["event_id"]
        assert first["event"]["ts"] == second["event"]["ts"] == said.ts
        assert first["event"]["text"] == f"<@{slack.workspace.bot_user}> hello"
        assert (first["event"].get("channel_type"), second["event"].get("channel_type")) == ("channel", None)
        await slack.mention("alice", "general", "hello", first="app_mention")
        assert [payload["event"]["type"] for payload in ear.payloads[2:]] == ["app_mention", "message"]


async def test_only_what_is_subscribed_to_is_told() -> None:
    async with FakeSlack(events=["app_mention"]) as slack, listening(slack) as ear:
        await slack.mention("alice", "general", "hello")
        await slack.message("alice", "general", "aside")
        await slack.direct("alice", "hello")
        await slack.mention("alice", "elsewhere", "hello")
        assert [payload["event"]["type"] for payload in ear.payloads] == ["app_mention"]


async def test_replies_and_direct_messages_say_where_they_are() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:
        said = await slack.mention("alice", "general", "hello")
        reply = await slack.message("bob", "general", "me too", said)
        event = ear.payloads[-1]["event"]
        assert (event["thread_ts"], event["parent_user_id"]) == (said.ts, slack.user("alice").id)
        assert reply.thread == said.ts
        await slack.direct("alice", "psst")
        event = ear.payloads[-1]["event"]
        assert (event["channel_type"], event["channel"][0], "thread_ts" in event) == ("im", "D", False)


async def test_a_shared_channel_says_who_is_from_elsewhere() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:
        await slack.message("otto", "shared", "hello")
        (payload,) = ear.payloads
        assert payload["is_ext_shared_channel"] is True
        assert payload["event"]["user_team"] == slack.user("otto").team_id != payload["team_id"]


async def test_every_request_is_signed() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:
        await slack.message("alice", "general", "hello")
        await slack.command("alice", "general", "/ask")
        for headers, body in ear.heard:
            request = WebhookRequest("POST", "/", headers=headers, body=body)
            SCHEME.verify(request, [slack.signing_secret.encode()])
            with pytest.raises(InvalidSignature):
                SCHEME.verify(request, [b"another"])


async def test_the_bot_hears_what_it_did_itself() -> None:
    async with harbour() as (slack, call), listening(slack) as ear:
        ts = (await call("chat.postMessage", channel="general", text="hi"))["ts"]
        await call("chat.update", channel="general", ts=ts, text="ho")
        await call("chat.delete", channel="general", ts=ts)
        await slack.settled()
        events = sorted((payload["event"] for payload in ear.payloads), key=lambda event: event["ts"])
        assert [event.get("subtype") for event in events] == [None, "message_changed", "message_deleted"]
        assert (events[0]["bot_id"], events[0]["user"]) == (slack.workspace.bot_id, slack.workspace.bot_user)
        assert events[1]["message"]["text"] == "ho"
        assert events[2]["deleted_ts"] == ts


async def test_the_app_proves_that_it_is_there() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:

        async def echo(_: int) -> web.Response:
            return web.Response(text=ear.payloads[-1]["challenge"])

        assert not await slack.handshake()
        ear.answer = echo
        assert await slack.handshake()


# Clicks

CARD = [
    {
        "type": "actions",
        "block_id": "b",
        "elements": [
            {"type": "button", "text": {"type": "plain_text", "text": "Approve"}, "value": "yes", "style": "primary"},
            {"type": "button", "text": {"type": "plain_text", "text": "Deny"}, "value": "no"},
        ],
    }
]


async def test_a_click_says_what_was_pressed_and_where() -> None:
    async with harbour() as (slack, call), listening(slack) as ear:
        said = await slack.message("alice", "general", "go")
        await call("chat.postMessage", channel="general", text="Go?", blocks=CARD, thread_ts=said.ts)
        card = slack.card(said)
        assert card is not None
        posting = await slack.click(card, "Approve", "bob")
        payload = ear.payloads[-1]
        assert (payload["type"], payload["user"]["id"]) == ("block_actions", slack.user("bob").id)
        assert payload["actions"][0]["value"] == "yes"
        assert payload["container"]["thread_ts"] == payload["message"]["thread_ts"] == said.ts
        assert ear.heard[-1][0]["content-type"] == "application/x-www-form-urlencoded"
        assert (posting.ok, posting.status) == (True, 200)
        await slack.click(card, "no", "bob")
        assert ear.payloads[-1]["actions"][0]["text"]["text"] == "Deny"


async def test_only_who_sees_a_button_presses_it() -> None:
    async with harbour() as (slack, call), listening(slack):
        bob = slack.user("bob").id
        await call("chat.postEphemeral", channel="general", text="Go?", user=bob, blocks=CARD)
        (card,) = slack.whispers("bob")
        with pytest.raises(LookupError):
            await slack.click(card, "Approve", "alice")
        with pytest.raises(LookupError):
            await slack.click(card, "Maybe", "bob")
        posting = await slack.click(card, "Approve", "bob")
        assert posting.payload["container"]["is_ephemeral"] is True
        assert "message" not in posting.payload


async def test_a_click_changes_its_ephemeral_by_the_response_url_only() -> None:
    async with harbour() as (slack, call), listening(slack), aiohttp.ClientSession() as http:
        await call("chat.postEphemeral", channel="general", text="Go?", user=slack.user("bob").id, blocks=CARD)
        posting = await slack.click(slack.whispers("bob")[0], "Approve", "bob")
        url = posting.payload["response_url"]
        await http.post(url, json={"replace_original": True, "text": "Done."})
        (message,) = slack.whispers("bob")
        assert (message.words, message.buttons) == ("Done.", ())
        await http.post(url, json={"delete_original": True})
        assert slack.whispers("bob") == []


# Attempts


def failing(times: int, headers: dict[str, str] | None = None) -> Any:
    async def answer(number: int) -> web.Response:
        return web.Response(status=500 if number <= times else 200, headers=headers)

    return answer


def retries(ear: Ear) -> list[tuple[str | None, str | None]]:
    return [(headers.get("x-slack-retry-num"), headers.get("x-slack-retry-reason")) for headers, _ in ear.heard]


async def test_a_failed_event_is_sent_again_at_once_then_after_a_minute_then_after_five() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:
        ear.answer = failing(99)
        (posting,) = (await slack.message("alice", "general", "hello")).postings
        assert retries(ear) == [(None, None), ("1", "http_error")]
        await slack.advance(timedelta(seconds=59))
        assert len(ear.heard) == 2
        await slack.advance(timedelta(seconds=1))
        assert retries(ear)[2:] == [("2", "http_error")]
        await slack.advance(timedelta(days=1))
        assert retries(ear)[3:] == [("3", "http_error")]
        assert [attempt.at - posting.attempts[0].at for attempt in posting.attempts] == [0, 0, 60_000, 360_000]
        assert len({payload["event_id"] for payload in ear.payloads}) == 1
        assert not posting.ok


async def test_an_app_that_recovers_is_told_once_more() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:
        ear.answer = failing(2)
        (posting,) = (await slack.message("alice", "general", "hello")).postings
        await slack.advance(timedelta(hours=1))
        assert [attempt.status for attempt in posting.attempts] == [500, 500, 200]
        assert posting.ok


async def test_an_app_may_refuse_retries() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:
        ear.answer = failing(99, {"X-Slack-No-Retry": "1"})
        await slack.message("alice", "general", "hello")
        await slack.advance(timedelta(hours=1))
        assert len(ear.heard) == 1


async def test_an_app_that_takes_too_long_is_asked_again() -> None:
    async with FakeSlack(ack_seconds=0.05) as slack, listening(slack) as ear:
        let_go = asyncio.Event()

        async def late(number: int) -> web.Response:
            if number == 1:
                await let_go.wait()
            return web.Response()

        ear.answer = late
        (posting,) = (await slack.message("alice", "general", "hello")).postings
        let_go.set()
        assert retries(ear) == [(None, None), ("1", "http_timeout")]
        assert [attempt.status for attempt in posting.attempts] == [None, 200]


async def test_a_lost_first_attempt_arrives_as_a_retry() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:
        said = await slack.message("alice", "general", "hello", lose_first=True)
        assert retries(ear) == [("1", "connection_failed")]
        assert [attempt.lost for attempt in said.postings[0].attempts] == [True, False]


async def test_a_copy_has_the_same_event_id() -> None:
    async with FakeSlack() as slack, listening(slack) as ear:
        await slack.message("alice", "general", "hello", copies=3)
        assert len(ear.heard) == 3
        assert len({payload["event_id"] for payload in ear.payloads}) == 1


async def test_a_click_is_not_sent_again() -> None:
    async with harbour() as (slack, call), listening(slack) as ear:
        await call("chat.postMessage", channel="general", text="Go?", blocks=CARD)
        await slack.settled()
        ear.heard.clear()
        ear.answer = failing(99)
        posting = await slack.click(slack.visible_to("alice")[0], "Approve", "alice")
        await slack.advance(timedelta(hours=1))
        assert [attempt.status for attempt in posting.attempts] == [500]


async def test_an_app_that_is_away_is_told_later() -> None:
    async with FakeSlack() as slack:
        async with listening(slack) as ear:
            url = ear.url
        slack.events_url = url
        (posting,) = (await slack.message("alice", "general", "hello")).postings
        assert [attempt.failure for attempt in posting.attempts] == ["connection_failed"] * 2


# Waiting and repeating


async def test_waiting_ends_with_the_story() -> None:
    async with FakeSlack() as slack:
        with pytest.raises(StillWaiting, match="the app called:"):
            await slack.until(lambda: False, seconds=0)


async def test_a_seed_decides_everything() -> None:
    async def story(seed: int) -> list[Any]:
        async with FakeSlack(seed=seed) as slack, listening(slack) as ear:
            await slack.mention("alice", "general", "hello")
            await slack.direct("bob", "hello")
            return [slack.token, slack.signing_secret, *ear.payloads]

    assert await story(1) == await story(1)
    assert await story(1) != await story(2)


# Form

ENVELOPE = {
    "token",
    "team_id",
    "context_team_id",
    "context_enterprise_id",
    "api_app_id",
    "event",
    "type",
    "event_id",
    "event_time",
    "authorizations",
    "is_ext_shared_channel",
    "event_context",
}
SAID = {"type", "user", "ts", "client_msg_id", "text", "team", "blocks", "channel", "event_ts"}
CLICK = {
    "type",
    "user",
    "api_app_id",
    "token",
    "container",
    "trigger_id",
    "team",
    "enterprise",
    "is_enterprise_install",
    "channel",
    "message",
    "state",
    "response_url",
    "actions",
}
COMMAND = {
    "token",
    "team_id",
    "team_domain",
    "channel_id",
    "channel_name",
    "user_id",
    "user_name",
    "command",
    "text",
    "api_app_id",
    "is_enterprise_install",
    "response_url",
    "trigger_id",
}


async def test_payloads_have_the_fields_that_slack_sends() -> None:
    async with harbour() as (slack, call), listening(slack) as ear:
        said = await slack.mention("alice", "general", "go")
        assert [payload.keys() for payload in ear.payloads] == [ENVELOPE, ENVELOPE]
        assert [payload["event"].keys() for payload in ear.payloads] == [SAID | {"channel_type"}, SAID]
        (authorization,) = ear.payloads[0]["authorizations"]
        assert authorization.keys() == {"enterprise_id", "team_id", "user_id", "is_bot", "is_enterprise_install"}
        await slack.message("bob", "general", "go", said)
        assert ear.payloads[-1]["event"].keys() == SAID | {"channel_type", "thread_ts", "parent_user_id"}
        await call("chat.postMessage", channel="general", text="Go?", blocks=CARD, thread_ts=said.ts)
        card = slack.card(said)
        assert card is not None
        click = (await slack.click(card, "Approve", "alice")).payload
        assert click.keys() == CLICK
        assert click["user"].keys() == {"id", "username", "name", "team_id"}
        assert click["container"].keys() == {"type", "message_ts", "channel_id", "is_ephemeral", "thread_ts"}
        assert click["actions"][0].keys() == {"action_id", "block_id", "text", "type", "action_ts", "value", "style"}
        assert (await slack.command("alice", "general", "/ask")).payload.keys() == COMMAND
