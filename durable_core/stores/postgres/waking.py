"""Waking: an input into a run that is there, in two statements of a transaction; with the second a worker may take it.

What lives here: what most inputs need. What does not: inputs that find anything else: nothing is written then, and the way of
`admission.py` finds out what it is.

The first statement locks the run's row and numbers the input, whose body is sealed for its number. So the second one sees all
that belongs to the run, which nobody else can change any more.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

from durable_core.errors import DurableError
from durable_core.model import (
    ALONE_AFTER_CRASHES,
    Admission,
    Claim,
    ClaimRequest,
    Command,
    CommandKind,
    Receipt,
    ToAddress,
    ToNew,
)
from durable_core.stores import rows, sealing
from durable_core.stores.postgres import claims, loading
from durable_core.stores.postgres.sql import now
from durable_core.stores.postgres.tx import Again, Row, Tx

_PUT: Final = f"""
    UPDATE moor_run SET
        inbox_seq = inbox_seq + 1, wake_at = least(wake_at, {now("$1")}), last_at = greatest(last_at, {now("$1")})
    WHERE run_id = {{run}} AND status = 'open'
      AND NOT EXISTS (SELECT 1 FROM moor_admission WHERE source = $2 AND key = $3)
    RETURNING run_id, inbox_seq, last_at, session_key, {now("$1")}
"""
_TO_RUN: Final = _PUT.format(run="$4")
_TO_ADDRESS: Final = _PUT.format(run="(SELECT run_id FROM moor_address WHERE channel = $4 AND address = $5)")
_COLUMNS: Final = f"{rows.CLAIM}, {loading.ALONG}"


class Woken(NamedTuple):
    """What became of an input: its receipt, and the run where it was taken."""

    receipt: Receipt
    taken: tuple[Claim, loading.Position] | None


async def put(tx: Tx, admission: Admission, request: ClaimRequest | None) -> Woken | None:
    """Accept an input into a run that is there, and take the run where it is due and free; None where nothing was written.

    Raises:
        Again: another transaction used the key meanwhile.
    """
    target, kind = admission.target, admission.kind
    if kind is None or kind is CommandKind.CANCEL or isinstance(target, ToNew):
        return None
    sql, where = (_TO_ADDRESS, (target.channel, target.address)) if isinstance(target, ToAddress) else (_TO_RUN, (target.run_id,))
    found = await tx.one(sql, tx.override, admission.source, admission.key, *where)
    if found is None:
        return None
    run_id, seq, at, wrapped, time = found
    tx.note_key(run_id, wrapped)
    tx.note_now(time)
    own = Command(
        seq=seq,
        kind=kind,
        body=admission.body,
        submission_id=admission.submission_id,
        principal=admission.principal,
        at=at,
    )
    row = await tx.one(*_written(tx, admission, run_id, own, request))
    if row is None or not row[0]:
        raise Again
    for extra in admission.extra:
        await tx.named(extra.sql, extra.parameters)
    taken = None if request is None or row[1] is None else await _taken(tx, row[1:], own)
    if taken is None:
        tx.changed.add(run_id)
    return Woken(Receipt(submission_id=admission.submission_id, run_id=run_id, seq=seq, created=False), taken)


def _written(tx: Tx, admission: Admission, run_id: str, own: Command, request: ClaimRequest | None) -> tuple[Any, ...]:
    """Return the statement that writes an input, and takes its run for whoever may."""
    args: list[Any] = [
        run_id,
        own.seq,
        own.kind.value,
        tx.seal(run_id, own.body, sealing.command_body(own.seq)),
        own.submission_id,
        own.principal,
        own.at,
        admission.source,
        admission.key,
        tx.digest(admission.digest),
    ]
    if request is not None:
        args = [*claims.able(request.abilities), *args, ALONE_AFTER_CRASHES, request.owner, request.lease_ms, tx.override]
    return (_sql(takes=request is not None), *args)


async def _taken(tx: Tx, row: Row, own: Command) -> tuple[Claim, loading.Position] | None:
    """Return the claim of a run that was taken with what just came in; None where it can't be opened, and was left alone."""
    (got,) = await loading.load(tx, [row])
    if isinstance(got, DurableError):
        await claims.leave(tx, row[0], got, await tx.now())
        return None
    claim, place = got
    if not claim.commands:  # nothing but this input, which the row didn't know of yet
        claim = replace(claim, commands=(own,))
    return claim, place


@cache
def _sql(*, takes: bool) -> str:
    shift = 6 if takes else 0
    run, seq, kind, body, submission, principal, at, source, key, digest, *more = (f"${n + shift}" for n in range(1, 15))
    take, columns, join = "", "", ""
    if takes:
        crashes, owner, lease, override = more
        take = f""", t AS MATERIALIZED (SELECT {now(override)} AS now), taken AS (
    UPDATE moor_run SET
        owner = {owner}, lease_until = t.now + {lease}::bigint, epoch = epoch + 1, attempt = attempt + 1, wake_at = NULL,
        step_started_at = coalesce(step_started_at, greatest(last_at, t.now)), progressed = 0
    FROM t WHERE run_id = {run} AND {claims.TAKABLE} AND wake_at <= t.now AND crashes < {crashes}::bigint
    RETURNING {_COLUMNS}
)"""
        columns, join = ", taken.*", " LEFT JOIN taken ON true"
    return f"""
WITH c AS (
    INSERT INTO moor_command (run_id, seq, kind, body, submission_id, principal, at)
    VALUES ({run}, {seq}::bigint, {kind}, {body}::bytea, {submission}, {principal}, {at}::bigint)
), a AS (
    INSERT INTO moor_admission (source, key, submission_id, run_id, seq, kind, digest, created, at)
    VALUES ({source}, {key}, {submission}, {run}, {seq}::bigint, {kind}, {digest}::bytea, 0, {at}::bigint)
    ON CONFLICT (source, key) DO NOTHING RETURNING 1
){take}
SELECT x.written{columns} FROM (SELECT EXISTS (SELECT 1 FROM a) AS written) x{join}
"""
