"""Where a message goes: a thread, or the direct message with the one who may read it.

What lives here: `Target` and its form in a call. What does not: finding a direct message, or sending.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from channels.outbound import MessageRef
from channels.slack.address import SlackAddress
from channels.slack.clicks import origin_of

DIRECT = "/"
"""Between the direct message and the `ts` of a private message's ref."""


@dataclass(frozen=True, slots=True)
class Target:
    """A conversation, and the thread in it."""

    channel: str
    thread: str | None
    origin: str = ""
    """The conversation that the message is about, if it is shown elsewhere."""

    @classmethod
    def of(cls, address: SlackAddress) -> Target:
        """Return the place of an address itself."""
        return cls(address.channel, address.thread)

    @classmethod
    def direct(cls, channel: str, address: SlackAddress) -> Target:
        """Return the direct message with somebody; where the address is in it already, its thread."""
        return cls(channel, address.thread if channel == address.channel else None, origin_of(address))


def place(target: Target) -> dict[str, object]:
    """Write it as the arguments of a call."""
    found: dict[str, object] = {"channel": target.channel}
    return found if target.thread is None else found | {"thread_ts": target.thread}


def shown_at(ref: MessageRef, target: Target) -> Target:
    """Return where the files of a message go: into its thread, in a direct message behind it."""
    if not target.origin:
        return target
    return replace(target, thread=target.thread or ref.id.rpartition(DIRECT)[2])
