"""Values out of rows: columns in a fixed order, and what is made of them; the same for every database.

What lives here: column lists and the constructors that read them. What does not: statements, which belong to a dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, Final, Protocol

import orjson

from durable_core import versions
from durable_core.errors import CannotOpen, ContentGone, KeyMissing
from durable_core.model import (
    Abilities,
    Admission,
    AnswerPolicy,
    AuditEntry,
    Claim,
    ClaimRequest,
    Command,
    CommandKind,
    Event,
    NewRun,
    Outcome,
    Phase,
    Prompt,
    PromptOutcome,
    Record,
    RecordKind,
    Run,
    RunKind,
    RunStatus,
    Signals,
    Step,
    Submission,
    Vote,
)
from durable_core.stores import judging, sealing
from durable_core.stores.sealing import Place

Columns = Sequence[Any]

FIRST: Final = 1
"""The number of a new run's first command."""
REMEMBERED_MS: Final = 900_000
"""How long a worker that has gone is remembered; longer than it takes until a run is stranded."""

RUN: Final = (
    "run_id, name, status, phase, creator, header, turn_id, step_no, attempt, event_index, spec_version, deployment,"
    " created_at, deadline_at, ended_at, end_reason, kind, stranded, purged_at, redactions, wake_at"
)
CLAIM: Final = (
    "run_id, epoch, owner, name, creator, header, spec_version, deployment, step_no, attempt, charged, crashes, last_error,"
    " retry_at, step_started_at, created_at, deadline_at, phase, turn_id, inbox_seq, cancel_seq, interrupted, kind,"
    " redactions"
)
COMMAND: Final = "run_id, seq, kind, body, submission_id, principal, at"
RECORD: Final = "run_id, step_n, key, kind, input_hash, body, attempt, at"
STEP: Final = "run_id, n, kind, name, attempt, spec_version, deployment, input, output, started_at, completed_at"
EVENT: Final = "run_id, seq, idx, type, body, refs, attempt, at"
PROMPT: Final = (
    "p.prompt_id, p.run_id, p.kind, p.step_n, p.call_id, p.body, p.requester, p.policy, p.created_seq, p.created_at,"
    " p.expires_at, p.outcome, p.option_id, p.settled_by, p.settled_name, p.settled_via, p.settled_at, p.note,"
    " p.quorum, p.answerers, p.asked, p.remind_at, p.level, p.group_id"
)
"""Without the votes, which a dialect's `votes.PROMPT` has behind these."""
PROMPT_WIDTH: Final = 25
AUDIT: Final = (
    "n, at, act, run_id, prompt_id, kind, requester, asked, asked_at, shown, principal, via, place, option_id, outcome, reason,"
    " prev, hash"
)
SUBMISSION: Final = (
    "a.submission_id, a.run_id, a.source, a.kind, a.seq, a.turn_id, a.outcome, a.detail, a.reply_step, a.at, a.done_at,"
    " c.taken_step, r.phase, r.turn_id"
)


class Opener(Protocol):
    """What opens sealed columns: a transaction that knows the run's key."""

    def open(self, run_id: str, sealed: bytes, at: Place) -> bytes: ...

    def open_optional(self, run_id: str, sealed: bytes | None, at: Place) -> bytes | None: ...


class Lenient:
    """Opens what opens, and gives nothing for the rest: for whoever has to get to an end whatever is in a row."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    def open(self, run_id: str, sealed: bytes, at: Place) -> bytes:
        """Open a value; empty where it doesn't open."""
        try:
            return self._opener.open(run_id, sealed, at)
        except (KeyMissing, CannotOpen, ContentGone):
            return b""

    def open_optional(self, run_id: str, sealed: bytes | None, at: Place) -> bytes | None:
        """Open a value that may be missing."""
        return None if sealed is None else self.open(run_id, sealed, at)


