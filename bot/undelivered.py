"""A prompt's card that can't be delivered: its session is told, so that nobody waits for an answer that can't come.

What lives here: telling, and reading what was told. What does not: where the card goes instead (bot/turn/), sending (egress.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import JsonValue

from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.errors import NotFound, SessionEnded
from durable_core.ids import new_id
from durable_core.model import Admission, CommandKind, OutboxItem, RunKind, ToRun
from durable_core.store import Store

SOURCE: Final = "delivery"
_KIND: Final = "undeliverable"


async def tell_session(store: Store, item: OutboxItem, error: str) -> None:
    """Put it into the inbox of the session whose card it was, once however often it is told; nothing where that has ended.

    Only of cards that were to be posted: an edit that can't be made leaves the card as it stands.
    """
    if item.prompt_id is None or item.edit_of is not None:
        return
    body: dict[str, JsonValue] = {"kind": _KIND, "delivery_id": item.delivery_id, "error": error[:500]}
    encoded = codec.encode(body)
    with contextlib.suppress(NotFound, SessionEnded):
        if (await store.run(item.run_id)).kind is not RunKind.SESSION:
            return
        await store.admit(
            Admission(
                source=SOURCE,
                key=item.delivery_id,
                digest=payload_digest(encoded),
                on_conflict="merge",
                submission_id=new_id("sub"),
                target=ToRun(run_id=item.run_id),
                kind=CommandKind.SIGNAL,
                body=encoded,
            )
        )


def undelivered_card(body: Mapping[str, Any]) -> tuple[str, str]:
    """Which delivery failed and why; empty for a signal about something else, which nobody waits for."""
    return (str(body["delivery_id"]), str(body["error"])) if body.get("kind") == _KIND else ("", "")
