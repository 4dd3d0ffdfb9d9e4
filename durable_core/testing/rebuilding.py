"""Rebuilding: what a run is, read from its list of events and from what came in, and nothing else.

What lives here: the fold, and its comparison with the tables. What does not: writing the events (`stores/history.py`).
The sources: the events with the hidden ones; the key columns of admission rows (source, key, submission, place, kind), of
interaction rows and of step rows (number, time), which are append-only. Whatever else the tables say has to follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from durable_core import codec
from durable_core.model import Event, Outcome, Phase, PromptOutcome, RunStatus
from durable_core.store import Store
from durable_core.stores import history

_ADMITTED = "SELECT source, key, submission_id, seq, kind FROM moor_admission WHERE run_id = :run_id"
_WAITING = "SELECT interaction_id FROM moor_interaction WHERE run_id = :run_id"
_RUN = "SELECT status, phase, turn_id, step_no, stranded, end_reason FROM moor_run WHERE run_id = :run_id"
_STEPS = "SELECT n, completed_at FROM moor_step WHERE run_id = :run_id ORDER BY n"
_PROMPTS = "SELECT prompt_id, outcome, level, expires_at, remind_at FROM moor_prompt WHERE run_id = :run_id"
_VOTES = """
    SELECT v.prompt_id, v.principal FROM moor_vote v JOIN moor_prompt p ON p.run_id = v.run_id AND p.prompt_id = v.prompt_id
    WHERE v.run_id = :run_id AND p.quorum > 1
"""
_SUBMISSIONS = "SELECT submission_id, outcome, turn_id FROM moor_admission WHERE run_id = :run_id"
_CONSUMED = "SELECT seq, taken_step FROM moor_command WHERE run_id = :run_id AND taken_step IS NOT NULL"
_STARTED = "SELECT run_id FROM moor_admission WHERE source = :source AND key = :key"


@dataclass(slots=True)
class Rebuilt:
    """A run as its list tells it."""

    status: RunStatus = RunStatus.OPEN
    phase: Phase = Phase.IDLE
    turn_id: str | None = None
    stranded: str | None = None
    end_reason: str | None = None
    steps: list[tuple[int, int]] = field(default_factory=list)
    """Number, and when it was finished."""
    consumed: dict[int, int] = field(default_factory=dict)
    """A command's place, and the step that took it."""
    prompts: dict[str, PromptOutcome | None] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    """Of prompts that were handed to others."""
    times: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Of prompts whose times changed: when each expires and is reminded of."""
    votes: set[tuple[str, str]] = field(default_factory=set)
    """Prompt, and who approved it where several have to."""
    outcomes: dict[str, Outcome | None] = field(default_factory=dict)
    turns: dict[str, str] = field(default_factory=dict)
    starts: list[tuple[str, str]] = field(default_factory=list)
    """(source, key) of each run that this one started."""

    def settle(self, submission_id: str, outcome: Outcome) -> None:
        """Give a submission its outcome; the first one stays."""
        if self.outcomes.get(submission_id) is None:
            self.outcomes[submission_id] = outcome

    def end(self, reason: str) -> None:
        """End: whatever is still open ends with it."""
        self.status, self.phase, self.turn_id, self.end_reason, self.stranded = RunStatus.ENDED, Phase.IDLE, None, reason, None
        self.prompts = {p: PromptOutcome.CANCELLED if outcome is None else outcome for p, outcome in self.prompts.items()}
        for submission_id in self.outcomes:
            self.settle(submission_id, Outcome.ABORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What is known of an input by its key columns."""

    submission_id: str
    seq: int
    kind: str
    waits: bool
    """It was left to a worker as an interaction."""


def rebuild(events: Sequence[Event], admitted: Sequence[Admitted], finished: Sequence[tuple[int, int]]) -> Rebuilt:
    """Fold a whole list, the hidden events among it, with the numbers and times of all steps."""
    run = Rebuilt()
    at_seq = {one.seq: one.submission_id for one in admitted if one.seq}
    for one in admitted:
        # what needs no worker is settled as it comes in: a creation, a cancel of nothing, an answer that nobody has to judge
        at_once = one.kind == "create" or (one.kind == "cancel" and not one.seq) or (one.kind == "response" and not one.waits)
        run.outcomes[one.submission_id] = Outcome.COMPLETED if at_once else None
    for event in events:
        told: dict[str, Any] = codec.decode(event.body) if event.type.startswith("run.") else {}  # type: ignore[assignment]
        if event.type == history.STEP:
            _plain_steps(run, finished[: told["n"]])
            _step(run, told, event.at, at_seq)
        elif event.type == history.ANSWERED:
            run.settle(told["submission"], Outcome.COMPLETED)
            if "outcome" in told:
                run.prompts[told["prompt"]] = PromptOutcome(told["outcome"])
            run.votes -= {(told["prompt"], who) for who in told.get("lapsed", ())}
            if "vote" in told:
                run.votes.add((told["prompt"], told["vote"]))
        elif event.type == history.ENDED:
            run.end(told["end"])
        elif event.type == history.STRANDED:
            _plain_steps(run, finished[: told.get("n", 0)])
            run.stranded = told["reason"]
        elif event.type == history.UNSTRANDED:
            run.stranded = None
    _plain_steps(run, finished)
    return run


