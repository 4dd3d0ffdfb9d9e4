"""Builders: the small values that a test of durable state is made of, with everything optional filled in.

What lives here: functions that return values of `model`. What does not: anything that calls a store (`acts`).
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

from durable_core.codec import encode
from durable_core.ids import new_id, request_id
from durable_core.model import (
    Admission,
    AnswerPolicy,
    Claim,
    CommandKind,
    EventDraft,
    Extra,
    Move,
    NewRun,
    OutboxDraft,
    Phase,
    PromptAnswer,
    PromptDraft,
    PromptOutcome,
    PromptSettlement,
    PromptUpdate,
    RunKind,
    StepCommit,
    StepDraft,
    SubmissionOutcome,
    ToAddress,
    ToNew,
    ToRun,
)

CHANNEL = "console"
ADDRESS = "console:v1:thread"
ALICE = "console:alice"
BOB = "console:bob"
START_MS = 1_800_000_000_000
"""Where a test's clock starts: a moment in 2027."""
SECOND = 1_000
MINUTE = 60 * SECOND
LEASE = 30 * SECOND
"""The lease that tests take unless they say otherwise."""


def ms(value: int) -> timedelta:
    """Return milliseconds as the duration that clocks take."""
    return timedelta(milliseconds=value)


def body(text: str) -> bytes:
    """Return an encoded body that says `text`."""
    return encode({"text": text})


def new_run(
    run_id: str | None = None,
    *,
    lifetime_ms: int | None = None,
    name: str = "support",
    creator: str = ALICE,
    kind: RunKind = RunKind.SESSION,
    keep_ms: int | None = None,
    wake_at: int | None = None,
) -> NewRun:
    """Return a run to be created."""
    return NewRun(
        run_id=run_id or new_id("ses"),
        name=name,
        creator=creator,
        header=body("header"),
        deployment="d1",
        lifetime_ms=lifetime_ms,
        kind=kind,
        keep_ms=keep_ms,
        wake_at=wake_at,
    )


def to_address(address: str = ADDRESS, *, new: NewRun | None = None, lifetime_ms: int | None = None) -> ToAddress:
    """Return an address as a target; a new run is offered for it."""
    return ToAddress(channel=CHANNEL, address=address, new=new or new_run(lifetime_ms=lifetime_ms))


def message(
    target: ToAddress | ToRun | ToNew | str | None = None,
    *,
    text: str = "hello",
    key: str | None = None,
    source: str = CHANNEL,
    on_conflict: str = "refuse",
    principal: str = ALICE,
    extra: tuple[Extra, ...] = (),
) -> Admission:
    """Return a message: to a target, to a run by its id, or by default to the test's address."""
    where = ToRun(run_id=target) if isinstance(target, str) else target
    return Admission(
        source=source,
        key=key or new_id("key"),
        digest=sha256(text.encode()).digest(),
        on_conflict="merge" if on_conflict == "merge" else "refuse",
        submission_id=new_id("sub"),
        target=where or to_address(),
        kind=CommandKind.MESSAGE,
        body=body(text),
        principal=principal,
        extra=extra,
    )


def cancel(run_id: str, *, turn_id: str | None = None, key: str | None = None) -> Admission:
    """Return a cancel of a run's turn."""
    return Admission(
        source=CHANNEL,
        key=key or new_id("key"),
        digest=b"cancel",
        on_conflict="merge",
        submission_id=new_id("sub"),
        target=ToRun(run_id=run_id),
        kind=CommandKind.CANCEL,
        body=body("cancel"),
        principal=ALICE,
        turn_id=turn_id,
    )


def event(text: str = "tick", *, visible: bool = True, refs: tuple[tuple[str, str], ...] = ()) -> EventDraft:
    """Return an event that says `text`."""
    return EventDraft(type="test.event", body=body(text), refs=refs, visible=visible)


def post(
    address: str = ADDRESS,
    *,
    text: str = "post",
    delivery_id: str | None = None,
    prompt_id: str | None = None,
    edit_of: str | None = None,
) -> OutboxDraft:
    """Return a message owed to an address; with `edit_of`, an edit of that delivery."""
    return OutboxDraft(
        delivery_id=delivery_id or new_id("dlv"),
        channel=CHANNEL,
        address=address,
        body=body(text),
        prompt_id=prompt_id,
        edit_of=edit_of,
    )


