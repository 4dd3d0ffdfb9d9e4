"""Sending what is owed: a lane's items in order, each rendered when it is sent and named once by its delivery id.

What lives here: rendering and the fate of a send. What does not: lanes and their rows (durable_core), platforms (channels/).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bot import formats
from bot.cards import card, readable, status_card
from bot.display import literal, verbatim
from bot.errors import NotReady
from bot.formats import Kind
from bot.leftovers import Leftovers
from bot.principal import author_id
from bot.signins.api import SignInApi
from bot.telling import NOTHING_DONE, TOO_OFTEN, explain_all
from bot.undelivered import tell_session
from channels.contract import Channel, Findable
from channels.errors import ChannelError, DeliveryFailed, RateLimited
from channels.fallback import card_text
from channels.outbound import Delivery, MessageRef, Outbound
from durable_core.errors import NotFound, Stranded, Unavailable
from durable_core.failpoints import hit
from durable_core.model import AnswerReceipt, AnswerStatus, Buried, Lane, OutboxItem, Postponed, Prompt, Sent
from durable_core.retry import RetryPolicy
from durable_core.store import Store

log = logging.getLogger("moorings.egress")

SEND_SECONDS = 12.0
"""One attempt; well under a third of a lane's lease."""
UNREADABLE_MS = 5_000
"""How long what a newer version wrote is left to that version before it is looked at again."""
NO_SIGN_INS = "Nobody can sign in to anything here any more: the app has been changed. Cancel, and ask again."
UNDECIDED_TRIES = 3
"""How often it is waited for answers that a worker still decides, before the others are told."""


