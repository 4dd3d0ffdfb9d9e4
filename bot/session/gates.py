"""The gates before a tool's body: arguments, the author's policy, content that nobody vouches for.

What lives here: whether a call may run now, or what it waits for. What does not: prompts (bodies.py), running it (calls.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pydantic import JsonValue

from bot.access import AccessPolicy, members_only
from bot.approvals import Approval, Policy, ToolCall
from bot.deciding import Deciding, Ruled, Surroundings
from bot.errors import BadArguments
from bot.history import Call, Item, ResultItem, ResultStatus, Trust
from bot.masks import all_masked
from bot.policies import Auto, Once
from bot.session.bodies import approval_prompt, rerun_prompt, unreachable
from bot.session.edits import run_call, voided
from bot.session.evidence import evidence
from bot.session.private import seen_by
from bot.session.verdicts import Verdicts
from bot.tools import Tool
from bot.turn.actions import Resolve
from bot.turn.change import NewPrompt
from bot.turn.state import GRANT_MS, Grant, Pending, Purpose, State, Turn, with_grants
from durable_core import codec
from durable_core.errors import TooLarge
from durable_core.model import PromptOutcome


@dataclass(frozen=True, slots=True)
class Run:
    """The call may run now."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The call can't run; the model is told why."""

    result: ResultItem


@dataclass(frozen=True, slots=True)
class Ask:
    """The call waits for a person."""

    prompt: NewPrompt


Gate: TypeAlias = Run | Refused | Ask

