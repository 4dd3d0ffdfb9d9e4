"""The Slack app's manifest: every scope and event that this adapter uses, and none more.

What lives here: the manifest as JSON. What does not: creating the app, which Slack's own page does from it.
"""

from __future__ import annotations

import re
from typing import Any, Final

EVENTS: Final = ("app_mention", "message.channels", "message.groups", "message.im", "message.mpim")
SCOPES: Final = {
    "app_mentions:read": "hear mentions",
    "channels:history": "hear replies in threads of public channels, and find a message again after a crash",
    "channels:read": "see whether a channel is shared with outsiders",
    "chat:write": "answer",
    "files:write": "send what is too long for a message",
    "groups:history": "the same in private channels",
    "groups:read": "the same for private channels",
    "im:history": "hear direct messages",
    "im:read": "see that a conversation is direct",
    "im:write": "ask somebody in private",
    "mpim:history": "hear direct messages of several people",
    "mpim:read": "the same for those",
    "usergroups:read": "see who is in a user group that may approve",
    "users:read": "see whether somebody is a full member, a guest or an outsider",
    "users:read.email": "know somebody again by their confirmed address when they connect an account",
}
PATH: Final = "/channels/slack/events"
IDENTITY_PATH: Final = "/connect/identity"
"""Where Sign in with Slack sends a browser back to."""


def manifest(public_url: str, *, name: str = "Moorings") -> dict[str, Any]:
    """Return the manifest of an app whose server is reached at `public_url`; `name` is the app's, and the bot's in small letters.

    https://docs.slack.dev/reference/app-manifest has the limits.
    """
    base = public_url.rstrip("/")
    url = f"{base}{PATH}"
    mentioned = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-") or name
    return {
        "display_information": {"name": name[:35], "description": "An agent that lives in threads and never loses work"},
        "features": {
            "app_home": {"home_tab_enabled": False, "messages_tab_enabled": True, "messages_tab_read_only_enabled": False},
            "bot_user": {"display_name": mentioned[:80], "always_online": True},
        },
        "oauth_config": {"redirect_urls": [f"{base}{IDENTITY_PATH}"], "scopes": {"bot": sorted(SCOPES)}},
        "settings": {
            "event_subscriptions": {"request_url": url, "bot_events": list(EVENTS)},
            "interactivity": {"is_enabled": True, "request_url": url},
            "org_deploy_enabled": False,
            "socket_mode_enabled": False,
            "token_rotation_enabled": False,
        },
    }
