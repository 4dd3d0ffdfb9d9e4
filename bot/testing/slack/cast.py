"""Who and what is there from the start, and what the app may do and hear.

What lives here: the people and channels of the first workspace, scopes, subscriptions. What does not: what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bot.testing.slack.values import Channel, ChannelKind, User, UserKind, Workspace
from bot.testing.slack.world import World

_HISTORY: Final = ("channels", "groups", "im", "mpim")
ALL_SCOPES: Final = frozenset(
    {
        "app_mentions:read",
        "chat:write",
        "commands",
        "files:read",
        "files:write",
        "im:write",
        "mpim:write",
        "usergroups:read",
        "users:read",
        "users:read.email",
    }
    | {f"{kind}:{right}" for kind in _HISTORY for right in ("read", "history")}
)
ALL_EVENTS: Final = frozenset({"app_mention", "message.channels", "message.groups", "message.im", "message.mpim"})
EVENT_OF: Final = {
    ChannelKind.PUBLIC: "message.channels",
    ChannelKind.PRIVATE: "message.groups",
    ChannelKind.IM: "message.im",
    ChannelKind.MPIM: "message.mpim",
}
"""The subscription that a message in a conversation comes by."""
_PEOPLE: Final = {
    "alice": UserKind.MEMBER,
    "bob": UserKind.MEMBER,
    "farah": UserKind.MEMBER,
    "gus": UserKind.SINGLE_CHANNEL_GUEST,
    "mia": UserKind.MULTI_CHANNEL_GUEST,
    "otto": UserKind.STRANGER,
    "robo": UserKind.BOT,
    "dora": UserKind.DELETED,
}


def settle_in(world: World, workspace: Workspace) -> None:
    """Put the people and channels there that `FakeSlack` tells of."""
    people: dict[str, User] = {}
    for name, kind in _PEOPLE.items():
        home = world.new_id("T") if kind is UserKind.STRANGER else workspace.id
        people[name] = world.add_user(name, team_id=home, kind=kind)
    members = [person for person in people.values() if person.kind is UserKind.MEMBER]
    others = [people[name] for name in ("gus", "mia", "robo")]
    open_channel(world, workspace, "general", [*members, *others])
    open_channel(world, workspace, "private", members, kind=ChannelKind.PRIVATE)
    open_channel(world, workspace, "shared", [*members, people["otto"]])
    open_channel(world, workspace, "archived", members).archived = True
    open_channel(world, workspace, "elsewhere", members, with_bot=False)


def open_channel(
    world: World,
    home: Workspace,
    name: str,
    people: Sequence[User],
    *,
    kind: ChannelKind = ChannelKind.PUBLIC,
    with_bot: bool = True,
) -> Channel:
    """Open a channel; people from another team make it a shared one."""
    members = [person.id for person in people]
    ids = [*members, *([home.bot_user] if with_bot else [])]
    channel = world.add_channel(name, team_id=home.id, kind=kind, members=ids, creator=ids[0] if ids else "")
    channel.connected = {person.team_id for person in people} - {home.id}
    return channel
