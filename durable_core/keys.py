"""Where the keys that wrap sessions' keys and seal the vault come from, and which of them are still needed.

What lives here: the port for a key service, wrapping anew batch by batch. What does not: ciphers (crypto.py), SQL.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from durable_core.crypto import KEY_BYTES, KeyRing, wrapped_by
from durable_core.errors import KeysNotGiven
from durable_core.store import Store

LOAD_SECONDS: Final = 30.0
"""How long a provider may take; it is asked once, at start."""

_KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
IN_VAULT: Final = "vault/"
"""What `rewrap` goes on with after the runs: this, and the name of an entry. No run's id begins so."""

_PAGE: Final = 1_000
_WRAPPED: Final = (
    "SELECT run_id, session_key FROM moor_run WHERE purged_at IS NULL AND run_id > :after ORDER BY run_id LIMIT :limit"
)
_SEALED: Final = "SELECT name, sealed FROM moor_vault WHERE name > :after ORDER BY name LIMIT :limit"


class KeyProvider(Protocol):
    """Whatever holds keys outside of the environment: a KMS, a vault, an HSM."""

    async def load(self) -> Mapping[str, bytes]:
        """Return raw keys of 32 bytes by id, the current one first.

        Called once, before the store opens. Whatever it raises keeps the process from starting, and is told.
        """


Keys: TypeAlias = KeyRing | KeyProvider
"""What a store takes."""


async def resolve(keys: Keys) -> KeyRing:
    """Return the ring that a provider gives; a ring is one already.

    Raises:
        KeysNotGiven: the provider failed or took too long, or something it gave is no key. The reason names no key's bytes.
    """
    if isinstance(keys, KeyRing):
        return keys
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            given: dict[Any, Any] = dict(await keys.load())
    except TimeoutError:
        raise KeysNotGiven(f"it didn't answer within {LOAD_SECONDS:g} seconds") from None
    except Exception as error:
        raise KeysNotGiven(f"{type(error).__name__}: {error}") from error
    if not given:
        raise KeysNotGiven("there is none")
    for key_id, raw in given.items():
        if not isinstance(key_id, str) or _KEY_ID.fullmatch(key_id) is None:
            raise KeysNotGiven(f"{key_id!r} is no id of a key; use up to 64 letters, digits or . _ -")
        if not isinstance(raw, bytes) or len(raw) != KEY_BYTES:
            raise KeysNotGiven(f"the key {key_id!r} is not {KEY_BYTES} bytes")
    return KeyRing(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrapped:
    """What wrapping anew came to."""

    changed: int
    """How many sessions' keys are wrapped by another key now."""
    in_use: Mapping[str, int]
    """Keys by id, and how many sessions each still wraps."""
    entries: int = 0
    """How many entries of the vault are sealed by another key now."""
    entries_in_use: Mapping[str, int] = field(default_factory=dict)
    """Keys by id, and how many entries each still seals."""


async def rewrap_all(store: Store, *, batch: int = 100, on_batch: Callable[[int], object] = lambda _: None) -> Rewrapped:
    """Wrap all sessions' keys and the vault by the current key while others work; broken off, it is simply begun again.

    `on_batch` is told the sum so far after each batch. Each batch is a transaction of its own, between those of the others.
    """
    sessions = entries = 0
    after: str | None = ""
    while after is not None:
        in_vault = after.startswith(IN_VAULT)
        after, count = await store.rewrap(after=after, limit=batch)
        if in_vault:
            entries += count
        else:
            sessions += count
        on_batch(sessions + entries)
    return Rewrapped(
        changed=sessions,
        in_use=await _counted(store, _WRAPPED),
        entries=entries,
        entries_in_use=await _counted(store, _SEALED),
    )


async def keys_in_use(store: Store) -> dict[str, int]:
    """Count the sessions and entries of the vault that each key wraps, the most used key first. Reads the row of every one."""
    found = Counter(await _counted(store, _WRAPPED)) + Counter(await _counted(store, _SEALED))
    return dict(found.most_common())


async def _counted(store: Store, sql: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    after = ""
    while True:
        rows = await store.rows(sql, {"after": after, "limit": _PAGE})
        found.update(wrapped_by(wrapped) or "unreadable" for _, wrapped in rows if isinstance(wrapped, bytes) and wrapped)
        if len(rows) < _PAGE:
            return dict(found.most_common())
        after = str(rows[-1][0])
