"""Options that the operators' commands share, and how each of them gets at the store.

What lives here: types of options, opening the store around an act. What does not: commands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from durable_core.store import Store

T = TypeVar("T")

Data = Annotated[Path | None, typer.Option(help="Folder of a demo or dev; else MOORINGS_DATABASE_URL says where.")]
App = Annotated[str | None, typer.Option(metavar="APP", help="The bot, as module:attribute, where it brings its own keys.")]
TheApp = Annotated[str, typer.Option("--app", metavar="APP", help="The bot, as module:attribute, such as app:bot.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, such as ses_….")]
RequestId = Annotated[str, typer.Argument(metavar="REQUEST", help="Id of a request, prm_….")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")]
As = Annotated[str, typer.Option("--as", metavar="PRINCIPAL", help="For whom, as in slack:T01:U02 or api:farah.")]
Role = Annotated[list[str] | None, typer.Option("--role", help="A role that they have; once for each.")]


def with_store(app: str | None, data: Path | None, act: Callable[[Store], Awaitable[T]]) -> T:
    """Do something on the store that the options name."""
    import asyncio  # noqa: PLC0415 - heavy, as in bot/cli.py

    from bot.operate.actions import opened  # noqa: PLC0415 - same

    async def run() -> T:
        async with opened(data, app=app) as store:
            return await act(store)

    return asyncio.run(run())
