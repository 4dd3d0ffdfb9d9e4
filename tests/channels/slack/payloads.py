"""Small payloads of Slack's, and requests that carry them signed.

What lives here: builders. What does not: tests.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from channels import Event, WebhookRequest
from channels.signing import HmacScheme, NowMs
from channels.slack import Slack
from channels.slack.address import SlackAddress
from tests.channels.slack.fake import APP, BOT, CHANNEL, NOW, ROOT, TEAM

SECRET = "s3cret"
INTERACTIONS = {"block_actions", "view_submission"}
Json = dict[str, Any]


def envelope(event: Json, **more: object) -> Json:
    authorization = {"enterprise_id": None, "team_id": TEAM, "user_id": BOT, "is_bot": True, "is_enterprise_install": False}
    return {
        "type": "event_callback",
        "team_id": TEAM,
        "api_app_id": APP,
        "event_id": "Ev1",
        "authorizations": [authorization],
        "event": event,
    } | more


def message(text: str = f"<@{BOT}> hello", **more: object) -> Json:
    return {"type": "message", "user": "UALICE", "ts": ROOT, "channel": CHANNEL, "channel_type": "channel", "text": text} | more


def mention(text: str = f"<@{BOT}> hello", **more: object) -> Json:
    return {"type": "app_mention", "user": "UALICE", "ts": ROOT, "channel": CHANNEL, "text": text} | more


def click(value: str = "prm_1:approve", **more: object) -> Json:
    return {
        "type": "block_actions",
        "user": {"id": "UALICE", "username": "alice", "name": "alice", "team_id": TEAM},
        "api_app_id": APP,
        "container": {"type": "message", "message_ts": "1799999001.000100", "channel_id": CHANNEL, "thread_ts": ROOT},
        "team": {"id": TEAM, "domain": "acme"},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": CHANNEL, "name": "general"},
        "message": {"user": BOT, "ts": "1799999001.000100", "thread_ts": ROOT},
        "actions": [
            {"action_id": "moorings:1", "block_id": "b", "type": "button", "value": value, "action_ts": "1799999002.000100"}
        ],
    } | more


def form(value: str = "prm_1:deny", *, address: str = "", **more: object) -> Json:
    carried = {"value": value, "address": address or SlackAddress("", TEAM, CHANNEL, ROOT).encode()}
    note = {"moorings:1": {"type": "plain_text_input", "value": "too dear"}}
    return {
        "type": "view_submission",
        "team": {"id": TEAM, "domain": "acme"},
        "user": {"id": "UALICE", "username": "alice", "name": "alice", "team_id": TEAM},
        "api_app_id": APP,
        "trigger_id": "1.2.x",
        "view": {
            "id": "V1",
            "team_id": TEAM,
            "type": "modal",
            "callback_id": "moorings:form",
            "private_metadata": json.dumps(carried),
            "state": {"values": {"note": note}},
            "hash": "1.x",
            "app_id": APP,
        },
        "response_urls": [],
        "is_enterprise_install": False,
        "enterprise": None,
    } | more


def as_json(body: Json) -> bytes:
    return json.dumps(body).encode()


def as_form(payload: Json) -> bytes:
    return urlencode({"payload": json.dumps(payload)}).encode()


def signed(body: bytes, *, secret: str = SECRET, now: NowMs = lambda: NOW, content_type: str | None = None) -> WebhookRequest:
    scheme = HmacScheme("X-Slack-Signature", "X-Slack-Request-Timestamp", version="v0", now=now)
    kind = content_type or ("application/json" if body[:1] == b"{" else "application/x-www-form-urlencoded")
    headers = {**scheme.sign(body, secret.encode()), "Content-Type": kind}
    return WebhookRequest("POST", "/channels/slack/events", headers=headers, body=body)


async def heard(body: Json | bytes) -> Event:
    """Return the one event of a body, taken the whole way."""
    channel = Slack(bot_token="xoxb-test", signing_secret=SECRET, now=lambda: NOW)
    raw = body if isinstance(body, bytes) else as_form(body) if body.get("type") in INTERACTIONS else as_json(body)
    (event,) = channel.parse(await channel.verify(signed(raw))).events
    return event
