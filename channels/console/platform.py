"""The console's platform: what Slack's servers are to Slack, in one SQLite file.

What lives here: threads, messages, clicks and events, for the page (persons) and the channel (the bot) alike, from any number of
processes. What does not: the bot, or anything it decides.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Mapping

from channels.cards import MAX_BUTTON_VALUE, MAX_FIELD_NAME
from channels.console import rows
from channels.console.cast import BOT, CastMember, cast_member
from channels.console.file import ConsoleFile
from channels.console.records import ConsoleRefused, PendingEvent, PersonMessage, ShownMessage, Thread
from channels.errors import MalformedPayload
from channels.events import MAX_CLICK_FIELD, MAX_CLICK_FIELDS
from channels.http import WebhookRequest
from channels.outbound import Outbound
from channels.signing import HmacScheme, NowMs, wall_clock
from channels.strict import Json

MAX_PERSON_TEXT = 16_000
MAX_CHANNEL = 80
MAX_ID = 128

SIGNATURE_HEADER = "X-Console-Signature"
TIMESTAMP_HEADER = "X-Console-Timestamp"


def console_scheme(now: NowMs) -> HmacScheme:
    """Return how the platform signs its events."""
    return HmacScheme(SIGNATURE_HEADER, TIMESTAMP_HEADER, now=now)


class ConsolePlatform:
    """The platform behind the console channel; the file is opened at the first call.

    Every write can be made again with the same ids and is then done once. `now` returns ms since the epoch; signatures bear it
    too, or what `signs_at` returns, where `now` may jump: what is signed is to be valid a moment later.
    All calls raise DeliveryFailed("unavailable", permanent=False) when the file can't be used. `page_url` is where this process
    serves the page, empty where it doesn't.
    """

    def __init__(self, path: str | os.PathLike[str], *, now: NowMs = wall_clock, signs_at: NowMs | None = None) -> None:
        self.file = ConsoleFile(path)
        self.page_url = ""
        self._now = now
        self.scheme = console_scheme(signs_at or now)

    async def close(self) -> None:
        """Close the file; a second call does nothing."""
        await self.file.close()

    async def platform_id(self) -> str:
        """Return the platform's own id: the tenancy of its authors, and the head of every thread's id."""
        return await self.file.read(rows.platform_id)

    async def secret(self) -> bytes:
        """Return the secret that events are signed with."""
        return await self.file.read(rows.secret)

    async def sign(self, body: bytes) -> dict[str, str]:
        """Return the headers that prove this body, now."""
        return self.scheme.sign(body, await self.secret())

    async def request(self, event: PendingEvent) -> WebhookRequest:
        """Return the signed request that hands an event to the bot."""
        headers = await self.sign(event.body)
        return WebhookRequest("POST", "/channels/console/events", headers=headers, body=event.body)

    async def version(self) -> int:
        """Return the count of changes so far: it grows with every change anybody makes."""
        return await self.file.read(rows.version)

    async def create_thread(
        self, title: str = "", *, channel: str = "#general", shared_outside: bool = False, client_id: str | None = None
    ) -> Thread:
        """Open a thread, once per `client_id`. Without a title it takes the first message's; a channel "@…" is a direct one."""
        _check_text(title, limit=MAX_PERSON_TEXT)
        _check_text(channel, limit=MAX_CHANNEL, empty=False)
        now = self._now()

        def write(db: sqlite3.Connection) -> Thread:
            own = secrets.token_hex(10) if client_id is None else hashlib.sha256(client_id.encode()).hexdigest()[:20]
            thread_id = f"{rows.platform_id(db)}-{own}"
            new = Thread(thread_id, title, channel=channel, shared_outside=shared_outside, created_at=now, version=0, last_at=now)
            return rows.add_thread(db, new)

        return await self.file.write(write)

    async def threads(self) -> list[Thread]:
        """Return all threads, the one that changed last first."""
        return await self.file.read(rows.threads)

    async def thread(self, thread_id: str) -> Thread:
        """Return one thread. Raises: ConsoleRefused("unknown_thread")."""
        return await self.file.read(lambda db: rows.thread(db, thread_id))

    async def messages(self, thread_id: str, *, since_version: int = 0, viewer: str | None = None) -> list[ShownMessage]:
        """Return what changed after a version, in the thread's order.

        With a viewer, only what that cast member may see; without one, also everybody's private messages.
        """

        def read(db: sqlite3.Connection) -> list[ShownMessage]:
            rows.thread(db, thread_id)
            shown = rows.messages(db, thread_id, since_version=since_version)
            return [message for message in shown if viewer is None or message.private_to in {None, viewer}]

        return await self.file.read(read)

    async def post_person(self, thread_id: str, author_id: str, *, text: str, client_id: str) -> PersonMessage:
        """Post as one of the cast and note the event for the bot, in one transaction, once per `client_id`.

        Raises: ConsoleRefused.
        """
        author = _author(author_id)
        _check_text(text, limit=MAX_PERSON_TEXT, empty=False)
        key = _client_key("message", author_id, client_id)
        said: Json = {"thread": thread_id, "text": text}
        now = self._now()

        def write(db: sqlite3.Connection) -> PersonMessage:
            thread = rows.thread(db, thread_id)
            if earlier := rows.earlier_event(db, key, fingerprint=rows.dump(said)):
                return PersonMessage(rows.message(db, earlier[1]), earlier[0])
            message_id = rows.add_message(db, thread, author=author_id, shown=Outbound(text), now=now)
            named = rows.thread(db, thread_id)  # the first message may have given it its title
            more: Json = {"message": message_id, "text": text, "at": now}
            body = rows.event_body(db, "message", thread_=named, author=author, more=more)
            event = rows.add_event(
                db, rows.new_event(body, now), client_key=key, fingerprint=rows.dump(said), message_id=message_id
            )
            return PersonMessage(rows.message(db, message_id), event)

        return await self.file.write(write)

    async def click(
        self,
        thread_id: str,
        message_id: str,
        *,
        author_id: str,
        value: str,
        client_id: str,
        fields: Mapping[str, str] | None = None,
    ) -> PendingEvent:
        """Press a button or send a form as one of the cast, once per `client_id`; returns the event for the bot.

        Any value that the message ever showed is taken: a client that hasn't refreshed clicks on stale cards.
        Raises: ConsoleRefused.
        """
        author = _author(author_id)
        _check_text(value, limit=MAX_BUTTON_VALUE, empty=False)
        key = _client_key("click", author_id, client_id)
        filled = dict(fields or {})
        _check_fields(filled)
        pressed: Json = {"thread": thread_id, "message": message_id, "value": value} | ({"fields": filled} if filled else {})
        now = self._now()

        def write(db: sqlite3.Connection) -> PendingEvent:
            thread = rows.thread(db, thread_id)
            if earlier := rows.earlier_event(db, key, fingerprint=rows.dump(pressed)):
                return earlier[0]
            message = rows.message(db, message_id)
            if message.thread_id != thread_id or message.private_to not in {None, author_id}:
                raise ConsoleRefused("unknown_message")
            if not rows.ever_showed(db, message_id, value=value):
                raise ConsoleRefused("unknown_button")
            more: Json = {"message": message_id, "value": value, "fields": filled, "at": now}
            body = rows.event_body(db, "click", thread_=thread, author=author, more=more)
            return rows.add_event(
                db, rows.new_event(body, now), client_key=key, fingerprint=rows.dump(pressed), message_id=message_id
            )

        return await self.file.write(write)

    async def undelivered(self) -> list[PendingEvent]:
        """Return the events that the bot has not taken yet, in their order."""
        return await self.file.read(rows.undelivered)

    async def delivered(self, event_id: str) -> None:
        """Note that the bot has taken an event; an unknown or noted one changes nothing."""
        await self.file.write(lambda db: rows.mark_delivered(db, event_id))

    async def post_bot(self, delivery_id: str, thread_id: str, *, outbound_json: Json) -> str:
        """Post as the bot, once per delivery id, and return the message's id. Raises: ConsoleRefused."""
        outbound = _outbound(outbound_json)
        _check_id(delivery_id)
        now = self._now()

        def write(db: sqlite3.Connection) -> str:
            thread = rows.thread(db, thread_id)
            if earlier := rows.delivered_as(db, delivery_id):
                if earlier.thread_id != thread_id:
                    raise ConsoleRefused("delivery_id_reused")
                return earlier.id
            message_id = rows.add_message(db, thread, author=BOT, shown=outbound, now=now)
            rows.add_delivery(db, delivery_id, message_id=message_id)
            return message_id

        return await self.file.write(write)

    async def edit_bot(self, delivery_id: str, message_id: str, *, thread_id: str, outbound_json: Json) -> str:
        """Replace all of a message of the bot's; `find` knows the edit's delivery id too. Raises: ConsoleRefused.

        Who may see a message never changes: a private one stays private, a public one refuses private words.
        """
        outbound = _outbound(outbound_json)
        _check_id(delivery_id)
        now = self._now()

        def write(db: sqlite3.Connection) -> str:
            before = rows.message(db, message_id)
            if before.thread_id != thread_id:
                raise ConsoleRefused("unknown_message")
            if before.author != BOT:
                raise ConsoleRefused("not_the_bots")
            if outbound.private_to not in {None, before.private_to}:
                raise ConsoleRefused("would_be_public")
            rows.add_delivery(db, delivery_id, message_id=message_id)
            rows.replace_message(db, before, shown=outbound, now=now)
            return message_id

        return await self.file.write(write)

    async def find(self, delivery_id: str) -> ShownMessage | None:
        """Return the message that a delivery became, or None."""
        return await self.file.read(lambda db: rows.delivered_as(db, delivery_id))

    async def private_note(self, thread_id: str, author_id: str, *, text: str) -> str:
        """Show a note to one cast member and nobody else; each call is a new note. Raises: ConsoleRefused."""
        note = Outbound(text, notice=True, private_to=author_id)
        return await self.post_bot(f"note_{secrets.token_hex(10)}", thread_id, outbound_json=note.to_json())


