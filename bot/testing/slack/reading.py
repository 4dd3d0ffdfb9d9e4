"""The methods that read, and the one that opens a conversation: auth, conversations, users.

What lives here: what they take, refuse and tell. What does not: writing methods, the server, the token.
"""

from __future__ import annotations

from typing import Final

from bot.testing.slack.args import Args
from bot.testing.slack.chat import sees
from bot.testing.slack.refusals import Refused
from bot.testing.slack.shapes import channel_json, message_json, user_json
from bot.testing.slack.values import Channel, ChannelKind, Json, Post, UserKind, Workspace
from bot.testing.slack.world import World

_WORDS: Final = {
    ChannelKind.PUBLIC: "channels",
    ChannelKind.PRIVATE: "groups",
    ChannelKind.IM: "im",
    ChannelKind.MPIM: "mpim",
}
MAX_PAGE: Final = 999
MAX_PEOPLE: Final = 8


def auth_test(world: World, workspace: Workspace, args: Args) -> Json:
    """auth.test."""
    answer: Json = {
        "url": f"https://{workspace.name}.slack.com/",
        "team": workspace.name,
        "user": world.users[workspace.bot_user].name,
        "team_id": workspace.id,
        "user_id": workspace.bot_user,
        "bot_id": workspace.bot_id,
        "is_enterprise_install": False,
    }
    return answer | ({"enterprise_id": workspace.enterprise_id} if workspace.enterprise_id else {})


def replies(world: World, workspace: Workspace, args: Args) -> Json:
    """conversations.replies: the root and then its replies, oldest first."""
    channel = _readable(world, workspace, args)
    ts = args.required("ts")
    root = world.posts[channel.id].get(ts)
    if root is None:
        raise Refused("thread_not_found")
    found = [] if root.thread_ts not in {None, root.ts} else world.replies(channel.id, ts)
    page, cursor = _page([post for post in found if _between(post, args)], args, room=-1)
    return _messages(world, [root, *page], cursor, args)


def history(world: World, workspace: Workspace, args: Args) -> Json:
    """conversations.history: newest first, without the replies of threads."""
    channel = _readable(world, workspace, args)
    found = [
        post
        for post in reversed(world.posts[channel.id].values())
        if (post.thread_ts in {None, post.ts} or post.broadcast) and _between(post, args)
    ]
    page, cursor = _page(found, args)
    return _messages(world, page, cursor, args) | {"pin_count": 0, "channel_actions_ts": None, "channel_actions_count": 0}


def info(world: World, workspace: Workspace, args: Args) -> Json:
    """conversations.info."""
    channel = _known(world, workspace, args)
    require_scope(workspace, f"{_WORDS[channel.kind]}:read")
    shown = channel_json(channel, workspace)
    if args.flag("include_num_members"):
        shown["num_members"] = len(channel.members)
    return {"channel": shown}


def open_conversation(world: World, workspace: Workspace, args: Args) -> Json:
    """conversations.open."""
    people = [name.strip() for name in args.text("users").split(",") if name.strip()]
    if args.has("channel"):
        return {"channel": {"id": _known(world, workspace, args).id}, "no_op": True, "already_open": True}
    if not people:
        raise Refused("users_list_not_supplied")
    if len(people) > MAX_PEOPLE:
        raise Refused("too_many_users")
    require_scope(workspace, "im:write" if len(people) == 1 else "mpim:write")
    for person in people:
        _reachable(world, workspace, person)
    channel, there = world.direct(workspace, people)
    shown = channel_json(channel, workspace) if args.flag("return_im") else {"id": channel.id}
    return {"channel": shown} | ({"no_op": True, "already_open": True} if there else {})


