"""`moorings connections`: accounts elsewhere, those that are connected, and the app's own.

What lives here: the commands, their options, and what they print. What does not: what they do (bot/connections, bot/signins).
Whatever is heavy is imported inside a command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from bot.operate.options import App, Data, TheApp

if TYPE_CHECKING:
    from bot.app import Bot
    from bot.connections.connection import OAuthConnection
    from bot.connections.connections import Connections, Disconnected
    from bot.connections.credentials import Listed
    from bot.settings import Settings
    from durable_core.store import Store

T = TypeVar("T")

Name = Annotated[str, typer.Argument(metavar="CONNECTION", help="A connection's name, as `moorings connections` lists it.")]
Whose = Annotated[
    str | None,
    typer.Option("--as", metavar="PRINCIPAL", help="Whose account, as in slack:T01:U02; not for one of the app's own."),
]

connections = typer.Typer(help="Accounts elsewhere that tools act with.", invoke_without_command=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What the commands work on."""

    bot: Bot
    settings: Settings
    store: Store
    connections: Connections


DEV_URL: Final = "http://127.0.0.1:8700"
"""Where `moorings dev` is by itself."""


@connections.callback()
def list_connections(
    context: typer.Context, *, principal: Whose = None, limit: int = 1_000, app: App = None, data: Data = None
) -> None:
    """List what the app declares, with the redirect URIs to register, and whose accounts are connected."""
    if context.invoked_subcommand is None:
        _list(principal, limit, app, data)


@connections.command("list")
def list_again(*, principal: Whose = None, limit: int = 1_000, app: App = None, data: Data = None) -> None:
    """List them, as without a word behind `connections`."""
    _list(principal, limit, app, data)


def _list(principal: str | None, limit: int, app: str | None, data: Path | None) -> None:
    from bot import preflight  # noqa: PLC0415
    from bot.connections.credentials import KIND, listed  # noqa: PLC0415
    from bot.operate import show  # noqa: PLC0415
    from bot.operate.options import with_store  # noqa: PLC0415

    async def find(store: Store) -> list[Listed]:
        return [listed(line) for line in await store.vault_list(kind=KIND, owner=principal, limit=limit)]

    found = with_store(app, data, find)
    if app is not None:
        show.lines(declared_lines(preflight.load_app(app), _settings(data).public_url))
    show.accounts(found)


def declared_lines(bot: Bot, public_url: str | None) -> list[str]:
    """Say what each connection of an app is, and what is to be registered for it."""
    lines: list[str] = []
    for connection in bot.connections.values():
        whose = "the app's own account" if connection.owner == "app" else "each person's own account"
        lines.append(f"{connection.name}: {connection.title}, {whose}")
        if connection.needs_browser:
            uri = connection.redirect_uri(public_url or DEV_URL)
            where = "" if public_url else " with `moorings dev`; set MOORINGS_PUBLIC_URL to see the one of `moorings start`"
            lines.append(f"  redirect URI: {uri}{where}")
        if connection.scopes:
            lines.append(f"  scopes: {' '.join(connection.scopes)}")
        if connection.hosts:
            lines.append(f"  hosts: {' '.join(connection.hosts)}")
    return [*lines, ""] if lines else ["This app declares no connections.", ""]


@connections.command("revoke")
def revoke(name: Name, *, app: TheApp, principal: Whose = None, data: Data = None) -> None:
    """Disconnect an account: tell its provider, and forget it."""
    from bot.operate import show  # noqa: PLC0415

    show.lines([_at_desk(app, data, lambda desk: revoked(desk, name, principal))])


async def revoked(desk: Desk, name: str, principal: str | None) -> str:
    """Disconnect an account and say what came of it. Raises: NotReady."""
    from bot.connections.connection import APP  # noqa: PLC0415
    from bot.errors import NotReady  # noqa: PLC0415

    connection = connection_of(desk.bot, name)
    if connection.owner == "app" and principal is not None:
        raise NotReady(f"{name} is the app's own account: leave out --as.")
    if connection.owner == "user" and principal is None:
        raise NotReady(f"{name} is a person's account: say whose with --as.")
    done = await desk.connections.disconnect(connection, principal or APP)
    if not done.found:
        return f"Nothing is connected at {connection.title} there."
    return f"Forgotten: {connection.name} of {principal or 'the app'}. {told(done)}"


