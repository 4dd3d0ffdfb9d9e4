"""Names of bodies, and the column each one stands in.

What lives here: from a name such as `command:5` to table, column, row and place; the same for every database. What does not:
statements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from durable_core.stores import sealing
from durable_core.stores.sealing import Place

HEADER: Final = "header"


@dataclass(frozen=True, slots=True)
class Cell:
    """One sealed value of a run."""

    table: str
    column: str
    keys: tuple[tuple[str, int | str], ...]
    """The rest of the row's primary key, after the run's id."""
    place: Place

    @property
    def where(self) -> str:
        """The condition that finds the row, with the named parameters of `parameters`."""
        return " AND ".join(("run_id = :run_id", *(f"{column} = :{column}" for column, _ in self.keys)))

    def parameters(self, run_id: str) -> dict[str, int | str]:
        """Return the parameters of `where`."""
        return {"run_id": run_id, **dict(self.keys)}


def named(name: str) -> Cell | None:
    """Return the cell of a name; None where it is no name.

    `header` · `command:SEQ` · `step:N` (its output) · `record:N:KEY` · `event:SEQ` · `prompt:ID` · `note:PROMPT_ID` (the words
    that came with its answer) · `answer:INTERACTION_ID` (the words of an answer that a function decides).
    """
    table, _, rest = name.partition(":")
    if name == HEADER:
        return Cell("moor_run", "header", (), sealing.run_header())
    if not rest:
        return None
    match table:
        case "prompt":
            return Cell("moor_prompt", "body", (("prompt_id", rest),), sealing.prompt_body(rest))
        case "note":
            return Cell("moor_prompt", "note", (("prompt_id", rest),), sealing.prompt_note(rest))
        case "answer":
            return Cell("moor_interaction", "note", (("interaction_id", rest),), sealing.interaction_note(rest))
        case _:
            return _numbered(table, rest)


def _numbered(table: str, rest: str) -> Cell | None:
    number, _, key = rest.partition(":")
    if not (number.isascii() and number.isdigit()):
        return None
    n = int(number)
    match table, key:
        case "command", "":
            return Cell("moor_command", "body", (("seq", n),), sealing.command_body(n))
        case "step", "":
            return Cell("moor_step", "output", (("n", n),), sealing.step_output(n))
        case "event", "":
            return Cell("moor_event", "body", (("seq", n),), sealing.event_body(n))
        case "record", key if key:
            return Cell("moor_record", "body", (("step_n", n), ("key", key)), sealing.record_body(n, key))
        case _:
            return None
