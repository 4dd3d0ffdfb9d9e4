"""A server on this machine that answers whatever bytes a test wants, and counts who comes.

What lives here: the server. What does not: expectations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Answering = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Raw:
    """One server; `requests` are the heads of what came, `connections` also counts who said nothing."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.connections = 0
        self.requests: list[bytes] = []
        self.port = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            first = await reader.readexactly(1)
            if first != b"\x16":  # a TLS handshake, which nobody answers here
                head = first + await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                await self.answering(head, writer)
        writer.close()


def answer(body: bytes = b"{}", *, status: str = "200 OK", headers: str = "") -> Answering:
    """Answer everything so."""

    async def answering(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)
        await writer.drain()

    return answering


@asynccontextmanager
async def listening(answering: Answering) -> AsyncIterator[Raw]:
    raw = Raw(answering)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
