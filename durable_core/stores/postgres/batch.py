"""Batches: commits of different runs that came in while one was under way, finished by one statement together.

What lives here: gathering, that statement, and what becomes of each member. What does not: the statement of one (`plain.py`),
whose arguments, transposed, are those of the batch.

Nobody waits for company: a commit goes at once unless one is under way, and then with all that came in meanwhile; after a while
without it, if that waits for something itself. Rows are
locked in the order of their ids, and what another transaction holds is left out, so that no member waits for another's row.
Whoever is left out, or without a row for any other reason, goes alone, as if there were no batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any, Final

from durable_core import failpoints
from durable_core.stores.postgres.connect import FAULTS
from durable_core.stores.postgres.database import COMMIT, Database
from durable_core.stores.postgres.plain import GOES_ON, HEAD, HELD, INPUTS, NEXT, UNLESS
from durable_core.stores.postgres.sql import now
from durable_core.stores.postgres.tx import Row

log = logging.getLogger("moorings.store")

AT_ONCE: Final = 1
"""Batches under way at once. With two, each is half as big, and all are slower by the processor time that it takes."""
MOST: Final = 64
"""Members of one batch."""
TURNS: Final = 12
"""Turns of the loop, at most, in which the members of a batch may come back with their next commits before the next one goes.

Else two halves take turns for ever, each waiting for the other's statement: twice the statements, and the same pace."""
PATIENCE_SECONDS: Final = 0.05
"""How long those that gather wait for what is under way; a commit alone may have to wait for its row, which is not theirs."""
LARGE: Final = 65_536
"""From so many bytes on a commit goes alone: others would wait for it."""

# Where a plain commit's statement has them; all else of its head differs from member to member.
_OVERRIDE, _SPEC, _INPUT, _OUTPUT = 3, 6, 11, 12
_OWN: Final = tuple(n for n in range(HEAD) if n not in {_OVERRIDE, _SPEC})
_TYPES: Final = (
    "text",
    "bigint",
    "bigint",
    "text",
    "text",
    "text",
    "text",
    "bigint",
    "text",
    "bytea",
    "bytea",
    "bigint",
    "bigint",
)
_COUNTS: Final = 3
_ROW: Final = 5
_NO_COUNTS: Final = (None,) * _COUNTS
# Each is looked up by its place, as in a plain commit; whoever isn't there undoes the batch, and its members go alone.
_TAKEN: Final = """, c AS (
    UPDATE moor_command c SET taken_step = x.n FROM (
        SELECT h.n, (SELECT b.ctid FROM moor_command b
                     WHERE b.run_id = h.run_id AND b.seq = h.taken AND b.taken_step IS NULL) AS place
        FROM h WHERE h.taken IS NOT NULL
    ) x
    WHERE c.ctid = x.place
    RETURNING 1
)"""
_ALL_TAKEN: Final = "(SELECT count(*) FROM c) = (SELECT count(taken) FROM h)"

Shared = tuple[int | None, Sequence[Any]]


class Member:
    """One commit of a batch, and the future that hears what became of it."""

    __slots__ = ("answer", "args", "consumed", "sql")

    def __init__(self, sql: str, args: list[Any], consumed: Sequence[int]) -> None:
        self.sql = sql
        self.args = args
        self.consumed = consumed
        self.answer: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()

    def shared(self) -> Shared:
        """What a statement of many takes of it: the command it consumes, if one, and the arguments before that."""
        return (self.consumed[0], self.args[:-INPUTS]) if self.consumed else (None, self.args)

    @property
    def run_id(self) -> str:
        """The run that it moves."""
        return str(self.args[0])

    def pass_on(self, row: Row | None) -> None:
        """Answer; None sends it alone."""
        if not self.answer.done():
            self.answer.set_result(row)

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def hit(self, point: str) -> bool:
        """Pass a failpoint; one that raises is this member's alone."""
        try:
            failpoints.hit(point)
        except BaseException as error:  # noqa: BLE001 - whatever a test raises is raised where the commit is awaited
            self.fail(error)
            return False
        return True


