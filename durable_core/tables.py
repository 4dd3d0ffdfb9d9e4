"""The schema, as SQLModel tables; Alembic creates and changes it, admin queries read it, the hot path uses raw SQL on it.

What lives here: tables, keys and indexes, each index beside the query it serves. What does not: statements (`stores/`).
Every table starts with the run's id where it has one, so that a store can be partitioned by run. Times are milliseconds.
"""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, Text, text
from sqlmodel import Field, SQLModel

metadata: MetaData = SQLModel.metadata
PREFIX = "moor_"
VERSION_TABLE = "moor_alembic"


def _text(*, primary_key: bool = False, nullable: bool = False, default: str | None = None) -> Column[str]:
    return Column(
        Text, primary_key=primary_key, nullable=nullable, server_default=None if default is None else text(f"'{default}'")
    )


def _int(*, primary_key: bool = False, nullable: bool = False, default: str | None = None) -> Column[int]:
    return Column(
        BigInteger,
        primary_key=primary_key,
        nullable=nullable,
        autoincrement=False,
        server_default=text(default) if default else None,
    )


def _bytes(*, nullable: bool = False) -> Column[bytes]:
    return Column(LargeBinary, nullable=nullable)


def _partial(name: str, *columns: str, where: str) -> Index:
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


class RunRow(SQLModel, table=True):
    """One durable execution. Shared columns (inbox_seq, cancel_seq, wake_at, event_*) change only by SQL expressions."""

    __tablename__: ClassVar[str] = "moor_run"
    __table_args__ = (
        # claim: due, open, unowned, longest due first
        _partial("moor_run_due", "wake_at", where="wake_at IS NOT NULL AND owner IS NULL"),
        # purge: ended runs whose content has been kept long enough
        _partial("moor_run_purge", "purge_at", where="purge_at IS NOT NULL AND purged_at IS NULL"),
        # reap: what an incarnation holds
        _partial("moor_run_owner", "owner", where="owner IS NOT NULL"),
    )

    run_id: str = Field(sa_column=_text(primary_key=True))
    name: str = Field(sa_column=_text())
    status: str = Field(sa_column=_text())
    phase: str = Field(sa_column=_text())
    creator: str = Field(sa_column=_text())
    session_key: bytes = Field(sa_column=_bytes())
    header: bytes = Field(sa_column=_bytes())
    spec_version: int = Field(sa_column=_int())
    deployment: str = Field(sa_column=_text())
    turn_id: str | None = Field(sa_column=_text(nullable=True))
    # shared
    inbox_seq: int = Field(sa_column=_int(default="0"))
    cancel_seq: int = Field(sa_column=_int(default="0"))
    event_seq: int = Field(sa_column=_int(default="0"))
    event_index: int = Field(sa_column=_int(default="0"))
    wake_at: int | None = Field(sa_column=_int(nullable=True))
    # the worker's
    owner: str | None = Field(sa_column=_text(nullable=True))
    epoch: int = Field(sa_column=_int(default="0"))
    lease_until: int | None = Field(sa_column=_int(nullable=True))
    step_no: int = Field(sa_column=_int(default="0"))
    step_started_at: int | None = Field(sa_column=_int(nullable=True))
    attempt: int = Field(sa_column=_int(default="0"))
    charged: int = Field(sa_column=_int(default="0"))
    crashes: int = Field(sa_column=_int(default="0"))
    progressed: int = Field(sa_column=_int(default="0"))
    interrupted: int = Field(sa_column=_int(default="0"))
    last_error: str | None = Field(sa_column=_text(nullable=True))
    retry_at: int | None = Field(sa_column=_int(nullable=True))
    # times
    created_at: int = Field(sa_column=_int())
    last_at: int = Field(sa_column=_int())
    deadline_at: int | None = Field(sa_column=_int(nullable=True))
    ended_at: int | None = Field(sa_column=_int(nullable=True))
    end_reason: str | None = Field(sa_column=_text(nullable=True))
    kind: str = Field(sa_column=_text(default="session"))
    # content is deleted `keep_ms` after the end
    keep_ms: int | None = Field(sa_column=_int(nullable=True))
    purge_at: int | None = Field(sa_column=_int(nullable=True))
    purged_at: int | None = Field(sa_column=_int(nullable=True))
    # how often content of it was redacted: whoever folded it before has to fold it again
    redactions: int = Field(sa_column=_int(default="0"))
    # which code could not go on with it, and why
    stranded: str | None = Field(sa_column=_text(nullable=True))
    stranded_code: str | None = Field(sa_column=_text(nullable=True))


