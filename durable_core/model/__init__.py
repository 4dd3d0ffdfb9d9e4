"""Values that cross the store's edge: what is admitted, claimed, committed, settled and sent.

What lives here: frozen data, a file a concept. What does not: SQL (`stores/`), deciding what to do next (the turn engine above).
Times are milliseconds since the epoch, bodies are encoded bytes (`codec.encode`), ids are strings.
"""

from durable_core.model.admission import Admission, Extra, NewRun, Receipt, Submission, ToAddress, ToNew, ToRun
from durable_core.model.commits import (
    Committed,
    Move,
    PromptDraft,
    PromptSettlement,
    PromptUpdate,
    SeenOpen,
    StepCommit,
    StepDraft,
    SubmissionOutcome,
)
from durable_core.model.events import Event, EventDraft
from durable_core.model.keyclaims import ClaimedKey, ClaimState, KeyFate, KeyRequest, KeySettled, KeySettlement
from durable_core.model.outbox import INTERNAL, Buried, Lane, OutboxDraft, OutboxItem, Postponed, Sent
from durable_core.model.prompts import AnswerReceipt, AuditEntry, Interaction, Prompt, PromptAnswer, Verdict, Vote
from durable_core.model.runs import Claim, Command, Record, Run, Signals, Step
from durable_core.model.statuses import (
    ALONE_AFTER_CRASHES,
    MAX_CHARGED,
    AnswerPolicy,
    AnswerStatus,
    CommandKind,
    Outcome,
    Phase,
    PromptOutcome,
    RecordKind,
    RunKind,
    RunStatus,
)
from durable_core.model.vault import VaultEntry, VaultListing, VaultWrite
from durable_core.model.workers import SESSIONS, Abilities, ClaimRequest, DueWork, Holdings, Incarnation
from durable_core.versions import CURRENT_SPEC, MIN_READABLE_SPEC

__all__ = [
    "ALONE_AFTER_CRASHES",
    "CURRENT_SPEC",
    "INTERNAL",
    "MAX_CHARGED",
    "MIN_READABLE_SPEC",
    "SESSIONS",
    "Abilities",
    "Admission",
    "AnswerPolicy",
    "AnswerReceipt",
    "AnswerStatus",
    "AuditEntry",
    "Buried",
    "Claim",
    "ClaimRequest",
    "ClaimState",
    "ClaimedKey",
    "Command",
    "CommandKind",
    "Committed",
    "DueWork",
    "Event",
    "EventDraft",
    "Extra",
    "Holdings",
    "Incarnation",
    "Interaction",
    "KeyFate",
    "KeyRequest",
    "KeySettled",
    "KeySettlement",
    "Lane",
    "Move",
    "NewRun",
    "OutboxDraft",
    "OutboxItem",
    "Outcome",
    "Phase",
    "Postponed",
    "Prompt",
    "PromptAnswer",
    "PromptDraft",
    "PromptOutcome",
    "PromptSettlement",
    "PromptUpdate",
    "Receipt",
    "Record",
    "RecordKind",
    "Run",
    "RunKind",
    "RunStatus",
    "SeenOpen",
    "Sent",
    "Signals",
    "Step",
    "StepCommit",
    "StepDraft",
    "Submission",
    "SubmissionOutcome",
    "ToAddress",
    "ToNew",
    "ToRun",
    "VaultEntry",
    "VaultListing",
    "VaultWrite",
    "Verdict",
    "Vote",
]
