"""Who somebody is, where the platform has to be asked: a look-up, so after admission and by a worker.

What lives here: asking a channel's directory. What does not: what a standing allows (access.py), caches (the channel's).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote

from bot.principal import Principal, author_id, name_of
from channels.contract import Channel, Directory
from channels.errors import ChannelError, RateLimited
from channels.events import Author, Place, Standing

LOOK_UP_SECONDS: Final = 10.0
LOOK_UP_BUDGET_MS: Final = 10 * 60_000
"""How long somebody's standing may stay unknown before they are refused: a platform's outage is not their fault."""


class LookUpFailed(Exception):
    """The platform did not say who somebody is, this time; ``retry_after`` is in seconds, where it asked for a wait."""

    def __init__(self, retry_after: float | None) -> None:
        super().__init__("who somebody is could not be looked up")
        self.retry_after = retry_after

    def again_in_ms(self, waited_ms: int) -> int:
        """How long to wait before the next look-up: as long as was waited already, within bounds, and no less than asked for."""
        return max(min(max(waited_ms, 1_000), 60_000), int((self.retry_after or 0) * 1_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """The directories of an app's channels."""

    channels: Mapping[str, Channel] = field(default_factory=dict)

    def asks(self, principal: Principal) -> bool:
        """Tell whether this person's standing is to be found out by a look-up."""
        return principal.standing is Standing.UNKNOWN and self._directory(principal) is not None

    async def resolve(self, principal: Principal, place: Place, address: str | None) -> tuple[Principal, Place]:
        """Find out a person's standing and name, and how a place is shared; what is known already is not asked for.

        Raises: LookUpFailed: ask again later.
        """
        known = principal.standing is not Standing.UNKNOWN
        return (principal, place) if known else await self._look_up(principal, place, address, fresh=False)

    async def ask(self, principal: Principal, place: Place, address: str | None) -> tuple[Principal, Place]:
        """Look somebody up anew whatever is known of them, as far as their channel can. Raises: LookUpFailed."""
        return await self._look_up(principal, place, address, fresh=True)

    async def _look_up(self, principal: Principal, place: Place, address: str | None, *, fresh: bool) -> tuple[Principal, Place]:
        directory = self._directory(principal)
        if directory is None or address is None:
            return principal, place
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                author, seen = await directory.look_up(address, as_author(principal), place, fresh=fresh)
        except RateLimited as error:
            raise LookUpFailed(error.retry_after) from error
        except (ChannelError, TimeoutError, OSError) as error:
            raise LookUpFailed(None) from error
        return replace(principal, name=name_of(author), standing=author.standing, roles=author.roles), seen

    def _directory(self, principal: Principal) -> Directory | None:
        channel: object = self.channels.get(principal.channel)
        return channel if isinstance(channel, Directory) and not principal.anonymous else None


def as_author(principal: Principal) -> Author:
    """Give a principal the platform's own form back."""
    parts = principal.id.split(":")
    tenancy = unquote(parts[1]) if len(parts) > 2 else ""
    return Author(author_id(principal.id), principal.name, standing=principal.standing, tenancy=tenancy, roles=principal.roles)
