"""Loading: what runs bring along when they are claimed, read for all of them at once.

What lives here: commands, prompts and records of claims. What does not: taking runs (`claims.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from durable_core.errors import DurableError
from durable_core.model import Claim, Command, Prompt, Record
from durable_core.stores import rows
from durable_core.stores.postgres import votes
from durable_core.stores.postgres.tx import UNOPENABLE, Row, Tx

_COMMANDS: Final = f"""
    SELECT {rows.COMMAND} FROM moor_command WHERE run_id = ANY($1::text[]) AND taken_step IS NULL AND seq > $2 ORDER BY seq
"""
_OPEN: Final = f"""
    SELECT {votes.PROMPT} FROM moor_prompt p WHERE run_id = ANY($1::text[]) AND outcome IS NULL ORDER BY created_at, prompt_id
"""
_ANSWERED: Final = f"""
    SELECT {votes.PROMPT} FROM moor_prompt p JOIN moor_command c ON c.run_id = p.run_id AND c.seq = p.settled_seq
    WHERE p.run_id = ANY($1::text[]) AND c.taken_step IS NULL AND c.kind = 'response' ORDER BY p.settled_seq
"""
# Of one millisecond, the transaction that began to write first; tables have no row numbers to go by.
_IN_ORDER: Final = "ORDER BY r.at, age(r.xmin) DESC, r.ctid"
_RECORD: Final = "r." + rows.RECORD.replace(", ", ", r.")
_RECORDS: Final = f"SELECT {_RECORD} FROM moor_record r WHERE run_id = $1 AND step_n = $2 {_IN_ORDER}"
_PENDING: Final = f"""
    SELECT {_RECORD} FROM moor_record r JOIN unnest($1::text[], $2::bigint[]) AS x (run_id, step_n)
        ON r.run_id = x.run_id AND r.step_n = x.step_n
    {_IN_ORDER}
"""
ALONG: Final = """
    session_key, event_seq, event_index,
    EXISTS (SELECT 1 FROM moor_command c WHERE c.run_id = moor_run.run_id AND c.taken_step IS NULL),
    EXISTS (SELECT 1 FROM moor_prompt p WHERE p.run_id = moor_run.run_id AND p.outcome IS NULL),
    EXISTS (SELECT 1 FROM moor_record r WHERE r.run_id = moor_run.run_id AND r.step_n = moor_run.step_no)
"""
"""What `load` needs beside `CLAIM`: the key, where events stand, and whether there are commands, prompts, records to read."""
_KEY: Final = len(rows.CLAIM.split(","))
_SEQ, _INDEX, _COMMANDED, _ASKED, _RECORDED = range(_KEY + 1, _KEY + 6)
WIDTH: Final = _RECORDED + 1
"""How many columns `CLAIM` and `ALONG` have."""


class Position(NamedTuple):
    """Where a held run stands, so far as only its holder moves it: what a commit in one statement is written by."""

    epoch: int
    step_no: int
    attempt: int
    deployment: str
    step_started_at: int | None
    event_seq: int
    event_index: int


async def load(tx: Tx, taken: Sequence[Row]) -> list[tuple[Claim, Position] | DurableError]:
    """Return a claim for each row of `CLAIM` and `ALONG`, or why its run can't be opened."""
    for row in taken:
        tx.note_key(row[0], row[_KEY])
    commanded = [row[0] for row in taken if row[_COMMANDED]]
    asked = [row[0] for row in taken if row[_ASKED]]
    recorded = [(row[0], row[8]) for row in taken if row[_RECORDED]]
    commands = _by_run(await tx.all(_COMMANDS, commanded, 0), 0) if commanded else {}
    prompts = _by_run(await tx.all(_OPEN, asked), 1) if asked else {}
    answering = [run_id for run_id, found in commands.items() if any(row[2] == "response" for row in found)]
    answered = _by_run(await tx.all(_ANSWERED, answering), 1) if answering else {}
    pending = await tx.all(_PENDING, *map(list, zip(*recorded, strict=True))) if recorded else []
    records = _by_run(pending, 0)
    now = await tx.now()
    loaded: list[tuple[Claim, Position] | DurableError] = []
    for row in taken:
        run_id = row[0]
        try:
            claim = rows.claim(
                tx,
                row,
                now=now,
                commands=tuple(rows.command(tx, found) for found in commands.get(run_id, ())),
                prompts=tuple(rows.prompt(tx, found) for found in (*prompts.get(run_id, ()), *answered.get(run_id, ()))),
                records=tuple(rows.record(tx, found) for found in records.get(run_id, ())),
            )
        except UNOPENABLE as error:
            loaded.append(error)
        else:
            loaded.append((claim, position(claim, row)))
    return loaded


def beginning(claim: Claim) -> Position:
    """Return where a run stands that was made and taken in one."""
    return Position(claim.epoch, claim.step_no, claim.attempt, claim.deployment, claim.step_started_at, 0, 0)


def position(claim: Claim, row: Row) -> Position:
    """Return where a claimed run stands, by the row of `CLAIM` and `ALONG`."""
    return Position(claim.epoch, claim.step_no, claim.attempt, claim.deployment, claim.step_started_at, row[_SEQ], row[_INDEX])


def wrapped_key(row: Row) -> bytes:
    """Return the run's wrapped key."""
    return bytes(row[_KEY])


def brings_more(row: Row) -> bool:
    """Tell whether there are prompts or records to read."""
    return bool(row[_ASKED] or row[_RECORDED])


async def commands_after(tx: Tx, run_id: str, seq: int) -> tuple[Command, ...]:
    """Return what nobody has consumed, from behind `seq` on."""
    found = await tx.all(_COMMANDS, [run_id], seq)
    if found:
        await tx.know(run_id)
    return tuple(rows.command(tx, row) for row in found)


async def open_prompts(tx: Tx, run_id: str, *, opener: rows.Opener | None = None) -> tuple[Prompt, ...]:
    """Return a run's open prompts, oldest first."""
    found = await tx.all(_OPEN, [run_id])
    if found:
        await tx.know(run_id)
    return tuple(rows.prompt(opener or tx, row) for row in found)


async def records(tx: Tx, run_id: str, step_n: int) -> tuple[Record, ...]:
    """Return what a step recorded, in order."""
    found = await tx.all(_RECORDS, run_id, step_n)
    if found:
        await tx.know(run_id)
    return tuple(rows.record(tx, row) for row in found)


def _by_run(found: Sequence[Row], column: int) -> dict[str, list[Row]]:
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in found:
        runs[row[column]].append(row)
    return dict(runs)
