"""Commands that keep what is stored in order: `rekey`, `forget`, `vacuum`.

What lives here: their options and what they say. What does not: what they do (durable_core, forget.py), other commands (cli.py).
Whatever is heavy is imported inside a command.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bot import preflight
from bot.errors import NotReady

if TYPE_CHECKING:
    from bot.forget import Forgotten, Traces
    from bot.settings import Settings
    from durable_core.keys import Rewrapped
    from durable_core.store import Store

App = Annotated[str | None, typer.Option(metavar="APP", help="The bot, as module:attribute, where it brings its own keys.")]
Known = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="APP",
        help="The bot, as module:attribute: for keys of its own, and to end a person's accounts at their services.",
    ),
]
Data = Annotated[Path | None, typer.Option(help="Folder of demo or dev, in place of MOORINGS_DATABASE_URL.")]
BY = "operator"


def add_to(commands: typer.Typer) -> None:
    """Add these commands to the command `moorings`."""
    commands.command()(rekey)
    commands.command()(forget)
    commands.command()(vacuum)


def rekey(*, app: App = None, data: Data = None, batch: Annotated[int, typer.Option(min=1, max=10_000)] = 100) -> None:
    """Wrap all sessions' keys and the vault by the ring's first key, while workers run; broken off, it is simply begun again."""
    asyncio.run(_rekey(app, data, batch))


async def _rekey(app: str | None, data: Path | None, batch: int) -> None:
    from durable_core.keys import resolve, rewrap_all  # noqa: PLC0415

    ring = await resolve(_keys(app, _settings(data)))
    async with opened(data=data, keys=ring) as store:
        done = await rewrap_all(store, batch=batch)
    for line in told_of_keys(done, ring.key_ids):
        typer.echo(line)


def told_of_keys(done: Rewrapped, key_ids: Sequence[str]) -> list[str]:
    """Say what was wrapped anew, which keys are still needed, and which may be dropped."""
    current, *older = key_ids
    used = {
        key_id: _wrapped(done.in_use.get(key_id, 0), done.entries_in_use.get(key_id, 0))
        for key_id in dict.fromkeys((*done.in_use, *done.entries_in_use))
    }
    uses = ", ".join(f"{key_id} ({what})" for key_id, what in used.items()) or "none"
    lines = [f"Wrapped anew by {current}: {_wrapped(done.changed, done.entries)}.", f"Keys in use: {uses}."]
    for key_id, what in used.items():
        if key_id not in key_ids:
            lines.append(f"{key_id} is not in the ring; {what} can't be read until it is back.")
        elif key_id != current:
            lines.append(f"{key_id} is still used by {what}: some process has the old order of keys. Restart it, rekey again.")
    free = [key_id for key_id in older if key_id not in used]
    if free:
        them = "it" if len(free) == 1 else "them"
        lines.append(f"Not needed to read anything any more: {', '.join(free)}.")
        lines.append(
            f"Drop {them} once nobody repeats requests that were accepted under {them} (a day is ample): a repeated "
            "Idempotency-Key is told from another payload only while the key of its time is in the ring."
        )
    return lines


def forget(
    what: Annotated[str, typer.Argument(metavar="SESSION|PRINCIPAL", help="A session's id, or a person such as slack:T1:U2.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this it is only told what would be done.")] = False,
    app: Known = None,
    data: Data = None,
) -> None:
    """Delete what a session holds, or what a person wrote, for good; ids, times and the audit stay."""
    asyncio.run(_forget(what, app, data, yes=yes))


async def _forget(what: str, app: str | None, data: Path | None, *, yes: bool) -> None:
    from bot.forget import forget_session  # noqa: PLC0415
    from durable_core.errors import NotFound  # noqa: PLC0415

    async with opened(app=app, data=data) as store:
        try:
            run = await store.run(what)
        except NotFound:
            await _forget_person(store, what, app, data, yes=yes)
            return
        if run.purged_at is not None:
            typer.echo(f"{what} was forgotten before.")
            return
        if not yes:
            raise NotReady(f"{what} ({run.status.value}) would be ended and deleted. Add --yes to do it; it can't be undone.")
        await forget_session(store, what, by=BY)
        typer.echo(f"Forgotten: {what}.")


async def _forget_person(store: Store, who: str, app: str | None, data: Path | None, *, yes: bool) -> None:
    """Tell the services of their accounts while there are tokens to tell them with, then forget."""
    from bot.forget import forget_principal, traces  # noqa: PLC0415
    from bot.operate import accounts, farewell  # noqa: PLC0415

    found, theirs = await traces(store, who), await farewell.accounts_of(store, who)
    if not found.alone and not found.shared and not found.entries:
        typer.echo(f"Nothing is stored of {who}: no session of this id, and no person with content left.")
        return
    if not yes:
        would = " ".join([_would(found, who), *farewell.would_be(theirs, known=app is not None)])
        raise NotReady(f"{would} Add --yes to do it; it can't be undone.")
    lines = farewell.untold(theirs)
    if app is not None and theirs:
        async with accounts.desk_on(store, preflight.load_app(app), _settings(data)) as desk:
            lines = await farewell.disconnect_all(desk, who, theirs)
    typer.echo("\n".join([told_of(await forget_principal(store, who, by=BY), who), *lines]))


def _would(found: Traces, who: str) -> str:
    return (
        f"{_sessions(len(found.alone))} of {who} alone would be deleted, "
        f"and their words in {_sessions(len(found.shared))} with others"
        f"{f', and {_entries(len(found.entries))} of theirs' if found.entries else ''}."
    )


def told_of(done: Forgotten, who: str) -> str:
    """Say what forgetting somebody did."""
    lines = [
        f"Forgotten of {who}: {_sessions(len(done.sessions))} as a whole, words in {_sessions(len(done.redacted))} with others."
    ]
    if done.entries:
        lines.append(f"  {_entries(done.entries)} deleted")
    lines += [f"  {session_id}: deleted" for session_id in done.sessions]
    lines += [f"  {session_id}: {count} stored values redacted" for session_id, count in done.redacted.items()]
    lines += [f"  {run_id} goes on and needs what they answered: forget them again once it has ended" for run_id in done.needed]
    return "\n".join(lines)


def vacuum(*, data: Data = None) -> None:
    """Rewrite the SQLite file as small as it can be; from then on it shrinks by itself. Writers wait meanwhile."""
    from bot.settings import sqlite_path  # noqa: PLC0415
    from durable_core.stores.sqlite.vacuum import vacuum as rewrite  # noqa: PLC0415

    settings = _settings(data)
    path = sqlite_path(settings.database_url)
    if path is None:
        raise NotReady("PostgreSQL gives space back by itself (autovacuum); vacuum is for SQLite files.")
    preflight.check_schema(settings)
    before, after = rewrite(str(path))
    typer.echo(f"{path}: {before:,} bytes before, {after:,} now.")


# ── parts ──


@asynccontextmanager
async def opened(*, app: str | None = None, data: Path | None = None, keys: Any = None) -> AsyncIterator[Store]:
    """Open the store of the environment, or of the folder of demo or dev, beside the processes that work on it."""
    from bot.moved import clock_of  # noqa: PLC0415
    from bot.runtime import store_options  # noqa: PLC0415
    from durable_core.stores.open import open_store  # noqa: PLC0415

    settings = _settings(data)
    preflight.check_drivers(settings)
    preflight.check_schema(settings)
    store = open_store(
        settings.database_url, keys=keys or _keys(app, settings), clock=clock_of(settings), options=store_options(settings)
    )
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _keys(app: str | None, settings: Settings) -> Any:
    from bot.runtime import keys_of  # noqa: PLC0415

    bot = preflight.load_app(app) if app is not None else None
    preflight.check_keys(settings, bot)
    return keys_of(bot, settings)


def _settings(data: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    from bot.settings import Settings, own_settings  # noqa: PLC0415

    return Settings.from_env(environ) if data is None else own_settings(environ, data)


def _wrapped(sessions: int, entries: int) -> str:
    """Say how many there are; a vault with nothing in it needs no word."""
    counted = [_sessions(sessions)] if sessions or not entries else []
    return ", ".join([*counted, _entries(entries)] if entries else counted)


def _entries(count: int) -> str:
    return "1 vault entry" if count == 1 else f"{count:,} vault entries"


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count:,} sessions"
