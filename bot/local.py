"""`moorings demo` and `moorings dev`: a bot on a local page, with its own folder, keys and SQLite file.

What lives here: these commands, and the worker that is their child. What does not: commands of production (cli.py).
Whatever is heavy is imported inside a command.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bot import preflight
from bot.operate import start_mark
from bot.serving import address_of, log_to_stderr, run_app, say

if TYPE_CHECKING:
    from aiohttp import web

    from bot.runtime import Runtime
    from bot.settings import Settings

DEMO_APP = "bot.demo:bot"
PORT = 8700

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Data = Annotated[Path, typer.Option(help="Folder for its own database, keys and console.")]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Don't open the browser.")]
AllowNetwork = Annotated[bool, typer.Option("--allow-network", help="Let other machines in, as another --host needs.")]


def add_to(commands: typer.Typer) -> None:
    """Put the commands beside the others."""
    commands.command()(demo)
    commands.command()(dev)
    commands.command(hidden=True)(worker)


def demo(
    *,
    port: Port = PORT,
    host: Host = "127.0.0.1",
    data: Data = Path(".moorings"),
    no_open: NoOpen = False,
    allow_network: AllowNetwork = False,
) -> None:
    """Try it: a local page that behaves like a thread, with a scripted model and an own SQLite file; in Slack too, if set up."""
    hears = _hears(DEMO_APP) if any(name.startswith("SLACK_") for name in os.environ) else []
    _with_console(DEMO_APP, data, hears=hears, host=host, port=port, no_open=no_open, allow_network=allow_network)


def dev(
    app: Annotated[str, typer.Argument(metavar="APP", help="The bot, as module:attribute, such as app:bot.")],
    *,
    port: Port = PORT,
    host: Host = "127.0.0.1",
    data: Data = Path(".moorings"),
    no_open: NoOpen = False,
    allow_network: AllowNetwork = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what an earlier start left unfinished.")] = False,
) -> None:
    """Develop: your bot on the local page, with an own SQLite file."""
    import time  # noqa: PLC0415

    since = 0 if resume else int(time.time() * 1000)
    hears = _hears(app)
    _with_console(app, data, hears=hears, host=host, port=port, no_open=no_open, allow_network=allow_network, since=since)


def _hears(app: str) -> list[str]:
    """Check a bot before its worker is there, which would say the same once more; returns the channels it is on."""
    bot = preflight.load_app(app)
    preflight.check_models(bot)
    bot.check()
    return [channel.name for channel in bot.channels]


def _with_console(
    app: str, data: Path, *, hears: list[str], host: str, port: int, no_open: bool, allow_network: bool, since: int = 0
) -> None:
    """Serve a bot with the console page; its worker is a child process, which the page can kill."""
    preflight.check_host(host, allow_network=allow_network)
    preflight.check_folder(data)
    taken = preflight.listening_socket(host, port)
    settings = _own_settings(data, since=since)
    _migrate_own(settings)
    start_mark(data).write_text(f"{since}\n", encoding="utf-8")
    from bot.console.security import loopback_guard  # noqa: PLC0415
    from bot.processes import WorkerProcess, child_env, worker_command  # noqa: PLC0415
    from bot.roles import Listening  # noqa: PLC0415
    from bot.settings import Role  # noqa: PLC0415

    bound = int(taken.getsockname()[1])
    key = _console_key(data)
    address = f"{address_of(host, bound)}/console/?k={key}"

    def mount(web_app: web.Application, runtime: Runtime) -> None:
        from bot.console.page import install_console  # noqa: PLC0415

        if runtime.console is not None:
            install_console(web_app, runtime.console, key=key, public_port=bound)

    def ready() -> None:
        say(f"Moorings console: {address}")
        for name in hears:
            say(f"Moorings hears {name} at {address_of(host, bound)}/channels/{name}/")
        if not no_open:
            _open_browser(address)

    # What a platform sends comes from elsewhere, over a tunnel as a rule; its channel proves each request by its signature.
    guard = loopback_guard(port=bound, spared=("/channels",), allow_network=allow_network)
    listening = Listening(taken, guards=[guard], mount=mount, on_ready=ready)
    worker = WorkerProcess(worker_command(app, data=str(data.resolve()), since=since), env=child_env(os.environ))
    log_to_stderr("WARNING")
    run_app(app, settings, role=Role.WEB, console=True, listening=listening, worker=worker)


def worker(
    *,
    app: Annotated[str, typer.Option()],
    data: Annotated[Path, typer.Option()],
    parent: Annotated[int, typer.Option()],
    since: Annotated[int, typer.Option()] = 0,
) -> None:
    """Work as the child of demo or dev; it ends with its parent."""
    from bot.processes import die_with_parent  # noqa: PLC0415
    from bot.settings import Role  # noqa: PLC0415

    die_with_parent(parent)
    log_to_stderr("WARNING")
    run_app(app, _own_settings(data, since=since), role=Role.WORKER, console=True)


def _own_settings(data: Path, *, since: int = 0) -> Settings:
    """Read the environment for a command that has its own SQLite file and keeps its own keys."""
    from dataclasses import replace  # noqa: PLC0415

    from bot.settings import own_settings  # noqa: PLC0415

    settings = own_settings(os.environ, data)
    preflight.check_drivers(settings)
    return replace(settings, dormant_before=since)


def _migrate_own(settings: Settings) -> None:
    """Bring the command's own file to the newest schema; Alembic is loaded only if there is something to do."""
    from bot.settings import sqlite_path  # noqa: PLC0415
    from durable_core import schema  # noqa: PLC0415

    path = sqlite_path(settings.database_url)
    if path is None or schema.found_version(path) != schema.HEAD:
        schema.upgrade(settings.database_url, finish=True)


def _console_key(data: Path) -> str:
    import secrets  # noqa: PLC0415

    from bot.settings import kept_secret  # noqa: PLC0415

    return kept_secret(data / "console.key", lambda: secrets.token_urlsafe(24))


def _open_browser(address: str) -> None:
    """Open the page beside the server; where there is no screen, a text browser would take the terminal."""
    import threading  # noqa: PLC0415
    import webbrowser  # noqa: PLC0415

    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
