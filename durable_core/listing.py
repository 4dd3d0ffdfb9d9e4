"""Lists of runs, of what is owed and of claimed keys, for whoever operates them: portable SQL, no content.

What lives here: reads over many runs, and retiring a deployment's. What does not: one run's content, how it is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from durable_core.engine.ending import end_run
from durable_core.errors import CannotOpen, KeyMissing
from durable_core.model import EventDraft, Phase, RunKind, RunStatus
from durable_core.store import Store
from durable_core.stores.keyclaims import stored

log = logging.getLogger("moorings.store")

PAGE: Final = 200

_RUNS: Final = (
    "SELECT run_id, kind, name, status, phase, creator, deployment, spec_version, step_no, created_at, last_at, deadline_at,"
    " end_reason, stranded, stranded_code, owner, turn_id FROM moor_run"
)
_PENDING: Final = "EXISTS (SELECT 1 FROM moor_command c WHERE c.run_id = moor_run.run_id AND c.taken_step IS NULL)"
UNFINISHED: Final = f"status = 'open' AND (phase <> 'idle' OR turn_id IS NOT NULL OR {_PENDING})"
"""Runs that have something to do or wait for somebody."""
_DEAD: Final = (
    "SELECT delivery_id, run_id, channel, address, state, attempts, last_error, at, done_at FROM moor_outbox WHERE state = :state"
    " ORDER BY at, delivery_id LIMIT :limit"
)
_CLAIMS: Final = """
    SELECT c.claim_id, c.run_id, r.kind, r.name, r.status, r.phase, r.owner, r.lease_until,
        c.operation, c.attempt, c.at, c.done_at
    FROM moor_claim c JOIN moor_run r ON r.run_id = c.run_id
    WHERE (c.done_at IS NULL OR :done = 1) AND (c.key = :key OR :key = '') ORDER BY c.at, c.claim_id LIMIT :limit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run in a list."""

    run_id: str
    kind: RunKind
    name: str
    status: RunStatus
    phase: Phase
    creator: str
    deployment: str
    spec_version: int
    step_no: int
    created_at: int
    last_at: int
    deadline_at: int | None
    end_reason: str | None
    stranded: str | None
    stranded_code: str | None
    owner: str | None
    turn_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedLine:
    """A delivery in a list."""

    delivery_id: str
    run_id: str
    channel: str
    address: str
    state: str
    attempts: int
    last_error: str | None
    at: int
    done_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLine:
    """A claimed key in a list; the key itself is stored as a hash, so nobody can say it."""

    claim_id: str
    run_id: str
    kind: RunKind
    name: str
    status: RunStatus
    phase: Phase
    busy: bool
    """Whether somebody is at work on the run: what was begun may be under way."""
    operation: str
    attempt: int
    at: int
    done_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which runs to list; what is None or False does not narrow the list."""

    kind: RunKind | None = None
    status: RunStatus | None = None
    phase: Phase | None = None
    deployment: str | None = None
    marked: bool = False
    """Only those that some code could not go on with."""
    unfinished_before: int | None = None
    """Only unfinished ones to which nothing has happened since then."""
    outside: tuple[int, int] | None = None
    """Only open ones in a format outside of this window."""


async def list_runs(store: Store, which: Which, *, limit: int = PAGE) -> list[RunLine]:
    """Return runs, the newest first."""
    wheres: list[str] = []
    given: dict[str, str | int | bytes | None] = {"limit": limit}
    for column, value in (("kind", which.kind), ("status", which.status), ("phase", which.phase)):
        if value is not None:
            wheres.append(f"{column} = :{column}")
            given[column] = value.value
    if which.deployment is not None:
        wheres.append("deployment = :deployment")
        given["deployment"] = which.deployment
    if which.marked:
        wheres.append("status = 'open' AND stranded IS NOT NULL")
    if which.unfinished_before is not None:
        wheres.append(f"{UNFINISHED} AND last_at < :before")
        given["before"] = which.unfinished_before
    if which.outside is not None:
        wheres.append("status = 'open' AND (spec_version < :least OR spec_version > :most)")
        given["least"], given["most"] = which.outside
    where = f" WHERE {' AND '.join(f'({one})' for one in wheres)}" if wheres else ""
    rows = await store.rows(f"{_RUNS}{where} ORDER BY created_at DESC, run_id DESC LIMIT :limit", given)
    return [_run(cast("tuple[object, ...]", row)) for row in rows]


