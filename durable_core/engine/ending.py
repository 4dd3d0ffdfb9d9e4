"""Ending a workflow run without its body, as operators do where no code can go on with it; whoever waits for it is told.

What lives here: the parent's share, and which children go too. What does not: the end itself (the store), cancelling, which lets
the body clean up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.engine.handles import CANCELLED
from durable_core.engine.starts import Parent, parent_of
from durable_core.errors import NotFound, SessionEnded
from durable_core.ids import new_id
from durable_core.model import INTERNAL, Admission, CommandKind, EventDraft, RunKind, RunStatus, ToRun
from durable_core.store import Store


async def end_run(store: Store, run_id: str, *, reason: str, events: Sequence[EventDraft]) -> bool:
    """End a run whoever owns it; False when it had ended already.

    Its parent is told before, once however often this is tried: one that is told twice heeds the first, one that nobody tells
    would wait for ever.

    Raises:
        NotFound: there is no such run.
    """
    run = await store.run(run_id)
    if run.kind is RunKind.WORKFLOW and run.status is RunStatus.OPEN:
        parent = parent_of(run.header)
        if parent is not None:
            with contextlib.suppress(NotFound, SessionEnded):
                await store.admit(_told(parent, run_id, reason))
    return await store.end(run_id, reason=reason, events=events)


async def children_of(store: Store, run_id: str) -> tuple[str, ...]:
    """Return the runs that a run started and that end with it, as its events tell; some may have ended."""
    found: list[str] = []
    start = 0
    while page := await store.events(run_id, start=start, hidden=True):
        for event in page:
            data = codec.decode(event.body) if event.type == "child.started" else None
            if isinstance(data, dict) and not data.get("detached"):
                found.append(str(data["run_id"]))
        start = page[-1].seq + 1
    return tuple(dict.fromkeys(found))


def _told(parent: Parent, child: str, reason: str) -> Admission:
    error = {"code": CANCELLED, "type": "", "message": f"it was ended: {reason}"}
    body = codec.encode({"kind": "child", "op": parent.op, "run_id": child, "ok": False, "error": error})
    return Admission(
        source=INTERNAL,
        key=f"ended:{child}",
        digest=payload_digest(body),
        on_conflict="merge",
        submission_id=new_id("sub"),
        target=ToRun(run_id=parent.run_id),
        kind=CommandKind.SIGNAL,
        body=body,
        principal=child,
    )
