"""Votes that stand: those of people who may answer when the next yes comes in, not only when they gave theirs.

What lives here: which answers join others, and who gave those before. What does not: who may (rights.py), counting
(durable_core).
"""

from __future__ import annotations

from typing import Final

from bot import formats
from bot.formats import Kind
from bot.principal import Principal
from bot.settling import giver
from channels.events import Place
from durable_core.model import AnswerStatus, Interaction, Prompt, PromptOutcome
from durable_core.store import Store

Giver = tuple[Principal, Place, tuple[str, str] | None, tuple[str, ...]]
_COUNTED: Final = """
    SELECT interaction_id, principal FROM moor_interaction
    WHERE run_id = :run_id AND prompt_id = :prompt_id AND status = :counted ORDER BY at, interaction_id
"""


def joins(interaction: Interaction) -> bool:
    """Whether an answer joins those of others. Each looks at all before it: two that come at once know nothing of one another."""
    prompt, answer = interaction.prompt, interaction.answer
    yes = answer.outcome is not PromptOutcome.DENIED and not answer.override and not answer.aside
    return yes and prompt.quorum > 1 and bool(prompt.votes)


async def givers(store: Store, prompt: Prompt) -> dict[str, Giver]:
    """Return who gave the votes of a prompt, and where they did so last.

    Those that needed no worker are left out, a list decides about them.
    """
    voters = {vote.principal for vote in prompt.votes}
    given = {"run_id": prompt.run_id, "prompt_id": prompt.prompt_id, "counted": AnswerStatus.COUNTED.value}
    names = {
        str(principal): f"giver:{interaction_id!s}"
        for interaction_id, principal in await store.rows(_COUNTED, {**given})
        if principal in voters
    }
    bodies = await store.content(prompt.run_id, list(names.values()))
    return {
        voter: giver(formats.read(Kind.ANSWER, bodies[name], run_id=prompt.run_id))
        for voter, name in names.items()
        if name in bodies
    }
