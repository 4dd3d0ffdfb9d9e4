"""The console page's port on the running app: the console's platform, the store's events, the worker's process.

What lives here: reading both sides for the page, handing the platform's events to the bot. What does not: HTTP, the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bot import formats
from bot.answers import Answers
from bot.console.live import LiveFold
from bot.console.port import ClientIdReused, JsonObject, NotGoneOn, RefusedHere, TooLong, UnknownMessage, UnknownThread
from bot.formats import Kind
from bot.ingress import ClickResult, Ingress, Taken
from bot.telling import explain
from channels.console.cast import BOT, CAST, cast_member
from channels.console.channel import ADDRESS
from channels.console.platform import MAX_PERSON_TEXT, ConsolePlatform
from channels.console.records import ConsoleRefused, PendingEvent, ShownMessage
from durable_core.errors import NotFound, Unavailable
from durable_core.model import Phase, Run
from durable_core.store import Store
from durable_core.streams import Streams

log = logging.getLogger("moorings.console")

POLL_SECONDS = 0.25
REDELIVER_SECONDS = 1.0
STUCK_SECONDS = 15.0
CHANNEL = "console"
_IN_VAIN = frozenset({"refused", "already_settled"})


class WorkerControl(Protocol):
    """The worker's process, as the page may see and kill it."""

    @property
    def pid(self) -> int | None:
        """The process id; None while there is none."""

    @property
    def state(self) -> str:
        """`up` or `restarting`."""

    def kill(self) -> int | None:
        """Kill it with SIGKILL; the pid of what was killed."""


