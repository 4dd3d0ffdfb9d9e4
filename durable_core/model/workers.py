"""Workers: what they can read, what they ask for, what is due.

What lives here: incarnations, claim requests, due work. What does not: the loop (durable_core/worker.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from durable_core.model.statuses import CURRENT_SPEC, MIN_READABLE_SPEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One start of one worker process, and what it can read."""

    owner: str
    deployment: str
    min_readable: int = MIN_READABLE_SPEC
    current: int = CURRENT_SPEC
    host: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker has room for."""

    owner: str
    lease_ms: int
    limit: int
    alone: bool = False
    """Nothing else runs here: a run that crashed its workers may be taken, by itself."""
    min_readable: int = MIN_READABLE_SPEC
    current: int = CURRENT_SPEC


@dataclass(frozen=True, slots=True, kw_only=True)
class DueWork:
    """When a worker has to look again: earliest times, None when nothing is scheduled."""

    run_at: int | None
    lane_at: int | None
    interaction_at: int | None
    now: int
    owners: tuple[str, ...] = field(default=())
    """Incarnations that are enrolled, or hold runs, lanes or interactions."""
