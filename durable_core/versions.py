"""The formats of stored values: which one this code writes, which it reads, and how older ones are brought up.

What lives here: the window, upcasters, fingerprints. What does not: bytes (codec.py, which stamps them), each kind's own
upcasters (the layer that writes the kind), and what happens to runs that can't be read (stranding.py).

A new format is one more than the last. Whoever makes one raises `CURRENT_SPEC`, registers an upcaster from the last format for
each kind that changed, and stores samples of the new one beside those of all before (tests/durable_core/samples). Readers use
`versions.CURRENT_SPEC` through this module, never a copy of the number. A format is new where older code would misread a value,
not only where it could not read it:

1. The first; its values have no stamp.
2. Requests for several people or for those on a list, on shared cards, with changes before the yes; turns that wait for a
   time, an answer, a limit or a workflow; workflow runs that say where they come from. Values of format 1 are read as they
   are: what came is missing in them, and has a default.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from durable_core.errors import Stranded

FIRST_SPEC: Final = 1
"""The format of values without a stamp."""
MIN_READABLE_SPEC = 1
"""The oldest format this code reads."""
CURRENT_SPEC = 2
"""The format this code writes; `run.spec_version` says which one wrote a run last."""

Stored: TypeAlias = dict[str, Any]
Upcast: TypeAlias = Callable[[Stored], Stored]
"""Makes of a value of one format the same value in the next; pure."""


class Upcasters:
    """By kind and format, how a stored value becomes one of the next format. A kind that did not change has none."""

    def __init__(self, steps: Mapping[tuple[str, int], Upcast] | None = None) -> None:
        self._steps = dict(steps or {})

    def read(self, kind: str, value: Stored, *, written: int, run_id: str) -> Stored:
        """Return a value as this code writes it.

        Raises:
            Stranded: it was written in a format outside of the window.
        """
        if not MIN_READABLE_SPEC <= written <= CURRENT_SPEC:
            raise Stranded(run_id, written)
        for spec in range(written, CURRENT_SPEC):
            upcast = self._steps.get((kind, spec))
            if upcast is not None:
                value = upcast(value)
        return value

    def show(self, kind: str, value: Stored, *, written: int) -> Stored:
        """As `read`, for who only looks: what can't be brought up is shown as it stands."""
        return self.read(kind, value, written=written, run_id="") if MIN_READABLE_SPEC <= written <= CURRENT_SPEC else value


def fingerprint(*parts: str) -> str:
    """Name code by what decides how it goes on with a run; equal parts give equal names, in every process."""
    digest = hashlib.sha256()
    for part in (f"{MIN_READABLE_SPEC}..{CURRENT_SPEC}", *parts):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:16]
