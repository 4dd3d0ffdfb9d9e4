"""What a body can't do: it is stopped at once, by name and line, whatever it swallows (CORE, Replay 3, 4 and 9)."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import pytest

from durable_core import loop as loop_module
from durable_core.context import WorkflowContext
from durable_core.failures import BodyBlocked, Evicted, NotDurable, Poison
from durable_core.operations import Entry, EntryKind
from durable_core.registry import Workflow, workflow
from durable_core.replay import Replay
from tests.durable_core.plays import Play, fetch

Body = Callable[[WorkflowContext], Coroutine[Any, Any, Any]]


def poison(*args: Any, body: Workflow, **options: Any) -> Poison:
    with pytest.raises(Poison) as caught:
        Play(body, *args, **options)
    return caught.value


class TestForeignAwaits:
    async def test_rule_3_a_future_of_another_loop_is_named_with_the_line(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext, foreign: asyncio.Future[None]) -> None:
            await ctx.step(fetch, "a")
            await foreign

        foreign = asyncio.get_running_loop().create_future()
        with pytest.raises(
            NotDurable, match=r"test_replay_poison.py:\d+ \(body\): .*Future of another event loop.*use ctx.step"
        ) as caught:
            Play(body, foreign).done("step:fetch#0")
        line = body.fn.__code__.co_firstlineno + 3
        assert f":{line} " in str(caught.value)
        assert not foreign._callbacks

    async def test_the_innermost_line_of_the_authors_is_named(self) -> None:
        async def client(foreign: Awaitable[None]) -> None:
            async with asyncio.timeout(5):
                await asyncio.shield(foreign)

        @workflow
        async def body(ctx: WorkflowContext, foreign: asyncio.Future[None]) -> None:
            await client(foreign)

        error = poison(asyncio.get_running_loop().create_future(), body=body)
        assert f":{client.__code__.co_firstlineno + 2} (client)" in str(error)

    async def test_a_task_of_another_loop_is_named(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext, foreign: asyncio.Task[str]) -> None:
            await foreign

        task = asyncio.create_task(fetch("a"))
        assert "a task of another event loop (fetch)" in str(poison(task, body=body))
        await task

    async def test_what_is_no_future_at_all_is_named(self) -> None:
        class Odd:
            def __await__(self) -> Generator[Any, Any, None]:
                yield 5

        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await Odd()

        assert "a builtins.int, which is no future" in str(poison(body=body))

    async def test_a_future_of_another_body_is_foreign_too(self) -> None:
        futures = []

        @workflow
        async def lender(ctx: WorkflowContext) -> None:
            futures.append(ctx.step(fetch, "a"))
            await futures[0]

        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await futures[0]

        play = Play(lender)
        assert "of another event loop" in str(poison(body=body))
        assert play.done("step:fetch#0").result is None

    async def test_no_handler_of_the_author_sees_a_foreign_await(self) -> None:
        said: list[type] = []

        @workflow
        async def body(ctx: WorkflowContext, foreign: asyncio.Future[None]) -> None:
            try:
                await foreign
            except BaseException as error:
                said.append(type(error))
                await asyncio.sleep(1)
                raise
            finally:
                said.append(type(asyncio.get_running_loop()))

        replay = Replay(body, [asyncio.get_running_loop().create_future()], run_id="run_x", started_at=0)
        with pytest.raises(NotDurable):
            replay.start()
        assert said == []
        replay.close()
        assert said == [Evicted, loop_module.DetLoop]


SWALLOWERS: list[Body] = []


def swallower(fn: Body) -> Body:
    SWALLOWERS.append(fn)
    return fn


@swallower
async def by_base_exception(ctx: WorkflowContext) -> str:
    try:
        await asyncio.to_thread(print)
    except BaseException:  # noqa: BLE001 - this is the trap
        await ctx.step(fetch, "a")
    return "swallowed"


@swallower
async def by_finally_and_return(ctx: WorkflowContext) -> str:
    try:
        await asyncio.to_thread(print)
    finally:
        return "swallowed"  # noqa: B012 - this is the trap


@swallower
async def by_gather(ctx: WorkflowContext) -> str:
    await asyncio.gather(asyncio.to_thread(print), ctx.step(fetch, "a"), return_exceptions=True)
    return "swallowed"


@swallower
async def by_a_lost_task(ctx: WorkflowContext) -> str:
    lost = asyncio.create_task(asyncio.to_thread(print))
    await asyncio.sleep(0)
    await asyncio.wait([lost])
    return "swallowed"


@swallower
async def by_a_loop(ctx: WorkflowContext) -> str:
    for _ in range(100):
        try:
            await asyncio.to_thread(print)
        except BaseException:  # noqa: BLE001 - this is the trap
            await asyncio.sleep(0)
    return "swallowed"


@pytest.mark.parametrize("fn", SWALLOWERS, ids=lambda fn: fn.__name__)
def test_rule_3_swallowing_changes_nothing(fn: Body) -> None:
    error = poison(body=Workflow("body", fn))
    assert isinstance(error, NotDurable)
    assert "run_in_executor() in a workflow body; use ctx.step(fn, ...): sync functions run in a thread" in str(error)


def test_a_poisoned_body_is_never_driven_again() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> str:
        await ctx.step(fetch, "a")
        try:
            await asyncio.to_thread(print)
        except BaseException:  # noqa: BLE001 - this is the trap
            await ctx.step(fetch, "b")
        return "swallowed"

    play = Play(body)
    replay = play.replay
    for n in range(2):
        with pytest.raises(NotDurable):
            replay.deliver(Entry(n=n, kind=EntryKind.STEP, op=f"step:fetch#{n}"))
        assert isinstance(replay.poison, NotDurable)
        assert replay.outcome is None
    replay.close()


@pytest.mark.parametrize(
    ("name", "arguments", "use"),
    [
        ("create_connection", (None, "example.com", 80), "I/O belongs in ctx.step"),
        ("getaddrinfo", ("example.com", 80), "I/O belongs in ctx.step"),
        ("subprocess_shell", (None, "true"), "I/O belongs in ctx.step"),
        ("add_reader", (0, print), "I/O belongs in ctx.step"),
        ("add_signal_handler", (15, print), "signals belong to the app"),
        ("run_until_complete", (None,), "await it"),
        ("stop", (), "return from the workflow"),
        ("close", (), "return from the workflow"),
        ("set_debug", (True,), "no options"),
    ],
)
def test_what_a_loop_can_do_beyond_waiting_is_refused(name: str, arguments: tuple[Any, ...], use: str) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        getattr(asyncio.get_running_loop(), name)(*arguments)

    error = poison(body=body)
    assert f"loop.{name}() in a workflow body" in str(error)
    assert use in str(error)


def test_every_method_of_a_loop_is_there_or_refused() -> None:
    missing = [
        name
        for name, value in vars(asyncio.AbstractEventLoop).items()
        if callable(value) and not name.startswith("__") and getattr(loop_module.DetLoop, name) is value
    ]
    assert missing == []


class TestLibraries:
    def test_a_connection_is_refused_with_the_line_of_the_body(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await ctx.step(fetch, "a")
            await asyncio.open_connection("127.0.0.1", 9)

        with pytest.raises(NotDurable) as caught:
            Play(body).done("step:fetch#0")
        assert "loop.create_connection() in a workflow body; I/O belongs in ctx.step" in str(caught.value)
        assert f":{body.fn.__code__.co_firstlineno + 3} (body)" in str(caught.value)

    def test_an_http_client_is_refused_with_the_line_of_the_body(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> str:
            async with aiohttp.ClientSession() as session, session.get("http://localhost:9/") as reply:
                return await reply.text()

        error = poison(body=body)
        assert isinstance(error, NotDurable)
        assert f":{body.fn.__code__.co_firstlineno + 2} (body)" in str(error)

    def test_a_process_is_refused(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await asyncio.create_subprocess_exec("true")

        assert "loop.subprocess_exec() in a workflow body" in str(poison(body=body))

    def test_a_loop_of_its_own_can_not_be_run(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> str:
            coro = asyncio.sleep(0)
            try:
                asyncio.run(coro)
            except RuntimeError as error:
                return str(error)
            finally:
                coro.close()
            return "it ran"

        assert "cannot be called from a running event loop" in Play(body).result


class TestIdle:
    """Rule 4: what no yield shows."""

    async def test_rule_4_wait_on_a_future_of_another_loop_is_refused_at_once(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext, foreign: asyncio.Future[Any]) -> None:
            side: asyncio.Future[Any] = ctx.step(fetch, "a")
            await asyncio.wait({foreign, side})

        assert "of another event loop" in str(poison(asyncio.get_running_loop().create_future(), body=body))

    async def test_rule_4_a_contended_outer_lock_is_an_error_that_says_so(self) -> None:
        lock = asyncio.Lock()
        await lock.acquire()

        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await ctx.step(fetch, "a")
            async with lock:
                pass

        with pytest.raises(NotDurable, match=r"\(body\): the body waits, and nothing durable is open.*ctx.step"):
            Play(body).done("step:fetch#0")

    def test_waiting_for_nothing_is_an_error(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            await asyncio.Event().wait()

        assert "nothing durable is open" in str(poison(body=body))


class TestThreads:
    def test_rule_4_a_thread_that_calls_in_poisons(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            done = asyncio.Event()
            loop = asyncio.get_running_loop()
            with ThreadPoolExecutor(1) as pool, pytest.raises(NotDurable):
                pool.submit(loop.call_soon_threadsafe, done.set).result()
            await done.wait()

        assert "call_soon_threadsafe() on a workflow's loop; threads belong in ctx.step" in str(poison(body=body))

    def test_a_thread_that_completes_a_future_poisons(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> str:
            future = asyncio.get_running_loop().create_future()
            future.add_done_callback(print)
            thread = threading.Thread(target=future.set_result, args=("sneaked in",))
            thread.start()
            thread.join()
            return str(await future)

        assert "was scheduled from outside the body" in str(poison(body=body))

    def test_rule_4_what_is_scheduled_while_parked_poisons_the_next_delivery(self) -> None:
        futures = []

        @workflow
        async def body(ctx: WorkflowContext) -> None:
            futures.append(asyncio.get_running_loop().create_future())
            await asyncio.wait([*futures, ctx.step(fetch, "a")])

        play = Play(body)
        futures[0].set_result(None)
        with pytest.raises(NotDurable, match=r"scheduled from outside the body; what comes from outside comes by ctx.step"):
            play.done("step:fetch#0")


class TestBlocking:
    """Rule 9."""

    def test_rule_9_a_body_that_holds_its_thread_is_named_while_it_does(self, caplog: pytest.LogCaptureFixture) -> None:
        plays: list[Play] = []

        @workflow
        async def body(ctx: WorkflowContext) -> str:
            await ctx.step(fetch, "a")
            give_up = time.monotonic() + 30
            while plays[0].replay.poison is None and time.monotonic() < give_up:
                pass
            return "over"

        plays.append(Play(body, block_limit=0.02))
        with caplog.at_level(logging.WARNING, "moorings.replay"), pytest.raises(BodyBlocked) as caught:
            plays[0].done("step:fetch#0")
        first = body.fn.__code__.co_firstlineno
        assert caught.value.line is not None
        assert any(f"test_replay_poison.py:{first + n} (body)" in caught.value.line for n in (3, 4, 5))
        assert "blocking calls and long computations belong in ctx.step" in str(caught.value)
        assert "holds its thread" in caplog.text

    def test_a_body_that_spins_on_the_loop_is_stopped(self) -> None:
        @workflow
        async def body(ctx: WorkflowContext) -> None:
            while True:
                await asyncio.sleep(0)

        error = poison(body=body, block_limit=0.02)
        assert isinstance(error, BodyBlocked)
        assert error.line is not None
        assert "(body)" in error.line

    def test_one_that_gave_control_back_is_found_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Blind:
            def enter(self, watch: object) -> None: ...

            def leave(self, watch: object, outer: object) -> float:
                return 3.0

        @workflow
        async def body(ctx: WorkflowContext) -> str:
            await ctx.step(fetch, "a")
            return "over"

        monkeypatch.setattr(loop_module, "watchdog", Blind)
        error = poison(body=body, block_limit=2)
        assert isinstance(error, BodyBlocked)
        assert (error.seconds, error.limit) == (3.0, 2)
        assert error.line is not None
        assert f":{body.fn.__code__.co_firstlineno + 2} (body)" in error.line


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_an_exit_in_a_callback_ends_the_body_not_the_worker(error: BaseException) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        def leave() -> None:
            raise error

        asyncio.get_running_loop().call_soon(leave)
        await ctx.step(fetch, "a")

    assert f"a callback raised {error!r}" in str(poison(body=body))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("in_a_task", [False, True])
def test_a_body_that_raises_an_exit_fails_and_the_worker_goes_on(error: BaseException, in_a_task: bool) -> None:
    async def leave() -> None:
        raise error

    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(fetch, "a")
        await (asyncio.create_task(leave()) if in_a_task else leave())

    play = Play(body).done("step:fetch#0")
    assert isinstance(play.error, RuntimeError)
    assert f"the body raised {error!r}" in str(play.error)


def interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [signal.default_int_handler, interrupted, functools.partial(interrupted)])
@pytest.mark.parametrize("in_a_callback", [False, True])
def test_a_body_that_ctrl_c_interrupts_is_not_driven_any_more(handler: Any, in_a_callback: bool) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(fetch, "a")
        if in_a_callback:
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
            await asyncio.sleep(0)
        else:
            signal.raise_signal(signal.SIGINT)
        await ctx.step(fetch, "b")

    play = Play(body)
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            play.done("step:fetch#0")
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(Evicted):
        play.replay.deliver(Entry(n=1, kind=EntryKind.CANCEL))
    assert play.outcome is None
    play.replay.close()


def test_a_body_that_raises_generator_exit_fails() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.step(fetch, "a")
        raise GeneratorExit

    assert isinstance(Play(body).done("step:fetch#0").error, GeneratorExit)


def test_an_entry_that_can_not_be_read_ends_the_body() -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        await ctx.webhook()

    play = Play(body)
    with pytest.raises(KeyError):
        play.deliver(EntryKind.WEBHOOK, "webhook:#0", {})
    with pytest.raises(Evicted):
        play.replay.deliver(Entry(n=1, kind=EntryKind.CANCEL))
    play.replay.close()


def test_lost_errors_are_logged_once_and_not_in_replays(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def body(ctx: WorkflowContext) -> None:
        def broken() -> None:
            raise LookupError("gone")

        await ctx.step(fetch, "a")
        asyncio.get_running_loop().call_soon(broken)
        await ctx.step(fetch, "b")

    play = Play(body).done("step:fetch#0")
    assert caplog.text.count("LookupError: gone") == 1
    play.again()
    assert caplog.text.count("LookupError: gone") == 1
