"""The process that is killed: the whole app on one folder, over HTTP on a loopback port, until SIGTERM or death.

What lives here: that process, and the zygote: a process with everything imported that forks one for each line it reads, so
that a start costs no imports. What does not: the tests' side (fleet.py). Run it as `python -m tests.e2e.process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import selectors
import signal
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from bot.console.page import install_console
from bot.runtime import open_runtime
from bot.server.app import build_app
from bot.settings import Settings
from durable_core import failpoints
from durable_core.stores.sqlite import store as _store
from durable_core.worker import WorkerOptions
from tests.e2e.account import PROVIDER_FILE, PUBLIC_FILE, hurry, url_of
from tests.e2e.app import build
from tests.e2e.data import database_url
from tests.e2e.shop import build_shop, is_shop

__all__ = ["CONSOLE_KEY", "HITS", "KEYS", "LEASE", "main", "settings_of"]

KEYS = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
CONSOLE_KEY = "crash-test"
LEASE = 60.0
PUBLIC_URL = "http://127.0.0.1:8700"
"""Where nobody signs in, unless the folder names another: the shop's agent could, so that it has to have one."""
HITS = "hits"
"""With E2E_COUNT set: the file that gets a line for each failpoint passed."""
COUNT_VARIABLE = "E2E_COUNT"
DRAIN_VARIABLE = "E2E_DRAIN_SECONDS"

_ = _store  # imported at first use otherwise, in each fork anew
with contextlib.suppress(ImportError):
    import durable_core.stores.postgres.store  # noqa: F401 - same


def settings_of(folder: Path) -> Settings:
    public_url, provider = url_of(folder, PUBLIC_FILE) or PUBLIC_URL, url_of(folder, PROVIDER_FILE)
    return Settings(
        folder,
        database_url(folder),
        encryption_keys=KEYS,
        deployment="v1",
        public_url=public_url,
        trusted_origins=(provider,) if provider else (),
    )


async def serve(folder: Path, order: str, drain_seconds: float) -> None:
    """Run the app; say on stdout when it listens."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _show_tasks)
    options = WorkerOptions(lease=LEASE)
    if url_of(folder, PROVIDER_FILE):
        hurry()
    bot = build_shop(folder) if is_shop(os.environ) else build(folder)
    runtime = await open_runtime(bot, settings_of(folder), role="all", console=True, options=options)
    app = build_app(runtime)
    if runtime.console is None:
        raise RuntimeError("no console")
    install_console(app, runtime.console, key=CONSOLE_KEY, public_port=0)
    await runtime.start()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    _tell({"ready": order, "port": runner.addresses[0][1]})
    await stop.wait()
    await asyncio.gather(runtime.drain(drain_seconds), runner.cleanup())
    await runtime.close()


def _tell(line: dict[str, Any]) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())


def _show_tasks() -> None:
    """Say in the log what everything waits for: asked by a test when a process doesn't end."""
    for task in asyncio.all_tasks():
        task.print_stack(limit=6, file=sys.stderr)
    sys.stderr.flush()


def _child(order: dict[str, Any]) -> None:
    folder = Path(order["folder"])
    log = os.open(folder / "process.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.dup2(log, 2)
    os.environ.update(order["env"])
    failpoints.arm_from(os.environ)
    if os.environ.get(COUNT_VARIABLE):
        _count_hits(folder)
    asyncio.run(serve(folder, order["id"], float(os.environ.get(DRAIN_VARIABLE, "10"))))


def _count_hits(folder: Path) -> None:
    hits = os.open(folder / HITS, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    for name in sorted(failpoints.FAILPOINTS):
        failpoints.arm(name, lambda name=name: _ignore(os.write(hits, f"{name}\n".encode())))  # type: ignore[misc]


def _ignore(_: int) -> None:
    return None


def main() -> None:
    """Fork a process for each order on stdin; tell of starts and ends; take all children along when stdin closes."""
    children: dict[int, str] = {}
    wakeup, signalled = os.pipe()
    os.set_blocking(signalled, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(signalled)
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(wakeup, selectors.EVENT_READ)
        pending = b""
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if wakeup in ready:
                os.read(wakeup, 4096)
                _reap(children)
            if 0 in ready:
                read = os.read(0, 65536)
                if not read:
                    break
                *orders, pending = (pending + read).split(b"\n")
                for order in orders:
                    _start(json.loads(order), children)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    while children:
        pid, _status = os.wait()
        children.pop(pid, None)


def _start(order: dict[str, Any], children: dict[int, str]) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            _child(order)
            code = 0
        except BaseException:  # noqa: BLE001 - the child ends here, whatever happened
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    children[pid] = order["id"]
    _tell({"started": order["id"], "pid": pid})


def _reap(children: dict[int, str]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        _tell({"ended": children.pop(pid), "status": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    main()
