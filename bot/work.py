"""The command `work`: a worker without a server, for as long as it may or until nothing is due.

What lives here: running an engine or a bot so. What does not: serving and its drain (roles.py), options (cli.py).
"""

from __future__ import annotations

import os

from bot.app import Bot
from bot.processes import StopSignal
from bot.settings import Role, Settings
from durable_core.engine.engine import Engine


async def work_for_ever(engine: Engine) -> None:
    """Advance an engine's runs until a signal comes, then give back what isn't finished in time."""
    stop = StopSignal()
    stop.install()
    engine.works = True
    async with engine:
        await stop.wait()
        await engine.close(25.0)


async def work_until_idle(app: Bot | Engine, *, limit: int | None) -> int:
    """Advance what is due and return how often a run was taken."""
    if isinstance(app, Engine):
        app.works = False
        return await app.run_due(limit=limit)
    from bot.runtime import open_runtime  # noqa: PLC0415 - heavy, and an engine needs none of it

    runtime = await open_runtime(app, Settings.from_env(os.environ), role=Role.WORKER)
    try:
        return await runtime.run_due(limit)
    finally:
        await runtime.close()
