"""The vault: sealed entries that belong to no run, such as what somebody allowed an app to do in their name.

What lives here: an entry, a write, what a list shows. What does not: what is in an entry (the layers above), sealing it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultEntry:
    """An entry as it stands, opened. Times are milliseconds since 1970.

    The value is sealed and bound to name, kind, owner and version. What lists show, the times and the lease are not: they keep
    order among honest processes, and a limit that has to hold against whoever can write the database belongs into the value.
    """

    name: str
    kind: str
    owner: str
    """Whose it is, by the id of a person; whoever is forgotten loses all that is theirs."""
    version: int
    """Grows with each write. No version of a name comes back, not even when the entry is deleted and made again."""
    value: bytes = field(repr=False)
    about: bytes
    """What lists may show, as the codec writes it; it is not sealed."""
    due_at: int | None
    """When somebody has to look at it."""
    expires_at: int | None
    """From then on it is as if there were none; a purge deletes it."""
    created_at: int
    changed_at: int
    holder: str | None
    """Who has the lease; None where nobody has, or whose it was is over."""
    held_until: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultWrite:
    """One entry written whole, or deleted."""

    name: str
    kind: str = ""
    owner: str = ""
    value: bytes | None = field(repr=False)
    """None deletes the entry."""
    about: bytes = b""
    expect: int | None = None
    """0: there must be none; a version: it must stand at exactly that one; None: whatever is there."""
    due_at: int | None = None
    expires_at: int | None = None
    holder: str | None = None
    """Given, its lease must stand. Every write ends the lease, whoever has it: a holder who was overtaken writes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultListing:
    """What there is to say of an entry without opening it."""

    name: str
    kind: str
    owner: str
    version: int
    about: bytes
    due_at: int | None
    expires_at: int | None
    created_at: int
    changed_at: int
