"""What Slack refuses is tried plainer, later, or never again, by what its refusal means."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from aiohttp import web

from channels import DeliveryFailed, Outbound, RateLimited
from channels.slack import Slack
from channels.slack.api import PERMANENT, UNCLEAR
from tests.channels.slack.deliveries import CARD, DM, THREAD, delivery, fate
from tests.channels.slack.fake import CHANNEL, ROOT, Fault, MiniSlack, dropped, refusal
from tests.channels.slack.payloads import SECRET, Json

# Refusals

PERMANENT_CODES = [
    "channel_not_found",
    "is_archived",
    "not_in_channel",
    "token_revoked",
    "account_inactive",
    "invalid_auth",
    "missing_scope",
    "cant_update_message",
    "message_not_found",
    "user_not_in_channel",
]


@pytest.mark.parametrize("code", PERMANENT_CODES)
async def test_what_no_retry_helps_ends_at_once(world: MiniSlack, slack: Slack, code: str) -> None:
    assert code in PERMANENT
    world.before["chat.postMessage"].append(refusal(code))
    failed = await fate(slack, delivery())
    assert isinstance(failed, DeliveryFailed)
    assert (failed.code, failed.permanent) == (code, True)
    assert len(world.bodies("chat.postMessage")) == 1


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (refusal("internal_error"), "internal_error"),
        (refusal("new_word_of_slacks"), "new_word_of_slacks"),
        (refusal("service_unavailable", status=503), UNCLEAR),
        (lambda _: web.Response(status=502, text="<html>bad gateway</html>", content_type="text/html"), UNCLEAR),
        (lambda _: web.Response(text="not what was asked for"), UNCLEAR),
        (lambda _: web.Response(text="{", content_type="application/json"), UNCLEAR),
        (lambda _: web.Response(body=b"\xff", content_type="application/json"), UNCLEAR),
        (lambda _: web.json_response([]), UNCLEAR),
        (lambda _: web.json_response({"ok": True}), UNCLEAR),
        (dropped, UNCLEAR),
    ],
)
async def test_what_may_pass_is_tried_again_later_and_not_here(world: MiniSlack, slack: Slack, fault: object, code: str) -> None:
    world.before["chat.postMessage"].append(fault)  # type: ignore[arg-type]
    failed = await fate(slack, delivery())
    assert isinstance(failed, DeliveryFailed)
    assert (failed.code, failed.permanent) == (code, False)
    assert len(world.bodies("chat.postMessage")) == 1


async def test_no_error_holds_the_token(world: MiniSlack, slack: Slack, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for fault in (refusal("internal_error"), dropped):
        world.before["chat.postMessage"].append(fault)
        failed = await fate(slack, delivery())
        assert isinstance(failed, DeliveryFailed)
        assert failed.__cause__ is None
        assert failed.__suppress_context__
    assert "xoxb-test" not in caplog.text
    assert "xoxb-test" not in repr(slack._api)


async def test_without_a_token_nothing_is_called(world: MiniSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_BOT_TOKEN", raising=False)
    failed = await fate(Slack(signing_secret=SECRET, api_url=world.url), delivery())
    assert isinstance(failed, DeliveryFailed)
    assert failed.permanent


# Plainer forms


@pytest.mark.parametrize(
    "code", ["invalid_blocks", "msg_too_long", "msg_blocks_too_long", "msg_blocks_too_many", "invalid_blocks_format"]
)
async def test_a_refused_form_is_followed_by_a_plainer_one_at_once(world: MiniSlack, slack: Slack, code: str) -> None:
    world.before["chat.postMessage"].append(refusal(code))
    await slack.send(delivery(Outbound("**look**", CARD)))
    (shown,) = world.shown(CHANNEL, "UALICE")
    for word in ("look", "Sure?", "140", "Yes"):
        assert word in shown
    world.before["chat.postMessage"].append(refusal(code))
    await slack.send(delivery("**plain**", id="dlv_2"))
    assert world.shown(CHANNEL, "UALICE")[1] == "*plain*"


async def test_a_form_refused_twice_is_refused_for_good(world: MiniSlack, slack: Slack) -> None:
    world.before["chat.postMessage"] += [refusal("invalid_blocks"), refusal("invalid_blocks")]
    failed = await fate(slack, delivery())
    assert isinstance(failed, DeliveryFailed)
    assert (failed.code, failed.permanent) == ("invalid_blocks", True)
    assert len(world.bodies("chat.postMessage")) == 2


async def test_a_slack_that_takes_less_in_blocks_gets_the_text(world: MiniSlack, slack: Slack) -> None:
    text = "\n".join(f"line {number}" for number in range(2_500))
    await slack.send(delivery(text))
    assert world.shown(CHANNEL, "UALICE") == [text]
    assert len(world.bodies("chat.postMessage")) == 2


# Files


async def test_what_fits_no_message_is_a_file_behind_it(world: MiniSlack, slack: Slack) -> None:
    text = "word " * 20_000
    await slack.send(delivery(text))
    assert world.files == [{"name": "reply.md", "content": text.encode(), "channel": CHANNEL, "thread_ts": ROOT}]
    assert "The file below has all of it" in world.shown(CHANNEL, "UALICE")[0]
    names = [name for name, _ in world.calls]
    assert names.index("files.completeUploadExternal") > names.index("chat.postMessage")


async def test_a_file_is_shared_once_though_its_message_had_to_wait(world: MiniSlack, slack: Slack) -> None:
    for attempt in (1, 2, 3):
        world.before["chat.postMessage"].append(refusal("ratelimited", status=429, headers={"Retry-After": "1"}))
        assert isinstance(await fate(slack, delivery("word " * 20_000, attempt=attempt)), RateLimited)
        assert world.files == []
        world.now_ms += 1_000
    await slack.send(delivery("word " * 20_000, attempt=4))
    assert len(world.files) == len(world.uploads) == 1


@pytest.mark.parametrize("found_by_send", [True, False])
async def test_a_file_follows_its_message_though_the_answer_was_lost(world: MiniSlack, slack: Slack, found_by_send: bool) -> None:
    world.after["chat.postMessage"].append(dropped)
    assert isinstance(await fate(slack, delivery("word " * 20_000)), DeliveryFailed)
    assert world.files == []
    if not found_by_send:
        await slack.find(THREAD, "dlv_1")
    await slack.send(delivery("word " * 20_000, attempt=2))
    assert (len(world.files), len(world.messages[CHANNEL])) == (1, 1)


async def test_a_share_that_may_be_done_is_not_done_again(world: MiniSlack, slack: Slack) -> None:
    world.after["files.completeUploadExternal"].append(dropped)
    await slack.send(delivery("word " * 20_000))
    await slack.send(delivery("word " * 20_000, attempt=2))
    assert len(world.files) == 1


@pytest.mark.parametrize("code", ["file_not_found", "ratelimited"])
async def test_a_message_whose_file_was_not_shared_says_so(world: MiniSlack, slack: Slack, code: str) -> None:
    world.before["files.completeUploadExternal"].append(refusal(code))
    await slack.send(delivery("word " * 20_000))
    assert world.files == []
    (shown,) = world.shown(CHANNEL, "UALICE")
    assert "Slack took no file" in shown


async def test_an_upload_that_takes_too_long_is_gone_without(
    world: MiniSlack, slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.slack.uploads.UPLOAD_SECONDS", 0.05)

    async def hang(api: object, name: str, content: bytes) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr("channels.slack.api.Api.upload", hang)
    await slack.send(delivery("word " * 20_000))
    assert "Slack took no file" in world.shown(CHANNEL, "UALICE")[0]


async def test_an_upload_that_goes_on_failing_holds_nothing_up_for_good(world: MiniSlack, slack: Slack) -> None:
    world.before["files.getUploadURLExternal"] += [refusal("x", status=500)] * 3
    for attempt in (1, 2):
        assert isinstance(await fate(slack, delivery("word " * 20_000, attempt=attempt)), DeliveryFailed)
    await slack.send(delivery("word " * 20_000, attempt=3))
    assert "Slack took no file" in world.shown(CHANNEL, "UALICE")[0]


@pytest.mark.parametrize("fault", [dropped, refusal("x", status=503), refusal("internal_error")])
async def test_a_whisper_that_may_have_been_heard_is_not_repeated(
    world: MiniSlack, slack: Slack, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    world.after["chat.postEphemeral"].append(fault)
    whisper = Outbound("psst", private_to="UALICE")
    await slack.send(delivery(whisper))
    await slack.send(delivery(whisper, attempt=2))
    assert len(world.messages[CHANNEL]) == 1
    assert "isn't sent again" in caplog.text


async def test_a_value_too_long_for_a_card_is_a_file_to_the_byte(world: MiniSlack, slack: Slack) -> None:
    value = "x\u200b" * 20_000
    await slack.send(delivery(Outbound(card=replace(CARD, fields=(("script", value),)))))
    assert [file["content"] for file in world.files] == [value.encode()]


async def test_where_files_are_refused_the_cut_says_so(world: MiniSlack, slack: Slack) -> None:
    world.before["files.getUploadURLExternal"].append(refusal("missing_scope", needed="files:write"))
    await slack.send(delivery("word " * 20_000))
    assert "of 100,000 characters are shown; Slack took no file" in world.shown(CHANNEL, "UALICE")[0]


async def test_a_file_that_fails_for_now_is_tried_again_with_its_message(world: MiniSlack, slack: Slack) -> None:
    world.before["files.getUploadURLExternal"].append(refusal("internal_error", status=500))
    assert isinstance(await fate(slack, delivery("word " * 20_000)), DeliveryFailed)
    assert world.messages[CHANNEL] == []


# Pacing


async def test_a_wait_that_slack_asks_for_is_kept_for_that_channel_only(world: MiniSlack, slack: Slack) -> None:
    world.before["chat.postMessage"].append(refusal("ratelimited", status=429, headers={"Retry-After": "7"}))
    limited = await fate(slack, delivery())
    assert isinstance(limited, RateLimited)
    assert limited.retry_after == 7
    early = await fate(slack, delivery())
    assert isinstance(early, RateLimited)
    assert len(world.bodies("chat.postMessage")) == 1
    await slack.send(delivery(id="dlv_2", address=DM))
    world.now_ms += 7_000
    await slack.send(delivery())


@pytest.mark.parametrize(
    "header", [{}, {"Retry-After": "soon"}, {"Retry-After": "-5"}, {"Retry-After": "nan"}, {"Retry-After": "999999999"}]
)
async def test_an_odd_wait_is_still_a_wait(world: MiniSlack, slack: Slack, header: dict[str, str]) -> None:
    world.before["chat.postMessage"].append(refusal("ratelimited", status=429, headers=header))
    limited = await fate(slack, delivery())
    assert isinstance(limited, RateLimited)
    assert 1 <= limited.retry_after <= 3_600


async def test_a_burst_to_one_channel_is_told_to_wait_before_slack_has_to(world: MiniSlack, slack: Slack) -> None:
    at = world.now_ms
    fates: list[object] = []
    for number in range(6):
        world.now_ms = at
        fates.append(await fate(slack, delivery(id=f"dlv_{number}")))
    waits = [found.retry_after for found in fates if isinstance(found, RateLimited)]
    assert len(waits) == 2
    assert all(0 < wait <= 1 for wait in waits)
    assert len(world.bodies("chat.postMessage")) == 4


async def test_a_slow_slack_is_given_up_in_time(slack: Slack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channels.slack.channel.ATTEMPT_SECONDS", 0.05)

    async def hang(api: object, method: str, body: object, *, channel: str, granted: bool = False) -> Json:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr("channels.slack.api.Api.post", hang)
    failed = await fate(slack, delivery())
    assert isinstance(failed, DeliveryFailed)
    assert (failed.code, failed.permanent) == (UNCLEAR, False)


async def test_a_closed_channel_opens_again(slack: Slack) -> None:
    await slack.send(delivery())
    await slack.close()
    await slack.close()
    await slack.send(delivery(id="dlv_2"))


def test_each_event_loop_has_its_own_client() -> None:
    channel = Slack(bot_token="xoxb-test", signing_secret=SECRET, api_url="http://127.0.0.1:1/api/")

    async def once() -> object:
        client = channel._calls()._client()
        assert client is channel._calls()._client()
        await channel.close()
        return client

    assert asyncio.run(once()) is not asyncio.run(once())
