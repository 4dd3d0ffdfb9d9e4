"""Who may answer a prompt, and which call it is about, by the author's policies and the prompt's own.

What lives here: asking them. What does not: admitting answers (answers.py), the policies (approvals.py, deciding.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from bot import formats
from bot.answerers import POLICY_SECONDS, Groups, Resolver
from bot.cards import prompt_body
from bot.deciding import Deciding
from bot.edge import Threads, limited
from bot.errors import BadArguments
from bot.formats import Kind
from bot.history import Call
from bot.principal import Principal
from bot.session.edits import CHANGED_TOOL, Edited, NotEdited, edited, regated
from bot.session.ready import ReadyAgent
from bot.telling import NOT_ALLOWED, NOT_YOURS
from bot.tools import Tool
from bot.turn.state import state_from_json
from durable_core import codec
from durable_core.errors import TooLarge, Unstorable
from durable_core.model import AnswerPolicy, Prompt, PromptOutcome
from durable_core.store import Store

log = logging.getLogger("moorings.answers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """Asks policies, within their limits; `run_name` is the agent or workflow whose run asked."""

    store: Store
    agents: Mapping[str, ReadyAgent]
    threads: Threads = field(default_factory=Threads)
    seconds: float = POLICY_SECONDS
    groups: Mapping[str, Resolver] = field(default_factory=dict)

    async def may_answer(self, prompt: Prompt, principal: Principal) -> bool:
        """Tell whether somebody might answer an open prompt, as far as can be said before they do; every doubt says no."""
        if principal.anonymous:
            return False
        match prompt.policy:
            case AnswerPolicy.REQUESTER:
                return principal.id == prompt.requester
            case AnswerPolicy.LISTED:
                return principal.id in prompt.answerers
        try:
            run = await self.store.run(prompt.run_id)
            refusal = self.refusal(prompt, run.name, principal)
            return (await limited(refusal, self.seconds)).value() is None
        except Exception:
            log.exception("whether %s may answer %s could not be decided", principal.id, prompt.prompt_id)
            return False

    async def refusal(
        self, prompt: Prompt, run_name: str, principal: Principal, *, outcome: PromptOutcome | None = None
    ) -> str | None:
        """Why the prompt's own policy refuses somebody, by its present level; None if it doesn't."""
        body = prompt_body(prompt)
        requester = Principal.from_json(body["requester"])
        match body.get("by"):
            case {"group": name}:  # asked by a workflow, as are lists
                return None if await self._groups.includes(str(name), principal) else NOT_ALLOWED
            case list() as names:
                return None if principal.id in names else NOT_ALLOWED
        tool = self._tool_of(run_name, body)
        # a prompt says itself whether the tool's approval decides: a call that ran without one is its requester's to run again
        by_approval = body.get("by_approval", prompt.kind == "approval")
        approval = tool.approval if tool is not None and by_approval else None
        if tool is None or approval is None:
            named = (requester.id,) if prompt.policy is not AnswerPolicy.LISTED or by_approval else prompt.answerers
            if principal.anonymous or principal.id not in named:
                return NOT_YOURS
            # others were asked, by a rule that is gone: nobody approves in their place
            return CHANGED_TOOL if by_approval and outcome is PromptOutcome.APPROVED else None
        asked = await self._asked(prompt, body)
        try:
            call = tool.call(asked.arguments, asked.call_id, requester=requester)
        except BadArguments:
            return CHANGED_TOOL
        may = await self._deciding(self.agents[run_name]).may_answer(approval, call, principal, level=prompt.level)
        return None if may else NOT_ALLOWED

    @property
    def _groups(self) -> Groups:
        return Groups(resolvers=self.groups, threads=self.threads, seconds=self.seconds)

    async def editable(self, prompt: Prompt) -> Tool | None:
        """Return the tool whose call may be changed with a yes; None where nothing may."""
        body = prompt_body(prompt)
        return self._tool_of((await self.store.run(prompt.run_id)).name, body) if body.get("edit") else None

    def _tool_of(self, run_name: str, body: Mapping[str, Any]) -> Tool | None:
        agent, action = self.agents.get(run_name), body.get("action")
        return agent.tools.get(action["tool"]) if agent is not None and action else None

    def _deciding(self, agent: ReadyAgent) -> Deciding:
        return Deciding(threads=self.threads, seconds=self.seconds, groups=self._groups, model=agent.model)

    async def edit_refusal(self, prompt: Prompt, run_name: str, principal: Principal, told: Mapping[str, Any]) -> str | None:
        """Why a call may not run as somebody changed it; ``told`` holds the changes and what they made of the call."""
        body = prompt_body(prompt)
        tool = self._tool_of(run_name, body)
        if tool is None:
            return CHANGED_TOOL
        requester = Principal.from_json(body["requester"])
        made = edited(tool, await self._asked(prompt, body), told["edits"], requester=requester)
        if isinstance(made, NotEdited):
            return made.reason
        if made.binding != told.get("binding"):
            return CHANGED_TOOL
        deciding = self._deciding(self.agents[run_name])
        return await regated(deciding, tool, made.call, requester=requester, responder=principal, level=prompt.level)

    async def edited(self, prompt: Prompt, edits: Mapping[str, JsonValue]) -> Edited | NotEdited:
        """Change the call that a prompt is about."""
        body = prompt_body(prompt)
        tool = await self.editable(prompt)
        if tool is None:
            return NotEdited(f"{', '.join(sorted(edits))} may not be changed here.")
        if not storable(edits):
            return NotEdited("What was changed can't be kept: it is too large, or no JSON.")
        return edited(tool, await self._asked(prompt, body), edits, requester=Principal.from_json(body["requester"]))

    async def _asked(self, prompt: Prompt, body: Mapping[str, Any]) -> Call:
        """Return the call that a prompt is about, with its real arguments: those in the body may be masked."""
        action = body["action"]
        shown = Call(action["call_id"], action["tool"], arguments=action["input"])
        if not body.get("masked"):
            return shown
        for step in await self.store.steps(prompt.run_id, start=prompt.step_n):
            turn = state_from_json(formats.read(Kind.STEP, step.output, run_id=prompt.run_id)["state"]).turn
            found = [one.call for one in (turn.pending if turn is not None else ()) if one.prompt_id == prompt.prompt_id]
            if found:
                return found[0]
        return shown


def storable(edits: Mapping[str, JsonValue]) -> bool:
    """Whether changes can be kept: what comes from outside may be anything."""
    try:
        codec.encode(dict(edits))
    except (TooLarge, Unstorable, ValueError, TypeError, RecursionError):
        return False
    return True
