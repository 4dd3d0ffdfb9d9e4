"""Which calls wait for a person's yes, what that person is asked, and who it may be.

What lives here: the policy an author writes, as values. What does not: asking it (deciding.py), prompts, votes and cards.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from bot.answerers import By, by_problems, describe_by, listed
from bot.display import reveal, show
from bot.edge import is_async, misfit
from bot.masks import scrubbed
from bot.policies import When, when_problems
from bot.principal import Principal
from bot.routes import Address, Escalation, OnExpiry, Route, expiry_problems, levels, route_problems


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that may run: ``arguments`` are validated and typed, so a policy can compare them.

    ``shown`` has those that hold something secret as people may read them; ``secrets`` are the secret texts.
    """

    tool: str
    arguments: Mapping[str, Any] = field(repr=False)
    _: KW_ONLY
    call_id: str
    requester: Principal
    shown: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def text_of(self, argument: str) -> str:
        """Return one argument as a person reads it."""
        return self.shown[argument] if argument in self.shown else show(self.arguments[argument])


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """Who let a call run, with their note, at a time in milliseconds; ``edited`` names the arguments that they changed."""

    responder: Principal
    note: str
    at: int
    _: KW_ONLY
    edited: tuple[str, ...] = ()


class Policy(StrEnum):
    """What decides who may answer: plain data, or something that has to be asked."""

    REQUESTER = "requester"
    LISTED = "listed"
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

    Args:
        ask: The question: a template with argument names in braces, or a function of the call.
        when: Which calls ask: ``over(…)``, ``once(…)``, ``auto(…)``, ``never``, or a function of the call that answers "ask",
            "allow" or ``deny(reason)``, True or False. Without it, every call. One that fails, or says anything else, asks.
        by: Who may answer, approving or denying: a list of principal ids, ``group(name)``, or a function of the call and the
            person. Without it, only who asked. One that fails refuses.
        by_text: Names them on the card, as the subject of "… may answer".
        self_ok: With ``by``, the requester counts too, if ``by`` says so.
        quorum: How many different people have to approve; one who denies ends it.
        edit: Arguments that whoever approves may change first.
        expires: How long it waits; None for as long as the session lives.
        remind_after: After how long they are reminded, if it is still open; None never.
        on_expiry: "deny" closes the call, "cancel" the turn; ``escalate(…)``, or several, hands it to others first.
        route: "thread", "direct" (to whoever is asked), or ``address("…")``.
    """

    ask: str | Callable[[ToolCall], str] | None = None
    when: When | None = None
    by: By | None = None
    by_text: str | Callable[[ToolCall], str] | None = None
    self_ok: bool = False
    quorum: int = 1
    edit: Sequence[str] = ()
    expires: timedelta | None = field(default=timedelta(days=3))
    remind_after: timedelta | None = field(default=timedelta(hours=4))
    on_expiry: OnExpiry = "deny"
    route: Route = "thread"

    def __post_init__(self) -> None:
        """Keep what was listed from changing."""
        names = listed(self.by)
        if names is not None:
            object.__setattr__(self, "by", names)
        if not isinstance(self.edit, str):
            object.__setattr__(self, "edit", tuple(self.edit))
        if not isinstance(self.on_expiry, str | Escalation):
            object.__setattr__(self, "on_expiry", tuple(self.on_expiry))

    @property
    def levels(self) -> tuple[Escalation, ...]:
        """Who is asked next, and next, when nobody answers."""
        return levels(self.on_expiry)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Every place that it names."""
        places = [self.route, *(level.to for level in self.levels)]
        return tuple(place for place in places if isinstance(place, Address))

    @property
    def policy(self) -> Policy:
        """Tell whether who may answer is data or has to be asked; one that escalates is never only the requester's."""
        people = [self.by, *(level.by for level in self.levels if level.by is not None)]
        if any(by is not None and listed(by) is None for by in people):
            return Policy.FUNCTION
        return Policy.REQUESTER if all(by is None for by in people) else Policy.LISTED

    def by_at(self, level: int) -> By | None:
        """Who may answer after so many escalations; one that only moves the prompt leaves it to those before."""
        given = [step.by for step in self.levels[:level] if step.by is not None]
        return given[-1] if given else self.by

    def people(self, requester: str, *, level: int = 0) -> tuple[str, ...] | None:
        """The ids of all who may answer, where they are known; None where somebody has to be asked."""
        by = self.by_at(level)
        if by is None:
            return (requester,)
        names = listed(by)
        return None if names is None else tuple(name for name in names if self.self_ok or name != requester)

    def described(self, requester: Principal, *, level: int = 0) -> str:
        """Name who may answer as its list, group or function does: of a list, those who count."""
        by, people = self.by_at(level), self.people(requester.id, level=level)
        return describe_by(people if people and listed(by) is not None else by, requester=requester.name)

    def question(self, call: ToolCall) -> str:
        """Word the question of the card, with every argument it names in full; secrets stay masked."""
        if isinstance(self.ask, str):
            return _fill(self.ask, call)
        if self.ask is not None:
            try:
                return reveal(scrubbed(str(self.ask(call)), call.secrets))
            except BaseException:  # noqa: BLE001 - the card lists all arguments anyway; a wording must not strand the call
                return f"Run {call.tool}?"
        return f"Run {call.tool}?"

    def answerers(self, call: ToolCall) -> str:
        """Name who may answer, as the subject of a sentence."""
        if callable(self.by_text):
            try:
                return reveal(scrubbed(str(self.by_text(call)), call.secrets))
            except BaseException:  # noqa: BLE001 - a wording must not strand the call
                return self.described(call.requester)
        return self.by_text if self.by_text is not None else self.described(call.requester)

    def problems(self, parameters: Collection[str], *, masked: Collection[str] = ()) -> tuple[str, ...]:
        """List what is wrong with this policy for a tool with these parameters, of which some are ``masked``."""
        found: list[str] = []
        if isinstance(self.ask, str):
            found += _template_problems(self.ask, parameters)
        if isinstance(self.when, Over) and self.when.argument not in parameters:
            found.append(f"over() names {self.when.argument!r}, which is no parameter")
        when: object = self.when
        if isinstance(when, Approval):
            found.append("when= takes a policy, not an approval; always is what it is without when=")
        else:
            found += when_problems(self.when, parameters, masked=masked)
        found += by_problems(self.by)
        for name, words in (("ask", self.ask), ("by_text", self.by_text)):
            if is_async(words):
                found.append(f"{name}= must be a plain function, not async")
            elif wrong := misfit(words, "call"):
                found.append(f"{name}= {wrong}")
        found += self._quorum_problems() + self._edit_problems(parameters, masked) + self._time_problems()
        found += expiry_problems(self.on_expiry, quorum=self.quorum) + route_problems(self.route)
        return tuple(found)

    def _quorum_problems(self) -> list[str]:
        if self.quorum < 1:
            return [f"quorum={self.quorum} must be at least 1"]
        if self.quorum == 1:
            return []
        if self.by is None:
            return [f"quorum={self.quorum} needs by=: who asked is one person"]
        found = [f"quorum={self.quorum} and edit= can't go together: people would approve different calls"] if self.edit else []
        names = listed(self.by)
        if names is not None and self.quorum > len(names):
            found.append(f"quorum={self.quorum} of a list of {len(names)}")
        return found

    def _edit_problems(self, parameters: Collection[str], masked: Collection[str]) -> list[str]:
        if isinstance(self.edit, str):
            return [f"edit= takes a list of parameters, not one text; write [{self.edit!r}]"]
        found = [f"edit= names {name!r}, which is no parameter" for name in self.edit if name not in parameters]
        found += [
            f"edit= names {name!r}, which is secret: nobody sees what they would change" for name in self.edit if name in masked
        ]
        if len(set(self.edit)) < len(self.edit):
            found.append("edit= names a parameter twice")
        return found

    def _time_problems(self) -> list[str]:
        times: tuple[tuple[str, object], ...] = (("expires", self.expires), ("remind_after", self.remind_after))
        found = [
            f"{name}= takes a timedelta, as in timedelta(hours=4), not {time!r}"
            for name, time in times
            if not isinstance(time, timedelta | None)
        ]
        if found:
            return found
        if self.expires is not None and self.expires <= timedelta(0):
            found.append("expires= must be in the future")
        if self.remind_after is not None and self.remind_after <= timedelta(0):
            found.append("remind_after= must be in the future")
        if self.expires is None and self.on_expiry != "deny":
            found.append("on_expiry= needs expires=: it never expires")
        return found


always: Final = Approval()


def _fill(template: str, call: ToolCall) -> str:
    # Not str.format: a template may name an argument, never reach into its attributes.
    parts: list[str] = []
    for literal, name, _, _ in string.Formatter().parse(template):
        parts.append(literal)
        if name is not None:
            parts.append(call.text_of(name))
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