class Batches:
    """The commits of this process that one statement each would do for, and that differ by their arguments alone."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[Member] = []
        self._under_way = 0
        self._company = False
        self._called = False
        self._overdue: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(self, sql: str, args: list[Any], consumed: Sequence[int] = ()) -> Row | None:
        """Return the row of a commit's statement, as `Database.attempt` does; call it within `shield`.

        Raises:
            Unavailable, Broken: for the database's own faults.
        """
        if self._is_free() and not self._company:
            self._under_way += 1
            try:
                return await self._alone(sql, args)
            finally:
                self._under_way -= 1
                self._go()
        member = Member(sql, args, consumed)
        if _is_large(member.shared()[1]):
            return await self._alone(sql, args)
        self._waiting.append(member)
        loop = asyncio.get_running_loop()
        if self._is_free() and not self._called:
            # those whose last commits were one batch come back one after the other, in the same turn of the loop
            self._called = True
            loop.call_soon(self._go)
        elif self._overdue is None:
            self._overdue = loop.call_later(PATIENCE_SECONDS, self._start)
        row = await member.answer
        return await self._alone(sql, args) if row is None else row

    async def _alone(self, sql: str, args: Sequence[Any]) -> Row | None:
        return await self._database.attempt(sql, *args, label=COMMIT)

    def _is_free(self) -> bool:
        return self._under_way < AT_ONCE

    def _go(self) -> None:
        """Send what has gathered."""
        self._called = False
        if self._waiting and self._is_free():
            self._start()

    def _start(self) -> None:
        """Begin a batch, whatever is under way."""
        loop = asyncio.get_running_loop()
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        members = self._take()
        if not members:
            return
        if self._waiting:
            self._overdue = loop.call_later(PATIENCE_SECONDS, self._start)
        self._under_way += 1
        self._company = len(members) > 1
        task = loop.create_task(self._send(members))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self) -> list[Member]:
        """Return the members of the next batch: no two of one run, whose statement can't change a row twice."""
        taken: dict[str, Member] = {}
        left = []
        for member in self._waiting:
            if len(taken) < MOST and member.run_id not in taken:
                taken[member.run_id] = member
            else:
                left.append(member)
        self._waiting = left
        return list(taken.values())

    async def _send(self, members: list[Member]) -> None:
        try:
            await self._execute(members)
        except FAULTS as error:
            log.debug("a batch of %d commits failed, each is done alone: %s", len(members), error)
            for member in members:
                member.pass_on(None)
        except BaseException as error:  # no connection, or one that was lost on the way: CommitUnknown
            for member in members:
                member.fail(copy(error))
            if not isinstance(error, Exception):
                raise
        finally:
            expected = len(members) + len(self._waiting)
            for _ in range(TURNS if self._company else 0):
                if len(self._waiting) >= expected:
                    break
                await asyncio.sleep(0)
            self._under_way -= 1
            self._go()

    async def _execute(self, members: list[Member]) -> None:
        if len(members) == 1:
            members[0].pass_on(await self._alone(members[0].sql, members[0].args))
            return
        passed = [member for member in members if member.hit("commit.before")]
        if not passed:
            return
        found = await self._database.statement(*statement([member.shared() for member in passed]))
        rows = {row[0]: row[1:] for row in found}
        for number, member in enumerate(passed, start=1):
            row = rows.get(number)
            if row is None or member.hit("commit.after"):
                member.pass_on(row)


def statement(members: Sequence[Shared]) -> tuple[Any, ...]:
    """Return the statement of a batch and its arguments, made of those of its members; a row has its member's number first."""
    taken, commits = zip(*members, strict=True)
    columns = list(zip(*(args[:HEAD] for args in commits), strict=True))
    given: list[Any] = [columns[_OVERRIDE][-1], columns[_SPEC][-1], *(columns[n] for n in _OWN)]
    taking, eventful = any(taken), any(len(args) > HEAD for args in commits)
    if taking:
        given.append(taken)
    if eventful:
        start = HEAD + _COUNTS
        given += zip(*(tuple(args[HEAD:start]) or _NO_COUNTS for args in commits), strict=True)
        given += zip(
            *(
                (number, *args[at : at + _ROW])
                for number, args in enumerate(commits, start=1)
                for at in range(start, len(args), _ROW)
            ),
            strict=True,
        )
    return (_sql(eventful=eventful, taking=taking), *given)


