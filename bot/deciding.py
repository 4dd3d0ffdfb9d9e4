"""An author's approval asked: does this call wait, in which words, and may this person answer. Every doubt closes the gate.

What lives here: calling policies, judges and groups, within their limits. What does not: their values (approvals.py), prompts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from bot.answerers import POLICY_SECONDS, Group, Groups, listed
from bot.approvals import Approval, ToolCall
from bot.display import reveal
from bot.edge import Threads, asked, limited
from bot.errors import BadModel
from bot.history import Item
from bot.judging import Judged, judged, request
from bot.masks import scrubbed
from bot.model import Model, ModelReply
from bot.models import open_model
from bot.policies import Auto, Denial, Never, Once
from bot.principal import Principal

log = logging.getLogger("moorings.approvals")


async def _unheard(_: str) -> None:
    """Drop the words a judge streams."""


Says: TypeAlias = Literal["ask", "allow", "deny"]


@dataclass(frozen=True, slots=True)
class Ruled:
    """Whether a call waits for a person, and why, in words for them."""

    says: Says
    why: str = ""
    """Of a denial the author's reason, of a judge what it said."""


class Words(NamedTuple):
    """What an approval says of a call."""

    question: str
    answerers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a policy may depend on besides the call."""

    history: Sequence[Item] = ()
    evidence: Sequence[str] = ()
    described: str = ""
    """The tool's description."""
    granted: bool = False
    """An earlier yes counts for this call."""
    tainted: bool = False
    """Untrusted content was read, for which this tool asks whatever its policy: a judge need not be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """Asks the policies of one agent's tools."""

    threads: Threads = field(default_factory=Threads)
    """Where an author's plain functions run."""
    seconds: float = POLICY_SECONDS
    groups: Groups = field(default_factory=Groups)
    model: Model | None = None
    """The agent's own, for a judge that names none."""
    judges: Mapping[str, Model] = field(default_factory=dict)
    """Models by name, in place of opening them."""

    async def rule(self, approval: Approval | None, call: ToolCall, around: Surroundings | None = None) -> Ruled:
        """Say whether a call waits for a person."""
        seen = around or Surroundings()
        match None if approval is None else approval.when:
            case None:
                return Ruled("allow" if approval is None else "ask")
            case Never():
                return Ruled("allow")
            case Once():
                return Ruled("allow" if seen.granted else "ask")
            case Auto() as auto:
                return Ruled("ask") if seen.tainted else await self._judged(auto, call, seen)
            case when:
                return await self._said(when, call)

    async def words(self, approval: Approval, call: ToolCall) -> Words:
        """Ask for the words of the card; where they don't come in time, plain ones do."""
        if not (callable(approval.ask) or callable(approval.by_text)):
            return _words(approval, call)
        ended = await asked(_words, approval, call, threads=self.threads, seconds=self.seconds)
        return ended.result if ended.result is not None else _words(Approval(by=approval.by), call)

    async def may_answer(self, approval: Approval, call: ToolCall, responder: Principal, *, level: int = 0) -> bool:
        """Tell whether this person may approve or deny the call, after so many escalations.

        Nobody without an identity may, save an anonymous requester their own.
        """
        by = approval.by_at(level)
        is_requester = responder.id == call.requester.id
        if by is None:
            return is_requester
        if (is_requester and not approval.self_ok) or (approval.quorum > 1 and responder.anonymous):
            return False
        if isinstance(by, Group):
            return await self.groups.includes(by.name, responder)
        names = listed(by)
        if names is not None:
            return responder.id in names
        ended = await asked(by, call, responder, threads=self.threads, seconds=self.seconds)  # type: ignore[arg-type]  # neither a group nor a list
        if ended.error is not None:
            log.warning("by= of %s did not say whether %s may answer (%s); refused", call.tool, responder.id, _kind(ended.error))
        return ended.error is None and ended.result is True

    async def _said(self, when: Any, call: ToolCall) -> Ruled:
        ended = await asked(when, call, threads=self.threads, seconds=self.seconds)
        if ended.error is not None:
            log.warning("when= of %s gave no answer (%s); a person is asked", call.tool, _kind(ended.error))
            return Ruled("ask")
        match ended.result:
            case Denial(reason=reason):
                return Ruled("deny", reveal(scrubbed(str(reason), call.secrets)))
            case str() as said:
                return Ruled("allow" if said == "allow" else "ask")
            case answer:  # compared with nothing: it may be anything, an array too
                return Ruled("allow" if answer is False else "ask")

    async def _judged(self, auto: Auto, call: ToolCall, seen: Surroundings) -> Ruled:
        try:
            model = self._judge(auto)
        except BadModel as error:
            log.warning("the judge of %s can't be asked (%s); a person is asked", call.tool, error)
            return Ruled("ask")
        wanted = request(auto, call, history=seen.history, evidence=seen.evidence, described=seen.described)
        ended = await limited(model.reply(wanted, _unheard), auto.seconds)
        if not isinstance(ended.result, ModelReply):
            log.warning("the judge of %s did not answer (%s); a person is asked", call.tool, _kind(ended.error))
            return Ruled("ask", f"{model.name} was to judge this call and did not answer.")
        try:
            found = judged(auto, ended.result)
        except Exception:  # noqa: BLE001 - a model of the author's may put anything into its reply
            found = Judged(safe=False, reason="its verdict can't be read")
        says = f"{model.name} judged this call: {scrubbed(reveal(found.reason), call.secrets)}"
        return Ruled("allow" if found.safe else "ask", says)

    def _judge(self, auto: Auto) -> Model:
        if auto.model is None:
            if self.model is None:
                raise BadModel("", "there is no model of the agent's to judge with")
            return self.model
        if isinstance(auto.model, str):
            return self.judges.get(auto.model) or open_model(auto.model)
        return auto.model


def _words(approval: Approval, call: ToolCall) -> Words:
    return Words(approval.question(call), approval.answerers(call))


def _kind(error: BaseException | None) -> str:
    return type(error).__name__ if error is not None else "no answer"