def user_info(world: World, workspace: Workspace, args: Args) -> Json:
    """users.info; a stranger is visible where a channel is shared with them."""
    user = world.users.get(args.required("user"))
    if user is None:
        raise Refused("user_not_found")
    if user.team_id != workspace.id and not _shares_channel(world, workspace, user.id):
        raise Refused("user_not_visible")
    email = "users:read.email" in workspace.scopes
    return {"user": user_json(user, now=world.clock.now_ms // 1000, email=email)}


def permalink(world: World, workspace: Workspace, args: Args) -> Json:
    """chat.getPermalink; it needs no scope."""
    channel = _known(world, workspace, args)
    post = world.posts[channel.id].get(args.required("message_ts"))
    if post is None:
        raise Refused("message_not_found")
    link = f"https://{workspace.name}.slack.com/archives/{channel.id}/p{post.ts.replace('.', '')}"
    if post.thread_ts not in {None, post.ts}:
        link += f"?thread_ts={post.thread_ts}&cid={channel.id}"
    return {"channel": channel.id, "permalink": link}


def usergroup_users(world: World, workspace: Workspace, args: Args) -> Json:
    """usergroups.users.list."""
    members = world.usergroups.get(args.required("usergroup"))
    if members is None:
        raise Refused("no_such_subteam")
    return {"users": list(members)}


def require_scope(workspace: Workspace, needed: str) -> None:
    """Check that the token may. Raises: Refused."""
    if needed not in workspace.scopes:
        raise Refused("missing_scope", needed=needed, provided=",".join(sorted(workspace.scopes)))


def _known(world: World, workspace: Workspace, args: Args) -> Channel:
    channel = world.channels.get(args.required("channel"))
    if channel is None or not sees(workspace, channel):
        raise Refused("channel_not_found")
    return channel


def _readable(world: World, workspace: Workspace, args: Args) -> Channel:
    channel = _known(world, workspace, args)
    require_scope(workspace, f"{_WORDS[channel.kind]}:history")
    if workspace.bot_user not in channel.members:
        raise Refused("not_in_channel")
    return channel


def _reachable(world: World, workspace: Workspace, person: str) -> None:
    user = world.users.get(person)
    if user is None:
        raise Refused("user_not_found")
    if user.kind is UserKind.DELETED:
        raise Refused("user_disabled")
    if user.kind is UserKind.BOT:
        raise Refused("cannot_dm_bot")
    if user.team_id != workspace.id and not _shares_channel(world, workspace, person):
        raise Refused("user_not_visible")


def _shares_channel(world: World, workspace: Workspace, person: str) -> bool:
    return any({workspace.bot_user, person} <= channel.members for channel in world.channels.values())


def _between(post: Post, args: Args) -> bool:
    oldest, latest = args.text("oldest", "0"), args.text("latest")
    key = _order(post.ts)
    inclusive = args.flag("inclusive")
    if oldest not in {"", "0"} and (key < _order(oldest) or (key == _order(oldest) and not inclusive)):
        return False
    return not latest or key < _order(latest) or (key == _order(latest) and inclusive)


def _order(ts: str) -> tuple[int, int]:
    seconds, _, rest = ts.partition(".")
    if not seconds.isdigit() or (rest and not rest.isdigit()):
        raise Refused("invalid_ts_oldest")
    return int(seconds), int(rest.ljust(6, "0") or 0)


def _page(found: list[Post], args: Args, *, room: int = 0) -> tuple[list[Post], str]:
    limit = max(args.integer("limit", 100, most=MAX_PAGE, error="invalid_limit") + room, 1)
    cursor = args.text("cursor")
    start = 0
    if cursor:
        places = [number for number, post in enumerate(found) if f"next_ts:{post.ts.replace('.', '')}" == cursor]
        if not places:
            raise Refused("invalid_cursor")
        start = places[0]
    page, rest = found[start : start + limit], found[start + limit :]
    return page, f"next_ts:{rest[0].ts.replace('.', '')}" if rest else ""


def _messages(world: World, posts: list[Post], cursor: str, args: Args) -> Json:
    metadata = args.flag("include_all_metadata")
    answer: Json = {
        "messages": [message_json(world, post, metadata=metadata) for post in posts],
        "has_more": bool(cursor),
    }
    return answer | ({"response_metadata": {"next_cursor": cursor}} if cursor else {})
