"""Starting what serves or works: a bot on the local page of demo and dev, with a worker of its own, or what `start` was told.

What lives here: what commands put together before they run. What does not: their options (cli.py), running itself (roles.py).
Whatever is heavy, and every package that a user's file could shadow, is imported inside a function, after the checks.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bot import preflight
from bot.operate import start_mark

if TYPE_CHECKING:
    from aiohttp import web

    from bot.moved import MovedFile
    from bot.processes import WorkerProcess
    from bot.roles import Listening
    from bot.rolling import RollingWorker
    from bot.runtime import Runtime
    from bot.settings import Role, Settings

DEMO_APP = "bot.demo:bot"
_PUBLIC_URL = "MOORINGS_PUBLIC_URL"
_DEPLOYMENT = "MOORINGS_DEPLOYMENT"
_LAST_SECONDS = 5.0
"""A worker ends by itself this long after its drain."""


def with_console(
    app: str, data: Path, *, hears: list[str], host: str, port: int, no_open: bool, allow_network: bool, since: int = 0
) -> None:
    """Serve a bot with the console page; its worker is a child process, which the page can kill."""
    preflight.check_host(host, allow_network=allow_network)
    preflight.check_folder(data)
    taken = preflight.listening_socket(host, port)
    bound = int(taken.getsockname()[1])
    address = address_of(host, bound)
    moved = _moved(data)
    environ = _environ(app, address, deployment=f"v{moved.read().deployment}")
    settings = own_settings(app, data, since=since, environ=environ)
    _migrate_own(settings)
    start_mark(data).write_text(f"{since}\n", encoding="utf-8")
    from bot.console.security import loopback_guard  # noqa: PLC0415
    from bot.roles import Listening  # noqa: PLC0415
    from bot.settings import DATABASE_FILE, Role  # noqa: PLC0415

    key = _console_key(data)
    page = f"{address}/console/?k={key}"
    worker = _worker(app, data, since=since, environ=environ, drain_seconds=settings.drain_seconds + _LAST_SECONDS)

    def mount(web_app: web.Application, runtime: Runtime) -> None:
        from bot.console.page import install_console  # noqa: PLC0415
        from bot.console.panel import Panel  # noqa: PLC0415
        from bot.rolling import RollingWorker  # noqa: PLC0415

        roller = worker if isinstance(worker, RollingWorker) else None
        panel = Panel(moved, database=data / DATABASE_FILE, roller=roller, demo=app == DEMO_APP)
        revoke = None
        if app == DEMO_APP:
            from bot.demo_provider.serving import install_provider  # noqa: PLC0415

            revoke = install_provider(web_app, folder=data, origin=address, now=panel.seconds).revoke_tokens
        if (board := runtime.console) is not None:
            board.moved, panel.changed, panel.store = panel.changes, board.worker_changed, board.store
            install_console(web_app, board, key=key, public_port=bound, revoke=revoke, panel=panel)
        if runtime.platform is not None:
            runtime.platform.page_url = f"{address}/console/"

    def ready() -> None:
        if days := moved.read().ahead_ms // 86_400_000:
            say(f"Moorings clock: {days} days ahead, as the demo's page moved it; {moved.path} keeps it.")
        say(f"Moorings console: {page}")
        for name in hears:
            say(f"Moorings hears {name} at {address}/channels/{name}/")
        if not no_open:
            _open_browser(page)

    # What a platform sends comes from elsewhere, over a tunnel as a rule; its channel proves each request by its signature.
    # A sign-in is begun from a chat and comes back from its provider; its pages prove the person, the browser and the form.
    guard = loopback_guard(port=bound, spared=("/channels", "/connect"), allow_network=allow_network)
    listening = Listening(taken, guards=[guard], mount=mount, on_ready=ready)
    log_to_stderr("WARNING")
    run(app, settings, role=Role.WEB, console=True, listening=listening, worker=worker)


def _moved(data: Path) -> MovedFile:
    from bot.moved import MovedFile  # noqa: PLC0415

    return MovedFile(data)


def _worker(app: str, data: Path, *, since: int, environ: dict[str, str], drain_seconds: float) -> WorkerProcess | RollingWorker:
    """Make the worker; the demo's can be one of another deployment later on, which says so in what it answers."""
    from bot.processes import WorkerProcess, child_env, worker_command  # noqa: PLC0415
    from bot.rolling import RollingWorker  # noqa: PLC0415

    command = worker_command(app, data=str(data.resolve()), since=since)
    if app != DEMO_APP:
        return WorkerProcess(command, env=child_env(environ))
    return RollingWorker(
        lambda deployment: WorkerProcess(command, env=child_env(environ | {_DEPLOYMENT: deployment})),
        environ[_DEPLOYMENT],
        drain_seconds=drain_seconds,
    )


def _environ(app: str, address: str, *, deployment: str = "v1") -> dict[str, str]:
    """Say to this process and to its worker where people reach the app, for the way back of a sign-in.

    That is this machine, as long as nothing else is set; the demo's own provider is never elsewhere. Its deployments are its own
    too: the page begins with one, and rolls out the next.
    """
    own = app == DEMO_APP or not os.environ.get(_PUBLIC_URL, "").strip()
    said = {**os.environ, **({_PUBLIC_URL: address} if own else {})}
    return said | {_DEPLOYMENT: deployment} if app == DEMO_APP else said


def own_settings(app: str, data: Path, *, since: int = 0, environ: dict[str, str] | None = None) -> Settings:
    """Read the environment for a command that has its own SQLite file and keeps its own keys."""
    from dataclasses import replace  # noqa: PLC0415

    from bot import settings  # noqa: PLC0415

    read = settings.own_settings(os.environ if environ is None else environ, data)
    preflight.check_drivers(read)
    # the demo signs in to a provider that it serves itself, without https; nobody else's app may call its own machine
    trusted = (read.public_url,) if app == DEMO_APP and read.public_url else ()
    return replace(read, dormant_before=since, trusted_origins=trusted)


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


def say(line: str) -> None:
    """Write a line in one piece: a worker may write to the same terminal."""
    print(f"{line}\n", end="", flush=True)


def address_of(host: str, port: int) -> str:
    """Write an address that a browser on this machine opens."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def run(
    app: str,
    settings: Settings,
    *,
    role: Role,
    console: bool = False,
    listening: Listening | None = None,
    worker: WorkerProcess | RollingWorker | None = None,
) -> None:
    """Run until a signal comes."""
    import gc  # noqa: PLC0415

    gc.disable()  # a tenth of what importing costs; `run` enables it once all is there
    import asyncio  # noqa: PLC0415

    from bot import roles  # noqa: PLC0415

    load = partial(preflight.load_app, app)
    asyncio.run(roles.run(load, settings, role=role, console=console, listening=listening, worker=worker))


def log_to_stderr(level: str) -> None:
    """Log to the terminal."""
    import logging  # noqa: PLC0415

    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")


def _open_browser(address: str) -> None:
    """Open the page beside the server; where there is no screen, a text browser would take the terminal."""
    import threading  # noqa: PLC0415
    import webbrowser  # noqa: PLC0415

    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
