"""The schema, as SQLModel tables; Alembic creates and changes it, admin queries read it, the hot path uses raw SQL on it.

What lives here: tables, keys and indexes, each index beside the query it serves. What does not: statements (`stores/`), tables
that belong to no run (`apart.py`).
Every table starts with the run's id where it has one, so that a store can be partitioned by run. Times are milliseconds.
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import Index, MetaData, text
from sqlmodel import Field, SQLModel

from durable_core.apart import RevisionRow, VaultRow, WorkerRow
from durable_core.columns import bytes_column, int_column, partial_index, text_column

__all__ = ["RevisionRow", "VaultRow", "WorkerRow", "metadata"]

metadata: MetaData = SQLModel.metadata
PREFIX = "moor_"
VERSION_TABLE = "moor_alembic"


class RunRow(SQLModel, table=True):
    """One durable execution. Shared columns (inbox_seq, cancel_seq, wake_at, event_*) change only by SQL expressions."""

    __tablename__: ClassVar[str] = "moor_run"
    __table_args__ = (
        # claim: due, open, unowned, longest due first
        partial_index("moor_run_due", "wake_at", where="wake_at IS NOT NULL AND owner IS NULL"),
        # purge: ended runs whose content has been kept long enough
        partial_index("moor_run_purge", "purge_at", where="purge_at IS NOT NULL AND purged_at IS NULL"),
        # reap: what an incarnation holds
        partial_index("moor_run_owner", "owner", where="owner IS NOT NULL"),
    )

    run_id: str = Field(sa_column=text_column(primary_key=True))
    name: str = Field(sa_column=text_column())
    status: str = Field(sa_column=text_column())
    phase: str = Field(sa_column=text_column())
    creator: str = Field(sa_column=text_column())
    session_key: bytes = Field(sa_column=bytes_column())
    header: bytes = Field(sa_column=bytes_column())
    spec_version: int = Field(sa_column=int_column())
    deployment: str = Field(sa_column=text_column())
    turn_id: str | None = Field(sa_column=text_column(nullable=True))
    # shared
    inbox_seq: int = Field(sa_column=int_column(default="0"))
    cancel_seq: int = Field(sa_column=int_column(default="0"))
    event_seq: int = Field(sa_column=int_column(default="0"))
    event_index: int = Field(sa_column=int_column(default="0"))
    wake_at: int | None = Field(sa_column=int_column(nullable=True))
    # the worker's
    owner: str | None = Field(sa_column=text_column(nullable=True))
    epoch: int = Field(sa_column=int_column(default="0"))
    lease_until: int | None = Field(sa_column=int_column(nullable=True))
    step_no: int = Field(sa_column=int_column(default="0"))
    step_started_at: int | None = Field(sa_column=int_column(nullable=True))
    attempt: int = Field(sa_column=int_column(default="0"))
    charged: int = Field(sa_column=int_column(default="0"))
    crashes: int = Field(sa_column=int_column(default="0"))
    progressed: int = Field(sa_column=int_column(default="0"))
    interrupted: int = Field(sa_column=int_column(default="0"))
    last_error: str | None = Field(sa_column=text_column(nullable=True))
    retry_at: int | None = Field(sa_column=int_column(nullable=True))
    # times
    created_at: int = Field(sa_column=int_column())
    last_at: int = Field(sa_column=int_column())
    deadline_at: int | None = Field(sa_column=int_column(nullable=True))
    ended_at: int | None = Field(sa_column=int_column(nullable=True))
    end_reason: str | None = Field(sa_column=text_column(nullable=True))
    kind: str = Field(sa_column=text_column(default="session"))
    # content is deleted `keep_ms` after the end
    keep_ms: int | None = Field(sa_column=int_column(nullable=True))
    purge_at: int | None = Field(sa_column=int_column(nullable=True))
    purged_at: int | None = Field(sa_column=int_column(nullable=True))
    # how often content of it was redacted: whoever folded it before has to fold it again
    redactions: int = Field(sa_column=int_column(default="0"))
    # which code could not go on with it, and why
    stranded: str | None = Field(sa_column=text_column(nullable=True))
    stranded_code: str | None = Field(sa_column=text_column(nullable=True))


class AddressRow(SQLModel, table=True):
    """The exclusive right to continue a run: a channel's address, owned by one open run."""

    __tablename__: ClassVar[str] = "moor_address"
    __table_args__ = (Index("moor_address_run", "run_id"),)  # ending a run frees its addresses

    channel: str = Field(sa_column=text_column(primary_key=True))
    address: str = Field(sa_column=text_column(primary_key=True))
    run_id: str = Field(sa_column=text_column())
    claimed_at: int = Field(sa_column=int_column())