@dataclass(slots=True, kw_only=True)
class Board:
    """`ConsolePort` of a running app."""

    platform: ConsolePlatform
    store: Store
    streams: Streams
    taker: Ingress
    answers: Answers
    agent: str = "Agent"
    worker: WorkerControl | None = None
    moved: Callable[[], list[JsonObject]] = list
    """What else a page is told when it changes, each a change of its own kind: what the panel moved."""
    _flags: set[asyncio.Event] = field(default_factory=set)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _unwatch: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Begin to notice changes and to hand over what could not be handed over before."""
        self._unwatch = self.store.watch(lambda _: self.worker_changed())
        self._tasks = [asyncio.create_task(self._poll()), asyncio.create_task(self._redeliver())]

    async def stop(self) -> None:
        """Stop both."""
        self._unwatch()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def worker_changed(self) -> None:
        """Let every page look again."""
        for flag in self._flags:
            flag.set()

    # ── reading ──

    def cast(self) -> list[JsonObject]:
        """List who can speak."""
        return [
            {"id": one.id, "name": one.name, "role": one.role_text, "initial": one.name[0], "color": one.color} for one in CAST
        ]

    async def threads(self) -> list[JsonObject]:
        """List threads, the one that changed last first."""
        sql = (
            "SELECT a.address FROM moor_address a JOIN moor_run r ON r.run_id = a.run_id "
            "WHERE a.channel = :channel AND r.phase = :phase"
        )
        waiting = {str(row[0]) for row in await self.store.rows(sql, {"channel": CHANNEL, "phase": Phase.WAITING.value})}
        return [
            {
                "id": thread.id,
                "title": thread.title,
                "channel": thread.channel,
                "last_at": thread.last_at,
                "waiting": ADDRESS.encode(thread.id) in waiting,
            }
            for thread in await self.platform.threads()
        ]

    async def thread(self, thread_id: str) -> JsonObject | None:
        """Read one thread."""
        try:
            thread = await self.platform.thread(thread_id)
        except ConsoleRefused:
            return None
        run = await self._run(thread_id)
        return {
            "id": thread.id,
            "title": thread.title,
            "channel": thread.channel,
            "session_id": run.run_id if run is not None else None,
            "agent": self._author(BOT),
        }

    async def messages(self, thread_id: str, viewer: str) -> list[JsonObject]:
        """List what a cast member sees of a thread."""
        try:
            shown = await self.platform.messages(thread_id, viewer=viewer)
        except ConsoleRefused:
            raise UnknownThread(thread_id) from None
        return [self._message(message) for message in shown]

    async def events(self, thread_id: str) -> list[JsonObject]:
        """List the events of the thread's session."""
        run = await self._run(thread_id)
        if run is None:
            return []
        found: list[JsonObject] = []
        while page := await self.streams.read(run.run_id, start=len(found)):
            for event in page:
                meta = {"id": event.id, "index": event.index, "at": event.at, "attempt": event.attempt}
                found.append({"type": event.type, "data": event.data, "meta": meta})
        return found

    async def step(self, thread_id: str, step_index: int, *, turn_id: str | None) -> JsonObject | None:
        """Read one step decoded."""
        run = await self._run(thread_id)
        if run is None:
            return None
        found: JsonObject | None = None
        for step in await self.store.steps(run.run_id):
            given = formats.show(Kind.STEP_INPUT, step.input)
            if given.get("step_index") == step_index and turn_id in (None, given.get("turn_id")):
                found = {
                    "input": given,
                    "output": formats.show(Kind.STEP, step.output),
                    "records": await self._records(run.run_id, step.n),
                }
        if found is None and turn_id in (None, run.turn_id) and run.turn_id is not None:
            records = await self._records(run.run_id, run.step_no)
            found = {"input": {}, "output": None, "records": records} if records else None
        return found

    async def _records(self, run_id: str, step_n: int) -> list[JsonObject]:
        records = await self.store.records(run_id, step_n)
        return [
            {"key": one.key, "attempt": one.attempt, "at": one.at, "content": formats.show(Kind.RECORD, one.body)}
            for one in records
        ]

    # ── speaking and clicking ──

    async def post(self, thread_id: str | None, author: str, text: str, client_id: str) -> JsonObject:
        """Post as a cast member; once it is stored it reaches the bot, now or after a restart."""
        if len(text) > MAX_PERSON_TEXT:
            raise TooLong(MAX_PERSON_TEXT)
        try:
            if thread_id is None:
                thread_id = (await self.platform.create_thread(client_id=client_id)).id
            posted = await self.platform.post_person(thread_id, author, text=text, client_id=client_id)
        except ConsoleRefused as error:
            raise _refusal(error, thread_id or "", client_id) from None
        if not posted.event.delivered:
            taken = await self._hand_over(posted.event)
            if taken is not None and taken.refused:
                raise NotGoneOn(taken.refused)
        return {"thread_id": thread_id, "message_id": posted.message.id}

    async def click(
        self, thread_id: str, message_id: str, author: str, value: str, client_id: str, *, fields: Mapping[str, str]
    ) -> JsonObject:
        """Click a card's button, or send a form of it, and say to the person alone what came of it."""
        try:
            event = await self.platform.click(
                thread_id, message_id, author_id=author, value=value, client_id=client_id, fields=fields
            )
        except ConsoleRefused as error:
            raise _refusal(error, thread_id, client_id) from None
        taken = await self._hand_over(event)
        if taken is None or not taken.clicks:
            return {"status": "pending"}
        answers = [await self._came_of(result) for result in taken.clicks]
        # of several, one that came to nothing is what the person has to know
        refused = [answer for answer in answers if answer["status"] in _IN_VAIN]
        reasons = dict.fromkeys(str(answer["reason"]) for answer in refused if answer["reason"])
        return {"status": (refused or answers)[0]["status"], "reason": " ".join(reasons) or answers[0]["reason"]}

    async def _came_of(self, result: ClickResult) -> JsonObject:
        if result.receipt is None:
            return {"status": result.status, "reason": result.reason}
        decided = await self.answers.result(result.receipt)
        return {"status": decided.status.value, "reason": explain(decided)}

    async def _hand_over(self, event: PendingEvent) -> Taken | None:
        """Give an event to the bot as a platform does, signed, over the channel's own door; None: it has to be tried again."""
        try:
            taken = await self.taker.receive(CHANNEL, await self.platform.request(event))
        except Unavailable as error:
            log.warning("the bot could not take an event: %s; it is handed over again", error)
            return None
        if taken.response.status < 500:
            await self.platform.delivered(event.id)
        return taken

    async def _redeliver(self) -> None:
        """Hand over what was not taken, a thread's events in order; one that can't be taken stops no other thread."""
        stuck: dict[str, float] = {}
        while True:
            blocked: set[str] = set()
            try:
                events = await self.platform.undelivered()
            except Exception:
                log.exception("the console's file can't be read; trying again")
                events = []
            for event in events:
                if event.thread_id in blocked or stuck.get(event.id, 0.0) > time.monotonic():
                    blocked.add(event.thread_id)
                elif not await self._handed_over(event):
                    blocked.add(event.thread_id)
                    stuck[event.id] = time.monotonic() + STUCK_SECONDS
            stuck = {event.id: stuck[event.id] for event in events if event.id in stuck}
            await asyncio.sleep(REDELIVER_SECONDS)

    async def _handed_over(self, event: PendingEvent) -> bool:
        try:
            return await self._hand_over(event) is not None
        except Exception:
            log.exception("event %s can't be handed over; trying again later", event.id)
            return False

    # ── changes ──

    async def changes(self, thread_id: str | None) -> AsyncIterator[JsonObject]:
        """Follow what changes for one page."""
        flag = asyncio.Event()
        self._flags.add(flag)
        try:
            told: dict[str, JsonObject] = {}
            version = await self.platform.version()
            live = LiveFold(thread_id) if thread_id is not None else None
            if live is not None:
                await self._advance(live)
            while True:
                flag.clear()
                for change in (self._worker(), *self.moved()):
                    if told.get(change["kind"]) != change:
                        told[change["kind"]] = change
                        yield change
                latest = await self.platform.version()
                moved, version = latest != version, latest
                if moved:
                    yield {"kind": "threads"}
                    if thread_id is not None:
                        yield {"kind": "messages", "thread": thread_id}
                if live is not None:
                    if await self._advance(live):
                        yield {"kind": "timeline", "thread": thread_id}
                        yield {"kind": "threads"}
                    if (text := live.changed(messages_moved=moved)) is not None:
                        yield {**text, "author": self._author(BOT)}
                await flag.wait()
        finally:
            self._flags.discard(flag)

    async def _advance(self, live: LiveFold) -> bool:
        """Read on in the session's events; True when there were any."""
        run = await self._run(live.thread_id)
        if run is None:
            return False
        live.session(run.run_id)
        moved = False
        while page := await self.streams.read(run.run_id, start=live.position):
            moved = True
            for event in page:
                live.take(event)
        return moved

    async def _poll(self) -> None:
        """The platform is another file, written by other processes: look at its counter while a page is open."""
        seen = 0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._flags:
                with contextlib.suppress(Exception):
                    version = await self.platform.version()
                    if version != seen:
                        seen = version
                        self.worker_changed()

    # ── the worker ──

    async def kill_worker(self) -> JsonObject:
        """Kill the worker with SIGKILL."""
        if self.worker is None:
            raise NotFound("worker", "process")
        return {"pid": self.worker.kill()}

    def _worker(self) -> JsonObject:
        if self.worker is None:
            return {"kind": "worker", "state": "up", "pid": None}
        return {"kind": "worker", "state": self.worker.state, "pid": self.worker.pid}

    # ── parts ──

    async def _run(self, thread_id: str) -> Run | None:
        return await self.store.run_at(CHANNEL, ADDRESS.encode(thread_id))

    def _author(self, author_id: str) -> JsonObject:
        member = cast_member(author_id)
        name = member.name if member is not None else self.agent
        return {
            "id": author_id,
            "name": name,
            "initial": name[0].upper(),
            "color": member.color if member is not None else "#0f5c73",
            "agent": member is None,
        }

    def _message(self, message: ShownMessage) -> JsonObject:
        return {
            "id": message.id,
            "seq": message.seq,
            "author": self._author(message.author),
            "text": message.text,
            "card": message.card,
            "at": message.at,
            "edited_at": message.edited_at,
            "private": message.private_to is not None,
            "notice": message.notice,
            "version": message.version,
        }


def _refusal(error: ConsoleRefused, thread_id: str, client_id: str) -> Exception:
    match error.code:
        case "unknown_thread":
            return UnknownThread(thread_id)
        case "client_id_reused":
            return ClientIdReused(client_id)
        case "unknown_message" | "unknown_button":
            return UnknownMessage(error.code)
        case code:
            return RefusedHere(code)
