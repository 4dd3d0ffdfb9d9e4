"""How long the content of a session is kept once it has ended.

What lives here: the setting and its check. What does not: deleting (durable_core), forgetting on request (forget.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

DEFAULT_DAYS: Final = 90
MAX_DAYS: Final = 36_500

RetentionSpec: TypeAlias = "Retention | int | Literal['default']"
"""What an author writes: whole days, 0 for none at all, or "default"."""

_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Retention:
    """Whole days from a session's end until its content is deleted; 0 deletes it a minute after the end."""

    days: int = DEFAULT_DAYS

    @classmethod
    def of(cls, spec: RetentionSpec) -> Retention:
        """Read what an author wrote; what can't be meant is left for `problems` to name."""
        if isinstance(spec, Retention):
            return spec
        return cls() if spec == "default" else cls(spec)

    def problems(self) -> list[str]:
        """Say what is wrong with it."""
        days: object = self.days
        if isinstance(days, int) and not isinstance(days, bool) and 0 <= days <= MAX_DAYS:
            return []
        return [f'retention= must be "default" ({DEFAULT_DAYS} days) or whole days from 0 to {MAX_DAYS}, not {days!r}']

    @property
    def keep_ms(self) -> int:
        """The time in milliseconds."""
        return self.days * _DAY_MS
