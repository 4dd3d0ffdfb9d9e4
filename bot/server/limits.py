"""How much a caller may send and hold.

What lives here: the numbers. What does not: who enforces them.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    _: KW_ONLY
    body: int = 1024 * KIB
    body_time: float = 20.0
    message: int = 64 * KIB
    response_text: int = 16 * KIB
    metadata: int = 16 * KIB
    responses: int = 64
    edits: int = 20
    reason: int = 500
    """In characters."""
    page: int = 500
    parts: int = 64
    wait: float = 60.0
    heartbeat: float = 10.0
    stalled_reader: float = 30.0
    followers: int = 4096
