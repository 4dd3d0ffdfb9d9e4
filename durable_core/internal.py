"""Internal lanes: what one run owes another, delivered by any worker (CORE 4).

What lives here: the rows of such lanes and their delivery. What does not: what they lead to (engine/inbox.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.errors import Broken, CannotOpen, NotFound, SessionEnded
from durable_core.ids import new_id
from durable_core.model import INTERNAL, Abilities, Admission, Buried, CommandKind, Lane, OutboxDraft, OutboxItem, Sent, ToRun
from durable_core.store import Store

log = logging.getLogger("moorings.worker")


def able(abilities: Abilities) -> Abilities:
    """Add internal lanes to what a worker sends: any worker delivers what runs owe each other."""
    channels = abilities.channels
    return abilities if channels is None or INTERNAL in channels else replace(abilities, channels=(*channels, INTERNAL))


def child_result(parent: str, op: str, child: str, result: Mapping[str, Any]) -> OutboxDraft:
    """Tell a parent how its child ended; `result` is as in the child's log."""
    return _draft(parent, {"kind": "child", "op": op, "run_id": child, **result})


def child_cancel(child: str) -> OutboxDraft:
    """Cancel a child that nobody waits for any more."""
    return _draft(child, {"kind": "cancel", "reason": "its parent does not wait for it any more"})


def read(body: bytes) -> dict[str, Any]:
    """Read what a run was sent."""
    return cast("dict[str, Any]", codec.decode(body))


async def deliver(store: Store, lane: Lane, owner: str) -> None:
    """Put a lane's items into the inbox of the run it is named by, in order, and give the lane back.

    Raises:
        LeaseLost: another worker has the lane.
        Unavailable: the database's own; what was delivered is not delivered twice.
    """
    for place, item in enumerate(lane.items):
        last = place == len(lane.items) - 1
        result: Sent | Buried = Sent(delivery_id=item.delivery_id, ref=None, release=last)
        told = _admission(lane.address, item)
        try:
            await store.admit(told)
            if told.kind is CommandKind.CANCEL:  # whoever set it aside can still end it
                await store.unstrand(lane.address)
        except (NotFound, SessionEnded):
            log.debug("%s has ended; what %s owed it is of no use any more", lane.address, item.run_id)
        except (Broken, CannotOpen) as error:
            log.exception("what %s owes %s can't be delivered", item.run_id, lane.address)
            result = Buried(delivery_id=item.delivery_id, error=str(error), release=last)
        await store.finish(lane, owner, result)
    if not lane.items:
        await store.release_lane(lane, owner)


def _draft(run_id: str, body: dict[str, Any]) -> OutboxDraft:
    return OutboxDraft(delivery_id=new_id("dlv"), channel=INTERNAL, address=run_id, body=codec.encode(body))


def _admission(run_id: str, item: OutboxItem) -> Admission:
    """Return an item as what the other run gets, once however often it is delivered."""
    return Admission(
        source=INTERNAL,
        key=item.delivery_id,
        digest=payload_digest(item.body),
        on_conflict="merge",
        submission_id=new_id("sub"),
        target=ToRun(run_id=run_id),
        kind=CommandKind.CANCEL if read(item.body)["kind"] == "cancel" else CommandKind.SIGNAL,
        body=item.body,
        principal=item.run_id,
    )