def prompt(
    *,
    policy: AnswerPolicy = AnswerPolicy.REQUESTER,
    requester: str = ALICE,
    expires_at: int | None = None,
    call_id: str = "0.0.0",
    prompt_id: str | None = None,
    quorum: int = 1,
    answerers: tuple[str, ...] = (),
    asked: str = "",
    remind_at: int | None = None,
    group: str | None = None,
) -> PromptDraft:
    """Return a question to be opened by a commit."""
    return PromptDraft(
        prompt_id=prompt_id or request_id(),
        kind="approval",
        call_id=call_id,
        body=body("Refund 20?"),
        requester=requester,
        policy=policy,
        expires_at=expires_at,
        quorum=quorum,
        answerers=answerers,
        asked=asked,
        remind_at=remind_at,
        group=group,
    )


def answer(
    prompt_id: str,
    *,
    by: str = ALICE,
    outcome: PromptOutcome = PromptOutcome.APPROVED,
    run_id: str | None = None,
    key: str | None = None,
    events: tuple[EventDraft, ...] = (),
    counted: tuple[EventDraft, ...] = (),
    note: bytes | None = None,
    judge: bool = False,
    override: bool = False,
) -> PromptAnswer:
    """Return a click on a prompt."""
    option = "approve" if outcome is PromptOutcome.APPROVED else "deny"
    return PromptAnswer(
        source=CHANNEL,
        key=key or new_id("key"),
        digest=sha256(f"{prompt_id}:{option}:{by}".encode()).digest(),
        submission_id=new_id("sub"),
        prompt_id=prompt_id,
        run_id=run_id,
        option_id=option,
        outcome=outcome,
        note=note,
        principal=by,
        name=by.partition(":")[2].title(),
        via="button",
        body=body(by),
        events=events,
        counted=counted,
        where=f"{CHANNEL} {ADDRESS}",
        judge=judge,
        override=override,
    )


def step_commit(
    claim: Claim,
    *,
    step_n: int | None = None,
    seen: int | None = None,
    consume: bool = True,
    consumed: tuple[int, ...] | None = None,
    output: str = "out",
    before: str | None = None,
    turn_id: str | None = None,
    link_turn: str | None = None,
    outcomes: tuple[SubmissionOutcome, ...] = (),
    events: tuple[EventDraft, ...] = (),
    outbox: tuple[OutboxDraft, ...] = (),
    prompts: tuple[PromptDraft, ...] = (),
    settle: tuple[PromptSettlement, ...] = (),
    updates: tuple[PromptUpdate, ...] = (),
    phase: Phase = Phase.RUNNING,
    timer_at: int | None = None,
    release: bool = False,
    end: str | None = None,
    extra: tuple[Extra, ...] = (),
    addresses: tuple[tuple[str, str], ...] = (),
    starts: tuple[Admission, ...] = (),
    move: Move | None = None,
) -> StepCommit:
    """Return the commit of a claim's pending step; by default it consumes all that the claim holds and keeps the lease."""
    taken = consumed if consumed is not None else tuple(c.seq for c in claim.commands) if consume else ()
    return StepCommit(
        run_id=claim.run_id,
        epoch=claim.epoch,
        step_n=claim.step_no if step_n is None else step_n,
        step=StepDraft(kind="model", name="reply", input=body("in"), output=body(output)),
        before=None if before is None else StepDraft(kind="model", name="before", input=body("in"), output=body(before)),
        seen=claim.signals.inbox_seq if seen is None else seen,
        consumed=taken,
        turn_id=turn_id,
        link_turn=link_turn,
        outcomes=outcomes,
        events=events,
        outbox=outbox,
        prompts=prompts,
        settle=settle,
        updates=updates,
        phase=phase,
        timer_at=timer_at,
        release=release,
        end=end,
        extra=extra,
        addresses=addresses,
        starts=starts,
        move=move,
    )


def note(run_id: str, marker: str) -> Extra:
    """Return a statement of a layer above that leaves a mark which `NOTES` reads; the same mark twice violates a key."""
    return Extra(
        sql="INSERT INTO moor_vote (run_id, prompt_id, principal, option_id, at) VALUES (:run_id, :marker, 'kit', 'kit', 0)",
        parameters={"run_id": run_id, "marker": marker},
    )


NOTES = "SELECT prompt_id FROM moor_vote WHERE run_id = :run_id AND option_id = 'kit' ORDER BY prompt_id"
"""Reads the marks that `note` left."""
