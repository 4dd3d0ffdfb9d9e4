"""Forgetting: a session with all it holds, or a person with all they wrote and what is theirs in the vault.

What lives here: finding what is to go, and in which order. What does not: deleting and sealing (durable_core), how a session's
rows spell a person's words (redaction.py), the command (housekeeping.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from bot.ending import end_session
from bot.redaction import all_events, is_needed, words_of
from durable_core import codec
from durable_core.engine.ending import end_run
from durable_core.engine.signals import cancel_admission
from durable_core.errors import ContentGone, NotFound, SessionEnded
from durable_core.model import EventDraft, Run, RunKind, RunStatus, VaultWrite
from durable_core.store import Store

REASON = "forgotten"
SEND_SECONDS = 10.0
"""How long what an ended session still owes, such as cards that lose their buttons, may take to be sent."""
_PASSES = 5
"""A step that was committed between reading and redacting is found by the next pass; after the first one none is."""

_PAGE = 500

_ANYWHERE = """
    SELECT run_id FROM moor_run WHERE purged_at IS NULL AND run_id IN (
        SELECT run_id FROM moor_run WHERE creator = :principal
        UNION SELECT run_id FROM moor_participant WHERE principal = :principal
        UNION SELECT run_id FROM moor_command WHERE principal = :principal
        UNION SELECT run_id FROM moor_prompt WHERE settled_by = :principal
        UNION SELECT run_id FROM moor_interaction WHERE principal = :principal)
    ORDER BY run_id
"""
_WRITES = """
    SELECT 1 FROM moor_run WHERE run_id = :run_id AND creator = :principal
    UNION ALL SELECT 1 FROM moor_participant WHERE run_id = :run_id AND principal = :principal
    UNION ALL SELECT 1 FROM moor_command WHERE run_id = :run_id AND kind = 'message' AND principal = :principal
    LIMIT 1
"""
_OTHERS = """
    SELECT 1 FROM moor_run WHERE run_id = :run_id AND creator <> :principal
    UNION ALL SELECT 1 FROM moor_participant WHERE run_id = :run_id AND principal <> :principal
    UNION ALL SELECT 1 FROM moor_command WHERE run_id = :run_id AND kind = 'message' AND principal <> :principal
    LIMIT 1
"""
_ENDED = "SELECT 1 FROM moor_run WHERE run_id = :run_id AND status = 'ended'"
_SENT = """
    SELECT 1 FROM moor_run WHERE run_id = :run_id
        AND NOT EXISTS (SELECT 1 FROM moor_outbox WHERE run_id = :run_id AND state = 'pending')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Where somebody's words are."""

    alone: tuple[str, ...]
    """Sessions that nobody else wrote in: they go as a whole."""
    shared: tuple[str, ...]
    """Sessions with others, where they wrote or answered."""
    entries: tuple[str, ...] = ()
    """What is theirs in the vault, such as accounts they have connected, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What forgetting somebody did."""

    sessions: tuple[str, ...]
    """Deleted as a whole."""
    redacted: dict[str, int]
    """Sessions with others, and how many stored values there lost this person's words."""
    entries: int = 0
    """What was theirs in the vault."""
    needed: tuple[str, ...] = ()
    """Workflow runs of others that go on and need what they answered: forget them again once those have ended."""


async def forget_session(store: Store, session_id: str, *, by: str, seconds: float = SEND_SECONDS) -> bool:
    """End a session if it is open, then drop its key and its content; False when that was done before.

    What it still owes gets a moment to be sent, so that posted cards lose their buttons. A workflow run is treated alike, with
    what it started; it is cancelled first, so that whoever waits for it hears of it. Raises: NotFound.
    """
    run = await store.run(session_id)
    if run.purged_at is not None:
        return False
    started = await _started(store, run)
    if run.status is RunStatus.OPEN and run.kind is RunKind.WORKFLOW:
        with contextlib.suppress(SessionEnded):
            await store.admit(cancel_admission(session_id, reason=REASON, by=by))
        await _until(store, _ENDED, session_id, seconds)
    if run.kind is RunKind.SESSION:
        await end_session(store, run, reason=REASON, by=by)
    else:
        ended = EventDraft(type=f"run.{REASON}", body=codec.encode({"by": by}))
        await end_run(store, session_id, reason=REASON, events=[ended])
    await _until(store, _SENT, session_id, seconds)
    forgotten = await store.forget(session_id)
    for child in started:
        with contextlib.suppress(NotFound):
            await forget_session(store, child, by=by, seconds=seconds)
    return forgotten


