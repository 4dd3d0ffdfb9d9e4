"""The command in a real process.

What lives here: starting `python -m bot` in an empty folder and reading what it says. What does not: expectations.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import bot

ROOT = Path(bot.__file__).resolve().parent.parent
STUBS = ROOT / "tests" / "bot" / "apps" / "stubs"
_AS_SCRIPT = "import sys; sys.path.pop(0); from bot.cli import main; sys.argv[0] = 'moorings'; main()"


def environment(*, stubs: bool = False, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOORINGS_", "STUB_", "SLACK_"))}
    path = [str(STUBS)] if stubs else []
    return kept | {"PYTHONPATH": os.pathsep.join([*path, str(ROOT)]), "PYTHONWARNINGS": "error"} | variables


def run(
    folder: Path, *arguments: str, script: bool = False, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end: `script` as the installed `moorings` would, else as `python -m bot`."""
    how = ["-c", _AS_SCRIPT] if script else ["-m", "bot"]
    return subprocess.run(
        [sys.executable, *how, *arguments],
        cwd=folder,
        env=dict(env) if env is not None else environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Return the sentence of a command that refused to start."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("moorings: ")
    return line.removeprefix("moorings: ")


class Running:
    """A command that runs; what it says is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    def until(self, pattern: str) -> re.Match[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"ended without {pattern!r}: {self.said}")

    def end(self) -> int:
        """Read to the end and return the exit code."""
        assert self.process.stdout is not None
        self.said += self.process.stdout.read().splitlines()
        return self.process.wait(timeout=60)


@contextmanager
def running(folder: Path, *arguments: str, env: Mapping[str, str]) -> Iterator[Running]:
    with subprocess.Popen(
        [sys.executable, "-m", "bot", *arguments],
        cwd=folder,
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()
