from __future__ import annotations
import asyncio, dataclasses, gc, time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta, datetime, UTC
from decimal import Decimal
from typing import Any
import pytest
from durable_core.context import WorkflowContext, step_context
from durable_core.engine.engine import Engine
from durable_core.errors import *
from durable_core.failures import *
from durable_core.operations import Hook, Option
from durable_core.registry import step, workflow
from durable_core.retry import RetryPolicy
from tests.durable_core.engine.breaking import Breaking, Failing
from tests.durable_core.engine.worlds import FAST, PATIENCE, World, events_of, parked, result, until

AT_ONCE = RetryPolicy(first=timedelta(0), cap=timedelta(0))


@pytest.fixture(params=["memory"])
def database(request):
    return request.param


async def drained(engine):
    bad = await engine.store.rows("SELECT kind, outcome FROM moor_admission WHERE outcome IS NULL", {})
    assert bad == []


@pytest.mark.parametrize("secs", [0, -1, -1e9, 1e-9, 1e8, 1e12, float("inf"), float("nan"), timedelta.max, timedelta(-5)])
async def test_sleeps(world, secs):
    @workflow
    async def w(
        ctx,
    ):
        try:
            t = asyncio.ensure_future(ctx.sleep(secs))
        except Exception as e:
            return repr(e)
        done, _ = await asyncio.wait({t}, timeout=10)
        return bool(done)

    async with world.engine(w, work=False) as e:
        r = await e.start(w)
        await e.run_due()
        s = await r.status()
        world.advance(seconds=11)
        await e.run_due()
        print(secs, s.status, await r.result(5))
        await drained(e)


@pytest.mark.parametrize("secs", [0, -1, 1e12, float("inf"), float("nan")])
async def test_asyncio_sleeps(world, secs):
    @workflow
    async def w(
        ctx,
    ):
        t = asyncio.ensure_future(asyncio.sleep(secs))
        done, _ = await asyncio.wait({t}, timeout=10)
        return [bool(done), done and repr(done.pop().exception())]

    async with world.engine(w, work=False) as e:
        r = await e.start(w)
        await e.run_due()
        s = await r.status()
        world.advance(seconds=11)
        await e.run_due()
        print(secs, s.status, await r.result(5))


class Odd(Exception):
    def __init__(self, a, b, *, c):
        self.a = a

    def __str__(self):
        raise ValueError("no str")


class OddCode(Exception):
    code = object()
    retry_after = float("nan")


class OddAfter(Exception):
    retry_after = float("inf")


class HugeAfter(Exception):
    retry_after = 1e300


class NegAfter(Exception):
    retry_after = -5


class BoolAfter(Exception):
    retry_after = True


class OddFatal(Fatal):
    def __init__(self):
        super().__init__("x", code=7)


class PropAfter(Exception):
    @property
    def retry_after(self):
        raise RuntimeError("prop")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Odd(1, 2, c=3),
        OddCode,
        OddAfter,
        HugeAfter,
        NegAfter,
        OddFatal,
        PropAfter,
        KeyboardInterrupt,
        SystemExit,
        GeneratorExit,
        StopIteration,
        StopAsyncIteration,
        asyncio.CancelledError,
        lambda: BaseExceptionGroup("g", [KeyboardInterrupt()]),
        lambda: Evicted("x"),
        lambda: ValueError("\ud800"),
    ],
    ids=lambda m: getattr(m, "__name__", "x"),
)
@pytest.mark.parametrize("how", ["async", "sync"])
async def test_odd_errors(world, make, how):
    if how == "async":

        @step(attempts=2, backoff=AT_ONCE)
        async def bad():
            raise make()
    else:

        @step(attempts=2, backoff=AT_ONCE)
        def bad():
            raise make()

    @workflow
    async def w(ctx):
        try:
            await ctx.step(bad)
        except StepFailed as e:
            return [e.type_name, e.message, e.attempts, e.code]

    async with world.engine(w, work=False) as e:
        r = await e.start(w)
        for _ in range(4):
            await e.run_due()
            world.advance(hours=2)
        s = await r.status()
        print(s.status)
        if s.status == "waiting":
            return
        print(await r.result(1))
        await drained(e)


