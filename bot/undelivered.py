"""A prompt's card that can't be delivered: its session is told, so that nobody waits for an answer that can't come.

What lives here: telling, and reading what was told. What does not: where the card goes instead (bot/turn/), sending (egress.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import JsonValue

from bot import formats
from bot.cards import card, prompt_body
from bot.display import literal, verbatim
from bot.formats import Kind
from bot.signins.settle import Settling
from bot.turn.state import Purpose
from channels.fallback import card_text
from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.errors import ContentGone, NotFound, SessionEnded
from durable_core.ids import new_id
from durable_core.model import Admission, CommandKind, OutboxItem, Prompt, RunKind, ToRun
from durable_core.store import Store

SOURCE: Final = "delivery"
_KIND: Final = "undeliverable"
UNSHOWN: Final = "unshown"
"""Of a request of a run that works for a session, which is told in its stead."""


async def tell_session(store: Store, item: OutboxItem, error: str) -> None:
    """Put it into the inbox of the session whose card it was, once however often it is told; nothing where that has ended.

    Only of cards that were to be posted: an edit that can't be made leaves the card as it stands.
    """
    if item.prompt_id is None or item.edit_of is not None:
        return
    body: dict[str, JsonValue] = {"kind": _KIND, "delivery_id": item.delivery_id, "error": error[:500]}
    session_id = item.run_id
    with contextlib.suppress(NotFound, SessionEnded, ContentGone):
        if (await store.run(item.run_id)).kind is not RunKind.SESSION:
            prompt = await store.prompt(item.prompt_id)
            asked = prompt_body(prompt)
            if prompt.outcome is not None or not asked.get("session_id"):
                return
            session_id = str(asked["session_id"])
            about = {"run_id": item.run_id, "call_id": asked.get("call_id"), "request_id": item.prompt_id}
            if prompt.kind == Purpose.SIGN_IN.value and await _one_alone(store, item, prompt, error):
                return
            body |= {**about, "kind": UNSHOWN, "text": _as_text(prompt)}
        encoded = codec.encode(body)
        await store.admit(
            Admission(
                source=SOURCE,
                key=item.delivery_id,
                digest=payload_digest(encoded),
                on_conflict="merge",
                submission_id=new_id("sub"),
                target=ToRun(run_id=session_id),
                kind=CommandKind.SIGNAL,
                body=encoded,
            )
        )


async def _one_alone(store: Store, item: OutboxItem, prompt: Prompt, error: str) -> bool:
    """A request that is put to one person alone is put nowhere else: it ends, and its run is told why."""
    sent = formats.show(Kind.OUTBOX, item.body)
    if sent.get("private_to"):
        await Settling(store=store).unasked(prompt, key=item.delivery_id, error=error)
        return True
    return sent.get("status") is True


def _as_text(prompt: Prompt) -> str:
    """What the card would have said; what can't be drawn at all is at least named."""
    try:
        return verbatim(card_text(card([prompt])))
    except ValueError:
        return literal(str(prompt_body(prompt)["text"]))


def undelivered_card(body: Mapping[str, Any]) -> tuple[str, str]:
    """Which delivery failed and why; empty for a signal about something else, which nobody waits for."""
    return (str(body["delivery_id"]), str(body["error"])) if body.get("kind") == _KIND else ("", "")
