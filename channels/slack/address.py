"""Addresses of Slack: `slack:v1:<enterprise|->:<team>:<channel>:<thread|dm>`.

What lives here: ids and timestamps to an address and back. What does not: payloads, or calls to Slack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from channels.address import AddressCodec
from channels.errors import BadAddress

ADDRESS = AddressCodec("slack", 1, ("enterprise", "team", "channel", "thread"))

NO_ENTERPRISE = "-"
WHOLE_DM = "dm"

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_TIMESTAMP = re.compile(r"[0-9]{1,16}\.[0-9]{1,9}", re.ASCII)


def is_id(value: object) -> bool:
    """Tell whether this may be the id of a workspace, a channel or a person."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None and value != NO_ENTERPRISE


def is_timestamp(value: object) -> bool:
    """Tell whether this may be a message's `ts`: a key within its channel, never a number to calculate with."""
    return isinstance(value, str) and _TIMESTAMP.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class SlackAddress:
    """A thread of a channel, or a direct message as a whole (`thread` is None)."""

    enterprise: str
    team: str
    channel: str
    thread: str | None

    def encode(self) -> str:
        """Return the address. Raises: BadAddress."""
        return ADDRESS.encode(self.enterprise or NO_ENTERPRISE, self.team, self.channel, self.thread or WHOLE_DM)

    @classmethod
    def decode(cls, address: str) -> SlackAddress:
        """Read an address. An incomplete one is refused, so that no reply leaks out of its thread. Raises: BadAddress."""
        enterprise, team, channel, thread = ADDRESS.decode(address)
        if not (is_id(team) and is_id(channel) and (enterprise == NO_ENTERPRISE or is_id(enterprise))):
            raise BadAddress(address, "not made of ids of Slack's")
        if thread == WHOLE_DM:
            if not channel.startswith("D"):
                raise BadAddress(address, "only a direct message is addressed without a thread")
            return cls("" if enterprise == NO_ENTERPRISE else enterprise, team, channel, None)
        if not is_timestamp(thread):
            raise BadAddress(address, "not a thread's timestamp")
        return cls("" if enterprise == NO_ENTERPRISE else enterprise, team, channel, thread)
