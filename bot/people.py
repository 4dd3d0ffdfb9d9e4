"""Who somebody is, where the platform has to be asked: a look-up, so after admission and by a worker.

What lives here: asking a channel's directory. What does not: what a standing allows (access.py), caches (the channel's).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from bot.egress import author_id
from bot.principal import Principal
from channels.contract import Channel, Directory
from channels.events import Author, Place, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """The directories of an app's channels."""

    channels: Mapping[str, Channel] = field(default_factory=dict)

    async def resolve(self, principal: Principal, place: Place, address: str | None) -> tuple[Principal, Place]:
        """Find out a person's standing and name, and how a place is shared; what is known already is not asked for.

        Raises: ChannelError, for a failure that may pass: ask again later.
        """
        channel = self.channels.get(principal.channel)
        if principal.standing is not Standing.UNKNOWN or principal.anonymous or address is None:
            return principal, place
        if not isinstance(channel, Directory):
            return principal, place
        author, seen = await channel.look_up(address, _author(principal), place)
        return replace(principal, name=author.name, standing=author.standing, roles=author.roles), seen


def _author(principal: Principal) -> Author:
    """Give a principal the platform's own form back."""
    parts = principal.id.split(":")
    tenancy = unquote(parts[1]) if len(parts) > 2 else ""
    return Author(author_id(principal.id), principal.name, standing=principal.standing, tenancy=tenancy, roles=principal.roles)
