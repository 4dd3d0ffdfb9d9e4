"""The SQLite store: the contract's calls, each handed to the writer or the reader.

What lives here: wiring only. What does not: statements (one file an aggregate) and transactions (`writer.py`).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from durable_core import schema
from durable_core.clock import Clock
from durable_core.errors import Broken, Unavailable
from durable_core.keys import Keys
from durable_core.lifeline import Lifeline
from durable_core.model import (
    SESSIONS,
    Abilities,
    Admission,
    AnswerReceipt,
    AuditEntry,
    Buried,
    Claim,
    ClaimedKey,
    ClaimRequest,
    Committed,
    DueWork,
    Event,
    EventDraft,
    Extra,
    Holdings,
    Incarnation,
    Interaction,
    KeyRequest,
    Lane,
    Postponed,
    Prompt,
    PromptAnswer,
    Receipt,
    Record,
    RecordKind,
    Run,
    SeenOpen,
    Sent,
    Signals,
    Step,
    StepCommit,
    Submission,
    Verdict,
)
from durable_core.store import Listener, Store
from durable_core.stores.sealing import Sealing
from durable_core.stores.sqlite import admission as admissions
from durable_core.stores.sqlite import (
    audit,
    claims,
    commits,
    interactions,
    keeping,
    keyclaims,
    outbox,
    prompts,
    reads,
    retention,
    runs,
    workers,
)
from durable_core.stores.sqlite.connect import MEMORY, OpenedFile, connect
from durable_core.stores.sqlite.glance import Glance
from durable_core.stores.sqlite.reader import Reader
from durable_core.stores.sqlite.tx import Tx
from durable_core.stores.sqlite.writer import ADMIT, COMMIT, RECORD, SETTLE, Writer
from durable_core.stores.watch import Watch

T = TypeVar("T")

_PORTIONS: Final = 16
"""How much of the file is given back after one purge: 16 MB, if so much is free."""
_FEW: Final = 2
"""Bodies that are read on the loop; more go to the reader's thread."""


