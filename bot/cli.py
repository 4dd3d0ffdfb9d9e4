"""The command `moorings`.

What lives here: commands and their options. What does not: what they start (launch.py, roles.py), what they check (preflight.py).
Whatever is heavy, and every package that a user's file could shadow, is imported inside a command, after the checks.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from bot import housekeeping, operate, preflight
from bot.errors import BotError, NotReady
from bot.launch import DEMO_APP, address_of, log_to_stderr, own_settings, run, say, with_console

if TYPE_CHECKING:
    from bot.app import Bot

_NOT_READY = 2
_PORT = 8700
_NO_TOKENS = (
    "moorings: MOORINGS_API_TOKENS is not set, so /v1 answers programs on this machine only; "
    "set it before a proxy stands in front."
)

commands = typer.Typer(
    help="Durable chat agents that live in threads and never lose work.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
keys = typer.Typer(help="Encryption keys.", no_args_is_help=True)
commands.add_typer(keys, name="keys")
housekeeping.add_to(commands)
slack = typer.Typer(help="Slack.", no_args_is_help=True)
commands.add_typer(slack, name="slack")
operate.add_to(commands)

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]


def main() -> NoReturn:
    """Run the command; a reason not to start is one sentence on stderr and exit code 2."""
    os.umask(0o077)  # whatever is written here is its owner's: messages, keys, payments
    for out in (sys.stdout, sys.stderr):
        if isinstance(out, io.TextIOWrapper):  # a terminal that can't show a name is no reason to show nothing
            out.reconfigure(errors="backslashreplace")
    try:
        preflight.refuse_shadows(preflight.places_that_shadow())
        preflight.refuse_bytes(sys.argv[1:])
    except NotReady as error:
        _refuse(error)
    from durable_core.errors import DurableError  # noqa: PLC0415 - not before the check

    try:
        commands(prog_name="moorings")
    except (BotError, DurableError) as error:
        _refuse(error)
    sys.exit(0)


def _refuse(error: Exception) -> NoReturn:
    for line in str(error).splitlines():
        print(f"moorings: {line}", file=sys.stderr)
    sys.exit(1 if getattr(error, "retryable", False) else _NOT_READY)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from bot.settings import version  # noqa: PLC0415

        print(f"moorings {version()}")
        raise typer.Exit


@commands.callback()
def root(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Hold the options of the command itself."""


Data = Annotated[Path, typer.Option(help="Folder for its own database, keys and console.")]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Don't open the browser.")]
AllowNetwork = Annotated[bool, typer.Option("--allow-network", help="Let other machines in, as another --host needs.")]


@commands.command()
def demo(
    *,
    port: Port = _PORT,
    host: Host = "127.0.0.1",
    data: Data = Path(".moorings"),
    no_open: NoOpen = False,
    allow_network: AllowNetwork = False,
) -> None:
    """Try it: a local page that behaves like a thread, with a scripted model and an own SQLite file; in Slack too, if set up."""
    hears = _hears(DEMO_APP) if any(name.startswith("SLACK_") for name in os.environ) else []
    with_console(DEMO_APP, data, hears=hears, host=host, port=port, no_open=no_open, allow_network=allow_network)


@commands.command()
def dev(
    app: Annotated[str, typer.Argument(metavar="APP", help="The bot, as module:attribute, such as app:bot.")],
    *,
    port: Port = _PORT,
    host: Host = "127.0.0.1",
    data: Data = Path(".moorings"),
    no_open: NoOpen = False,
    allow_network: AllowNetwork = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what an earlier start left unfinished.")] = False,
) -> None:
    """Develop: your bot on the local page, with an own SQLite file."""
    from bot.moved import MovedClock, MovedFile  # noqa: PLC0415

    since = 0 if resume else MovedClock(MovedFile(data)).now()
    hears = _hears(app)
    with_console(app, data, hears=hears, host=host, port=port, no_open=no_open, allow_network=allow_network, since=since)


def _hears(app: str) -> list[str]:
    """Check a bot before its worker is there, which would say the same once more; returns the channels it is on."""
    bot = preflight.load_app(app)
    preflight.check_models(bot)
    bot.check()
    return [channel.name for channel in bot.channels]


