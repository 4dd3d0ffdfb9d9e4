"""The tests of promises C1 to C10, one method each, for any adapter.

What lives here: `ChannelContract`. What does not: the promises themselves (`channels.contract`), those about people
(`people.py`), or any adapter's own tests.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from channels.cards import Button, Card, CardItem, CardOutcome, Form, FormField
from channels.contract import Findable
from channels.errors import ChannelError, DeliveryFailed, InvalidSignature
from channels.events import Click, Event, Ignored, Message
from channels.http import WebhookRequest
from channels.outbound import Delivery, MessageRef, Outbound
from channels.testing.case import ChannelCase
from channels.testing.hostile import hostile_bodies, hostile_requests
from channels.testing.people import PeopleContract

_OPEN_CARD = Card(
    "Refund 140 for ch_1?",
    "Finance may answer. It runs as Alice.",
    fields=(("amount", "140"), ("note", "line one\n1. Approve")),
    evidence=("a mail from the shop",),
    buttons=(Button("Approve", "kit-approve", style="primary"), Button("Deny", "kit-deny", style="danger")),
    expires_at=1_900_000_000_000,
)
_SETTLED_CARD = Card(
    "Refund 140 for ch_1?", outcome=CardOutcome("approved", "Approved by Farah", at=1_800_000_000_000, result="refunded")
)
_SEVERAL = Card(
    "2 calls wait for a yes",
    items=(
        CardItem("Deploy web?", fields=(("env", "live"),), outcome=CardOutcome("denied", "Denied by Bob", at=1, note="too late")),
        CardItem(
            "Deploy api?",
            fields=(("env", "test"),),
            progress="1 of 2 approved: Alice",
            buttons=(
                Button("Approve", "kit-2-approve"),
                Button(
                    "Deny with a note",
                    "kit-2-?deny",
                    form=Form("Deny", "kit-2-deny", submit="Deny", fields=(FormField("note", "Why"),)),
                ),
            ),
        ),
    ),
)
_SELECT = Card(
    "Which region?",
    buttons=tuple(Button(f"Region {number}", f"kit-region-{number}", description=f"place {number}") for number in range(1, 13)),
    display="select",
    freeform=True,
)
_CHANGED = Card(
    "Refund 140?",
    outcome=CardOutcome("overridden", "Approved by Olga", at=1, note="the shop burns", changes=(("amount", "20"),)),
)


class ChannelContract(PeopleContract):
    """Subclass in a test module as `Test…`, give `case`, and every promise is tested against your adapter.

    The methods are coroutines: run them with pytest-asyncio (`asyncio_mode = "auto"`) or an equal.
    """

    @abstractmethod
    def case(self) -> AbstractAsyncContextManager[ChannelCase]:
        """Return a fresh adapter with a fresh platform; what it opened is closed on leaving."""

    async def test_c1_unproven_requests_are_refused_before_parsing(self) -> None:
        """Refuse what is forged, stale, changed or bare, be its body readable or not."""
        async with self.case() as case:
            good = await case.request(case.message_body)
            await case.channel.verify(good)
            _expect({"wrong", "stale"} <= set(case.forged), "C1: the case needs forged requests named wrong and stale")
            bad = {
                **case.forged,
                "changed body": _with_body(good, case.message_body + b" "),
                "unreadable changed body": _with_body(good, b"\xff not readable"),
                "bare": WebhookRequest(good.method, good.path, body=case.message_body),
                "bare and unreadable": WebhookRequest(good.method, good.path, body=b"\xff not readable"),
            }
            for name, request in bad.items():
                outcome = await _outcome(case.channel.verify(request))
                _expect(isinstance(outcome, InvalidSignature), f"C1: a request that is {name} ended in {outcome!r}")

    async def test_c2_equal_bytes_parse_to_equal_events(self) -> None:
        """Parse a redelivery to the same events, keys included."""
        async with self.case() as case:
            first = await _events(case, case.message_body)
            again = await _events(case, bytes(bytearray(case.message_body)))
            _expect(first == again, f"C2: a redelivery parsed to {again!r}, not {first!r}")
            _expect(any(isinstance(event, Message) for event in first), f"C2: no message in {first!r}")
            if case.channel.capabilities.buttons:
                _expect(case.click_body is not None, "C2: a channel with buttons needs a click_body")
            if case.click_body is not None:
                clicks = await _events(case, case.click_body)
                _expect(clicks == await _events(case, case.click_body), "C2: a repeated click parsed to other events")
                _expect(any(isinstance(event, Click) for event in clicks), f"C2: no click in {clicks!r}")
            if case.channel.capabilities.forms:
                _expect(case.form_body is not None, "C2: a channel with forms needs a form_body")
            if case.form_body is not None:
                sent = await _events(case, case.form_body)
                _expect(sent == await _events(case, case.form_body), "C2: a repeated form parsed to other events")
                filled = any(isinstance(event, Click) and event.fields for event in sent)
                _expect(filled, f"C2: no click with fields in {sent!r}")

    async def test_c3_addresses_round_trip_and_carry_the_tenancy(self) -> None:
        """Read every address by the codec, write it back unchanged, and find the tenancy in it."""
        async with self.case() as case:
            events = await _events(case, case.message_body)
            for body in (case.click_body, case.form_body):
                events += await _events(case, body) if body is not None else []
            heard = [event.address for event in events if not isinstance(event, Ignored)]
            for address in [case.address, *heard]:
                parts = case.codec.decode(address)
                _expect(case.codec.encode(*parts) == address, f"C3: {address!r} does not round-trip")
                _expect(bool(case.tenancy), "C3: the case names no tenancy")
                _expect(any(case.tenancy in part for part in parts), f"C3: {address!r} has no {case.tenancy!r} in it")
                _expect(address.split(":", 1)[0] == case.channel.name, f"C3: {address!r} is not {case.channel.name}'s")

    async def test_c4_one_delivery_id_shows_one_message(self) -> None:
        """Send one delivery twice in a row and twice at once."""
        async with self.case() as case:
            before = len(await case.shown(case.reader))
            first = await case.channel.send(_delivery(case, "kit-once", Outbound("only once")))
            second = await case.channel.send(_delivery(case, "kit-once", Outbound("only once"), attempt=2))
            both = [_delivery(case, "kit-race", Outbound("raced"), attempt=attempt) for attempt in (1, 2)]
            third, fourth = await asyncio.gather(*(case.channel.send(delivery) for delivery in both))
            if case.at_least_once:
                return
            _expect(first == second and third == fourth, "C4: a repeated delivery returned another ref")
            _expect(first != third, "C4: two deliveries returned one ref")
            _expect(first.channel == case.channel.name, f"C4: the ref names channel {first.channel!r}")
            added = len(await case.shown(case.reader)) - before
            _expect(added == 2, f"C4: two deliveries, each sent twice, show {added} messages")

    async def test_c5_edit_replaces_in_place_or_follows_up(self) -> None:
        """Edit a sent message, twice with the same delivery."""
        async with self.case() as case:
            ref = await case.channel.send(_delivery(case, "kit-draft", Outbound("before the edit", _OPEN_CARD)))
            before = await case.shown(case.reader)
            edit = _delivery(case, "kit-edit", Outbound("after it", _SETTLED_CARD))
            edited = await case.channel.edit(ref, edit)
            again = await case.channel.edit(ref, edit)
            after = await case.shown(case.reader)
            together = "\n".join(after)
            _expect("after it" in together and "Approved by Farah" in together, f"C5: the edit is not shown: {after!r}")
            if not case.channel.capabilities.edit:
                _expect(len(after) > len(before), "C5: without edit, a follow-up is expected")
                return
            _expect(edited == again, "C5: a repeated edit returned another ref")
            _expect(len(after) == len(before), f"C5: an edit made {len(after)} messages of {len(before)}")
            for gone in ("before the edit", "Approve\n", "Deny"):
                _expect(gone not in f"{together}\n", f"C5: {gone!r} is still shown after the edit: {after!r}")

    async def test_c6_own_posts_are_not_events(self) -> None:
        """Ignore the platform's echo of what the bot posted."""
        async with self.case() as case:
            await case.channel.send(_delivery(case, "kit-echo", Outbound("said by the bot")))
            if case.own_post_body is not None:
                events = await _events(case, case.own_post_body)
                _expect(all(isinstance(event, Ignored) for event in events), f"C6: the bot's own post came back: {events!r}")

    async def test_c7_hostile_input_ends_in_a_channel_error_or_ignored(self) -> None:
        """Feed proven requests with hostile bodies, and hostile headers."""
        async with self.case() as case:
            for good in filter(None, (case.message_body, case.click_body, case.own_post_body)):
                for body in hostile_bodies(good):
                    await _survives(case, await case.request(body))
            for request in hostile_requests(await case.request(case.message_body)):
                await _survives(case, request)
            for address in ("", ":", case.address + ":", case.address + "%", case.address.upper(), "\ud800", "x" * 100_000):
                delivery = Delivery("kit-nowhere", 1, address=address, message=Outbound("to nowhere"))
                outcome = await _outcome(case.channel.send(delivery))
                _expect(isinstance(outcome, ChannelError), f"C7: sending to {address[:80]!r} ended in {outcome!r}")

    async def test_c8_find_returns_what_was_sent(self) -> None:
        """Find what was sent and nothing else; the capability says whether there is a `find`."""
        async with self.case() as case:
            channel = case.channel
            findable = isinstance(channel, Findable)
            _expect(findable == channel.capabilities.find, "C8: the capability find and the method find disagree")
            if not isinstance(channel, Findable):
                return
            _expect(await channel.find(case.address, "kit-sent") is None, "C8: found before it was sent")
            ref = await case.channel.send(_delivery(case, "kit-sent", Outbound("find me")))
            found = await channel.find(case.address, "kit-sent")
            _expect(found == ref, f"C8: found {found!r}, sent {ref!r}")
            _expect(await channel.find(case.address, "kit-never-sent") is None, "C8: found what was never sent")

    async def test_c9_every_kind_is_deliverable(self) -> None:
        """Send each kind of message and look for all of its words."""
        async with self.case() as case:
            limit = case.channel.capabilities.max_text
            words = [f"w{number}" for number in range((limit + 1_000) // 6)]
            kinds: dict[str, tuple[Outbound, tuple[str, ...]]] = {
                "text": (Outbound("**Hello** there"), ("Hello",)),
                "open card": (Outbound(card=_OPEN_CARD), ("Refund 140 for ch_1?", "Approve", "Deny")),
                "text with card": (Outbound("Please look", _OPEN_CARD), ("Please look", "Refund 140 for ch_1?")),
                "settled card": (Outbound(card=_SETTLED_CARD), ("Refund 140 for ch_1?", "Approved by Farah")),
                "several questions": (
                    Outbound(card=_SEVERAL),
                    ("2 calls wait", "Deploy web?", "Denied by Bob", "too late", "Deploy api?", "1 of 2 approved", "Approve"),
                ),
                "many options": (Outbound(card=_SELECT), ("Which region?", "Region 1", "place 7", "Region 12")),
                "changed card": (Outbound(card=_CHANGED), ("Refund 140?", "Approved by Olga", "the shop burns", "amount", "20")),
                "notice": (Outbound("Something went wrong", notice=True), ("Something went wrong",)),
                "long text": (Outbound(" ".join(words)), ()),
                "long code": (Outbound("```python\n" + "\n".join(words) + "\n```"), ()),
            }
            for kind, (message, expected) in kinds.items():
                before = list(await case.shown(case.reader))
                ref = await case.channel.send(_delivery(case, f"kit-{kind.replace(' ', '-')}", message))
                _expect(isinstance(ref, MessageRef), f"C9: {kind} returned {ref!r}")
                added = "\n".join((await case.shown(case.reader))[len(before) :])
                for word in expected:
                    _expect(word in added, f"C9: {kind} lost {word!r}")
                if kind.startswith("long"):
                    _expect(re.findall(r"w\d+", added) == words, f"C9: {kind} did not arrive whole and in order")

    async def test_c10_private_messages_have_one_reader(self) -> None:
        """Show a private message to its reader only, or refuse it for good."""
        async with self.case() as case:
            secret = Outbound("for your eyes only", private_to=case.reader)
            outcome = await _outcome(case.channel.send(_delivery(case, "kit-private", secret)))
            seen = "\n".join(await case.shown(case.stranger))
            _expect("for your eyes only" not in seen, "C10: a stranger sees a private message")
            if case.channel.capabilities.private:
                _expect(isinstance(outcome, MessageRef), f"C10: a private message ended in {outcome!r}")
                mine = "\n".join(await case.shown(case.reader))
                _expect("for your eyes only" in mine, "C10: its reader doesn't see a private message")
                await _asks_in_private(case)
            else:
                refused = isinstance(outcome, DeliveryFailed) and outcome.permanent
                _expect(refused, f"C10: without private delivery, it must be refused, not end in {outcome!r}")


async def _asks_in_private(case: ChannelCase) -> None:
    """Show a card to its reader only, settle it, and find it settled where it was shown."""
    asked = replace(_OPEN_CARD, question="Just between us?")
    settled = replace(_SETTLED_CARD, question="Just between us?")
    ref = await case.channel.send(_delivery(case, "kit-ask", Outbound(card=asked, private_to=case.reader)))
    again = await case.channel.send(_delivery(case, "kit-ask", Outbound(card=asked, private_to=case.reader), attempt=2))
    _expect(ref == again, "C4: a repeated private card returned another ref")
    before = await case.shown(case.reader)
    _expect("Just between us?" in "\n".join(before), "C10: its reader doesn't see a private card")
    await case.channel.edit(ref, _delivery(case, "kit-told", Outbound(card=settled, private_to=case.reader)))
    after = await case.shown(case.reader)
    _expect("Approved by Farah" in "\n".join(after), "C10: a private card was not settled")
    if case.channel.capabilities.edit:
        _expect(len(after) == len(before), "C5: the edit of a private card is another message")
    seen = "\n".join(await case.shown(case.stranger))
    _expect("Just between us?" not in seen, "C10: a stranger sees a private card")


def _expect(kept: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not kept:
        raise AssertionError(otherwise)


def _with_body(request: WebhookRequest, body: bytes) -> WebhookRequest:
    return WebhookRequest(request.method, request.path, headers=request.headers, body=body, query=request.query)


def _delivery(case: ChannelCase, delivery_id: str, message: Outbound, *, attempt: int = 1) -> Delivery:
    return Delivery(delivery_id, attempt, address=case.address, message=message)


async def _outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except ChannelError as error:
        return error


async def _events(case: ChannelCase, body: bytes) -> list[Event]:
    verified = await case.channel.verify(await case.request(body))
    return list(case.channel.parse(verified).events)


async def _survives(case: ChannelCase, request: WebhookRequest) -> None:
    try:
        events = case.channel.parse(await case.channel.verify(request)).events
    except ChannelError:
        return
    except Exception as error:
        raise AssertionError(f"C7: {request.headers!r} {request.body[:300]!r} ended in {error!r}") from error
    for event in events:
        if not isinstance(event, Ignored):
            case.codec.decode(event.address)
            _expect(bool(event.key), f"C7: an event without a key: {request.body[:300]!r}")
