"""Histories: what must be true of the stored rows at any moment, whatever was done to a store.

What lives here: checks that read tables and know no story. What does not: promises about single calls (the groups).
"""

from __future__ import annotations

from durable_core import audit
from durable_core.model import Run, RunStatus
from durable_core.store import Store
from durable_core.stores import auditing
from durable_core.testing.rebuilding import check_rebuilt

_COMMANDS = "SELECT seq FROM moor_command WHERE run_id = :run_id ORDER BY seq"
_ADMISSIONS = "SELECT submission_id, outcome, done_at FROM moor_admission WHERE run_id = :run_id"
_ADDRESSES = "SELECT channel, address FROM moor_address WHERE run_id = :run_id"
_ASLEEP = "SELECT owner, wake_at FROM moor_run WHERE run_id = :run_id"
_OPEN = "SELECT prompt_id FROM moor_prompt WHERE run_id = :run_id AND outcome IS NULL"
_RUNS = "SELECT run_id FROM moor_run"
_LANES = "SELECT channel, address, seq, due_at, owner FROM moor_lane"
_LANE_ITEMS = "SELECT lane_seq, state FROM moor_outbox WHERE channel = :channel AND address = :address ORDER BY lane_seq"

_UNSETTLED = "SELECT count(*) FROM moor_admission WHERE run_id = :run_id AND outcome IS NULL"
_CONTENT = (
    ("moor_run", "header"),
    ("moor_run", "session_key"),
    ("moor_command", "body"),
    ("moor_step", "input"),
    ("moor_step", "output"),
    ("moor_event", "body"),
    ("moor_prompt", "body"),
    ("moor_prompt", "note"),
    ("moor_interaction", "body"),
    ("moor_interaction", "note"),
    ("moor_outbox", "body"),
    ("moor_admission", "detail"),
    ("moor_record", "body"),
)
_GIVEN = "SELECT count(*) FROM moor_claim WHERE done_run = :run_id AND length(value) > 0"


async def check_store(store: Store, *, rebuilt: bool = True) -> None:
    """Check every run and every lane; `rebuilt` is for runs whose whole list was written by code that keeps S32."""
    for (run_id,) in await store.rows(_RUNS, {}):
        await check_run(store, str(run_id), rebuilt=rebuilt)
    await check_lanes(store)
    await check_audit(store)


async def check_run(store: Store, run_id: str, *, rebuilt: bool = True) -> None:
    """Check one run: numbers without gaps, time that goes forward, and nothing left open after the end."""
    run = await store.run(run_id)
    if run.purged_at is not None:
        await _check_gone(store, run)
        return
    events = await store.events(run_id, limit=1_000_000, hidden=True)
    first = events[0].seq if events else 0
    assert [e.seq for e in events] == list(range(first, first + len(events))), "event positions have gaps"
    assert [e.index for e in events if e.index is not None] == list(range(run.event_count)), "visible indexes have gaps"
    assert [e.at for e in events] == sorted(e.at for e in events), "time ran backwards"
    assert [s.n for s in await store.steps(run_id)] == list(range(run.step_no)), "steps have gaps"
    commands = [row[0] for row in await store.rows(_COMMANDS, {"run_id": run_id})]
    assert commands == list(range(1, len(commands) + 1)), "the inbox has gaps"
    settled = await store.rows(_ADMISSIONS, {"run_id": run_id})
    assert all((outcome is None) == (done_at is None) for _, outcome, done_at in settled)
    if rebuilt:
        await check_rebuilt(store, run_id)
    if run.status is RunStatus.ENDED:
        assert all(outcome is not None for _, outcome, _ in settled), "an ended run left accepted work without an outcome"
        assert await store.rows(_ADDRESSES, {"run_id": run_id}) == [], "an ended run keeps an address"
        assert await store.rows(_OPEN, {"run_id": run_id}) == [], "an ended run keeps an open prompt"
        assert await store.rows(_ASLEEP, {"run_id": run_id}) == [(None, None)], "an ended run is owned or due"


async def _check_gone(store: Store, run: Run) -> None:
    """Check a run whose content was deleted: it had ended, and nothing of it is left to be read."""
    assert run.status is RunStatus.ENDED, "the content of an open run is gone"
    for table, column in _CONTENT:
        sql = f"SELECT count(*) FROM {table} WHERE run_id = :run_id AND length({column}) > 0"  # noqa: S608 - names from above
        assert await store.rows(sql, {"run_id": run.run_id}) == [(0,)], f"{table} keeps content of a run that is to be forgotten"
    assert await store.rows(_GIVEN, {"run_id": run.run_id}) == [(0,)], "a claimed key keeps what a forgotten run gave"
    assert await store.rows(_UNSETTLED, {"run_id": run.run_id}) == [(0,)], "a forgotten run left accepted work without an outcome"


async def check_audit(store: Store) -> None:
    """Check that the chain of the audit holds, and that no prompt was settled twice."""
    entries = await store.audit(limit=1_000_000)
    assert audit.verify(entries) is None, "the chain of the audit is broken"
    settled = [entry.prompt_id for entry in entries if entry.act in {auditing.SETTLED, auditing.OVERRIDDEN}]
    assert len(set(settled)) == len(settled), "the audit tells of a prompt that was settled twice"


async def check_lanes(store: Store) -> None:
    """Check each lane: order without gaps, and due when it owes something and nobody sends."""
    for channel, address, last, due_at, owner in await store.rows(_LANES, {}):
        items = await store.rows(_LANE_ITEMS, {"channel": channel, "address": address})
        numbers = [row[0] for row in items]
        assert len(set(numbers)) == len(numbers), "two items share a place"
        assert not numbers or numbers[-1] == last, "the lane's number is not its last item's"
        owes = any(state == "pending" for _, state in items)
        assert not owes or owner is not None or due_at is not None, "a lane that owes something sleeps"