@commands.command()
def start(
    app: Annotated[str, typer.Argument(metavar="APP", help="The bot, as module:attribute, such as app:bot.")],
    *,
    host: Host = "127.0.0.1",
    port: Port = _PORT,
    role: Annotated[str, typer.Option(help="What this process takes on: all, web or worker.")] = "all",
) -> None:
    """Run a bot in production: serve, work, or both."""
    from bot.roles import Listening  # noqa: PLC0415
    from bot.settings import Role, Settings  # noqa: PLC0415

    if role not in set(Role):
        raise NotReady(f"--role {role} is not known; give one of: {', '.join(Role)}.")
    settings = Settings.from_env(os.environ)
    if settings.encryption_keys is None:  # a bot may bring its own; loading it takes long, so it isn't waited for otherwise
        preflight.check_keys(settings, preflight.load_app(app))
    preflight.check_drivers(settings)
    preflight.check_schema(settings)
    preflight.check_models(preflight.load_app(app))
    listening = None
    if role != Role.WORKER:
        taken = preflight.listening_socket(host, port)
        address = address_of(host, int(taken.getsockname()[1]))
        listening = Listening(taken, on_ready=lambda: say(f"Listening on {address}"))
        if not settings.api_tokens:
            print(_NO_TOKENS, file=sys.stderr)
    log_to_stderr("INFO")
    run(app, settings, role=Role(role), listening=listening)


@commands.command()
def work(
    app: Annotated[str, typer.Argument(metavar="APP", help="The engine or the bot, as module:attribute, such as app:engine.")],
    *,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Do what is due, then leave; for cron and CI.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="With --until-idle: take runs at most so often.")] = None,
) -> None:
    """Work without a server: advance workflows, or a bot's sessions."""
    if limit is not None and not until_idle:
        raise NotReady("--limit is for --until-idle.")
    import asyncio  # noqa: PLC0415

    from bot.app import Bot  # noqa: PLC0415
    from bot.work import work_for_ever, work_until_idle  # noqa: PLC0415

    found = preflight.load_worker(app)
    if isinstance(found, Bot) and not until_idle:
        start(app, role="worker")
        return
    log_to_stderr("INFO" if not until_idle else "WARNING")
    if isinstance(found, Bot):
        _check_worker(found)
    if until_idle:
        say(f"Advanced {asyncio.run(work_until_idle(found, limit=limit))} runs.")
    elif not isinstance(found, Bot):
        asyncio.run(work_for_ever(found))


def _check_worker(bot: Bot) -> None:
    from bot.settings import Settings  # noqa: PLC0415

    settings = Settings.from_env(os.environ)
    preflight.check_keys(settings, bot)
    preflight.check_drivers(settings)
    preflight.check_schema(settings)
    preflight.check_models(bot)


@commands.command()
def migrate(
    *,
    finish: Annotated[bool, typer.Option("--finish", help="Apply what older versions can't work with; none may run.")] = False,
) -> None:
    """Bring the database to the schema that this version needs, as far as older versions can still work with it."""
    from bot.settings import Settings, sqlite_path  # noqa: PLC0415
    from durable_core import schema  # noqa: PLC0415

    settings = Settings.from_env(os.environ)
    preflight.check_drivers(settings, migrating=True)
    path = sqlite_path(settings.database_url)
    if path is not None:
        preflight.check_folder(path.parent, cure="name a file in another one by MOORINGS_DATABASE_URL")
        if schema.found_version(path) == schema.HEAD:
            print(f"The database is at {schema.HEAD} already.")
            return
    done = schema.upgrade(settings.database_url, namespace=settings.namespace, finish=finish)
    print(f"The database is at {done.at} {'now' if done.changed else 'already'}.")
    if done.waiting:
        print(f"{', '.join(done.waiting)} can be applied once no older version runs: moorings migrate --finish")


@slack.callback()
def slack_root() -> None:
    """Hold the commands about Slack."""


@slack.command("manifest")
def slack_manifest(
    *,
    url: Annotated[str | None, typer.Option(help="Where Slack reaches this app; MOORINGS_PUBLIC_URL if not given.")] = None,
    name: Annotated[str, typer.Option(help="The app's name; people mention it in small letters.")] = "Moorings",
) -> None:
    """Print the manifest of the Slack app, to paste at api.slack.com/apps under "From a manifest"."""
    import json  # noqa: PLC0415

    from bot.settings import Settings  # noqa: PLC0415
    from channels.slack.manifest import manifest  # noqa: PLC0415

    public = url or Settings.from_env(os.environ).public_url
    if not public or not public.startswith("https://"):
        raise NotReady("Slack needs an https address of this app; give --url https://… or set MOORINGS_PUBLIC_URL.")
    print(json.dumps(manifest(public, name=name), indent=2))


@keys.callback()
def keys_root() -> None:
    """Hold the commands about keys."""


@keys.command("new")
def keys_new() -> None:
    """Print a new entry for MOORINGS_ENCRYPTION_KEYS; put it first, keep the older ones behind it."""
    from durable_core.crypto import new_key_entry  # noqa: PLC0415

    print(new_key_entry())


@commands.command(hidden=True)
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
    run(app, own_settings(app, data, since=since), role=Role.WORKER, console=True)
