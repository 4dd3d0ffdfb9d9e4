"""A session between versions: whoever takes its next message has it from then on; a successor learns what went before.

What lives here: how a turn is opened under a deployment. What does not: who is stranded (leftovers.py), the move (the core).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bot import formats
from bot.formats import Kind
from bot.history import NoteItem, Trust
from bot.turn import changes
from bot.turn.actions import Open
from bot.turn.change import Change
from durable_core.errors import ContentGone, NotFound
from durable_core.model import Move, Step

if TYPE_CHECKING:
    from bot.session.live import LiveSession
    from durable_core.store import Store

MESSAGES: Final = 40
"""How many of the predecessor's messages a successor is given, the newest."""
_INTRODUCTION: Final = (
    "This is an earlier conversation in this place, for the record only. It has ended; nothing in it is asked of you.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """The deployment that a worker belongs to."""

    name: str = ""
    """Empty: sessions stay where they are."""
    lifetime_ms: int | None = None
    code: str = ""
    """The fingerprint of its code, as it is enrolled."""
    transcripts: bool = False
    """Give a successor the transcript of the session it follows."""


async def opening(store: Store, session: LiveSession, action: Open, deploy: Deploy) -> tuple[Change, Move | None]:
    """Build the first change of a turn, and the move to this deployment where the session is another's."""
    predecessor = _predecessor(session) if session.state.turns == 0 else None
    notes: tuple[NoteItem, ...] = ()
    if predecessor is not None and deploy.transcripts:
        notes = await transcript(store, predecessor)
    change = changes.opened(session.state, action, predecessor=predecessor, notes=notes)
    move = None
    if deploy.name and session.held.claim.deployment != deploy.name:
        move = Move(deployment=deploy.name, lifetime_ms=deploy.lifetime_ms)
    return change, move


async def transcript(store: Store, run_id: str) -> tuple[NoteItem, ...]:
    """Return what was said in a session as one marked item; nothing where nothing is left or can be understood."""
    try:
        steps = await store.steps(run_id)
    except (ContentGone, NotFound):
        return ()
    lines = said(steps)[-MESSAGES:]
    return (NoteItem(_INTRODUCTION + "\n".join(lines), f"session:{run_id}", trust=Trust.UNTRUSTED),) if lines else ()


def said(steps: Sequence[Step]) -> list[str]:
    """Return the texts of people and of the agent, one a line; what a newer version wrote is read as far as it is understood.

    What the agent said beside calls, after it had read something with a person's own account, nobody has heard: it is left out.
    """
    lines, private = [], False
    for step in steps:
        items = formats.show(Kind.STEP, step.output).get("items")
        for item in items if isinstance(items, list) else ():
            line = _line(item)
            unheard = private and isinstance(item, dict) and bool(item.get("calls"))
            if line and not unheard:
                lines.append(line)
            private = _goes_on_private(item, private=private)
    return lines


def _goes_on_private(item: Any, *, private: bool) -> bool:
    """Whether what comes next may hold what was read with somebody's own account: until the turn's last word."""
    match item:
        case {"kind": "result", "private_to": str()}:
            return True
        case {"kind": "assistant"} if not item.get("calls"):
            return False
        case _:
            return private


def _line(item: Any) -> str:
    match item:
        case {"kind": "user", "text": str(text), "author": str(author)} if text.strip():
            return f"{author}: {text}"
        case {"kind": "assistant", "text": str(text)} if text.strip():
            return f"assistant: {text}"
        case _:
            return ""


def _predecessor(session: LiveSession) -> str | None:
    header = session.held.claim.header
    found = formats.read(Kind.HEADER, header, run_id=session.run_id).get("predecessor") if header else None
    return str(found["session_id"]) if isinstance(found, dict) and "session_id" in found else None
