"""A network of its own: a namespace with nothing but a loopback, for a program that would listen on every interface.

What lives here: making it, running programs in it, and the one way in, a Unix socket. What does not: those programs.
Run as `python -m tests.e2e.island SOCKET PORT`, within the namespace, it is that way in.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.bot.command import ROOT, environment

_IS_UP = "the island is there"
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


class NoIsland(Exception):
    """This machine makes no namespaces for this user."""


class Island:
    """A namespace as long as the block lasts; `socket` leads to a loopback port in it."""

    def __init__(self, folder: Path, *, port: int) -> None:
        self.socket = folder / "island.sock"
        self._port = port
        self._holder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Make it. Raises: NoIsland."""
        if not (shutil.which("unshare") and shutil.which("nsenter")):
            raise NoIsland("no unshare or no nsenter here")
        command = ["unshare", "-rn", sys.executable, "-m", "tests.e2e.island", str(self.socket), str(self._port)]
        pipe = subprocess.PIPE
        self._holder = subprocess.Popen(command, cwd=ROOT, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self._holder.stdout is not None
        if _IS_UP not in self._holder.stdout.readline():
            said = self._end()
            raise NoIsland(said.strip().splitlines()[-1] if said.strip() else "unshare failed")
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def within(self, *command: str) -> list[str]:
        """Return the command that runs another one in here; it keeps its process id."""
        assert self._holder is not None
        return ["nsenter", f"--target={self._holder.pid}", "--user", "--net", "--preserve-credentials", *command]

    def _end(self) -> str:
        """End the holder, which lives until its input closes, and return what it said on stderr."""
        assert self._holder is not None
        _, said = self._holder.communicate(timeout=20)
        return said


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _hold(path: str, port: int) -> None:
    async def let_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass_on(reader, there_writer), _pass_on(there_reader, writer))
        for one in (writer, there_writer):
            one.close()

    await asyncio.start_unix_server(let_in, path)
    print(_IS_UP, flush=True)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    await ended.wait()


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


if __name__ == "__main__":
    _loopback_up()
    asyncio.run(_hold(sys.argv[1], int(sys.argv[2])))
    os._exit(0)  # connections may still be open
