"""Approvals that wait for calls whose tool has changed: a yes to one of them won't count any more.

What lives here: finding them at start, and saying so. What does not: refusing such a call when it would run (session/edits.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from bot.cards import prompt_body
from bot.session.ready import ReadyAgent
from durable_core.errors import DurableError
from durable_core.model import Prompt

if TYPE_CHECKING:
    from durable_core.store import Store

log = logging.getLogger("moorings.approvals")

MOST: Final = 500
"""How many open approvals are looked at, the newest first: a start costs no more however many wait."""
OPEN: Final = """
    SELECT p.prompt_id, r.name FROM (
        SELECT prompt_id, run_id FROM moor_prompt
        WHERE outcome IS NULL AND kind = 'approval' ORDER BY created_at DESC LIMIT :most
    ) p JOIN moor_run r ON r.run_id = p.run_id
"""


async def outdated(store: Store, agents: Mapping[str, ReadyAgent]) -> list[str]:
    """Name the open approvals whose tool is gone or has another schema now; those of agents that aren't here are left out."""
    found = []
    for prompt_id, name in await store.rows(OPEN, {"most": MOST}):
        agent = agents.get(str(name))
        if agent is None:
            continue
        try:
            prompt = await store.prompt(str(prompt_id))
        except DurableError:
            continue
        if prompt.outcome is None and not _fits(prompt, agent):
            found.append(prompt.prompt_id)
    return found


async def warn_of_outdated(store: Store, agents: Mapping[str, ReadyAgent]) -> None:
    """Say in the log which approvals won't count any more."""
    try:
        found = await outdated(store, agents)
    except DurableError as error:
        log.warning("which approvals wait for tools that have changed could not be looked up: %s", error)
        return
    if found:
        shown = ", ".join(found[:10]) + (", …" if len(found) > 10 else "")
        log.warning(
            "%s for a call whose tool has changed since; a yes runs nothing, and the model is told so: %s",
            "1 approval waits" if len(found) == 1 else f"{len(found)} approvals wait",
            shown,
        )


def _fits(prompt: Prompt, agent: ReadyAgent) -> bool:
    body = prompt_body(prompt)
    action: Mapping[str, Any] = body.get("action") or {}
    tool, bound = agent.tools.get(str(action.get("tool"))), body.get("binding")
    if tool is None:
        return False
    return not bound or tool.binding(action["input"]) == bound
