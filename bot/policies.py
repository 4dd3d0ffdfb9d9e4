"""Which calls wait for a person: the values an author gives as ``when``, beside functions of their own.

What lives here: never, once, auto, a denial, and their words. What does not: asking them (deciding.py), who may answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pydantic import JsonValue
from pydantic_core import to_json

from bot.edge import misfit
from bot.errors import BadModel
from bot.model import Model
from bot.models import open_model

if TYPE_CHECKING:
    from bot.approvals import ToolCall

AUTO_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Denial:
    """The call does not run and nobody is asked; the model is told why."""

    reason: str


def deny(reason: str) -> Denial:
    """Refuse a call from a ``when`` function; the reason goes to the model."""
    return Denial(reason)


Ruling: TypeAlias = Literal["ask", "allow"] | Denial | bool
"""What a ``when`` function answers; True asks and False allows. Anything else asks."""


@dataclass(frozen=True, slots=True)
class Never:
    """Nobody is asked, unless untrusted content was read."""


@dataclass(frozen=True, slots=True)
class Once:
    """A yes counts for later calls of the same session, tool, requester and named arguments, for 24 hours."""

    arguments: tuple[str, ...] = ()

    def key(self, tool: str, requester: str, arguments: Mapping[str, JsonValue]) -> str | None:
        """Name what a yes to this call covers; None of an anonymous requester, whom nobody can tell from another."""
        if not requester:
            return None
        named = [[name, arguments.get(name)] for name in sorted(set(self.arguments))]
        return hashlib.sha256(to_json([tool, requester, named], inf_nan_mode="strings")).hexdigest()


@dataclass(frozen=True, slots=True)
class Auto:
    """A model judges; unless it finds the call safe by every criterion, a person is asked."""

    model: str | Model | None
    instructions: str
    criteria: tuple[str, ...]
    seconds: float


never: Final = Never()


def once(*, arguments: Iterable[str] = ()) -> Once:
    """Ask once for each requester, and for each value of the named arguments."""
    return Once((arguments,) if isinstance(arguments, str) else tuple(arguments))


def auto(
    model: str | Model | None = None, *, instructions: str = "", criteria: Iterable[str] = (), seconds: float = AUTO_SECONDS
) -> Auto:
    """Have a model judge each call: None is the agent's own. Caution, failure, silence or half an answer asks a person."""
    return Auto(model, instructions, (criteria,) if isinstance(criteria, str) else tuple(criteria), seconds)


When: TypeAlias = "Callable[[ToolCall], Ruling | Awaitable[Ruling]] | Never | Once | Auto"


def when_problems(when: Any, parameters: Collection[str], *, masked: Collection[str] = ()) -> list[str]:
    """Say what can't be meant by a ``when``."""
    if when is once or when is auto:
        return [f"when={when.__name__} lacks its brackets: {when.__name__}()"]
    if isinstance(when, Once):
        lost = [name for name in when.arguments if name not in parameters]
        secret = [name for name in when.arguments if name in masked]
        return [
            *(f"once() names {name!r}, which is no parameter" for name in lost),
            *(f"once() names {name!r}, which is secret: its values can't be told from one another" for name in secret),
        ]
    if isinstance(when, Auto):
        found = [] if when.seconds > 0 else ["auto(seconds=…) must be more than 0"]
        if not (when.instructions.strip() or when.criteria):
            found.append("auto() needs instructions= or criteria=, by which the model judges")
        try:
            if when.model is not None:
                open_model(when.model)
        except BadModel as error:
            found.append(f"auto(): {error}")
        return found
    if when is None or isinstance(when, Never):
        return []
    if callable(when):
        wrong = misfit(when, "call")
        return [f"when= {wrong}"] if wrong else []
    return [f"when={when!r} is neither a policy nor a function of the call"]


def describe(when: Any) -> str:
    """Say in a few words which calls ask."""
    match when:
        case None:
            return "always"
        case Never():
            return "never"
        case Once(arguments=()):
            return "once a requester, for 24 h"
        case Once(arguments=names):
            return f"once a requester and {', '.join(names)}, for 24 h"
        case Auto(model=model):
            name = "the agent's model" if model is None else model if isinstance(model, str) else model.name
            return f"when {name} doesn't find it safe"
        case _ if type(when).__name__ == "Over":
            return f"{when.argument} over {when.amount}"
        case _:
            return f"as {getattr(when, '__name__', type(when).__name__)}() says"
