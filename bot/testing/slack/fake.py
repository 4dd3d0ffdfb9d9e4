"""The simulated Slack as a test holds it.

What lives here: `FakeSlack`: people who speak and click, what they see, and what goes wrong. What does not: the API's rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeVar

from bot.testing.slack import views
from bot.testing.slack.cast import ALL_EVENTS, ALL_SCOPES, EVENT_OF, open_channel, settle_in
from bot.testing.slack.faults import Fault, Faults
from bot.testing.slack.openid import OpenId
from bot.testing.slack.payloads import Payloads, Twin, can_speak
from bot.testing.slack.sender import ACK_SECONDS, Posting, Said, Sender, as_form, as_json
from bot.testing.slack.server import ApiCall, Server
from bot.testing.slack.tickets import Tickets
from bot.testing.slack.values import Button, Channel, ChannelKind, Choice, Json, Message, Modal, Post, User, UserKind, Workspace
from bot.testing.slack.world import Happening, World
from channels.signing import wall_clock
from durable_core.clock import ManualClock

T = TypeVar("T")

START: Final = 1_767_225_600_000
"""Where a fake's clock begins: 2026-01-01, 00:00 UTC."""


class FakeSlack:
    """A strict Slack on a loopback port: what the platform refuses it refuses, and it says no more than the platform does.

    Everything it makes up follows from `seed`. Its clock is manual: `advance` brings retries and expiry. There are alice, bob
    and farah (members), gus and mia (a single- and a multi-channel guest), otto (from another organisation), robo (a bot) and
    dora (deleted); channels general, private, shared (with otto), archived, and elsewhere (without the bot).

    ```python
    async with FakeSlack() as slack:
        channel = Slack(bot_token=slack.token, signing_secret=slack.signing_secret, api_url=slack.api_url)
        async with running(Bot(agents=[agent], channels=[channel]), slack=slack):
            asked = await slack.mention("alice", "general", "refund 20 for ch_1042")
            card = await slack.until(lambda: slack.card(asked))
            await slack.click(card, "Approve", "alice")
            await slack.until(lambda: "Approved by Alice" in slack.replies(asked)[0].words)
            (reply,) = await slack.until(lambda: slack.replies(asked)[1:])
            assert "Refunded" in reply.words
    ```
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        clock: ManualClock | None = None,
        scopes: Iterable[str] = ALL_SCOPES,
        events: Iterable[str] = ALL_EVENTS,
        wall: Callable[[], int] = wall_clock,
        ack_seconds: float = ACK_SECONDS,
    ) -> None:
        self.clock = clock or ManualClock(START)
        self.world = World(seed=seed, clock=self.clock)
        self.events = frozenset(events)
        self.signing_secret = self.world.hex(32)
        self.app_id = self.world.new_id("A")
        self.faults = Faults()
        self._scopes = frozenset(scopes)
        self._tickets = Tickets(self.world)
        self.openid = OpenId.of(self.world, wall=wall)
        self._server = Server(self.world, self.faults, self._tickets, self.openid)
        self._sender = Sender(self.world, secret=self.signing_secret, wall=wall, ack_seconds=ack_seconds)
        self._payloads = Payloads(self.world, self._tickets, verification_token=self.world.word(24))
        self.world.on_bot = self._echo
        self.workspace = self.add_workspace("harbour")
        settle_in(self.world, self.workspace)

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        await self._server.start()
        await self._sender.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Listen and post no more."""
        await self._sender.stop()
        await self._server.stop()

    # ── what an app is told at its installation ──

    @property
    def api_url(self) -> str:
        """The base of the Web API, with a slash at its end."""
        return f"{self._server.base}/api/"

    @property
    def token(self) -> str:
        """The bot token of the first workspace."""
        return self.workspace.token

    @property
    def events_url(self) -> str:
        """Where events, interactions and commands are posted."""
        return self._sender.url

    @events_url.setter
    def events_url(self, url: str) -> None:
        self._sender.url = url

    def sign(self, body: bytes) -> dict[str, str]:
        """Return the headers that prove these bytes, now."""
        return self._sender.sign(body)

    # ── who and what there is ──

    def add_workspace(self, name: str, *, enterprise_id: str | None = None) -> Workspace:
        """Install the app in one more workspace."""
        return self.world.add_workspace(name, app_id=self.app_id, scopes=self._scopes, enterprise_id=enterprise_id)

    def add_user(self, name: str, kind: UserKind = UserKind.MEMBER, *, team: str | None = None) -> User:
        """Add somebody; `team` is their home, the first workspace unless told."""
        home = team or (self.world.new_id("T") if kind is UserKind.STRANGER else self.workspace.id)
        return self.world.add_user(name, team_id=home, kind=kind)

    def add_channel(
        self,
        name: str,
        *members: str,
        kind: ChannelKind = ChannelKind.PUBLIC,
        workspace: Workspace | None = None,
        with_bot: bool = True,
    ) -> Channel:
        """Open a channel; people from elsewhere make it a shared one."""
        home = workspace or self.workspace
        people = [self.user(member) for member in members]
        return open_channel(self.world, home, name, people, kind=kind, with_bot=with_bot)

    def add_usergroup(self, *members: str) -> str:
        """Add a user group of these people and return its id."""
        group = self.world.new_id("S")
        self.world.usergroups[group] = [self.user(member).id for member in members]
        return group

    def user(self, name: str) -> User:
        """Find somebody by name or id. Raises: LookupError."""
        for user in self.world.users.values():
            if name in {user.id, user.name}:
                return user
        raise LookupError(f"nobody here is {name!r}")

    def channel(self, name: str) -> Channel:
        """Find a channel by name or id. Raises: LookupError."""
        for channel in self.world.channels.values():
            if name in {channel.id, channel.name}:
                return channel
        raise LookupError(f"no channel is {name!r}")

    # ── what people do ──

    async def mention(
        self,
        user: str,
        channel: str,
        text: str,
        thread: Said | Message | str | None = None,
        *,
        first: Twin = "message",
        lose_first: bool = False,
        copies: int = 1,
    ) -> Said:
        """Have somebody write to the bot in a channel.

        The app is told twice, with two event ids and one `ts`: as `message` and as `app_mention`; `first` names the one that
        goes first. With `lose_first` only the retries arrive; `copies` repeats every posting, its event id included.
        """
        place = self.channel(channel)
        bot = f"<@{self._home(place).bot_user}>"
        post = self._write(user, place, text if bot in text else f"{bot} {text}", thread)
        second: Twin = "app_mention" if first == "message" else "message"
        twins: list[Twin] = ["message"] if place.kind is ChannelKind.IM else [first, second]
        return await self._tell(post, place, twins, lose_first=lose_first, copies=copies)

    async def message(
        self,
        user: str,
        channel: str,
        text: str,
        thread: Said | Message | str | None = None,
        *,
        lose_first: bool = False,
        copies: int = 1,
    ) -> Said:
        """Have somebody write in a channel without naming the bot."""
        place = self.channel(channel)
        post = self._write(user, place, text, thread)
        return await self._tell(post, place, ["message"], lose_first=lose_first, copies=copies)

    async def direct(self, user: str, text: str, thread: Said | Message | str | None = None, *, lose_first: bool = False) -> Said:
        """Have somebody write to the bot alone."""
        place, _ = self.world.direct(self.workspace, [self.user(user).id])
        return await self.message(user, place.id, text, thread, lose_first=lose_first)

    async def edit(self, said: Said, text: str) -> Posting | None:
        """Have the author change what they wrote; None where the app isn't told."""
        place, post = self.channel(said.channel), self.world.posts[said.channel][said.ts]
        self.world.change(post, text=text, blocks=self._payloads.words(text), metadata=None)
        if EVENT_OF[place.kind] not in self.events or self._home(place).bot_user not in place.members:
            return None
        return await self._sender.post(self._event(place, self._payloads.happened("changed", post, place)))

    async def click(self, message: Message, button: str, user: str) -> Posting:
        """Have somebody press a button or choose an option of a message as they saw it, by its label or value.

        Raises: LookupError.
        """
        person, place = self.user(user), self.channel(message.channel)
        post = self._post_of(message)
        if person.id not in place.members or post.only_for not in {None, person.id}:
            raise LookupError(f"{user} doesn't see that message")
        offered: tuple[Button | Choice, ...] = (*message.buttons, *message.choices)
        chosen = [one for one in offered if one.label == button] or [one for one in offered if one.value == button]
        if not chosen:
            raise LookupError(f"no button {button!r} on it, but {[one.label for one in offered]}")
        payload = self._payloads.clicked(self._home(place), person, post, chosen[0])
        form = {"payload": json.dumps(payload)}
        return await self._sender.post(as_form(payload["actions"][0]["action_ts"], form, payload))

    def modal(self, user: str) -> Modal | None:
        """Return the form that is open for somebody, the one on top."""
        person = self.user(user).id
        return next((modal for modal in reversed(self.world.modals) if modal.user == person), None)

    async def submit(self, modal: Modal, fields: Mapping[str, str] = MappingProxyType({})) -> Posting:
        """Have somebody send a form that is open, with these values by label; the app's answer closes it or keeps it.

        Raises: LookupError (no such field, or not open), ValueError (Slack's client would not send it).
        """
        if modal not in self.world.modals:
            raise LookupError("that form is not open")
        state, home = views.filled(modal, fields), self.world.workspaces[modal.workspace]
        payload = self._payloads.submitted(home, self.user(modal.user), modal, state)
        posting = await self._sender.post(as_form(payload["trigger_id"], {"payload": json.dumps(payload)}, payload))
        views.answered(self.world, modal, ok=posting.ok, body=posting.attempts[-1].body)
        return posting

    async def repeat(self, posting: Posting) -> Posting:
        """Post the same bytes once more, signed anew."""
        copy = Posting(posting.id, posting.body, content_type=posting.content_type, payload=posting.payload, retried=False)
        return await self._sender.post(copy)

    async def command(self, user: str, channel: str, command: str, text: str = "") -> Posting:
        """Have somebody type a slash command; what the app answers at once is shown to them."""
        person, place = self.user(user), self.channel(channel)
        form = self._payloads.command(self._home(place), person, place, command=command, text=text)
        posting = await self._sender.post(as_form(form["trigger_id"], form, dict(form)))
        body = posting.attempts[-1].body
        if posting.ok and body:
            shown = json.loads(body) if body.startswith(b"{") else {"text": body.decode()}
            self._tickets.answer_command(form["response_url"], shown)
        return posting

    async def handshake(self) -> bool:
        """Ask the app to prove that it is there, as Slack does when a request URL is set."""
        challenge = self.world.word(52)
        body = {"token": self.world.word(24), "challenge": challenge, "type": "url_verification"}
        posting = await self._sender.post(as_json(challenge, body, retried=False))
        answer = posting.attempts[-1].body.decode()
        return posting.ok and challenge in {answer, *(json.loads(answer).values() if answer.startswith("{") else ())}

    # ── what goes wrong, and time ──

    def fail(self, method: str, fault: Fault, *, times: int = 1, when: Callable[[Json], bool] | None = None) -> None:
        """Have the next `times` calls of a method ("*": any) meet a fault; `when` chooses among them by their arguments."""
        self.faults.plan(method, fault, times=times, when=when)

    async def advance(self, by: timedelta) -> None:
        """Let time pass: retries that come due are posted, triggers and response URLs expire."""
        await self._sender.advance(by)

    # ── what a test sees ──

    @property
    def calls(self) -> list[ApiCall]:
        """Every call of the Web API, in order; `response_url` is the method of a posted response."""
        return self._server.calls

    @property
    def postings(self) -> list[Posting]:
        """Everything that was posted to the app, in order."""
        return self._sender.postings

    def made(self, method: str) -> list[ApiCall]:
        """Return the calls of one method."""
        return [call for call in self.calls if call.method == method]

    def thread(self, channel: str, ts: str) -> list[Message]:
        """Return a thread as everybody in the channel sees it: the root, then the replies."""
        place = self.channel(channel)
        root = self.world.posts[place.id].get(ts)
        posts = [*([root] if root is not None else []), *self.world.replies(place.id, ts)]
        return [self.world.view(post) for post in posts]

    def replies(self, said: Said) -> list[Message]:
        """Return what the bot wrote in the thread of somebody's words."""
        return [message for message in self.thread(said.channel, said.thread) if message.from_bot]

    def card(self, said: Said) -> Message | None:
        """Return the newest message in the thread that has buttons, or None."""
        return next((message for message in reversed(self.thread(said.channel, said.thread)) if message.buttons), None)

    def visible_to(self, user: str, channel: str | None = None) -> list[Message]:
        """Return all that somebody sees, what is shown to them alone included, oldest first."""
        person = self.user(user).id
        places = [place for place in self.world.channels.values() if person in place.members]
        if channel is not None:
            places = [place for place in places if place is self.channel(channel)]
        ids = {place.id for place in places}
        posts = [post for place in places for post in self.world.posts[place.id].values()]
        posts += [post for post in self.world.whispers if post.only_for == person and post.channel in ids]
        return [self.world.view(post) for post in sorted(posts, key=lambda post: post.ts)]

    def whispers(self, user: str) -> list[Message]:
        """Return what is shown to somebody alone."""
        return [message for message in self.visible_to(user) if message.ephemeral]

    async def until(self, look: Callable[[], T | None], *, seconds: float = 10.0) -> T:
        """Wait until `look` returns something true, and return it. Raises: StillWaiting."""
        return await self.world.changes.until(look, seconds=seconds, story=self._story)

    async def settled(self) -> None:
        """Wait until the app has heard of everything that it did itself."""
        await self._sender.settled()

    def _story(self) -> str:
        calls = [f"  {call.method} {call.status} {call.answer}" for call in self.calls[-8:]]
        posted = [f"  {one.id} {[attempt.status or attempt.failure for attempt in one.attempts]}" for one in self.postings[-8:]]
        return "\n".join(["the app called:", *(calls or ["  nothing"]), "the app was told:", *(posted or ["  nothing"])])

    # ── how it is done ──

    def _home(self, channel: Channel) -> Workspace:
        return self.world.workspaces[channel.team_id]

    def _write(self, user: str, channel: Channel, text: str, thread: Said | Message | str | None) -> Post:
        person = self.user(user)
        if person.id not in channel.members or channel.archived or not can_speak(person):
            raise LookupError(f"{user} can't write in {channel.name or channel.id}")
        bot_id = f"B{person.id[1:]}" if person.kind is UserKind.BOT else None
        return self.world.add(
            Post(
                channel.id,
                self.world.next_ts(),
                user=person.id,
                text=text,
                bot_id=bot_id,
                app_id=f"A{person.id[1:]}" if bot_id else None,
                blocks=self._payloads.words(text),
                thread_ts=thread if isinstance(thread, str) or thread is None else thread.thread,
                client_msg_id=None if bot_id else self.world.new_uuid(),
                team=person.team_id,
            )
        )

    async def _tell(self, post: Post, channel: Channel, twins: list[Twin], *, lose_first: bool, copies: int) -> Said:
        postings: list[Posting] = []
        for twin in twins if self._home(channel).bot_user in channel.members else ():
            if (EVENT_OF[channel.kind] if twin == "message" else twin) in self.events:
                event = self._event(channel, self._payloads.said(post, channel, as_=twin))
                for _ in range(copies):
                    copy = Posting(event.id, event.body, content_type=event.content_type, payload=event.payload, retried=True)
                    postings.append(await self._sender.post(copy, lose_first=lose_first))
        return Said(post.channel, post.ts, thread=post.thread_ts or post.ts, postings=tuple(postings))

    def _event(self, channel: Channel, event: Json) -> Posting:
        payload = self._payloads.callback(self._home(channel), channel, event)
        return as_json(payload["event_id"], payload, retried=True)

    def _echo(self, what: Happening, post: Post) -> None:
        """An app that listens to a channel hears of its own messages too."""
        channel = self.world.channels[post.channel]
        if self._sender.url and EVENT_OF[channel.kind] in self.events:
            self._sender.post_soon(self._event(channel, self._payloads.happened(what, post, channel)))

    def _post_of(self, message: Message) -> Post:
        whispers = [post for post in self.world.whispers if (post.channel, post.ts) == (message.channel, message.ts)]
        post = whispers[0] if whispers else self.world.posts[message.channel].get(message.ts)
        if post is None:
            raise LookupError("that message is gone")
        return post