def run(opener: Opener, row: Columns) -> Run:
    """Read `RUN`."""
    return Run(
        run_id=row[0],
        kind=RunKind(row[16]),
        name=row[1],
        status=RunStatus(row[2]),
        phase=Phase(row[3]),
        creator=row[4],
        header=b"" if row[18] is not None else opener.open(row[0], row[5], sealing.run_header()),
        turn_id=row[6],
        step_no=row[7],
        attempt=row[8],
        event_count=row[9],
        spec_version=row[10],
        deployment=row[11],
        created_at=row[12],
        deadline_at=row[13],
        ended_at=row[14],
        end_reason=row[15],
        stranded=row[17],
        purged_at=row[18],
        redactions=row[19],
        wake_at=row[20],
    )


def claim(
    opener: Opener,
    row: Columns,
    *,
    now: int,
    commands: tuple[Command, ...],
    prompts: tuple[Prompt, ...],
    records: tuple[Record, ...],
) -> Claim:
    """Read `CLAIM`, with what the pending step has."""
    return Claim(
        run_id=row[0],
        epoch=row[1],
        owner=row[2],
        kind=RunKind(row[22]),
        name=row[3],
        creator=row[4],
        header=opener.open(row[0], row[5], sealing.run_header()),
        spec_version=row[6],
        deployment=row[7],
        step_no=row[8],
        attempt=row[9],
        charged=row[10],
        crashes=row[11],
        interrupted=bool(row[21]),
        last_error=row[12],
        retry_at=row[13],
        step_started_at=row[14],
        now=now,
        created_at=row[15],
        deadline_at=row[16],
        phase=Phase(row[17]),
        turn_id=row[18],
        signals=Signals(inbox_seq=row[19], cancel_pending=row[20] > 0),
        commands=commands,
        prompts=prompts,
        records=records,
        redactions=row[23],
    )


def command(opener: Opener, row: Columns) -> Command:
    """Read `COMMAND`."""
    return Command(
        seq=row[1],
        kind=CommandKind(row[2]),
        body=opener.open(row[0], row[3], sealing.command_body(row[1])),
        submission_id=row[4],
        principal=row[5],
        at=row[6],
    )


def record(opener: Opener, row: Columns) -> Record:
    """Read `RECORD`."""
    return Record(
        key=row[2],
        kind=RecordKind(row[3]),
        input_hash=row[4],
        body=opener.open(row[0], row[5], sealing.record_body(row[1], row[2])),
        attempt=row[6],
        at=row[7],
    )


def step(opener: Opener, row: Columns) -> Step:
    """Read `STEP`."""
    return Step(
        n=row[1],
        kind=row[2],
        name=row[3],
        attempt=row[4],
        spec_version=row[5],
        deployment=row[6],
        input=opener.open(row[0], row[7], sealing.step_input(row[1])),
        output=opener.open(row[0], row[8], sealing.step_output(row[1])),
        started_at=row[9],
        completed_at=row[10],
    )


def event(opener: Opener, row: Columns) -> Event:
    """Read `EVENT`."""
    return Event(
        seq=row[1],
        index=row[2],
        type=row[3],
        body=opener.open(row[0], row[4], sealing.event_body(row[1])),
        refs=refs_from(row[5]),
        attempt=row[6],
        at=row[7],
    )


def prompt(opener: Opener, row: Columns) -> Prompt:
    """Read `PROMPT` and the votes behind it."""
    prompt_id, run_id = row[0], row[1]
    return Prompt(
        prompt_id=prompt_id,
        run_id=run_id,
        kind=row[2],
        step_n=row[3],
        call_id=row[4],
        body=opener.open(run_id, row[5], sealing.prompt_body(prompt_id)),
        requester=row[6],
        policy=_policy(row[7]),
        created_seq=row[8],
        created_at=row[9],
        expires_at=row[10],
        outcome=None if row[11] is None else PromptOutcome(row[11]),
        option_id=row[12],
        settled_by=row[13],
        settled_name=row[14],
        settled_via=row[15],
        settled_at=row[16],
        note=opener.open_optional(run_id, row[17], sealing.prompt_note(prompt_id)),
        quorum=row[18],
        answerers=tuple(orjson.loads(row[19])),
        asked=row[20],
        remind_at=row[21],
        level=row[22],
        group=row[23],
        votes=() if row[24] is None else _votes(row[24]),
    )


