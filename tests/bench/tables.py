"""Numbers of a benchmark as rows, and rows as Markdown.

What lives here: percentiles, formats. What does not: measuring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    value: str
    note: str = ""
    target: str = ""


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all values don't exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float:
    """Return the middle one."""
    return percentile(values, 0.5)


def spread(seconds: Sequence[float]) -> str:
    """Write p50 and p99 in milliseconds."""
    return f"{median(seconds) * 1000:.1f} / {percentile(seconds, 0.99) * 1000:.1f} ms"


def markdown(rows: Iterable[Row]) -> str:
    """Write a table; with a column of targets where some row has one."""
    found = list(rows)
    if any(row.target for row in found):
        lines = ["| what | measured | target | how |", "|---|---|---|---|"]
        lines += [f"| {row.what} | {row.value} | {row.target} | {row.note} |" for row in found]
    else:
        lines = ["| what | measured | how |", "|---|---|---|"]
        lines += [f"| {row.what} | {row.value} | {row.note} |" for row in found]
    return "\n".join(lines)
