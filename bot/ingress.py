"""What channels hear: verified, parsed, admitted in one transaction, then acknowledged. Nothing slow before the answer.

What lives here: webhook in, receipt out. What does not: turns, who may speak (decided after admission), platforms.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from pydantic import JsonValue

from bot.answers import Answers, Way
from bot.buttons import FREE_TEXT, Pressed, read_button
from bot.cards import form_of, prompt_body
from bot.leftovers import Dormant, Leftovers
from bot.participants import starter
from bot.principal import Principal, name_of, principal_id
from bot.telling import ELSEWHERE, REASONS, explain
from bot.turn.state import Limits, MessageBody, TurnPolicy, body_to_json
from channels.cards import Form
from channels.contract import Channel, Forms
from channels.errors import ChannelError
from channels.events import Author, Click, Event, Ignored, Message
from channels.http import WebhookRequest, WebhookResponse
from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.errors import Conflict, ContentGone, NotFound, Stranded, TooLarge, Unstorable
from durable_core.ids import new_id
from durable_core.model import (
    Admission,
    AnswerReceipt,
    CommandKind,
    NewRun,
    PromptOutcome,
    Receipt,
    Run,
    ToAddress,
)
from durable_core.store import Store

log = logging.getLogger("moorings.ingress")


@dataclass(frozen=True, slots=True)
class ClickResult:
    """What became of a click, for the person who clicked."""

    status: str
    reason: str | None = None
    receipt: AnswerReceipt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one request led to; ``response`` goes back to the platform once all is committed."""

    response: WebhookResponse
    receipts: tuple[Receipt, ...] = ()
    clicks: tuple[ClickResult, ...] = ()
    refused: str = ""
    """Why a message was not taken, for the person who wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingress:
    """Takes requests of the app's channels."""

    store: Store
    channels: Mapping[str, Channel]
    agent_of: Mapping[str, str]
    """Which agent answers on which channel."""
    answering: frozenset[str] = frozenset()
    """Channels whose clicks are answered by the caller, in the same breath; others are told over the channel."""
    answers: Answers
    deployment: str
    lifetime_ms: int | None
    keep_ms: int | None = None
    """How long after its end a session's content is kept; None for ever."""
    message_bytes: int = Limits().message_bytes
    leftovers: Leftovers | None = None
    counts: Counter[str] = field(default_factory=Counter)
    """Requests and events by what became of them."""
    opening: set[asyncio.Task[None]] = field(default_factory=set)
    """Forms that are being opened, after the answer to the click."""

    async def receive(self, name: str, request: WebhookRequest) -> Taken:
        """Verify, parse, admit; the response may be sent once this returns. Raises: Unavailable."""
        channel = self.channels.get(name)
        if channel is None:
            return Taken(response=WebhookResponse(404, b"no such channel"))
        try:
            parsed = channel.parse(await channel.verify(request))
        except ChannelError as error:
            self.counts[type(error).__name__] += 1
            log.info("%s: refused a request: %s", name, error)
            return Taken(response=WebhookResponse(error.status, error.public.encode()))
        receipts: list[Receipt] = []
        clicks: list[ClickResult] = []
        try:
            for event in parsed.events:
                await self._event(name, event, receipts, clicks)
        except Dormant as error:
            self.counts["dormant"] += 1
            log.warning("%s: a message was refused: %s", name, error.message)
            answer = WebhookResponse(error.status, error.message.encode())
            return Taken(response=answer, receipts=tuple(receipts), refused=error.message)
        return Taken(response=parsed.response or WebhookResponse(), receipts=tuple(receipts), clicks=tuple(clicks))

    async def _event(self, channel: str, event: Event, receipts: list[Receipt], clicks: list[ClickResult]) -> None:
        try:
            _check(event)
            match event:
                case Message():
                    run = await self.store.run_at(channel, event.address) if event.text.strip() else None
                    if await self._routed(channel, event, run):
                        receipts.append(await self._message(channel, event, await self._predecessor(run)))
                        self.counts["message"] += 1
                    else:
                        self.counts["not_routed"] += 1
                case Click():
                    clicks += await self._click(channel, event)
                    self.counts["click"] += 1
                case Ignored(reason=reason):
                    self.counts["not_routed"] += 1
                    log.debug("%s: left aside: %s", channel, reason)
        except (TooLarge, Unstorable) as error:
            # for good, so the platform must not send it again; the person is told where the channel can
            self.counts["unstorable"] += 1
            log.warning("%s: an event can't be stored: %s", channel, error)

    async def _predecessor(self, run: Run | None) -> Run | None:
        """The session that a message ends, since no version that runs can go on with it. Raises: Dormant."""
        if run is None or self.leftovers is None:
            return None
        await self.leftovers.refuse_dormant(run)
        return run if await self.leftovers.end_stranded(run) else None

    async def _routed(self, channel: str, message: Message, run: Run | None) -> bool:
        """Whether a message is for the bot: it names it, or whoever it first talked with here goes on.

        That is who was first let in: one who was refused doesn't hold the thread against those who may speak.
        """
        if not message.text.strip():
            return False
        if message.mention:
            return True
        if run is None:
            return False
        return principal_id(channel, message.author) == (await starter(self.store, run.run_id) or run.creator)

    async def _message(self, channel: str, message: Message, predecessor: Run | None) -> Receipt:
        body = MessageBody(
            text=message.text,
            author=principal(channel, message.author),
            place=message.place,
            channel=channel,
            address=message.address,
            turn_policy=TurnPolicy.STEER,
        )
        encoded = codec.encode(body_to_json(body), limit=self.message_bytes)
        header: dict[str, JsonValue] = {"channel": channel}
        if predecessor is not None:
            header["predecessor"] = {
                "session_id": predecessor.run_id,
                "spec_version": predecessor.spec_version,
                "deployment": predecessor.deployment,
            }
        new = NewRun(
            run_id=new_id("ses"),
            name=self.agent_of[channel],
            creator=body.author.id,
            header=codec.encode(header),
            deployment=self.deployment,
            lifetime_ms=self.lifetime_ms,
            keep_ms=self.keep_ms,
        )
        return await self.store.admit(
            Admission(
                source=channel,
                key=message.key,
                digest=payload_digest(encoded),
                on_conflict="merge",
                submission_id=new_id("sub"),
                target=ToAddress(channel=channel, address=message.address, new=new),
                kind=CommandKind.MESSAGE,
                body=encoded,
                principal=body.author.id,
            )
        )

    # ── clicks ──

    async def _click(self, channel: str, click: Click) -> list[ClickResult]:
        pressed = read_button(click.value)
        if pressed is None:
            return [ClickResult("refused", "This button is not known here.")]
        try:
            if pressed.opens_form:
                return [await self._form(channel, click, pressed)]
            if pressed.for_all:
                return await self._for_all(channel, click, pressed)
            return [await self._answer(channel, click, pressed)]
        except (NotFound, ContentGone):
            return [ClickResult("refused", "This request is no longer known. Ask again.")]
        except Stranded:
            return [
                ClickResult(
                    "refused", "This was asked by a newer version, which has to take the answer. Click again in a moment."
                )
            ]
        except Conflict:
            return [ClickResult("refused", "This click was already used for something else.")]

    async def _answer(self, channel: str, click: Click, pressed: Pressed, *, together: Sequence[str] = ()) -> ClickResult:
        at = (channel, click.address)
        receipt = await self.answers.admit(
            pressed.prompt_id,
            pressed.option_id,
            principal=principal(channel, click.author),
            place=click.place,
            way=Way(
                via="button",
                source=channel,
                key=click.key,
                at=at,
                tell_at=None if channel in self.answering else at,
                submission_id=_submission(channel, click.key) if together else None,
                together=tuple(together),
            ),
            fields=click.fields,
        )
        return ClickResult(receipt.status.value, explain(receipt), receipt)

    async def _for_all(self, channel: str, click: Click, pressed: Pressed) -> list[ClickResult]:
        """Answer every open approval of a card, each by itself: whoever may answer one need not be allowed to answer another.

        Each has a key of its own, made of the click's: the same click again is the same answers.
        """
        leader = await self.store.prompt(pressed.prompt_id)
        group = leader.group or leader.prompt_id
        outcome = _ALL.get(pressed.option_id)
        if outcome is None:
            return [ClickResult("refused", "This button is not known here.")]
        members = [
            one
            for one in await self.store.open_prompts(leader.run_id)
            if one.kind == "approval" and group in (one.group, one.prompt_id)
        ]
        answers: list[tuple[Pressed, Click]] = []
        for member in members or [leader]:  # where none is left open, whoever settled the first is named
            options = (option["id"] for option in prompt_body(member)["options"] if option["outcome"] == outcome)
            one = replace(click, key=f"{click.key}#{member.prompt_id}", fields={})
            answers.append((Pressed(member.prompt_id, next(options, pressed.option_id)), one))
        together = [_submission(channel, one.key) for _, one in answers]
        return [await self._answer(channel, one, answer, together=together) for answer, one in answers]

    async def _form(self, channel: str, click: Click, pressed: Pressed) -> ClickResult:
        """Open a form once the click is answered; for a question that is settled, say so instead."""
        prompt = await self.store.prompt(pressed.prompt_id)
        if prompt.outcome is not None:
            words = pressed.option_id == FREE_TEXT  # nothing can be settled any more, so what is in it means nothing
            option_id, fields = ("", {"text": "…"}) if words else (pressed.option_id, {})
            return await self._answer(channel, replace(click, fields=fields), Pressed(prompt.prompt_id, option_id))
        if not await self.answers.put_at(prompt, (channel, click.address)):
            return ClickResult("refused", REASONS[ELSEWHERE])
        opener, form = self.channels[channel], form_of(prompt, pressed.option_id)
        if form is None or not click.trigger or not isinstance(opener, Forms):
            return ClickResult("refused", "This button is not known here.")
        task = asyncio.create_task(_open(opener, click, form, str(prompt_body(prompt)["text"])))
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)
        self.counts["form"] += 1
        return ClickResult("form")


