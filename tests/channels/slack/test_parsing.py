"""What Slack sends becomes messages for what people say to the bot, and is left aside for everything else."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import ChannelError, Ignored, Message, Place, Standing, Verified
from channels.slack import Slack
from channels.slack.address import ADDRESS, SlackAddress
from channels.slack.reading import readable
from tests.channels.slack.fake import APP, BOT, BOT_ID, CHANNEL, NOW, ROOT, TEAM
from tests.channels.slack.payloads import SECRET, Json, as_form, as_json, click, envelope, heard, mention, message, signed

LATER = "1799999100.000200"


async def said(body: Json) -> Message:
    event = await heard(body)
    assert isinstance(event, Message), event
    return event


async def left_aside(body: Json | bytes) -> str:
    event = await heard(body)
    assert isinstance(event, Ignored), event
    return event.reason


# Addresses


async def test_a_mention_starts_a_thread_of_its_own() -> None:
    event = await said(envelope(mention()))
    assert event.address == f"slack:v1:-:{TEAM}:{CHANNEL}:{ROOT}"
    assert event.key == f"{TEAM}:{CHANNEL}:{ROOT}"
    assert (event.text, event.mention, event.place) == ("hello", True, Place("channel"))
    assert (event.author.id, event.author.standing, event.author.tenancy) == ("UALICE", Standing.UNKNOWN, TEAM)


@pytest.mark.parametrize("kind", ["channel", "group", "mpim", "im"])
async def test_a_reply_in_a_thread_has_its_roots_address(kind: str) -> None:
    channel = "D1" if kind == "im" else "C1"
    reply = await said(envelope(message("more", ts=LATER, thread_ts=ROOT, channel=channel, channel_type=kind)))
    assert reply.address == f"slack:v1:-:{TEAM}:{channel}:{ROOT}"
    assert reply.mention is (kind == "im")


async def test_a_direct_message_is_one_session_and_a_thread_in_it_another() -> None:
    whole = [
        await said(envelope(message(text, ts=ts, channel="D1", channel_type="im"))) for text, ts in (("a", ROOT), ("b", LATER))
    ]
    assert {event.address for event in whole} == {f"slack:v1:-:{TEAM}:D1:dm"}
    assert all(event.mention and event.place.kind == "direct" for event in whole)
    root = await said(envelope(message("a", channel="D1", channel_type="im", thread_ts=ROOT)))
    assert root.address.endswith(":D1:dm")


async def test_an_organisation_wide_installation_is_in_the_address_and_owns_the_people() -> None:
    wide = {"enterprise_id": "E1", "team_id": TEAM, "user_id": BOT, "is_enterprise_install": True}
    event = await said(envelope(mention(), enterprise_id="E1", authorizations=[wide]))
    assert event.address == f"slack:v1:E1:{TEAM}:{CHANNEL}:{ROOT}"
    assert event.author.tenancy == "E1"


async def test_the_installation_wins_over_the_senders_workspace() -> None:
    shared = envelope(mention(team="T9", user_team="T9"), team_id="T9", is_ext_shared_channel=True)
    event = await said(shared)
    assert SlackAddress.decode(event.address).team == TEAM
    assert event.place.shared_outside


async def test_equal_ids_in_two_workspaces_are_two_addresses_and_two_people() -> None:
    other = [{"team_id": "T2", "user_id": BOT}]
    first, second = await said(envelope(mention())), await said(envelope(mention(), team_id="T2", authorizations=other))
    assert first.address != second.address
    assert first.key != second.key
    assert (first.author.id, first.author.tenancy) != (second.author.id, second.author.tenancy)


async def test_the_two_events_of_one_mention_are_one_message() -> None:
    assert await said(envelope(mention(), event_id="Ev1")) == await said(envelope(message(), event_id="Ev2"))


async def test_a_mention_counts_in_a_plain_message_too() -> None:
    assert (await said(envelope(message(f"and you, <@{BOT}|moorings>?", ts=LATER, thread_ts=ROOT)))).mention
    assert not (await said(envelope(message("&lt;@UBOT&gt; in words")))).mention


# Text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (f"<@{BOT}> hi", "hi"),
        (f"<@{BOT}>, <@{BOT}>: hi", "hi"),
        (f"hi <@{BOT}>", f"hi @{BOT}"),
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("&amp;lt;", "&lt;"),
        ("ask <@U1|bob> or <@U2>", "ask @bob or @U2"),
        ("in <#C1|general> or <#C2>", "in #general or #C2"),
        ("<!here> <!subteam^S1|@ops> <!subteam^S2>", "@here @ops @S2"),
        ("<!date^1800000000^{date}|15 January>", "15 January"),
        ("<https://a.example/x?a=1&amp;b=2>", "https://a.example/x?a=1&b=2"),
        ("<https://evil.example|https://bank.example>", "https://bank.example (https://evil.example)"),
        ("<mailto:a@b.example|a@b.example>", "a@b.example"),
        ("&lt;@U1&gt;", "<@U1>"),
        ("<>", ""),
    ],
)
def test_text_reads_as_people_see_it(raw: str, shown: str) -> None:
    assert readable(raw, bot_user=BOT) == shown


async def test_a_file_is_named_even_without_a_word() -> None:
    event = await said(envelope(message(f"<@{BOT}>", subtype="file_share", files=[{"name": "a\nb.pdf"}, {"title": "t"}, 7])))
    assert event.text == "[file: a b.pdf]\n[file: t]\n[file: unnamed]"


# Left aside


@pytest.mark.parametrize(
    "own",
    [
        message("said", bot_id=BOT_ID, user=None),
        message("said", app_id=APP, user=None),
        message("said", user=BOT),
        {"type": "message", "subtype": "message_changed", "channel": CHANNEL, "message": message("said", bot_id=BOT_ID)},
        message("said", subtype="thread_broadcast", user=BOT, bot_id=BOT_ID, thread_ts=ROOT, ts=LATER),
    ],
    ids=["bot_id", "app_id", "user", "changed", "broadcast"],
)
@pytest.mark.parametrize("known", [True, False])
async def test_our_own_posts_never_come_back(own: Json, known: bool) -> None:
    dm = own | {"channel": "D1", "channel_type": "im"}
    for body in (own, dm):
        assert await left_aside(envelope(body) if known else envelope(body, authorizations=[]))


async def test_who_cannot_tell_themselves_apart_hears_only_clients_of_people() -> None:
    assert "may be our own" in await left_aside(envelope(message("hi", channel="D1", channel_type="im"), authorizations=[]))
    await said(envelope(message("hi", client_msg_id="c1"), authorizations=[]))


@pytest.mark.parametrize(
    ("event", "heard_as"),
    [
        (message(), "message"),
        (message(subtype="thread_broadcast", thread_ts=ROOT, ts=LATER), "message"),
        (message(subtype="file_share"), "message"),
        (message(subtype=None), "message"),
        *[
            (message(subtype=subtype), "ignored")
            for subtype in (
                "message_changed",
                "message_deleted",
                "bot_message",
                "channel_join",
                "channel_topic",
                "me_message",
                "tombstone",
            )
        ],
        (message(subtype=["file_share"]), "ignored"),
        (message(hidden=True), "ignored"),
        (message(user="U2", bot_id="B9"), "ignored"),
        (message(user="U2", app_id="A9"), "ignored"),
        (message(user="U2", bot_profile={"id": "B9"}), "ignored"),
        (message(user="USLACKBOT"), "ignored"),
        (message(""), "ignored"),
        (message(f"<@{BOT}>"), "ignored"),
        (message() | {"text": None}, "ignored"),
        (message(ts=1799999000.0001), "ignored"),
        (message(ts="1799999000"), "ignored"),
        (message(user="U:1"), "ignored"),
        (message(channel={}), "ignored"),
        (message(thread_ts="root"), "ignored"),
        ({"type": "reaction_added", "user": "U1"}, "ignored"),
        ({"type": "member_joined_channel", "user": BOT}, "ignored"),
        ({"type": "app_uninstalled"}, "ignored"),
        ({"type": "tokens_revoked", "tokens": {"bot": [BOT]}}, "ignored"),
        ({}, "ignored"),
        (None, "ignored"),
    ],
)
async def test_subtypes_and_gaps(event: Any, heard_as: str) -> None:
    assert type(await heard(envelope(event))).__name__.lower() == heard_as


async def test_a_person_who_installed_the_app_is_not_taken_for_the_bot() -> None:
    for_alice = [{"team_id": TEAM, "user_id": "UALICE", "is_bot": False}]
    await said(envelope(mention(), authorizations=for_alice))
    await said(envelope(message("hi", channel="D1", channel_type="app_home", client_msg_id="c1"), authorizations=for_alice))


async def test_an_unfurl_is_no_question() -> None:
    changed = {"type": "message", "subtype": "message_changed", "hidden": True, "channel": CHANNEL, "ts": LATER}
    assert await left_aside(envelope(changed | {"message": message(attachments=[{}]), "previous_message": message()}))


@pytest.mark.parametrize(
    "body",
    [
        {"type": "app_rate_limited", "team_id": TEAM, "minute_rate_limited": 1},
        {"type": "event_callback"},
        {"type": "unheard_of"},
        {"no": "type"},
        envelope(mention(), team_id=None, authorizations=[{"user_id": BOT}]),
        b"",
        b"[]",
        b"ssl_check=1&token=x",
        b"a=b",
        as_form({"type": "view_submission", "view": {}}),
        as_form({"type": "shortcut"}),
        as_form({}),
    ],
)
async def test_whatever_is_signed_is_answered(body: Json | bytes) -> None:
    assert await left_aside(body)


@pytest.mark.parametrize(
    "body", [b"\xff", b"{", b"a=%ff", b"a=b&a=c", b"payload=%7B", b"payload=x", b"&".join([b"a=b"] * 101), b"a=\xc3"]
)
async def test_what_is_neither_json_nor_a_form_is_refused(body: bytes) -> None:
    with pytest.raises(ChannelError) as refused:
        await heard(body)
    assert refused.value.status == 400


async def test_a_challenge_is_answered_with_itself_but_only_signed() -> None:
    channel = Slack(signing_secret=SECRET)
    body = as_json({"type": "url_verification", "challenge": "c4ll\u00e9nge"})
    answer = channel.parse(Verified(signed(body), "test")).response
    assert answer is not None
    assert (answer.status, answer.body, answer.content_type[:10]) == (200, "c4ll\u00e9nge".encode(), "text/plain")


async def test_a_command_is_told_that_there_are_none() -> None:
    channel = Slack(signing_secret=SECRET)
    ingress = channel.parse(Verified(signed(b"command=%2Fdeploy&text=now&team_id=T1"), "test"))
    assert ingress.response is not None
    assert (ingress.response.status, ingress.response.content_type) == (200, "application/json")
    assert b"ephemeral" in ingress.response.body


async def test_a_body_is_read_by_what_it_is() -> None:
    channel = Slack(signing_secret=SECRET)
    for body, kind in ((as_json(envelope(mention())), "text/plain"), (as_form(click()), "text/plain")):
        (event,) = channel.parse(Verified(signed(body, content_type=kind), "test")).events
        assert not isinstance(event, Ignored)


# Hostile values

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
_MESSAGE_FIELDS = (
    "type",
    "subtype",
    "user",
    "ts",
    "thread_ts",
    "channel",
    "channel_type",
    "text",
    "files",
    "bot_id",
    "user_profile",
)
_CLICK_FIELDS = ("user", "container", "team", "enterprise", "channel", "message", "actions", "is_enterprise_install")


@given(
    st.dictionaries(st.sampled_from(_MESSAGE_FIELDS), _VALUES),
    st.dictionaries(st.sampled_from(("authorizations", "team_id")), _VALUES),
)
async def test_no_message_breaks_the_reading(changes: Json, around: Json) -> None:
    await _survives(as_json(envelope(message() | changes, **around)))


@given(
    st.dictionaries(st.sampled_from(_CLICK_FIELDS), _VALUES),
    st.dictionaries(st.sampled_from(("value", "action_id", "action_ts")), _VALUES),
)
async def test_no_click_breaks_the_reading(changes: Json, action: Json) -> None:
    payload = click()
    payload["actions"] = [payload["actions"][0] | action]
    await _survives(as_form(payload | changes))


@given(st.binary(max_size=200))
async def test_no_bytes_break_the_reading(body: bytes) -> None:
    await _survives(body)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    assert isinstance(readable(text, bot_user=BOT, addressed=True), str)


async def _survives(body: bytes) -> None:
    channel = Slack(signing_secret=SECRET)
    try:
        events = channel.parse(Verified(signed(body), "test")).events
    except ChannelError:
        return
    for event in events:
        if not isinstance(event, Ignored):
            SlackAddress.decode(event.address)
            assert ADDRESS.encode(*ADDRESS.decode(event.address)) == event.address


@pytest.mark.parametrize("escape", [b"\\ud800", b"\\uDC00 x", b"\\ud83d\\ud83d"])
async def test_half_a_character_is_ignored_and_a_whole_one_is_read(escape: bytes) -> None:
    channel = Slack(bot_token="xoxb-test", signing_secret=SECRET, now=lambda: NOW)
    for body in (envelope(message("half: HERE")), click("HERE")):
        raw = as_json(body).replace(b"HERE", escape)
        raw = urlencode({"payload": raw.decode()}).encode() if body["type"] == "block_actions" else raw
        found = channel.parse(await channel.verify(signed(raw)))
        assert found.response is None
        assert found.events == (Ignored("half a character"),)
    heard_whole = await heard(as_json(envelope(message("whole: HERE"))).replace(b"HERE", b"\\ud83d\\ude00"))
    assert isinstance(heard_whole, Message)