class AddressRow(SQLModel, table=True):
    """The exclusive right to continue a run: a channel's address, owned by one open run."""

    __tablename__: ClassVar[str] = "moor_address"
    __table_args__ = (Index("moor_address_run", "run_id"),)  # ending a run frees its addresses

    channel: str = Field(sa_column=_text(primary_key=True))
    address: str = Field(sa_column=_text(primary_key=True))
    run_id: str = Field(sa_column=_text())
    claimed_at: int = Field(sa_column=_int())


class AdmissionRow(SQLModel, table=True):
    """Accepted work: what came in under which key, and how it ended."""

    __tablename__: ClassVar[str] = "moor_admission"
    __table_args__ = (
        Index("moor_admission_submission", "submission_id", unique=True),  # GET /v1/submissions/{id}
        # ending a turn or a run settles what is still open
        _partial("moor_admission_open", "run_id", "seq", where="outcome IS NULL"),
    )

    source: str = Field(sa_column=_text(primary_key=True))
    key: str = Field(sa_column=_text(primary_key=True))
    submission_id: str = Field(sa_column=_text())
    run_id: str = Field(sa_column=_text())
    seq: int = Field(sa_column=_int())
    kind: str = Field(sa_column=_text())
    digest: bytes = Field(sa_column=_bytes())
    created: int = Field(sa_column=_int(default="0"))
    turn_id: str | None = Field(sa_column=_text(nullable=True))
    outcome: str | None = Field(sa_column=_text(nullable=True))
    detail: bytes | None = Field(sa_column=_bytes(nullable=True))
    reply_step: int | None = Field(sa_column=_int(nullable=True))
    at: int = Field(sa_column=_int())
    done_at: int | None = Field(sa_column=_int(nullable=True))


class CommandRow(SQLModel, table=True):
    """A run's inbox, in commit order."""

    __tablename__: ClassVar[str] = "moor_command"
    __table_args__ = (
        # claim: what nobody has consumed
        _partial("moor_command_new", "run_id", "seq", where="taken_step IS NULL"),
    )

    run_id: str = Field(sa_column=_text(primary_key=True))
    seq: int = Field(sa_column=_int(primary_key=True))
    kind: str = Field(sa_column=_text())
    body: bytes = Field(sa_column=_bytes())
    submission_id: str = Field(sa_column=_text())
    principal: str = Field(sa_column=_text())
    at: int = Field(sa_column=_int())
    taken_step: int | None = Field(sa_column=_int(nullable=True))


class StepRow(SQLModel, table=True):
    """Finished steps; each holds what it added, never the history."""

    __tablename__: ClassVar[str] = "moor_step"

    run_id: str = Field(sa_column=_text(primary_key=True))
    n: int = Field(sa_column=_int(primary_key=True))
    kind: str = Field(sa_column=_text())
    name: str = Field(sa_column=_text())
    attempt: int = Field(sa_column=_int())
    spec_version: int = Field(sa_column=_int())
    deployment: str = Field(sa_column=_text())
    input: bytes = Field(sa_column=_bytes())
    output: bytes = Field(sa_column=_bytes())
    started_at: int = Field(sa_column=_int())
    completed_at: int = Field(sa_column=_int())


class RecordRow(SQLModel, table=True):
    """In-step records: the model's reply, a tool's start, a tool's result."""

    __tablename__: ClassVar[str] = "moor_record"

    run_id: str = Field(sa_column=_text(primary_key=True))
    step_n: int = Field(sa_column=_int(primary_key=True))
    key: str = Field(sa_column=_text(primary_key=True))
    kind: str = Field(sa_column=_text())
    input_hash: str = Field(sa_column=_text())
    body: bytes = Field(sa_column=_bytes())
    attempt: int = Field(sa_column=_int())
    at: int = Field(sa_column=_int())