class _NotYet(Exception):
    """What is to be told is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """Sends lanes through the app's channels."""

    store: Store
    channels: Mapping[str, Channel]
    owner: str
    retry: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(attempts=20, first=timedelta(seconds=1), cap=timedelta(minutes=10))
    )

    leftovers: Leftovers | None = None
    sign_ins: SignInApi | None = None

    async def send(self, lane: Lane) -> None:
        """Send a lane's items in order, until one has to wait or the lane is empty."""
        channel = self.channels.get(lane.channel)
        began = time.monotonic()
        for place, item in enumerate(lane.items):
            last = place == len(lane.items) - 1
            if time.monotonic() - began > SEND_SECONDS:
                await self.store.release_lane(lane, self.owner)  # before the lane's lease may be over
                return
            if channel is None:
                await self._bury(lane, item, "no_such_channel", release=last)
            elif not await self._one(channel, lane, item, release=last):
                return

    async def _one(self, channel: Channel, lane: Lane, item: OutboxItem, *, release: bool) -> bool:
        """Send one item; False when the lane was given back."""
        try:
            message = await self._render(item)
            hit("send.before")
            async with asyncio.timeout(SEND_SECONDS):
                ref = await self._deliver(channel, lane, item, message)
        except RateLimited as error:
            # nothing was taken, so nothing has to be looked for, and waiting is no failure
            until = await self.store.now() + self.retry.delay_ms(1, retry_after=error.retry_after)
            postponed = Postponed(delivery_id=item.delivery_id, until=until, error=f"rate limited: {error}"[:500], counted=False)
            await self.store.finish(lane, self.owner, postponed)
            return False
        except DeliveryFailed as error:
            if error.permanent:
                log.warning("delivery %s can't be sent: %s", item.delivery_id, error)
                return await self._bury(lane, item, error.code, release=release)
            return await self._postpone(lane, item, str(error))
        except _NotYet:
            return await self._postpone(lane, item, "an answer is not decided yet")
        except Stranded as error:
            return await self._unreadable(lane, item, error, release=release)
        except Unavailable:  # our own store, not the platform: no attempt
            raise
        except (ChannelError, TimeoutError, OSError) as error:
            return await self._postpone(lane, item, f"{type(error).__name__}: {error}")
        except Exception as error:
            log.exception("channel %s failed to send %s", lane.channel, item.delivery_id)
            return await self._postpone(lane, item, f"{type(error).__name__}: {error}")
        hit("send.after")
        await self.store.finish(lane, self.owner, Sent(delivery_id=item.delivery_id, ref=ref.id, release=release))
        hit("send.after_record")
        return not release

    async def _deliver(self, channel: Channel, lane: Lane, item: OutboxItem, message: Outbound) -> MessageRef:
        delivery = Delivery(item.delivery_id, item.attempts + 1, address=lane.address, message=message)
        if item.edit_ref is not None:
            return await channel.edit(MessageRef(lane.channel, lane.address, id=item.edit_ref), delivery)
        if item.attempts and isinstance(channel, Findable):
            found = await channel.find(lane.address, item.delivery_id)
            if found is not None:
                return found
        return await channel.send(delivery)

    async def _unreadable(self, lane: Lane, item: OutboxItem, error: Stranded, *, release: bool) -> bool:
        """Leave to newer code what only that reads; where there is none any more, it must not hold up what comes after it."""
        if self.leftovers is not None and not await self.leftovers.somebody_reads(error.spec_version):
            log.warning("delivery %s can't be sent: %s", item.delivery_id, error)
            return await self._bury(lane, item, "unreadable", release=release)
        until = await self.store.now() + UNREADABLE_MS
        postponed = Postponed(delivery_id=item.delivery_id, until=until, error=str(error)[:500], counted=False)
        await self.store.finish(lane, self.owner, postponed)
        return False

    async def _postpone(self, lane: Lane, item: OutboxItem, error: str) -> bool:
        if self.retry.exhausted(item.attempts + 1):
            return await self._bury(lane, item, f"gave up: {error}", release=True)
        until = await self.store.now() + self.retry.delay_ms(item.attempts + 1)
        await self.store.finish(lane, self.owner, Postponed(delivery_id=item.delivery_id, until=until, error=error[:500]))
        return False

    async def _bury(self, lane: Lane, item: OutboxItem, error: str, *, release: bool) -> bool:
        await tell_session(self.store, item, error)  # before it is buried: told twice is told once, not told is a silent wait
        await self.store.finish(lane, self.owner, Buried(delivery_id=item.delivery_id, error=error[:500], release=release))
        return not release

    async def _render(self, item: OutboxItem) -> Outbound:
        body = formats.read(Kind.OUTBOX, item.body, run_id=item.run_id)
        match body.get("kind"):
            case "card" if item.prompt_id is not None:
                asked = await self._prompts(item.prompt_id)
                drawn = (
                    status_card(asked[0]) if body.get("status") is True else card(asked, results=_results(item.prompt_id, body))
                )
                if body.get("plain"):  # where a card can't be shown
                    return Outbound(verbatim(card_text(drawn)), private_to=_reader(body))
                return Outbound("", drawn, private_to=_reader(body))
            case "reply":
                return Outbound(await self._reply(item, int(body["step"])))
            case "connect":
                return Outbound(await self._link(str(body["prompt_id"])), notice=True, private_to=_reader(body))
            case "answer":
                words = await self._came_of(item, body.get("submissions") or [body["submission_id"]])
                return Outbound(words or NOTHING_DONE, notice=True, private_to=_reader(body))
            case _:
                mentions = tuple(author_id(str(one)) for one in body.get("mentions") or ())
                return Outbound(str(body.get("text", "")), notice=True, private_to=_reader(body), mentions=mentions)

    async def _link(self, prompt_id: str) -> str:
        """Make a link to connect an account: a fresh one, whenever this is sent."""
        if self.sign_ins is None:
            return NO_SIGN_INS
        try:
            return (await self.sign_ins.offer(prompt_id)).words
        except NotReady as error:
            return str(error)

    async def _came_of(self, item: OutboxItem, submissions: Sequence[str]) -> str | None:
        """Say what came of answers; of several that one click gave, once all are decided, if that is soon. Raises: _NotYet."""
        receipts = [await self._receipt(item, str(one), alone=len(submissions) == 1) for one in submissions]
        decided = [receipt for receipt in receipts if receipt is not None]
        if len(decided) < len(receipts) and item.attempts < UNDECIDED_TRIES:
            raise _NotYet
        return explain_all(decided, said=literal)

    async def _receipt(self, item: OutboxItem, submission_id: str, *, alone: bool) -> AnswerReceipt | None:
        """Look what came of an answer; one of several that isn't known comes in a moment, or came too often and left nothing."""
        try:
            return await self.store.interaction_result(submission_id)
        except NotFound:
            if alone:
                raise
            if not item.attempts:
                raise _NotYet from None
            return AnswerReceipt(status=AnswerStatus.REFUSED, submission_id=submission_id, run_id=item.run_id, reason=TOO_OFTEN)

    async def _prompts(self, prompt_id: str) -> list[Prompt]:
        """Read the prompts of a card, in the order in which they were asked. Raises: Stranded."""
        first = await self.store.prompt(prompt_id)
        found = [first]
        if first.group is not None:
            sql = "SELECT prompt_id FROM moor_prompt WHERE run_id = :run AND group_id = :card"
            rows = await self.store.rows(sql, {"run": first.run_id, "card": first.group})
            others = sorted({str(row[0]) for row in rows} - {prompt_id})
            found += [await self.store.prompt(other) for other in others]
            found.sort(key=_asked)
        for prompt in found:
            readable(prompt)
        return found

    async def _reply(self, item: OutboxItem, step: int) -> str:
        content = await self.store.content(item.run_id, [f"step:{step}"])
        output = formats.read(Kind.STEP, content[f"step:{step}"], run_id=item.run_id)
        return str(output["items"][0]["text"])


def _reader(body: Mapping[str, Any]) -> str | None:
    """Who alone may see a message."""
    private = body.get("private_to")
    return author_id(str(private)) if private else None


def _results(prompt_id: str, body: Mapping[str, Any]) -> dict[str, str]:
    """What came of the calls on a card, by their prompts."""
    several = body.get("results") or {}
    return {prompt_id: str(body.get("result", ""))} | {one: str(told.get("result", "")) for one, told in several.items()}


def _asked(prompt: Prompt) -> tuple[int, list[tuple[int, str]]]:
    """Order prompts as they were asked: a call's id is made of numbers."""
    parts = (prompt.call_id or "").split(".")
    return prompt.created_seq, [(int(part) if part.isdecimal() else 0, part) for part in parts]