class AdmissionRow(SQLModel, table=True):
    """Accepted work: what came in under which key, and how it ended."""

    __tablename__: ClassVar[str] = "moor_admission"
    __table_args__ = (
        Index("moor_admission_submission", "submission_id", unique=True),  # GET /v1/submissions/{id}
        # ending a turn or a run settles what is still open
        partial_index("moor_admission_open", "run_id", "seq", where="outcome IS NULL"),
    )

    source: str = Field(sa_column=text_column(primary_key=True))
    key: str = Field(sa_column=text_column(primary_key=True))
    submission_id: str = Field(sa_column=text_column())
    run_id: str = Field(sa_column=text_column())
    seq: int = Field(sa_column=int_column())
    kind: str = Field(sa_column=text_column())
    digest: bytes = Field(sa_column=bytes_column())
    created: int = Field(sa_column=int_column(default="0"))
    turn_id: str | None = Field(sa_column=text_column(nullable=True))
    outcome: str | None = Field(sa_column=text_column(nullable=True))
    detail: bytes | None = Field(sa_column=bytes_column(nullable=True))
    reply_step: int | None = Field(sa_column=int_column(nullable=True))
    at: int = Field(sa_column=int_column())
    done_at: int | None = Field(sa_column=int_column(nullable=True))


class CommandRow(SQLModel, table=True):
    """A run's inbox, in commit order."""

    __tablename__: ClassVar[str] = "moor_command"
    __table_args__ = (
        # claim: what nobody has consumed
        partial_index("moor_command_new", "run_id", "seq", where="taken_step IS NULL"),
    )

    run_id: str = Field(sa_column=text_column(primary_key=True))
    seq: int = Field(sa_column=int_column(primary_key=True))
    kind: str = Field(sa_column=text_column())
    body: bytes = Field(sa_column=bytes_column())
    submission_id: str = Field(sa_column=text_column())
    principal: str = Field(sa_column=text_column())
    at: int = Field(sa_column=int_column())
    taken_step: int | None = Field(sa_column=int_column(nullable=True))


class StepRow(SQLModel, table=True):
    """Finished steps; each holds what it added, never the history."""

    __tablename__: ClassVar[str] = "moor_step"

    run_id: str = Field(sa_column=text_column(primary_key=True))
    n: int = Field(sa_column=int_column(primary_key=True))
    kind: str = Field(sa_column=text_column())
    name: str = Field(sa_column=text_column())
    attempt: int = Field(sa_column=int_column())
    spec_version: int = Field(sa_column=int_column())
    deployment: str = Field(sa_column=text_column())
    input: bytes = Field(sa_column=bytes_column())
    output: bytes = Field(sa_column=bytes_column())
    started_at: int = Field(sa_column=int_column())
    completed_at: int = Field(sa_column=int_column())


class RecordRow(SQLModel, table=True):
    """In-step records: the model's reply, a tool's start, a tool's result."""

    __tablename__: ClassVar[str] = "moor_record"

    run_id: str = Field(sa_column=text_column(primary_key=True))
    step_n: int = Field(sa_column=int_column(primary_key=True))
    key: str = Field(sa_column=text_column(primary_key=True))
    kind: str = Field(sa_column=text_column())
    input_hash: str = Field(sa_column=text_column())
    body: bytes = Field(sa_column=bytes_column())
    attempt: int = Field(sa_column=int_column())
    at: int = Field(sa_column=int_column())


class EventRow(SQLModel, table=True):
    """The one list of events of a run; visible ones are numbered without gaps."""

    __tablename__: ClassVar[str] = "moor_event"
    __table_args__ = (
        # streams: visible events from an index on
        partial_index("moor_event_visible", "run_id", "idx", where="idx IS NOT NULL"),
    )

    run_id: str = Field(sa_column=text_column(primary_key=True))
    seq: int = Field(sa_column=int_column(primary_key=True))
    idx: int | None = Field(sa_column=int_column(nullable=True))
    type: str = Field(sa_column=text_column())
    body: bytes = Field(sa_column=bytes_column())
    refs: str | None = Field(sa_column=text_column(nullable=True))
    attempt: int = Field(sa_column=int_column())
    at: int = Field(sa_column=int_column())


