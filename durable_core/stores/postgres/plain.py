"""Plain commits: finishing a step, recording, appending, each in one statement that commits by itself.

What lives here: the statements, and when they will do. What does not: what needs more than one (`commits.py`), which is also
where a statement that found something else than it expected is done again and says what is wrong.

A sealed value is bound to its place, an event's to its number. So the number has to be known beforehand: the store keeps where
the runs it holds stand (`Position`), and the statement's head, the fenced UPDATE of the run row, changes the row only if it
stands there. Everything else is derived from that row: no row, nothing written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from durable_core import versions
from durable_core.crypto import SessionKey
from durable_core.model import EventDraft, Phase, RecordKind, StepCommit
from durable_core.stores import sealing
from durable_core.stores.postgres import events
from durable_core.stores.postgres.loading import Position
from durable_core.stores.postgres.runs import released_wake
from durable_core.stores.postgres.sql import now
from durable_core.stores.sealing import Place

KEPT: Final = 10_000
"""Runs of which it is known where they stand, and whose keys are at hand."""

# The time is read once a statement: a volatile expression in a subquery isn't merged into what surrounds it.
_FROM: Final = f"FROM (SELECT {now('$4')} AS now) t"
HELD: Final = "r.owner IS NOT NULL AND r.status = 'open'"
_FENCED: Final = f"r.run_id = $1 AND r.epoch = $2 AND r.step_no = $3 AND {HELD}"
AT: Final = "greatest(r.last_at, t.now)"
NEXT: Final = f"""
    step_no = r.step_no + {{steps}}, charged = 0, crashes = 0, progressed = 0, interrupted = 0, retry_at = NULL,
    last_error = NULL, phase = {{phase}}, turn_id = {{turn}}, last_at = {AT}, spec_version = {{spec}}, stranded = NULL,
    stranded_code = NULL"""
_STEP: Final = """
    INSERT INTO moor_step (run_id, n, kind, name, attempt, spec_version, deployment, input, output, started_at, completed_at)
"""
_ONE: Final = f"""{_STEP}
    SELECT $1, $3, $8, $9, $10::bigint, $7, $11, $12::bytea, $13::bytea, coalesce($14::bigint, h.at), h.at FROM h"""
GOES_ON: Final = f"attempt = 1, step_started_at = {AT}"
HEAD: Final = 15
"""How many arguments a commit's statement has before those of its events, which are three numbers and five a row."""
INPUTS: Final = 6
"""How many it has behind them for what it consumes and settles, if it does."""
_EVENTS: Final = """
    INSERT INTO moor_event (run_id, seq, idx, type, body, refs, attempt, at)
    SELECT $1, x.seq, x.idx, x.type, x.body, x.refs, {attempt}::bigint, h.at
    FROM h, {given} AS x (seq, idx, type, body, refs)
"""
# Most commits have one event, few have many: the driver looks at each element of an array a dozen times.
_ARRAYS: Final = "unnest({}::bigint[], {}::bigint[], {}::text[], {}::bytea[], {}::text[])"
_ROW: Final = "({}::bigint, {}::bigint, {}::text, {}::bytea, {}::text)"
FEW: Final = 4
"""Up to so many events are given as rows."""
# Ending in one statement: where nothing but the run itself and the outcomes given ends with it. A statement sees what was there
# when it began; what came in while it waited for the row shows in the row, by the count of the inbox.
_ENDS_ALONE: Final = """
    AND r.inbox_seq = {seen}::bigint
    AND NOT EXISTS (SELECT 1 FROM moor_prompt p WHERE p.run_id = $1 AND p.outcome IS NULL)
    AND NOT EXISTS (SELECT 1 FROM moor_interaction i WHERE i.run_id = $1 AND i.status IS NULL)
    AND NOT EXISTS (SELECT 1 FROM moor_address o WHERE o.run_id = $1)
    AND NOT EXISTS (
        SELECT 1 FROM moor_admission o WHERE o.run_id = $1 AND o.outcome IS NULL AND o.submission_id <> ALL({settled}::text[])
    )"""
_ENDED: Final = """
    attempt = 0, step_started_at = NULL, owner = NULL, lease_until = NULL, wake_at = NULL, cancel_seq = 0, epoch = epoch + 1,
    status = 'ended', ended_at = greatest(r.last_at, t.now), end_reason = {reason},
    purge_at = greatest(r.last_at, t.now) + keep_ms"""
