"""An incident, handled by a workflow: facts, a question, ten minutes to calm down, a plan, a second question, the change.

    python docs/examples/incident.py work &                 advance what is due, and say what happens
    python docs/examples/incident.py start checkout         print the run's id; the same name is the same run
    python docs/examples/incident.py status RUN
    python docs/examples/incident.py answer RUN high

They find each other by the database (--database, by default a file here). Kill the worker whenever you like: with
INCIDENT_SLOW=apply in its environment that step takes a minute, so that there is time. With --fast FILE time is what that
file says, and `skip MINUTES` lets it pass: for tests, and for the impatient.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from durable_core import Clock, DatabaseClock, Engine, Option, WorkerOptions, WorkflowContext, step, step_context, workflow


def say(text: str) -> None:
    print(text, flush=True)


# ── the world outside ──


async def begins(what: str) -> None:
    """Say that a step begins; a slow one is given time to be killed in."""
    say(f"{what}: attempt {step_context().attempt}")
    if os.environ.get("INCIDENT_SLOW") == what:
        await asyncio.sleep(60)


async def collect(name: str) -> dict[str, Any]:
    await begins("collect")
    return {"name": name, "errors": 17, "since": "12:04"}


async def plan(facts: dict[str, Any], level: str) -> list[str]:
    await begins("plan")
    return [f"drain {facts['name']}", f"restart {facts['name']}"] if level == "high" else [f"watch {facts['name']}"]


@step(attempts=10, timeout=90)
async def apply(actions: list[str]) -> int:
    """Make the change. Whoever carries it out gets `step_context().idempotency_key`, so that a second attempt adds nothing."""
    await begins("apply")
    return len(actions)


async def record(name: str, outcome: str) -> str:
    await begins("record")
    return f"{name}: {outcome}"


# ── the workflow ──


@workflow
async def incident(ctx: WorkflowContext, name: str) -> str:
    facts = await ctx.step(collect, name)
    levels = [Option("low", "Low"), Option("high", "High", style="danger")]
    level = await ctx.ask(f"{facts['errors']} errors since {facts['since']}. How bad is it?", levels, name="level")
    await ctx.sleep(timedelta(minutes=10))
    actions = await ctx.step(plan, facts, level.option_id or "low")
    choices = [Option("apply", "Do it"), Option("leave", "Leave it")]
    answer = await ctx.ask(f"Shall I {', then '.join(actions)}?", choices, name="apply", expires=timedelta(hours=8))
    if answer.option_id != "apply":
        return await ctx.step(record, name, "nobody wanted it" if answer.expired else "left alone")
    count = await ctx.step(apply, actions)
    return await ctx.step(record, name, f"{count} actions taken, level {level.option_id}")


# ── the commands ──


class FastClock:
    """Time that passes by `skip` alone: what a file says, the same for all processes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.exists():
            self._set(int(time.time() * 1000))

    def override(self) -> int:
        return int(self.file.read_text())

    def skip(self, by: timedelta) -> None:
        self._set(self.override() + int(by.total_seconds() * 1000))

    def _set(self, ms: int) -> None:
        new = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        new.write_text(str(ms))
        new.replace(self.file)  # nobody reads half a number


async def status(engine: Engine, run_id: str) -> None:
    run = engine.run(run_id)
    say(f"{run_id}: {(await run.status()).status}")
    async for event in run.events():
        say(f"  {event.type} {event.data.get('op', '')}".rstrip())
    for prompt in await run.prompts():
        options = " | ".join(option["id"] for option in prompt.body["options"])
        say(f"  asks: {prompt.body['text']} [{options}]")
    if (await run.status()).ended_at:
        say(f"  result: {await run.result()}")


async def answer(engine: Engine, run_id: str, option: str) -> None:
    for prompt in await engine.prompts(run_id):
        receipt = await engine.answer(prompt.prompt_id, option_id=option, by="you")
        say(f"{prompt.body['text']} {option}: {receipt.status}")


async def act(engine: Engine, given: argparse.Namespace) -> None:
    async with engine:
        match given.command:
            case "work":
                await asyncio.Event().wait()  # until this process is stopped
            case "start":
                say((await engine.start(incident, given.name, key=given.name)).run_id)
            case "status":
                await status(engine, given.run)
            case "answer":
                await answer(engine, given.run, given.option)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default="sqlite:///incident.db", help="where everything is kept")
    parser.add_argument("--fast", type=Path, metavar="FILE", help="time is what this file says")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("work")
    commands.add_parser("start").add_argument("name")
    commands.add_parser("status").add_argument("run")
    answering = commands.add_parser("answer")
    answering.add_argument("run")
    answering.add_argument("option")
    commands.add_parser("skip").add_argument("minutes", type=float)
    given = parser.parse_args()
    fast = None if given.fast is None else FastClock(given.fast)
    if given.command == "skip":
        if fast is None:
            parser.error("time can be skipped with --fast only")
        fast.skip(timedelta(minutes=given.minutes))
        return
    clock: Clock = DatabaseClock() if fast is None else fast
    options = WorkerOptions(poll=1.0 if fast is None else 0.05)
    works = given.command == "work"
    engine = Engine(given.database, workflows=[incident], work=works, clock=clock, options=options, migrate=True)
    asyncio.run(act(engine, given))


if __name__ == "__main__":
    main()
