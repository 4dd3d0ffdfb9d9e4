"""Who is in a user group of the workspace, asked from Slack and remembered for a minute.

What lives here: one group as `channels.contract.Membership`. What does not: what being in it allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

from channels.errors import DeliveryFailed
from channels.events import Author
from channels.signing import NowMs
from channels.slack.api import Api

REMEMBERED_MS = 60_000
PATIENCE = 5.0
"""Seconds that a look-up waits for its turn in a burst of them."""


@dataclass(slots=True)
class UserGroup:
    """A user group by its id, for example ``S0123ABCD``; needs the scope `usergroups:read`."""

    channel: ClassVar[str] = "slack"

    id: str
    api: Callable[[], Api] = field(repr=False)
    now: NowMs = field(repr=False)
    _held: tuple[int, frozenset[str]] | None = field(default=None, repr=False)
    _asking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[frozenset[str]]] = field(
        default_factory=WeakKeyDictionary, repr=False
    )

    async def includes(self, author: Author) -> bool:
        """Tell whether somebody is in it. Raises: RateLimited, DeliveryFailed."""
        return author.id in await self._members()

    async def _members(self) -> frozenset[str]:
        if self._held is not None and 0 <= self.now() - self._held[0] < REMEMBERED_MS:
            return self._held[1]
        loop = asyncio.get_running_loop()
        task = self._asking.get(loop)
        if task is None or task.done():
            task = self._asking[loop] = asyncio.ensure_future(self._asked())
            task.add_done_callback(_seen)
        # one who gives up doesn't take the answer from the others
        return await asyncio.shield(task)

    async def _asked(self) -> frozenset[str]:
        # as old as the question: who left while it was answered may be in it
        at = self.now()
        answer = await self.api().get("usergroups.users.list", {"usergroup": self.id}, patience=PATIENCE)
        users = answer.get("users")
        if not isinstance(users, list):
            # no list is no answer: an empty group has an empty one
            raise DeliveryFailed("no_users", permanent=False)
        members = frozenset(user for user in users if isinstance(user, str))
        self._held = (at, members)
        return members


def _seen(task: asyncio.Task[frozenset[str]]) -> None:
    if not task.cancelled():
        task.exception()  # seen, though nobody may wait for it any more
