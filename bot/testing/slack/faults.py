"""What goes wrong on the way: rate limits, errors, dropped connections, slow answers.

What lives here: faults and which call meets which. What does not: the server that acts on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from bot.testing.slack.values import Json

Kind = Literal["rate_limited", "server_error", "dropped", "slow", "refused"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. `after_commit` means that the call has had its effect all the same."""

    kind: Kind
    _: KW_ONLY
    after_commit: bool = False
    seconds: float = 0.0
    error: str = ""


def rate_limited(retry_after: int = 1) -> Fault:
    """429 with `Retry-After`, in seconds."""
    return Fault("rate_limited", seconds=retry_after)


def server_error(*, after_commit: bool = False) -> Fault:
    """500."""
    return Fault("server_error", after_commit=after_commit)


def dropped(*, after_commit: bool = False) -> Fault:
    """The connection breaks without an answer."""
    return Fault("dropped", after_commit=after_commit)


def slow(seconds: float) -> Fault:
    """The call has its effect at once; the answer comes that much later."""
    return Fault("slow", after_commit=True, seconds=seconds)


def refused(error: str) -> Fault:
    """`"ok": false` with this error."""
    return Fault("refused", error=error)


@dataclass(slots=True)
class _Planned:
    method: str
    fault: Fault
    times: int
    when: Callable[[Json], bool]


@dataclass(slots=True)
class Faults:
    """What is planned to go wrong, in the order it was planned."""

    _planned: list[_Planned] = field(default_factory=list)

    def plan(self, method: str, fault: Fault, *, times: int, when: Callable[[Json], bool] | None) -> None:
        """Have the next `times` calls of a method meet a fault; "*" is every method."""
        self._planned.append(_Planned(method, fault, times, when or (lambda _args: True)))

    def meet(self, method: str, args: Json) -> Fault | None:
        """Return the fault that this call meets."""
        for planned in self._planned:
            if planned.times > 0 and planned.method in {method, "*"} and planned.when(args):
                planned.times -= 1
                return planned.fault
        return None

    def left(self) -> int:
        """Tell how many planned faults nothing has met yet."""
        return sum(planned.times for planned in self._planned)

    def clear(self) -> None:
        """Let everything work again."""
        self._planned.clear()
