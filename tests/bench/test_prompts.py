"""The benchmark of prompts still measures what it says, on a small scale.

What lives here: one small run. What does not: numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.prompts import Size, prompts

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_small_run_measures_everything(tmp_path: Path) -> None:
    rows = await prompts(tmp_path, size=Size(parked=20, clicks=2, answers=4), kinds=("SQLite",))
    assert [row.what for row in rows] == [
        "SQLite: click sent → approved tool started, nothing parked, p50 / p99",
        "SQLite: click sent → approved tool started, many parked, p50 / p99",
        "SQLite: messages admitted/s",
        "SQLite: answers/s with the audit",
        "SQLite: votes/s with the audit",
    ]
    assert rows[-1].note.endswith("; 40 audit entries, the chain is whole")
