"""The vault: entries written by compare-and-set, and the lease on one.

What lives here: statements. What does not: sealing, and what may be written (`stores/vaults.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from durable_core.model import VaultEntry, VaultListing, VaultWrite
from durable_core.stores.postgres.tx import Tx


async def entry(tx: Tx, name: str) -> VaultEntry | None:
    """Return an entry, opened."""
    raise NotImplementedError


async def write(tx: Tx, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
    """Write all, or nothing."""
    raise NotImplementedError


async def hold(tx: Tx, name: str, holder: str, *, ms: int) -> VaultEntry | None:
    """Take a lease."""
    raise NotImplementedError


async def release(tx: Tx, name: str, holder: str) -> None:
    """Give a lease back."""
    raise NotImplementedError


async def due(tx: Tx, kind: str, *, limit: int) -> list[VaultEntry]:
    """Return entries whose time has come."""
    raise NotImplementedError


async def listing(tx: Tx, *, kind: str | None, owner: str | None, after: str, limit: int) -> list[VaultListing]:
    """Return what there is to say of entries."""
    raise NotImplementedError
