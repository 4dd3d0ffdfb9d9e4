"""Starts: a first input that makes its run, in one statement.

What lives here: the statement for what begins most runs. What does not: inputs of runs that are there, and every start that finds
something in its way (`admission.py`): nothing is written then, and the transaction that follows says what it is.

A new run's first command has the number 1, so its place is known before the statement, and its body can be sealed for it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from durable_core import versions
from durable_core.crypto import SessionKey
from durable_core.model import Admission, ClaimRequest, CommandKind, NewRun, Phase, RunStatus, ToAddress, ToRun
from durable_core.stores import sealing
from durable_core.stores.postgres.sql import now
from durable_core.stores.rows import FIRST
from durable_core.stores.sealing import Place, Sealing


def new_of(admission: Admission) -> NewRun | None:
    """Return the run to be made where one statement will do, None where it won't."""
    if isinstance(admission.target, ToRun) or admission.extra or admission.kind in {None, CommandKind.CANCEL}:
        return None
    return admission.target.new


def start(
    admission: Admission, new: NewRun, sealing_: Sealing, override: int | None, taken: ClaimRequest | None = None
) -> tuple[str, list[Any], SessionKey]:
    """Return the statement, its arguments and the run's key: a row when all was written, none where the address is owned.

    With `taken` the run is that worker's from its making. The row's second column is the time.
    """
    key, wrapped = sealing_.new_key(new.run_id)
    kind = admission.kind or CommandKind.MESSAGE
    args: list[Any] = [
        new.run_id,
        override,
        new.name,
        RunStatus.OPEN.value,
        Phase.IDLE.value,
        new.creator,
        wrapped,
        _seal(key, new.run_id, new.header, sealing.run_header()),
        versions.CURRENT_SPEC,
        new.deployment,
        new.lifetime_ms,
        new.kind.value,
        new.keep_ms,
        taken.lease_ms if taken else new.wake_at,
        kind.value,
        _seal(key, new.run_id, admission.body, sealing.command_body(FIRST)),
        admission.submission_id,
        admission.principal,
        admission.source,
        admission.key,
        sealing_.digest(admission.digest),
    ]
    target = admission.target
    if isinstance(target, ToAddress):
        args += [target.channel, target.address]
    if taken is not None:
        args.append(taken.owner)
    return _sql(addressed=isinstance(target, ToAddress), taken=taken is not None), args, key


def _seal(key: SessionKey, run_id: str, plain: bytes, at: Place) -> bytes:
    return key.seal(plain, table=at.table, row=at.row(run_id), column=at.column)


@cache
def _sql(*, addressed: bool, taken: bool) -> str:
    own = """
, o AS (
    INSERT INTO moor_address (channel, address, run_id, claimed_at) SELECT $22, $23, $1, t.now FROM t
    ON CONFLICT (channel, address) DO NOTHING RETURNING 1
)"""
    owner = f"${24 if addressed else 22}"
    wakes = ("wake_at", "greatest(t.now, $14::bigint)")
    if taken:
        wakes = "owner, lease_until, epoch, attempt, step_started_at", f"{owner}, t.now + $14::bigint, 1, 1, t.now"
    return f"""
WITH t AS MATERIALIZED (SELECT {now("$2")} AS now){own if addressed else ""}, r AS (
    INSERT INTO moor_run (run_id, name, status, phase, creator, session_key, header, spec_version, deployment,
                          {wakes[0]}, created_at, last_at, deadline_at, kind, keep_ms, inbox_seq)
    SELECT $1, $3, $4, $5, $6, $7::bytea, $8::bytea, $9::bigint, $10,
           {wakes[1]}, t.now, t.now, t.now + $11::bigint, $12, $13::bigint, {FIRST}
    FROM t{", o" if addressed else ""}
    RETURNING 1
), c AS (
    INSERT INTO moor_command (run_id, seq, kind, body, submission_id, principal, at)
    SELECT $1, {FIRST}, $15, $16::bytea, $17, $18, t.now FROM t, r
), a AS (
    INSERT INTO moor_admission (source, key, submission_id, run_id, seq, kind, digest, created, at)
    SELECT $19, $20, $17, $1, {FIRST}, $15, $21::bytea, 1, t.now FROM t, r
    ON CONFLICT (source, key) DO NOTHING RETURNING 1
)
SELECT 1 / CASE WHEN EXISTS (SELECT 1 FROM a) THEN 1 ELSE 0 END, t.now FROM r, t
"""