def _plain_steps(run: Rebuilt, finished: Sequence[tuple[int, int]]) -> None:
    """Take over steps of which nothing more is told: they left the run running."""
    for step in finished[len(run.steps) :]:
        run.steps.append(step)
        run.phase, run.turn_id, run.stranded = Phase.RUNNING, None, None


def _step(run: Rebuilt, told: dict[str, Any], at: int, at_seq: dict[int, str]) -> None:
    run.steps.append((told["n"], at))
    run.phase, run.turn_id, run.stranded = Phase(told["phase"]), told.get("turn"), None
    for prompt_id, outcome in told.get("settled", {}).items():
        run.prompts[prompt_id] = PromptOutcome(outcome)
    for prompt_id, (expires_at, remind_at, level) in told.get("moved", {}).items():
        run.times[prompt_id] = (expires_at, remind_at)
        if level is not None:
            run.levels[prompt_id] = level
    turn = told.get("link", run.turn_id)
    for seq in told.get("consumed", ()):
        run.consumed[seq] = told["n"]
        if turn:
            run.turns[at_seq[seq]] = turn
    for submission_id, outcome in told.get("outcomes", {}).items():
        run.settle(submission_id, Outcome(outcome))
    run.prompts |= dict.fromkeys(told.get("asked", ()))
    run.starts += [(source, key) for source, key in told.get("starts", ())]
    if "end" in told:
        run.end(told["end"])


async def check_rebuilt(store: Store, run_id: str) -> None:
    """Check that a run's list tells what the tables say; a run whose content is gone has no list any more."""
    at = {"run_id": run_id}
    events = await store.events(run_id, limit=1_000_000, hidden=True)
    waiting = {row[0] for row in await store.rows(_WAITING, dict(at))}
    admitted = [
        Admitted(submission_id=str(submission), seq=int(seq or 0), kind=str(kind), waits=submission in waiting)
        for _, _, submission, seq, kind in await store.rows(_ADMITTED, dict(at))
    ]
    steps = [(int(n or 0), int(at or 0)) for n, at in await store.rows(_STEPS, dict(at))]
    told = rebuild(events, admitted, steps)
    ((status, phase, turn_id, step_no, stranded, end_reason),) = await store.rows(_RUN, dict(at))
    assert (told.status, told.phase, told.turn_id) == (status, phase, turn_id), "the list tells of another run"
    assert (len(told.steps), told.stranded, told.end_reason) == (step_no, stranded, end_reason), "the list tells of another run"
    assert told.steps == steps, "the list tells of other steps"
    prompts = {str(prompt_id): rest for prompt_id, *rest in await store.rows(_PROMPTS, dict(at))}
    assert told.prompts == {p: outcome for p, (outcome, *_) in prompts.items()}, "the list tells of other prompts"
    levels = {p: level for p, (_, level, *_) in prompts.items() if level}
    assert {p: level for p, level in told.levels.items() if level} == levels, "the list tells of other people asked"
    assert told.times == {p: tuple(prompts[p][2:]) for p in told.times}, "the list tells of other times"
    assert told.votes == set(await store.rows(_VOTES, dict(at))), "the list tells of other votes"
    submissions = await store.rows(_SUBMISSIONS, dict(at))
    assert told.outcomes == {str(s): outcome for s, outcome, _ in submissions}, "the list tells of other outcomes"
    assert told.turns == {str(s): turn for s, _, turn in submissions if turn}, "the list tells of other turns"
    assert told.consumed == dict(await store.rows(_CONSUMED, dict(at))), "the list tells of another inbox"  # type: ignore[arg-type]
    for source, key in told.starts:
        assert await store.rows(_STARTED, {"source": source, "key": key}) != [], "the list tells of a run that is not there"
