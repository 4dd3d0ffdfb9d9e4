"""The simulated Slack refuses what Slack refuses, with its words.

What lives here: every refusal, a row each. What does not: what is taken (test_slack_api.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from bot.testing.slack.cast import ALL_SCOPES
from tests.bot.testing.kit import harbour


def section(text: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}, **more}


def plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}


def button(label: str = "Go", **more: Any) -> dict[str, Any]:
    return {"type": "button", "text": plain(label), **more}


def actions(*elements: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "actions", "elements": list(elements), **more}


POST = "chat.postMessage"
METADATA: dict[str, Any] = {"event_type": "t", "event_payload": {}}
ROWS: list[tuple[str, dict[str, Any], str]] = [
    (POST, {"text": "x"}, "invalid_arguments"),
    (POST, {"channel": "C0", "text": "x"}, "channel_not_found"),
    (POST, {"channel": "elsewhere", "text": "x"}, "not_in_channel"),
    (POST, {"channel": "archived", "text": "x"}, "is_archived"),
    (POST, {"channel": "general"}, "no_text"),
    (POST, {"channel": "general", "text": ""}, "no_text"),
    (POST, {"channel": "general", "blocks": []}, "no_text"),
    (POST, {"channel": "general", "text": 5}, "invalid_arguments"),
    (POST, {"channel": "general", "markdown_text": "x" * 12_001}, "msg_too_long"),
    (POST, {"channel": "general", "markdown_text": "x", "text": "y"}, "markdown_text_conflict"),
    (POST, {"channel": "general", "text": "x", "thread_ts": "soon"}, "invalid_thread_ts"),
    (POST, {"channel": "general", "text": "x", "thread_ts": "1767225600.999999"}, "thread_not_found"),
    (POST, {"channel": "general", "text": "x", "metadata": "no"}, "invalid_metadata_format"),
    (POST, {"channel": "general", "text": "x", "metadata": {"event_type": "t"}}, "invalid_metadata_schema"),
    (POST, {"channel": "general", "text": "x", "metadata": {**METADATA, "more": 1}}, "invalid_metadata_format"),
    (
        POST,
        {"channel": "general", "text": "x", "metadata": {"event_type": "t", "event_payload": {"a": "x" * 9_000}}},
        "metadata_too_large",
    ),
    (POST, {"channel": "general", "text": "x", "blocks": "no"}, "invalid_blocks_format"),
    (POST, {"channel": "general", "text": "x", "blocks": [1]}, "invalid_blocks_format"),
    (POST, {"channel": "general", "text": "x", "blocks": [section("x" * 2_900)] * 5}, "msg_blocks_too_long"),
    ("chat.update", {"channel": "general", "ts": "1767225600.999999", "text": "x"}, "message_not_found"),
    ("chat.update", {"channel": "archived", "ts": "1767225600.999999", "text": "x"}, "is_archived"),
    ("chat.delete", {"channel": "general", "ts": "1767225600.999999"}, "message_not_found"),
    ("chat.postEphemeral", {"channel": "general", "user": "U0", "text": "x"}, "user_not_in_channel"),
    ("chat.postEphemeral", {"channel": "general", "text": "x"}, "invalid_arguments"),
    ("conversations.replies", {"channel": "general", "ts": "1767225600.999999"}, "thread_not_found"),
    ("conversations.replies", {"channel": "general", "ts": "1767225600.999999", "limit": 5_000}, "thread_not_found"),
    ("conversations.history", {"channel": "general", "limit": 5_000}, "invalid_limit"),
    ("conversations.history", {"channel": "general", "cursor": "x"}, "invalid_cursor"),
    ("conversations.history", {"channel": "elsewhere"}, "not_in_channel"),
    ("conversations.info", {"channel": "C0"}, "channel_not_found"),
    ("conversations.open", {}, "users_list_not_supplied"),
    ("conversations.open", {"users": "U0"}, "user_not_found"),
    ("usergroups.users.list", {"usergroup": "S0"}, "no_such_subteam"),
    ("usergroups.users.list", {}, "invalid_arguments"),
    ("users.info", {"user": "U0"}, "user_not_found"),
    ("users.info", {}, "invalid_arguments"),
    ("views.open", {"trigger_id": "1.2.x", "view": {}}, "invalid_trigger_id"),
    ("files.getUploadURLExternal", {"filename": "a"}, "invalid_arguments"),
    ("files.completeUploadExternal", {"files": [{"id": "F0"}]}, "file_not_found"),
    ("files.completeUploadExternal", {}, "invalid_arguments"),
    ("chat.scribble", {}, "unknown_method"),
]


@pytest.mark.parametrize(("method", "args", "error"), ROWS)
async def test_a_call_is_refused(method: str, args: dict[str, Any], error: str) -> None:
    async with harbour() as (slack, call):
        answer = await call(method, **args)
        assert (answer["ok"], answer["error"]) == (False, error)
        assert not slack.visible_to("alice")
        assert [record.committed for record in slack.calls] == [False]


BLOCKS: list[tuple[list[Any], str]] = [
    ([{"type": "divider"}] * 51, "no more than 50 items allowed [json-pointer:/blocks]"),
    ([{"type": "card"}], "unsupported type: card [json-pointer:/blocks/0/type]"),
    ([{}], "unsupported type: None [json-pointer:/blocks/0/type]"),
    ([{"type": "input"}], "unsupported type: input [json-pointer:/blocks/0/type]"),
    ([{"type": "section"}], "missing required field: text [json-pointer:/blocks/0]"),
    ([section("")], "must be more than 0 characters [json-pointer:/blocks/0/text/text]"),
    ([section("x" * 3_001)], "must be less than 3001 characters [json-pointer:/blocks/0/text/text]"),
    ([{"type": "section", "fields": [plain("x")] * 11}], "no more than 10 items allowed [json-pointer:/blocks/0/fields]"),
    (
        [{"type": "section", "fields": [plain("x" * 2_001)]}],
        "must be less than 2001 characters [json-pointer:/blocks/0/fields/0/text]",
    ),
    ([{"type": "header", "text": plain("x" * 151)}], "must be less than 151 characters [json-pointer:/blocks/0/text/text]"),
    ([{"type": "header", "text": section()["text"]}], "must be a text object of type plain_text [json-pointer:/blocks/0/text]"),
    ([actions(*[button()] * 26)], "no more than 25 items allowed [json-pointer:/blocks/0/elements]"),
    ([actions()], "no less than 1 items allowed [json-pointer:/blocks/0/elements]"),
    ([actions(button("x" * 76))], "must be less than 76 characters [json-pointer:/blocks/0/elements/0/text/text]"),
    ([actions(button(value="x" * 2_001))], "must be less than 2001 characters [json-pointer:/blocks/0/elements/0/value]"),
    ([actions(button(action_id="x" * 256))], "must be less than 256 characters [json-pointer:/blocks/0/elements/0/action_id]"),
    ([actions(button(style="plain"))], "must be one of primary, danger [json-pointer:/blocks/0/elements/0/style]"),
    ([section(block_id="x" * 256)], "must be less than 256 characters [json-pointer:/blocks/0/block_id]"),
    ([section(block_id="b"), section(block_id="b")], "block_id `b` already exists [json-pointer:/blocks/1/block_id]"),
    ([{"type": "context", "elements": [plain("x")] * 11}], "no more than 10 items allowed [json-pointer:/blocks/0/elements]"),
    (
        [{"type": "markdown", "text": "x" * 6_001}] * 2,
        "markdown blocks must be less than 12001 characters together [json-pointer:/blocks]",
    ),
    ([{"type": "markdown", "text": ""}], "must be more than 0 characters [json-pointer:/blocks/0/text]"),
    ([{"type": "image", "image_url": "https://a"}], "must be a string [json-pointer:/blocks/0/alt_text]"),
]


@pytest.mark.parametrize(("blocks", "message"), BLOCKS)
async def test_blocks_are_refused_with_the_place_of_the_fault(blocks: list[Any], message: str) -> None:
    async with harbour() as (_, call):
        answer = await call(POST, channel="general", text="x", blocks=blocks)
        assert answer["error"] == "invalid_blocks"
        assert message in answer["errors"]
        assert f"[ERROR] {message}" in answer["response_metadata"]["messages"]


async def test_two_elements_of_a_block_have_two_action_ids() -> None:
    async with harbour() as (_, call):
        answer = await call(POST, channel="general", text="x", blocks=[actions(button(action_id="a"), button(action_id="a"))])
        assert answer["error"] == "invalid_blocks"


@pytest.mark.parametrize(
    ("method", "args", "needed"),
    [
        (POST, {"channel": "general", "text": "x"}, "chat:write"),
        ("usergroups.users.list", {"usergroup": "S0"}, "usergroups:read"),
        ("users.info", {"user": "U0"}, "users:read"),
        ("conversations.info", {"channel": "general"}, "channels:read"),
        ("conversations.info", {"channel": "private"}, "groups:read"),
        ("conversations.history", {"channel": "general"}, "channels:history"),
        ("conversations.replies", {"channel": "private", "ts": "1"}, "groups:history"),
        ("conversations.open", {"users": "U0"}, "im:write"),
        ("files.getUploadURLExternal", {"filename": "a", "length": 1}, "files:write"),
    ],
)
async def test_a_token_without_the_scope_is_told_which(method: str, args: dict[str, Any], needed: str) -> None:
    async with harbour(scopes=ALL_SCOPES - {needed}) as (_, call):
        answer = await call(method, **args)
        assert (answer["error"], answer["needed"]) == ("missing_scope", needed)
        assert needed not in answer["provided"].split(",")


async def test_a_token_is_asked_for_and_checked() -> None:
    async with harbour() as (slack, call):
        assert (await call("auth.test", token="xoxb-1-2-x"))["error"] == "invalid_auth"
        assert (await call("auth.test", token=""))["error"] == "not_authed"
        assert slack.token not in str(slack.calls)


async def test_only_own_messages_are_changed() -> None:
    async with harbour() as (slack, call):
        said = await slack.message("alice", "elsewhere", "x")
        slack.channel("elsewhere").members.add(slack.workspace.bot_user)
        where = {"channel": "elsewhere", "ts": said.ts}
        assert (await call("chat.update", text="y", **where))["error"] == "cant_update_message"
        assert (await call("chat.delete", **where))["error"] == "cant_delete_message"


async def test_an_update_takes_less_text_than_a_post() -> None:
    async with harbour() as (_, call):
        posted = await call(POST, channel="general", text="x" * 4_001)
        assert posted["ok"]
        where = {"channel": "general", "ts": posted["ts"]}
        assert (await call("chat.update", text="ä" * 2_001, **where))["error"] == "msg_too_long"
        assert (await call("chat.update", text="ä" * 2_000, **where))["ok"]


async def test_an_ephemeral_message_is_neither_found_nor_changed() -> None:
    async with harbour() as (slack, call):
        alice = slack.user("alice").id
        sent = await call("chat.postEphemeral", channel="general", user=alice, text="psst")
        assert sent.keys() == {"ok", "message_ts"}
        where = {"channel": "general", "ts": sent["message_ts"]}
        assert (await call("chat.update", text="y", **where))["error"] == "message_not_found"
        assert (await call("chat.delete", **where))["error"] == "message_not_found"
        assert (await call("conversations.history", channel="general"))["messages"] == []
        assert [message.text for message in slack.whispers("alice")] == ["psst"]
        assert slack.visible_to("bob") == []


async def test_a_reply_begins_no_thread() -> None:
    async with harbour() as (_, call):
        root = (await call(POST, channel="general", text="root"))["ts"]
        reply = (await call(POST, channel="general", text="reply", thread_ts=root))["ts"]
        assert (await call(POST, channel="general", text="x", thread_ts=reply))["error"] == "cannot_reply_to_message"


async def test_a_private_channel_without_the_bot_does_not_exist() -> None:
    async with harbour() as (slack, call):
        slack.channel("private").members.discard(slack.workspace.bot_user)
        for method, args in ((POST, {"text": "x"}), ("conversations.info", {}), ("conversations.history", {})):
            assert (await call(method, channel="private", **args))["error"] == "channel_not_found"


async def test_a_workspace_sees_nothing_of_another() -> None:
    async with harbour() as (slack, call):
        other = slack.add_workspace("quay")
        assert (await call(POST, token=other.token, channel="general", text="x"))["error"] == "channel_not_found"
        alice = slack.user("alice").id
        assert (await call("users.info", token=other.token, user=alice))["error"] == "user_not_visible"
        assert (await call("users.info", user=slack.user("otto").id))["user"]["is_stranger"] is True
