"""The manifest asks for what the adapter uses, and for no more; the methods it uses are read from its code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import channels.slack
from channels.slack.manifest import EVENTS, SCOPES, manifest

HISTORY = {"channels:history", "groups:history", "im:history", "mpim:history"}
READ = {"channels:read", "groups:read", "im:read", "mpim:read"}
# From the page of each method and event: https://docs.slack.dev/reference/methods, https://docs.slack.dev/reference/events
BY_METHOD: dict[str, set[str]] = {
    "auth.test": set(),
    "conversations.open": {"im:write"},
    "views.open": set(),
    "chat.postMessage": {"chat:write"},
    "chat.postEphemeral": {"chat:write"},
    "chat.update": {"chat:write"},
    "chat.getPermalink": set(),
    "conversations.replies": HISTORY,
    "conversations.history": HISTORY,
    "conversations.info": READ,
    "files.getUploadURLExternal": {"files:write"},
    "files.completeUploadExternal": {"files:write"},
    "usergroups.users.list": {"usergroups:read"},
    "users.info": {"users:read", "users:read.email"},
}
BY_EVENT = {
    "app_mention": "app_mentions:read",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
}
# What the client makes of one call of its own; anything else of it that is called has to be added here.
BY_CLIENT = {"api_call": set[str](), "files_upload_v2": {"files.getUploadURLExternal", "files.completeUploadExternal"}}
PACED_ONLY = {"files.upload"}
"""A name under which calls are counted, not a method that is called."""

_FAMILIES = "auth|chat|conversations|files|reactions|team|usergroups|users|views|bots|pins|apps|assistant|agents"
_METHOD = re.compile(rf"(?:{_FAMILIES})\.[A-Za-z.]+")


def trees() -> Iterator[ast.Module]:
    for path in sorted(Path(channels.slack.__file__).parent.glob("*.py")):
        yield ast.parse(path.read_text())


def methods() -> set[str]:
    """Read the methods that the adapter calls: by name in a text, or by a call of slack_sdk's client."""
    found: set[str] = set()
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _METHOD.fullmatch(node.value):
            found.add(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "client":
            found |= BY_CLIENT[node.func.attr]
    return found - PACED_ONLY


def test_the_methods_that_the_adapter_calls_are_known() -> None:
    assert methods() == set(BY_METHOD)


def test_every_scope_that_is_needed_is_asked_for_and_no_other() -> None:
    needed = {scope for method in methods() for scope in BY_METHOD[method]} | {BY_EVENT[event] for event in EVENTS}
    assert set(manifest("https://bot.example")["oauth_config"]["scopes"]["bot"]) == needed
    assert all(why for why in SCOPES.values())


def test_every_way_to_reach_the_bot_is_subscribed_to() -> None:
    # A mention anywhere, a reply in a thread without one, a direct message.
    assert set(EVENTS) == set(BY_EVENT)
    assert manifest("https://bot.example")["settings"]["event_subscriptions"]["bot_events"] == list(EVENTS)


def test_one_address_for_everything() -> None:
    settings = manifest("https://bot.example/base/")["settings"]
    url = "https://bot.example/base/channels/slack/events"
    assert settings["event_subscriptions"]["request_url"] == settings["interactivity"]["request_url"] == url
    assert settings["socket_mode_enabled"] is False


def test_a_browser_comes_back_from_signing_in_to_one_address() -> None:
    assert manifest("https://bot.example/base/")["oauth_config"]["redirect_urls"] == ["https://bot.example/base/connect/identity"]


def test_names_keep_within_what_a_manifest_may_hold() -> None:
    made = manifest("https://bot.example", name=f"The Harbour's {'very ' * 20}own bot")
    assert len(made["display_information"]["name"]) <= 35
    assert len(made["display_information"]["description"]) <= 140
    assert re.fullmatch(r"[a-z0-9._-]{1,80}", made["features"]["bot_user"]["display_name"])
    assert manifest("https://bot.example", name="Moorings")["features"]["bot_user"]["display_name"] == "moorings"
    assert manifest("https://bot.example", name="港")["features"]["bot_user"]["display_name"] == "港"