async def _started(store: Store, run: Run) -> list[str]:
    """Return the runs that a run has started."""
    kinds = ("child.started", "task.started")
    started = [codec.decode(event.body) async for event in all_events(store, run.run_id) if event.type in kinds]
    return [str(data["run_id"]) for data in started if isinstance(data, dict)]


async def traces(store: Store, principal: str) -> Traces:
    """Find all sessions that hold something of somebody; those whose content is gone are left out."""
    alone: list[str] = []
    shared: list[str] = []
    for (found,) in await store.rows(_ANYWHERE, {"principal": principal}):
        run_id = str(found)
        here: dict[str, str | int | bytes | None] = {"run_id": run_id, "principal": principal}
        mine = await store.rows(_WRITES, here) and not await store.rows(_OTHERS, here)
        (alone if mine else shared).append(run_id)
    return Traces(alone=tuple(alone), shared=tuple(shared), entries=tuple(await _owned(store, principal)))


async def forget_principal(store: Store, principal: str, *, by: str, seconds: float = SEND_SECONDS) -> Forgotten:
    """Forget sessions that only they wrote in, and in the others take out their words; doing it again finds nothing more.

    Workers may go on meanwhile: a step that was begun with the words is refused and decided anew without them.
    """
    found = await traces(store, principal)
    entries = await _empty(store, principal)
    gone = [run_id for run_id in found.alone if await forget_session(store, run_id, by=by, seconds=seconds)]
    redacted: dict[str, int] = {}
    needed: list[str] = []
    for run_id in found.shared:
        changed = await _redact(store, run_id, principal, by=by)
        if changed:
            redacted[run_id] = changed
        needed += [run_id] if await is_needed(store, run_id, principal) else []
    return Forgotten(sessions=tuple(gone), redacted=redacted, entries=entries, needed=tuple(needed))


async def _owned(store: Store, principal: str) -> list[str]:
    """Return the names of what is theirs in the vault."""
    names: list[str] = []
    while page := await store.vault_list(owner=principal, after=names[-1] if names else "", limit=_PAGE):
        names += [entry.name for entry in page]
    return names


async def _empty(store: Store, principal: str) -> int:
    """Delete what is theirs in the vault until nothing is; whoever was about to write an entry anew finds none."""
    gone = 0
    while names := await _owned(store, principal):
        for name in names:
            await store.vault_write((VaultWrite(name=name, value=None),))
        gone += len(names)
    return gone


async def _redact(store: Store, run_id: str, principal: str, *, by: str) -> int:
    """Take out somebody's words until a pass finds none."""
    told = EventDraft(type="content.redacted", body=codec.encode({"principal": principal, "by": by}), visible=False)
    total = 0
    try:
        for _ in range(_PASSES):
            changed = await store.redact(run_id, await words_of(store, run_id, principal), events=(told,))
            total += changed
            if not changed:
                break
    except ContentGone:  # its retention was over meanwhile
        pass
    return total


async def _until(store: Store, sql: str, run_id: str, seconds: float) -> None:
    """Wait until a statement about a run finds something, but not longer than that."""
    changed = asyncio.Event()
    unwatch = store.watch(lambda _: changed.set())
    try:
        async with asyncio.timeout(seconds):
            while True:
                changed.clear()
                if await store.rows(sql, {"run_id": run_id}):
                    return
                await changed.wait()
    except TimeoutError:
        return
    finally:
        unwatch()
