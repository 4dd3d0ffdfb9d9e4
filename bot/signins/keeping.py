"""Attempts in the vault: found, begun, moved on by compare-and-set.

What lives here: reading and writing attempts, and when somebody has to look at one again. What does not: what moves them.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final

from bot.signins.attempt import KEPT_MS, Attempt, Stage
from durable_core import codec
from durable_core.model import VaultEntry, VaultWrite
from durable_core.store import Store

log = logging.getLogger("moorings.signins")

KIND: Final = "sign-in"
"""The kind of these entries in the vault."""
SOON_MS: Final = 5_000
"""How long what can be driven on is left to the process that is at it."""
EXCHANGE_MS: Final = 90_000
"""How long a code is being spent at most, all its requests together."""
_MANY: Final = 1_000
_ID: Final = re.compile(r"sgn_[0-9a-z]{26}")
"""Whatever else stands in an address is not asked for: not every database takes every character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An attempt as it was read, and when."""

    attempt: Attempt
    version: int
    at: int
    """The store's clock then, in epoch milliseconds."""

    @property
    def over(self) -> bool:
        """Tell whether the link, or the way through the provider, is good no more."""
        return self.at >= self.attempt.valid_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The attempts of a bot."""

    store: Store

    async def find(self, attempt_id: str) -> Kept | None:
        """Read an attempt; None where there is none, or none any more."""
        entry = await self.store.vault(_name(attempt_id)) if _ID.fullmatch(attempt_id) else None
        return await self._read(entry) if entry is not None and entry.kind == KIND else None

    async def add(self, attempt: Attempt, *, due_at: int | None = None) -> Kept:
        """Keep a new attempt."""
        at = await self.store.now()
        write = self._write(attempt, expect=0, at=at, due_at=due_at)
        versions = await self.store.vault_write([write])
        if versions is None:
            raise ValueError("an attempt's id was taken already")
        return Kept(attempt=attempt, version=versions[0], at=at)

    async def move(self, kept: Kept, attempt: Attempt, *, due_at: int | None = None) -> Kept | None:
        """Put an attempt in the place of the one that was read; None where somebody else has moved it since."""
        at = await self.store.now()
        versions = await self.store.vault_write([self._write(attempt, expect=kept.version, at=at, due_at=due_at)])
        return None if versions is None else Kept(attempt=attempt, version=versions[0], at=at)

    async def moving(self, kept: Kept, attempt: Attempt) -> VaultWrite:
        """Build the same as a write, for a transaction that holds more."""
        return self._write(attempt, expect=kept.version, at=await self.store.now(), due_at=None)

    async def due(self, limit: int) -> list[Kept]:
        """Read the attempts that somebody has to look at."""
        found = []
        for entry in await self.store.vault_due(KIND, limit=limit):
            try:
                found.append(await self._read(entry))
            except (ValueError, KeyError, TypeError) as error:  # of a newer version, which goes on with it
                log.info("%s can't be read here: %s", entry.name, type(error).__name__)
        return found

    async def faults(self, owner: str, prompt_id: str) -> frozenset[str]:
        """Say what went wrong with earlier attempts of a person for a prompt; nothing of them is opened."""
        found: set[str] = set()
        for listed in await self.store.vault_list(kind=KIND, owner=owner, limit=_MANY):
            about = codec.decode(listed.about)
            if isinstance(about, dict) and about.get("prompt_id") == prompt_id and about.get("fault"):
                found.add(str(about["fault"]))
        return frozenset(found)

    async def _read(self, entry: VaultEntry) -> Kept:
        stored = codec.decode(entry.value)
        if not isinstance(stored, dict):
            raise TypeError("an attempt is an object")
        return Kept(attempt=Attempt.from_json(stored), version=entry.version, at=await self.store.now())

    def _write(self, attempt: Attempt, *, expect: int, at: int, due_at: int | None) -> VaultWrite:
        return VaultWrite(
            name=_name(attempt.attempt_id),
            kind=KIND,
            owner=attempt.principal,
            value=codec.encode(attempt.to_json()),
            about=codec.encode({"prompt_id": attempt.prompt_id, "stage": attempt.stage.value, "fault": attempt.fault}),
            expect=expect,
            due_at=due_at if due_at is not None else _due(attempt, at),
            expires_at=max(at, attempt.valid_until) + KEPT_MS,
        )


def _due(attempt: Attempt, at: int) -> int | None:
    """When an attempt has to be looked at, if nobody has moved it on by then."""
    if attempt.stage is Stage.EXCHANGING:
        return at + EXCHANGE_MS
    if attempt.stage is Stage.RETURNED or (attempt.ended and not attempt.settled):
        return at + SOON_MS
    return None


def _name(attempt_id: str) -> str:
    return f"signin/{attempt_id}"