@dataclasses.dataclass
class DC:
    a: int = 1


class Sub(dict):
    pass


class Evil(dict):
    def items(self):
        raise RuntimeError("evil")


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: float("nan"),
        lambda: 10**5000,
        lambda: b"\0" * 10,
        lambda: datetime.now(UTC),
        lambda: DC(),
        lambda: ValueError(1),
        lambda: lambda: 1,
        lambda: Sub(a=1),
        lambda: Evil(a=1),
        lambda: {1: 2},
        lambda: {"$t": "x"},
        lambda: {1, 2},
        lambda: "\ud800",
        lambda: Decimal("NaN"),
        lambda: (1, (2,)),
        lambda: (i for i in range(3)),
        lambda: open,
    ],
)
@pytest.mark.parametrize("where", ["step", "result", "signal", "arg", "progress", "ask", "asktext"])
async def test_values(world, make, where):
    async def give():
        return make()

    @workflow
    async def w(ctx, x=None):
        if where == "step":
            try:
                return repr(await ctx.step(step(give, name="g")))[:50]
            except StepFailed as e:
                return [e.code, e.message, e.type_name]
        if where == "result":
            return make()
        if where == "progress":
            ctx.progress(make())
            return 1
        if where == "ask":
            await ctx.ask("x", [Option("a", "a")], by=make(), expires=timedelta(seconds=1))
        if where == "asktext":
            await ctx.ask(make(), [Option("a", "a")], expires=timedelta(seconds=1))
        return 1

    async with world.engine(w, work=False) as e:
        try:
            r = await e.start(w, make()) if where == "arg" else await e.start(w)
            if where == "signal":
                await r.signal("x", make())
        except (Unstorable, TooLarge) as x:
            print("refused", x)
            return
        await e.run_due()
        world.advance(seconds=2)
        await e.run_due()
        s = await r.status()
        print(where, s.status)
        assert s.ended_at, s
        try:
            print(repr(await r.result(1))[:80])
        except RunFailed as x:
            print("failed", x.code, str(x)[:100])


async def test_generator_body(world):
    with pytest.raises(TypeError):

        @workflow
        async def w(ctx):
            yield 1


@pytest.mark.parametrize("exc", [SystemExit, GeneratorExit, RecursionError, MemoryError, StopIteration, asyncio.CancelledError])
async def test_body_raises(world, exc):
    @workflow
    async def w(ctx):
        await ctx.sleep(1)
        raise exc()

    async with world.engine(w, work=False) as e:
        r = await e.start(w)
        await e.run_due()
        world.advance(seconds=2)
        try:
            await e.run_due()
        except BaseException as x:
            print("leaked", repr(x))
        s = await r.status()
        print(s.status)
        try:
            print(await r.result(1))
        except DurableError as x:
            print(type(x).__name__, x)
        except TimeoutError:
            print("HUNG")


async def test_deep(world):
    @workflow
    async def w(ctx):
        async def deep(n):
            if n == 0:
                return await ctx.step(step(lambda: 1, name="x"))
            return await deep(n - 1)

        return await deep(300)

    @workflow
    async def w2(ctx):
        async def deep(n):
            return await deep(n + 1)

        return await deep(0)

    async with world.engine(w, w2, work=False) as e:
        r = await e.start(w)
        r2 = await e.start(w2)
        await e.run_due()
        print(await r.result(1))
        with pytest.raises(RunFailed) as x:
            await r2.result(1)
        print(x.value)


async def test_recursive_child(world):
    @workflow
    async def w(ctx, n):
        return 0 if not n else 1 + await ctx.child(w, n - 1)

    async with world.engine(w, work=False) as e:
        r = await e.start(w, 40)
        await e.run_due()
        assert await r.result(1) == 40
        await drained(e)


