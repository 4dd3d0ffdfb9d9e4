"""What a call says of itself while it runs, on its way into the event list.

What lives here: joining progress texts over short times, best effort. What does not: the call (calls.py), the reply's text.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from bot.edge import storable
from durable_core.errors import LeaseLost

log = logging.getLogger("moorings.session")

PROGRESS_LIMIT = 2_000
PROGRESS_SECONDS = 0.25
"""A call writes at most one progress event in this time; the newest text wins."""


class Progress:
    """The progress of one call. Nothing it meets fails the call, but a lost lease: ``on_lost`` is called then."""

    def __init__(
        self, write: Callable[[str], Awaitable[None]], *, on_lost: Callable[[], object], every: float = PROGRESS_SECONDS
    ) -> None:
        self._write = write
        self._on_lost = on_lost
        self._every = every
        self._text: str | None = None
        self._pump: asyncio.Task[None] | None = None
        self._pausing = False
        self._closed = False
        self.lost: LeaseLost | None = None

    async def tell(self, text: object) -> None:
        """Take a text; it is written soon, unless a newer one comes first."""
        if self._closed:
            return
        try:
            self._text = storable(str(text)[:PROGRESS_LIMIT])
        except Exception:
            log.exception("a progress text could not be read")
            return
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())

    async def finish(self) -> None:
        """Write the newest text if it is not written yet, and take no more. Raises: LeaseLost."""
        self._closed = True
        if self._pump is not None:
            if self._pausing:
                self._pump.cancel()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait({self._pump})
        await self._flush()
        if self.lost is not None:
            raise self.lost

    def close(self) -> None:
        """Write nothing any more."""
        self._closed = True
        self._text = None
        if self._pump is not None:
            self._pump.cancel()

    async def _run(self) -> None:
        while self._text is not None:
            await self._flush()
            self._pausing = True
            try:
                await asyncio.sleep(self._every)
            finally:
                self._pausing = False

    async def _flush(self) -> None:
        text, self._text = self._text, None
        if text is None or self.lost is not None:
            return
        try:
            await self._write(text)
        except LeaseLost as error:
            self.lost = error
            self._on_lost()
        except Exception as error:  # noqa: BLE001 - best effort: the call is worth more than a word about it
            log.warning("progress was not written: %s", error)
