"""What a store itself writes down of a run: the hidden event of each transaction that changes what the run is.

What lives here: those drafts, the same for every database. What does not: appending them, and rebuilding views from them
(`durable_core/testing/rebuilding.py`). Leases, wake-ups and attempts are bookkeeping, not what a run is: nothing tells of them.
What comes in needs no event: admission and interaction rows are append-only lists of their own, and their key columns say it all.
Neither does a step that only leaves its run running: its row, append-only too, says that it is finished and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from durable_core.codec import Storable, encode
from durable_core.model import AnswerStatus, EventDraft, Phase, PromptAnswer, StepCommit

STEP: Final = "run.step"
"""A step is finished: its number, the run's phase and turn from then on, and all that the commit settled, moved and opened.

One without it left the run running, in no turn, and did nothing else."""
ANSWERED: Final = "run.answered"
"""An answer settled its prompt or counts, or a worker decided that it does neither."""
ENDED: Final = "run.ended"
"""The run was ended by SQL alone; a commit that ends it says so itself."""
STRANDED: Final = "run.stranded"
UNSTRANDED: Final = "run.unstranded"
_LEAST: Final = 2
"""Of a step there is always its number and the phase."""


def of_commit(commit: StepCommit) -> tuple[EventDraft, ...]:
    """Tell of a finished step, unless its row says it all; what there is nothing of is left out, since most steps have little."""
    told: dict[str, Storable] = {"n": commit.last_n, "phase": commit.phase.value}
    if commit.turn_id is not None:
        told["turn"] = commit.turn_id
    if commit.consumed:
        told["consumed"] = list(commit.consumed)
        if commit.link_turn is not None:
            told["link"] = commit.link_turn
    if commit.outcomes:
        told["outcomes"] = {item.submission_id: item.outcome.value for item in commit.outcomes}
    told |= _of_prompts(commit)
    if commit.starts:
        told["starts"] = [[start.source, start.key] for start in commit.starts]
    if commit.addresses:
        told["addresses"] = [[channel, address] for channel, address in commit.addresses]
    if commit.end is not None:
        told["end"] = commit.end
    plain = len(told) == _LEAST and commit.phase is Phase.RUNNING
    return () if plain else (_hidden(STEP, told),)


def _of_prompts(commit: StepCommit) -> dict[str, Storable]:
    told: dict[str, Storable] = {}
    if commit.prompts:
        told["asked"] = [prompt.prompt_id for prompt in commit.prompts]
    if commit.settle:
        told["settled"] = {item.prompt_id: item.outcome.value for item in commit.settle}
    if commit.updates:
        told["moved"] = {item.prompt_id: [item.expires_at, item.remind_at, item.level] for item in commit.updates}
    return told


def of_answer(answer: PromptAnswer, status: AnswerStatus, *, votes: bool = False, lapsed: Sequence[str] = ()) -> EventDraft:
    """Tell of an answer that was decided.

    `outcome` is there when it settled its prompt, `vote` when it is kept as a vote, `lapsed` names those whose votes went.
    """
    told: dict[str, Storable] = {"submission": answer.submission_id, "prompt": answer.prompt_id, "status": status.value}
    if status is AnswerStatus.SETTLED:
        told["outcome"] = answer.outcome.value
    if votes:
        told["vote"] = answer.principal
    if lapsed:
        told["lapsed"] = list[Storable](lapsed)
    return _hidden(ANSWERED, told)


def of_end(reason: str) -> EventDraft:
    """Tell of a run's end by SQL alone."""
    return _hidden(ENDED, {"end": reason})


def of_strand(reason: str, step_no: int) -> EventDraft:
    """Tell that the code that has the run can't go on with it; the step that is next then ends that, if there is one."""
    return _hidden(STRANDED, {"reason": reason, "n": step_no})


def of_unstrand() -> EventDraft:
    """Tell that the run is offered to all code again."""
    return _hidden(UNSTRANDED, {})


def _hidden(type_: str, told: Storable) -> EventDraft:
    return EventDraft(type=type_, body=encode(told), visible=False)
