"""Stored values of a workflow by kind, read as this code writes them.

What lives here: the kinds and their upcasters. What does not: the window of formats (durable_core/versions.py), the shape of each
value (who writes it).
"""

from __future__ import annotations

from enum import StrEnum
from typing import cast

from durable_core import codec
from durable_core.versions import Stored, Upcasters


class Kind(StrEnum):
    """What a stored value is; the names are those of streams."""

    HEADER = "header"
    COMMAND = "command"
    STEP = "step"
    STEP_INPUT = "step.input"
    NOTE = "note"


UPCASTERS = Upcasters()
"""From each format to the next, for the kinds that changed. What authors store is in a value as it is, and never changed."""


def read(kind: Kind, body: bytes, *, run_id: str) -> Stored:
    """Read a value to act on it.

    Raises:
        Stranded: a newer version wrote it; code that reads it goes on with the run.
    """
    value = cast("Stored", codec.decode(body))
    return UPCASTERS.read(kind, value, written=codec.written_by(body), run_id=run_id)
