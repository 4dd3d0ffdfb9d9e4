"""A bare HTTP/1.1 client on one kept connection: it costs a tenth of a real one, so that the server is what is measured.

What lives here: JSON requests with a length. What does not: TLS, redirects, chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson


class Http:
    """One connection to a server on this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, port: int) -> None:
        self._reader = reader
        self._writer = writer
        self._port = port

    async def get(self, path: str) -> Any:
        """Return the JSON of a 200."""
        status, body = await self.request("GET", path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body!r}")
        return orjson.loads(body)

    async def post(self, path: str, body: object, *, wanted: int = 202) -> Any:
        """Return the JSON of an accepted request."""
        status, answer = await self.request("POST", path, orjson.dumps(body))
        if status != wanted:
            raise RuntimeError(f"POST {path}: {status} {answer!r}")
        return orjson.loads(answer)

    async def request(self, method: str, path: str, body: bytes = b"", *, headers: str = "") -> tuple[int, bytes]:
        """Send one request and return status and body."""
        status, _, answer = await self.full(method, path, body, headers=headers)
        return status, answer

    async def full(self, method: str, path: str, body: bytes = b"", *, headers: str = "") -> tuple[int, dict[str, str], bytes]:
        """As `request`, with the headers."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n{headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
        answer = await self._reader.readexactly(int(found.get("content-length", "0")))
        return int(lines[0].split(" ")[1]), found, answer

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Http]:
    """Connect to a port of this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    http = Http(reader, writer, port=port)
    try:
        yield http
    finally:
        http.close()
