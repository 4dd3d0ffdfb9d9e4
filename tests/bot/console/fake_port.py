"""A console port without an engine: tests and screenshots set what it holds and say what changes.

What lives here: the fake and a few ready threads. What does not: any rule of the real application.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bot.console.port import ClientIdReused, UnknownMessage, UnknownThread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

JsonObject = dict[str, Any]

AGENT = {"id": "support", "name": "Support", "initial": "S", "color": "#0f5c73", "agent": True}
CAST: list[JsonObject] = [
    {"id": "alice", "name": "Alice", "role": "requester", "initial": "A", "color": "#5b6bd6"},
    {"id": "bob", "name": "Bob", "role": "member", "initial": "B", "color": "#a85f23"},
    {"id": "farah", "name": "Farah", "role": "finance", "initial": "F", "color": "#2f7d5b"},
    {"id": "guest", "name": "Guest", "role": "outside", "initial": "G", "color": "#6b7280"},
]


def author(member_id: str) -> JsonObject:
    """Return a cast member as the author of a message."""
    member = next(one for one in CAST if one["id"] == member_id)
    return {key: member[key] for key in ("id", "name", "initial", "color")} | {"agent": False}


def open_card(*, now: int) -> JsonObject:
    """Return a card that waits for Finance."""
    return {
        "question": "Refund €140.00 for ch_1?",
        "detail": "Finance may answer. It runs once, as Alice.",
        "fields": [["Tool", "refund_charge"], ["charge_id", "ch_1"], ["amount", "140.00"], ["reason", "parcel never arrived"]],
        "evidence": ["Read since the request: charge ch_1 (payments), nothing from outside."],
        "buttons": [
            {"label": "Approve", "value": "p1:approve", "style": "primary"},
            {"label": "Deny", "value": "p1:deny", "style": "plain"},
        ],
        "expires_at": now + 3 * 86_400_000,
        "outcome": None,
    }


class FakePort:
    """Holds threads in memory. `fail` is raised by the next call, once."""

    def __init__(self) -> None:
        self.rows: dict[str, JsonObject] = {}
        self.kept: dict[str, list[JsonObject]] = {}
        self.log: dict[str, list[JsonObject]] = {}
        self.steps: dict[tuple[str, int, str | None], JsonObject] = {}
        self.receipts: dict[str, tuple[object, JsonObject]] = {}
        self.followers: set[asyncio.Queue[JsonObject | None]] = set()
        self.fail: Exception | None = None
        self.click_answer: JsonObject = {"status": "settled"}
        self.clicks: list[tuple[str, str, str, str]] = []
        self.filled: list[dict[str, str]] = []
        self.pid = 4242
        self.now = 1_700_000_000_000

    def tell(self, change: JsonObject) -> None:
        """Send a change to every follower."""
        for follower in self.followers:
            follower.put_nowait(change)

    def add_thread(self, thread_id: str, title: str, *, waiting: bool = False) -> None:
        """Add an empty thread."""
        row = {"id": thread_id, "title": title, "channel": "#general", "last_at": self.now, "waiting": waiting}
        self.rows = {thread_id: row, **self.rows}
        self.kept[thread_id] = []
        self.log[thread_id] = []

    def add_message(
        self,
        thread_id: str,
        who: JsonObject,
        text: str,
        *,
        card: JsonObject | None = None,
        private_to: str | None = None,
    ) -> JsonObject:
        """Append a message."""
        seq = len(self.kept[thread_id])
        message = {
            "id": f"m{seq}",
            "seq": seq,
            "author": who,
            "text": text,
            "card": card,
            "at": self.now,
            "edited_at": None,
            "private": private_to is not None,
            "notice": False,
            "version": 1,
            "to": private_to,
        }
        self.kept[thread_id].append(message)
        return message

    def _check(self) -> None:
        error, self.fail = self.fail, None
        if error is not None:
            raise error

    def cast(self) -> list[JsonObject]:
        """List the cast."""
        return CAST

    async def threads(self) -> list[JsonObject]:
        """List threads."""
        self._check()
        return list(self.rows.values())

    async def thread(self, thread_id: str) -> JsonObject | None:
        """Read one thread."""
        row = self.rows.get(thread_id)
        return {"id": row["id"], "title": row["title"], "channel": row["channel"], "session_id": None} if row else None

    async def messages(self, thread_id: str, viewer: str) -> list[JsonObject]:
        """List what the viewer sees."""
        self._check()
        seen = [message for message in self.kept[thread_id] if message["to"] in (None, viewer)]
        return [{key: value for key, value in message.items() if key != "to"} for message in seen]

    async def post(self, thread_id: str | None, author_id: str, text: str, client_id: str) -> JsonObject:
        """Store a message, once for a client id."""
        self._check()
        intent = (thread_id, author_id, text)
        if client_id in self.receipts:
            before, receipt = self.receipts[client_id]
            if before != intent:
                raise ClientIdReused(client_id)
            return receipt
        if thread_id is None:
            thread_id = f"t{len(self.rows) + 1}"
            self.add_thread(thread_id, text)
        elif thread_id not in self.rows:
            raise UnknownThread(thread_id)
        message = self.add_message(thread_id, author(author_id), text)
        receipt = {"thread_id": thread_id, "message_id": message["id"]}
        self.receipts[client_id] = (intent, receipt)
        self.tell({"kind": "threads"})
        self.tell({"kind": "messages", "thread": thread_id})
        return receipt

    async def click(
        self, thread_id: str, message_id: str, author_id: str, value: str, client_id: str, *, fields: Mapping[str, str]
    ) -> JsonObject:
        """Answer as told by `click_answer`."""
        self._check()
        message = next((one for one in self.kept[thread_id] if one["id"] == message_id), None)
        if message is None:
            raise UnknownMessage(message_id)
        self.clicks.append((message_id, author_id, value, client_id))
        self.filled.append(dict(fields))
        return self.click_answer

    async def changes(self, _thread_id: str | None) -> AsyncIterator[JsonObject]:
        """Follow what `tell` sends."""
        queue: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        queue.put_nowait({"kind": "worker", "state": "up", "pid": self.pid})
        self.followers.add(queue)
        try:
            while (change := await queue.get()) is not None:
                yield change
        finally:
            self.followers.discard(queue)

    async def events(self, thread_id: str) -> list[JsonObject]:
        """List the events set for the thread."""
        self._check()
        return self.log[thread_id]

    async def step(self, thread_id: str, step_index: int, *, turn_id: str | None) -> JsonObject | None:
        """Return the step set for this place."""
        return self.steps.get((thread_id, step_index, turn_id))

    async def kill_worker(self) -> JsonObject:
        """Pretend to kill."""
        self._check()
        killed, self.pid = self.pid, self.pid + 1
        self.tell({"kind": "worker", "state": "restarting", "pid": None})
        return {"pid": killed}
