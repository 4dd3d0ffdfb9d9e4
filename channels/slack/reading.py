"""Careful reading of Slack's payloads: what is absent or of another type is empty, never an exception.

What lives here: fields, the installation a payload is for, and Slack's text as people read it. What does not: what it means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from channels.slack.address import is_id

Fields = Mapping[str, object]

_NOTHING: Fields = {}
_ENTITY = re.compile(r"<([^<>]*)>")
_ESCAPE = re.compile(r"&(amp|lt|gt);")
_ESCAPED = {"amp": "&", "lt": "<", "gt": ">"}


def fields_of(value: object) -> Fields:
    """Return the object, or an empty one."""
    return cast("Fields", value) if isinstance(value, dict) else _NOTHING


def items_of(value: object) -> list[object]:
    """Return the list, or an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text_of(fields: Fields, name: str) -> str:
    """Return the text of that field, or an empty one."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def id_of(fields: Fields, name: str) -> str:
    """Return the id in that field, or an empty text if there is none that can be one."""
    value = text_of(fields, name)
    return value if is_id(value) else ""


@dataclass(frozen=True, slots=True)
class Installation:
    """For which installation a payload is: all that we keep is keyed by this, never by the author's own workspace.

    `bot_user` is the bot's user id, empty if the payload doesn't say.
    """

    enterprise: str
    team: str
    app: str
    bot_user: str
    org_wide: bool = False

    @property
    def tenancy(self) -> str:
        """The installation as a namespace of user ids: the organisation if all of it installed the bot."""
        return self.enterprise if self.org_wide and self.enterprise else self.team


def event_installation(envelope: Fields) -> Installation:
    """Read the installation of an event.

    The first authorization wins over the envelope: in a channel shared by several organisations the envelope's team may
    be another one's (https://docs.slack.dev/apis/events-api#authorizations).
    """
    authorizations = items_of(envelope.get("authorizations"))
    first = fields_of(authorizations[0]) if authorizations else _NOTHING
    enterprise = id_of(first, "enterprise_id") if "enterprise_id" in first else id_of(envelope, "enterprise_id")
    team = id_of(first, "team_id") or id_of(envelope, "team_id") or enterprise
    org_wide = first.get("is_enterprise_install") is True
    # An app that also acts for people may name one of them here: that is not who we are.
    bot_user = "" if first.get("is_bot") is False else id_of(first, "user_id")
    return Installation(enterprise, team, id_of(envelope, "api_app_id"), bot_user, org_wide)


def interaction_installation(payload: Fields) -> Installation:
    """Read the installation of a click. An organisation-wide one may have no team: the person's is taken then."""
    enterprise = id_of(fields_of(payload.get("enterprise")), "id")
    team = id_of(fields_of(payload.get("team")), "id") or id_of(fields_of(payload.get("user")), "team_id") or enterprise
    org_wide = payload.get("is_enterprise_install") is True
    return Installation(enterprise, team, id_of(payload, "api_app_id"), "", org_wide)


def readable(text: str, *, bot_user: str = "", addressed: bool = False) -> str:
    """Return Slack's text as a person reads it: entities as words, escapes undone once.

    The bot's own mention is taken from the front; with `addressed` whatever mention stands there is the bot's.
    """
    rest = text.strip()
    leading = f"<@{re.escape(bot_user)}(?:\\|[^<>]*)?>" if bot_user else "<@[A-Za-z0-9]+(?:\\|[^<>]*)?>" if addressed else ""
    if leading:
        rest = re.sub(f"^(?:{leading}[\\s,:]*)+", "", rest)
    return _ESCAPE.sub(lambda found: _ESCAPED[found[1]], _ENTITY.sub(_entity, rest)).strip()


def mentions(text: str, bot_user: str) -> bool:
    """Tell whether a text mentions the bot. Slack escapes what merely looks like a mention, in code and out of it."""
    return bool(bot_user) and (f"<@{bot_user}>" in text or f"<@{bot_user}|" in text)


def _entity(found: re.Match[str]) -> str:
    target, bar, label = found[1].partition("|")
    if target.startswith("@"):
        return f"@{(label or target[1:]).removeprefix('@')}"
    if target.startswith("#"):
        return f"#{(label or target[1:]).removeprefix('#')}"
    if target.startswith("!"):
        command = target[1:].partition("^")
        return label if bar and label else f"@{command[2] or command[0]}"
    if not bar or not label or label in (target, target.removeprefix("mailto:")):
        return target.removeprefix("mailto:")
    return f"{label} ({target})"
