"""Starting, dying and starting again, and what a process weighs while it is idle.

What lives here: real kills of real processes. What does not: whether nothing is lost (the crash matrix).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from tests.bench.http import connected
from tests.bench.processes import Server, demonstrating, launched, prepare, ready, rss, serving
from tests.bench.tables import Row, median
from tests.bench.turns import create

ROUNDS = 5


async def killed(folder: Path) -> list[Row]:
    """Kill -9 in a slow tool; the seconds until the tool runs again."""
    return [await _killed_whole(folder / "all"), await _killed_child(folder / "demo")]


async def _killed_whole(folder: Path) -> Row:
    prepare(folder)
    took, starts = [], []
    for _ in range(ROUNDS):
        async with serving(folder) as server, connected(server.port) as http:
            session_id = (await create(http, "wait"))["session_id"]
            await server.line(f"wait {session_id}")
            await server.kill()
            async with launched(folder) as again:
                _, line = await again.line(f"wait {session_id}")
                took.append(int(line.split()[2]) / 1e9 - again.started)
                starts.append(await ready(again, "Listening on"))
                async with connected(again.port) as other:
                    await other.post(f"/v1/sessions/{session_id}/reset", {})
    note = f"new process → tool again, median of {ROUNDS}; ready after {median(starts):.2f} s"
    return Row("kill -9 in a slow tool, `role=all` restarted → rerun", f"{median(took):.2f} s", note)


async def _killed_child(folder: Path) -> Row:
    folder.mkdir(parents=True)
    took = []
    async with demonstrating(folder) as server:
        await ready(server, "Moorings console")
        for _ in range(ROUNDS):
            async with connected(server.port) as http:
                session_id = (await create(http, "slow 60"))["session_id"]
                await server.line("slow: start", after=len(server.lines))
                place, began = len(server.lines), time.monotonic()
                os.kill(server.children()[0], signal.SIGKILL)
                took.append((await server.line("slow: start", after=place))[0] - began)
                await http.post(f"/v1/sessions/{session_id}/reset", {})
    return Row("kill -9 of the demo's worker → rerun", f"{median(took):.2f} s", f"the web process lives on, median of {ROUNDS}")


async def started(folder: Path) -> list[Row]:
    """Process start → ready, for a server and for the demo, new and again."""
    prepare(folder / "all")
    server = [await _server_ready(folder / "all") for _ in range(ROUNDS)]
    new = [await _first_page(folder / f"demo{place}") for place in range(ROUNDS)]
    again = [await _first_page(folder / "demo0") for _ in range(ROUNDS)]
    return [
        Row("process start → /readyz, `start`", f"{median(server):.2f} s", f"median of {ROUNDS}"),
        Row("`moorings demo` → first page, new folder", f"{median(new):.2f} s", f"schema made; median of {ROUNDS}"),
        Row("`moorings demo` → first page, again", f"{median(again):.2f} s", f"median of {ROUNDS}"),
    ]


async def _server_ready(folder: Path) -> float:
    async with launched(folder) as server:
        return await ready(server, "Listening on")


async def _first_page(folder: Path) -> float:
    folder.mkdir(parents=True, exist_ok=True)
    async with demonstrating(folder) as server:
        await ready(server, "Moorings console")
        async with connected(server.port) as http:
            _, headers, _ = await http.full("GET", server.path)
            cookie = headers["set-cookie"].partition(";")[0]
            status, _ = await http.request("GET", "/console/", headers=f"Cookie: {cookie}\r\n")
            if status != 200:
                raise RuntimeError(f"the page answered {status}")
            return time.monotonic() - server.started


async def idle(folder: Path) -> list[Row]:
    """Resident memory of each process, idle."""
    prepare(folder / "all")
    rows = []
    for role in ("all", "web", "worker"):
        async with serving(folder / "all", role=role) as server:
            await _rest(server)
            rows.append(Row(f"idle RSS, `start --role {role}`", f"{rss(server.pid):.0f} MB", "VmRSS 2 s after ready"))
    (folder / "demo").mkdir()
    async with demonstrating(folder / "demo") as server:
        await _rest(server)
        child = server.children()[0]
        rows.append(Row("idle RSS, demo: web, worker", f"{rss(server.pid):.0f} MB, {rss(child):.0f} MB", "new folder, migrated"))
    async with demonstrating(folder / "demo") as server:
        await _rest(server)
        child = server.children()[0]
        rows.append(Row("idle RSS, demo again: web, worker", f"{rss(server.pid):.0f} MB, {rss(child):.0f} MB", ""))
    return rows


async def _rest(server: Server) -> None:
    await asyncio.sleep(2)
    if server.process.returncode is not None:
        raise RuntimeError(f"the server ended: {server.lines}")