async def test_many_timers(world):
    @workflow
    async def w(ctx):
        await asyncio.gather(*(ctx.sleep(1 + k % 3) for k in range(10_000)))
        return 1

    async with world.engine(w, work=False) as e:
        r = await e.start(w)
        await e.run_due()
        world.advance(seconds=9)
        t = time.monotonic()
        await e.run_due()
        print(time.monotonic() - t)
        assert await r.result(1) == 1


async def test_many_signals(world):
    @workflow
    async def w(ctx):
        await ctx.sleep(1)
        return [await ctx.wait_for("h") for _ in range(1000)]

    async with world.engine(w) as e:
        r = await e.start(w)
        await parked(r)
        await asyncio.gather(*(r.signal("h", k) for k in range(1000)))
        world.advance(seconds=1)
        assert sorted(await result(r)) == list(range(1000))
        await drained(e)


async def test_waiters_leak(world):
    @workflow
    async def w(ctx):
        await ctx.sleep(100)

    async with world.engine(w) as e:
        r = await e.start(w)
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await r.result(0.01)
        with pytest.raises(NotFound):
            await e.run("run_x").result(1)
        assert not e.waiters._flags
        t = asyncio.create_task(e.run(r.run_id).result())
        await asyncio.sleep(0.05)
    try:
        async with asyncio.timeout(1):
            print("after close", await asyncio.wait({t}, timeout=0.5), t)
    finally:
        t.cancel()


async def test_same_engine_twice_and_reopen(world):
    @workflow
    async def w(ctx):
        return 1

    store = await world.open_store()
    e = Engine(store, workflows=[w], clock=world.clock, options=FAST)
    async with e:
        assert await result(await e.start(w)) == 1
    async with e:
        assert await result(await e.start(w)) == 1
    with pytest.raises(WorkflowNameTaken if False else Exception):

        @workflow(name="w")
        async def other(ctx):
            return 2

        Engine(store, workflows=[w, other])


async def test_bad_args(world):
    @workflow
    async def w(ctx, a, *, b=1):
        return [a, b]

    async with world.engine(w) as e:
        for args, kw in [((), {}), ((1, 2), {}), ((1,), {"c": 1}), ((1,), {"ctx": 1})]:
            with pytest.raises(TypeError):
                await e.start(w, *args, **kw)
        with pytest.raises(UnknownWorkflow):
            await e.start("nope")
        assert await result(await e.start(w, 1, b=2)) == [1, 2]
    from durable_core.registry import UnknownWorkflow as U


async def test_step_swallows_cancel_and_result_race(world):
    ran = []

    @step(attempts=2, timeout=0.02, backoff=AT_ONCE)
    async def swallows():
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            pass
        ran.append(1)
        return "late"

    @workflow
    async def w(ctx):
        try:
            return await ctx.step(swallows)
        except StepFailed as e:
            return [e.code, e.attempts, e.type_name]

    async with world.engine(w) as e:
        print(await result(await e.start(w)), ran)


async def test_cancel_variants(world):
    @workflow
    async def sleeps(ctx):
        await ctx.sleep(3600)

    @workflow
    async def parent(ctx):
        try:
            await ctx.child(sleeps)
        except ChildFailed as e:
            return [e.type_name, e.code, e.message]

    async with world.engine(sleeps, parent, work=False) as e:
        # delayed
        r = await e.start(sleeps, delay=timedelta(hours=1))
        assert await r.cancel()
        await e.run_due()
        print((await r.status()).status)
        # queued
        r = await e.start(sleeps)
        await r.cancel()
        await r.cancel()
        await e.run_due()
        print((await r.status()).status)
        # child cancelled
        r = await e.start(parent)
        await e.run_due()
        (c,) = [x for x in await e.runs(workflow="sleeps") if not x.ended_at]
        await e.cancel(c.run_id)
        await e.run_due()
        print(await r.result(1))
        # child ended by store.end (forget / reset)
        r = await e.start(parent)
        await e.run_due()
        (c,) = [x for x in await e.runs(workflow="sleeps") if not x.ended_at]
        await e.store.end(c.run_id, reason="expired", events=[])
        await e.run_due()
        print("child ended by sql:", (await r.status()).status)
        await drained(e) if (await r.status()).ended_at else None
        # signals to ended
        r = await e.start(sleeps)
        await e.run_due()
        await r.cancel()
        await e.run_due()
        with pytest.raises(SessionEnded):
            await r.signal("x")
        with pytest.raises(NotFound):
            await e.run("run_nope").signal("x")


