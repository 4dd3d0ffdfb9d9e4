"""Taking: a claim in one statement, for runs that bring along nothing but what came in.

What lives here: that statement, and which of its runs have to be read again. What does not: claims that look for leases that are
over, or take a run by itself (`claims.py`).

A statement sees what was there when it began, but a row that it locks as it is now. So the last command that a run's row counts
has to be among what is seen; where it isn't, it came in between, and the run is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from durable_core.crypto import SessionKey
from durable_core.errors import ContentGone, DurableError
from durable_core.model import ALONE_AFTER_CRASHES, Claim, ClaimRequest
from durable_core.stores import rows
from durable_core.stores.postgres import loading
from durable_core.stores.postgres.claims import able, due
from durable_core.stores.postgres.loading import ALONG, Position
from durable_core.stores.postgres.tx import UNOPENABLE, Row
from durable_core.stores.sealing import Place, Sealing

_COMMAND: Final = "c." + rows.COMMAND.replace(", ", ", c.")
_TAKE: Final = f"""
    WITH {due(time="$9", limit="$8", recovering="$12", crashes="crashes < $7::bigint")},
    taken AS (
        UPDATE moor_run SET
            owner = $10, lease_until = t.now + $11::bigint, epoch = epoch + 1, attempt = attempt + 1, wake_at = NULL,
            step_started_at = coalesce(step_started_at, greatest(last_at, t.now)), progressed = 0
        FROM due, t WHERE moor_run.run_id = due.id
        RETURNING {rows.CLAIM}, {ALONG},
            inbox_seq = 0
                OR EXISTS (SELECT 1 FROM moor_command c WHERE c.run_id = moor_run.run_id AND c.seq = inbox_seq) AS whole,
            t.now, due.due_at
    )
    SELECT taken.*, {_COMMAND} FROM taken
    LEFT JOIN moor_command c ON c.run_id = taken.run_id AND c.taken_step IS NULL
    ORDER BY taken.due_at, taken.run_id, c.seq
"""
_WIDTH: Final = loading.WIDTH + 3


class Taken(NamedTuple):
    """A run that was taken: its claim and where it stands, or why it can't be opened, or neither: it is to be read again."""

    run_id: str
    epoch: int
    now: int
    got: tuple[Claim, Position] | DurableError | None


def take(request: ClaimRequest, override: int | None) -> tuple[str, list[Any]]:
    """Return the statement that takes what is due; not for one that takes a run by itself."""
    able_to, room = able(request.abilities), (request.limit, override, request.owner, request.lease_ms, request.recovering)
    return _TAKE, [*able_to, ALONE_AFTER_CRASHES, *room]


def read(sealing: Sealing, found: Sequence[Row]) -> list[Taken]:
    """Read what was taken."""
    by_run: dict[str, list[Row]] = {}
    for row in found:
        by_run.setdefault(row[0], []).append(row)
    return [_taken(sealing, run_id, of_run) for run_id, of_run in by_run.items()]


class _Opener:
    """Opens what belongs to one run, whose key came along."""

    def __init__(self, sealing: Sealing, wrapped: bytes) -> None:
        self._sealing = sealing
        self._wrapped = wrapped
        self._key: SessionKey | None = None

    def open(self, run_id: str, sealed: bytes, at: Place) -> bytes:
        if not sealed or not self._wrapped:
            self._sealing.drop({run_id})
            raise ContentGone(run_id)
        if self._key is None:
            self._key = self._sealing.cached(run_id) or self._sealing.unwrap(run_id, self._wrapped)
        return self._key.open(sealed, table=at.table, row=at.row(run_id), column=at.column)

    def open_optional(self, run_id: str, sealed: bytes | None, at: Place) -> bytes | None:
        return None if sealed is None else self.open(run_id, sealed, at)


def _taken(sealing: Sealing, run_id: str, found: Sequence[Row]) -> Taken:
    head = found[0]
    whole, at = head[loading.WIDTH], head[loading.WIDTH + 1]
    commands = [row[_WIDTH:] for row in found if row[_WIDTH] is not None]
    if not whole or loading.brings_more(head) or any(row[2] == "response" for row in commands):
        return Taken(run_id, head[1], at, None)
    opener = _Opener(sealing, loading.wrapped_key(head))
    try:
        read_commands = tuple(rows.command(opener, row) for row in commands)
        claim = rows.claim(opener, head, now=at, commands=read_commands, prompts=(), records=())
    except UNOPENABLE as error:
        return Taken(run_id, head[1], at, error)
    return Taken(run_id, head[1], at, (claim, loading.position(claim, head)))
