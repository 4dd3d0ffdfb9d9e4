"""Who speaks, asks or clicks.

What lives here: the identity that access, approvals and tools see. What does not: what a platform knows about a person
(channels/events.py) and what they may do (access.py, approvals.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from channels.events import Standing


@dataclass(frozen=True, slots=True)
class Principal:
    """One person or service, as one channel knows it.

    ``id`` is unique over all channels (``console:alice``); an empty id is nobody in particular. ``name`` is what the
    platform displays: chosen by its bearer, so data, never proof.
    """

    id: str
    name: str
    standing: Standing
    roles: frozenset[str] = frozenset()
    channel: str = ""

    @property
    def anonymous(self) -> bool:
        """Tell whether nothing is known of who this is."""
        return not self.id
