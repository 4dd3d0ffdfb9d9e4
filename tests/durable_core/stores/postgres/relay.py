"""Something between a store and its server that can say what a server says while it stops, or nothing, as one that is gone.

What lives here: passing bytes on, and a FATAL that no end of the connection follows. What does not: what a store makes of it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sqlalchemy import make_url

PORT = 5432
_FIELDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
FATAL = b"E" + (len(_FIELDS) + 4).to_bytes(4, "big") + _FIELDS


class Relay:
    """Passes on what clients and the server say.

    After `stop` every client was told that the server ends, and hears nothing more; after `fall_silent` nobody hears anything.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._meeting: set[asyncio.Task[None]] = set()
        self._silent = False

    @classmethod
    @asynccontextmanager
    async def before(cls, url: str) -> AsyncIterator[tuple[Relay, str]]:
        """Stand before the server of a URL; gives the relay, and the URL that leads through it."""
        there = make_url(url)
        folder = Path(tempfile.mkdtemp(prefix="moor-rl-", dir="/tmp"))  # a socket's path is short
        relay = cls(Path(str(there.query["host"])) / f".s.PGSQL.{PORT}")
        server = await asyncio.start_unix_server(relay._meet, folder / f".s.PGSQL.{PORT}")
        try:
            yield relay, there.set(query={"host": str(folder)}).render_as_string()
        finally:
            server.close()
            meeting = tuple(relay._meeting)
            for task in meeting:
                task.cancel()
            await asyncio.gather(*meeting, return_exceptions=True)
            shutil.rmtree(folder)

    def stop(self) -> None:
        """Tell every client that the server ends. Their connections stay open, and nobody listens on them."""
        for task, client in tuple(self._open.items()):
            task.cancel()
            client.write(FATAL)

    def fall_silent(self) -> None:
        """Pass nothing on any more, for those who come later either."""
        self._silent = True
        for task in tuple(self._open):
            task.cancel()

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        meeting = asyncio.create_task(self._serve(reader, writer))
        self._meeting.add(meeting)
        meeting.add_done_callback(self._meeting.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(asyncio.sleep(0) if self._silent else self._pass_on(reader, writer))
        self._open[task] = writer
        try:
            await asyncio.wait({task})
            while await reader.read(65_536):
                pass  # a client that closes is let go
        except OSError:
            pass
        finally:
            task.cancel()
            await asyncio.wait({task})
            self._open.pop(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._socket)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, to_server))
                both.create_task(_copy(from_server, writer))
        finally:
            to_server.close()
            with suppress(OSError):
                await to_server.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
