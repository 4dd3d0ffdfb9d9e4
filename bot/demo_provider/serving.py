"""The provider put into the demo's web process, beside its other routes.

What lives here: opening its file, mounting its routes, and the button that revokes. What does not: what the routes do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from bot.demo_provider.accounts import Accounts, Person
from bot.demo_provider.routes import ProviderRoutes
from channels.console.cast import CAST, cast_member

FILE: Final = "tracker.db"


@dataclass(frozen=True, slots=True)
class Provider:
    """The provider of a running demo."""

    accounts: Accounts

    async def revoke_tokens(self, author: str) -> int:
        """Have no token of a cast member's account taken any more; says how many grants there were."""
        member = cast_member(author)
        return await self.accounts.revoke_all(member.email) if member is not None else 0


def install_provider(app: web.Application, *, folder: Path, origin: str, now: Callable[[], float] = time.time) -> Provider:
    """Serve the provider under /demo, for an app that people reach at `origin`; it keeps its file in a folder.

    `now` is the time in seconds, by which codes and tokens end.
    """
    accounts = Accounts(folder / FILE, now=now)
    people = [Person(member.email, member.name, verified=True) for member in CAST]
    app.add_routes(ProviderRoutes(accounts, origin=origin, people=people).routes())

    async def close(_app: web.Application) -> None:
        accounts.close()

    app.on_cleanup.append(close)
    return Provider(accounts)
