"""A made-up next format, and code that comes and goes with it.

What lives here: upcasters from the present format, and switching a thread's code. What does not: expectations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bot import formats
from bot.formats import each_item, the_state
from bot.session.handoff import Deploy
from durable_core import versions
from durable_core.model import Abilities, Incarnation
from durable_core.versions import Stored, Upcasters
from tests.bot.session.kit import Thread

NEVER = 100 * 365 * 86_400_000
PRESENT, NEXT = versions.CURRENT_SPEC, versions.CURRENT_SPEC + 1


def texts_shout(item: Stored) -> Stored:
    """In the next format people shout: so it can be seen which items were brought up."""
    return {**item, "text": item["text"].upper()} if item["kind"] == "user" else item


def counts_in_tens(state: Stored) -> Stored:
    return {**state, "messages": state["messages"] * 10}


def both(step: Stored) -> Stored:
    return the_state(counts_in_tens)(each_item(texts_shout)(step))


def detailed(prompt: Stored) -> Stored:
    return {**prompt, "text": f"{prompt['text']} (asked by an older version)"}


def louder(command: Stored) -> Stored:
    return {**command, "text": command["text"] + "!"} if "text" in command else command


def asked_twice(record: Stored) -> Stored:
    return {**record, "seen": 2}


UPCASTERS = Upcasters(
    {("step", PRESENT): both, ("prompt", PRESENT): detailed, ("command", PRESENT): louder, ("record", PRESENT): asked_twice}
)


@contextmanager
def next_format() -> Iterator[None]:
    """Be code that writes the next format and reads all before it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "CURRENT_SPEC", NEXT)
        patch.setattr(formats, "UPCASTERS", UPCASTERS)
        yield


@contextmanager
def former_format() -> Iterator[None]:
    """Be code of the version before the present format came."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "CURRENT_SPEC", PRESENT - 1)
        yield


def new_code(thread: Thread, name: str, *, lifetime_ms: int | None = None, transcripts: bool = False) -> None:
    """Go on with a fresh worker of a deployment, able to what the code that runs now is able to."""
    code = versions.fingerprint(name)
    thread.abilities = Abilities(code=code)
    thread.deploy = Deploy(name=name, lifetime_ms=lifetime_ms, code=code, transcripts=transcripts)
    thread.hire(f"worker of {name}")


async def enrol(thread: Thread) -> None:
    await thread.store.enrol(Incarnation(owner=thread.owner, deployment=thread.deploy.name, abilities=thread.abilities))