# What didn't go as expected undoes the statement by an error; the transaction that follows finds out what it was.
UNLESS: Final = "1 / CASE WHEN {expected} THEN 1 ELSE 0 END"


class Positions:
    """Where the runs that this process holds stand; the least recently used ones are dropped."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Position] = OrderedDict()

    def get(self, run_id: str, epoch: int, step_n: int | None) -> Position | None:
        """Return where a run stands, if it stands at this step under this epoch."""
        place = self._kept.get(run_id)
        if place is None or place.epoch != epoch or (step_n is not None and place.step_no != step_n):
            return None
        self._kept.move_to_end(run_id)
        return place

    def clear(self) -> None:
        """Forget where all runs stand."""
        self._kept.clear()

    def put(self, run_id: str, place: Position | None) -> None:
        """Keep where a run stands; None forgets it."""
        if place is None:
            self._kept.pop(run_id, None)
            return
        self._kept[run_id] = place
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


class Statement:
    """A statement's arguments while it is put together."""

    def __init__(self, *args: Any) -> None:
        self.args = list(args)

    def add(self, *args: Any) -> None:
        """Append arguments."""
        self.args += args


def is_plain(commit: StepCommit) -> bool:
    """Tell whether one statement will do."""
    return not (
        commit.settle
        or commit.updates
        or commit.prompts
        or commit.outbox
        or commit.extra
        or commit.addresses
        or commit.starts
        or commit.move is not None
    )


def is_uniform(commit: StepCommit) -> bool:
    """Tell whether a plain commit does no more than most: its statement then differs from others by its arguments alone."""
    more = commit.release or commit.end or commit.outcomes or commit.before is not None
    links = commit.consumed and (len(commit.consumed) > 1 or commit.turn_id or commit.link_turn)
    return not (more or links) and len(commit.events) <= FEW


def commit(commit: StepCommit, place: Position, key: SessionKey, override: int | None) -> tuple[str, list[Any]]:
    """Return the statement that finishes a step: at, now, inbox_seq, cancel_seq; no row where the run stands elsewhere."""
    run_id, last, step, before = commit.run_id, commit.last_n, commit.step, commit.before
    ends = commit.end is not None
    inputs = bool(commit.consumed or commit.outcomes)
    made = Statement(
        run_id,
        commit.epoch,
        commit.step_n,
        override,
        Phase.IDLE.value if ends else commit.phase.value,
        None if ends else commit.turn_id,
        versions.CURRENT_SPEC,
        step.kind,
        step.name,
        place.attempt,
        place.deployment,
        _seal(key, run_id, step.input, sealing.step_input(last)),
        _seal(key, run_id, step.output, sealing.step_output(last)),
        place.step_started_at,
        commit.redactions,
    )
    if before is not None:
        made.add(
            before.kind,
            before.name,
            _seal(key, run_id, before.input, sealing.step_input(commit.step_n)),
            _seal(key, run_id, before.output, sealing.step_output(commit.step_n)),
        )
    if ends:
        made.add(commit.seen, commit.end, [item.submission_id for item in commit.outcomes])
    elif commit.release:
        made.add(commit.seen, commit.timer_at)
    if commit.events:
        _add_events(made, key, run_id, commit.events, place)
    if inputs:
        turn_id = commit.turn_id if commit.link_turn is None else commit.link_turn
        outcomes = list({item.submission_id: item for item in reversed(commit.outcomes)}.values())
        made.add(
            list(commit.consumed),
            turn_id or None,
            [item.submission_id for item in outcomes],
            [item.outcome.value for item in outcomes],
            [
                None if item.detail is None else _seal(key, run_id, item.detail, sealing.admission_detail(item.submission_id))
                for item in outcomes
            ],
            [item.reply_step for item in outcomes],
        )
    sql = _commit_sql(
        events=_shape(commit.events), inputs=inputs, release=commit.release and not ends, ends=ends, two=before is not None
    )
    return sql, made.args