async def test_hook_dup_within(world):
    @workflow
    async def w(ctx):
        a = asyncio.ensure_future(ctx.wait_for("h"))
        b = asyncio.ensure_future(ctx.wait_for("h"))
        return await asyncio.gather(a, b)

    async with world.engine(w, work=False) as e:
        r = await e.start(w)
        await e.run_due()
        await e.signal("h", 1)
        await e.signal("h", 2)
        await e.run_due()
        print(await r.result(1))
        await drained(e)


async def test_weird_keys_hooks(world):
    @workflow
    async def w(ctx, name):
        return await ctx.wait_for(name)

    async with world.engine(w, work=False) as e:
        for name in ["a" * 300, "ü", "a:b#0", "x\ny", "\ud800", "\0", "a" * 5000]:
            try:
                r = await e.start(w, name)
            except Exception as x:
                print(repr(name[:9]), "start", repr(x)[:100])
                continue
            await e.run_due()
            try:
                await e.signal(name, 1)
            except Exception as x:
                print(repr(name[:9]), repr(x)[:100])
            await e.run_due()
            s = await r.status()
            print(repr(name[:9]), s.status)
            if s.ended_at:
                try:
                    print(await r.result(1))
                except RunFailed as x:
                    print(x)


async def test_clock_jumps(world):
    @workflow
    async def w(ctx):
        t = [ctx.now()]
        await ctx.sleep(10)
        t.append(ctx.now())
        await ctx.step(step(lambda: 1, name="x"))
        t.append(ctx.now())
        await ctx.sleep(10)
        t.append(ctx.now())
        return [str(x) for x in t]

    async with world.engine(w, work=False) as e:
        r = await e.start(w)
        await e.run_due()
        world.clock.advance(timedelta(days=4000))
        await e.run_due()
        try:
            world.clock.set_ms(1)
        except Exception as x:
            print(repr(x))
        with suppress(Exception):
            world.clock.advance(timedelta(days=-3999))
        await e.run_due()
        world.clock.advance(timedelta(days=8000))
        await e.run_due()
        print(await r.result(1))


async def test_args_mutate(world):
    seen = []

    async def s(x):
        seen.append(list(x))
        await asyncio.sleep(0)
        x.append(9)
        return x

    @workflow
    async def w(ctx, xs):
        f = ctx.step(step(s, name="s"), xs)
        xs.append(2)
        a = await f
        xs.append(3)
        b = await ctx.step(step(s, name="s"), xs)
        return [xs, a, b]

    async with world.engine(w, work=False) as e:
        r = await e.start(w, [1])
        await e.run_due()
        print(await r.result(1), seen)


async def test_ask_edge(world):
    @workflow
    async def w(ctx):
        a = await ctx.ask("q", [Option("a", "A")], expires=timedelta(seconds=10), by=["bob"])
        return [a.option_id, a.by, a.expired]

    async with world.engine(w, work=False) as e:
        r = await e.start(w)
        await e.run_due()
        (p,) = await r.prompts()
        x = await e.answer(p.prompt_id, option_id="a", by="eve")
        print(x.status, x.reason)
        await e.run_due()
        world.advance(seconds=11)
        x = await e.answer(p.prompt_id, option_id="a", by="bob")
        print(x.status, x.reason)
        await e.run_due()
        print(await r.result(1))
        x = await e.answer(p.prompt_id, option_id="a", by="bob")
        print(x.status, x.reason)
        await drained(e)
