"""Reads: what callers and pages see of runs.

What lives here: SELECTs on committed rows. What does not: reads that are part of a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from durable_core.errors import NotFound
from durable_core.model import Event, Run, Step, Submission
from durable_core.stores import rows, sealing
from durable_core.stores.sealing import Place
from durable_core.stores.sqlite.tx import Parameters, Row, Tx

_RUN: Final = f"SELECT {rows.RUN} FROM moor_run WHERE run_id = ?"
_RUN_AT: Final = f"""
    SELECT {rows.RUN} FROM moor_run WHERE run_id = (SELECT run_id FROM moor_address WHERE channel = ? AND address = ?)
"""
_SUBMISSION: Final = f"""
    SELECT {rows.SUBMISSION} FROM moor_admission a JOIN moor_run r ON r.run_id = a.run_id
    LEFT JOIN moor_command c ON c.run_id = a.run_id AND c.seq = a.seq
    WHERE a.submission_id = ?
"""
_STEPS: Final = f"SELECT {rows.STEP} FROM moor_step WHERE run_id = ? AND n >= ? ORDER BY n"
_VISIBLE: Final = f"""
    SELECT {rows.EVENT} FROM moor_event WHERE run_id = ? AND idx IS NOT NULL AND idx >= ? ORDER BY idx LIMIT ?
"""
_ALL: Final = f"SELECT {rows.EVENT} FROM moor_event WHERE run_id = ? AND seq >= ? ORDER BY seq LIMIT ?"


def run(tx: Tx, run_id: str) -> Run:
    """Return one run.

    Raises:
        NotFound: no such run.
    """
    row = tx.one(_RUN, (run_id,))
    if row is None:
        raise NotFound("run", run_id)
    return rows.run(tx, row)


def run_at(tx: Tx, channel: str, address: str) -> Run | None:
    """Return the open run that owns an address."""
    row = tx.one(_RUN_AT, (channel, address))
    return None if row is None else rows.run(tx, row)


def submission(tx: Tx, submission_id: str) -> Submission:
    """Return where an input stands.

    Raises:
        NotFound: no such submission.
    """
    row = tx.one(_SUBMISSION, (submission_id,))
    if row is None:
        raise NotFound("submission", submission_id)
    return rows.submission(tx, row)


def steps(tx: Tx, run_id: str, start: int) -> list[Step]:
    """Return finished steps in order."""
    return [rows.step(tx, row) for row in tx.all(_STEPS, (run_id, start))]


def events(tx: Tx, run_id: str, *, start: int, limit: int, hidden: bool) -> list[Event]:
    """Return events from a place on; a negative one counts from the tail."""
    if start < 0:
        counts = tx.one("SELECT event_index, event_seq FROM moor_run WHERE run_id = ?", (run_id,))
        start = max(counts[hidden] + start, 0) if counts else 0
    return [rows.event(tx, row) for row in tx.all(_ALL if hidden else _VISIBLE, (run_id, start, limit))]


def content(tx: Tx, run_id: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the bodies that event references name; what isn't there or isn't understood is left out."""
    found = {}
    for name in names:
        table, _, rest = name.partition(":")
        place = _place(table, rest)
        if place is not None:
            sql, parameters, at = place
            row = tx.one(sql, (run_id, *parameters))
            if row is not None:
                found[name] = tx.open(run_id, row[0], at)
    return found


def statement(tx: Tx, sql: str, parameters: Parameters) -> list[Row]:
    """Run a statement of a layer above, which can't write."""
    before = tx.all("PRAGMA query_only")[0][0]
    tx.run("PRAGMA query_only = ON")
    try:
        return tx.all(sql, parameters)
    finally:
        tx.run(f"PRAGMA query_only = {before}")


def _place(table: str, rest: str) -> tuple[str, tuple[int | str, ...], Place] | None:
    """Return the statement that finds a row by its name in a reference, its parameters, and where the content stands."""
    number, colon, key = rest.partition(":")
    if table == "prompt":
        return "SELECT body FROM moor_prompt WHERE run_id = ? AND prompt_id = ?", (rest,), sealing.prompt_body(rest)
    if table == "giver":
        sql = "SELECT body FROM moor_interaction WHERE run_id = ? AND interaction_id = ?"
        return sql, (rest,), sealing.interaction_body(rest)
    if not (number.isascii() and number.isdigit()):
        return None
    n = int(number)
    if table == "command":
        return "SELECT body FROM moor_command WHERE run_id = ? AND seq = ?", (n,), sealing.command_body(n)
    if table == "step":
        return "SELECT output FROM moor_step WHERE run_id = ? AND n = ?", (n,), sealing.step_output(n)
    if table == "record" and colon:
        sql = "SELECT body FROM moor_record WHERE run_id = ? AND step_n = ? AND key = ?"
        return sql, (n, key), sealing.record_body(n, key)
    return None