def record(
    run_id: str,
    place: Position,
    key: SessionKey,
    override: int | None,
    *,
    name: str,
    kind: RecordKind,
    input_hash: str,
    body: bytes,
    drafts: Sequence[EventDraft],
) -> tuple[str, list[Any]]:
    """Return the statement that keeps a record: inbox_seq, cancel_seq; an error where there is one of that key."""
    sealed = _seal(key, run_id, body, sealing.record_body(place.step_no, name))
    made = Statement(run_id, place.epoch, place.step_no, override, place.attempt, name, kind.value, input_hash, sealed)
    if drafts:
        _add_events(made, key, run_id, drafts, place)
    return _record_sql(events=_shape(drafts)), made.args


def append(
    run_id: str, place: Position, key: SessionKey, override: int | None, drafts: Sequence[EventDraft]
) -> tuple[str, list[Any]]:
    """Return the statement that appends events: inbox_seq, cancel_seq."""
    made = Statement(run_id, place.epoch, place.step_no, override, place.attempt)
    _add_events(made, key, run_id, drafts, place)
    return _append_sql(events=_shape(drafts)), made.args


def moved(place: Position, drafts: Sequence[EventDraft]) -> Position:
    """Return where a run stands after events."""
    seq, index = place.event_seq + len(drafts), place.event_index + sum(draft.visible for draft in drafts)
    return Position(place.epoch, place.step_no, place.attempt, place.deployment, place.step_started_at, seq, index)


def _add_events(made: Statement, key: SessionKey, run_id: str, drafts: Sequence[EventDraft], place: Position) -> None:
    after = moved(place, drafts)
    columns = events.sealed(key, run_id, drafts, seq=place.event_seq, index=place.event_index)
    made.add(place.event_seq, after.event_seq, after.event_index)
    made.args += columns if len(drafts) > FEW else [value for row in zip(*columns, strict=True) for value in row]


def _shape(drafts: Sequence[EventDraft]) -> int:
    """Return how a statement takes these events: as so many rows, or for more of them, as arrays."""
    return min(len(drafts), FEW + 1)


def _seal(key: SessionKey, run_id: str, plain: bytes, at: Place) -> bytes:
    return key.seal(plain, table=at.table, row=at.row(run_id), column=at.column)


def _numbers(start: int, count: int) -> list[str]:
    return [f"${n}" for n in range(start, start + count)]


def _event_parts(start: int, attempt: str, shape: int) -> tuple[str, str, str]:
    """Return what events add to the head's SET, to its WHERE, and the part that writes them."""
    if not shape:
        return "", "", ""
    expected, seq_after, index_after = _numbers(start, 3)
    if shape > FEW:
        given = _ARRAYS.format(*_numbers(start + 3, 5))
    else:
        given = f"(VALUES {', '.join(_ROW.format(*_numbers(start + 3 + 5 * n, 5)) for n in range(shape))})"
    written = _EVENTS.format(attempt=attempt, given=given)
    return (
        f", event_seq = {seq_after}::bigint, event_index = {index_after}::bigint",
        f" AND r.event_seq = {expected}::bigint",
        f", e AS ({written})",
    )


@cache
def _commit_sql(*, events: int, inputs: bool, release: bool, ends: bool, two: bool) -> str:
    number = HEAD + 1
    last, steps = "$3::bigint", _ONE
    if two:
        last, steps = _two(_numbers(number, 4))
        number += 4
    after, alone = GOES_ON, ""
    if ends:
        seen, reason, settled = _numbers(number, 3)
        number += 3
        after, alone = _ENDED.format(reason=reason), _ENDS_ALONE.format(seen=seen, settled=settled)
    elif release:
        seen, timer = _numbers(number, 2)
        number += 2
        wake = released_wake(seen=seen, now="t.now", timer_at=timer, phase="$5")
        after = f"attempt = 0, step_started_at = NULL, owner = NULL, lease_until = NULL, wake_at = {wake}"
    event_set, event_where, event_part = _event_parts(number, "$10", events)
    if events:
        number += 3 + 5 * (events if events <= FEW else 1)
    cancel = input_part = check = ""
    if inputs:
        cancel, input_part, check = _input_parts(number, last)
        cancel = "" if ends else cancel
    return f"""
WITH h AS (
    UPDATE moor_run r SET {NEXT.format(steps=1 + two, phase="$5", turn="$6", spec="$7")},
        {after}{cancel}{event_set}
    {_FROM} WHERE {_FENCED} AND r.redactions = coalesce($15::bigint, r.redactions){event_where}{alone}
    RETURNING r.last_at AS at, t.now, r.inbox_seq, r.cancel_seq
), s AS (
    {steps}
){event_part}{input_part}
SELECT h.at, h.now, h.inbox_seq, h.cancel_seq{check} FROM h
"""


