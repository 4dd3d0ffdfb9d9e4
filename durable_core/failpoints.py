"""Failpoints: named places at which a test can make this process die or fail.

What lives here: the names and what arms them. What does not: the crash matrix, which is tests.

`MOORINGS_FAILPOINT=name` kills the process (SIGKILL) at the first hit of `name`, `name:3` at the third. With
`MOORINGS_FAILPOINT_ONCE_FILE=path` it dies only while that file does not exist, and makes it just before: the process
that is started again with the same environment lives. The environment is read once, on import.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

FAILPOINTS: Final = frozenset(
    {
        "admit.before_commit",
        "admit.after_commit",
        "claim.after",
        "open_turn.after_commit",
        "model.before_call",
        "model.after_reply",
        "record.after_commit",
        "tool.before_start",
        "tool.started",
        "tool.after_effect",
        "tool.after_record",
        "commit.before",
        "commit.after",
        "park.after_commit",
        "prompt.before_settle",
        "prompt.after_settle",
        "send.before",
        "send.after",
        "send.after_record",
        "connect.after_callback",
        "connect.before_exchange",
        "connect.after_exchange",
        "connect.after_store",
        "connect.before_settle",
    },
)
"""Every name there is; a boundary of durability has one on each side."""

NAME_VARIABLE: Final = "MOORINGS_FAILPOINT"
ONCE_FILE_VARIABLE: Final = "MOORINGS_FAILPOINT_ONCE_FILE"


class UnknownFailpoint(AssertionError):
    """A name that is not in `FAILPOINTS`, or can't be read: a mistake in code or test, never caught."""


class Armed:
    """One armed failpoint; disarm it, or use it as a context."""

    __slots__ = ("_action", "_hits", "_lock", "_on", "name")

    def __init__(self, name: str, action: Callable[[], None], on: int | None) -> None:
        self.name = name
        self._action = action
        self._on = on
        self._hits = 0
        self._lock = threading.Lock()

    @property
    def hits(self) -> int:
        """How often the place was passed since it was armed."""
        return self._hits

    def disarm(self) -> None:
        """Make the place harmless again, unless it was armed anew since."""
        if _ARMED.get(self.name) is self:
            del _ARMED[self.name]

    def fire(self) -> None:
        """Count a hit and act if it is the one."""
        with self._lock:
            self._hits += 1
            due = self._on is None or self._hits == self._on
        if due:
            self._action()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.disarm()


# The one piece of module state: a failpoint is a property of the process, as its death is.
_ARMED: Final[dict[str, Armed]] = {}


def hit(name: str) -> None:
    """Pass a place; nothing happens unless it is armed.

    Raises:
        UnknownFailpoint: no such name.
    """
    if name not in FAILPOINTS:
        raise UnknownFailpoint(f"{name!r} is not in FAILPOINTS")
    if _ARMED:
        armed = _ARMED.get(name)
        if armed is not None:
            armed.fire()


def arm(name: str, action: Callable[[], None], *, on: int | None = None) -> Armed:
    """Call `action` at each hit of `name`, or only at hit number `on`; what it raises rises from `hit`.

    Raises:
        UnknownFailpoint: no such name, or it is armed already.
    """
    if name not in FAILPOINTS:
        raise UnknownFailpoint(f"{name!r} is not in FAILPOINTS")
    if name in _ARMED:
        raise UnknownFailpoint(f"{name!r} is armed already")
    armed = Armed(name, action, on)
    _ARMED[name] = armed
    return armed


def arm_from(environ: Mapping[str, str]) -> Armed | None:
    """Arm what the environment asks for; done on import for this process.

    Raises:
        UnknownFailpoint: the value is not `name` or `name:n` with n of 1 or more.
    """
    asked = environ.get(NAME_VARIABLE)
    if not asked:
        return None
    name, colon, number = asked.partition(":")
    if colon and not (number.isascii() and number.isdigit() and int(number) >= 1):
        raise UnknownFailpoint(f"{NAME_VARIABLE}={asked!r} is not name or name:n")
    once_file = environ.get(ONCE_FILE_VARIABLE) or None
    return arm(name, lambda: _die(once_file), on=int(number) if colon else 1)


def _die(once_file: str | None) -> None:
    """Kill this process as a power cut would: no `finally`, no `atexit`."""
    if once_file is not None:
        try:
            os.close(os.open(once_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


arm_from(os.environ)