def _is_large(args: Sequence[Any]) -> bool:
    size = len(args[_INPUT]) + len(args[_OUTPUT])
    return size + sum(len(body) for body in args[HEAD + _COUNTS + 3 :: _ROW]) >= LARGE


@cache
def _sql(*, eventful: bool, taking: bool) -> str:
    types = [*_TYPES, *("bigint",) * taking, *(("bigint",) * _COUNTS if eventful else ())]
    first_event = 3 + len(types)
    arrays = ", ".join(f"${n}::{type_}[]" for n, type_ in enumerate(types, start=3))
    counts = ", seq_before, seq_after, index_after" if eventful else ""
    event_set = event_where = event_part = ""
    if eventful:
        event_set = ", event_seq = coalesce(x.seq_after, r.event_seq), event_index = coalesce(x.index_after, r.event_index)"
        event_where = " AND r.event_seq = coalesce(x.seq_before, r.event_seq)"
        kinds = ("bigint", "bigint", "bigint", "text", "bytea", "text")
        given = ", ".join(f"${n}::{type_}[]" for n, type_ in enumerate(kinds, start=first_event))
        event_part = f""", e AS (
    INSERT INTO moor_event (run_id, seq, idx, type, body, refs, attempt, at)
    SELECT h.run_id, v.seq, v.idx, v.type, v.body, v.refs, h.given_attempt, h.at
    FROM h JOIN unnest({given}) AS v (i, seq, idx, type, body, refs) ON v.i = h.i
)"""
    cancel = taken = command_part = check = ""
    if taking:
        cancel = ", cancel_seq = CASE WHEN r.cancel_seq = x.taken THEN 0 ELSE r.cancel_seq END"
        taken, command_part, check = ", taken", _TAKEN, f", {UNLESS.format(expected=_ALL_TAKEN)}"
    # The ids of the locked rows are an array before the first is changed, by which each is looked up: a join with all runs is
    # planned as a walk through all of them while the table is new.
    return f"""
WITH l AS (
    SELECT r.run_id FROM moor_run r WHERE r.run_id = ANY($3::text[]) ORDER BY r.run_id FOR NO KEY UPDATE SKIP LOCKED
), h AS (
    UPDATE moor_run r SET {NEXT.format(steps=1, phase="x.given_phase", turn="x.given_turn", spec="$2")},
        {GOES_ON}{cancel}{event_set}
    FROM (SELECT {now("$1")} AS now) t, unnest({arrays}) WITH ORDINALITY AS x (
        id, fence, n, given_phase, given_turn, kind, name, given_attempt, given_deployment, input, output, started,
        seen_redactions{taken}{counts}, i
    )
    WHERE r.run_id = ANY(ARRAY(SELECT l.run_id FROM l)) AND r.run_id = x.id AND r.epoch = x.fence AND r.step_no = x.n AND {HELD}
      AND r.redactions = coalesce(x.seen_redactions, r.redactions){event_where}
    RETURNING x.i, r.last_at AS at, t.now, r.inbox_seq, r.cancel_seq, r.run_id, x.n, x.kind, x.name, x.given_attempt,
              x.given_deployment, x.input, x.output, x.started{taken and ", x.taken"}
), s AS (
    INSERT INTO moor_step (run_id, n, kind, name, attempt, spec_version, deployment, input, output, started_at, completed_at)
    SELECT h.run_id, h.n, h.kind, h.name, h.given_attempt, $2, h.given_deployment, h.input, h.output, coalesce(h.started, h.at),
           h.at
    FROM h
){event_part}{command_part}
SELECT h.i, h.at, h.now, h.inbox_seq, h.cancel_seq{check} FROM h
"""
