"""The console channel: what it hears, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channels import (
    BadAddress,
    Button,
    Card,
    ChannelError,
    Click,
    Delivery,
    DeliveryFailed,
    Ignored,
    InvalidSignature,
    MalformedPayload,
    Message,
    MessageRef,
    Outbound,
    PayloadTooLarge,
    Place,
    Standing,
    Verified,
    WebhookRequest,
)
from channels.console import Console, ConsolePlatform, PendingEvent
from channels.console.channel import ADDRESS, MAX_BODY

BODY: dict[str, Any] = {
    "type": "message",
    "id": "evt_1",
    "platform": "p1",
    "thread": {"id": "p1-t1", "title": "Refunds", "channel": "#general", "shared_outside": False},
    "author": {"id": "farah", "name": "Farah", "standing": "member", "roles": ["finance"]},
    "message": "msg_1",
    "text": "hello",
    "at": 5,
}


def parse(body: object) -> Message | Click | Ignored:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    channel = Console(ConsolePlatform(":memory:"))
    (event,) = channel.parse(Verified(WebhookRequest("POST", "/", body=raw), "test")).events
    return event


def test_a_message_is_heard() -> None:
    event = parse(BODY)
    assert isinstance(event, Message)
    assert (event.address, event.text, event.key) == ("console:v1:p1-t1", "hello", "evt_1")
    assert (event.author.id, event.author.tenancy, event.author.standing) == ("farah", "p1", Standing.MEMBER)
    assert event.author.roles == {"finance"}
    assert event.place == Place("channel", title="Refunds")


def test_a_click_is_heard() -> None:
    event = parse(BODY | {"type": "click", "value": "opaque"})
    assert isinstance(event, Click)
    assert (event.address, event.value, event.key) == ("console:v1:p1-t1", "opaque", "evt_1")


def test_a_place_is_what_the_platform_says() -> None:
    direct = parse(BODY | {"thread": BODY["thread"] | {"channel": "@alice"}})
    unsaid = parse(BODY | {"thread": {k: v for k, v in BODY["thread"].items() if k != "shared_outside"}})
    assert isinstance(direct, Message)
    assert isinstance(unsaid, Message)
    assert direct.place.kind == "direct"
    assert unsaid.place.shared_outside


def test_an_unknown_standing_is_unknown() -> None:
    event = parse(BODY | {"author": BODY["author"] | {"standing": "owner"}})
    assert isinstance(event, Message)
    assert event.author.standing is Standing.UNKNOWN


@pytest.mark.parametrize(
    "body",
    [BODY | {"type": "reaction"}, BODY | {"text": " "}, BODY | {"author": {"id": "bot"}}],
    ids=["other type", "blank", "own post"],
)
def test_what_is_not_for_the_bot_is_ignored_with_a_reason(body: dict[str, Any]) -> None:
    event = parse(body)
    assert isinstance(event, Ignored)
    assert event.reason


@pytest.mark.parametrize(
    "body",
    [
        [],
        BODY | {"id": ""},
        BODY | {"text": 1},
        BODY | {"author": None},
        BODY | {"author": BODY["author"] | {"roles": "finance"}},
        BODY | {"author": BODY["author"] | {"roles": [1]}},
        BODY | {"type": "click"},
        BODY | {"type": "click", "value": ""},
    ],
)
def test_what_cant_be_read_is_malformed(body: object) -> None:
    with pytest.raises(MalformedPayload):
        parse(body)


def test_a_thread_of_another_platform_is_refused() -> None:
    with pytest.raises(BadAddress):
        parse(BODY | {"platform": "p2"})


any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["bot", "click", "p1", "p1-x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*BODY, "value", "roles", "name"]), inner, max_size=6)
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=300), any_json.map(lambda value: json.dumps(value).encode())))
def test_no_body_crashes_parse(body: bytes) -> None:
    try:
        parse(body)
    except ChannelError:
        return


@settings(max_examples=300)
@given(
    st.dictionaries(st.sampled_from([*BODY, "value"]), any_json, min_size=1, max_size=3),
    st.sampled_from(["thread", "author", ""]),
)
def test_no_field_crashes_parse(fields: dict[str, object], inside: str) -> None:
    body = BODY | ({inside: BODY[inside] | fields} if inside else fields)
    try:
        event = parse(body)
    except ChannelError:
        return
    if not isinstance(event, Ignored):
        assert ADDRESS.encode(*ADDRESS.decode(event.address)) == event.address
        assert event.key
        assert event == parse(body)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(body=st.binary(max_size=100))
async def test_any_signed_bytes_verify(platform: ConsolePlatform, body: bytes) -> None:
    request = await platform.request(PendingEvent("evt", body, at=0, delivered=False))
    assert (await Console(platform).verify(request)).request.body == body


async def test_another_platforms_signature_is_refused(platform: ConsolePlatform) -> None:
    other = ConsolePlatform(":memory:", now=lambda: 1_800_000_000_000)
    request = await other.request(PendingEvent("evt", b"{}", at=0, delivered=False))
    with pytest.raises(InvalidSignature):
        await Console(platform).verify(request)
    await other.close()


async def test_a_body_over_the_limit_is_refused_before_it_is_hashed(platform: ConsolePlatform) -> None:
    with pytest.raises(PayloadTooLarge):
        await Console(platform).verify(WebhookRequest("POST", "/", body=b"x" * (MAX_BODY + 1)))


async def test_the_longest_message_of_a_person_gets_through(platform: ConsolePlatform) -> None:
    thread = await platform.create_thread()
    posted = await platform.post_person(thread.id, "alice", text="\U0001f6a2" * 16_000, client_id="1")
    channel = Console(platform)
    (event,) = channel.parse(await channel.verify(await platform.request(posted.event))).events
    assert isinstance(event, Message)
    assert len(event.text) == 16_000


async def test_what_the_platform_refuses_fails_for_good(platform: ConsolePlatform) -> None:
    channel = Console(platform)
    thread = await platform.create_thread()
    address = ADDRESS.encode(thread.id)
    gone = Delivery("d1", 1, address=ADDRESS.encode("p0-none"), message=Outbound("hi"))
    private = Delivery("d2", 1, address=address, message=Outbound("hi", private_to="mallory"))
    unknown = MessageRef("console", address, id="msg_none")
    for call in (channel.send(gone), channel.send(private), channel.edit(unknown, replace_address(gone, address))):
        with pytest.raises(DeliveryFailed) as failure:
            await call
        assert failure.value.permanent


def replace_address(delivery: Delivery, address: str) -> Delivery:
    return Delivery(delivery.id, delivery.attempt, address=address, message=delivery.message)


async def test_find_looks_at_its_own_address_only(platform: ConsolePlatform) -> None:
    channel = Console(platform)
    here, there = [ADDRESS.encode((await platform.create_thread()).id) for _ in range(2)]
    ref = await channel.send(Delivery("d1", 1, address=here, message=Outbound(card=Card("?", buttons=(Button("Y", "y"),)))))
    assert await channel.find(here, "d1") == ref
    assert await channel.find(there, "d1") is None
