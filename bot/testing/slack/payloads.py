"""What Slack sends to an app: events, interactions, commands.

What lives here: their fields. What does not: signing, posting, retrying (sender.py).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from bot.testing.slack.shapes import message_json
from bot.testing.slack.tickets import Tickets
from bot.testing.slack.values import Button, Channel, ChannelKind, Choice, Json, Modal, Post, User, UserKind, Workspace
from bot.testing.slack.world import Happening, World

Twin: TypeAlias = Literal["message", "app_mention"]
_NAMES: Final = {ChannelKind.IM: "directmessage", ChannelKind.PRIVATE: "privategroup"}


class Payloads:
    """Builds payloads out of what there is."""

    def __init__(self, world: World, tickets: Tickets, *, verification_token: str) -> None:
        self._world = world
        self._tickets = tickets
        self._token = verification_token

    def callback(self, workspace: Workspace, channel: Channel, event: Json) -> Json:
        """Wrap an event; each wrapping has an event_id of its own."""
        event_id = self._world.new_id("Ev")
        return {
            "token": self._token,
            "team_id": workspace.id,
            "context_team_id": workspace.id,
            "context_enterprise_id": workspace.enterprise_id,
            "api_app_id": workspace.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": event_id,
            "event_time": int(event["event_ts"].partition(".")[0]),
            "authorizations": [
                {
                    "enterprise_id": workspace.enterprise_id,
                    "team_id": workspace.id,
                    "user_id": workspace.bot_user,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ],
            "is_ext_shared_channel": bool(channel.connected),
            "event_context": f"4-{self._world.word(40)}",
        }

    def said(self, post: Post, channel: Channel, *, as_: Twin) -> Json:
        """Build the event of a person's, or a bot's, words."""
        event = message_json(self._world, post)
        for name in ("reply_count", "reply_users_count", "latest_reply", "reply_users", "is_locked", "subscribed"):
            event.pop(name, None)
        user = self._world.users[post.user]
        if channel.connected:
            event |= {"user_team": user.team_id, "source_team": user.team_id}
        event |= {"type": as_, "channel": channel.id, "event_ts": post.ts}
        return event if as_ == "app_mention" else event | {"channel_type": channel.kind.value}

    def happened(self, what: Happening, post: Post, channel: Channel) -> Json:
        """Build the event of something that an app did."""
        if what == "posted":
            return self.said(post, channel, as_="message")
        ts = self._world.next_ts()
        event: Json = {"type": "message", "channel": channel.id, "ts": ts, "event_ts": ts, "hidden": True}
        event |= {"channel_type": channel.kind.value}
        previous = message_json(self._world, post)
        if what == "deleted":
            return event | {"subtype": "message_deleted", "deleted_ts": post.ts, "previous_message": previous}
        return event | {"subtype": "message_changed", "message": previous, "previous_message": previous}

    def clicked(self, workspace: Workspace, user: User, post: Post, button: Button | Choice) -> Json:
        """Build the payload of a pressed button, or of an option that was chosen."""
        channel = self._world.channels[post.channel]
        ephemeral = post.only_for is not None
        container: Json = {
            "type": "message",
            "message_ts": post.ts,
            "channel_id": post.channel,
            "is_ephemeral": ephemeral,
        } | ({"thread_ts": post.thread_ts} if post.thread_ts is not None else {})
        action: Json = {"action_id": button.action_id, "block_id": button.block_id, "action_ts": self._world.next_ts()}
        words = {"type": "plain_text", "text": button.label, "emoji": True}
        state: Json = {}
        if isinstance(button, Choice):
            chosen = {"text": words, "value": button.value}
            action |= {"type": "static_select", "selected_option": chosen}
            state = {button.block_id: {button.action_id: {"type": "static_select", "selected_option": chosen}}}
        else:
            action |= {"type": "button", "text": words}
            action |= {"value": button.value} if button.value else {}
            action |= {"style": button.style} if button.style else {}
        payload: Json = {
            "type": "block_actions",
            "user": {"id": user.id, "username": user.name, "name": user.name, "team_id": user.team_id},
            "api_app_id": workspace.app_id,
            "token": self._token,
            "container": container,
            "trigger_id": self._tickets.trigger(user.id),
            "team": {"id": workspace.id, "domain": workspace.name},
            "enterprise": None if workspace.enterprise_id is None else {"id": workspace.enterprise_id, "name": "Enterprise"},
            "is_enterprise_install": False,
            "channel": {"id": channel.id, "name": _NAMES.get(channel.kind, channel.name)},
            "state": {"values": state},
            "response_url": self._tickets.response_url(
                workspace, "actions", user=user.id, channel=post.channel, thread_ts=post.thread_ts, post=post
            ),
            "actions": [action],
        }
        return payload if ephemeral else payload | {"message": message_json(self._world, post)}

    def submitted(self, workspace: Workspace, user: User, modal: Modal, state: Json) -> Json:
        """Build the payload of a form that was sent."""
        return {
            "type": "view_submission",
            "team": {"id": workspace.id, "domain": workspace.name},
            "user": {"id": user.id, "username": user.name, "name": user.name, "team_id": user.team_id},
            "api_app_id": workspace.app_id,
            "token": self._token,
            "trigger_id": self._tickets.trigger(user.id),
            "view": modal.view | {"state": state},
            "response_urls": [],
            "is_enterprise_install": False,
            "enterprise": None if workspace.enterprise_id is None else {"id": workspace.enterprise_id, "name": "Enterprise"},
        }

    def command(self, workspace: Workspace, user: User, channel: Channel, *, command: str, text: str) -> dict[str, str]:
        """Build the form of a slash command."""
        form = {
            "token": self._token,
            "team_id": workspace.id,
            "team_domain": workspace.name,
            "channel_id": channel.id,
            "channel_name": _NAMES.get(channel.kind, channel.name),
            "user_id": user.id,
            "user_name": user.name,
            "command": command,
            "text": text,
            "api_app_id": workspace.app_id,
            "is_enterprise_install": "false",
            "response_url": self._tickets.response_url(
                workspace, "commands", user=user.id, channel=channel.id, thread_ts=None, post=None
            ),
            "trigger_id": self._tickets.trigger(user.id),
        }
        return form | ({"enterprise_id": workspace.enterprise_id} if workspace.enterprise_id else {})

    def words(self, text: str) -> list[Json]:
        """Build the rich text that a client makes of what somebody types."""
        section = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
        return [{"type": "rich_text", "block_id": self._world.word(5), "elements": [section]}]


def can_speak(user: User) -> bool:
    """Tell whether somebody can write at all."""
    return user.kind is not UserKind.DELETED
