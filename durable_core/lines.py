"""Lines: where in the author's code a body stands, and whether it was that code that raised.

What lives here: finding the innermost line that is the author's. What does not: what is said about it (`failures`).
"""

from __future__ import annotations

import dis
import functools
import signal
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

_LIBRARIES: Final = tuple(sysconfig.get_paths()[name] + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_CORE: Final = str(Path(__file__).parent) + "/"

_LOOP: Final = _CORE + "loop.py"


def running_line(frame: FrameType | None, home: str) -> str | None:
    """Return `file:line (function)` of the innermost frame of the author's, from a running frame outwards to the loop's."""
    while frame is not None and not (frame.f_code.co_name == "run" and frame.f_code.co_filename == _LOOP):
        if _is_authors(frame, home):
            return _line(frame)
        frame = frame.f_back
    return None


def blocked_line(frame: FrameType | None) -> str | None:
    """Return `file:line (function)` where a thread stands: the innermost line of no library, else the innermost of all."""
    innermost = frame
    while frame is not None:
        if _is_authors(frame, "<string>"):
            return _line(frame)
        frame = frame.f_back
    return None if innermost is None else _line(innermost)


def suspended_line(coro: Any, home: str) -> str | None:
    """Return `file:line (function)` where a suspended coroutine waits: the innermost line of the author's."""
    frames = list(_chain(coro))
    own = [frame for frame in frames if _is_authors(frame, home)]
    if own:
        return _line(own[-1])
    return _line(frames[0]) if frames else None


def stands_in(coros: Iterable[Any], frame: FrameType | None) -> bool:
    """Return whether a frame was called, however far away, from one of these coroutines or from what they await."""
    own = {found for coro in coros for found in _chain(coro)}
    while frame is not None and frame not in own:
        frame = frame.f_back
    return frame is not None


def is_interrupt(error: BaseException) -> bool:
    """Return whether a signal raised it (Ctrl-C, at whatever instruction a thread was), not a `raise` in the code that ran."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    traces = [trace] if (trace := error.__traceback__) is not None else []
    while traces and (trace := traces[-1].tb_next) is not None:
        traces.append(trace)
    handler = signal.getsignal(signal.SIGINT)
    while isinstance(handler, functools.partial):  # as asyncio's own is
        handler = handler.func
    if not traces or getattr(handler, "__code__", None) in {one.tb_frame.f_code for one in traces}:
        return True
    innermost = traces[-1]
    return dis.opname[innermost.tb_frame.f_code.co_code[innermost.tb_lasti]] != "RAISE_VARARGS"


def home_of(path: str) -> str:
    """Return the folder of a body's file; what lies in it is the author's, even where libraries are installed."""
    return str(Path(path).parent) + "/"


def _chain(coro: Any) -> Iterator[FrameType]:
    while coro is not None:
        for frame, awaits in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
            if hasattr(coro, frame):
                found = getattr(coro, frame)
                if found is not None:
                    yield found
                coro = getattr(coro, awaits, None)
                break
        else:
            return


def _is_authors(frame: FrameType, home: str) -> bool:
    path = frame.f_code.co_filename
    if path.startswith((home, "<string>", "<stdin>")):
        return True
    return not path.startswith((*_LIBRARIES, _CORE, "<frozen"))


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
