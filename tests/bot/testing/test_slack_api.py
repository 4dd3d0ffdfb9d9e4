"""What the simulated Web API takes, how it reads it, and what it answers.

What lives here: answers of calls that succeed, and faults. What does not: refusals (test_slack_refusals.py), events.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from bot.testing import FakeSlack
from bot.testing.slack import dropped, rate_limited, refused, server_error, slow
from tests.bot.testing.kit import harbour, listening

BUTTONS = [{"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "Go"}, "value": "v"}]}]
MESSAGE = {"type", "user", "ts", "text", "team", "bot_id", "app_id", "bot_profile"}


async def test_a_posted_message_has_the_documented_fields() -> None:
    async with harbour() as (slack, call):
        answer = await call("chat.postMessage", channel="general", text="hi", metadata={"event_type": "t", "event_payload": {}})
        assert answer.keys() == {"ok", "channel", "ts", "message"}
        assert answer["message"].keys() == MESSAGE
        assert [message.text for message in slack.visible_to("bob", "general")] == ["hi"]


async def test_metadata_is_told_to_who_asks() -> None:
    async with harbour() as (_, call):
        metadata = {"event_type": "t", "event_payload": {"delivery_id": "d"}}
        root = (await call("chat.postMessage", channel="general", text="hi", metadata=metadata))["ts"]
        (plain,) = (await call("conversations.replies", channel="general", ts=root))["messages"]
        assert "metadata" not in plain
        (full,) = (await call("conversations.replies", channel="general", ts=root, include_all_metadata=True))["messages"]
        assert full["metadata"] == metadata
        (full,) = (await call("conversations.history", channel="general", include_all_metadata="1"))["messages"]
        assert full["metadata"] == metadata


async def test_an_update_without_blocks_takes_them_away() -> None:
    async with harbour() as (slack, call):
        ts = (await call("chat.postMessage", channel="general", text="Go?", blocks=BUTTONS))["ts"]
        (before,) = slack.visible_to("alice", "general")
        assert [button.label for button in before.buttons] == ["Go"]
        answer = await call("chat.update", channel="general", ts=ts, text="Gone.")
        assert answer.keys() == {"ok", "channel", "ts", "text", "message"}
        (after,) = slack.visible_to("alice", "general")
        assert (after.words, after.buttons, after.edited) == ("Gone.", (), True)


async def test_threads_are_read_in_pages() -> None:
    async with harbour() as (_, call):
        root = (await call("chat.postMessage", channel="general", text="root"))["ts"]
        for number in range(5):
            await call("chat.postMessage", channel="general", text=str(number), thread_ts=root)
        seen: list[str] = []
        cursor = ""
        for _ in range(3):
            page = await call("conversations.replies", channel="general", ts=root, limit=3, cursor=cursor)
            assert page["messages"][0]["reply_count"] == 5
            seen += [message["text"] for message in page["messages"][1:]]
            cursor = page.get("response_metadata", {}).get("next_cursor", "")
            assert page["has_more"] is bool(cursor)
        assert seen == ["0", "1", "2", "3", "4"]
        history = (await call("conversations.history", channel="general"))["messages"]
        assert [message["text"] for message in history] == ["root"]


async def test_arguments_come_as_query_form_or_json() -> None:
    async with FakeSlack() as slack, aiohttp.ClientSession() as http:
        bearer = {"Authorization": f"Bearer {slack.token}"}
        user, channel = slack.user("alice").id, slack.channel("general").id
        got = await http.get(f"{slack.api_url}users.info", params={"user": user}, headers=bearer)
        assert (await got.json())["user"]["id"] == user
        assert got.headers["X-OAuth-Scopes"]
        form = {"channel": channel, "text": "x", "token": slack.token, "blocks": json.dumps(BUTTONS)}
        assert (await (await http.post(f"{slack.api_url}chat.postMessage", data=form)).json())["ok"]
        answer = await (await http.post(f"{slack.api_url}users.info", json={"user": user}, headers=bearer)).json()
        assert answer["error"] == "invalid_arguments"
        body = {"channel": channel, "text": "x", "token": slack.token}
        assert (await (await http.post(f"{slack.api_url}chat.postMessage", json=body)).json())["error"] == "not_authed"
        for content, error in ((b"[]", "json_not_object"), (b"{", "invalid_json")):
            headers = bearer | {"Content-Type": "application/json"}
            answer = await (await http.post(f"{slack.api_url}chat.postMessage", data=content, headers=headers)).json()
            assert answer["error"] == error


async def test_a_file_is_uploaded_in_three_steps() -> None:
    async with harbour() as (slack, call), aiohttp.ClientSession() as http:
        root = (await call("chat.postMessage", channel="general", text="root"))["ts"]
        place = await call("files.getUploadURLExternal", filename="a.txt", length=5)
        files = [{"id": place["file_id"], "title": "A"}]
        assert (await call("files.completeUploadExternal", files=files))["error"] == "file_not_found"
        assert (await http.post(place["upload_url"], data=b"four")).status == 400
        assert (await http.post(place["upload_url"], data=b"fives")).status == 200
        where = {"channel_id": slack.channel("general").id, "thread_ts": root}
        done = await call("files.completeUploadExternal", files=files, **where)
        assert done["files"][0]["title"] == "A"
        assert slack.thread("general", root)[1].files == ("a.txt",)
        assert (await call("files.completeUploadExternal", files=files, **where))["error"] == "file_not_found"


async def test_a_direct_conversation_is_opened_once() -> None:
    async with harbour() as (slack, call):
        alice = slack.user("alice").id
        first = await call("conversations.open", users=alice)
        again = await call("conversations.open", users=alice)
        assert "already_open" not in first
        assert again["already_open"]
        assert first["channel"] == again["channel"]
        assert (await call("conversations.open", users=slack.user("dora").id))["error"] == "user_disabled"
        assert (await call("conversations.open", users=slack.user("robo").id))["error"] == "cannot_dm_bot"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("alice", {"is_restricted": False, "is_ultra_restricted": False, "is_bot": False, "deleted": False}),
        ("gus", {"is_restricted": True, "is_ultra_restricted": True}),
        ("mia", {"is_restricted": True, "is_ultra_restricted": False}),
        ("otto", {"is_stranger": True}),
        ("robo", {"is_bot": True}),
        ("dora", {"deleted": True}),
    ],
)
async def test_users_are_told_apart(name: str, told: dict[str, bool]) -> None:
    async with harbour() as (slack, call):
        user = (await call("users.info", user=slack.user(name).id))["user"]
        assert {key: user[key] for key in told} == told
        assert ("is_restricted" in user) is (name != "dora")


# Faults


@pytest.mark.parametrize("after_commit", [False, True])
async def test_a_connection_breaks_before_or_after_the_effect(*, after_commit: bool) -> None:
    async with harbour() as (slack, call):
        slack.fail("chat.postMessage", dropped(after_commit=after_commit))
        with pytest.raises(aiohttp.ClientError):
            await call("chat.postMessage", channel="general", text="once")
        assert len(slack.visible_to("alice")) == after_commit
        assert (await call("chat.postMessage", channel="general", text="twice"))["ok"]
        assert [(record.status, record.committed) for record in slack.calls] == [(None, after_commit), (200, True)]


async def test_faults_come_as_often_as_planned_and_only_where() -> None:
    async with harbour() as (slack, call), aiohttp.ClientSession() as http:
        slack.fail("chat.postMessage", refused("fatal_error"), times=2, when=lambda args: args["text"] == "a")
        answers = [await call("chat.postMessage", channel="general", text=text) for text in "abaa"]
        assert [answer["ok"] for answer in answers] == [False, True, False, True]
        slack.fail("*", rate_limited(7))
        limited = await http.get(f"{slack.api_url}auth.test")
        assert (limited.status, limited.headers["Retry-After"]) == (429, "7")
        assert await limited.json() == {"ok": False, "error": "ratelimited"}
        slack.fail("auth.test", server_error(after_commit=True))
        assert slack.faults.left() == 1
        assert (await http.get(f"{slack.api_url}auth.test")).status == 500


async def test_a_slow_answer_comes_after_the_effect() -> None:
    async with harbour() as (slack, call):
        slack.fail("chat.postMessage", slow(30))
        waiting = asyncio.ensure_future(call("chat.postMessage", channel="general", text="x"))
        await slack.until(lambda: slack.visible_to("alice"))
        assert slack.calls == []
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


# Triggers and response URLs


async def test_a_trigger_opens_one_modal_within_three_seconds() -> None:
    view = {"type": "modal", "title": {"type": "plain_text", "text": "T"}, "blocks": [{"type": "divider"}]}
    async with harbour() as (slack, call), listening(slack) as ear:
        await slack.command("alice", "general", "/ask")
        trigger = ear.payloads[-1]["trigger_id"]
        assert (await call("views.open", trigger_id=trigger, view=view))["view"]["type"] == "modal"
        assert (await call("views.open", trigger_id=trigger, view=view))["error"] == "exchanged_trigger_id"
        await slack.command("alice", "general", "/ask")
        await slack.advance(timedelta(seconds=4))
        trigger = ear.payloads[-1]["trigger_id"]
        assert (await call("views.open", trigger_id=trigger, view=view))["error"] == "expired_trigger_id"


async def test_a_response_url_is_good_five_times_for_half_an_hour() -> None:
    async with harbour() as (slack, _), listening(slack) as ear, aiohttp.ClientSession() as http:
        await slack.command("alice", "general", "/ask", "me")
        url = ear.payloads[-1]["response_url"]
        answers = [(await http.post(url, json={"text": f"{number}"})).status for number in range(6)]
        assert answers == [200] * 5 + [404]
        assert [message.text for message in slack.whispers("alice")] == list("01234")
        assert slack.visible_to("bob") == []
        await slack.command("alice", "general", "/ask")
        await slack.advance(timedelta(minutes=31))
        assert (await http.post(ear.payloads[-1]["response_url"], json={"text": "late"})).status == 404


async def test_an_address_is_told_only_with_its_scope_and_not_of_strangers() -> None:
    async with harbour() as (slack, call):
        user = (await call("users.info", user=slack.user("alice").id))["user"]
        assert (user["profile"]["email"], user["is_email_confirmed"]) == ("alice@example.test", True)
        for name in ("otto", "robo", "dora"):
            assert "email" not in (await call("users.info", user=slack.user(name).id))["user"]["profile"]
    async with harbour(scopes={"users:read"}) as (slack, call):
        assert "email" not in (await call("users.info", user=slack.user("alice").id))["user"]["profile"]


async def test_a_message_has_a_permalink() -> None:
    async with harbour(scopes={"chat:write"}) as (slack, call):
        general = slack.channel("general").id
        root = (await call("chat.postMessage", channel="general", text="root"))["ts"]
        reply = (await call("chat.postMessage", channel="general", text="reply", thread_ts=root))["ts"]

        async def link(ts: str, channel: str = general) -> Any:
            answer = await call("chat.getPermalink", channel=channel, message_ts=ts, as_form=True)
            return answer.get("permalink") or answer["error"]

        assert await link(root) == f"https://harbour.slack.com/archives/{general}/p{root.replace('.', '')}"
        assert (await link(reply)).endswith(f"?thread_ts={root}&cid={general}")
        assert await link("1700000000.000001") == "message_not_found"
        assert await link(root, "C0") == "channel_not_found"


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("<https://a.example/x?y=1&amp;z|here> and https://b.example.", ("https://a.example/x?y=1&z", "https://b.example")),
        ("see www.c.example, `https://d.example` and &lt;no&gt;", ("www.c.example",)),
        ("nothing <@U1> <#C1>", ()),
    ],
)
async def test_what_can_be_pressed_in_a_text_is_read_off_it(text: str, links: tuple[str, ...]) -> None:
    async with harbour() as (slack, call):
        await call("chat.postMessage", channel="general", text=text)
        assert slack.visible_to("bob", "general")[0].links == links


async def test_what_can_be_pressed_in_blocks_is_read_off_them() -> None:
    text = "<https://a.example|a> https://b.example"
    blocks = [
        {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]},
        {"type": "section", "text": {"type": "mrkdwn", "text": text}},
        {"type": "section", "text": {"type": "plain_text", "text": text}},
        {
            "type": "markdown",
            "text": "[c](https://c.example) \\[d](https\\://d.example) <https://e.example> https://f.example/x.",
        },
        {
            "type": "actions",
            "elements": [{"type": "button", "text": {"type": "plain_text", "text": "g"}, "url": "https://g.example"}],
        },
    ]
    async with harbour() as (slack, call):
        await call("chat.postMessage", channel="general", text="all", blocks=blocks)
        found = [link.removeprefix("https://")[0] for link in slack.visible_to("bob", "general")[0].links]
        assert found == ["a", "a", "b", "c", "e", "f", "g"]


async def test_slack_opens_the_links_of_a_post_that_does_not_refuse_it() -> None:
    async with harbour() as (slack, call):
        await call("chat.postMessage", channel="general", text="https://a.example", unfurl_links=False, unfurl_media=False)
        assert slack.world.unfurled == []
        await call("chat.postMessage", channel="general", text="https://b.example", unfurl_media=False)
        assert slack.world.unfurled == ["https://b.example"]
