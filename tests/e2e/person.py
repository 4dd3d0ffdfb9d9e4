"""The other side of the wire: people and programs that post, click and ask again until they are told that it was taken.

What lives here: the client of all three doors (console, session API, a channel's webhook). What does not: processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp

from tests.e2e import plain
from tests.e2e.account import Person
from tests.e2e.fleet import Server
from tests.e2e.process import CONSOLE_KEY

GIVE_UP = 60


class NotTaken(AssertionError):
    """An answer that neither takes a request nor says to try again."""


class Client:
    """Requests that are made again, with the same keys, until they are answered."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.acknowledged = 0
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15), cookie_jar=aiohttp.DummyCookieJar())
        self._cookie = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._http.close()

    async def call(self, method: str, path: str, *, body: Any = None, key: str | None = None) -> Any:
        """Make one request, and again for as long as the process dies on it or says that it can't now."""
        headers = {"Idempotency-Key": key} if key is not None else {}
        if path.startswith("/console/"):
            headers["Cookie"] = await self._pass()
        for _ in range(GIVE_UP):
            process = await self.server.up()
            try:
                url = f"http://127.0.0.1:{process.port.result()}{path}"
                async with self._http.request(method, url, json=body, headers=headers) as response:
                    text = await response.text()
                    if response.ok:
                        self.acknowledged += method == "POST"
                        return await response.json() if "json" in response.content_type else text
                    if response.status != 503:
                        raise NotTaken(f"{method} {path}: {response.status} {text}")
            except (aiohttp.ClientError, TimeoutError, OSError):
                if not process.ended.done():
                    await asyncio.wait({process.ended}, timeout=2)
        raise NotTaken(f"{method} {path}: not answered")

    async def _pass(self) -> str:
        """Open the console page once; its cookie outlives the process."""
        while not self._cookie:
            process = await self.server.up()
            try:
                url = f"http://127.0.0.1:{process.port.result()}/console/?k={CONSOLE_KEY}"
                async with self._http.get(url, allow_redirects=False) as response:
                    self._cookie = response.headers["Set-Cookie"].partition(";")[0]
            except (aiohttp.ClientError, TimeoutError, OSError):
                await asyncio.wait({process.ended}, timeout=2)
        return self._cookie


class Door(Protocol):
    """One conversation through one door."""

    async def say(self, text: str, key: str) -> None: ...

    async def answer(self, prompt_id: str, option: str) -> bool:
        """Choose; False if the question can't be seen yet."""
        ...


@dataclass(slots=True)
class ConsoleDoor:
    """A thread of the console, as Alice."""

    client: Client
    thread: str | None = None

    async def say(self, text: str, key: str) -> None:
        body = {"author": "alice", "text": text, "client_id": key}
        where = "/console/api/threads" if self.thread is None else f"/console/api/threads/{self.thread}/messages"
        self.thread = (await self.client.call("POST", where, body=body))["thread_id"]

    async def answer(self, prompt_id: str, option: str) -> bool:
        found = await self.client.call("GET", f"/console/api/threads/{self.thread}?viewer=alice")
        value = f"{prompt_id}:{option}"
        for message in found["messages"]:
            if message["card"] and any(button["value"] == value for button in message["card"]["buttons"]):
                body = {"message_id": message["id"], "author": "alice", "value": value, "client_id": f"click-{prompt_id[-20:]}"}
                await self.client.call("POST", f"/console/api/threads/{self.thread}/clicks", body=body)
                return True
        return False

    def person(self, prompt_id: str, wait: Callable[[], Awaitable[None]], is_open: Callable[[], bool]) -> Person:
        """Return Alice, as she is asked alone to connect her account."""

        async def press(key: str) -> None:
            value = f"{prompt_id}:connect"
            for message in await self._seen():
                if message["card"] and any(button["value"] == value for button in message["card"]["buttons"]):
                    body = {
                        "message_id": message["id"],
                        "author": "alice",
                        "value": value,
                        "client_id": f"{key}-{prompt_id[-20:]}",
                    }
                    await self.client.call("POST", f"/console/api/threads/{self.thread}/clicks", body=body)

        async def told() -> list[str]:
            return [message["text"] for message in await self._seen() if message["private"]]

        return Person(self.client.server, press, told, wait, is_open)

    async def _seen(self) -> list[dict[str, Any]]:
        found = await self.client.call("GET", f"/console/api/threads/{self.thread}?viewer=alice")
        return list(found["messages"])


@dataclass(slots=True)
class ApiDoor:
    """A session of the HTTP API."""

    client: Client
    session: str | None = None
    submissions: list[str] = field(default_factory=list)

    async def say(self, text: str, key: str) -> None:
        where = "/v1/sessions" if self.session is None else f"/v1/sessions/{self.session}/messages"
        found = await self.client.call("POST", where, body={"message": text}, key=key)
        self.session = found["session_id"]
        self.submissions.append(found["submission_id"])

    async def answer(self, prompt_id: str, option: str) -> bool:
        view = await self.client.call("GET", f"/v1/sessions/{self.session}")
        if all(prompt["request_id"] != prompt_id for prompt in view["open_prompts"]):
            return False
        body = {"responses": [{"request_id": prompt_id, "option_id": option}]}
        await self.client.call("POST", f"/v1/sessions/{self.session}/responses", body=body, key=f"answer-{prompt_id}")
        return True


@dataclass(slots=True)
class PlainDoor:
    """An address of the plain channel, as Alice."""

    client: Client
    address: str = "plain-1"

    async def say(self, text: str, key: str) -> None:
        await self._post({"text": text, "key": key})

    async def answer(self, prompt_id: str, option: str) -> bool:
        value = f"{prompt_id}:{option}"
        for message in plain.shown(self.client.server.folder):
            if message["card"] and any(button["value"] == value for button in message["card"]["buttons"]):
                await self._post({"value": value, "key": f"click-{prompt_id}"})
                return True
        return False

    async def _post(self, fields: dict[str, str]) -> None:
        body = {"author": "alice", "address": self.address, **fields}
        await self.client.call("POST", "/channels/plain/events", body=body)
