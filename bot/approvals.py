"""Which calls wait for a person's yes, what that person is asked, and who it may be.

What lives here: the policy an author writes, as values. What does not: prompts, votes and cards.
"""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from bot.display import reveal, show
from bot.principal import Principal


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that may run: ``arguments`` are validated and typed, so a policy can compare them."""

    tool: str
    arguments: Mapping[str, Any]
    _: KW_ONLY
    call_id: str
    requester: Principal


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """Who let a call run, with their note, at a time in milliseconds."""

    responder: Principal
    note: str
    at: int


class Policy(StrEnum):
    """What decides who may answer: plain data, or a function of the author's."""

    REQUESTER = "requester"
    FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class Over:
    """Ask when an argument is more than an amount, or can't be compared with it."""

    argument: str
    amount: Decimal

    def __call__(self, call: ToolCall) -> bool:
        """Tell whether the call is over the amount."""
        return not call.arguments[self.argument] <= self.amount


def over(argument: str, amount: Decimal | float) -> Over:
    """Build a ``when`` that asks only above an amount; the argument's name is checked when the tool is declared."""
    return Over(argument, Decimal(str(amount)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A gate in front of a tool's body; ``Approval()`` asks the requester every time.

    ``ask`` is a template with argument names in braces, or a function. ``when`` says which calls ask. ``by`` says who may
    answer, approving or denying; without it, only who asked. With ``by`` the requester doesn't count unless ``self_ok``, and
    then only if ``by`` says so. Every doubt closes the gate: a ``when`` that fails asks, a ``by`` that fails refuses.
    ``by_text`` names them on the card, as the subject of "… may answer".
    """

    ask: str | Callable[[ToolCall], str] | None = None
    when: Callable[[ToolCall], bool] | None = None
    by: Callable[[ToolCall, Principal], bool] | None = None
    by_text: str | Callable[[ToolCall], str] | None = None
    self_ok: bool = False
    expires: timedelta = field(default=timedelta(days=3))

    @property
    def policy(self) -> Policy:
        """Tell whether who may answer is data or takes running the author's function."""
        return Policy.REQUESTER if self.by is None else Policy.FUNCTION

    def needed(self, call: ToolCall) -> bool:
        """Tell whether this call has to wait for a person."""
        if self.when is None:
            return True
        try:
            return self.when(call) is not False
        except BaseException:  # noqa: BLE001 - a policy that can't decide must not open the gate
            return True

    def may_answer(self, call: ToolCall, responder: Principal) -> bool:
        """Tell whether this person may approve or deny the call; nobody without an identity may, save an anonymous requester."""
        is_requester = responder.id == call.requester.id
        if self.by is None:
            return is_requester
        if is_requester and not self.self_ok:
            return False
        try:
            return self.by(call, responder) is True
        except BaseException:  # noqa: BLE001 - a policy that can't decide must not open the gate
            return False

    def question(self, call: ToolCall) -> str:
        """Word the question of the card, with every argument it names in full."""
        if isinstance(self.ask, str):
            return _fill(self.ask, call.arguments)
        if self.ask is not None:
            try:
                return reveal(str(self.ask(call)))
            except BaseException:  # noqa: BLE001 - the card lists all arguments anyway; a wording must not strand the call
                return f"Run {call.tool}?"
        return f"Run {call.tool}?"

    def answerers(self, call: ToolCall) -> str:
        """Name who may answer, as the subject of a sentence."""
        if callable(self.by_text):
            try:
                return reveal(str(self.by_text(call)))
            except BaseException:  # noqa: BLE001 - a wording must not strand the call
                return "Somebody with the right to"
        if self.by_text is not None:
            return self.by_text
        return call.requester.name if self.by is None else "Somebody with the right to"

    def problems(self, parameters: Collection[str]) -> tuple[str, ...]:
        """List what is wrong with this policy for a tool with these parameters."""
        found: list[str] = []
        if isinstance(self.ask, str):
            found += _template_problems(self.ask, parameters)
        if isinstance(self.when, Over) and self.when.argument not in parameters:
            found.append(f"over() names {self.when.argument!r}, which is no parameter")
        for name, policy in (("ask", self.ask), ("when", self.when), ("by", self.by)):
            # A coroutine is true whatever it would have answered.
            if inspect.iscoroutinefunction(policy) or inspect.iscoroutinefunction(getattr(policy, "__call__", None)):  # noqa: B004 - a callable object's own method is looked at
                found.append(f"{name}= must be a plain function, not async")
        if self.expires <= timedelta(0):
            found.append("expires= must be in the future")
        return tuple(found)


always: Final = Approval()


def _fill(template: str, arguments: Mapping[str, Any]) -> str:
    # Not str.format: a template may name an argument, never reach into its attributes.
    parts: list[str] = []
    for literal, name, _, _ in string.Formatter().parse(template):
        parts.append(literal)
        if name is not None:
            parts.append(show(arguments[name]))
    return "".join(parts)


def _template_problems(template: str, parameters: Collection[str]) -> list[str]:
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        return [f"ask={template!r} can't be read: {error}"]
    found = []
    for _, name, spec, conversion in pieces:
        if name is None:
            continue
        if spec or conversion or not name.isidentifier():
            found.append(f"ask={template!r} may only name arguments in braces, {{{name}}} is more")
        elif name not in parameters:
            found.append(f"ask={template!r} names {name!r}, which is no parameter")
    return found