def _two(first: Sequence[str]) -> tuple[str, str]:
    """Return the number of a commit's second step, and what writes both; the second one took no time."""
    kind, name, given, output = first
    return (
        "$3::bigint + 1",
        f"""{_STEP}
    SELECT $1, x.n, x.kind, x.name, x.attempt, $7, $11, x.input, x.output, coalesce(x.started, h.at), h.at FROM h, (VALUES
        ($3::bigint, {kind}::text, {name}::text, $10::bigint, {given}::bytea, {output}::bytea, $14::bigint),
        ($3::bigint + 1, $8::text, $9::text, 1::bigint, $12::bytea, $13::bytea, NULL::bigint)
    ) AS x (n, kind, name, attempt, input, output, started)""",
    )


def _input_parts(start: int, last: str) -> tuple[str, str, str]:
    """Return what consumed commands and outcomes add to the head's SET, the parts that write them, and the check."""
    consumed, turn, ids, outcomes, details, steps = _numbers(start, INPUTS)
    consumed = f"{consumed}::bigint[]"
    # One UPDATE links and settles: a row is changed at most once a statement. Each is looked up by its id; a join of a handful
    # with all admissions is planned as a walk through all of them while the table is new.
    parts = f"""
, c AS (
    UPDATE moor_command c SET taken_step = {last} FROM h
    WHERE c.run_id = $1 AND c.seq = ANY({consumed}) AND c.taken_step IS NULL
    RETURNING c.submission_id
), a AS (
    UPDATE moor_admission a SET
        turn_id = CASE WHEN x.consumed THEN coalesce({turn}, a.turn_id) ELSE a.turn_id END,
        outcome = coalesce(a.outcome, x.outcome),
        detail = CASE WHEN a.outcome IS NULL THEN x.detail ELSE a.detail END,
        reply_step = CASE WHEN a.outcome IS NULL THEN x.reply_step ELSE a.reply_step END,
        done_at = CASE WHEN a.outcome IS NULL AND x.outcome IS NOT NULL THEN h.at ELSE a.done_at END
    FROM h, (
        SELECT (SELECT b.ctid FROM moor_admission b WHERE b.submission_id = coalesce(c.submission_id, o.id)) AS place,
               c.submission_id IS NOT NULL AS consumed, o.outcome, o.detail, o.reply_step
        FROM c FULL JOIN unnest({ids}::text[], {outcomes}::text[], {details}::bytea[], {steps}::bigint[])
            AS o (id, outcome, detail, reply_step) ON o.id = c.submission_id
    ) x
    WHERE a.ctid = x.place AND a.run_id = $1
)"""
    cancel = f", cancel_seq = CASE WHEN cancel_seq = ANY({consumed}) THEN 0 ELSE cancel_seq END"
    return cancel, parts, ", " + UNLESS.format(expected=f"(SELECT count(*) FROM c) = cardinality({consumed})")


@cache
def _record_sql(*, events: int) -> str:
    event_set, event_where, event_part = _event_parts(10, "$5", events)
    return f"""
WITH h AS (
    UPDATE moor_run r SET progressed = 1, last_at = {AT}{event_set} {_FROM} WHERE {_FENCED}{event_where}
    RETURNING r.last_at AS at, r.inbox_seq, r.cancel_seq
), i AS (
    INSERT INTO moor_record (run_id, step_n, key, kind, input_hash, body, attempt, at)
    SELECT $1, $3, $6, $7, $8, $9::bytea, $5::bigint, h.at FROM h
    ON CONFLICT DO NOTHING RETURNING 1
){event_part}
SELECT h.inbox_seq, h.cancel_seq, {UNLESS.format(expected="EXISTS (SELECT 1 FROM i)")} FROM h
"""


@cache
def _append_sql(*, events: int) -> str:
    event_set, event_where, event_part = _event_parts(6, "$5", events)
    return f"""
WITH h AS (
    UPDATE moor_run r SET last_at = {AT}{event_set} {_FROM} WHERE {_FENCED}{event_where}
    RETURNING r.last_at AS at, r.inbox_seq, r.cancel_seq
){event_part}
SELECT h.inbox_seq, h.cancel_seq FROM h
"""
