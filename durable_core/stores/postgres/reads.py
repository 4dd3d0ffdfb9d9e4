"""Reads: what callers and pages see of runs.

What lives here: SELECTs on committed rows. What does not: reads that are part of a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg

from durable_core import revisions
from durable_core.errors import Broken, NotFound
from durable_core.model import Event, Run, Step, Submission
from durable_core.schema import known
from durable_core.stores import rows, sealing
from durable_core.stores.postgres import runs
from durable_core.stores.postgres.tx import Row, Tx
from durable_core.stores.sealing import Place

_RUN: Final = f"SELECT {rows.RUN}, session_key FROM moor_run WHERE run_id = $1"
_RUN_AT: Final = f"""
    SELECT {rows.RUN}, session_key FROM moor_run
    WHERE run_id = (SELECT run_id FROM moor_address WHERE channel = $1 AND address = $2)
"""
_SUBMISSION: Final = f"""
    SELECT {rows.SUBMISSION}, r.session_key FROM moor_admission a JOIN moor_run r ON r.run_id = a.run_id
    LEFT JOIN moor_command c ON c.run_id = a.run_id AND c.seq = a.seq
    WHERE a.submission_id = $1
"""
_STEPS: Final = f"SELECT {rows.STEP} FROM moor_step WHERE run_id = $1 AND n >= $2 ORDER BY n"
_VISIBLE: Final = f"""
    SELECT {rows.EVENT} FROM moor_event WHERE run_id = $1 AND idx IS NOT NULL AND idx >= $2 ORDER BY idx LIMIT $3
"""
_ALL: Final = f"SELECT {rows.EVENT} FROM moor_event WHERE run_id = $1 AND seq >= $2 ORDER BY seq LIMIT $3"


async def run(tx: Tx, run_id: str) -> Run:
    """Return one run.

    Raises:
        NotFound: no such run.
    """
    row = await tx.one(_RUN, run_id)
    if row is None:
        raise NotFound("run", run_id)
    return _run(tx, row)


async def run_at(tx: Tx, channel: str, address: str) -> Run | None:
    """Return the open run that owns an address."""
    row = await tx.one(_RUN_AT, channel, address)
    return None if row is None else _run(tx, row)


async def submission(tx: Tx, submission_id: str) -> Submission:
    """Return where an input stands.

    Raises:
        NotFound: no such submission.
    """
    row = await tx.one(_SUBMISSION, submission_id)
    if row is None:
        raise NotFound("submission", submission_id)
    tx.note_key(row[1], row[-1])
    return rows.submission(tx, row)


async def steps(tx: Tx, run_id: str, start: int) -> list[Step]:
    """Return finished steps in order."""
    found = await tx.all(_STEPS, run_id, start)
    await tx.know(*(run_id for _ in found[:1]))
    return [rows.step(tx, row) for row in found]


async def events(tx: Tx, run_id: str, *, start: int, limit: int, hidden: bool) -> list[Event]:
    """Return events from a place on; a negative one counts from the tail."""
    if start < 0:
        counts = await tx.one("SELECT event_index, event_seq, session_key FROM moor_run WHERE run_id = $1", run_id)
        if counts is None:
            return []
        tx.note_key(run_id, counts[2])
        start = max(counts[hidden] + start, 0)
    found = await tx.all(_ALL if hidden else _VISIBLE, run_id, start, limit)
    await tx.know(*(run_id for _ in found[:1]))
    return [rows.event(tx, row) for row in found]


async def content(tx: Tx, run_id: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the bodies that event references name; what isn't there or isn't understood is left out."""
    found = {}
    for name in names:
        table, _, rest = name.partition(":")
        place = _place(table, rest)
        if place is not None:
            sql, parameters, at = place
            row = await tx.one(sql, run_id, *parameters)
            if row is not None:
                await tx.know(run_id)
                found[name] = tx.open(run_id, row[0], at)
    return found


async def statement(tx: Tx, sql: str, parameters: Mapping[str, Any]) -> list[tuple[str | int | bytes | None, ...]]:
    """Run a statement of a layer above.

    Raises:
        Broken: it wants to write, which the transaction can't.
    """
    try:
        return await tx.named(sql, parameters)
    except asyncpg.ReadOnlySQLTransactionError as error:
        raise Broken(f"a statement that reads wanted to write: {error}") from error


async def check(tx: Tx) -> None:
    """See that this code can work on the database.

    Raises:
        SchemaOutdated: its schema isn't one for this code.
        KeyMissing, KeyWrong: the keys aren't those of its data.
    """
    ours, found = known(), await version(tx)
    # only what isn't known here needs the names of all that was applied
    revisions.check(ours, found, () if found is None or found in ours else await applied(tx))
    await runs.check_keys(tx)


async def version(tx: Tx) -> str | None:
    """Return the revision of the schema, None where there is none."""
    found = await _names(tx, "SELECT version_num FROM moor_alembic")
    return found[0] if found else None


async def applied(tx: Tx) -> tuple[str, ...]:
    """Return the names of the revisions that were applied; none where the schema keeps no names."""
    return await _names(tx, "SELECT name FROM moor_revision")


async def refuses_writes(tx: Tx) -> str | None:
    """Return why this server takes no writes at all; None where it does."""
    row = await tx.one("SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')")
    if row is None or row[0]:
        return "the server is a standby, which can only be read"
    return "the server is set to read only" if row[1] == "on" else None


async def cluster_version(tx: Tx) -> int:
    """Return a number that grows with every transaction that writes."""
    row = await tx.one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    return 0 if row is None else int(row[0])


async def _names(tx: Tx, sql: str) -> tuple[str, ...]:
    """Read one column; nothing where there is no such table."""
    try:
        return tuple(str(name) for (name,) in await tx.all(sql))
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return ()


def _run(tx: Tx, row: Row) -> Run:
    tx.note_key(row[0], row[-1])
    return rows.run(tx, row)


def _place(table: str, rest: str) -> tuple[str, tuple[int | str, ...], Place] | None:
    """Return the statement that finds a row by its name in a reference, its parameters, and where the content stands."""
    number, colon, key = rest.partition(":")
    if table == "prompt":
        return "SELECT body FROM moor_prompt WHERE run_id = $1 AND prompt_id = $2", (rest,), sealing.prompt_body(rest)
    if table == "giver":
        sql = "SELECT body FROM moor_interaction WHERE run_id = $1 AND interaction_id = $2"
        return sql, (rest,), sealing.interaction_body(rest)
    if not (number.isascii() and number.isdigit()):
        return None
    n = int(number)
    if table == "command":
        return "SELECT body FROM moor_command WHERE run_id = $1 AND seq = $2", (n,), sealing.command_body(n)
    if table == "step":
        return "SELECT output FROM moor_step WHERE run_id = $1 AND n = $2", (n,), sealing.step_output(n)
    if table == "record" and colon:
        sql = "SELECT body FROM moor_record WHERE run_id = $1 AND step_n = $2 AND key = $3"
        return sql, (n, key), sealing.record_body(n, key)
    return None
