"""Random workflow bodies: a plan is data, one workflow walks through it and says what it sees.

What lives here: making plans, walking them. What does not: driving and comparing (`test_replay`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from durable_core.context import WorkflowContext
from durable_core.operations import Hook, Option
from durable_core.registry import Workflow, workflow

Plan = list[Any]
LEAVES = ("step", "step", "step", "sleep", "nap", "ask", "hook", "child", "start", "patch", "webhook", "pass")
BRANCHES = (
    *("all", "all", "race", "race", "group", "timeout", "timeout", "lock", "keep", "swallow", "finally"),
    *("event", "queue", "completed", "pages", "shield", "lost", "late", "set"),
)
HOOKS = ("paid", "shipped")


def make(random: Random) -> Plan:
    """Make a plan: a name, a number, inner plans."""
    return [random.choice(("swallow", "swallow", "in turn")), 1, *(_part(random, 3) for _ in range(random.randint(2, 6)))]


def _part(random: Random, depth: int) -> Plan:
    if depth == 0 or random.random() < 0.1:
        return [random.choice(LEAVES), random.randrange(4)]
    if random.random() < 0.35:
        return ["in turn", 0, *(_part(random, depth - 1) for _ in range(random.randint(1, 4)))]
    return [random.choice(BRANCHES), random.randrange(8), *(_part(random, depth - 1) for _ in range(random.randint(1, 4)))]


@workflow
async def other(ctx: WorkflowContext, n: int) -> int:
    """Be a child."""
    return n


def work(n: int) -> int:
    """Be a step."""
    return n


def call(n: int) -> int:
    """Be another step."""
    return n


@dataclass
class Walk:
    """One walk through a plan."""

    ctx: WorkflowContext
    said: list[str] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    lost: list[asyncio.Task[Any]] = field(default_factory=list)

    def say(self, what: str) -> str:
        self.said.append(f"{what} at {self.ctx.now().timestamp():.3f}")
        if len(self.said) % 7 == 0:
            self.ctx.progress(what)
        return what

    def task(self, plan: Plan) -> asyncio.Task[str]:
        return asyncio.create_task(self.walk(plan))

    async def walk(self, plan: Plan) -> str:
        kind, number, *inner = plan
        method: Callable[[int, list[Plan]], Coroutine[Any, Any, Any]] = getattr(self, "do_" + kind.replace(" ", "_"))
        try:
            return self.say(f"{kind} {await method(number, inner)}")
        except asyncio.CancelledError:
            self.say(f"{kind} cancelled")
            raise
        except Exception as error:
            self.say(f"{kind} {type(error).__name__}")
            raise

    # leaves

    async def do_pass(self, number: int, inner: list[Plan]) -> Any:
        await asyncio.sleep(0)

    async def do_step(self, number: int, inner: list[Plan]) -> Any:
        return await self.ctx.step(work if number % 2 else call, number)

    async def do_sleep(self, number: int, inner: list[Plan]) -> Any:
        await self.ctx.sleep(number)

    async def do_nap(self, number: int, inner: list[Plan]) -> Any:
        await asyncio.sleep(number / 2)

    async def do_ask(self, number: int, inner: list[Plan]) -> Any:
        answer = await self.ctx.ask(f"{number}?", [Option("y", "Yes"), Option("n", "No")], name=str(number % 2))
        return answer.option_id or ("expired" if answer.expired else "?")

    async def do_hook(self, number: int, inner: list[Plan]) -> Any:
        if number % 2:
            return await self.ctx.wait_for(HOOKS[number // 2])
        async for payload in Hook(HOOKS[number // 2]):
            return payload
        return None

    async def do_child(self, number: int, inner: list[Plan]) -> Any:
        return await self.ctx.child(other, number, key=str(number) if number > 2 else None)

    async def do_start(self, number: int, inner: list[Plan]) -> Any:
        handle = self.ctx.start(other, number)
        return await handle.result() if number % 2 else handle.run_id

    async def do_patch(self, number: int, inner: list[Plan]) -> Any:
        return await self.ctx.step(work, number) if self.ctx.patched(f"p{number}") else "old"

    async def do_webhook(self, number: int, inner: list[Plan]) -> Any:
        hook = await self.ctx.webhook()
        return hook.token

    # branches

    async def do_in_turn(self, number: int, inner: list[Plan]) -> Any:
        return [await self.walk(one) for one in inner]

    async def do_all(self, number: int, inner: list[Plan]) -> Any:
        results = await asyncio.gather(*(self.walk(one) for one in inner), return_exceptions=bool(number % 2))
        return [type(one).__name__ if isinstance(one, BaseException) else one for one in results]

    async def do_race(self, number: int, inner: list[Plan]) -> Any:
        waits: set[asyncio.Future[Any]] = {self.task(one) for one in inner} | {self.ctx.step(work, number)}
        timeout = number / 3 if number > 4 else None
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=timeout)
        for one in pending:
            if number % 2:
                one.cancel()
        said = [type(one.exception()).__name__ if not one.cancelled() else "cancelled" for one in done]
        for one in done:
            self.say(f"won by {one.get_name() if isinstance(one, asyncio.Task) else 'step'}")
        return said

    async def do_group(self, number: int, inner: list[Plan]) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.walk(one)) for one in inner]
            if number == 7:
                await self.ctx.step(call, number)
        return [one.result() for one in tasks]

    async def do_timeout(self, number: int, inner: list[Plan]) -> Any:
        try:
            async with asyncio.timeout(number / 2):
                return [await self.walk(one) for one in inner]
        except TimeoutError:
            return "late"

    async def do_late(self, number: int, inner: list[Plan]) -> Any:
        try:
            return await asyncio.wait_for(self.walk(inner[0]), number / 2 + 0.1)
        except TimeoutError:
            return "late"

    async def do_lock(self, number: int, inner: list[Plan]) -> Any:
        async with self.lock:
            return await self.ctx.step(work, number)

    async def do_keep(self, number: int, inner: list[Plan]) -> Any:
        """Leave steps open, and come back to them later."""
        kept = [self.ctx.step(work, n) for n in range(number % 3)]
        said = [await self.walk(one) for one in inner]
        return [*said, *await asyncio.gather(*kept, return_exceptions=True)]

    async def do_swallow(self, number: int, inner: list[Plan]) -> Any:
        said = []
        for one in inner:
            with suppress(Exception, *([asyncio.CancelledError] if number % 2 else [])):
                said.append(await self.walk(one))
        return said

    async def do_finally(self, number: int, inner: list[Plan]) -> Any:
        try:
            return await self.walk(inner[0])
        finally:
            for one in inner[1:2]:
                await self.walk(one)
            await self.ctx.step(call, number)

    async def do_completed(self, number: int, inner: list[Plan]) -> Any:
        said = []
        for one in self.ctx.as_completed([self.walk(one) for one in inner]):
            try:
                said.append(await one)
            except Exception as error:  # noqa: BLE001 - any of the plan's
                said.append(type(error).__name__)
        return said

    async def do_pages(self, number: int, inner: list[Plan]) -> Any:
        async def pages() -> AsyncIterator[str]:
            try:
                for one in inner:
                    yield await self.walk(one)
            finally:
                self.say("pages end")

        return [page async for page in pages()]

    async def do_shield(self, number: int, inner: list[Plan]) -> Any:
        waiting: Awaitable[Any] = asyncio.shield(self.task(inner[0]))
        async with asyncio.timeout(number or None):
            return await waiting

    async def do_lost(self, number: int, inner: list[Plan]) -> Any:
        self.lost.append(self.task(inner[0]))
        await asyncio.sleep(0)
        for one in set(self.lost):
            self.say(f"there is {one.get_name()}")

    async def do_event(self, number: int, inner: list[Plan]) -> Any:
        """Let the inner plans wait for an event until the last of them is through."""
        event = asyncio.Event()

        async def waiting(one: Plan) -> str:
            await event.wait()
            return await self.walk(one)

        tasks = [asyncio.create_task(waiting(one)) for one in inner[:-1]]
        try:
            said = [await self.walk(inner[-1])]
        finally:
            event.set()
        return [*said, *await asyncio.gather(*tasks)]

    async def do_queue(self, number: int, inner: list[Plan]) -> Any:
        """Let two workers share the inner plans."""
        queue: asyncio.Queue[Plan] = asyncio.Queue(1)

        async def worker() -> None:
            while True:
                self.say(f"worker got {await self.walk(await queue.get())} by {self.ctx.random.randrange(100)}")

        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(worker()) for _ in range(2)]
            for one in inner:
                await queue.put(one)
            for task in workers:
                task.cancel()

    async def do_set(self, number: int, inner: list[Plan]) -> Any:
        tasks = {self.task(one) for one in inner}
        for one in tasks:
            if number % 3 == 0:
                one.cancel()
        said = []
        for one in tasks:
            with suppress(Exception, asyncio.CancelledError):
                said.append(await one)
        return said


def walker(walks: list[Walk]) -> Workflow:
    """Return the workflow that walks through a plan; each body's walk is put in `walks`, so that it can be looked at."""

    @workflow(name="walk")
    async def body(ctx: WorkflowContext, plan: Plan) -> str:
        walk = Walk(ctx)
        walks.append(walk)
        return await walk.walk(plan)

    return body