_NO_JUDGE = Surroundings(tainted=True)
"""Ask a policy without paying for a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The gates of one agent's tools."""

    tools: Mapping[str, Tool]
    access: AccessPolicy = members_only
    deciding: Deciding = field(default_factory=Deciding)
    """Asks an author's approval functions."""
    verdicts: Verdicts | None = None
    """Where a judge's word is kept over attempts."""

    async def check(self, call: Call, turn: Turn, history: Sequence[Item], now: int, *, grants: Sequence[Grant] = ()) -> Gate:
        """Say whether a call that the model asked for may run."""
        tool = self.tools.get(call.tool)
        if tool is None:
            known = ", ".join(sorted(self.tools)) or "none"
            return _refused(call, f"There is no tool {call.tool!r}. The tools are: {known}.")
        try:
            call = call if call.raw is not None else replace(call, arguments=tool.filled(call.arguments))
            asked = tool.call(call.raw if call.raw is not None else call.arguments, call.call_id, requester=turn.requester)
        except BadArguments as error:
            return _refused(call, str(error))
        tainted = tool.asks_after_untrusted and any(item.trust is Trust.UNTRUSTED for item in history)
        granted = self._granted(tool, asked, turn, grants, now)
        ruled = await self._ruled(tool, asked, turn, history, granted=granted, tainted=tainted)
        if ruled.says == "deny":
            text = f"The policy of {tool.name} refused this call: {ruled.why.removesuffix('.')}. It did not run."
            return _refused(call, text, status=ResultStatus.REJECTED)
        if ruled.says == "allow" and not tainted:
            return Run()
        read = evidence(history, turn, self.tools)
        approval = tool.approval or Approval()
        nobody = unreachable(approval, turn.requester.id)
        if nobody is not None:
            return _refused(call, f"It was not asked for: {nobody} The call did not run.", status=ResultStatus.REJECTED)
        prompt = approval_prompt(
            tool,
            call,
            asked,
            turn,
            approval=approval,
            words=await self.deciding.words(approval, asked),
            evidence=(*read, ruled.why) if ruled.why else read,
            judged_by_code=self._takes_code(approval),
            now=now,
        )
        if not _storable(prompt):  # whoever approves sees all that will run, or is not asked
            return _refused(
                call, "The arguments are too large to be shown to whoever would have to approve. The call did not run."
            )
        return Ask(prompt)

    async def _ruled(
        self, tool: Tool, call: ToolCall, turn: Turn, history: Sequence[Item], *, granted: bool, tainted: bool
    ) -> Ruled:
        """Ask the policy; what a judge said is kept, so that it is paid for once."""
        if tool.approval is None or not isinstance(tool.approval.when, Auto) or tainted:
            return await self.deciding.rule(tool.approval, call, Surroundings(granted=granted, tainted=tainted))
        known = self.verdicts.known(call.call_id) if self.verdicts is not None else None
        if known is not None:
            return known
        read = evidence(history, turn, self.tools)
        around = Surroundings(history=seen_by(history, turn.requester.id), evidence=read, described=tool.description)
        ruled = await self.deciding.rule(tool.approval, call, around)
        if self.verdicts is not None:
            await self.verdicts.keep(call.call_id, ruled)
        return ruled

    async def rerun(
        self, tool: Tool, call: Call, turn: Turn, now: int, *, approved: bool = False, begun: int = 1
    ) -> NewPrompt | None:
        """Ask whether a call that was cut off while it ran may run again: those who may answer are those who let it run.

        ``approved`` says that somebody did. None if the call no longer fits its tool, or is too large to be shown, so that nobody
        can be asked.
        """
        try:
            asked = tool.call(call.raw if call.raw is not None else call.arguments, call.call_id, requester=turn.requester)
        except BadArguments:
            return None
        inherits = tool.approval is not None and (
            approved or (await self.deciding.rule(tool.approval, asked, _NO_JUDGE)).says != "allow"
        )
        approval = tool.approval if tool.approval is not None and inherits else Approval()
        words = await self.deciding.words(approval, asked)
        prompt = rerun_prompt(
            tool,
            call,
            asked,
            turn,
            approval=approval,
            answerers=words.answerers,
            inherits=inherits,
            judged_by_code=self._takes_code(approval),
            now=now,
            begun=begun,
        )
        return prompt if _storable(prompt) else None

    def granting(self, state: State, turn: Turn, action: Resolve) -> State:
        """Keep what a yes to `once` covers from now on; a no to a call that it covers takes it away."""
        denied = {response.prompt_id for response in action.consumed if response.outcome is PromptOutcome.DENIED}
        given = [
            Grant(key=key, until=pending.consent.at + GRANT_MS)
            for pending in action.run
            if pending.purpose is Purpose.APPROVAL and pending.consent is not None and (key := self._agreed(pending, turn))
        ]
        taken = [
            key
            for closed in action.closed
            if closed.pending.prompt_id in denied and (key := self._key(closed.pending, turn)) is not None
        ]
        return with_grants(state, given, taken) if given or taken else state

    def _granted(self, tool: Tool, call: ToolCall, turn: Turn, grants: Sequence[Grant], now: int) -> bool:
        """Whether a yes counts for a call: not while another prompt that it covers is still open."""
        key = once_key(tool, call)
        if key is None or not any(grant.key == key and grant.until > now for grant in grants):
            return False
        return not any(pending.purpose is Purpose.APPROVAL and self._key(pending, turn) == key for pending in turn.asked)

    def _agreed(self, pending: Pending, turn: Turn) -> str | None:
        """What a yes covers, unless it was given to a call that this isn't any more."""
        tool = self.tools.get(pending.call.tool)
        return None if tool is None or voided(tool, pending) is not None else self._key(pending, turn)

    def _key(self, pending: Pending, turn: Turn) -> str | None:
        tool = self.tools.get(pending.call.tool)
        if tool is None:
            return None
        try:
            call = run_call(pending)
            return once_key(tool, tool.call(call.arguments, call.call_id, requester=turn.requester))
        except BadArguments:
            return None

    def _takes_code(self, approval: Approval) -> bool:
        """Whether who may answer needs an author's function or a group, so that a worker has to decide."""
        return approval.policy is Policy.FUNCTION or self.access is not members_only


def once_key(tool: Tool, call: ToolCall) -> str | None:
    """Name what a yes to a call covers, where its approval is `once`."""
    when = tool.approval.when if tool.approval is not None else None
    if not isinstance(when, Once):
        return None
    try:
        # of this tool as it is: one whose arguments have another schema is another one
        return when.key(tool.binding({}), call.requester.id, call.arguments)
    except Exception:  # noqa: BLE001 - an argument that can't be written down covers nothing
        return None


def shown_actions(tools: Mapping[str, Tool], calls: Sequence[Call]) -> list[JsonValue]:
    """Return calls as readers of events may see them: what a tool keeps secret is masked, all where none says what that is."""
    shown: list[JsonValue] = []
    for call in calls:
        tool = tools.get(call.tool)
        given = all_masked(call.arguments) if tool is None else tool.shown(call.arguments)
        shown.append({"call_id": call.call_id, "tool": call.tool, "input": given})
    return shown


def _storable(prompt: NewPrompt) -> bool:
    try:
        codec.encode(prompt.body)
    except TooLarge:
        return False
    return True


def _refused(call: Call, reason: str, *, status: ResultStatus = ResultStatus.FAILED) -> Refused:
    return Refused(ResultItem(call.call_id, call.tool, status=status, content=reason, origin="framework", trust=Trust.SYSTEM))
