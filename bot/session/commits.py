"""From a change to the transaction that makes it durable, and the live session after it.

What lives here: encoding and minting. What does not: building changes (bot/turn/), SQL (durable_core).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from bot.history import to_json
from bot.participants import join_session
from bot.session.fitting import without_largest
from bot.session.live import Judge, LiveSession
from bot.turn.actions import Rest
from bot.turn.change import Change, Draft, Post
from bot.turn.decide import decide
from bot.turn.state import Limits, Turn, state_to_json
from bot.turn.view import OpenPrompt, moved, open_prompt
from durable_core import codec
from durable_core.errors import TooLarge
from durable_core.failpoints import hit
from durable_core.ids import new_id
from durable_core.internal import child_cancel
from durable_core.model import (
    CommandKind,
    Committed,
    EventDraft,
    Move,
    OutboxDraft,
    PromptDraft,
    PromptSettlement,
    StepCommit,
    StepDraft,
    SubmissionOutcome,
)
from durable_core.retry import surely

if TYPE_CHECKING:
    from durable_core.store import Store

log = logging.getLogger("moorings.session")


def event_draft(draft: Draft) -> EventDraft:
    """Encode an event."""
    return EventDraft(type=draft.type, body=codec.encode(draft.data, limit=codec.MOST), refs=draft.refs, visible=draft.visible)


async def commit(
    store: Store, session: LiveSession, change: Change, *, limits: Limits, judge: Judge, move: Move | None = None
) -> bool:
    """Make a change durable and take it over; True when the session was given back since nothing is left to do.

    Raises: LeaseLost, PromptTaken or Redacted (nothing was written: refresh and decide anew), Unavailable.
    """
    before = session.state.turn
    rest = _after(session, change, limits)
    change, made = _fitting(session, change, before, rest, move)
    committed = await surely(lambda: store.commit(made))
    _take_over(session, change, committed)
    if move is not None:
        ends = None if move.lifetime_ms is None else committed.now + move.lifetime_ms
        session.held.claim = replace(session.held.claim, deployment=move.deployment, deadline_at=ends)
    if change.kind == "open":
        hit("open_turn.after_commit")
    if rest is not None and change.prompts:
        hit("park.after_commit")
    if rest is None and change.end is None:
        if any(command.kind is CommandKind.RESPONSE for command in committed.commands):
            # who answered, and with what note, stands on the prompt
            await session.take_in(await store.refresh(session.run_id, session.epoch), judge)
        else:
            await session.take_commands(committed.commands, {}, judge, turn=before or change.state.turn)
            session.seen = max(session.seen, committed.signals.inbox_seq)
    return rest is not None or change.end is not None


def _fitting(
    session: LiveSession, change: Change, before: Turn | None, rest: Rest | None, move: Move | None
) -> tuple[Change, StepCommit]:
    """Encode a change; results that are too large together give way, the largest first. Raises: TooLarge."""
    while True:
        try:
            return change, _step_commit(session, change, before, rest, move)
        except TooLarge:
            smaller = without_largest(change)
            if smaller is None:
                raise
            log.warning("%s: a step's results are too large together; the largest gives way", session.run_id)
            change = smaller


def _after(session: LiveSession, change: Change, limits: Limits) -> Rest | None:
    """Whether nothing is left to do once the change is made: then the run is released in the same transaction."""
    gone = set(change.consumed)
    probe = LiveSession(held=session.held, history=[], state=change.state, step_no=session.step_no + 1, now=session.now)
    probe.inbox = {seq: entry for seq, entry in session.inbox.items() if seq not in gone}
    probe.open = _open_after(session, change)
    probe.asked_after = {**session.asked_after, **{prompt.prompt_id: session.seen for prompt in change.prompts}}
    action = decide(probe.view(limits))
    return action if isinstance(action, Rest) and not probe.unjudged else None


def _open_after(session: LiveSession, change: Change) -> dict[str, OpenPrompt]:
    """The prompts that are open once a change is made."""
    settled = {prompt_id for prompt_id, _ in change.settle}
    found = {prompt_id: prompt for prompt_id, prompt in session.open.items() if prompt_id not in settled}
    for prompt in change.prompts:
        found[prompt.prompt_id] = open_prompt(
            prompt.body,
            expires_at=prompt.expires_at,
            remind_at=prompt.remind_at,
            policy=prompt.policy,
            answerers=prompt.answerers,
            asked=prompt.asked,
        )
    for update in change.updates:
        if update.prompt_id in found:
            found[update.prompt_id] = moved(found[update.prompt_id], update)
    return found


def _step_commit(session: LiveSession, change: Change, before: Turn | None, rest: Rest | None, move: Move | None) -> StepCommit:
    after = change.state.turn
    turn = after or before
    output: dict[str, JsonValue] = {
        "items": [to_json(item) for item in change.items],
        "state": state_to_json(change.state),
    }
    given: dict[str, JsonValue] = {
        "history": len(session.history),
        "commands": list(change.consumed),
        "turn_id": turn.turn_id if turn is not None else None,
        "step_index": before.step_index if before is not None else None,
    }
    return StepCommit(
        run_id=session.run_id,
        epoch=session.epoch,
        step_n=session.step_no,
        step=StepDraft(
            kind=change.kind,
            name=session.held.claim.name,
            input=codec.encode(given),
            output=codec.encode(output, limit=codec.MOST),
        ),
        seen=session.seen,
        consumed=change.consumed,
        turn_id=after.turn_id if after is not None else None,
        link_turn=change.link_turn,
        outcomes=tuple(
            SubmissionOutcome(
                submission_id=ended.submission_id,
                outcome=ended.outcome,
                detail=codec.encode(ended.detail) if ended.detail is not None else None,
                reply_step=session.step_no if ended.replied else None,
            )
            for ended in change.outcomes
        ),
        events=tuple(event_draft(draft) for draft in change.events),
        outbox=(
            *(draft for post in change.posts if (draft := _outbox(post, turn)) is not None),
            *(child_cancel(run_id) for run_id in change.cancels),
        ),
        starts=change.starts,
        prompts=tuple(
            PromptDraft(
                prompt_id=prompt.prompt_id,
                kind=prompt.purpose.value,
                call_id=prompt.call.call_id or None,
                body=codec.encode(prompt.body, limit=codec.MOST),
                requester=turn.requester.id if turn is not None else "",
                policy=prompt.policy,
                expires_at=prompt.expires_at,
                quorum=prompt.quorum,
                answerers=prompt.answerers,
                asked=prompt.asked or str(prompt.body.get("waiting_for", "")),
                remind_at=prompt.remind_at,
                group=prompt.group,
            )
            for prompt in change.prompts
        ),
        updates=change.updates,
        settle=tuple(PromptSettlement(prompt_id=prompt_id, outcome=outcome) for prompt_id, outcome in change.settle),
        move=move,
        phase=change.phase,
        timer_at=rest.timer_at if rest is not None else None,
        release=rest is not None,
        redactions=session.redactions,
        end=change.end,
        extra=tuple(join_session(session.run_id, principal, session.now) for principal in change.participants),
    )


def _outbox(post: Post, turn: Turn | None) -> OutboxDraft | None:
    channel = post.channel or (turn.channel if turn is not None else None)
    address = post.address or (turn.address if turn is not None else None)
    if channel is None or address is None:
        return None
    return OutboxDraft(
        delivery_id=post.delivery_id if post.delivery_id is not None and post.edit_of is None else new_id("dlv"),
        channel=channel,
        address=address,
        body=codec.encode(post.body),
        prompt_id=post.prompt_id,
        edit_of=post.edit_of,
    )


def _take_over(session: LiveSession, change: Change, committed: Committed) -> None:
    session.history.extend(change.items)
    session.state = change.state
    session.step_no = committed.step_no
    session.now = committed.now
    session.worked = True
    session.announced = False
    session.attempt = 1
    session.charged = 0
    session.last_error = None
    session.retry_at = None
    session.records = {}
    session.unstarted = set()
    for seq in change.consumed:
        session.inbox.pop(seq, None)
    session.open = _open_after(session, change)
    session.asked_after.update({prompt.prompt_id: committed.signals.inbox_seq for prompt in change.prompts})
