"""Being authorized: what `ctx.authorize` gives and raises, and what a layer above lends the steps of a run.

What lives here: values, the port, the order of it. What does not: accounts, people, tokens; this layer knows of none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol

from durable_core.context import step_context
from durable_core.errors import DurableError
from durable_core.operations import Answer, AskOptions

NOBODY: Final = "nobody can be asked to sign in here: the run belongs to no bot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorized:
    """Whoever the run works for has connected it; ``account`` is what people call theirs, "" where nobody says."""

    account: str = ""


class NotAuthorized(DurableError):
    """Whoever the run works for did not connect it, or can't be asked; ``reason`` is a sentence for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Lent(Protocol):
    """What one attempt of a step is lent by the layer above; it finds it in `step_context().lent`."""

    async def authorize(self, what: Any) -> Mapping[str, Any]:
        """Look whether the run may use it; the log keeps the answer.

        `{"account": …}` it may; `{"denied": reason}` it may not, and nobody is asked; else `{"ask", "expires_ms", "granted",
        "declined", "late", "lost"}`: `ask` is for the surface, `granted` the option that a granted question is settled with, and
        the others are reasons. With `remind_ms` people are reminded after so long.
        """

    async def failed(self, error: BaseException) -> BaseException:
        """Say what an error of the attempt means: itself, or another one in its place."""


async def look(what: Any) -> Mapping[str, Any]:
    """Look, as a step, whether its run may use something."""
    lent: Lent | None = step_context().lent
    return {"denied": NOBODY} if lent is None else await lent.authorize(what)


@dataclass(slots=True)
class _Open:
    """An open question, and how many branches of the body wait for its answer."""

    answer: asyncio.Future[Answer]
    waiting: int = 0


@dataclass(slots=True)
class Asking:
    """The questions of one body that several of its branches may wait for: asked once, withdrawn when the last one leaves."""

    open: dict[str, _Open] = field(default_factory=dict)

    async def ask(self, name: str, begin: Callable[[], asyncio.Future[Answer]]) -> tuple[Answer, bool]:
        """Wait for the answer to what is asked under a name, asking it if nobody has; also whether it was asked here."""
        shared = self.open.get(name)
        own = shared is None or shared.answer.done()
        if shared is None or own:
            shared = self.open[name] = _Open(begin())
        shared.waiting += 1
        try:
            return await asyncio.shield(shared.answer), own
        except asyncio.CancelledError:  # not where the body is dropped from memory: that withdraws nothing
            shared.waiting -= 1
            if not shared.waiting:
                shared.answer.cancel()
            raise


async def authorized(
    checked: Callable[[], Awaitable[Mapping[str, Any]]], asked: Callable[[AskOptions], Awaitable[tuple[Answer, bool]]]
) -> Authorized:
    """Look, ask where that is needed, and look again. Raises: NotAuthorized.

    ``asked`` says with an answer whether the question was ours: one that another branch asked may have been for less.
    """
    found = await checked()
    while "ask" in found:
        answer, own = await asked(_question(found))
        if answer.expired:
            raise NotAuthorized(found["late"])
        if answer.option_id != found["granted"]:
            raise NotAuthorized(answer.text or found["declined"])
        lost = found["lost"]
        found = await checked()
        if own and "ask" in found:
            raise NotAuthorized(lost)
    if "denied" in found:
        raise NotAuthorized(found["denied"])
    return Authorized(account=found["account"])


def _question(found: Mapping[str, Any]) -> AskOptions:
    remind_ms = found.get("remind_ms")
    return AskOptions(
        text="",
        expires=timedelta(milliseconds=found["expires_ms"]),
        remind_after=timedelta(milliseconds=remind_ms) if remind_ms else None,
        about=found["ask"],
    )