def _submission(source: str, key: str) -> str:
    """Name one of the answers that a click for all gives, the same whenever the click comes again."""
    return f"sub_{sha256(f'{source} {key}'.encode()).hexdigest()[:26]}"


_ALL = {"approve": PromptOutcome.APPROVED.value, "deny": PromptOutcome.DENIED.value}


async def _open(opener: Forms, click: Click, form: Form, question: str) -> None:
    """Open a form, at best: one that doesn't open loses nothing, the button is still there."""
    try:
        await opener.open_form(click, form, question=question)
    except ChannelError as error:
        log.info("a form was not opened: %s", error)
    except Exception:
        log.exception("a form was not opened")


def _check(event: Event) -> None:
    """Refuse what no column of a database takes. Raises: Unstorable."""
    if isinstance(event, Ignored):
        return
    texts = {"address": event.address, "key": event.key, "author.id": event.author.id, "author.name": event.author.name}
    if isinstance(event, Click):
        texts |= {"value": event.value, **{f"fields.{name}": f"{name}{text}" for name, text in event.fields.items()}}
    for path, text in texts.items():
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text):
            raise Unstorable(path, "str with NUL or a lone surrogate")


def principal(channel: str, author: Author) -> Principal:
    """The identity of a platform's author over all channels."""
    return Principal(principal_id(channel, author), name_of(author), author.standing, author.roles, channel)