class EventRow(SQLModel, table=True):
    """The one list of events of a run; visible ones are numbered without gaps."""

    __tablename__: ClassVar[str] = "moor_event"
    __table_args__ = (
        # streams: visible events from an index on
        _partial("moor_event_visible", "run_id", "idx", where="idx IS NOT NULL"),
    )

    run_id: str = Field(sa_column=_text(primary_key=True))
    seq: int = Field(sa_column=_int(primary_key=True))
    idx: int | None = Field(sa_column=_int(nullable=True))
    type: str = Field(sa_column=_text())
    body: bytes = Field(sa_column=_bytes())
    refs: str | None = Field(sa_column=_text(nullable=True))
    attempt: int = Field(sa_column=_int())
    at: int = Field(sa_column=_int())


class PromptRow(SQLModel, table=True):
    """Questions to people, settled once."""

    __tablename__: ClassVar[str] = "moor_prompt"
    __table_args__ = (
        Index("moor_prompt_id", "prompt_id", unique=True),  # a click names the prompt alone
        # open prompts of a run
        _partial("moor_prompt_open", "run_id", "created_at", where="outcome IS NULL"),
    )

    run_id: str = Field(sa_column=_text(primary_key=True))
    prompt_id: str = Field(sa_column=_text(primary_key=True))
    kind: str = Field(sa_column=_text())
    step_n: int = Field(sa_column=_int())
    call_id: str | None = Field(sa_column=_text(nullable=True))
    body: bytes = Field(sa_column=_bytes())
    requester: str = Field(sa_column=_text())
    policy: str = Field(sa_column=_text())
    created_seq: int = Field(sa_column=_int())
    created_at: int = Field(sa_column=_int())
    expires_at: int | None = Field(sa_column=_int(nullable=True))
    outcome: str | None = Field(sa_column=_text(nullable=True))
    option_id: str | None = Field(sa_column=_text(nullable=True))
    settled_by: str | None = Field(sa_column=_text(nullable=True))
    settled_name: str | None = Field(sa_column=_text(nullable=True))
    settled_via: str | None = Field(sa_column=_text(nullable=True))
    settled_at: int | None = Field(sa_column=_int(nullable=True))
    settled_seq: int | None = Field(sa_column=_int(nullable=True))
    note: bytes | None = Field(sa_column=_bytes(nullable=True))


class VoteRow(SQLModel, table=True):
    """Who answered a prompt, one vote a person."""

    __tablename__: ClassVar[str] = "moor_vote"

    run_id: str = Field(sa_column=_text(primary_key=True))
    prompt_id: str = Field(sa_column=_text(primary_key=True))
    principal: str = Field(sa_column=_text(primary_key=True))
    option_id: str = Field(sa_column=_text())
    at: int = Field(sa_column=_int())


class InteractionRow(SQLModel, table=True):
    """Answers that wait for a worker to evaluate who may give them."""

    __tablename__: ClassVar[str] = "moor_interaction"
    __table_args__ = (
        # take_interactions: undecided ones by due time
        _partial("moor_interaction_due", "due_at", where="status IS NULL"),
    )

    run_id: str = Field(sa_column=_text(primary_key=True))
    interaction_id: str = Field(sa_column=_text(primary_key=True))
    prompt_id: str = Field(sa_column=_text())
    option_id: str = Field(sa_column=_text())
    outcome: str = Field(sa_column=_text())
    principal: str = Field(sa_column=_text())
    name: str = Field(sa_column=_text())
    via: str = Field(sa_column=_text())
    body: bytes = Field(sa_column=_bytes())
    note: bytes | None = Field(sa_column=_bytes(nullable=True))
    due_at: int = Field(sa_column=_int())
    owner: str | None = Field(sa_column=_text(nullable=True))
    epoch: int = Field(sa_column=_int(default="0"))
    attempts: int = Field(sa_column=_int(default="0"))
    status: str | None = Field(sa_column=_text(nullable=True))
    reason: str | None = Field(sa_column=_text(nullable=True))
    at: int = Field(sa_column=_int())