def _policy(word: str) -> AnswerPolicy:
    """Read who may answer; a word of a newer version leaves it to a worker, who finds out that it can't read the prompt."""
    try:
        return AnswerPolicy(word)
    except ValueError:
        return AnswerPolicy.FUNCTION


def _votes(text: str) -> tuple[Vote, ...]:
    """Read votes, each an array of principal, name, option, way and time."""
    found = orjson.loads(text)
    return judging.in_order(
        Vote(principal=who, name=name, option_id=option, via=via, at=at) for who, name, option, via, at in found
    )


def audit(row: Columns) -> AuditEntry:
    """Read `AUDIT`."""
    return AuditEntry(
        n=row[0],
        at=row[1],
        act=row[2],
        run_id=row[3],
        prompt_id=row[4],
        kind=row[5],
        requester=row[6],
        asked=row[7],
        asked_at=row[8],
        shown=row[9],
        principal=row[10],
        via=row[11],
        where=row[12],
        option_id=row[13],
        outcome=row[14],
        reason=row[15],
        prev=row[16],
        hash=row[17],
    )


def audited(entry: AuditEntry) -> tuple[str | int | None, ...]:
    """Write `AUDIT`."""
    return astuple(entry)


def submission(opener: Opener, row: Columns) -> Submission:
    """Read `SUBMISSION`."""
    outcome = None if row[6] is None else Outcome(row[6])
    return Submission(
        submission_id=row[0],
        run_id=row[1],
        source=row[2],
        kind=row[3],
        seq=row[4],
        # without an inbox entry there is nothing left to consume once it is settled
        consumed=row[11] is not None or (row[4] == 0 and outcome is not None),
        turn_id=row[5],
        outcome=outcome,
        detail=opener.open_optional(row[1], row[7], sealing.admission_detail(row[0])),
        reply_step=row[8],
        at=row[9],
        done_at=row[10],
        run_phase=Phase(row[12]),
        run_turn_id=row[13],
    )


def abilities(able: Abilities) -> dict[str, str | int]:
    """Write what a worker is able to, as the parameters of a claim."""
    return {
        "min_readable": able.min_readable,
        "current": able.current,
        "sessions": int(able.sessions),
        "workflows": names(able.workflows),
        "code": able.code,
        "since": able.since,
    }


def is_able(able: Abilities, new: NewRun) -> bool:
    """Tell whether a worker is able to take a run that is just being made."""
    kinds = able.sessions if new.kind is RunKind.SESSION else new.name in able.workflows
    return kinds and able.min_readable <= versions.CURRENT_SPEC <= able.current


def begun(admission: Admission, new: NewRun, request: ClaimRequest, *, at: int) -> Claim:
    """Return the claim of a run that was made and taken in one transaction, its first input in its inbox."""
    first = Command(
        seq=FIRST,
        kind=admission.kind or CommandKind.MESSAGE,
        body=admission.body,
        submission_id=admission.submission_id,
        principal=admission.principal,
        at=at,
    )
    return Claim(
        run_id=new.run_id,
        epoch=1,
        owner=request.owner,
        kind=new.kind,
        name=new.name,
        creator=new.creator,
        header=new.header,
        spec_version=versions.CURRENT_SPEC,
        deployment=new.deployment,
        step_no=0,
        attempt=1,
        charged=0,
        crashes=0,
        interrupted=False,
        last_error=None,
        retry_at=None,
        step_started_at=at,
        now=at,
        created_at=at,
        deadline_at=None if new.lifetime_ms is None else at + new.lifetime_ms,
        phase=Phase.IDLE,
        turn_id=None,
        signals=Signals(inbox_seq=FIRST, cancel_pending=False),
        commands=(first,),
        prompts=(),
        records=(),
    )


def names(values: Sequence[str]) -> str:
    """Write names as a JSON array."""
    return orjson.dumps(list(values)).decode()


# ── small encoded values ──


def refs_to(refs: Sequence[tuple[str, str]]) -> str | None:
    """Write an event's references as JSON text."""
    return orjson.dumps(refs).decode() if refs else None


def refs_from(text: str | None) -> tuple[tuple[str, str], ...]:
    """Read an event's references."""
    return tuple((field, target) for field, target in orjson.loads(text)) if text else ()