async def is_dormant(store: Store, run_id: str, *, since: int) -> bool:
    """Whether a run is unfinished and nothing has happened to it since then."""
    sql = f"SELECT 1 FROM moor_run WHERE run_id = :run_id AND {UNFINISHED} AND last_at < :since"  # noqa: S608 - constants
    return since > 0 and bool(await store.rows(sql, {"run_id": run_id, "since": since}))


async def list_owed(store: Store, *, state: str = "dead", limit: int = PAGE) -> list[OwedLine]:
    """Return deliveries in a state (`pending`, `sent`, `dead`), the oldest first."""
    return [
        OwedLine(
            delivery_id=str(row[0]),
            run_id=str(row[1]),
            channel=str(row[2]),
            address=str(row[3]),
            state=str(row[4]),
            attempts=cast("int", row[5]),
            last_error=cast("str | None", row[6]),
            at=cast("int", row[7]),
            done_at=cast("int | None", row[8]),
        )
        for row in await store.rows(_DEAD, {"state": state, "limit": limit})
    ]


async def list_claims(store: Store, *, key: str | None = None, done: bool = False, limit: int = PAGE) -> list[ClaimLine]:
    """Return claims that nobody has said to be done, the oldest first; of one key, or with those that are done."""
    now = await store.now()
    given: dict[str, str | int | bytes | None] = {"key": "" if key is None else stored(key), "done": int(done), "limit": limit}
    return [_claim(cast("tuple[object, ...]", row), now) for row in await store.rows(_CLAIMS, given)]


async def retire(
    store: Store, deployment: str, *, events: Callable[[RunLine], Sequence[EventDraft]], reason: str = "retired"
) -> list[str]:
    """End every open run of a deployment, whoever has it; the ids of those ended. `events` says what readers are told.

    One whose key is not in the ring stays as it is, and the log names it: the others must not wait for it.
    """
    ended: list[str] = []
    closed: set[str] = set()
    which = Which(status=RunStatus.OPEN, deployment=deployment)
    while page := [line for line in await list_runs(store, which, limit=PAGE + len(closed)) if line.run_id not in closed]:
        for line in page:  # each is ended or was by somebody else: the next page is of others
            try:
                if await end_run(store, line.run_id, reason=reason, events=events(line)):
                    ended.append(line.run_id)
            except (KeyMissing, CannotOpen) as error:
                log.error("%s can't be ended: %s", line.run_id, error)  # noqa: TRY400 - the reason says it all
                closed.add(line.run_id)
    return ended


def _run(row: tuple[object, ...]) -> RunLine:
    return RunLine(
        run_id=str(row[0]),
        kind=RunKind(str(row[1])),
        name=str(row[2]),
        status=RunStatus(str(row[3])),
        phase=Phase(str(row[4])),
        creator=str(row[5]),
        deployment=str(row[6]),
        spec_version=cast("int", row[7]),
        step_no=cast("int", row[8]),
        created_at=cast("int", row[9]),
        last_at=cast("int", row[10]),
        deadline_at=cast("int | None", row[11]),
        end_reason=cast("str | None", row[12]),
        stranded=cast("str | None", row[13]),
        stranded_code=cast("str | None", row[14]),
        owner=cast("str | None", row[15]),
        turn_id=cast("str | None", row[16]),
    )


def _claim(row: tuple[object, ...], now: int) -> ClaimLine:
    return ClaimLine(
        claim_id=str(row[0]),
        run_id=str(row[1]),
        kind=RunKind(str(row[2])),
        name=str(row[3]),
        status=RunStatus(str(row[4])),
        phase=Phase(str(row[5])),
        busy=row[6] is not None and cast("int | None", row[7]) is not None and cast("int", row[7]) > now,
        operation=str(row[8]),
        attempt=cast("int", row[9]),
        at=cast("int", row[10]),
        done_at=cast("int | None", row[11]),
    )
