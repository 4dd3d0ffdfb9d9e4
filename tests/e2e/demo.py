"""The real demo in processes of its own.

What lives here: starting, reading, stopping and killing `moorings demo`. What does not: expectations, browsers.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.bot.command import environment

PATIENCE = 60.0
_ADDRESS = re.compile(r"^Moorings console: (http://127\.0\.0\.1:(\d+)/console/\?k=(\S+))$")


class Demo:
    """The demo on a data folder: a web process and the worker that is its child. Only what it started is ever ended."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        within: Callable[..., list[str]] = lambda *command: list(command),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.port = port
        self._within = within
        self._env = environment() | dict(variables or {})
        self.address = ""
        self.key = ""
        self._lines: list[str] = []
        self._heard = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Demo:
        """Start it and wait for the address that it prints; a later start takes the same port."""
        options = ["--no-open", "--port", str(self.port), "--data", str(self.data)]
        command = self._within(sys.executable, "-m", "bot", "demo", *options)
        self._process = subprocess.Popen(
            command, cwd=self.data.parent, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        [found] = self.said(_ADDRESS)
        self.address, self.port, self.key = found[1], int(found[2]), found[3]
        return self

    def said(self, pattern: str | re.Pattern[str], *, times: int = 1) -> list[re.Match[str]]:
        """Wait until its terminal shows a line of this form so often, and return the matches."""

        def matches() -> list[re.Match[str]]:
            return [found for line in self._lines if (found := re.search(pattern, line))]

        deadline = time.monotonic() + PATIENCE
        with self._heard:
            while len(found := matches()) < times and self._reader is not None:
                if not self._heard.wait(timeout=deadline - time.monotonic()) or time.monotonic() > deadline:
                    raise AssertionError(f"not said {times} times: {pattern!r} in {self._lines}")
        return found

    def stop(self) -> int:
        """Ask it to stop, as a person would with Ctrl-C, and return its exit code."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=PATIENCE + 10)
        self._ended()
        return code

    def kill(self) -> None:
        """Kill both processes at once; returns when both are gone."""
        process = self._running()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):  # a worker that saw its parent die is gone by itself
                os.kill(pid, signal.SIGKILL)
        process.wait(timeout=PATIENCE)
        self._ended()

    def ensure_stopped(self) -> None:
        if self._process is not None:
            self.stop()

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def _ended(self) -> None:
        """Both processes write to one pipe: it ends when the last of them has."""
        assert self._reader is not None
        assert self._process is not None
        self._reader.join(timeout=PATIENCE)
        assert not self._reader.is_alive(), "something still holds the demo's terminal"
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = self._reader = None
        self._lines = []

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self._lines.append(line.rstrip("\n"))
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()
