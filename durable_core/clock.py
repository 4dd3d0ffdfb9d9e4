"""Clock: where the time of the core comes from; times are integer milliseconds since the epoch, UTC.

What lives here: the port that binds SQL's `:now`. What does not: timers and leases, which are rows.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Protocol

SQLITE_NOW: Final = "coalesce(:now, CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER))"
"""The one SQL expression of "now" on SQLite; 2440587.5 is the Julian day of the epoch. Bind `Clock.override()`."""

_MILLISECOND: Final = timedelta(milliseconds=1)


class Clock(Protocol):
    """Decide what `:now` is bound to in every statement."""

    def override(self) -> int | None:
        """Return the time in milliseconds, or None to use the database's own clock."""
        ...


class DatabaseClock:
    """Leave the time to the database: what production uses."""

    __slots__ = ()

    def override(self) -> int | None:
        """Return None: no override."""
        return None


class ManualClock:
    """Stand still until told to advance: for tests."""

    __slots__ = ("_now_ms",)

    def __init__(self, start_ms: int) -> None:
        self._now_ms = start_ms

    @property
    def now_ms(self) -> int:
        """The current time in milliseconds."""
        return self._now_ms

    def override(self) -> int | None:
        """Return the manual time."""
        return self._now_ms

    def advance(self, by: timedelta) -> int:
        """Move forward and return the new time; time never goes back.

        Raises:
            ValueError: `by` is negative.
        """
        if by < timedelta(0):
            raise ValueError(f"time doesn't go back: {by}")
        self._now_ms += milliseconds(by)
        return self._now_ms


def milliseconds(duration: timedelta) -> int:
    """Return a duration in whole milliseconds, rounded up so that nothing is due early."""
    whole, rest = divmod(duration, _MILLISECOND)  # not -(-x // y): the longest one has no negative
    return whole + bool(rest)