class LaneRow(SQLModel, table=True):
    """One address's queue of what is owed to it; `due_at` is null when nothing is."""

    __tablename__: ClassVar[str] = "moor_lane"
    __table_args__ = (
        # claim_lanes: lanes with something due
        _partial("moor_lane_due", "due_at", where="due_at IS NOT NULL"),
        # reap: what an incarnation holds
        _partial("moor_lane_owner", "owner", where="owner IS NOT NULL"),
    )

    channel: str = Field(sa_column=_text(primary_key=True))
    address: str = Field(sa_column=_text(primary_key=True))
    seq: int = Field(sa_column=_int(default="0"))
    done_seq: int = Field(sa_column=_int(default="0"))
    due_at: int | None = Field(sa_column=_int(nullable=True))
    owner: str | None = Field(sa_column=_text(nullable=True))
    epoch: int = Field(sa_column=_int(default="0"))
    lease_until: int | None = Field(sa_column=_int(nullable=True))


class OutboxRow(SQLModel, table=True):
    """What is owed to the outside; kept with the platform's reference once sent."""

    __tablename__: ClassVar[str] = "moor_outbox"
    __table_args__ = (
        Index("moor_outbox_delivery", "delivery_id", unique=True),  # an edit finds its post
        # a lane's next items
        _partial("moor_outbox_lane", "channel", "address", "lane_seq", where="state = 'pending'"),
        # every posted copy of a prompt
        _partial("moor_outbox_prompt", "prompt_id", where="prompt_id IS NOT NULL"),
    )

    run_id: str = Field(sa_column=_text(primary_key=True))
    delivery_id: str = Field(sa_column=_text(primary_key=True))
    channel: str = Field(sa_column=_text())
    address: str = Field(sa_column=_text())
    lane_seq: int = Field(sa_column=_int())
    body: bytes = Field(sa_column=_bytes())
    prompt_id: str | None = Field(sa_column=_text(nullable=True))
    edit_of: str | None = Field(sa_column=_text(nullable=True))
    state: str = Field(sa_column=_text())
    ref: str | None = Field(sa_column=_text(nullable=True))
    attempts: int = Field(sa_column=_int(default="0"))
    last_error: str | None = Field(sa_column=_text(nullable=True))
    at: int = Field(sa_column=_int())
    done_at: int | None = Field(sa_column=_int(nullable=True))


class ClaimRow(SQLModel, table=True):
    """Claimed keys of the whole namespace: who began what must be done once, and what came of it."""

    __tablename__: ClassVar[str] = "moor_claim"
    __table_args__ = (
        # purge: values that a run gave
        _partial("moor_claim_done", "done_run", where="done_run IS NOT NULL"),
    )

    # a hash of the author's key: one row is one key, whichever key of the ring is the current one
    key: str = Field(sa_column=_text(primary_key=True))
    claim_id: str = Field(sa_column=_text())
    run_id: str = Field(sa_column=_text())
    operation: str = Field(sa_column=_text())
    attempt: int = Field(sa_column=_int())
    at: int = Field(sa_column=_int())
    done_at: int | None = Field(sa_column=_int(nullable=True))
    # whose key seals the value: the run that gave it
    done_run: str | None = Field(sa_column=_text(nullable=True))
    value: bytes | None = Field(sa_column=_bytes(nullable=True))


class WorkerRow(SQLModel, table=True):
    """Worker incarnations: which code runs where, and what it can read."""

    __tablename__: ClassVar[str] = "moor_worker"

    owner: str = Field(sa_column=_text(primary_key=True))
    deployment: str = Field(sa_column=_text())
    min_readable: int = Field(sa_column=_int())
    current: int = Field(sa_column=_int())
    host: str = Field(sa_column=_text())
    pid: int = Field(sa_column=_int())
    started_at: int = Field(sa_column=_int())
    heartbeat: int = Field(sa_column=_int())
    code: str = Field(sa_column=_text(default=""))
    workflows: str = Field(sa_column=_text(default="[]"))
    revision: str = Field(sa_column=_text(default=""))
    gone_at: int | None = Field(sa_column=_int(nullable=True))


class RevisionRow(SQLModel, table=True):
    """Names of the revisions that were applied: older code tells by them whether it may work on a newer schema."""

    __tablename__: ClassVar[str] = "moor_revision"

    name: str = Field(sa_column=_text(primary_key=True))
