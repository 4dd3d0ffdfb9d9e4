"""Lifeline: what dies with this process, and the bell by which processes on one SQLite file wake each other.

What lives here: the lock file and the datagram socket of an incarnation. What does not: leases and claims, which are rows.

Beside the database stands a folder `<database>.live/`, in it for each incarnation a lock file (an OS lock that the
kernel drops the moment the process dies) and a socket. A lock file gets its name only after it is locked, so one that
can be locked belongs to the dead. A ring is a hint: it may get lost, and the reader polls anyway (CORE 20).

`flock` belongs to the open file, which fork shares: a child would keep the parent's lock alive. The descriptor is
O_CLOEXEC, so anything started by `subprocess` lets go of it on exec; a bare `os.fork` (multiprocessing) closes its copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import socket
import stat
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from durable_core.errors import Broken
from durable_core.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    OnRing = Callable[[list[str] | None], None]

_MAGIC: Final = b"moor1"
_MAX_DATAGRAM: Final = 1024
_MAX_SOCKET_PATH: Final = 100  # sun_path holds 108 bytes on Linux, 104 on macOS and BSD
# Linux queues net.unix.max_dgram_qlen datagrams, by default 10: after a burst some may have been refused.
_BURST: Final = 8
_MAX_DRAINED: Final = 1000
_FILE: Final = re.compile(r"(inc_[0-9a-z]{26})\.(lock|sock|new)")
_INCARNATION: Final = re.compile(r"inc_[0-9a-z]{26}")
_TRIES: Final = 10
_TICK_NS: Final = 3_000_000_000
"""More than any file system's clock takes from one time to the next."""


class Lifeline(ABC):
    """Show that this incarnation of a worker lives, ask whether others do, and wake them."""

    incarnation: str
    """The id of this opening, `inc_…`; never used again."""

    @staticmethod
    def open(database_path: str | os.PathLike[str]) -> Lifeline:
        """Take a lifeline on the SQLite file at `database_path`; `:memory:` gets one that is alone.

        Raises:
            Broken: the folder is not ours, or can't be made or locked.
        """
        path = os.fspath(database_path)
        if path in {"", ":memory:"}:
            return _Alone()
        try:
            return _OnDisk(os.path.realpath(path))
        except OSError as error:
            raise Broken(f"can't take a lifeline beside {path}: {error}") from error

    @abstractmethod
    def is_alive(self, incarnation: str) -> bool:
        """Return whether that incarnation's process lives; in doubt (a file that can't be read), it does."""

    @abstractmethod
    def ring(self, run_ids: Collection[str]) -> None:
        """Tell all other incarnations that these runs have something to do; never waits, never raises."""

    @abstractmethod
    def on_ring(self, callback: OnRing) -> None:
        """Call back on the running asyncio loop at each ring, with the run ids, or None for "look at all".

        The last callback given counts. What came in before is delivered at once.
        """

    @abstractmethod
    def sweep(self) -> tuple[str, ...]:
        """Remove the files of the dead and return their incarnations; any process may, at any time."""

    @abstractmethod
    def close(self) -> None:
        """Let go: from here on this incarnation is dead. Call it on the loop that `on_ring` ran on; twice is once."""


