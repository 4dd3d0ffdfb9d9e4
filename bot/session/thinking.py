"""One model call under a claim: streamed to the event list, stopped when something came in that changes it, bounded in silence.

What lives here: the call and its live text. What does not: retries between attempts (runner.py), providers (bot/models/).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import JsonValue

from bot.errors import ModelFailed
from bot.model import Model, ModelReply, ModelRequest
from bot.session.calls import Reconsider
from bot.session.commits import event_draft
from bot.session.live import LiveSession
from bot.turn.change import Draft
from bot.turn.state import Turn
from durable_core.errors import DurableError
from durable_core.store import Store

FLUSH_SECONDS = 0.15
"""Deltas are joined over this long before they are written (CORE 12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a model may be silent, in seconds."""

    first_text: float = 90.0
    silence: float = 600.0


class LiveText:
    """Text on its way into the event list, joined over short times."""

    def __init__(self, store: Store, session: LiveSession, turn: Turn) -> None:
        self._store = store
        self._session = session
        self._turn = turn
        self._buffer: list[str] = []
        self._flusher: asyncio.Task[None] | None = None
        self._sleeping = False
        self.began = False
        self.flushed = False
        self.heard = asyncio.Event()

    async def on_text(self, delta: str) -> None:
        """Take a piece of the reply."""
        if not delta:
            return
        self.began = True
        self.heard.set()
        self._buffer.append(delta)
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._later())
        elif self._flusher.done():
            self._flusher.result()
            self._flusher = asyncio.create_task(self._later())

    async def finish(self) -> None:
        """Write what is left, if readers have begun to see this text; a whole short reply comes with the commit."""
        flusher, self._flusher = self._flusher, None
        if flusher is not None:
            if self._sleeping:
                flusher.cancel()
            (error,) = await asyncio.gather(flusher, return_exceptions=True)
            if isinstance(error, Exception):
                raise error
        if self.flushed:
            await self._flush()

    async def _later(self) -> None:
        self._sleeping = True
        try:
            await asyncio.sleep(FLUSH_SECONDS)
        finally:
            self._sleeping = False
        await self._flush()

    async def _flush(self) -> None:
        if not self._buffer:
            return
        text = "".join(self._buffer)
        self._buffer.clear()
        self.flushed = True
        data: dict[str, JsonValue] = {"turn_id": self._turn.turn_id, "step_index": self._turn.step_index, "delta": text}
        draft = event_draft(Draft(type="message.appended", data=data))
        signals = await self._store.append(self._session.run_id, self._session.epoch, (draft,))
        if signals.inbox_seq > self._session.seen or signals.cancel_pending:
            self._session.held.changed.set()


async def ask_model(
    store: Store,
    session: LiveSession,
    turn: Turn,
    model: Model,
    request: ModelRequest,
    *,
    stops: Callable[[bool], Awaitable[bool]],
    patience: Patience,
) -> ModelReply:
    """Make one model call.

    ``stops`` looks at what came in, given whether text was shown already, and says whether to give this call up.
    Raises: ModelFailed, Reconsider, LeaseLost.
    """
    live = LiveText(store, session, turn)
    task = asyncio.create_task(_asked(model, request, live), name=f"model-{session.run_id}")
    try:
        await _wait(task, session, live, stops, patience)
        await live.finish()
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(task, return_exceptions=True)
        if live.began:
            with contextlib.suppress(asyncio.CancelledError):
                await live.finish()


async def _asked(model: Model, request: ModelRequest, live: LiveText) -> ModelReply:
    try:
        return await model.reply(request, live.on_text)
    except (ModelFailed, DurableError):
        raise
    except Exception as error:
        raise ModelFailed("model_error", f"{type(error).__name__}: {error}", retryable=True) from error


async def _wait(
    task: asyncio.Task[ModelReply],
    session: LiveSession,
    live: LiveText,
    stops: Callable[[bool], Awaitable[bool]],
    patience: Patience,
) -> None:
    changed = session.held.changed
    while not task.done():
        live.heard.clear()
        limit = patience.silence if live.began else patience.first_text
        flags = {asyncio.create_task(changed.wait()), asyncio.create_task(live.heard.wait())}
        try:
            async with asyncio.timeout(limit):
                await asyncio.wait({task, *flags}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            word = "went silent" if live.began else "did not begin to answer"
            raise ModelFailed("model_timeout", f"the model {word} within {limit:g} seconds", retryable=True) from None
        finally:
            for flag in flags:
                flag.cancel()
        if changed.is_set() and not task.done():
            changed.clear()
            if await stops(live.began):
                raise Reconsider
