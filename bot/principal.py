"""Who speaks, asks or clicks.

What lives here: the identity that access, approvals and tools see. What does not: what a platform knows about a person
(channels/events.py) and what they may do (access.py, approvals.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from pydantic import JsonValue

from channels.events import Author, Standing

MAX_NAME: Final = 100
"""Characters of a name that are shown."""


@dataclass(frozen=True, slots=True)
class Principal:
    """One person or service, as one channel knows it.

    ``id`` is unique over all channels (``console:alice``); an empty id is nobody in particular. ``name`` is what the
    platform displays: chosen by its bearer, so data, never proof.
    """

    id: str
    name: str
    standing: Standing
    roles: frozenset[str] = frozenset()
    channel: str = ""

    @property
    def anonymous(self) -> bool:
        """Tell whether nothing is known of who this is."""
        return not self.id

    def to_json(self) -> dict[str, JsonValue]:
        """Turn this into plain JSON, to be frozen with a request; ``from_json`` gives back an equal one."""
        return {
            "id": self.id,
            "name": self.name,
            "standing": self.standing.value,
            "roles": list[JsonValue](sorted(self.roles)),
            "channel": self.channel,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, JsonValue]) -> Principal:
        """Read what ``to_json`` wrote; a standing this version doesn't know is unknown, which may do nothing."""
        known = {standing.value for standing in Standing}
        standing = stored["standing"]
        roles = stored["roles"]
        return cls(
            str(stored["id"]),
            str(stored["name"]),
            Standing(standing) if standing in known else Standing.UNKNOWN,
            frozenset(str(role) for role in roles) if isinstance(roles, list) else frozenset(),
            str(stored["channel"]),
        )


def principal_id(channel: str, author: Author) -> str:
    """Name a person over all channels: channel, tenancy, and the platform's id, each unambiguous."""
    parts = [channel, author.tenancy, author.id] if author.tenancy else [channel, author.id]
    return ":".join(quote(part, safe="@.+-_") for part in parts) if author.id else ""


def name_of(author: Author) -> str:
    """The name that somebody chose, on one line: none may look like lines of a card, or like somebody else's words."""
    return " ".join(author.name.split())[:MAX_NAME] or author.id


def author_id(principal: str) -> str:
    """The platform's id of a principal, for what only they may see."""
    return unquote(principal.rpartition(":")[2])
