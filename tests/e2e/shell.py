"""The guides' shell blocks, run as a reader would.

What lives here: a folder with the command on its PATH, and running a block in it. What does not: expectations.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bot.command import Running, environment

EXAMPLE = "http://127.0.0.1:8700"


def prepared(folder: Path) -> dict[str, str]:
    """Put a `moorings` into the folder and return an environment that finds it."""
    command = folder / "bin" / "moorings"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m bot "$@"\n')
    command.chmod(0o755)
    env = environment()
    return env | {"PATH": f"{command.parent}{os.pathsep}{env['PATH']}"}


def against(block: str, base: str, folder: Path, *, env: dict[str, str]) -> str:
    """Run a block against a server and return what it printed; any command that fails fails it."""
    assert EXAMPLE in block
    script = block.replace(EXAMPLE, base)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def started(block: str, folder: Path, *, env: dict[str, str]) -> Iterator[str]:
    """Run a block that ends in `moorings start`, on a free port, and give the address that it prints."""
    head, separator, tail = block.rpartition("moorings start")
    assert separator
    script = f"{head}exec moorings start{tail} --port 0"
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        running = Running(process)
        try:
            yield running.until(r"Listening on (http://\S+)")[1]
        finally:
            process.terminate()
            assert running.end() == 0, running.said
