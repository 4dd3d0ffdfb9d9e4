"""The Slack channel: signed requests in, messages and cards out.

What lives here: verify, parse, send, edit, find, look_up. What does not: Slack's payloads, blocks or calls (beside this file).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from channels.cards import Form
from channels.contract import Capabilities, Channel, Verified
from channels.errors import DeliveryFailed, InvalidSignature, PayloadTooLarge, RateLimited
from channels.events import Author, Click, Ingress, Place
from channels.http import WebhookRequest
from channels.identity import IdentityProvider
from channels.outbound import Delivery, MessageRef
from channels.signing import HmacScheme, NowMs, wall_clock
from channels.slack.address import SlackAddress, is_id, is_timestamp
from channels.slack.api import REFUSED_FORM, UNCLEAR, Answer, Api
from channels.slack.directory import SlackDirectory
from channels.slack.identity import author_of, conversation_link, is_permalink
from channels.slack.modal import modal
from channels.slack.pacing import Pacer
from channels.slack.parsing import parse
from channels.slack.render import MAX_MARKDOWN, Files, Rendered, Shape, render
from channels.slack.search import Search, metadata
from channels.slack.settings import Settings
from channels.slack.target import DIRECT, Target, place, shown_at
from channels.slack.uploads import MAYBE_DONE, Uploads, bounded
from channels.slack.usergroups import UserGroup

log = logging.getLogger("moorings.slack")

MAX_BODY = 1024 * 1024
ATTEMPT_SECONDS = 9.5
"""All calls of one attempt together; what comes later is unclear, and looked for before it is tried again."""

BIG = 8_000
"""Characters: what is longer is drawn in a thread."""

MISS_MS = 10_000
FORM_SECONDS = 2.5
"""A trigger lives for three."""

EPHEMERAL = "ephemeral:"
_LINK = re.compile("https?://", re.IGNORECASE)


class Slack(Channel):
    """A Slack app with one bot token.

    What is not given is read from SLACK_BOT_TOKEN, SLACK_SIGNING_SECRET (comma-separated while one replaces another),
    SLACK_API_URL, SLACK_CLIENT_ID and SLACK_CLIENT_SECRET (both for signing in with Slack), when it is first needed.

    A message is shown once: it carries its delivery id as metadata and is looked for before it is sent again. That needs the
    scopes `channels:history`, `groups:history`, `im:history` and `mpim:history`; without them, and for private remarks, Slack is
    an at-least-once channel.

    A private remark is ephemeral. A private card can't be: nobody could change it later. It goes to the direct message with its
    reader, and its buttons carry the conversation that it is about. A remark with a link goes there as well: it is needed
    for longer than Slack keeps an ephemeral one.
    """

    name: ClassVar[str] = "slack"
    capabilities: ClassVar[Capabilities] = Capabilities(
        buttons=True, forms=True, edit=True, private=True, find=True, max_text=MAX_MARKDOWN
    )

    def __init__(
        self,
        *,
        bot_token: str | None = None,
        signing_secret: str | Sequence[str] | None = None,
        api_url: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        now: NowMs = wall_clock,
    ) -> None:
        self._settings = Settings(
            bot_token=bot_token,
            signing_secret=signing_secret,
            api_url=api_url,
            client_id=client_id,
            client_secret=client_secret,
        )
        self._now = now
        self._scheme = HmacScheme("X-Slack-Signature", "X-Slack-Request-Timestamp", version="v0", now=now)
        self._api: Api | None = None
        self._directory: SlackDirectory | None = None
        self._bot_user = ""
        self._sending: dict[str, tuple[asyncio.Lock, int]] = {}
        self._sent: OrderedDict[str, MessageRef] = OrderedDict()
        self._missed: OrderedDict[str, int] = OrderedDict()
        self._held_back: OrderedDict[str, int] = OrderedDict()
        self._links: OrderedDict[str, str] = OrderedDict()
        self._uploads = Uploads(self._calls)

    def __repr__(self) -> str:
        """Name the channel; its secrets stay out of logs."""
        return f"Slack(api_url={self._settings.url()!r})"

    def problems(self) -> tuple[str, ...]:
        """Say what is missing before this can work, for the check at the start."""
        return self._settings.problems()

    async def verify(self, request: WebhookRequest) -> Verified:
        """Check Slack's signature over the raw bytes."""
        if len(request.body) > MAX_BODY:
            raise PayloadTooLarge(len(request.body), MAX_BODY)
        secrets = self._settings.signing_secrets()
        if not secrets:
            raise InvalidSignature("no signing secret is set")
        return self._scheme.verify(request, secrets)

    def parse(self, verified: Verified) -> Ingress:
        """Read the events of a request."""
        return parse(verified.request)

    async def send(self, delivery: Delivery) -> MessageRef:
        """Post a message, once per delivery id."""
        address = SlackAddress.decode(delivery.address)
        lock, waiting = self._sending.get(delivery.id) or (asyncio.Lock(), 0)
        self._sending[delivery.id] = (lock, waiting + 1)
        try:
            async with lock:
                known = self._sent.get(delivery.id)
                if known is not None and known.address == delivery.address:
                    return known
                return await self._send_once(address, delivery)
        finally:
            lock, waiting = self._sending.pop(delivery.id)
            if waiting > 1:
                self._sending[delivery.id] = (lock, waiting - 1)

    async def _send_once(self, address: SlackAddress, delivery: Delivery) -> MessageRef:
        message = delivery.message
        if message.private_to is not None and message.card is None and not _LINK.search(message.text):
            return self._remember(delivery.id, await self._whispered(address, delivery))
        target = Target.of(address) if message.private_to is None else await self._direct(address, message.private_to)
        return await self._posted(target, delivery)

    async def _posted(self, target: Target, delivery: Delivery) -> MessageRef:
        # An attempt that Slack told to wait has posted nothing, so after nothing but such there is nothing to look for.
        held_back = self._held_back.pop(delivery.id, 0) == delivery.attempt - 1
        if not held_back and (target.origin or not self._just_missed(delivery.id)):
            found = await self._found(delivery.address, delivery.id, target)
            if found is not None:
                return found
        try:
            ref = self._remember(delivery.id, await self._post(target, delivery))
        except RateLimited:
            bounded(self._held_back, delivery.id, delivery.attempt)
            raise
        await self._share(shown_at(ref, target), ref, delivery)
        return ref

    async def edit(self, ref: MessageRef, delivery: Delivery) -> MessageRef:
        """Replace a message. A private remark can't be changed by its id later on, so that is sent anew."""
        target, ts = Target.of(SlackAddress.decode(ref.address)), ref.id
        if DIRECT in ref.id:
            channel, _, ts = ref.id.partition(DIRECT)
            target = Target.direct(channel, SlackAddress.decode(ref.address))
        if not is_timestamp(ts):
            return await self.send(delivery)
        if delivery.message.private_to is not None and not target.origin:
            raise DeliveryFailed("private_edit_of_public", permanent=True)
        files = Files.EARLIER if delivery.message.card else Files.ADDED
        self._calls().grant("chat.update", target.channel)
        drawn = await self._with_files(delivery, files=files, editing=True, origin=target.origin)
        await self._shown("chat.update", {"channel": target.channel, "ts": ts}, drawn)
        await self._share(shown_at(ref, target), ref, delivery)
        return ref

    async def find(self, address: str, delivery_id: str) -> MessageRef | None:
        """Return the message that a delivery to this address became."""
        known = self._sent.get(delivery_id)
        if known is not None and known.address == address:
            return known
        return await self._found(address, delivery_id, Target.of(SlackAddress.decode(address)))

    async def _found(self, address: str, delivery_id: str, target: Target) -> MessageRef | None:
        where = replace(SlackAddress.decode(address), channel=target.channel, thread=target.thread)
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                bot_user = await self._identity()
                ts = await Search(self._calls(), bot_user, self._now() // 1000).find(where, delivery_id)
        except TimeoutError:
            raise DeliveryFailed(UNCLEAR, permanent=False) from None
        except DeliveryFailed as error:
            if error.code not in {"missing_scope", "thread_not_found", "not_allowed_token_type"}:
                raise
            log.warning("can't look for delivery %s (%s): it may be shown twice", delivery_id, error.code)
            ts = None
        if ts is None:
            bounded(self._missed, delivery_id, self._now())
            return None
        ref = self._ref(address, target, ts)
        # Its files may have been waiting for it when the answer was lost.
        there = shown_at(ref, target)
        await self._uploads.share(delivery_id, channel=there.channel, thread=there.thread)
        return self._remember(delivery_id, ref)

    async def open_form(self, click: Click, form: Form, *, question: str) -> None:
        """Open a modal for the one who clicked: its trigger is good once, and for three seconds."""
        view = modal(form, address=click.address, question=question)
        try:
            async with asyncio.timeout(FORM_SECONDS):
                await self._calls().post("views.open", {"trigger_id": click.trigger, "view": view})
        except TimeoutError:
            raise DeliveryFailed(UNCLEAR, permanent=False) from None

    async def look_up(self, address: str, author: Author, place: Place, *, fresh: bool = False) -> tuple[Author, Place]:
        """Ask Slack who somebody is and who can read along; `fresh` takes nothing remembered for longer than 30 s."""
        return await self._people().look_up(SlackAddress.decode(address), author, place, fresh=fresh)

    def identity(self, address: str | None = None) -> IdentityProvider | None:
        """Sign in with Slack, at the workspace of an address."""
        return self._settings.identity(None if address is None else SlackAddress.decode(address).team)

    def author_of(self, claims: Mapping[str, object], tenancy: str | None = None) -> tuple[str, str] | None:
        """Return whom claims of Slack's name."""
        return author_of(claims, tenancy)

    async def email_of(self, address: str, author: Author) -> str | None:
        """Return the confirmed address of somebody who belongs here; None without the scope `users:read.email`."""
        return await self._people().email_of(SlackAddress.decode(address), author)

    async def link_to(self, address: str) -> str | None:
        """Return Slack's permalink of the thread's first message, or a link to the direct message."""
        where = SlackAddress.decode(address)
        if where.thread is None:
            return conversation_link(where, self._settings.url())
        if address not in self._links:
            try:
                query = {"channel": where.channel, "message_ts": where.thread}
                link = (await self._calls().get("chat.getPermalink", query)).get("permalink")
            except (DeliveryFailed, RateLimited) as error:
                log.info("no link to a thread: %s", error)
                return None
            if not is_permalink(link, self._settings.url()):
                return None
            bounded(self._links, address, str(link))
        return self._links[address]

    async def close(self) -> None:
        """Close the connections of this event loop."""
        if self._api is not None:
            await self._api.close()

    async def _post(self, target: Target, delivery: Delivery) -> MessageRef:
        # Before any upload: what has to wait anyway uploads nothing.
        self._calls().grant("chat.postMessage", target.channel)
        drawn = await self._with_files(delivery, files=Files.ADDED, editing=False, origin=target.origin)
        quiet = {"unfurl_links": False, "unfurl_media": False, "metadata": metadata(delivery.id)}
        answer = await self._shown("chat.postMessage", place(target) | quiet, drawn)
        ts = answer.get("ts")
        if not isinstance(ts, str) or not is_timestamp(ts):
            raise DeliveryFailed(UNCLEAR, permanent=False)
        return self._ref(delivery.address, target, ts)

    async def _direct(self, address: SlackAddress, reader: str) -> Target:
        """Find the direct message with somebody. Raises: DeliveryFailed, RateLimited."""
        answer = await self._calls().post("conversations.open", {"users": reader})
        channel = answer.get("channel")
        channel_id = channel.get("id") if isinstance(channel, dict) else None
        if not is_id(channel_id) or not str(channel_id).startswith("D"):
            raise DeliveryFailed(UNCLEAR, permanent=False)
        return Target.direct(str(channel_id), address)

    async def _whispered(self, address: SlackAddress, delivery: Delivery) -> MessageRef:
        """Show a remark to one reader. It can't be looked for, so one that may be there isn't sent again."""
        reader = delivery.message.private_to or ""
        self._calls().grant("chat.postEphemeral", address.channel)
        drawn = await _drawn(delivery, files=Files.REFUSED, editing=False, origin="")
        answer: Answer = {}
        try:
            answer = await self._shown("chat.postEphemeral", place(Target.of(address)) | {"user": reader}, drawn)
        except DeliveryFailed as error:
            if error.code == "user_not_in_channel":
                return await self._posted(await self._direct(address, reader), delivery)
            if error.code not in MAYBE_DONE:
                raise
            log.warning("private delivery %s may not have been shown (%s): it isn't sent again", delivery.id, error.code)
        return MessageRef(self.name, delivery.address, id=f"{EPHEMERAL}{answer.get('message_ts', '')}")

    async def _with_files(self, delivery: Delivery, *, files: Files, editing: bool, origin: str) -> Rendered:
        """Draw a message and upload its files, which are shared once it is shown.

        It goes without them, and says so, if Slack takes none or takes too long.
        """
        drawn = await _drawn(delivery, files=files, editing=editing, origin=origin)
        if await self._uploads.put_up(delivery, drawn.files):
            return drawn
        return await _drawn(delivery, files=Files.REFUSED, editing=editing, origin=origin)

    async def _share(self, there: Target, ref: MessageRef, delivery: Delivery) -> None:
        """Share the files of a message that is shown, or have it say that they are missing."""
        if await self._uploads.share(delivery.id, channel=there.channel, thread=there.thread):
            return
        try:
            self._calls().grant("chat.update", there.channel)
            noted = replace(delivery, id=f"{delivery.id}-n")
            drawn = await _drawn(noted, files=Files.REFUSED, editing=True, origin=there.origin)
            await self._shown("chat.update", {"channel": there.channel, "ts": ref.id.rpartition(DIRECT)[2]}, drawn)
        except (DeliveryFailed, RateLimited):
            log.warning("delivery %s speaks of files that are missing", delivery.id)

    async def _shown(self, method: str, target: dict[str, object], drawn: Rendered) -> Answer:
        """Show a message, its call granted before, in its best form, or in the plainer one if Slack refuses that."""
        channel = str(target["channel"])
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                try:
                    return await self._calls().post(method, target | _body(drawn.best), channel=channel, granted=True)
                except DeliveryFailed as error:
                    if error.code not in REFUSED_FORM:
                        raise
                    log.warning("%s refused a message's form (%s): trying a plainer one", method, error.code)
                return await self._calls().post(method, target | _body(drawn.plain), channel=channel)
        except TimeoutError:
            raise DeliveryFailed(UNCLEAR, permanent=False) from None
        except DeliveryFailed as error:
            raise DeliveryFailed(error.code, permanent=error.permanent or error.code in REFUSED_FORM) from None

    def usergroup(self, group: str) -> UserGroup:
        """Name a user group by its id (`S0123ABCD`), for `Bot(groups={"finance": slack.usergroup(…)})`."""
        return UserGroup(group, self._calls, self._now)

    async def _identity(self) -> str:
        if not self._bot_user:
            self._bot_user = str((await self._calls().post("auth.test", {})).get("user_id") or "")
        return self._bot_user

    def _people(self) -> SlackDirectory:
        if self._directory is None:
            self._directory = SlackDirectory(self._calls(), now=self._now)
        return self._directory

    def _calls(self) -> Api:
        if self._api is None:
            token = self._settings.token()
            if not token:
                raise DeliveryFailed("not_authed", permanent=True)
            self._api = Api(token, self._settings.url(), pacer=Pacer(self._now))
        return self._api

    def _ref(self, address: str, target: Target, ts: str) -> MessageRef:
        return MessageRef(self.name, address, id=f"{target.channel}{DIRECT}{ts}" if target.origin else ts)

    def _remember(self, delivery_id: str, ref: MessageRef) -> MessageRef:
        bounded(self._sent, delivery_id, ref)
        return ref

    def _just_missed(self, delivery_id: str) -> bool:
        """Tell whether it was looked for in vain a moment ago, before this attempt."""
        at = self._missed.pop(delivery_id, None)
        return at is not None and 0 <= self._now() - at < MISS_MS


async def _drawn(delivery: Delivery, *, files: Files, editing: bool, origin: str) -> Rendered:
    """Draw a message, a big one beside the event loop."""
    message = delivery.message
    size = len(message.text) + (message.card.size if message.card else 0)
    if size <= BIG:
        return render(message, tag=delivery.id, files=files, editing=editing, origin=origin)
    return await asyncio.to_thread(render, message, tag=delivery.id, files=files, editing=editing, origin=origin)


def _body(shape: Shape) -> dict[str, object]:
    # An update without `blocks` would keep none of the old ones only if it says so.
    return {"text": shape.text, "blocks": list(shape.blocks)}
