"""What commands that serve have in common.

What lives here: running a role, where it listens in words, what is said and logged. What does not: commands, their options.
Whatever is heavy is imported inside a function.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bot import preflight

if TYPE_CHECKING:
    from bot.processes import WorkerProcess
    from bot.roles import Listening
    from bot.settings import Role, Settings


def say(line: str) -> None:
    """Write a line in one piece: a worker may write to the same terminal."""
    print(f"{line}\n", end="", flush=True)


def address_of(host: str, port: int) -> str:
    """Write an address that a browser on this machine opens."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def run_app(
    app: str,
    settings: Settings,
    *,
    role: Role,
    console: bool = False,
    listening: Listening | None = None,
    worker: WorkerProcess | None = None,
) -> None:
    """Load a bot and run a role until a signal comes."""
    import gc  # noqa: PLC0415

    gc.disable()  # a tenth of what importing costs; `run` enables it once all is there
    import asyncio  # noqa: PLC0415

    from bot.roles import run  # noqa: PLC0415

    load = partial(preflight.load_app, app)
    asyncio.run(run(load, settings, role=role, console=console, listening=listening, worker=worker))


def log_to_stderr(level: str) -> None:
    """Log from a level on."""
    import logging  # noqa: PLC0415

    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
