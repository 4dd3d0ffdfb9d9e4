"""Arguments that whoever approves a call changes first, and whether a yes still fits the call that is about to run.

What lives here: reading, checking and applying changes, bindings compared. What does not: admitting answers (bot/answers.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json

from bot.approvals import Approval
from bot.bindings import meaning
from bot.deciding import Deciding, Surroundings
from bot.display import show
from bot.errors import BadArguments
from bot.history import AssistantItem, Call, Item, ResultItem, ResultStatus, Trust
from bot.principal import Principal
from bot.tools import Tool
from bot.turn.state import Consent, Pending, Purpose

CHANGED_TOOL = "The tool has changed since this was asked. Ask again."
_NO_JUDGE = Surroundings(tainted=True)
"""A person approves: what a model would make of it changes nothing, and takes longer than a person's answer may."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A call as it would run: with ``edits``, the arguments that really differ, and the digest that a yes is bound to."""

    call: Call
    edits: Mapping[str, JsonValue]
    binding: str


@dataclass(frozen=True, slots=True)
class NotEdited:
    """Why the changes can't be made, in words for whoever made them."""

    reason: str


def edited(tool: Tool, call: Call, edits: Mapping[str, JsonValue], *, requester: Principal) -> Edited | NotEdited:
    """Change a call's arguments: only permitted ones, and all of them valid together. Pure; `regated` asks the gates again.

    ``call`` has the real arguments, as the session holds them. Unchanged ones are no edit: without any the call is returned as it
    is.
    """
    allowed = tool.approval.edit if tool.approval is not None else ()
    foreign = sorted(set(edits) - set(allowed))
    if foreign:
        return NotEdited(f"{', '.join(foreign)} may not be changed here.")
    try:
        before = tool.call(call.arguments, call.call_id, requester=requester).arguments
    except BadArguments:
        return NotEdited(CHANGED_TOOL)
    wanted = {**call.arguments, **edits}
    try:
        after = tool.call(wanted, call.call_id, requester=requester).arguments
    except BadArguments as error:
        return NotEdited(f"Not valid: {'; '.join(error.errors)}")
    real = {name: value for name, value in edits.items() if not _equal(before[name], after[name])}
    made = replace(call, arguments={**call.arguments, **real}, raw=None)
    return Edited(made, real, shown_binding(tool, made))


async def regated(
    deciding: Deciding, tool: Tool, call: Call, *, requester: Principal, responder: Principal, level: int = 0
) -> str | None:
    """Ask the gates about an edited call: why it may not run on this person's word, or None.

    The policy that made it wait may now refuse it; that it would ask or allow is settled by the person who approves.
    """
    approval = tool.approval or Approval()
    asked = tool.call(call.arguments, call.call_id, requester=requester)
    ruled = await deciding.rule(approval, asked, _NO_JUDGE)
    if ruled.says == "deny":
        return f"The policy of {tool.name} refuses the changed call: {ruled.why}"
    return None if await deciding.may_answer(approval, asked, responder, level=level) else "not_allowed"


def read_edit(tool: Tool | None, name: str, text: str, *, shown: JsonValue = None) -> JsonValue | NotEdited:
    """Read a field of a form as the argument's JSON: plain text where it is one, or may be, else JSON text."""
    if isinstance(shown, str):
        return text
    takes_text = _takes_text(tool, name)
    try:
        value: JsonValue = from_json(text, allow_inf_nan=False)
    except ValueError:
        return text if takes_text else NotEdited(f"Not valid: write {name} in the form in which it was shown.")
    # where a text would do as well, only what is of the shown kind is not one: a Decimal keeps its digits
    return text if takes_text and type(value) is not type(shown) else value


def run_call(pending: Pending) -> Call:
    """Return a released call as it is to run: with the changes of whoever approved it."""
    edits = pending.consent.edits if pending.consent is not None else None
    return replace(pending.call, arguments={**pending.call.arguments, **edits}, raw=None) if edits else pending.call


def shown_binding(tool: Tool, call: Call) -> str:
    """Digest a call as people saw it: secrets masked, so that the digest gives no way to guess them."""
    return tool.binding(tool.shown(call.arguments))


def voided(tool: Tool, pending: Pending) -> ResultItem | None:
    """Close an approved call to which the yes was not given: its tool or its arguments have changed since."""
    consent = pending.consent
    if consent is None:
        return None
    fits = pending.binding in ("", tool.binding(pending.call.arguments))
    if fits and (consent.edits or consent.binding):
        fits = bool(consent.edits) and consent.binding == shown_binding(tool, run_call(pending))
    fits = fits and _means_the_same(tool, pending)
    if fits:
        return None
    why = "but the tool or the call has changed since: the approval doesn't count. It did not run."
    text = f"{consent.name} approved this call, {why}"
    status = ResultStatus.REJECTED
    if pending.purpose is Purpose.RERUN:
        text = (
            "It was cut off while it ran, and was not run again, since the tool has changed. Whether it took effect is not known."
        )
        status = ResultStatus.UNKNOWN
    return ResultItem(
        pending.call.call_id,
        pending.call.tool,
        status=status,
        content=text,
        origin="framework",
        trust=Trust.SYSTEM,
    )


def _means_the_same(tool: Tool, pending: Pending) -> bool:
    """Whether all that nobody has changed comes to what people were shown."""
    edits = (pending.consent.edits if pending.consent is not None else None) or {}
    try:
        now = meaning(tool.validate(run_call(pending).arguments))
    except BadArguments:
        return True  # it fails as such when it is to run
    return all(now.get(name) == was for name, was in pending.means.items() if name not in edits)


def told(content: JsonValue, call: Call, consent: Consent) -> JsonValue:
    """Add to a result what was changed before it ran: the model remembers asking for something else."""
    return _with_changes(content, call, consent.edits or {}, consent.name)


def told_again(content: JsonValue, history: Sequence[Item], call: Call) -> JsonValue:
    """As `told`, of a call that was cut off and is run again: by then it is as it was approved, not as the model asked for it."""
    calls = (one for item in reversed(history) if isinstance(item, AssistantItem) for one in item.calls)
    asked = next((one for one in calls if one.call_id == call.call_id), call)
    edits = {name: value for name, value in call.arguments.items() if asked.arguments.get(name) != value}
    return _with_changes(content, asked, edits, "Whoever let it run first") if edits else content


def _with_changes(content: JsonValue, call: Call, edits: Mapping[str, JsonValue], who: str) -> JsonValue:
    changes = [f"{name} from {_shown(call, name)} to {show(value)}" for name, value in edits.items()]
    words = f"{who} changed {', '.join(changes)} before approving this call."
    if isinstance(content, str):
        return f"{content}\n\n{words}" if content else words
    return {"result": content, "changed_before_it_ran": words}


def _shown(call: Call, name: str) -> str:
    return show(call.arguments[name]) if name in call.arguments else "its default"


def _equal(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # noqa: BLE001 - an author's own comparison; a change then
        return False


def _takes_text(tool: Tool | None, name: str) -> bool:
    properties: Any = tool.schema.get("properties") if tool is not None else None
    part: Any = properties.get(name) if isinstance(properties, dict) else None
    kinds = [part, *part.get("anyOf", [])] if isinstance(part, dict) else []
    return any(isinstance(kind, dict) and kind.get("type") == "string" for kind in kinds)
