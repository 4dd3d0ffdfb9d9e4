"""Sealing of stored values: one random key a run, wrapped by the key ring, and the place each value is bound to.

What lives here: session keys, their cache, and the names of places. What does not: the ciphers (`durable_core/crypto.py`), SQL.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from durable_core.crypto import KeyRing, SessionKey, new_session_key
from durable_core.errors import DurableError, KeysNotGiven
from durable_core.keys import Keys, resolve

log = logging.getLogger("moorings.store")

CACHED_KEYS: Final = 1_000


class Place(NamedTuple):
    """Where a sealed value stands: it opens nowhere else."""

    table: str
    rest: str
    """The row's primary key after the run's id."""
    column: str

    def row(self, run_id: str) -> str:
        """Name the row."""
        return f"{run_id}/{self.rest}"


class Sealing:
    """Session keys by run; safe to use from several threads."""

    def __init__(self, keys: Keys, *, size: int = CACHED_KEYS) -> None:
        self._keys = keys
        self._known = keys if isinstance(keys, KeyRing) else None
        self._size = size
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, SessionKey] = OrderedDict()
        self._named: set[str] = set()

    async def load(self) -> None:
        """Ask a provider for its keys; to be awaited before the store opens. Raises `KeysNotGiven`."""
        if self._known is None:
            self._known = await resolve(self._keys)

    @property
    def _ring(self) -> KeyRing:
        if self._known is None:
            raise KeysNotGiven("they were not asked for yet")
        return self._known

    def new_key(self, run_id: str) -> tuple[SessionKey, bytes]:
        """Make a key and its wrapped form; it isn't cached, since its run may yet be rolled back."""
        raw = new_session_key()
        return SessionKey(raw), self._ring.wrap(raw, _aad(run_id))

    def digest(self, digest: bytes) -> bytes:
        """Return the keyed form in which a payload's hash is kept: without the key it tells nothing about the payload."""
        return self._ring.digest(digest)

    def is_digest(self, kept: bytes, digest: bytes) -> bool:
        """Tell whether a kept form is of this hash, under any key of the ring: a rotation makes no repeat a conflict."""
        return self._ring.is_digest(kept, digest)

    @property
    def current_id(self) -> str:
        """The id of the ring's key that wraps."""
        return self._ring.current_id

    def rewrapped(self, run_id: str, wrapped: bytes) -> bytes:
        """Return a run's key wrapped by the ring's current key.

        Raises:
            KeyMissing, CannotOpen: as `unwrap`.
        """
        return self._ring.wrap(self._ring.unwrap(wrapped, _aad(run_id)), _aad(run_id))

    def wrap(self, value: bytes, aad: bytes) -> bytes:
        """Return a value sealed by the ring's current key itself, bound to `aad`."""
        return self._ring.wrap(value, aad)

    def unwrap_value(self, sealed: bytes, aad: bytes) -> bytes:
        """Return what `wrap` was given.

        Raises:
            KeyMissing, CannotOpen: the ring doesn't hold its key, or it is bound to something else.
        """
        return self._ring.unwrap(sealed, aad)

    def drop(self, run_ids: set[str]) -> None:
        """Forget the keys of runs."""
        with self._lock:
            for run_id in run_ids:
                self._cache.pop(run_id, None)

    def drop_all(self) -> None:
        """Forget the keys of all runs: after a failover a run may have been made anew under its id, with another key."""
        with self._lock:
            self._cache.clear()

    def cached(self, run_id: str) -> SessionKey | None:
        """Return a key that was kept."""
        with self._lock:
            key = self._cache.get(run_id)
            if key is not None:
                self._cache.move_to_end(run_id)
            return key

    def keep(self, keys: dict[str, SessionKey]) -> None:
        """Keep keys of committed runs, dropping those least recently used."""
        with self._lock:
            self._cache.update(keys)
            while len(self._cache) > self._size:
                self._cache.popitem(last=False)

    def unwrap(self, run_id: str, wrapped: bytes) -> SessionKey:
        """Open a stored key and keep it.

        Raises:
            KeyMissing, CannotOpen: the ring doesn't hold the wrapping key, or the value isn't this run's.
        """
        key = SessionKey(self._ring.unwrap(wrapped, _aad(run_id)))
        self.keep({run_id: key})
        return key

    def tell_unopened(self, name: str, error: DurableError) -> None:
        """Log once of a process that an entry of the vault doesn't open, though it is looked at again and again."""
        if name not in self._named:
            self._named.add(name)
            log.error("%s can't be opened, and is left alone: %s", name, error)


def tell_closed(closed: Mapping[str, DurableError]) -> None:
    """Log of keys that can't be wrapped anew, by run, with the reason: once a key of the ring, however many they are."""
    by_key: dict[object, list[str]] = {}
    for run_id, error in closed.items():
        by_key.setdefault(getattr(error, "key_id", None), []).append(run_id)
    for first, *more in by_key.values():
        others = f" and those of {len(more)} more" if more else ""
        log.error("the key of %s%s can't be wrapped anew: %s", first, others, closed[first])


def _aad(run_id: str) -> bytes:
    return f"moor_run/{run_id}/session_key".encode()


# ── places ──


def run_header() -> Place:
    """Return the place of a run's settings."""
    return Place("moor_run", "", "header")


def admission_detail(submission_id: str) -> Place:
    """Return the place of an outcome's detail; the submission names its admission as well as (source, key) does."""
    return Place("moor_admission", submission_id, "detail")


def command_body(seq: int) -> Place:
    """Return the place of an inbox entry's content."""
    return Place("moor_command", str(seq), "body")


def step_input(n: int) -> Place:
    """Return the place of a step's input."""
    return Place("moor_step", str(n), "input")


def step_output(n: int) -> Place:
    """Return the place of a step's output."""
    return Place("moor_step", str(n), "output")


def record_body(step_n: int, key: str) -> Place:
    """Return the place of a record's content."""
    return Place("moor_record", f"{step_n}/{key}", "body")


def event_body(seq: int) -> Place:
    """Return the place of an event's own data."""
    return Place("moor_event", str(seq), "body")


def prompt_body(prompt_id: str) -> Place:
    """Return the place of a prompt's content."""
    return Place("moor_prompt", prompt_id, "body")


def prompt_note(prompt_id: str) -> Place:
    """Return the place of the words that came with an answer."""
    return Place("moor_prompt", prompt_id, "note")


def interaction_body(interaction_id: str) -> Place:
    """Return the place of who answered from where."""
    return Place("moor_interaction", interaction_id, "body")


def interaction_note(interaction_id: str) -> Place:
    """Return the place of an undecided answer's words."""
    return Place("moor_interaction", interaction_id, "note")


def outbox_body(delivery_id: str) -> Place:
    """Return the place of an owed message's content."""
    return Place("moor_outbox", delivery_id, "body")
