"""A process of the app that does what it is told, a line at a time: one of two that race on one store.

What lives here: the app, its acts, and the loop over lines. What does not: who races whom (test_races.py).
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from bot.agent import Agent
from bot.answers import Way
from bot.app import Bot
from bot.approvals import Approval
from bot.context import ToolContext
from bot.ending import end_session
from bot.history import AssistantItem, Usage
from bot.model import Finish, ModelReply, ModelRequest, OnText, RequestedCall
from bot.operate import actions
from bot.principal import Principal
from bot.runtime import Runtime, open_runtime
from bot.settings import Role, Settings
from bot.tools import tool
from channels.events import Place
from durable_core.clock import ManualClock
from durable_core.errors import NotFound, SessionEnded
from durable_core.worker import WorkerOptions

EXPIRES: Final = timedelta(seconds=10)
"""Far below a lease: moving the clock so far takes no run from its worker."""
NEVER_MIND: Final = "never mind"


@tool(approval=Approval(expires=EXPIRES, remind_after=None), idempotent=True)
async def guarded(ctx: ToolContext[Any]) -> str:
    """Do what has to be approved."""
    return "done"


class AsksOnce:
    """A model that calls the tool at the first message, and has nothing to add to anything else."""

    name = "asks"

    async def reply(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        if any(isinstance(item, AssistantItem) for item in request.history):
            return ModelReply("ok", usage=Usage(1, 1))
        return ModelReply("", (RequestedCall("guarded", {}, provider_id="p"),), finish=Finish.TOOLS, usage=Usage(1, 1))


def the_bot() -> Bot:
    return Bot(agents=[Agent("support", AsksOnce(), tools=[guarded])])


def settings_of(told: dict[str, Any]) -> Settings:
    return Settings(Path(told["data"]), told["url"], encryption_keys=told["keys"], deployment="race")


def set_clock(clock: ManualClock, ms: int) -> None:
    clock.advance(timedelta(milliseconds=max(0, ms - clock.now_ms)))


async def act(runtime: Runtime, clock: ManualClock, told: dict[str, Any]) -> str:
    """Do one thing to one session; what came of it, in a word."""
    run_id = told["session"]
    match told["act"]:
        case "approve" | "deny" as option:
            at = ("console", told["address"])
            receipt = await runtime.answers.admit(
                told["prompt"],
                option,
                principal=Principal.from_json(told["alice"]),
                place=Place("channel"),
                way=Way(via="button", source="console", key=f"{option}:{told['prompt']}", at=at),
            )
            return receipt.status.value
        case "cancel":
            await actions.cancel(runtime.store, run_id)
        case "reset":
            await end_session(runtime.store, await runtime.store.run(run_id), reason="reset", by="test")
        case "steer":
            assert runtime.console is not None
            await runtime.console.post(told["thread"], "alice", NEVER_MIND, f"steer-{run_id}")
        case "expire":
            set_clock(clock, told["clock"])
    return "done"


async def main(told: dict[str, Any]) -> None:
    """Work, and act as lines say; ends with its input."""
    clock = ManualClock(told["clock"])
    rng = random.Random(told["seed"])
    options = WorkerOptions(poll=0.02)
    runtime = await open_runtime(the_bot(), settings_of(told), role=Role.WORKER, console=True, clock=clock, options=options)
    await runtime.start()
    loop = asyncio.get_running_loop()
    print(json.dumps("ready"), flush=True)
    try:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            wanted = json.loads(line)
            set_clock(clock, wanted["clock"])
            came_of = []
            for one in wanted["acts"]:
                for _ in range(rng.randrange(4)):  # who is first is left to chance
                    await runtime.store.now()
                try:
                    came_of.append(await act(runtime, clock, one))
                except (NotFound, SessionEnded) as error:
                    came_of.append(type(error).__name__)
            print(json.dumps(came_of), flush=True)
    finally:
        await runtime.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
