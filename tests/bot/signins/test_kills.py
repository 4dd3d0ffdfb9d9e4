"""kill -9 at every step between a callback and the turn or the workflow that goes on: it completes, or the person is asked again.

What lives here: two stories, killed at each failpoint of a sign-in, on SQLite and on PostgreSQL. What does not: deaths elsewhere
(tests/e2e/test_crash_matrix.py), the process (process.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import pytest

from bot.settings import DATABASE_FILE
from durable_core.failpoints import FAILPOINTS, NAME_VARIABLE
from durable_core.schema import upgrade
from tests.bot.signins.authority import Authority, authority
from tests.bot.signins.browser import Browser
from tests.bot.signins.process import URL_FILE
from tests.e2e.matrix import FULL_VARIABLE

ROOT = Path(__file__).resolve().parents[3]
SEED_VARIABLE = "MOORINGS_TEST_SEED"
PATIENCE = 30.0
LATER = 120_000
"""Longer than a code is being spent at most: what is found at it then was cut off."""
KEPT = {"connect.after_callback", "connect.after_store", "connect.before_settle"}
"""What was not yet spent, or is stored already, is completed."""
CONNECT = sorted(name for name in FAILPOINTS if name.startswith("connect."))
TOOL, WORKFLOW = "who am I?", "visit as me"
"""What is said: one is answered by a tool that acts with the account, the other by a workflow that asks for it."""


@dataclass(slots=True)
class App:
    """The app on its folder and socket, dead or alive."""

    folder: Path
    socket: socket.socket
    provider: Authority
    process: asyncio.subprocess.Process | None = None
    http: aiohttp.ClientSession = field(
        default_factory=lambda: aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE))
    )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    async def start(self, *, ahead: int = 0, environ: Mapping[str, str] = MappingProxyType({})) -> None:
        """Start it; what was sent before it listens waits in the socket."""
        number = self.socket.fileno()
        arguments = ["-m", "tests.bot.signins.process", str(self.folder), str(number), self.provider.url, str(ahead)]
        log = (self.folder / "process.log").open("ab")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MOORINGS_")}
        with log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, cwd=ROOT, env={**clean, **environ}, stderr=log, pass_fds=[number]
            )

    async def died(self) -> int:
        """Wait for its death."""
        assert self.process is not None
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        async with self.http.request(method, f"{self.url}{path}", json=body) as answer:
            told = await answer.json()
            assert answer.ok, told
            return told

    def log(self) -> str:
        return (self.folder / "process.log").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an SQLite file."""
    upgrade(f"sqlite:///{tmp_path / DATABASE_FILE}")
    return tmp_path


@pytest.fixture
def postgres_folder(tmp_path: Path, migrated_url: str) -> Path:
    """A folder that names a PostgreSQL database."""
    (tmp_path / URL_FILE).write_text(migrated_url)
    return tmp_path


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[App]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with authority() as provider:
            app = App(folder, taken, provider)
            try:
                yield app
            finally:
                await app.kill()
                await app.http.close()


async def asked(app: App, words: str) -> tuple[str, str]:
    """Say something that takes an account; the submission, and the request to sign in."""
    created = await app.call("POST", "/v1/sessions", {"message": words})
    return created["submission_id"], await open_request(app, created["session_id"])


async def open_request(app: App, session_id: str) -> str:
    async with asyncio.timeout(PATIENCE):
        while not (found := (await app.call("GET", f"/v1/sessions/{session_id}"))["open_prompts"]):
            await asyncio.sleep(0.02)
    return str(found[0]["request_id"])


async def away(app: App, browser: Browser, request_id: str) -> str:
    """Ask for a link and go as far as the provider; the address to which it sends the browser back."""
    offer = await app.call("POST", f"/v1/prompts/{request_id}/connect", {})
    await browser.open(offer["url"])
    page = await browser.press(code=offer["code"])
    assert page.next, page.text
    return (await browser.go_on(follow=False)).headers["Location"]


async def outcome(app: App, submission_id: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        while (found := await app.call("GET", f"/v1/submissions/{submission_id}?wait=20"))["done_at"] is None:
            pass
    return found


@pytest.mark.parametrize("failpoint", CONNECT)
async def test_a_death_in_the_middle_of_a_sign_in(folder: Path, failpoint: str) -> None:
    """For one of the stories, another each time; for both with MOORINGS_TEST_FULL."""
    for name, words in some([(failpoint, TOOL), (failpoint, WORKFLOW)]):
        await die_at(folder, name, words)


async def test_a_death_in_the_middle_of_a_sign_in_on_postgres(postgres_folder: Path) -> None:
    """One of them, another each time; all with MOORINGS_TEST_FULL."""
    for failpoint, words in some([(name, words) for name in CONNECT for words in (TOOL, WORKFLOW)]):
        await die_at(postgres_folder, failpoint, words)


def some(deaths: list[tuple[str, str]]) -> list[tuple[str, str]]:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**6))
    print(f"seed {seed}; again: {SEED_VARIABLE}={seed}")
    return deaths if os.environ.get(FULL_VARIABLE) else [random.Random(seed).choice(deaths)]


async def die_at(folder: Path, failpoint: str, words: str) -> None:
    """Live the story with one death in it."""
    async with running(folder) as app, Browser() as browser:
        await app.start(environ={NAME_VARIABLE: failpoint})
        submission_id, request_id = await asked(app, words)
        back = await away(app, browser, request_id)
        opening = asyncio.create_task(browser.open(back))
        assert await app.died() == -signal.SIGKILL
        spent = len(app.provider.exchanged)
        assert spent == (failpoint not in {"connect.after_callback", "connect.before_exchange"})

        await app.start(ahead=LATER)
        with contextlib.suppress(aiohttp.ClientError):  # unless it made the same request again by itself, as browsers may
            await opening
        page = await browser.open(back)  # what somebody does who sees that the page did not load
        async with asyncio.timeout(PATIENCE):
            while page.status == 200 and "alice@tracker" not in page.text:
                assert "Connected" not in page.text
                await asyncio.sleep(0.05)
                page = await browser.open(page.url)
        if failpoint not in KEPT:
            assert page.status == 400
            assert "It was cut off while Tracker was asked" in page.text
            assert len(app.provider.exchanged) == spent  # a code is never spent twice
            back = await away(app, browser, request_id)
            page = await browser.open(back)
        assert page.status == 200, page.text
        assert "alice@tracker" in page.text
        assert len(app.provider.exchanged) == spent + (failpoint not in {"connect.after_store", "connect.before_settle"})
        found = await outcome(app, submission_id)
        assert found["status"] == "completed", found
        assert "It says: alice@tracker" in str(found)
        assert "not alice@tracker" not in str(found)
        for secret in ("CANARY", back.partition("?")[2]):
            assert secret not in app.log()