class SqliteStore(Store):
    """Durable state in one SQLite file, shared by the processes of one host; or in memory, for one process."""

    def __init__(self, path: str, *, keys: Keys, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._sealing = Sealing(keys)
        self._lifeline: Lifeline | None = None
        self._file: OpenedFile | None = None
        self._writer = Writer(
            self._connect_writer, clock=clock, sealing=self._sealing, on_commit=self._committed, check=self._check_file
        )
        self._reader = None if path == MEMORY else Reader(self._connect_reader, clock=clock, sealing=self._sealing)
        self._glance: Glance | None = None
        self._watch = Watch(None if path == MEMORY else self._writer.data_version)

    @property
    def incarnation(self) -> str:
        """The owner's name a worker of this process takes: what `is_alive` knows it by."""
        if self._lifeline is None:
            raise Unavailable("the store is not open")
        return self._lifeline.incarnation

    # ── life ──

    async def open(self) -> None:
        await self._sealing.load()
        if self._path != MEMORY:
            if not Path(self._path).parent.is_dir():
                raise Broken(f"the folder of {self._path} does not exist")
            schema.check(self._path)
        try:
            await self._writer.open()
            if self._reader is not None:
                await self._reader.open()
                self._glance = Glance(self._path, clock=self._clock, sealing=self._sealing)
            await self._read(runs.check_keys)
            self._lifeline = Lifeline.open(self._path)
        except BaseException:
            await self.close()
            raise
        self._lifeline.sweep()  # what the killed left: each commit would ring at their doors
        self._lifeline.on_ring(self._watch.rung)

    async def close(self) -> None:
        await self._watch.close()
        glance, self._glance = self._glance, None
        if glance is not None:
            glance.close()
        await self._writer.close()
        if self._reader is not None:
            await self._reader.close()
        if self._lifeline is not None:
            self._lifeline.close()

    def watch(self, listener: Listener) -> Callable[[], None]:
        return self._watch.add(listener)

    async def now(self) -> int:
        override = self._clock.override()
        return override if override is not None else await self._glimpse(lambda tx: tx.now)

    async def probe(self) -> None:
        await self._writer.probe()

    # ── admission ──

    async def admit(self, admission: Admission) -> Receipt:
        return await self._writer.run(lambda tx: admissions.admit(tx, admission), label=ADMIT)

    async def begin(self, admission: Admission, request: ClaimRequest) -> tuple[Receipt, Claim | None]:
        return await self._writer.run(lambda tx: claims.begin(tx, admission, request), label=ADMIT)

    async def answer(self, answer: PromptAnswer) -> AnswerReceipt:
        return await self._writer.run(lambda tx: prompts.answer(tx, answer), label=SETTLE)

    async def end(
        self, run_id: str, *, reason: str, events: Sequence[EventDraft], extra: Sequence[Extra] = (), seen: SeenOpen | None = None
    ) -> bool:
        return await self._writer.run(lambda tx: commits.end(tx, run_id, reason=reason, drafts=events, extra=extra, seen=seen))

    # ── reading ──

    async def run(self, run_id: str) -> Run:
        return await self._glimpse(lambda tx: reads.run(tx, run_id))

    async def run_at(self, channel: str, address: str) -> Run | None:
        return await self._glimpse(lambda tx: reads.run_at(tx, channel, address))

    async def submission(self, submission_id: str) -> Submission:
        return await self._glimpse(lambda tx: reads.submission(tx, submission_id))

    async def prompt(self, prompt_id: str) -> Prompt:
        return await self._glimpse(lambda tx: prompts.prompt(tx, prompt_id))

    async def open_prompts(self, run_id: str) -> list[Prompt]:
        return await self._glimpse(lambda tx: list(claims.open_prompts(tx, run_id)))

    async def steps(self, run_id: str, *, start: int = 0) -> list[Step]:
        return await self._read(lambda tx: reads.steps(tx, run_id, start))

    async def records(self, run_id: str, step_n: int) -> list[Record]:
        return await self._read(lambda tx: list(claims.records(tx, run_id, step_n)))

    async def events(self, run_id: str, *, start: int = 0, limit: int = 500, hidden: bool = False) -> list[Event]:
        return await self._read(lambda tx: reads.events(tx, run_id, start=start, limit=limit, hidden=hidden))

    async def content(self, run_id: str, rows: Sequence[str]) -> dict[str, bytes]:
        def work(tx: Tx) -> dict[str, bytes]:
            return reads.content(tx, run_id, rows)

        return await (self._glimpse(work, whole=True) if len(rows) <= _FEW else self._read(work))

    async def rows(self, sql: str, parameters: dict[str, str | int | bytes | None]) -> list[tuple[str | int | bytes | None, ...]]:
        return await self._read(lambda tx: reads.statement(tx, sql, parameters))

    # ── working ──

    async def enrol(self, incarnation: Incarnation) -> None:
        await self._writer.run(lambda tx: workers.enrol(tx, incarnation), soft=True)

    async def withdraw(self, owner: str) -> None:
        await self._writer.run(lambda tx: workers.withdraw(tx, owner), soft=True)

    async def reap(self, owner: str) -> int:
        alive = self.is_alive(owner)
        return await self._writer.run(lambda tx: workers.reap(tx, owner, alive=alive), soft=True)

    def is_alive(self, owner: str) -> bool:
        """Whether an incarnation lives, by what dies with it."""
        return self._lifeline is not None and self._lifeline.is_alive(owner)

    async def due(self, owner: str, abilities: Abilities = SESSIONS) -> DueWork:
        found = await self._glimpse(lambda tx: workers.due(tx, abilities))
        dead = tuple(other for other in found.owners if other != owner and not self.is_alive(other))
        return replace(found, dead=dead) if dead else found

    async def claim(self, request: ClaimRequest) -> list[Claim]:
        return await self._writer.run(lambda tx: claims.claim(tx, request), soft=True)

    async def renew(self, owner: str, leases: Sequence[tuple[str, int]], *, lease_ms: int) -> dict[str, Signals]:
        return await self._writer.run(lambda tx: claims.renew(tx, owner, leases, lease_ms=lease_ms), soft=True)

    def prolong(self, owner: str, held: Holdings, *, lease_ms: int, lane_lease_ms: int, patience: float) -> None:
        def work(tx: Tx) -> None:
            keeping.prolong(tx, owner, held, lease_ms=lease_ms, lane_lease_ms=lane_lease_ms)

        self._writer.run_beside(work, patience=patience, soft=True)

    async def release(self, run_id: str, epoch: int, *, timer_at: int | None, seen: int, unused: bool) -> None:
        await self._writer.run(lambda tx: claims.release(tx, run_id, epoch, timer_at=timer_at, seen=seen, unused=unused))

    async def charge(
        self, run_id: str, epoch: int, *, error: str, retry_at: int, seen: int, events: Sequence[EventDraft] = ()
    ) -> None:
        await self._writer.run(
            lambda tx: claims.charge(tx, run_id, epoch, error=error, retry_at=retry_at, seen=seen, drafts=events)
        )

    async def record(
        self,
        run_id: str,
        epoch: int,
        *,
        step_n: int,
        key: str,
        kind: RecordKind,
        input_hash: str,
        body: bytes,
        events: Sequence[EventDraft] = (),
    ) -> Signals:
        def work(tx: Tx) -> Signals:
            return commits.record(
                tx, run_id, epoch, step_n=step_n, key=key, kind=kind, input_hash=input_hash, body=body, drafts=events
            )

        return await self._writer.run(work, label=RECORD)

    async def append(self, run_id: str, epoch: int, events: Sequence[EventDraft]) -> Signals:
        return await self._writer.run(lambda tx: commits.append(tx, run_id, epoch, events))

    async def commit(self, commit: StepCommit) -> Committed:
        return await self._writer.run(lambda tx: commits.commit(tx, commit), label=COMMIT)

    async def refresh(self, run_id: str, epoch: int) -> Claim:
        return await self._read(lambda tx: claims.refresh(tx, run_id, epoch))

    async def strand(self, run_id: str, epoch: int, *, reason: str, code: str) -> None:
        await self._writer.run(lambda tx: claims.strand(tx, run_id, epoch, reason=reason, code=code))

    async def unstrand(self, run_id: str) -> bool:
        return await self._writer.run(lambda tx: claims.unstrand(tx, run_id))

    # ── claimed keys ──

    async def claim_key(self, request: KeyRequest) -> ClaimedKey:
        return await self._writer.run(lambda tx: keyclaims.claim(tx, request))

    async def finish_key(self, request: KeyRequest, value: bytes) -> ClaimedKey:
        return await self._writer.run(lambda tx: keyclaims.finish(tx, request, value))

    async def release_key(self, request: KeyRequest) -> None:
        await self._writer.run(lambda tx: keyclaims.release(tx, request))

    # ── keeping ──

    async def purge(self, *, limit: int) -> list[str]:
        purged = await self._writer.run(lambda tx: retention.purge(tx, limit=limit))
        if purged:
            await self._give_back()
        return purged

    async def forget(self, run_id: str) -> bool:
        forgotten = await self._writer.run(lambda tx: retention.forget(tx, run_id))
        if forgotten:
            await self._give_back()
        return forgotten

    async def redact(self, run_id: str, bodies: Mapping[str, bytes], *, events: Sequence[EventDraft] = ()) -> int:
        return await self._writer.run(lambda tx: retention.redact(tx, run_id, bodies, events))

    async def rewrap(self, *, after: str, limit: int) -> tuple[str | None, int]:
        return await self._writer.run(lambda tx: retention.rewrap(tx, after=after, limit=limit))

    async def audit(
        self, *, after: int = 0, limit: int = 500, run_id: str | None = None, prompt_id: str | None = None
    ) -> list[AuditEntry]:
        return await self._read(lambda tx: audit.read(tx, after=after, limit=limit, run_id=run_id, prompt_id=prompt_id))

    # ── interactions ──

    async def take_interactions(self, owner: str, *, limit: int, lease_ms: int) -> list[Interaction]:
        def work(tx: Tx) -> list[Interaction]:
            return interactions.take_interactions(tx, owner, limit=limit, lease_ms=lease_ms)

        return await self._writer.run(work, soft=True)

    async def decide(self, verdict: Verdict) -> AnswerReceipt:
        return await self._writer.run(lambda tx: interactions.decide(tx, verdict), label=SETTLE)

    async def postpone(self, interaction: Interaction, *, until: int) -> None:
        await self._writer.run(lambda tx: interactions.postpone(tx, interaction, until=until))

    async def interaction_result(self, submission_id: str) -> AnswerReceipt | None:
        return await self._glimpse(lambda tx: prompts.result(tx, submission_id), whole=True)

    # ── outbox ──

    async def claim_lanes(
        self, owner: str, *, limit: int, lease_ms: int, items: int = 10, channels: Sequence[str] | None = None
    ) -> list[Lane]:
        def work(tx: Tx) -> list[Lane]:
            return outbox.claim_lanes(tx, owner, limit=limit, lease_ms=lease_ms, items=items, channels=channels)

        return await self._writer.run(work, soft=True)

    async def finish(self, lane: Lane, owner: str, result: Sent | Postponed | Buried) -> None:
        await self._writer.run(lambda tx: outbox.finish(tx, lane, owner, result))

    async def release_lane(self, lane: Lane, owner: str) -> None:
        await self._writer.run(lambda tx: outbox.release_lane(tx, lane, owner), soft=True)

    async def replay(self, delivery_id: str) -> bool:
        return await self._writer.run(lambda tx: outbox.replay(tx, delivery_id))

    # ── inside ──

    async def _give_back(self) -> None:
        """Let the file shrink, a portion at a time: what others wait for comes between. What fails is done next time."""
        with suppress(Unavailable):
            for _ in range(_PORTIONS):
                if not await self._writer.run(retention.give_back, plain=True):
                    return

    async def _read(self, work: Callable[[Tx], T]) -> T:
        """Read committed rows; in memory there is but one connection."""
        return await (self._reader or self._writer).run(work)

    async def _glimpse(self, work: Callable[[Tx], T], *, whole: bool = False) -> T:
        """Read a row or a few, at once."""
        if self._glance is None:
            return await self._read(work)
        await asyncio.sleep(0)  # who reads in a loop lets others run
        if (glance := self._glance) is not None:
            with suppress(Unavailable):
                return glance.read(work, whole=whole)
        return await self._read(work)

    def _committed(self, run_ids: frozenset[str]) -> None:
        changed = tuple(run_ids)
        self._watch.tell(changed)
        if self._lifeline is not None:
            self._lifeline.ring(changed)

    def _connect_writer(self) -> sqlite3.Connection:
        connection = connect(self._path)
        if self._path == MEMORY:
            connection.executescript(schema.memory_script())
        else:
            self._file = OpenedFile(self._path)
        return connection

    def _check_file(self) -> None:
        if self._file is not None:
            self._file.check()

    def _connect_reader(self) -> sqlite3.Connection:
        return connect(self._path, read_only=True)