class _Alone(Lifeline):
    """The lifeline of a database that no other process can see."""

    def __init__(self) -> None:
        self.incarnation = new_id("inc")
        self._closed = False

    def is_alive(self, incarnation: str) -> bool:
        return incarnation == self.incarnation and not self._closed

    def ring(self, run_ids: Collection[str]) -> None:
        """Ring nobody."""

    def on_ring(self, callback: OnRing) -> None:
        """Never call back."""

    def sweep(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        self._closed = True


class _OnDisk(Lifeline):
    """A lock file and a socket beside the database."""

    def __init__(self, database: str) -> None:
        self._folder = Path(f"{database}.live")
        _own_folder(self._folder, strict=False)
        self._bells = _bell_folder(self._folder)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callback: OnRing | None = None
        self._closed = False
        self._heard: tuple[int, list[Path]] = (0, [])
        for _ in range(_TRIES):
            # a sweep that looks between the making of the file and its lock takes it for a dead one's: take another
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                self._take(new_id("inc"))
                break
        else:
            raise Broken(f"can't take a lifeline in {self._folder}: {_TRIES} lock files were swept away")
        os.register_at_fork(after_in_child=_Forget(self))

    def _take(self, incarnation: str) -> None:
        new, lock, bell = self._folder / f"{incarnation}.new", self._lock_file(incarnation), self._bells / f"{incarnation}.sock"
        with contextlib.ExitStack() as undo:
            descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, descriptor)
            undo.callback(new.unlink, missing_ok=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            bell_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # PEP 446: O_CLOEXEC
            undo.callback(bell_socket.close)
            bell_socket.setblocking(False)  # noqa: FBT003 - the socket module's own signature
            bell_socket.bind(os.fspath(bell))
            undo.callback(bell.unlink, missing_ok=True)
            new.rename(lock)
            undo.pop_all()
        self.incarnation, self._descriptor, self._socket, self._bell = incarnation, descriptor, bell_socket, bell

    def is_alive(self, incarnation: str) -> bool:
        if incarnation == self.incarnation:
            return not self._closed
        return _INCARNATION.fullmatch(incarnation) is not None and _is_locked(self._lock_file(incarnation))

    def ring(self, run_ids: Collection[str]) -> None:
        if self._closed or not run_ids:
            return
        others = self._others()
        if others:
            datagram = _datagram(run_ids)
            for bell in others:
                # full (its owner has enough to wake up for), dead or gone: all no matter
                with contextlib.suppress(OSError):
                    self._socket.sendto(datagram, socket.MSG_DONTWAIT, os.fspath(bell))

    def _others(self) -> list[Path]:
        """Return the bells of all others; the folder is listed anew only when something in it has changed."""
        try:
            changed = os.stat(self._bells).st_mtime_ns  # noqa: PTH116 - on every commit
        except OSError:
            return []
        known, others = self._heard
        if changed != known:
            others = [bell for incarnation, bell in _files(self._bells, "sock") if incarnation != self.incarnation]
            # one that came within the same tick of the file system's clock would be missed
            self._heard = (changed if time.time_ns() > changed + _TICK_NS else 0, others)
        return others

    def on_ring(self, callback: OnRing) -> None:
        loop = asyncio.get_running_loop()
        if self._closed:
            return
        if self._loop is not None and self._loop is not loop and not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._callback, self._loop = callback, loop
        loop.add_reader(self._socket.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        run_ids: dict[str, None] = {}
        everything = False
        received = 0
        with contextlib.suppress(OSError):  # BlockingIOError: no more
            while received < _MAX_DRAINED:
                named = _named(self._socket.recv(_MAX_DATAGRAM + 1))
                received += 1
                everything = everything or named == []
                run_ids.update(dict.fromkeys(named or ()))
        if self._callback is not None and (run_ids or everything):
            self._callback(None if everything or received >= _BURST else list(run_ids))

    def sweep(self) -> tuple[str, ...]:
        dead: set[str] = set()
        if self._closed:
            return ()
        for folder in {self._folder, self._bells}:
            for incarnation, path in _files(folder, "lock", "sock", "new"):
                if incarnation != self.incarnation and not self._is_there(incarnation):
                    if path.suffix != ".new":  # that one may be about to start, and has never done anything
                        dead.add(incarnation)
                    with contextlib.suppress(OSError):
                        path.unlink()
        return tuple(sorted(dead))

    def _is_there(self, incarnation: str) -> bool:
        """Return whether it lives or is just starting; looked at in the order in which the name changes."""
        return _is_locked(self._folder / f"{incarnation}.new") or _is_locked(self._lock_file(incarnation))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for path in (self._bell, self._lock_file(self.incarnation)):
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(self._descriptor)  # last, so that no file of ours stands there unlocked

    def forget(self) -> None:
        """Close a forked child's copies, and leave the files to the parent."""
        if not self._closed:
            self._closed = True
            self._socket.close()
            os.close(self._descriptor)

    def _lock_file(self, incarnation: str) -> Path:
        return self._folder / f"{incarnation}.lock"


class _Forget:
    """Call `forget` in a forked child; it can't be unregistered, so it must not keep the lifeline from being freed."""

    __slots__ = ("_lifeline",)

    def __init__(self, lifeline: _OnDisk) -> None:
        self._lifeline = weakref.ref(lifeline)

    def __call__(self) -> None:
        lifeline = self._lifeline()
        if lifeline is not None:
            lifeline.forget()


def _is_locked(path: Path) -> bool:
    """Try the lock, shared, so that two who look at once don't take each other for the owner."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _files(folder: Path, *endings: str) -> Iterator[tuple[str, Path]]:
    """Yield (incarnation, path) of the files that are ours by name; nothing if the folder is gone."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - twice as fast as iterdir, on every commit
    except OSError:
        return
    for name in names:
        match = _FILE.fullmatch(name)
        if match is not None and match[2] in endings:
            yield match[1], folder / name


def _datagram(run_ids: Collection[str]) -> bytes:
    """Write run ids, or none of them ("look at all") where they don't fit or can't be written."""
    with contextlib.suppress(TypeError):  # orjson's error, say for a lone surrogate
        datagram = _MAGIC + orjson.dumps(list(run_ids))
        if len(datagram) <= _MAX_DATAGRAM:
            return datagram
    return _MAGIC + b"[]"


def _named(datagram: bytes) -> list[str] | None:
    """Read a datagram; None if it is not one of ours."""
    if not datagram.startswith(_MAGIC) or len(datagram) > _MAX_DATAGRAM:
        return None
    try:
        named = orjson.loads(datagram[len(_MAGIC) :])
    except orjson.JSONDecodeError:
        return None
    return named if type(named) is list and all(type(run_id) is str for run_id in named) else None


def _bell_folder(folder: Path) -> Path:
    """Return where the sockets go: beside the locks, or under the temp folder if that path is too long for a socket."""
    if _fits(folder):
        return folder
    name = f"moorings-{os.geteuid()}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"
    short = Path(tempfile.gettempdir()) / name
    if not _fits(short):
        short = Path("/tmp") / name  # noqa: S108 - the folder's owner and mode are checked
    _own_folder(short, strict=True)
    return short


def _fits(folder: Path) -> bool:
    """Return whether a socket in this folder has a path that can be bound."""
    return len(os.fsencode(folder)) + len("/inc_") + 26 + len(".sock") <= _MAX_SOCKET_PATH


def _own_folder(path: Path, *, strict: bool) -> None:
    """Make a folder that only we can enter, or check one that is there: no link, our own, and if strict, closed to others.

    Beside the database the mode is not insisted on: some file systems (Windows drives in WSL) show all as open.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise Broken(f"{path} is not a folder")
    if found.st_uid != os.geteuid():
        raise Broken(f"{path} belongs to user {found.st_uid}; run as that user, or remove it")
    if stat.S_IMODE(found.st_mode) & 0o077:
        if strict:
            raise Broken(f"{path} can be entered by others; remove it")
        with contextlib.suppress(OSError):
            path.chmod(0o700)
