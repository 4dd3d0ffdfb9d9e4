"""The state of the simulated Slack: who and what is there, and the changes that calls and people make.

What lives here: making and finding things, ids and times. What does not: permissions and formats of the API (methods), events.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from bot.testing.slack.links import links_of
from bot.testing.slack.values import Channel, ChannelKind, Json, Message, Modal, Post, User, UserKind, Workspace, buttons, choices
from bot.testing.waiting import Changes
from durable_core.clock import ManualClock

_ID_ALPHABET = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_WORD = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

Happening: TypeAlias = Literal["posted", "changed", "deleted"]


class World:
    """Everything there is, by id. Times come from a manual clock, chance from a seed."""

    def __init__(self, *, seed: int, clock: ManualClock) -> None:
        self.clock = clock
        self.changes = Changes()
        self.workspaces: dict[str, Workspace] = {}
        self.users: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self.usergroups: dict[str, list[str]] = {}
        """Ids of people, by the group's id."""
        self.posts: dict[str, dict[str, Post]] = {}
        self.whispers: list[Post] = []
        """Ephemeral messages: they are nowhere else."""
        self.files: dict[str, Json] = {}
        self.unfurled: list[str] = []
        """Addresses that Slack opened for a preview: posts that didn't ask for none had links to them."""
        self.modals: list[Modal] = []
        """What is open, the one on top last."""
        self.on_bot: Callable[[Happening, Post], None] = lambda _what, _post: None
        """Told what an app does; a subscribed app hears of its own posts."""
        self._random = random.Random(seed)  # noqa: S311 - a test repeats itself
        self._ticks = 0

    # ── ids and times ──

    def new_id(self, prefix: str) -> str:
        """Make an id of Slack's form."""
        return prefix + "".join(self._random.choices(_ID_ALPHABET, k=10))

    def word(self, length: int) -> str:
        """Make a secret of letters and digits."""
        return "".join(self._random.choices(_WORD, k=length))

    def digits(self, length: int) -> str:
        """Make a number that is part of an id."""
        return "".join(self._random.choices("123456789", k=length))

    def hex(self, length: int) -> str:
        """Make a secret of hex digits."""
        return "".join(self._random.choices("0123456789abcdef", k=length))

    def new_uuid(self) -> str:
        """Make a client_msg_id."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def next_ts(self) -> str:
        """Make a timestamp that is later than every other one: a key, never a number."""
        self._ticks += 1
        return f"{self.clock.now_ms // 1000}.{self._ticks:06d}"

    # ── making ──

    def add_workspace(self, name: str, *, app_id: str, scopes: Iterable[str], enterprise_id: str | None) -> Workspace:
        """Install the app in a new workspace."""
        workspace = Workspace(
            self.new_id("T"),
            name,
            token=f"xoxb-{self.digits(12)}-{self.digits(13)}-{self.word(24)}",
            scopes=frozenset(scopes),
            bot_user=self.new_id("U"),
            bot_id=self.new_id("B"),
            app_id=app_id,
            enterprise_id=enterprise_id,
        )
        self.workspaces[workspace.id] = workspace
        bot = User(workspace.bot_user, "moorings", team_id=workspace.id, kind=UserKind.BOT, enterprise_id=enterprise_id)
        self.users[bot.id] = bot
        return workspace

    def add_user(self, name: str, *, team_id: str, kind: UserKind = UserKind.MEMBER, enterprise_id: str | None = None) -> User:
        """Add somebody; the name of a person in one team is theirs alone."""
        user = User(self.new_id("U"), name, team_id=team_id, kind=kind, enterprise_id=enterprise_id)
        self.users[user.id] = user
        return user

    def add_channel(self, name: str, *, team_id: str, kind: ChannelKind, members: Iterable[str], creator: str) -> Channel:
        """Open a conversation."""
        prefix = "D" if kind is ChannelKind.IM else "C"
        channel = Channel(
            self.new_id(prefix),
            name,
            team_id=team_id,
            kind=kind,
            created=self.clock.now_ms // 1000,
            creator=creator,
            members=set(members),
        )
        self.channels[channel.id] = channel
        self.posts[channel.id] = {}
        return channel

    def direct(self, workspace: Workspace, people: Iterable[str]) -> tuple[Channel, bool]:
        """Find or open the conversation of the bot with these people; whether it was there already."""
        members = {workspace.bot_user, *people}
        kind = ChannelKind.IM if len(members) <= 2 else ChannelKind.MPIM
        for channel in self.channels.values():
            if channel.kind is kind and channel.members == members and channel.team_id == workspace.id:
                return channel, True
        names = "--".join(sorted(self.users[member].name for member in members))
        name = "" if kind is ChannelKind.IM else f"mpdm-{names}-1"
        opened = self.add_channel(name, team_id=workspace.id, kind=kind, members=members, creator=workspace.bot_user)
        return opened, False

    # ── posts ──

    def add(self, post: Post) -> Post:
        """Show a message."""
        for block in post.blocks:
            block.setdefault("block_id", self.word(5))
            self._name_actions(block)
        if post.only_for is None:
            self.posts[post.channel][post.ts] = post
        else:
            self.whispers.append(post)
        self.changes.tell()
        self._tell_app("posted", post)
        return post

    def change(self, post: Post, *, text: str, blocks: list[Json], metadata: Json | None) -> None:
        """Replace what a message says."""
        for block in blocks:
            block.setdefault("block_id", self.word(5))
            self._name_actions(block)
        post.text, post.blocks = text, blocks
        post.metadata = metadata if metadata is not None else post.metadata
        if post.only_for is None:
            post.edited = (post.user, self.next_ts())
        self.changes.tell()
        self._tell_app("changed", post)

    def remove(self, post: Post) -> None:
        """Take a message away."""
        if post.only_for is None:
            del self.posts[post.channel][post.ts]
            self._tell_app("deleted", post)
        else:
            self.whispers.remove(post)
        self.changes.tell()

    def _tell_app(self, what: Happening, post: Post) -> None:
        ours = any(workspace.bot_id == post.bot_id for workspace in self.workspaces.values())
        if ours and post.only_for is None:
            self.on_bot(what, post)

    def _name_actions(self, block: Json) -> None:
        elements = block.get("elements", []) if block["type"] == "actions" else [block.get("accessory", {})]
        for element in elements:
            if "type" in element and element["type"] != "image":
                element.setdefault("action_id", self.word(5))

    def replies(self, channel: str, thread_ts: str) -> list[Post]:
        """Return the replies of a thread, without its root, oldest first."""
        return [post for post in self.posts[channel].values() if post.thread_ts == thread_ts and post.ts != thread_ts]

    def view(self, post: Post) -> Message:
        """Show a message as it stands."""
        return Message(
            post.channel,
            post.ts,
            author=self.users[post.user].name,
            text=post.text,
            blocks=tuple(post.blocks),
            buttons=tuple(buttons(post.blocks)),
            choices=tuple(choices(post.blocks)),
            edited=post.edited is not None,
            ephemeral=post.only_for is not None,
            thread_ts=post.thread_ts,
            files=tuple(file["name"] for file in post.files),
            from_bot=post.bot_id is not None,
            links=links_of(post.text, post.blocks),
        )
