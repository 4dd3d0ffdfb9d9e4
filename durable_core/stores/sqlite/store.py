"""The SQLite store: the contract's calls, each handed to the writer or the reader.

What lives here: wiring only. What does not: statements (one file an aggregate) and transactions (`writer.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

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
    vaults,
    workers,
)
from durable_core.stores.sqlite.life import Living
from durable_core.stores.sqlite.tx import Tx
from durable_core.stores.sqlite.writer import ADMIT, COMMIT, RECORD, SETTLE

_FEW: Final = 2
"""Bodies that are read on the loop; more go to the reader's thread."""


class SqliteStore(Living):
    """Durable state in one SQLite file, shared by the processes of one host; or in memory, for one process."""

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

    async def settle_key(self, settlement: KeySettlement) -> KeySettled:
        return await self._writer.run(lambda tx: keyclaims.settle(tx, settlement))

    # ── the vault ──

    async def vault(self, name: str) -> VaultEntry | None:
        return await self._glimpse(lambda tx: vaults.entry(tx, name))

    async def vault_write(self, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
        return await self._writer.run(lambda tx: vaults.write(tx, writes))

    async def vault_hold(self, name: str, holder: str, *, ms: int) -> VaultEntry | None:
        return await self._writer.run(lambda tx: vaults.hold(tx, name, holder, ms=ms))

    async def vault_release(self, name: str, holder: str) -> None:
        await self._writer.run(lambda tx: vaults.release(tx, name, holder))

    async def vault_due(self, kind: str, *, limit: int) -> list[VaultEntry]:
        return await self._read(lambda tx: vaults.due(tx, kind, limit=limit))

    async def vault_list(
        self, *, kind: str | None = None, owner: str | None = None, after: str = "", limit: int
    ) -> list[VaultListing]:
        return await self._read(lambda tx: vaults.listing(tx, kind=kind, owner=owner, after=after, limit=limit))

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
