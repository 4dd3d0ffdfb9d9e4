"""The PostgreSQL store: the contract's calls, each handed to the database.

What lives here: wiring only. What does not: statements (one file an aggregate) and transactions (`database.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from durable_core.clock import Clock
from durable_core.errors import Unavailable
from durable_core.ids import new_id
from durable_core.keys import Keys
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
    KeySettled,
    KeySettlement,
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
    VaultEntry,
    VaultListing,
    VaultWrite,
    Verdict,
)
from durable_core.store import Listener, Store
from durable_core.stores.postgres import (
    audit,
    claims,
    commits,
    interactions,
    keeping,
    keyclaims,
    loading,
    outbox,
    prompts,
    reads,
    retention,
    vaults,
    workers,
)
from durable_core.stores.postgres.alive import BEAT_SECONDS, GRACE_SECONDS, Heartbeats, Locks
from durable_core.stores.postgres.connect import Settings
from durable_core.stores.postgres.database import SETTLE, Database
from durable_core.stores.postgres.holding import Holding
from durable_core.stores.postgres.inbox import Inbox
from durable_core.stores.postgres.listen import ANYTHING, Bell, Ear, channel_of
from durable_core.stores.postgres.plain import KEPT
from durable_core.stores.sealing import Sealing
from durable_core.stores.watch import Watch


class PostgresStore(Store):
    """Durable state in a PostgreSQL database, shared by the processes of many hosts."""

    def __init__(self, settings: Settings, *, keys: Keys, clock: Clock, grace: float = GRACE_SECONDS) -> None:
        self._settings = settings
        self._clock = clock
        self._sealing = Sealing(keys, size=KEPT)
        self._grace = grace
        self._database = Database(settings, clock=clock, sealing=self._sealing, on_commit=self._committed)
        self._holding = Holding(self._database, clock=clock, sealing=self._sealing)
        self._inbox = Inbox(self._database, clock=clock, sealing=self._sealing)
        # without a session nobody says what changed; a number that grows with every transaction of the cluster tells that much
        self._watch = Watch(None if settings.has_session else self._version)
        self._incarnation: str | None = None
        self._bell: Bell | None = None
        self._ear: Ear | None = None
        self._alive: Locks | Heartbeats = Heartbeats(self._database, self._beside(BEAT_SECONDS))

    @property
    def incarnation(self) -> str:
        """The owner's name a worker of this process takes: what dies with it is known by that name."""
        if self._incarnation is None:
            raise Unavailable("the store is not open")
        return self._incarnation

    # ── life ──

    async def open(self) -> None:
        await self._sealing.load()
        try:
            await self._database.read(reads.check)
            incarnation = new_id("inc")
            if self._settings.has_session:
                self._ear = Ear(self._settings, incarnation, self._watch.tell, self._holding.begin_anew)
                await self._ear.open()
                self._alive = Locks(self._database, self._ear, grace=self._grace)
                self._bell = Bell(incarnation, self._notify)
            self._incarnation = incarnation
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._watch.close()
        if isinstance(self._alive, Heartbeats):
            await self._alive.close()
        await self._database.finish()
        bell, self._bell = self._bell, None
        if bell is not None:
            await bell.close()
        await self._database.close()
        ear, self._ear = self._ear, None
        if ear is not None:
            await ear.close()

    def watch(self, listener: Listener) -> Callable[[], None]:
        return self._watch.add(listener)

    async def now(self) -> int:
        override = self._clock.override()
        return override if override is not None else await self._database.read(lambda tx: tx.now())

    async def probe(self) -> None:
        if why := await self._database.read(reads.refuses_writes):
            self._database.doubt()
            raise Unavailable(why)

    # ── admission ──

    async def admit(self, admission: Admission) -> Receipt:
        return await self._inbox.admit(admission)

    async def begin(self, admission: Admission, request: ClaimRequest) -> tuple[Receipt, Claim | None]:
        if self._ear is not None and not self._ear.is_heard:
            return await self._inbox.admit(admission), None
        receipt, taken = await self._inbox.begin(admission, request)
        if taken is None:
            return receipt, None
        self._holding.begun(*taken)
        return receipt, taken[0]

    async def answer(self, answer: PromptAnswer) -> AnswerReceipt:
        return await self._database.write(lambda tx: prompts.answer(tx, answer), label=SETTLE)

    async def end(
        self, run_id: str, *, reason: str, events: Sequence[EventDraft], extra: Sequence[Extra] = (), seen: SeenOpen | None = None
    ) -> bool:
        return await self._database.write(
            lambda tx: commits.end(tx, run_id, reason=reason, drafts=events, extra=extra, seen=seen)
        )

    # ── reading ──

    async def run(self, run_id: str) -> Run:
        return await self._database.read(lambda tx: reads.run(tx, run_id))

    async def run_at(self, channel: str, address: str) -> Run | None:
        return await self._database.read(lambda tx: reads.run_at(tx, channel, address))

    async def submission(self, submission_id: str) -> Submission:
        return await self._database.read(lambda tx: reads.submission(tx, submission_id))

    async def prompt(self, prompt_id: str) -> Prompt:
        return await self._database.read(lambda tx: prompts.prompt(tx, prompt_id))

    async def open_prompts(self, run_id: str) -> list[Prompt]:
        return list(await self._database.read(lambda tx: loading.open_prompts(tx, run_id)))

    async def steps(self, run_id: str, *, start: int = 0) -> list[Step]:
        return await self._database.read(lambda tx: reads.steps(tx, run_id, start))

    async def records(self, run_id: str, step_n: int) -> list[Record]:
        return list(await self._database.read(lambda tx: loading.records(tx, run_id, step_n)))

    async def events(self, run_id: str, *, start: int = 0, limit: int = 500, hidden: bool = False) -> list[Event]:
        return await self._database.read(lambda tx: reads.events(tx, run_id, start=start, limit=limit, hidden=hidden))

    async def content(self, run_id: str, rows: Sequence[str]) -> dict[str, bytes]:
        return await self._database.read(lambda tx: reads.content(tx, run_id, rows))

    async def rows(self, sql: str, parameters: dict[str, str | int | bytes | None]) -> list[tuple[str | int | bytes | None, ...]]:
        return await self._database.read(lambda tx: reads.statement(tx, sql, parameters), whole=True)

    # ── working ──

    async def enrol(self, incarnation: Incarnation) -> None:
        await self._database.write(lambda tx: workers.enrol(tx, incarnation))
        if isinstance(self._alive, Heartbeats):
            self._alive.enrolled(incarnation.owner)

    async def withdraw(self, owner: str) -> None:
        if isinstance(self._alive, Heartbeats):
            self._alive.withdrawn(owner)
        await self._database.write(lambda tx: workers.withdraw(tx, owner))

    async def reap(self, owner: str) -> int:
        alive = not await self._alive.dead((owner,), fresh=True)
        lost = await self._database.write(lambda tx: workers.reap(tx, owner, alive=alive), soft=True)
        if not alive:
            self._missed()
        return lost

    async def due(self, owner: str, abilities: Abilities = SESSIONS) -> DueWork:
        found = await self._database.read(lambda tx: workers.due(tx, abilities))
        others = [other for other in found.owners if other not in {owner, self._incarnation}]
        dead = await self._alive.dead(others) if others else ()
        return replace(found, dead=dead) if dead else found

    async def claim(self, request: ClaimRequest) -> list[Claim]:
        self._show()
        return await self._holding.claim(request)

    async def renew(self, owner: str, leases: Sequence[tuple[str, int]], *, lease_ms: int) -> dict[str, Signals]:
        return await self._database.write(lambda tx: claims.renew(tx, owner, leases, lease_ms=lease_ms), soft=True)

    def prolong(self, owner: str, held: Holdings, *, lease_ms: int, lane_lease_ms: int, patience: float) -> None:
        keeping.prolong(self._beside(patience), owner, held, lease_ms=lease_ms, lane_lease_ms=lane_lease_ms)

    async def release(self, run_id: str, epoch: int, *, timer_at: int | None, seen: int, unused: bool) -> None:
        self._holding.let_go(run_id)
        await self._database.write(lambda tx: claims.release(tx, run_id, epoch, timer_at=timer_at, seen=seen, unused=unused))

    async def charge(
        self, run_id: str, epoch: int, *, error: str, retry_at: int, seen: int, events: Sequence[EventDraft] = ()
    ) -> None:
        self._holding.let_go(run_id)
        await self._database.write(
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
        return await self._holding.record(
            run_id, epoch, step_n=step_n, key=key, kind=kind, input_hash=input_hash, body=body, drafts=events
        )

    async def append(self, run_id: str, epoch: int, events: Sequence[EventDraft]) -> Signals:
        return await self._holding.append(run_id, epoch, events)

    async def commit(self, commit: StepCommit) -> Committed:
        return await self._holding.commit(commit)

    async def refresh(self, run_id: str, epoch: int) -> Claim:
        return await self._holding.refresh(run_id, epoch)

    async def strand(self, run_id: str, epoch: int, *, reason: str, code: str) -> None:
        self._holding.let_go(run_id)
        await self._database.write(lambda tx: claims.strand(tx, run_id, epoch, reason=reason, code=code))

    async def unstrand(self, run_id: str) -> bool:
        return await self._database.write(lambda tx: claims.unstrand(tx, run_id))

    # ── claimed keys ──

    async def claim_key(self, request: KeyRequest) -> ClaimedKey:
        return await self._database.write(lambda tx: keyclaims.claim(tx, request))

    async def finish_key(self, request: KeyRequest, value: bytes) -> ClaimedKey:
        return await self._database.write(lambda tx: keyclaims.finish(tx, request, value))

    async def release_key(self, request: KeyRequest) -> None:
        await self._database.write(lambda tx: keyclaims.release(tx, request))

    async def settle_key(self, settlement: KeySettlement) -> KeySettled:
        return await self._database.write(lambda tx: keyclaims.settle(tx, settlement))

    # ── the vault ──

    async def vault(self, name: str) -> VaultEntry | None:
        return await self._database.read(lambda tx: vaults.entry(tx, name))

    async def vault_write(self, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
        return await self._database.write(lambda tx: vaults.write(tx, writes))

    async def vault_hold(self, name: str, holder: str, *, ms: int) -> VaultEntry | None:
        return await self._database.write(lambda tx: vaults.hold(tx, name, holder, ms=ms))

    async def vault_release(self, name: str, holder: str) -> None:
        await self._database.write(lambda tx: vaults.release(tx, name, holder))

    async def vault_due(self, kind: str, *, limit: int) -> list[VaultEntry]:
        return await self._database.read(lambda tx: vaults.due(tx, kind, limit=limit))

    async def vault_list(
        self, *, kind: str | None = None, owner: str | None = None, after: str = "", limit: int
    ) -> list[VaultListing]:
        return await self._database.read(lambda tx: vaults.listing(tx, kind=kind, owner=owner, after=after, limit=limit))

    # ── keeping ──

    async def purge(self, *, limit: int) -> list[str]:
        return await self._database.write(lambda tx: retention.purge(tx, limit=limit))

    async def forget(self, run_id: str) -> bool:
        return await self._database.write(lambda tx: retention.forget(tx, run_id))

    async def redact(self, run_id: str, bodies: Mapping[str, bytes], *, events: Sequence[EventDraft] = ()) -> int:
        return await self._database.write(lambda tx: retention.redact(tx, run_id, bodies, events))

    async def rewrap(self, *, after: str, limit: int) -> tuple[str | None, int]:
        return await self._database.write(lambda tx: retention.rewrap(tx, after=after, limit=limit))

    async def audit(
        self, *, after: int = 0, limit: int = 500, run_id: str | None = None, prompt_id: str | None = None
    ) -> list[AuditEntry]:
        return await self._database.read(lambda tx: audit.read(tx, after=after, limit=limit, run_id=run_id, prompt_id=prompt_id))

    # ── interactions ──

    async def take_interactions(self, owner: str, *, limit: int, lease_ms: int) -> list[Interaction]:
        self._show()
        return await self._database.write(lambda tx: interactions.take_interactions(tx, owner, limit=limit, lease_ms=lease_ms))

    async def decide(self, verdict: Verdict) -> AnswerReceipt:
        return await self._database.write(lambda tx: interactions.decide(tx, verdict), label=SETTLE)

    async def postpone(self, interaction: Interaction, *, until: int) -> None:
        await self._database.write(lambda tx: interactions.postpone(tx, interaction, until=until))

    async def interaction_result(self, submission_id: str) -> AnswerReceipt | None:
        return await self._database.read(lambda tx: prompts.result(tx, submission_id))

    # ── outbox ──

    async def claim_lanes(
        self, owner: str, *, limit: int, lease_ms: int, items: int = 10, channels: Sequence[str] | None = None
    ) -> list[Lane]:
        self._show()
        return await self._database.write(
            lambda tx: outbox.claim_lanes(tx, owner, limit=limit, lease_ms=lease_ms, items=items, channels=channels)
        )

    async def finish(self, lane: Lane, owner: str, result: Sent | Postponed | Buried) -> None:
        await self._database.write(lambda tx: outbox.finish(tx, lane, owner, result))

    async def release_lane(self, lane: Lane, owner: str) -> None:
        await self._database.write(lambda tx: outbox.release_lane(tx, lane, owner), soft=True)

    async def replay(self, delivery_id: str) -> bool:
        return await self._database.write(lambda tx: outbox.replay(tx, delivery_id))

    # ── inside ──

    def _beside(self, patience: float) -> keeping.Beside:
        return keeping.Beside(self._settings, clock=self._clock, sealing=self._sealing, patience=patience)

    def _show(self) -> None:
        """See that others can see that this process lives: what it takes otherwise is taken from it as from the dead."""
        if self._ear is not None and not self._ear.is_heard:
            raise Unavailable("the connection by which others see that this process lives is not back yet")

    def _committed(self, run_ids: frozenset[str]) -> None:
        self._watch.tell(tuple(run_ids))
        if self._bell is not None:
            self._bell.ring(run_ids)

    def _missed(self) -> None:
        """Say to all that anything may have changed: the dead told nobody of the last they committed."""
        self._watch.tell(None)
        if self._bell is not None:
            self._bell.ring(frozenset({ANYTHING}))

    async def _notify(self, text: str) -> None:
        await self._database.notify(channel_of(self._settings.namespace), text)

    async def _version(self) -> int:
        return await self._database.read(reads.cluster_version)
