"""Reading a run's events: references filled in from the rows that own the content, and followers woken by changes.

What lives here: reads and follows. What does not: writing events (commits do), how clients see them (NDJSON, SSE).

A run has one list, and every view of it can be made again from that list and the content it refers to (S32). The layer above
writes the visible events; the store adds a hidden one to each transaction that changes what the run is (`stores/history.py`).
What is derived without loss from the key columns of another append-only list is not told twice: that a run was made and what
came in, from admission rows (source, key, place, kind, `created`); that an answer waits for a worker, from interaction rows; what
an unfinished step has, from records; that a step is finished and left its run running, from the step's row. Owners, leases,
epochs, attempts, wake-up times and addresses say who may go on with a run, not what it is, and are in no list. Of a run whose
content is gone (`Run.purged_at`) no list is left to be read.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from durable_core import codec
from durable_core.errors import Broken, ContentGone, EventMissing, ForeignEvent
from durable_core.ids import event_id, parse_event_id
from durable_core.model import Event, RunStatus
from durable_core.store import Store
from durable_core.versions import Upcasters

PAGE = 500


@dataclass(frozen=True, slots=True)
class EventView:
    """An event as a reader sees it: whole data, position and attempt."""

    type: str
    data: dict[str, Any]
    id: str
    seq: int
    index: int | None
    attempt: int
    at: int


class Streams:
    """Bounded reads and follows over one store; a follower costs nothing while its run is quiet."""

    def __init__(self, store: Store, upcasters: Upcasters | None = None) -> None:
        self._store = store
        self._upcasters = upcasters or Upcasters()
        self._followers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._unwatch: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to hear of changes."""
        self._unwatch = self._store.watch(self._on_change)

    def stop(self) -> None:
        """Stop hearing of changes; followers end at their next read."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        self._on_change(None)

    @property
    def followers(self) -> int:
        """How many follow right now."""
        return sum(len(flags) for flags in self._followers.values())

    async def read(
        self, run_id: str, *, start: int = 0, after: str | None = None, limit: int = PAGE, hidden: bool = False
    ) -> list[EventView]:
        """A page of events from `start` on, whole. Negative counts from the tail; `after` an event's id goes before it.

        Raises:
            BadEventId, ForeignEvent, EventMissing: `after` is no event that this reader can have seen.
            ContentGone: there are none any more.
        """
        if after is not None:
            start = await self.position_after(run_id, after, hidden=hidden)
        return await self._whole(run_id, await self._store.events(run_id, start=start, limit=limit, hidden=hidden))

    async def position_after(self, run_id: str, after: str, *, hidden: bool = False) -> int:
        """Where to read on after an event's id: the index of the next visible event, with `hidden` its position.

        Raises:
            BadEventId: not an event's id.
            ForeignEvent: the id of another run's event.
            EventMissing: there is no such event yet, or it is hidden from this reader.
        """
        run, seq = parse_event_id(after)
        if run != run_id.rpartition("_")[2]:
            raise ForeignEvent(after, run_id)
        found = await self._store.events(run_id, start=seq, limit=1, hidden=True)
        if not found or found[0].seq != seq or (found[0].index is None and not hidden):
            raise EventMissing(after, run_id)
        return seq + 1 if hidden else (found[0].index or 0) + 1

    async def follow(self, run_id: str, *, start: int = 0, after: str | None = None) -> AsyncIterator[EventView]:
        """Events from `start` on as they come, or `after` an event's id, until the run has ended or its content is deleted.

        Raises:
            BadEventId, ForeignEvent, EventMissing: `after` is no event that this reader can have seen.
            Broken: an event is missing between two others (S21); what comes behind it would be taken for the whole.
        """
        if after is not None:
            start = await self.position_after(run_id, after)
        flag = asyncio.Event()
        self._followers[run_id].add(flag)
        try:
            position = start
            while True:
                flag.clear()
                ended = (await self._store.run(run_id)).status is RunStatus.ENDED
                try:
                    page = await self.read(run_id, start=position)
                except ContentGone:
                    return
                _check_gaps(run_id, page, position)
                for event in page:
                    yield event
                if page:
                    position = (page[-1].index or 0) + 1
                elif position < 0:
                    position = 0
                if len(page) == PAGE:
                    continue
                if ended or self._unwatch is None:
                    return
                await flag.wait()
        finally:
            self._followers[run_id].discard(flag)
            if not self._followers[run_id]:
                del self._followers[run_id]

    def _on_change(self, run_ids: Sequence[str] | None) -> None:
        for run_id in list(self._followers) if run_ids is None else run_ids:
            for flag in self._followers.get(run_id, ()):
                flag.set()

    async def _whole(self, run_id: str, events: Sequence[Event]) -> list[EventView]:
        rows = sorted({ref.partition("#")[0] for event in events for _, ref in event.refs})
        found = (await self._store.content(run_id, rows)).items() if rows else ()
        content = {row: self._shown(row.partition(":")[0], body) for row, body in found}
        return [_view(run_id, event, self._shown("event", event.body), content) for event in events]

    def _shown(self, kind: str, body: bytes) -> Any:
        """Decode a value as this code writes it; one of a newer version is shown as it stands."""
        value: Any = codec.decode(body)
        return self._upcasters.show(kind, value, written=codec.written_by(body)) if isinstance(value, dict) else value


def _check_gaps(run_id: str, page: Sequence[EventView], start: int) -> None:
    first = start if start >= 0 or not page else page[0].index or 0
    for place, event in enumerate(page, first):
        if event.index != place:
            raise Broken(f"{run_id} has lost its event {place}")


def _view(run_id: str, event: Event, data: Any, content: dict[str, Any]) -> EventView:
    if not isinstance(data, dict):
        data = {}
    for field, ref in event.refs:
        row, _, pointer = ref.partition("#")
        _put(data, field.split("/"), _get(content.get(row), [part for part in pointer.split("/") if part]))
    return EventView(event.type, data, event_id(run_id, event.seq), event.seq, event.index, event.attempt, event.at)


def _get(value: Any, path: Sequence[str]) -> Any:
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _put(data: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a field by path; a number names a list's next place."""
    target: Any = data
    for part, following in pairwise(path):
        empty: Any = [] if following.isdigit() else {}
        if isinstance(target, list):
            if int(part) == len(target):
                target.append(empty)
            target = target[int(part)]
        else:
            target = target.setdefault(part, empty)
    last = path[-1]
    if isinstance(target, list):
        target.append(value)
    else:
        target[last] = value
