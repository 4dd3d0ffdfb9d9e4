"""Who may speak in a session, and whether a turn's requester still may.

What lives here: asking the platform and the app's access policy for one session. What does not: the policy (bot/access.py),
look-ups (bot/people.py), what follows from a no (bot/turn/).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from bot.access import AccessPolicy, Action, Deny, members_only
from bot.access import decide as decide_access
from bot.edge import Threads
from bot.people import LOOK_UP_BUDGET_MS, LookUpFailed, People
from bot.principal import Principal
from bot.session.calls import AccessUnknown
from bot.session.live import UNKNOWN_AUTHOR, Judged, LiveSession
from bot.turn.state import MessageBody, Purpose, Turn
from channels.events import Place
from durable_core.model import MAX_CHARGED

log = logging.getLogger("moorings.session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Asks who somebody is and whether they may. ``seconds`` is how long an author's function may take."""

    people: People
    threads: Threads = field(default_factory=Threads)
    access: AccessPolicy = members_only
    seconds: float = 10.0

    async def judge(self, body: MessageBody, busy: bool) -> Judged:  # noqa: FBT001 - the shape live.Judge asks for
        """Find out who wrote and whether they may."""
        author, place = await self.people.resolve(body.author, body.place, body.address)
        denied = await self._denied(author, place, Action.STEER if busy else Action.MESSAGE)
        return Judged(replace(body, author=author, place=place), denied)

    async def still_denied(self, session: LiveSession, turn: Turn) -> str | None:
        """Why a turn's requester may not use the bot any more. Raises: AccessUnknown; the last attempt refuses (CORE 14)."""
        try:
            who, place = await self.people.ask(turn.requester, turn.place, turn.address)
            return await self._denied(who, place, Action.MESSAGE)
        except LookUpFailed:
            # a yes that was kept over a sign-in may be days old: it says nothing of how long it was asked who they are
            given = (one.consent.at for one in turn.pending if one.consent is not None and one.purpose is not Purpose.SIGN_IN)
            since = min(given, default=session.now)
            if session.now - since >= LOOK_UP_BUDGET_MS:
                return UNKNOWN_AUTHOR
            raise
        except Exception as error:
            log.exception("%s: whether %s may still use the bot could not be decided", session.run_id, turn.requester.id)
            if session.charged + 1 >= MAX_CHARGED:
                return UNKNOWN_AUTHOR
            raise AccessUnknown from error

    async def _denied(self, who: Principal, place: Place, action: Action) -> str | None:
        decision = await decide_access(self.access, who, place, action, threads=self.threads, seconds=self.seconds)
        return decision.text if isinstance(decision, Deny) else None
