"""Somebody else's Slack emulator, `local-slack`, with the real demo as its bot, in a network of their own.

What lives here: installing, starting and driving both. What does not: expectations, our own simulated Slack (bot/testing/).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from tests import parts
from tests.e2e.demo import Demo
from tests.e2e.island import Island, NoIsland

T = TypeVar("T")

PACKAGE = "local-slack-linux-x64"
VERSION = "0.1.8"
PORT, BOT_PORT = 4800, 8700
PATIENCE = 60.0
TOKEN, SECRET = "xoxb-test-token", "a-signing-secret-of-the-test"
GENERAL, ALICE, BOB, BOT = "C01GENERAL", "U01ALICE", "U02BOB", "U0MOORINGS"

_CONFIG = {
    "workspace": {"name": "Harbour", "domain": "harbour", "teamId": "T01HARBOUR"},
    "app": {
        "appId": "A01MOORINGS",
        "botUserId": BOT,
        "botName": "moorings",
        "botToken": TOKEN,
        "appToken": "xapp-test-token",
        "signingSecret": SECRET,
        "mode": "events",
        "requestUrl": f"http://127.0.0.1:{BOT_PORT}/channels/slack/events",
    },
    "users": [
        {"id": ALICE, "name": "alice", "real_name": "Alice Anderson"},
        {"id": BOB, "name": "bob", "real_name": "Bob Brown"},
    ],
    "channels": [{"id": GENERAL, "name": "general", "members": [ALICE, BOB, BOT]}],
}


def cache() -> Path:
    """Return where the emulator is kept from one run to the next, outside of the checkout."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "moorings-tests" / f"{PACKAGE}-{VERSION}"


def emulator() -> Path:
    """Find the emulator; a run that requires it installs it."""
    program = cache() / "node_modules" / PACKAGE / "bin" / "local-slack"
    if not program.exists() and "local-slack" in parts.required():
        _install()
    if not program.exists():
        parts.missing("local-slack", f"{PACKAGE}@{VERSION} is not installed in {cache()}")
    return program


def _install() -> None:
    npm = shutil.which("npm") or parts.missing("local-slack", "no npm on this machine")
    cache().mkdir(parents=True, exist_ok=True)
    options = ["--no-audit", "--no-fund", "--no-save", f"--prefix={cache()}"]
    command = [npm, "install", *options, f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        parts.missing("local-slack", done.stderr.strip()[-500:])


class LocalSlack:
    """The emulator as a test sees it: over its control interface."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def control(self, path: str, **body: object) -> Any:
        """Call the control interface."""
        url = f"http://local-slack/_control/{path}"
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self._socket))) as http:
            asked = http.post(url, json=body) if body else http.get(url)
            async with asked as answer:
                answer.raise_for_status()
                return await answer.json()

    async def says(self, user: str, text: str, *, channel: str = GENERAL, thread: str | None = None) -> str:
        """Have somebody write; returns the `ts`."""
        there = {"thread_ts": thread} if thread else {}
        said = await self.control("message", channel=channel, user=user, text=text, **there)
        return str(said["message"]["ts"])

    async def clicks(self, user: str, message: dict[str, Any], label: str) -> None:
        """Have somebody press a button as it was on that message, which may be an old one by now."""
        for block in message["blocks"]:
            for element in block.get("elements", ()):
                if element.get("type") == "button" and element["text"]["text"] == label:
                    action = {**element, "block_id": block["block_id"]}
                    await self.control("interact", channel=message["channel"], messageTs=message["ts"], user=user, action=action)
                    return
        raise AssertionError(f"no button {label!r} in {message['blocks']}")

    async def submits(self, user: str, values: dict[str, str]) -> None:
        """Have somebody send the form that is open for them, with these values by block, as its own page does it."""
        view = (await self.calls("views.open"))[-1]["view"]
        view = json.loads(view) if isinstance(view, str) else view
        actions = {block["block_id"]: block["element"]["action_id"] for block in view["blocks"] if block["type"] == "input"}
        given = {name: {actions[name]: {"type": "plain_text_input", "value": text}} for name, text in values.items()}
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self._socket))) as http,
            http.ws_connect("http://local-slack/ui") as page,
        ):
            await page.receive()
            await page.send_json({"t": "view_submit", "user": user, "values": given})
            await page.receive()

    async def opens(self, user: str) -> str:
        """Have somebody look at the bot's page, which opens their direct messages; returns that channel."""
        await self.control("open-home", user=user)
        channels = (await self.control("state"))["channels"]
        [found] = [str(one["id"]) for one in channels if one["is_im"] and user in one["members"]]
        return found

    async def messages(self, channel: str = GENERAL) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.control(f"messages/{channel}"))["messages"]
        return found

    async def replies(self, thread: str) -> list[dict[str, Any]]:
        """Return what the bot shows everybody in a thread."""
        messages = await self.messages()
        return [one for one in messages if one.get("thread_ts") == thread and one["user"] == BOT and not one.get("ephemeral_to")]

    async def log(self, direction: str, kind: str) -> list[dict[str, Any]]:
        """Return what went one way, in order, each with its detail as an object."""
        entries = (await self.control("log"))["log"]
        found = [entry for entry in entries if (entry["direction"], entry["kind"]) == (direction, kind)]
        return [entry | {"detail": _object(entry["detail"])} for entry in found]

    async def calls(self, method: str) -> list[dict[str, Any]]:
        """Return the arguments of the bot's calls of one method."""
        return [entry["detail"] for entry in await self.log("from_bot", "web_api") if entry["summary"] == method]


def _object(detail: Any) -> Any:
    return json.loads(detail) if isinstance(detail, str) and detail.startswith("{") else detail


@contextmanager
def local_slack(folder: Path) -> Iterator[LocalSlack]:
    """Run the emulator and the demo beside each other."""
    program = emulator()
    config = folder / "config.yaml"
    config.write_text(json.dumps(_CONFIG))  # JSON is YAML
    variables = {"SLACK_BOT_TOKEN": TOKEN, "SLACK_SIGNING_SECRET": SECRET, "SLACK_API_URL": f"http://127.0.0.1:{PORT}/api/"}
    try:
        with Island(folder, port=PORT) as island:
            options = ["--config", str(config), "--port", str(PORT), "--base-host", "127.0.0.1"]
            command = island.within(str(program), *options)
            demo = Demo(folder / "data", port=BOT_PORT, within=island.within, variables=variables)
            with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
                try:
                    _wait_for(lambda: _answers(island.socket))
                    demo.start()
                    yield LocalSlack(island.socket)
                finally:
                    demo.ensure_stopped()
                    running.terminate()
    except NoIsland as error:
        parts.missing("local-slack", f"no network namespace: {error}")


def _answers(path: Path) -> bool:
    import http.client
    import socket

    connection = http.client.HTTPConnection("local-slack", timeout=5)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(str(path))
        connection.request("GET", "/_control/state")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _wait_for(look: Callable[[], T]) -> T:
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, "the emulator does not answer"
        time.sleep(0.02)
    return found
