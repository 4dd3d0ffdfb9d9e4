"""A thread that owns one connection and runs operations on it for the event loop.

What lives here: the queue, the futures, opening and closing. What does not: what a batch is (`writer.py`, `reader.py`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from durable_core.errors import Unavailable
from durable_core.stores.sqlite.connect import sorted_error
from durable_core.stores.sqlite.tx import Tx

T = TypeVar("T")

BATCH: Final = 128
"""Most operations in one transaction: from here on a bigger group gains nothing."""


class Op(Generic[T]):
    """One operation on its way: what to run, and what became of it."""

    __slots__ = ("error", "future", "label", "plain", "result", "soft", "work")

    def __init__(
        self,
        work: Callable[[Tx], T],
        future: asyncio.Future[T] | concurrent.futures.Future[T],
        *,
        label: str | None = None,
        plain: bool = False,
        soft: bool = False,
    ) -> None:
        self.work = work
        self.future = future
        self.label = label
        """Which failpoints its commit passes."""
        self.plain = plain
        """Run outside a transaction."""
        self.soft = soft
        """Needs to survive this process, not the machine: what a worker holds dies with the machine anyway."""
        self.result: T | None = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Answer the caller, unless it has gone."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]  # None only where T is


class SqlThread:
    """Runs operations in the order they came; subclasses say how a batch is run."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._queue: queue.SimpleQueue[list[Op[Any]] | None] = queue.SimpleQueue()
        self._waiting: list[Op[Any]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None

    # ── on the loop ──

    async def open(self) -> None:
        """Start, and return once connected."""
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        self._gone = self._loop.create_future()
        self._thread.start()
        await self._ready

    async def close(self) -> None:
        """Run what was accepted, then disconnect."""
        gone, self._loop = self._gone, None
        if gone is None:
            return
        self._flush()
        self._queue.put(None)
        await asyncio.shield(gone)
        self._thread.join()  # it has nothing left to do but to return

    async def run(self, work: Callable[[Tx], T], *, label: str | None = None, plain: bool = False, soft: bool = False) -> T:
        """Run an operation and return its result. A caller that is cancelled doesn't stop it: its result is dropped.

        Raises:
            Unavailable, Broken: the database's own faults; else what `work` raises.
        """
        loop = self._loop
        if loop is None:
            raise Unavailable("the store is not open")
        answer: asyncio.Future[T] = loop.create_future()
        # Callers that run in the same turn of the loop hand over together: they share one commit.
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.append(Op(work, answer, label=label, plain=plain, soft=soft))
        return await answer

    def run_beside(self, work: Callable[[Tx], T], *, patience: float, soft: bool = False) -> T:
        """Run an operation for another thread and return its result, whether or not the loop answers.

        Raises:
            Unavailable: it was not done within `patience` seconds; it may still be.
            Broken: the database's own fault; else what `work` raises.
        """
        if self._loop is None:
            raise Unavailable("the store is not open")
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._queue.put([Op(work, answer, soft=soft)])
        try:
            return answer.result(patience)
        except concurrent.futures.TimeoutError:
            raise Unavailable(f"the writer has not come to it within {patience:g} s") from None

    def _flush(self) -> None:
        if self._waiting:
            ops, self._waiting = self._waiting, []
            self._queue.put(ops)

    def _answer(self, ops: Sequence[Op[Any]], changed: frozenset[str]) -> None:
        for op in ops:
            op.settle()

    # ── on the thread ──

    def _run(self, connection: sqlite3.Connection, ops: list[Op[Any]]) -> frozenset[str]:
        """Run a batch, leave a result or an error in each, and return the runs that changed."""
        raise NotImplementedError

    def _main(self) -> None:
        loop, ready, gone = self._loop, self._ready, self._gone
        if loop is None or ready is None or gone is None:
            return
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the opener waits for it
            _tell(loop, _fail, ready, error)
            _tell(loop, _done, gone)
            return
        _tell(loop, _done, ready)
        try:
            self._serve(connection, loop)
        finally:
            connection.close()
            _tell(loop, _done, gone)

    def _serve(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        held: list[Op[Any]] = []
        open_ = True
        while open_ or held:
            if not held:
                got = self._queue.get()
                if got is None:
                    return
                held = got
            while open_ and len(held) < BATCH:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    open_ = False
                else:
                    held += more
            ops, held = held[:BATCH], held[BATCH:]
            try:
                changed = self._run(connection, ops)
            except BaseException as error:  # noqa: BLE001 - a batch that dies must not leave its callers waiting
                changed = frozenset()
                fault = sorted_error(error) if isinstance(error, sqlite3.Error) else error
                for op in ops:
                    op.error = op.error or fault
            _answer_threads(ops)
            _tell(loop, self._answer, ops, changed)


def _answer_threads(ops: Sequence[Op[Any]]) -> None:
    for op in ops:
        if isinstance(op.future, concurrent.futures.Future):
            op.settle()


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, *arguments)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
