"""Workers: what they can read and do, what they ask for, what is due.

What lives here: abilities, incarnations, claim requests, holdings, due work. What does not: the loop (durable_core/worker.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from durable_core import versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What one worker can read and do; it is offered nothing else (CORE 10)."""

    min_readable: int = field(default_factory=lambda: versions.MIN_READABLE_SPEC)
    current: int = field(default_factory=lambda: versions.CURRENT_SPEC)
    sessions: bool = True
    """Whether it takes session runs."""
    workflows: tuple[str, ...] = ()
    """Names of the workflows whose runs it takes."""
    code: str = ""
    """The fingerprint of its code: a run that this code could not go on with is not offered to it again."""
    channels: tuple[str, ...] | None = None
    """Channels whose lanes it sends; None for all."""
    since: int = 0
    """Runs to which nothing has happened since then are left alone: those of an earlier start, where that is wanted."""


SESSIONS: Final = Abilities()
"""All sessions, no workflows: what a worker is able to unless it says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One start of one worker process, and what it can read and do."""

    owner: str
    deployment: str
    abilities: Abilities = SESSIONS
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
    recovering: int | None = None
    """How many may be taken of those that lost their worker, and to which nothing has come since; None for any number."""
    abilities: Abilities = SESSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """All that a worker holds, each with the epoch of its claim."""

    runs: tuple[tuple[str, int], ...] = ()
    """By run id."""
    lanes: tuple[tuple[str, str, int], ...] = ()
    """By channel and address."""
    interactions: tuple[tuple[str, str, int], ...] = ()
    """By run id and interaction id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueWork:
    """When a worker has to look again: earliest times, None when nothing is scheduled."""

    run_at: int | None
    lane_at: int | None
    interaction_at: int | None
    now: int
    owners: tuple[str, ...] = ()
    """Incarnations that are enrolled, or hold runs, lanes or interactions."""
    dead: tuple[str, ...] = ()
    """Those of them that are known to have died: what they hold is to be taken back at once (CORE 22)."""
