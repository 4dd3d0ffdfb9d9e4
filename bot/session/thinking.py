"""One model call under a claim: streamed to the event list, stopped when something came in that changes it, bounded in silence.

What lives here: the call and its live text. What does not: retries between attempts (runner.py), providers (bot/models/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import JsonValue

from bot.edge import being_cancelled, storable, wording
from bot.errors import ModelFailed
from bot.model import Model, ModelReply, ModelRequest
from bot.session.batch import Grace, Reconsider, let_go
from bot.session.commits import event_draft
from bot.session.live import LiveSession
from bot.session.private import private_of
from bot.session.replies import clean_failure, scrubbed
from bot.turn.change import Draft
from bot.turn.state import Turn
from durable_core import codec
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

    def __init__(self, store: Store, session: LiveSession, turn: Turn, *, most: int = codec.LIMIT) -> None:
        self._left = most
        self._store = store
        self._session = session
        self._turn = turn
        self._buffer: list[str] = []
        self._flusher: asyncio.Task[None] | None = None
        self._sleeping = False
        self._closed = False
        self.error: BaseException | None = None
        """What writing met; it ends the call, whatever the model does about it."""
        self.began = False
        self.flushed = False
        self.heard = asyncio.Event()

    async def on_text(self, delta: str) -> None:
        """Take a piece of the reply."""
        if not delta or self._closed:
            return
        delta = storable(delta)
        self._left -= len(delta)
        if self._left < 0:
            self.error = ModelFailed("bad_reply", "the model's reply is too large to keep", retryable=False)
            self.close()
            self.heard.set()
            return
        self.began = True
        self.heard.set()
        self._buffer.append(delta)
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._later())
        elif self._flusher.done():
            self._raise()
            self._flusher = asyncio.create_task(self._later())

    async def finish(self) -> None:
        """Write what is left, if readers have begun to see this text; a whole short reply comes with the commit."""
        flusher, self._flusher = self._flusher, None
        if flusher is not None:
            if self._sleeping:
                flusher.cancel()
            await asyncio.wait({flusher})
            self._raise()
        self._raise()
        if self.flushed:
            await self._flush()

    def close(self) -> None:
        """Take no more: a model that was left alone may go on, but nobody hears it."""
        self._closed = True
        if self._flusher is not None:
            self._flusher.cancel()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    async def _later(self) -> None:
        self._sleeping = True
        try:
            await asyncio.sleep(FLUSH_SECONDS)
        finally:
            self._sleeping = False
        try:
            await self._flush()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - raised by whoever awaits next
            self.error = error
            self.heard.set()

    async def _flush(self) -> None:
        if not self._buffer:
            return
        text = "".join(self._buffer)
        self._buffer.clear()
        self.flushed = True
        data: dict[str, JsonValue] = {"turn_id": self._turn.turn_id, "step_index": self._turn.step_index, "delta": text}
        data |= private_of(self._session.history, self._turn)
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
    grace: Grace,
    most: int = codec.LIMIT,
) -> ModelReply:
    """Make one model call.

    ``stops`` looks at what came in, given whether text was shown already, and says whether to give this call up.
    Raises: ModelFailed, Reconsider, LeaseLost.
    """
    live = LiveText(store, session, turn, most=most)
    task = asyncio.create_task(_asked(model, request, live), name=f"model-{session.run_id}")
    try:
        await _wait(task, session, live, stops, patience)
        await live.finish()
    finally:
        await let_go([task], seconds=grace.drain if being_cancelled() else grace.stop)
        if live.began:
            await live.finish()
        live.close()
    if task.cancelled():
        raise ModelFailed("model_error", "CancelledError: the model's own code cancelled the call", retryable=True)
    return scrubbed(task.result(), most=most)


async def _asked(model: Model, request: ModelRequest, live: LiveText) -> object:
    # SystemExit and KeyboardInterrupt must not reach the task: it would raise them out of the event loop.
    try:
        return await model.reply(request, live.on_text)
    except asyncio.CancelledError:
        raise
    except ModelFailed as error:
        raise clean_failure(error) from error
    except BaseException as error:
        raise ModelFailed("model_error", wording(error), retryable=True) from error


async def _wait(
    task: asyncio.Task[object],
    session: LiveSession,
    live: LiveText,
    stops: Callable[[bool], Awaitable[bool]],
    patience: Patience,
) -> None:
    changed = session.held.changed
    while not task.done() and live.error is None:
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
