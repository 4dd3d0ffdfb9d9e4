"""Clicks on our buttons and lists, and forms that were sent: interactions read into `Click`. Pure.

What lives here: which interactions are ours and where they happened. What does not: what a button's value means.
"""

from __future__ import annotations

import json

from channels.cards import MAX_BUTTON_VALUE, MAX_FIELD_NAME
from channels.errors import BadAddress, MalformedPayload
from channels.events import MAX_CLICK_FIELD, MAX_CLICK_FIELDS, Author, Click, Event, Ignored, Ingress, Place, Standing
from channels.http import WebhookResponse, read_json
from channels.slack.address import SlackAddress, is_id, is_timestamp
from channels.slack.reading import Fields, Installation, fields_of, id_of, interaction_installation, items_of, text_of

ACTION_PREFIX = "moorings:"
FORM = "moorings:form"
"""The callback id of our forms."""

MAX_METADATA = 3_000


def action_id(number: int, origin: str = "") -> str:
    """Name an element. A card that is shown elsewhere, in private, carries the conversation that it is about."""
    return f"{ACTION_PREFIX}{number}{f'@{origin}' if origin else ''}"


def origin_of(address: SlackAddress) -> str:
    """Return the conversation of an address as an element carries it."""
    return f"{address.channel}:{address.thread or ''}"


def form_metadata(value: str, address: str) -> str:
    """Return what a form carries: the value of its click and where that belongs, nothing else."""
    return json.dumps({"value": value, "address": address}, separators=(",", ":"))


def parse_clicks(payload: Fields) -> tuple[Event, ...]:
    """Read the clicks of one payload; there is one, in practice."""
    actions = items_of(payload.get("actions"))
    if not actions:
        return (Ignored("an interaction without actions"),)
    return tuple(_click(payload, fields_of(action)) for action in actions)


def _click(payload: Fields, action: Fields) -> Event:
    if not text_of(action, "action_id").startswith(ACTION_PREFIX):
        return Ignored("a click on something that is not ours")
    value = text_of(action, "value") or text_of(fields_of(action.get("selected_option")), "value")
    if not 1 <= len(value) <= MAX_BUTTON_VALUE:
        return Ignored("a click without a value of ours")
    container, message, user = (fields_of(payload.get(name)) for name in ("container", "message", "user"))
    installation = interaction_installation(payload)
    channel = id_of(fields_of(payload.get("channel")), "id") or id_of(container, "channel_id")
    ts = text_of(container, "message_ts") or text_of(message, "ts")
    thread = text_of(message, "thread_ts") or text_of(container, "thread_ts")
    who, at = id_of(user, "id"), text_of(action, "action_ts")
    # When it was pressed only tells one click from the next: a whole second is as good, which some send without a fraction.
    stamps = is_timestamp(ts) and (is_timestamp(at) or is_timestamp(f"{at}.0")) and (not thread or is_timestamp(thread))
    if not (installation.team and channel and who and stamps):
        return Ignored("a click without its ids")
    # In a direct message without threads a card stands alone: its own ts is not a thread.
    whole_dm = channel.startswith("D") and (not thread or thread == ts)
    address = SlackAddress(installation.enterprise, installation.team, channel, None if whole_dm else thread or ts)
    origin = text_of(action, "action_id").partition("@")[2]
    if origin:
        about = _origin(origin, installation)
        if about is None:
            return Ignored("a click on a card about nowhere")
        address = about
    trigger = text_of(payload, "trigger_id")
    return Click(
        address.encode(),
        _author(user, installation),
        value=value,
        key=f"{installation.team}:{channel}:{ts}:{at}:{who}",
        place=_place(address),
        trigger=trigger if len(trigger) <= MAX_BUTTON_VALUE else "",
    )


def _origin(origin: str, installation: Installation) -> SlackAddress | None:
    channel, _, thread = origin.partition(":")
    whole_dm = not thread and channel.startswith("D")
    if not is_id(channel) or not (whole_dm or is_timestamp(thread)):
        return None
    return SlackAddress(installation.enterprise, installation.team, channel, thread or None)


def parse_form(payload: Fields) -> Ingress:
    """Read a form that was sent. Slack closes it on an empty answer; one with `errors` keeps it open."""
    view, user = fields_of(payload.get("view")), fields_of(payload.get("user"))
    installation = interaction_installation(payload)
    carried = _carried(view, installation)
    who, view_id = id_of(user, "id"), id_of(view, "id")
    if text_of(view, "callback_id") != FORM or carried is None or not (who and view_id):
        return Ingress((Ignored("a form that is not ours"),))
    value, address = carried
    fields = _filled(view)
    long = [name for name, text in fields.items() if len(text) > MAX_CLICK_FIELD]
    if long:
        errors = dict.fromkeys(long, f"Write at most {MAX_CLICK_FIELD:,} characters.")
        said = json.dumps({"response_action": "errors", "errors": errors}).encode()
        return Ingress((Ignored("a form with a field too long"),), WebhookResponse(200, said, content_type="application/json"))
    click = Click(
        address.encode(),
        _author(user, installation),
        value=value,
        key=f"{installation.team}:form:{view_id}:{who}",
        place=_place(address),
        fields=fields,
    )
    return Ingress((click,))


def _carried(view: Fields, installation: Installation) -> tuple[str, SlackAddress] | None:
    """Read what the form was opened with. It came from us, by Slack: another installation's address in it is none."""
    metadata = text_of(view, "private_metadata")
    if not metadata or len(metadata) > MAX_METADATA:
        return None
    try:
        carried = fields_of(read_json(metadata.encode("utf-8", errors="replace")))
        address = SlackAddress.decode(text_of(carried, "address"))
    except (MalformedPayload, BadAddress):
        return None
    value = text_of(carried, "value")
    # Of an organisation that installed the bot as a whole, anybody's own workspace may be named.
    same = address.team == installation.team or (installation.org_wide and address.enterprise == installation.enterprise)
    return (value, address) if same and 1 <= len(value) <= MAX_BUTTON_VALUE else None


def _filled(view: Fields) -> dict[str, str]:
    """Read what was filled in: a block is named as its field, and has one element."""
    blocks = fields_of(fields_of(view.get("state")).get("values"))
    found: dict[str, str] = {}
    for name, elements in list(blocks.items())[:MAX_CLICK_FIELDS]:
        for element in list(fields_of(elements).values())[:1]:
            if 1 <= len(name) <= MAX_FIELD_NAME:
                found[name] = text_of(fields_of(element), "value")
    return found


def _author(user: Fields, installation: Installation) -> Author:
    name = " ".join((text_of(user, "name") or text_of(user, "username")).split())[:80]
    who = id_of(user, "id")
    return Author(who, name or who, standing=Standing.UNKNOWN, tenancy=installation.tenancy)


def _place(address: SlackAddress) -> Place:
    return Place("direct" if address.channel.startswith("D") else "channel")