def told(done: Disconnected) -> str:
    """Say whether the service knows that the access has ended."""
    match done.revoked:
        case True:
            return f"{done.title} was told."
        case False:
            return f"{done.title} could not be told: end the access there, too."
        case None:
            return f"{done.title} has no way to be told: end the access there, too."


@connections.command("connect")
def connect(name: Name, *, app: TheApp, data: Data = None) -> None:
    """Print a link with which the app's own account is connected; it is good for a few minutes, and for one person."""
    from bot.operate import show  # noqa: PLC0415

    show.lines(_at_desk(app, data, lambda desk: offered(desk, name)))


async def offered(desk: Desk, name: str) -> list[str]:
    """Make a link for the app's own account. Raises: NotReady."""
    from bot.errors import NotReady  # noqa: PLC0415
    from bot.principal import Principal  # noqa: PLC0415
    from bot.signins.signins import SignIns  # noqa: PLC0415
    from channels.events import Standing  # noqa: PLC0415

    connection = connection_of(desk.bot, name)
    if connection.owner != "app":
        raise NotReady(f"{name} is a person's account: whoever asks for it is sent a link of their own in their conversation.")
    if connection.grant == "client_credentials":
        raise NotReady(f"{name} needs nobody to connect it: its token is fetched when a tool first asks.")
    sign_ins = SignIns(store=desk.store, connections=desk.connections, channels={})
    try:
        offer = await sign_ins.offer_app(connection, Principal("cli:operator", "an operator", Standing.MEMBER, channel="cli"))
    finally:
        await sign_ins.close()
    if not offer.url:
        raise NotReady(offer.words)
    code = [f"Type there the code {offer.code}."] if offer.code else []
    return [f"Open this to connect {connection.title} for the app, yourself and soon:", str(offer.url), *code]


def connection_of(bot: Bot, name: str) -> OAuthConnection:
    """Find a connection by its name. Raises: NotReady."""
    from bot.errors import NotReady  # noqa: PLC0415

    found = bot.connections.get(name)
    if found is None:
        known = ", ".join(bot.connections) or "none"
        raise NotReady(f"There is no connection {name}. The connections are: {known}.")
    return found


def _settings(data: Path | None) -> Settings:
    import os  # noqa: PLC0415

    from bot.settings import Settings  # noqa: PLC0415

    return Settings.from_env(os.environ, data=data)


def _at_desk(app: str, data: Path | None, act: Callable[[Desk], Awaitable[T]]) -> T:
    import asyncio  # noqa: PLC0415

    async def run() -> T:
        async with at_desk(app, data) as desk:
            return await act(desk)

    return asyncio.run(run())


@asynccontextmanager
async def at_desk(app: str, data: Path | None) -> AsyncIterator[Desk]:
    """Open a bot's connections on the store that the options name. Raises: NotReady, BadApp."""
    from bot import preflight  # noqa: PLC0415
    from bot.operate.actions import opened  # noqa: PLC0415

    bot, settings = preflight.load_app(app), _settings(data)
    _check(bot)
    async with opened(data, app=app) as store, desk_on(store, bot, settings) as desk:
        yield desk


@asynccontextmanager
async def desk_on(store: Store, bot: Bot, settings: Settings) -> AsyncIterator[Desk]:
    """Put a bot's connections on a store that is open. Raises: BadApp."""
    from bot.connections.connections import Connections  # noqa: PLC0415
    from bot.runtime import WayOut  # noqa: PLC0415

    _check(bot)
    out = WayOut(bot, settings)
    kept = Connections(bot.connections, store=store, outgoing=out, public_url=settings.public_url)
    try:
        yield Desk(bot=bot, settings=settings, store=store, connections=kept)
    finally:
        await kept.close()
        if out.made is not None:
            await out.made.close()


def _check(bot: Bot) -> None:
    from bot.connections.declared import connection_problems  # noqa: PLC0415
    from bot.errors import BadApp  # noqa: PLC0415

    if problems := connection_problems(bot.agents, bot.given_connections):
        raise BadApp(tuple(problems))