class PromptRow(SQLModel, table=True):
    """Questions to people, settled once."""

    __tablename__: ClassVar[str] = "moor_prompt"
    __table_args__ = (
        Index("moor_prompt_id", "prompt_id", unique=True),  # a click names the prompt alone
        # open prompts of a run
        partial_index("moor_prompt_open", "run_id", "created_at", where="outcome IS NULL"),
        # open prompts of the runs that work for one: all of them have its time in their ids (CORE 16)
        partial_index("moor_prompt_time", text("substr(run_id, length(run_id) - 25, 10)"), where="outcome IS NULL"),
        # all open prompts, in the order in which they were asked
        partial_index("moor_prompt_asked", "created_at", "prompt_id", where="outcome IS NULL"),
    )

    run_id: str = Field(sa_column=text_column(primary_key=True))
    prompt_id: str = Field(sa_column=text_column(primary_key=True))
    kind: str = Field(sa_column=text_column())
    step_n: int = Field(sa_column=int_column())
    call_id: str | None = Field(sa_column=text_column(nullable=True))
    body: bytes = Field(sa_column=bytes_column())
    requester: str = Field(sa_column=text_column())
    policy: str = Field(sa_column=text_column())
    created_seq: int = Field(sa_column=int_column())
    created_at: int = Field(sa_column=int_column())
    expires_at: int | None = Field(sa_column=int_column(nullable=True))
    outcome: str | None = Field(sa_column=text_column(nullable=True))
    option_id: str | None = Field(sa_column=text_column(nullable=True))
    settled_by: str | None = Field(sa_column=text_column(nullable=True))
    settled_name: str | None = Field(sa_column=text_column(nullable=True))
    settled_via: str | None = Field(sa_column=text_column(nullable=True))
    settled_at: int | None = Field(sa_column=int_column(nullable=True))
    settled_seq: int | None = Field(sa_column=int_column(nullable=True))
    note: bytes | None = Field(sa_column=bytes_column(nullable=True))
    # how many have to approve, and who may: a JSON array of principals
    quorum: int = Field(sa_column=int_column(default="1"))
    answerers: str = Field(sa_column=text_column(default="[]"))
    asked: str = Field(sa_column=text_column(default=""))
    remind_at: int | None = Field(sa_column=int_column(nullable=True))
    level: int = Field(sa_column=int_column(default="0"))
    # the prompt whose id the copies of a shared card bear; the first of the group names itself
    group_id: str | None = Field(sa_column=text_column(nullable=True))


class VoteRow(SQLModel, table=True):
    """Who approved a prompt that several have to approve, one vote a person."""

    __tablename__: ClassVar[str] = "moor_vote"

    run_id: str = Field(sa_column=text_column(primary_key=True))
    prompt_id: str = Field(sa_column=text_column(primary_key=True))
    principal: str = Field(sa_column=text_column(primary_key=True))
    option_id: str = Field(sa_column=text_column())
    at: int = Field(sa_column=int_column())
    name: str = Field(sa_column=text_column(default=""))
    via: str = Field(sa_column=text_column(default=""))


class InteractionRow(SQLModel, table=True):
    """Answers that wait for a worker to evaluate who may give them."""

    __tablename__: ClassVar[str] = "moor_interaction"
    __table_args__ = (
        # take_interactions: undecided ones by due time
        partial_index("moor_interaction_due", "due_at", where="status IS NULL"),
    )

    run_id: str = Field(sa_column=text_column(primary_key=True))
    interaction_id: str = Field(sa_column=text_column(primary_key=True))
    prompt_id: str = Field(sa_column=text_column())
    option_id: str = Field(sa_column=text_column())
    outcome: str = Field(sa_column=text_column())
    principal: str = Field(sa_column=text_column())
    name: str = Field(sa_column=text_column())
    via: str = Field(sa_column=text_column())
    body: bytes = Field(sa_column=bytes_column())
    note: bytes | None = Field(sa_column=bytes_column(nullable=True))
    due_at: int = Field(sa_column=int_column())
    owner: str | None = Field(sa_column=text_column(nullable=True))
    epoch: int = Field(sa_column=int_column(default="0"))
    attempts: int = Field(sa_column=int_column(default="0"))
    status: str | None = Field(sa_column=text_column(nullable=True))
    reason: str | None = Field(sa_column=text_column(nullable=True))
    at: int = Field(sa_column=int_column())
    place: str = Field(sa_column=text_column(default=""))
    override: int = Field(sa_column=int_column(default="0"))
    aside: int = Field(sa_column=int_column(default="0"))


