"""The console channel: the bot's side of the console's platform.

What lives here: verify, parse, send, edit, find, addresses of the cast, links to threads. What does not: the platform itself
(`platform.py`) or the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, cast
from urllib.parse import quote

from channels.address import AddressCodec
from channels.cards import MAX_FIELD_NAME
from channels.console.cast import BOT, cast_member
from channels.console.platform import ConsolePlatform
from channels.console.records import ConsoleRefused
from channels.contract import Capabilities, Channel, Verified
from channels.errors import BadAddress, DeliveryFailed, MalformedPayload, PayloadTooLarge
from channels.events import MAX_CLICK_FIELD, MAX_CLICK_FIELDS, Author, Click, Event, Ignored, Ingress, Message, Place, Standing
from channels.http import WebhookRequest, read_json
from channels.outbound import Delivery, MessageRef, Outbound

MAX_BODY = 256 * 1024

ADDRESS = AddressCodec("console", 1, ("thread",))


class Console(Channel):
    """A thread on a local page. A thread's id begins with its platform's: that is the tenancy in the address."""

    name: ClassVar[str] = "console"
    # The platform takes a text of any length in one message.
    capabilities: ClassVar[Capabilities] = Capabilities(
        buttons=True, forms=True, edit=True, private=True, find=True, max_text=1_000_000
    )

    def __init__(self, platform: ConsolePlatform) -> None:
        self.platform = platform

    async def verify(self, request: WebhookRequest) -> Verified:
        """Check the platform's signature."""
        if len(request.body) > MAX_BODY:
            raise PayloadTooLarge(len(request.body), MAX_BODY)
        return self.platform.scheme.verify(request, [await self.platform.secret()])

    def parse(self, verified: Verified) -> Ingress:
        """Read the one event of a request."""
        return Ingress((_event(_object(read_json(verified.request.body), "the body")),))

    async def send(self, delivery: Delivery) -> MessageRef:
        """Post a message, once per delivery id."""
        (thread_id,) = ADDRESS.decode(delivery.address)
        try:
            shown = _called(delivery.message).to_json()
            message_id = await self.platform.post_bot(delivery.id, thread_id, outbound_json=shown)
        except ConsoleRefused as error:
            raise DeliveryFailed(error.code, permanent=True) from error
        return MessageRef(self.name, delivery.address, id=message_id)

    async def edit(self, ref: MessageRef, delivery: Delivery) -> MessageRef:
        """Replace the message."""
        (thread_id,) = ADDRESS.decode(ref.address)
        shown = _called(delivery.message).to_json()
        try:
            message_id = await self.platform.edit_bot(delivery.id, ref.id, thread_id=thread_id, outbound_json=shown)
        except ConsoleRefused as error:
            raise DeliveryFailed(error.code, permanent=True) from error
        return MessageRef(self.name, ref.address, id=message_id)

    async def find(self, address: str, delivery_id: str) -> MessageRef | None:
        """Return the message that a delivery to this address became."""
        (thread_id,) = ADDRESS.decode(address)
        message = await self.platform.find(delivery_id)
        if message is None or message.thread_id != thread_id:
            return None
        return MessageRef(self.name, address, id=message.id)

    async def email_of(self, address: str, author: Author) -> str | None:
        """Return a cast member's address. Raises: BadAddress."""
        ADDRESS.decode(address)
        member = cast_member(author.id)
        return None if member is None else member.email

    async def link_to(self, address: str) -> str | None:
        """Link to a thread on the page, where one is served. Raises: BadAddress."""
        (thread_id,) = ADDRESS.decode(address)
        page = self.platform.page_url
        return f"{page}#{quote(thread_id, safe='')}" if page else None


def _called(message: Outbound) -> Outbound:
    """Name those a message is for before its words."""
    names = [member.name for one in message.mentions if (member := cast_member(one)) is not None]
    if not names:
        return message
    return replace(message, text=f"{', '.join(f'@{name}' for name in names)}: {message.text}", mentions=())


_Fields = Mapping[str, object]


def _event(body: _Fields) -> Event:
    kind = _text(body, "type")
    if kind not in {"message", "click"}:
        return Ignored(f"an event of type {kind[:40]!r}")
    author = _object(body.get("author"), "author")
    if _text(author, "id") == BOT:
        return Ignored("the bot's own post")
    thread = _object(body.get("thread"), "thread")
    address = _address(_filled(body, "platform"), _filled(thread, "id"))
    who, place, key = _author(author, _filled(body, "platform")), _place(thread), _filled(body, "id")
    if kind == "click":
        return Click(address, who, value=_filled(body, "value"), key=key, place=place, fields=_fields(body))
    text = _text(body, "text")
    if not text.strip():
        return Ignored("a message without text")
    return Message(address, who, text=text, key=key, place=place)


def _fields(body: _Fields) -> dict[str, str]:
    """Read what was filled in; an event from before there were forms has none."""
    fields = _object(body.get("fields", {}), "fields")
    if len(fields) > MAX_CLICK_FIELDS or any(len(name) > MAX_FIELD_NAME for name in fields):
        raise MalformedPayload("fields are too many")
    found = {name: _text(fields, name) for name in fields}
    if any(len(text) > MAX_CLICK_FIELD for text in found.values()):
        raise MalformedPayload("a field is too long")
    return found


def _address(platform: str, thread_id: str) -> str:
    address = ADDRESS.encode(thread_id)
    if not thread_id.startswith(f"{platform}-"):
        raise BadAddress(address, "a thread of another platform")
    return address


def _author(author: _Fields, platform: str) -> Author:
    standing = _text(author, "standing")
    known = Standing(standing) if standing in set(Standing) else Standing.UNKNOWN
    roles = author.get("roles")
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise MalformedPayload("roles is not a list of texts")
    return Author(
        _filled(author, "id"),
        _text(author, "name"),
        standing=known,
        tenancy=platform,
        roles=frozenset(cast("list[str]", roles)),
    )


def _place(thread: _Fields) -> Place:
    channel = _filled(thread, "channel")
    # What isn't plainly said to be closed counts as open to outsiders.
    shared_outside = thread.get("shared_outside") is not False
    return Place("direct" if channel.startswith("@") else "channel", shared_outside, title=_text(thread, "title"))


def _object(value: object, name: str) -> _Fields:
    if not isinstance(value, dict):
        raise MalformedPayload(f"{name} is not an object")
    return cast("dict[str, object]", value)


def _text(fields: _Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise MalformedPayload(f"{name} is not text")
    return value


def _filled(fields: _Fields, name: str) -> str:
    value = _text(fields, name)
    if not value:
        raise MalformedPayload(f"{name} is empty")
    return value
