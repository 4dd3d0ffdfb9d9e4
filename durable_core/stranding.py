"""Which runs are stranded: nobody who lives can read them, and nobody could for some time (CORE 10).

What lives here: the decision, from who is and was enrolled. What does not: what becomes of a stranded run (the layer above).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import orjson

from durable_core.errors import Stranded
from durable_core.model import Abilities, Run, RunKind, RunStatus
from durable_core.store import Store

QUIET_MS: Final = 600_000
"""How long nobody must have been able to read a run before it is stranded: a deploy takes less."""
ALIVE_MS: Final = 60_000
"""How old the last word of a worker that is alive may be; they speak every quarter of a minute."""

_WORKERS: Final = (
    "SELECT deployment, min_readable, current, code, workflows, started_at, heartbeat, gone_at FROM moor_worker ORDER BY owner"
)
_MARK: Final = "SELECT stranded_code FROM moor_run WHERE run_id = :run_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A worker that is enrolled, or was lately, and what it can read."""

    deployment: str
    min_readable: int
    current: int
    code: str
    workflows: tuple[str, ...]
    started_at: int
    heartbeat: int
    gone_at: int | None

    def lives(self, now: int) -> bool:
        """Whether it is alive, by its last word."""
        return self.gone_at is None and self.heartbeat > now - ALIVE_MS

    def reads(self, spec: int, *, not_code: str | None, workflow: str | None) -> bool:
        """Whether it can go on with a run of this format; `not_code` is the code that couldn't."""
        return (
            self.min_readable <= spec <= self.current
            and (not_code is None or self.code != not_code)
            and (workflow is None or workflow in self.workflows)
        )


def unread_since(able: Sequence[Reader], everybody: Sequence[Reader], *, now: int, here_since: int) -> int | None:
    """Return since when nobody can read a run of which `able` could; None while somebody can.

    Of times when nobody was there to see, nothing is known: what is not remembered may have lived then. So the time begins when
    the oldest of those who live began, this process among them.
    """
    if any(reader.lives(now) for reader in able):
        return None
    seen = min([here_since, *(reader.started_at for reader in everybody if reader.lives(now))])
    return max([seen, *(reader.gone_at or reader.heartbeat for reader in able)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Strandings:
    """Tells what is stranded, as one process sees it."""

    store: Store
    abilities: Abilities
    since: int
    """Since when this process looks, by the store's clock."""
    quiet_ms: int = QUIET_MS

    def may_be(self, run: Run) -> bool:
        """Whether it is worth looking: this process can't read the run, or some code could not go on with it."""
        fits = self.abilities.min_readable <= run.spec_version <= self.abilities.current
        return run.status is RunStatus.OPEN and (run.stranded is not None or not fits)

    async def is_stranded(self, run: Run) -> bool:
        """Whether a run is stranded: unreadable here, and nobody alive was able to read it for `quiet_ms`."""
        if not self.may_be(run):
            return False
        mark = await self._mark(run)
        fits = self.abilities.min_readable <= run.spec_version <= self.abilities.current
        if fits and mark != self.abilities.code:
            return False
        workflow = run.name if run.kind is RunKind.WORKFLOW else None
        return not await self.somebody_reads(run.spec_version, not_code=mark, workflow=workflow)

    async def somebody_reads(self, spec: int, *, not_code: str | None = None, workflow: str | None = None) -> bool:
        """Whether somebody who lives reads this format, or did in the last `quiet_ms`."""
        everybody = await readers(self.store)
        able = [one for one in everybody if one.reads(spec, not_code=not_code, workflow=workflow)]
        now = await self.store.now()
        since = unread_since(able, everybody, now=now, here_since=self.since)
        return since is None or now - since < self.quiet_ms

    async def check(self, run: Run) -> None:
        """Refuse a stranded run.

        Raises:
            Stranded: with the version that wrote it.
        """
        if await self.is_stranded(run):
            raise Stranded(run.run_id, run.spec_version, run.deployment)

    async def _mark(self, run: Run) -> str | None:
        """Return the code that could not go on with a run; None for one that isn't marked."""
        if run.stranded is None:
            return None
        found = await self.store.rows(_MARK, {"run_id": run.run_id})
        return cast("str | None", found[0][0]) if found else None


async def readers(store: Store) -> list[Reader]:
    """Return who is enrolled and who was lately."""
    return [
        Reader(
            deployment=str(deployment),
            min_readable=cast("int", least),
            current=cast("int", current),
            code=str(code),
            workflows=tuple(orjson.loads(str(workflows))),
            started_at=cast("int", started_at),
            heartbeat=cast("int", heartbeat),
            gone_at=cast("int | None", gone_at),
        )
        for deployment, least, current, code, workflows, started_at, heartbeat, gone_at in await store.rows(_WORKERS, {})
    ]
