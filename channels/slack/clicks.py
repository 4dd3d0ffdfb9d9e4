"""Clicks on our buttons: `block_actions` read into `Click`. Pure.

What lives here: which clicks are ours and where they happened. What does not: what a button's value means.
"""

from __future__ import annotations

from channels.events import Author, Click, Event, Ignored, Place, Standing
from channels.outbound import MAX_BUTTON_VALUE
from channels.slack.address import SlackAddress, is_timestamp
from channels.slack.reading import Fields, fields_of, id_of, interaction_installation, items_of, text_of

ACTION_PREFIX = "moorings:"


def parse_clicks(payload: Fields) -> tuple[Event, ...]:
    """Read the clicks of one payload; there is one, in practice."""
    actions = items_of(payload.get("actions"))
    if not actions:
        return (Ignored("an interaction without actions"),)
    return tuple(_click(payload, fields_of(action)) for action in actions)


def _click(payload: Fields, action: Fields) -> Event:
    if not text_of(action, "action_id").startswith(ACTION_PREFIX):
        return Ignored("a click on something that is not ours")
    value = text_of(action, "value")
    if not 1 <= len(value) <= MAX_BUTTON_VALUE:
        return Ignored("a click without a value of ours")
    container, message, user = (fields_of(payload.get(name)) for name in ("container", "message", "user"))
    installation = interaction_installation(payload)
    channel = id_of(fields_of(payload.get("channel")), "id") or id_of(container, "channel_id")
    ts = text_of(container, "message_ts") or text_of(message, "ts")
    thread = text_of(message, "thread_ts") or text_of(container, "thread_ts")
    who, at = id_of(user, "id"), text_of(action, "action_ts")
    stamps = is_timestamp(ts) and is_timestamp(at) and (not thread or is_timestamp(thread))
    if not (installation.team and channel and who and stamps):
        return Ignored("a click without its ids")
    direct = channel.startswith("D")
    # In a direct message without threads a card stands alone: its own ts is not a thread.
    whole_dm = direct and (not thread or thread == ts)
    address = SlackAddress(installation.enterprise, installation.team, channel, None if whole_dm else thread or ts)
    name = " ".join((text_of(user, "name") or text_of(user, "username")).split())[:80]
    return Click(
        address.encode(),
        Author(who, name or who, standing=Standing.UNKNOWN, tenancy=installation.tenancy),
        value=value,
        key=f"{installation.team}:{channel}:{ts}:{at}:{who}",
        place=Place("direct" if direct else "channel"),
    )
