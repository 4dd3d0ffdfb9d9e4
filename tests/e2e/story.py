"""The stories that are cut off: what is said, through which door, and what is answered when a person is asked.

What lives here: driving one conversation to its end, through deaths. What does not: killing, judging.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from bot.settings import DATABASE_FILE
from durable_core.lifeline import Lifeline
from tests.e2e.data import has_file, reading
from tests.e2e.fleet import Server
from tests.e2e.person import ApiDoor, Client, ConsoleDoor, Door, PlainDoor

LOOK_SECONDS = 0.25
"""How long a lost ring may go unnoticed."""
DEAF_SECONDS = 0.05
"""How often is looked where nothing rings."""


class Through(StrEnum):
    CONSOLE = "console"
    API = "api"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Story:
    """What one person says and does. `again` is the answer to "run it again?"."""

    name: str
    through: Through
    said: tuple[str, ...]
    again: str = "rerun"

    @property
    def tools(self) -> tuple[str, ...]:
        return self._words({"refund", "pay", "read", "write", "once", "issue"})

    @property
    def flows(self) -> tuple[str, ...]:
        return self._words({"deploy", "visit"})

    @property
    def signs_in(self) -> bool:
        """Whether it takes an account elsewhere, which nobody has connected yet."""
        return bool(self._words({"issue", "visit"}))

    def _words(self, known: set[str]) -> tuple[str, ...]:
        return tuple(word for text in self.said if (word := text.partition(" ")[0]) in known)


STORIES = (
    Story("talk", Through.CONSOLE, ("hello",)),
    Story("talk by API", Through.API, ("hello", "and again")),
    Story("talk, plain channel", Through.PLAIN, ("hello",)),
    Story("stream", Through.CONSOLE, ("stream",)),
    Story("approve, decided by a worker", Through.CONSOLE, ("refund ch_1",)),
    Story("approve, decided at once", Through.PLAIN, ("pay ch_1",)),
    Story("approve by API", Through.API, ("pay ch_1",)),
    Story("read", Through.CONSOLE, ("read ch_1",)),
    Story("idempotent write", Through.CONSOLE, ("write ch_1",)),
    Story("write, run again", Through.CONSOLE, ("once ch_1",)),
    Story("write, not again", Through.PLAIN, ("once ch_1",), again="skip"),
    Story("workflow", Through.PLAIN, ("deploy ch_1",)),
)


SIGN_INS = (
    Story("sign in", Through.CONSOLE, ("issue ch_1",)),
    Story("sign in, workflow", Through.CONSOLE, ("visit ch_1",)),
)


@dataclass(frozen=True, slots=True)
class Look:
    """How far everything in a folder is."""

    open: int
    """Inputs without outcome, interactions, lanes and runs that somebody has to do something about."""
    owed: int
    """Messages that are not sent yet."""
    prompts: tuple[tuple[str, str], ...]
    """Open prompts: id and kind."""
    said: int
    """Messages that were admitted."""


_OPEN = """
    SELECT (SELECT count(*) FROM moor_admission WHERE outcome IS NULL)
         + (SELECT count(*) FROM moor_interaction WHERE status IS NULL)
         + (SELECT count(*) FROM moor_command WHERE taken_step IS NULL)
         + (SELECT count(*) FROM moor_run WHERE owner IS NOT NULL) AS open,
           (SELECT count(*) FROM moor_lane WHERE done_seq < seq OR owner IS NOT NULL) AS owed,
           (SELECT count(*) FROM moor_admission WHERE kind = 'message') AS said
"""
_PROMPTS = "SELECT prompt_id, kind FROM moor_prompt WHERE outcome IS NULL ORDER BY created_at"


def look(folder: Path) -> Look:
    with reading(folder) as read:
        (now,) = read(_OPEN)
        prompts = tuple((row["prompt_id"], row["kind"]) for row in read(_PROMPTS))
    return Look(now["open"], now["owed"], prompts, now["said"])


class Bell:
    """Hears what every process hears: the rings of each commit, and deaths. On PostgreSQL it looks again and again."""

    def __init__(self, lifeline: Lifeline | None) -> None:
        self._rung = asyncio.Event()
        self._patience = LOOK_SECONDS if lifeline is not None else DEAF_SECONDS
        if lifeline is not None:
            lifeline.on_ring(lambda _: self._rung.set())

    @classmethod
    @asynccontextmanager
    async def on(cls, folder: Path) -> AsyncIterator[Bell]:
        lifeline = Lifeline.open(folder / DATABASE_FILE) if has_file(folder) else None
        try:
            yield cls(lifeline)
        finally:
            if lifeline is not None:
                lifeline.close()

    async def wait(self, *servers: Server) -> None:
        """Return when something may have changed; whoever died is up again then."""
        ended: set[asyncio.Future[Any]] = {server.process.ended for server in servers if server.process is not None}
        rung: asyncio.Future[Any] = asyncio.ensure_future(self._rung.wait())
        try:
            await asyncio.wait({rung, *ended}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            rung.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await rung
        self._rung.clear()
        for server in servers:
            await server.up()


def door(story: Story, client: Client, *, number: int = 0) -> Door:
    match story.through:
        case Through.CONSOLE:
            return ConsoleDoor(client)
        case Through.API:
            return ApiDoor(client)
        case Through.PLAIN:
            return PlainDoor(client, f"plain-{number}")


SIGN_IN = "sign-in"
OPTIONS = {"approval": "approve", "rerun": None, "question": "go"}


async def live(story: Story, entrance: Door, server: Server, bell: Bell) -> None:
    """Say everything, answer what is asked, until all is done."""
    answered: set[str] = set()
    for place, text in enumerate(story.said):
        await entrance.say(text, f"said-{story.name.replace(' ', '-').replace(',', '')}-{place}")
        await settle(story, entrance, server, bell, answered=answered)


async def settle(story: Story, entrance: Door, server: Server, bell: Bell, *, answered: set[str]) -> None:
    """Answer what is asked, until nothing is left to do."""
    while True:
        now = look(server.folder)
        if not now.open and not now.owed:
            return
        clicked = False
        for prompt_id, kind in now.prompts if not now.owed else ():
            if kind == SIGN_IN and isinstance(entrance, ConsoleDoor):
                await entrance.person(prompt_id, partial(bell.wait, server), partial(_asks, server.folder, prompt_id)).connect()
                clicked = True
            elif prompt_id not in answered and await entrance.answer(prompt_id, OPTIONS[kind] or story.again):
                answered.add(prompt_id)
                clicked = True
        if not clicked:
            await bell.wait(server)


def _asks(folder: Path, prompt_id: str) -> bool:
    return any(open_id == prompt_id for open_id, _ in look(folder).prompts)


def texts(stories: Sequence[Story]) -> list[str]:
    return [text for story in stories for text in story.said]
