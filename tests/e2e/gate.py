"""A gate at which tools wait in the middle of their work, so that a test acts exactly then.

What lives here: the test's side of the socket that `app.Outside` connects to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.e2e.app import GATE


class Gate:
    """Tools that came to the gate, in their order; all go on when it opens or is gone."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[str] = asyncio.Queue()
        self._open = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def at(cls, folder: Path) -> AsyncIterator[Gate]:
        gate = cls()
        server = await asyncio.start_unix_server(gate._come, folder / GATE)
        try:
            yield gate
        finally:
            gate.open()
            server.close()
            await server.wait_closed()
            (folder / GATE).unlink(missing_ok=True)

    def open(self) -> None:
        self._open.set()

    async def arrived(self) -> str:
        """Return the key of the next call that came."""
        async with asyncio.timeout(10):
            return await self._arrived.get()

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self._arrived.put_nowait((await reader.readline()).decode().strip())
            gone = asyncio.ensure_future(reader.read())
            opened = asyncio.ensure_future(self._open.wait())
            await asyncio.wait({gone, opened}, return_when=asyncio.FIRST_COMPLETED)
            opened.cancel()
            gone.cancel()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