def _author(author_id: str) -> CastMember:
    member = cast_member(author_id)
    if member is None:
        raise ConsoleRefused("unknown_author")
    return member


def _check_text(text: str, *, limit: int, empty: bool = True) -> None:
    if not empty and not text.strip():
        raise ConsoleRefused("empty")
    if len(text) > limit:
        raise ConsoleRefused("too_long")
    _check_encodes(text)


def _check_fields(fields: Mapping[str, str]) -> None:
    if len(fields) > MAX_CLICK_FIELDS:
        raise ConsoleRefused("too_long")
    for name, text in fields.items():
        _check_text(name, limit=MAX_FIELD_NAME, empty=False)
        _check_text(text, limit=MAX_CLICK_FIELD)


def _check_encodes(text: str) -> None:
    try:
        text.encode("utf-8", errors="strict")
    except UnicodeEncodeError:
        raise ConsoleRefused("not_text") from None


def _check_id(text: str) -> None:
    _check_text(text, limit=MAX_ID, empty=False)


def _client_key(kind: str, author_id: str, client_id: str) -> str:
    _check_id(client_id)
    return f"{kind}:{author_id}:{client_id}"


def _outbound(outbound_json: Json) -> Outbound:
    """Read a message as a real platform would: what it can't read or show it refuses."""
    try:
        outbound = Outbound.from_json(outbound_json)
    except MalformedPayload as error:
        raise ConsoleRefused("bad_message") from error
    if not outbound.text.strip() and outbound.card is None:
        raise ConsoleRefused("empty")
    if outbound.private_to is not None:
        _author(outbound.private_to)
    _check_encodes(outbound.text)
    _check_encodes(rows.dump(outbound.to_json()))
    return outbound
