"""Who somebody is, their e-mail address, and who can read along, asked from Slack and remembered for a while.

What lives here: two look-ups and their cache. What does not: who may do what.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from channels.errors import DeliveryFailed
from channels.events import Author, Place, Standing
from channels.signing import NowMs
from channels.slack.address import SlackAddress
from channels.slack.api import Api
from channels.slack.reading import Fields, fields_of, items_of, text_of

REMEMBERED_MS = 10 * 60_000
REMEMBERED_MISS_MS = 30_000
FRESH_MS = 30_000
PATIENCE = 5.0
"""Seconds that a look-up waits for its turn in a burst of them."""

MAX_REMEMBERED = 10_000

# Slack's definite "there is nobody" or "nothing": everything else that fails may pass.
_NOBODY = frozenset({"user_not_found", "user_not_visible", "users_not_found"})
_NOWHERE = frozenset({"channel_not_found"})

_T = TypeVar("_T")


@dataclass(slots=True)
class _Remembered(Generic[_T]):
    """The newest answers, for ten minutes each; that there is none, for half a minute. Asked for once, however many wait."""

    now: NowMs
    _held: OrderedDict[str, tuple[int, _T | None]] = field(default_factory=OrderedDict)
    _asking: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Task[_T | None]]] = field(
        default_factory=WeakKeyDictionary
    )

    async def get(self, key: str, ask: Callable[[], Coroutine[Any, Any, _T | None]], *, fresh: bool) -> _T | None:
        found = self._held.get(key)
        if found is not None:
            lasts = REMEMBERED_MISS_MS if found[1] is None else FRESH_MS if fresh else REMEMBERED_MS
            if 0 <= self.now() - found[0] < lasts:
                self._held.move_to_end(key)
                return found[1]
        asking = self._asking.setdefault(asyncio.get_running_loop(), {})
        task = asking.get(key)
        if task is None:
            task = asking[key] = asyncio.ensure_future(self._asked(key, ask))
            task.add_done_callback(lambda done: _ended(asking, key, done))
        # One who gives up doesn't take the answer from the others.
        return await asyncio.shield(task)

    async def _asked(self, key: str, ask: Callable[[], Coroutine[Any, Any, _T | None]]) -> _T | None:
        # As old as the question: what changed while it was answered may not be in it.
        at = self.now()
        value = await ask()
        self.put(key, value, at=at)
        return value

    def put(self, key: str, value: _T | None, *, at: int) -> None:
        self._held[key] = (at, value)
        self._held.move_to_end(key)
        if len(self._held) > MAX_REMEMBERED:
            self._held.popitem(last=False)


def _ended(asking: dict[str, asyncio.Task[_T]], key: str, task: asyncio.Task[_T]) -> None:
    asking.pop(key, None)
    if not task.cancelled():
        task.exception()  # seen, though nobody may wait for it any more


@dataclass(frozen=True, slots=True)
class _Person:
    name: str
    bot: bool
    deleted: bool
    guest: bool
    stranger: bool
    team: str
    enterprise: str
    email: str | None

    def standing(self, address: SlackAddress) -> Standing:
        """Say what the person is to the workspace that installed the bot."""
        if self.bot:
            return Standing.BOT
        if self.deleted or self.stranger or not self._of(address):
            return Standing.OUTSIDER
        return Standing.GUEST if self.guest else Standing.MEMBER

    def _of(self, address: SlackAddress) -> bool:
        if address.enterprise and self.enterprise:
            return self.enterprise == address.enterprise
        return self.team in {address.team, address.enterprise} - {""}


class SlackDirectory:
    """Asks `users.info` and `conversations.info`."""

    def __init__(self, api: Api, *, now: NowMs) -> None:
        self._api = api
        self._people: _Remembered[_Person] = _Remembered(now)
        self._places: _Remembered[Place] = _Remembered(now)

    async def look_up(self, address: SlackAddress, author: Author, place: Place, *, fresh: bool = False) -> tuple[Author, Place]:
        """Return both with what Slack knows. Raises: RateLimited, DeliveryFailed."""
        person = await self._people.get(author.id, lambda: self._person(author.id), fresh=fresh)
        known = await self._place(address, place, fresh=fresh)
        if person is None:
            return replace(author, standing=Standing.UNKNOWN), known
        return replace(author, name=person.name or author.name, standing=person.standing(address)), known

    async def email_of(self, address: SlackAddress, author: Author) -> str | None:
        """Return the confirmed address of one who belongs to the workspace. Raises: RateLimited, DeliveryFailed.

        What another organisation says of its people proves nothing here: it may give them any address.
        """
        try:
            person = await self._people.get(author.id, lambda: self._person(author.id), fresh=True)
        except DeliveryFailed as error:
            if error.code == "missing_scope":
                return None
            raise
        if person is None or person.standing(address) not in {Standing.MEMBER, Standing.GUEST}:
            return None
        return person.email

    async def _person(self, user: str) -> _Person | None:
        answer = await self._asked("users.info", {"user": user}, final=_NOBODY)
        return None if answer is None else _person(fields_of(answer.get("user")))

    async def _place(self, address: SlackAddress, place: Place, *, fresh: bool) -> Place:
        if address.channel.startswith("D"):
            # Nobody but the two: there is nothing to ask, and no scope is needed for it.
            return replace(place, kind="direct")

        async def ask() -> Place | None:
            answer = await self._asked("conversations.info", {"channel": address.channel}, final=_NOWHERE)
            return None if answer is None else _place(fields_of(answer.get("channel")), address)

        # Which teams are outside depends on whose address it is.
        found = await self._places.get(f"{address.enterprise}:{address.team}:{address.channel}", ask, fresh=fresh)
        if found is None:
            # A channel that can't be asked about may be shared with anybody.
            return replace(place, shared_outside=True)
        return replace(found, shared_outside=found.shared_outside or place.shared_outside)

    async def _asked(self, method: str, query: Mapping[str, object], *, final: frozenset[str]) -> Fields | None:
        try:
            return await self._api.get(method, query, patience=PATIENCE)
        except DeliveryFailed as error:
            if error.code in final:
                return None
            # A missing scope or a revoked token is put right by somebody: until then this is no answer about a person.
            raise DeliveryFailed(error.code, permanent=False) from None


def _person(user: Fields) -> _Person | None:
    if not text_of(user, "id"):
        return None
    profile, enterprise = fields_of(user.get("profile")), fields_of(user.get("enterprise_user"))
    name = next(filter(None, (text_of(profile, "display_name"), text_of(profile, "real_name"), text_of(user, "real_name"))), "")
    return _Person(
        name=" ".join((name or text_of(user, "name")).split())[:80],
        bot=user.get("is_bot") is True or user.get("is_workflow_bot") is True or text_of(user, "id") == "USLACKBOT",
        deleted=user.get("deleted") is True,
        guest=user.get("is_restricted") is True or user.get("is_ultra_restricted") is True,
        stranger=user.get("is_stranger") is True,
        team=text_of(user, "team_id"),
        enterprise=text_of(enterprise, "enterprise_id"),
        # Without the scope `users:read.email` there is none.
        email=(text_of(profile, "email") or None) if user.get("is_email_confirmed") is True else None,
    )


def _place(channel: Fields, address: SlackAddress) -> Place | None:
    if not text_of(channel, "id"):
        return None
    others = [team for team in items_of(channel.get("connected_team_ids")) if team not in (address.team, address.enterprise)]
    outside = channel.get("is_ext_shared") is True or channel.get("is_pending_ext_shared") is True or bool(others)
    # Shared, but neither with this organisation only nor said with whom: outside.
    shared = channel.get("is_shared") is True and channel.get("is_org_shared") is not True
    direct = channel.get("is_im") is True or channel.get("is_mpim") is True
    name = " ".join(text_of(channel, "name").split())[:80]
    return Place("direct" if direct else "channel", outside or shared, title="" if direct or not name else f"#{name}")
