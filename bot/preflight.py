"""What is checked before a command does anything, each failure one sentence.

What lives here: packages that would be shadowed, folders, ports, the schema, the app's name. What does not: reading settings.
Only the standard library is imported on top: the first check runs before anything else of ours is.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import socket
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

from bot.errors import NotReady

if TYPE_CHECKING:
    from pathlib import Path

    from bot.app import Bot
    from bot.settings import Settings
    from durable_core.engine.engine import Engine

_PACKAGES = ("bot", "channels", "durable_core")
_EXTRAS = {
    "anthropic": "anthropic",
    "asyncpg": "postgres",
    "openai": "openai",
    "psycopg": "postgres",
    "slack_bolt": "slack",
    "slack_sdk": "slack",
}
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def refuse_shadows(folders: Iterable[str]) -> None:
    """Refuse to start where a file or folder of the user's has the name of one of our packages.

    Raises: NotReady.
    """
    ours = _root()
    for folder in folders:
        place = os.path.realpath(folder or os.curdir)
        if place == ours or _is_checkout(place):
            continue
        for name in _PACKAGES:
            for shadow in (os.path.join(place, f"{name}.py"), os.path.join(place, name)):  # noqa: PTH118
                if os.path.exists(shadow) and os.path.realpath(shadow) != os.path.join(ours, name):  # noqa: PTH110, PTH118
                    shown = shadow if shadow.endswith(".py") else f"{shadow}{os.sep}"
                    raise NotReady(
                        f"{shown} has the name of a package of Moorings and would be imported in its place; rename it "
                        f"(an app is best called app.py) or run the command from another folder."
                    )


def refuse_bytes(arguments: Iterable[str]) -> None:
    """Refuse what isn't text: no id is, and no database takes it.

    Raises: NotReady.
    """
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise NotReady(f"the argument {argument!a} is not text in UTF-8.")


def places_that_shadow() -> list[str]:
    """List where Python would find a user's module before ours: here, and where the program was started from."""
    return list(dict.fromkeys([os.getcwd(), sys.path[0] if sys.path else ""]))  # noqa: PTH109


def _is_checkout(place: str) -> bool:
    """Tell whether a folder is a checkout of Moorings itself: what is installed from it may be run in it."""
    marks = ("bot/preflight.py", "channels/contract.py", "durable_core/store.py")
    return all(os.path.exists(os.path.join(place, *mark.split("/"))) for mark in marks)  # noqa: PTH110, PTH118


def _root() -> str:
    return os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - pathlib costs the start a few ms


def check_folder(folder: Path, *, cure: str = "pass another one with --data") -> None:
    """Make the data folder and see that it can be written to.

    Raises: NotReady.
    """
    probe = folder / f".write-{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise NotReady(f"the data folder {folder} can't be written to ({reason}); {cure}.") from error


def check_host(host: str, *, allow_network: bool) -> None:
    """Let a server without log-in listen on this machine only, unless the user says otherwise.

    Raises: NotReady.
    """
    if host not in _LOOPBACK and not allow_network:
        raise NotReady(f"--host {host} lets other machines use the console; add --allow-network if that is meant.")


def listening_socket(host: str, port: int) -> socket.socket:
    """Take the port now, so that nobody else can before the server listens.

    Raises: NotReady.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, OverflowError) as error:
        raise NotReady(f"--host {host} is not an address of this machine.") from error
    taken = socket.socket(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taken.bind(address)
        taken.listen(128)
    except OSError as error:
        taken.close()
        raise NotReady(_why_not_listening(host, port, error)) from error
    taken.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return taken


def _why_not_listening(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is in use; stop what uses it or pass another one with --port."
        case errno.EACCES:
            return f"port {port} needs more rights than this user has; pass one from 1024 up with --port."
        case errno.EADDRNOTAVAIL:
            return f"--host {host} is not an address of this machine."
        case _:
            return f"{host}:{port} can't be listened on ({error.strerror or type(error).__name__})."


def check_keys(settings: Settings, bot: Bot | None = None) -> None:
    """Refuse to keep people's words without a key, from the environment or from the bot.

    Raises: NotReady.
    """
    if settings.encryption_keys is None and (bot is None or bot.keys is None):
        raise NotReady("MOORINGS_ENCRYPTION_KEYS is not set; make a key with `moorings keys new`, keep it safe and set it.")


def check_drivers(settings: Settings, *, migrating: bool = False) -> None:
    """Refuse a database or a model whose client isn't installed; migrations reach PostgreSQL by another client than all else.

    Raises: NotReady.
    """
    wanted = []
    if settings.database_url.startswith("postgres"):
        wanted.append("psycopg" if migrating else "asyncpg")
    for name in wanted:
        if not _installed(name):
            raise NotReady(_missing(name))
    provider, named, _ = (settings.model or "").partition(":")
    problem = _provider_problem(provider) if named else None
    if problem is not None:
        raise NotReady(f"MOORINGS_MODEL: {problem}")


def check_models(bot: Bot) -> None:
    """Refuse an agent whose model's provider isn't known or its client isn't installed, before the first message finds out.

    Raises: NotReady.
    """
    for agent in bot.agents:
        provider, named, _ = agent.model.partition(":") if isinstance(agent.model, str) else ("", "", "")
        problem = _provider_problem(provider) if named else None
        if problem is not None:
            raise NotReady(f"agent {agent.name!r}: {problem}")


def _provider_problem(provider: str) -> str | None:
    """Say why no model of a provider can be asked; names that aren't extras of ours are looked up, which takes a moment."""
    if provider in _EXTRAS:
        return None if _installed(provider) else _missing(provider)
    from pydantic_ai.providers import infer_provider_class  # noqa: PLC0415

    try:
        infer_provider_class(provider)
    except ValueError:
        return f"no provider of models is called {provider!r}; write the model as in 'anthropic:claude-sonnet-5'"
    except ImportError as error:
        return str(error)
    return None