class AuditRow(SQLModel, table=True):
    """Who was asked, who answered, how and when: a chain of hashes (`audit.py`) that no purge touches."""

    __tablename__: ClassVar[str] = "moor_audit"
    __table_args__ = (
        Index("moor_audit_run", "run_id", "n"),  # audit of one run
        Index("moor_audit_prompt", "prompt_id", "n"),  # audit of one prompt
    )

    n: int = Field(sa_column=int_column(primary_key=True))
    at: int = Field(sa_column=int_column())
    act: str = Field(sa_column=text_column())
    run_id: str = Field(sa_column=text_column())
    prompt_id: str = Field(sa_column=text_column())
    kind: str = Field(sa_column=text_column())
    requester: str = Field(sa_column=text_column())
    asked: str = Field(sa_column=text_column())
    asked_at: int = Field(sa_column=int_column())
    shown: str = Field(sa_column=text_column())
    principal: str | None = Field(sa_column=text_column(nullable=True))
    via: str = Field(sa_column=text_column())
    place: str = Field(sa_column=text_column())
    option_id: str | None = Field(sa_column=text_column(nullable=True))
    outcome: str | None = Field(sa_column=text_column(nullable=True))
    reason: str | None = Field(sa_column=text_column(nullable=True))
    prev: str = Field(sa_column=text_column())
    hash: str = Field(sa_column=text_column())


class LaneRow(SQLModel, table=True):
    """One address's queue of what is owed to it; `due_at` is null when nothing is."""

    __tablename__: ClassVar[str] = "moor_lane"
    __table_args__ = (
        # claim_lanes: lanes with something due
        partial_index("moor_lane_due", "due_at", where="due_at IS NOT NULL"),
        # reap: what an incarnation holds
        partial_index("moor_lane_owner", "owner", where="owner IS NOT NULL"),
    )

    channel: str = Field(sa_column=text_column(primary_key=True))
    address: str = Field(sa_column=text_column(primary_key=True))
    seq: int = Field(sa_column=int_column(default="0"))
    done_seq: int = Field(sa_column=int_column(default="0"))
    due_at: int | None = Field(sa_column=int_column(nullable=True))
    owner: str | None = Field(sa_column=text_column(nullable=True))
    epoch: int = Field(sa_column=int_column(default="0"))
    lease_until: int | None = Field(sa_column=int_column(nullable=True))


class OutboxRow(SQLModel, table=True):
    """What is owed to the outside; kept with the platform's reference once sent."""

    __tablename__: ClassVar[str] = "moor_outbox"
    __table_args__ = (
        Index("moor_outbox_delivery", "delivery_id", unique=True),  # an edit finds its post
        # a lane's next items
        partial_index("moor_outbox_lane", "channel", "address", "lane_seq", where="state = 'pending'"),
        # every posted copy of a prompt
        partial_index("moor_outbox_prompt", "prompt_id", where="prompt_id IS NOT NULL"),
    )

    run_id: str = Field(sa_column=text_column(primary_key=True))
    delivery_id: str = Field(sa_column=text_column(primary_key=True))
    channel: str = Field(sa_column=text_column())
    address: str = Field(sa_column=text_column())
    lane_seq: int = Field(sa_column=int_column())
    body: bytes = Field(sa_column=bytes_column())
    prompt_id: str | None = Field(sa_column=text_column(nullable=True))
    edit_of: str | None = Field(sa_column=text_column(nullable=True))
    state: str = Field(sa_column=text_column())
    ref: str | None = Field(sa_column=text_column(nullable=True))
    attempts: int = Field(sa_column=int_column(default="0"))
    last_error: str | None = Field(sa_column=text_column(nullable=True))
    at: int = Field(sa_column=int_column())
    done_at: int | None = Field(sa_column=int_column(nullable=True))


class ClaimRow(SQLModel, table=True):
    """Claimed keys of the whole namespace: who began what must be done once, and what came of it."""

    __tablename__: ClassVar[str] = "moor_claim"
    __table_args__ = (
        # purge: values that a run gave
        partial_index("moor_claim_done", "done_run", where="done_run IS NOT NULL"),
    )

    # a hash of the author's key: one row is one key, whichever key of the ring is the current one
    key: str = Field(sa_column=text_column(primary_key=True))
    claim_id: str = Field(sa_column=text_column())
    run_id: str = Field(sa_column=text_column())
    operation: str = Field(sa_column=text_column())
    attempt: int = Field(sa_column=int_column())
    at: int = Field(sa_column=int_column())
    done_at: int | None = Field(sa_column=int_column(nullable=True))
    # whose key seals the value: the run that gave it
    done_run: str | None = Field(sa_column=text_column(nullable=True))
    value: bytes | None = Field(sa_column=bytes_column(nullable=True))
