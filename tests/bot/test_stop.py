"""SIGTERM, in real processes: whatever an app's code does, the process ends soon.

What lives here: apps whose code blocks. What does not: an orderly drain (test_cli.py).
"""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from pathlib import Path

import pytest

from durable_core.crypto import new_key_entry
from durable_core.schema import upgrade
from tests.bot.command import environment, running

APP = '''
import asyncio, pathlib, time
from bot import Agent, Bot, ToolContext, tool
from bot.model import Finish, ModelReply, RequestedCall

def reached():
    pathlib.Path("reached").touch()

@tool
def thread(ctx: ToolContext) -> str:
    """Block a thread."""
    reached()
    time.sleep(300)

@tool
async def executor(ctx: ToolContext) -> str:
    """Block a thread of the loop's executor."""
    reached()
    await asyncio.to_thread(time.sleep, 300)

@tool
async def loop(ctx: ToolContext) -> str:
    """Block the loop."""
    reached()
    time.sleep(300)

@tool
async def deaf(ctx: ToolContext) -> str:
    """Don't heed a cancellation."""
    reached()
    for _ in range(300):
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass

class Model:
    name = "m"
    async def reply(self, request, on_text):
        return ModelReply("", (RequestedCall(request.history[-1].text, {}),), finish=Finish.TOOLS)

bot = Bot(agents=[Agent("a", Model(), instructions="x", tools=[thread, executor, loop, deaf])])
'''


@pytest.mark.parametrize("what", ["thread", "executor", "loop", "deaf"])
def test_a_process_ends_in_time_whatever_blocks(tmp_path: Path, what: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    url = f"sqlite:///{tmp_path / 'm.db'}"
    upgrade(url)
    env = environment(MOORINGS_ENCRYPTION_KEYS=new_key_entry(), MOORINGS_DATABASE_URL=url, MOORINGS_DRAIN_SECONDS="1")
    with running(tmp_path, "start", "app:bot", "--port", "0", env=env) as command:
        address = command.until(r"(http://127\.0\.0\.1:\d+)")[1]
        body = json.dumps({"message": what}).encode()
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{address}/v1/sessions", data=body, headers={"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - same
        while not (tmp_path / "reached").exists():
            assert command.process.poll() is None
            time.sleep(0.01)
        began = time.monotonic()
        command.process.send_signal(signal.SIGTERM)
        assert command.end() == 0
    assert time.monotonic() - began < 15  # 1 s to drain, 5 for what doesn't let go; by default it would be 30, without an end 300