def check_schema(settings: Settings) -> None:
    """Refuse a SQLite file whose schema is not one that this version can work on; PostgreSQL is asked when the store opens.

    Raises: NotReady.
    """
    from bot.settings import sqlite_path  # noqa: PLC0415 - after the first check
    from durable_core import schema  # noqa: PLC0415
    from durable_core.errors import SchemaOutdated  # noqa: PLC0415

    path = sqlite_path(settings.database_url)
    if path is not None:
        try:
            schema.check(path)
        except SchemaOutdated as error:
            raise NotReady(f"{error}.") from error


def load_app(reference: str) -> Bot:
    """Import the bot that APP names, as `module:attribute`.

    Raises: NotReady, with the line that failed.
    """
    found = load_named(reference, what="Bot")
    from bot.app import Bot  # noqa: PLC0415 - the author's module has imported it by now

    if not isinstance(found, Bot):
        raise NotReady(f"APP {reference} holds a value of type {type(found).__name__}, not a Bot; name the Bot's variable.")
    return found


def load_worker(reference: str) -> Bot | Engine:
    """Import the bot or the engine that APP names.

    Raises: NotReady, with the line that failed.
    """
    found = load_named(reference, what="Bot or the Engine")
    from bot.app import Bot  # noqa: PLC0415 - the author's module has imported one of them by now
    from durable_core.engine.engine import Engine  # noqa: PLC0415 - same

    if not isinstance(found, (Bot, Engine)):
        kind = type(found).__name__
        raise NotReady(f"APP {reference} holds a value of type {kind}, neither a Bot nor an Engine; name the variable of one.")
    return found


def load_named(reference: str, *, what: str) -> object:
    """Import what APP names.

    Raises: NotReady, with the line that failed.
    """
    module_name, separator, attribute = reference.partition(":")
    if not separator or not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise NotReady(f"APP {reference!r} can't be read; give module:attribute, such as app:bot for `bot = Bot(…)` in app.py.")
    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:
        sys.path.insert(0, here)
    found: object = _import(module_name, reference)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise NotReady(f"APP {reference}: {module_name} has no `{attribute}`; name the variable that holds the {what}.")
        found = getattr(found, part)
    return found


def _import(module_name: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise NotReady(f"APP {reference}: there is no module {module_name} here ({os.getcwd()}).") from error  # noqa: PTH109
        hint = _missing(error.name) if error.name in _EXTRAS else f"the package {error.name} is not installed."
        raise NotReady(f"APP {reference}: {_failed_line(error)}: {hint}") from error
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        raise NotReady(f"APP {reference}: {_failed_line(error)}: {type(error).__name__}: {said[:300]}") from error


def _failed_line(error: BaseException) -> str:
    """Name the line of the author's that failed: the innermost one that isn't an installed package's or Python's own."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename} line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _foreign(frame.filename)]
    return f"{frames[-1].filename} line {frames[-1].lineno}" if frames else "its import failed"


def _foreign(filename: str) -> bool:
    path = os.path.realpath(filename)
    ours = tuple(os.path.join(_root(), name) + os.sep for name in _PACKAGES)  # noqa: PTH118
    installed = (sys.prefix + os.sep, sys.base_prefix + os.sep, os.path.dirname(os.path.realpath(os.__file__)) + os.sep)  # noqa: PTH120
    return filename.startswith("<") or path.startswith((*ours, *installed))


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _missing(name: str) -> str:
    return f"the package {name} is not installed; install it with: pip install 'moorings[{_EXTRAS[name]}]'"
