"""The methods that write: chat.*.

What lives here: what they take and refuse. What does not: reading methods, the server, the token.
"""

from __future__ import annotations

import re
from typing import Final

from bot.testing.slack.args import Args
from bot.testing.slack.blocks import MAX_MARKDOWN, check_blocks
from bot.testing.slack.links import links_of
from bot.testing.slack.refusals import Refused
from bot.testing.slack.shapes import message_json
from bot.testing.slack.values import Channel, Json, Post, Workspace
from bot.testing.slack.world import World

MAX_UPDATE_BYTES: Final = 4_000
MAX_POST_CHARS: Final = 40_000
_TS = re.compile(r"[0-9]{10}\.[0-9]{6}")


def post_message(world: World, workspace: Workspace, args: Args) -> Json:
    """chat.postMessage."""
    channel = writable(world, workspace, args)
    text, blocks = _content(args)
    metadata = args.metadata()
    thread_ts = _thread(world, channel, args)
    post = world.add(
        Post(
            channel.id,
            world.next_ts(),
            user=workspace.bot_user,
            text=text[:MAX_POST_CHARS],
            bot_id=workspace.bot_id,
            app_id=workspace.app_id,
            blocks=blocks,
            thread_ts=thread_ts,
            metadata=metadata,
            broadcast=thread_ts is not None and args.flag("reply_broadcast"),
            team=workspace.id,
        )
    )
    if args.flag("unfurl_links") or not args.has("unfurl_links"):
        world.unfurled += links_of(post.text, post.blocks)
    return {"channel": channel.id, "ts": post.ts, "message": message_json(world, post)}


def update(world: World, workspace: Workspace, args: Args) -> Json:
    """chat.update; text without blocks takes the blocks away."""
    channel = writable(world, workspace, args, by_id=True)
    post = _own(world, workspace, channel, args, "cant_update_message")
    text, blocks = _content(args, most_bytes=MAX_UPDATE_BYTES)
    world.change(post, text=text, blocks=blocks, metadata=args.metadata())
    return {"channel": channel.id, "ts": post.ts, "text": post.text, "message": message_json(world, post)}


def delete(world: World, workspace: Workspace, args: Args) -> Json:
    """chat.delete."""
    channel = writable(world, workspace, args, by_id=True)
    post = _own(world, workspace, channel, args, "cant_delete_message")
    world.remove(post)
    return {"channel": channel.id, "ts": post.ts}


def post_ephemeral(world: World, workspace: Workspace, args: Args) -> Json:
    """chat.postEphemeral; what comes of it can be neither read nor changed, except by a click's response_url."""
    channel = writable(world, workspace, args)
    user = args.required("user")
    if user not in channel.members:
        raise Refused("user_not_in_channel")
    text, blocks = _content(args)
    post = world.add(
        Post(
            channel.id,
            world.next_ts(),
            user=workspace.bot_user,
            text=text,
            bot_id=workspace.bot_id,
            app_id=workspace.app_id,
            blocks=blocks,
            thread_ts=_thread(world, channel, args),
            only_for=user,
            team=workspace.id,
        )
    )
    return {"message_ts": post.ts}


def writable(world: World, workspace: Workspace, args: Args, *, by_id: bool = False) -> Channel:
    """Find a channel that the bot may write to. Raises: Refused."""
    name = args.required("channel")
    channel = world.channels.get(name)
    if channel is None and not by_id and name in world.users and name != workspace.bot_user:
        channel, _ = world.direct(workspace, [name])  # a user's id stands for the conversation with them
    if channel is None or not sees(workspace, channel):
        raise Refused("channel_not_found")
    if workspace.bot_user not in channel.members:
        raise Refused("not_in_channel")
    if channel.archived:
        raise Refused("is_archived")
    return channel


def sees(workspace: Workspace, channel: Channel) -> bool:
    """Tell whether a workspace's bot may know that a channel exists."""
    here = channel.team_id == workspace.id or workspace.id in channel.connected
    return here and (not channel.private or workspace.bot_user in channel.members)


def _content(args: Args, *, most_bytes: int | None = None) -> tuple[str, list[Json]]:
    text = args.text("text")
    if args.has("markdown_text"):
        if args.has("text") or args.has("blocks"):
            raise Refused("markdown_text_conflict")
        text = args.text("markdown_text")
        if len(text) > MAX_MARKDOWN:
            raise Refused("msg_too_long")
    given = args.structure("blocks", "invalid_blocks_format")
    if not text and not given and not args.has("attachments"):
        raise Refused("no_text")
    if most_bytes is not None and len(text.encode()) > most_bytes:
        raise Refused("msg_too_long")
    return text, check_blocks(given) if given is not None else []


def _thread(world: World, channel: Channel, args: Args) -> str | None:
    thread_ts = args.text("thread_ts")
    if not thread_ts:
        return None
    if not _TS.fullmatch(thread_ts):
        raise Refused("invalid_thread_ts")
    root = world.posts[channel.id].get(thread_ts)
    if root is None:
        raise Refused("thread_not_found")
    if root.thread_ts not in {None, root.ts}:
        raise Refused("cannot_reply_to_message")
    return thread_ts


def _own(world: World, workspace: Workspace, channel: Channel, args: Args, error: str) -> Post:
    post = world.posts[channel.id].get(args.required("ts"))
    if post is None:
        raise Refused("message_not_found")
    if post.bot_id != workspace.bot_id:
        raise Refused(error)
    return post
