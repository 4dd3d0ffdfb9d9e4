"""How Slack writes its objects: users, channels, messages.

What lives here: the documented fields of an answer. What does not: who may read it.
"""

from __future__ import annotations

import copy

from bot.testing.slack.values import Channel, ChannelKind, Json, Post, User, UserKind, Workspace
from bot.testing.slack.world import World


def user_json(user: User, *, now: int, email: bool) -> Json:
    """Write a user as `users.info` does (docs.slack.dev/reference/objects/user-object); with `email`, to who may know it."""
    real_name = user.name.title()
    shown: Json = {
        "id": user.id,
        "team_id": user.team_id,
        "name": user.name,
        "deleted": user.kind is UserKind.DELETED,
        "profile": {
            "title": "",
            "phone": "",
            "real_name": real_name,
            "real_name_normalized": real_name,
            "display_name": real_name,
            "display_name_normalized": real_name,
            "status_text": "",
            "status_emoji": "",
            "avatar_hash": "0123456789ab",
            "team": user.team_id,
        },
        "is_bot": user.kind is UserKind.BOT,
        "is_app_user": False,
        "updated": now,
    }
    if user.kind is UserKind.DELETED:
        return shown  # what somebody was is not told any more
    shown |= {
        "color": "9f69e7",
        "real_name": real_name,
        "tz": "Europe/Berlin",
        "tz_label": "Central European Time",
        "tz_offset": 3600,
        "is_admin": False,
        "is_owner": False,
        "is_primary_owner": False,
        "is_restricted": user.kind in {UserKind.SINGLE_CHANNEL_GUEST, UserKind.MULTI_CHANNEL_GUEST},
        "is_ultra_restricted": user.kind is UserKind.SINGLE_CHANNEL_GUEST,
        "is_email_confirmed": True,
        "who_can_share_contact_card": "EVERYONE",
    }
    if user.kind is UserKind.STRANGER:
        shown["is_stranger"] = True
    elif email and user.kind is not UserKind.BOT:
        shown["profile"]["email"] = user.email
    if user.enterprise_id is not None:
        shown["enterprise_user"] = {
            "id": user.id.replace("U", "W", 1),
            "enterprise_id": user.enterprise_id,
            "enterprise_name": "Enterprise",
            "is_admin": False,
            "is_owner": False,
            "teams": [user.team_id],
        }
    return shown


def channel_json(channel: Channel, workspace: Workspace) -> Json:
    """Write a channel as `conversations.info` does (docs.slack.dev/reference/objects/conversation-object)."""
    shown: Json = {
        "id": channel.id,
        "created": channel.created,
        "is_archived": channel.archived,
        "is_im": channel.kind is ChannelKind.IM,
        "is_org_shared": False,
        "context_team_id": workspace.id,
        "updated": channel.created * 1000,
    }
    if channel.kind is ChannelKind.IM:
        (other,) = channel.members - {workspace.bot_user}
        return shown | {"user": other, "is_user_deleted": False, "priority": 0, "last_read": "0000000000.000000"}
    shared = bool(channel.connected)
    note = {"value": "", "creator": "", "last_set": 0}
    return shown | {
        "name": channel.name,
        "name_normalized": channel.name,
        "is_channel": channel.kind is ChannelKind.PUBLIC or channel.kind is ChannelKind.PRIVATE,
        "is_group": channel.kind is ChannelKind.PRIVATE,
        "is_mpim": channel.kind is ChannelKind.MPIM,
        "is_private": channel.private,
        "is_general": channel.name == "general",
        "unlinked": 0,
        "is_shared": shared,
        "is_ext_shared": shared,
        "is_pending_ext_shared": False,
        "pending_shared": [],
        "pending_connected_team_ids": [],
        "parent_conversation": None,
        "creator": channel.creator,
        "shared_team_ids": [workspace.id, *sorted(channel.connected)],
        "is_member": workspace.bot_user in channel.members,
        "topic": note,
        "purpose": note,
        "previous_names": [],
    }


def message_json(world: World, post: Post, *, metadata: bool = False) -> Json:
    """Write a message as history, replies and events do; metadata only where it was asked for."""
    shown: Json = {"type": "message", "user": post.user, "ts": post.ts, "text": post.text, "team": post.team}
    if post.client_msg_id is not None:
        shown["client_msg_id"] = post.client_msg_id
    if post.bot_id is not None:
        workspace = world.workspaces[world.users[post.user].team_id]
        shown |= {
            "bot_id": post.bot_id,
            "app_id": post.app_id,
            "bot_profile": {
                "id": post.bot_id,
                "app_id": post.app_id,
                "user_id": post.user,
                "name": world.users[post.user].name,
                "deleted": False,
                "updated": 1_700_000_000,
                "team_id": workspace.id,
            },
        }
    if post.blocks:
        shown["blocks"] = copy.deepcopy(post.blocks)
    if post.files:
        shown |= {"files": copy.deepcopy(post.files), "upload": False}
        if post.bot_id is None:
            shown["subtype"] = "file_share"
    if post.edited is not None:
        shown["edited"] = {"user": post.edited[0], "ts": post.edited[1]}
    if metadata and post.metadata is not None:
        shown["metadata"] = copy.deepcopy(post.metadata)
    return shown | _thread_json(world, post)


def _thread_json(world: World, post: Post) -> Json:
    if post.only_for is not None:
        return {} if post.thread_ts is None else {"thread_ts": post.thread_ts}
    if post.thread_ts is not None and post.thread_ts != post.ts:
        root = world.posts[post.channel].get(post.thread_ts)
        return {"thread_ts": post.thread_ts} | ({"parent_user_id": root.user} if root is not None else {})
    replies = world.replies(post.channel, post.ts)
    if not replies:
        return {}
    people = list(dict.fromkeys(reply.user for reply in replies))
    return {
        "thread_ts": post.ts,
        "reply_count": len(replies),
        "reply_users_count": len(people),
        "latest_reply": replies[-1].ts,
        "reply_users": people[:5],
        "is_locked": False,
        "subscribed": True,
    }


def file_json(file_id: str, *, name: str, title: str, size: int, user: str, created: int) -> Json:
    """Write a file as messages carry it."""
    return {
        "id": file_id,
        "created": created,
        "timestamp": created,
        "name": name,
        "title": title or name,
        "mimetype": "text/plain",
        "filetype": "text",
        "user": user,
        "size": size,
        "mode": "hosted",
        "is_external": False,
        "is_public": False,
        "url_private": f"https://files.slack.com/files-pri/{file_id}/{name}",
        "url_private_download": f"https://files.slack.com/files-pri/{file_id}/download/{name}",
    }
