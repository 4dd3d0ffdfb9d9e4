"""The ledger: what really happened outside, kept by appending whole lines, so that a killed process loses none.

What lives here: writing and reading lines. What does not: what they mean (app.py writes them, invariants.py judges them).
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

NAME = "ledger.ndjson"


@dataclass(frozen=True, slots=True)
class Line:
    """Something that happened: a model call, the start of a tool's body, its effect, a message that a platform took."""

    what: str
    key: str
    pid: int
    at_ns: int
    attempt: int
    note: str


class Ledger:
    """One file in a process's folder; every line is one `write` to a descriptor opened with O_APPEND."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._descriptor: int | None = None

    def add(self, what: str, key: str, *, attempt: int, note: str = "") -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        line = {"what": what, "key": key, "pid": os.getpid(), "at_ns": time.time_ns(), "attempt": attempt, "note": note}
        os.write(self._descriptor, (json.dumps(line) + "\n").encode())

    def lines(self, what: str | None = None) -> list[Line]:
        if not self._path.exists():
            return []
        lines = [Line(**json.loads(text)) for text in self._path.read_text().splitlines()]
        return [line for line in lines if what in (None, line.what)]
