"""Other systems that do the same work: each a script that runs in an environment of its own, outside this checkout.

What lives here: making such environments. What does not: what is measured; nothing here is imported unless `--peers` is given.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import venv
from pathlib import Path

DBOS = "3.4.0"


def cache() -> Path:
    """Where the environments are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moorings-bench"


async def python_of(distribution: str, version: str) -> str:
    """Return the interpreter of an environment that has this distribution, made at the first call."""
    folder = cache() / f"{distribution}-{version}-{sys.implementation.cache_tag}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        await asyncio.to_thread(venv.create, folder, with_pip=True)
        await _call(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{distribution}=={version}")
        (folder / "complete").touch()
    return str(python)


async def _call(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    async with asyncio.timeout(300):
        output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {output.decode()}")
