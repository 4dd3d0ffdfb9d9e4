"""Votes: one person's yes to a prompt that several have to say yes to.

What lives here: writing and deleting votes, and reading prompts together with theirs. What does not: who may vote, and what
comes of it (`stores/judging.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from durable_core.model import PromptAnswer
from durable_core.stores import rows
from durable_core.stores.sqlite.tx import Tx

# Only of a prompt that needs more than one person there is something to look up.
PROMPT: Final = f"""{rows.PROMPT},
    CASE WHEN p.quorum > 1 THEN (
        SELECT json_group_array(json_array(v.principal, v.name, v.option_id, v.via, v.at)) FROM moor_vote v
        WHERE v.run_id = p.run_id AND v.prompt_id = p.prompt_id
    ) END
"""
"""What `rows.prompt` reads, of the table `p`."""
_PUT: Final = "INSERT INTO moor_vote (run_id, prompt_id, principal, option_id, at, name, via) VALUES (?, ?, ?, ?, ?, ?, ?)"
_DROP: Final = "DELETE FROM moor_vote WHERE run_id = ? AND prompt_id = ? AND principal = ?"


def put(tx: Tx, run_id: str, answer: PromptAnswer, at: int) -> None:
    """Keep an answer as its giver's vote."""
    tx.run(_PUT, (run_id, answer.prompt_id, answer.principal, answer.option_id, at, answer.name, answer.via))


def drop(tx: Tx, run_id: str, prompt_id: str, principals: Sequence[str]) -> None:
    """Delete votes that don't count any more."""
    for principal in principals:
        tx.run(_DROP, (run_id, prompt_id, principal))
