"""What a session does next: a pure function of its state and its inbox.

What lives here: the rules of starting, steering, queueing, cancelling and limits. What does not: waiting (held.py), doing.
"""

from __future__ import annotations

from dataclasses import replace

from bot.turn.actions import Action, Answer, AskLimit, Dismiss, End, Fail, Open, Refuse, Resolve, Rest, Stop, Think
from bot.turn.children import is_stale
from bot.turn.held import INPUT_TOKENS, MODEL_CALLS, card_failed, held
from bot.turn.state import Cancel, FromChild, Message, Response, Turn, TurnPolicy, Undelivered
from bot.turn.view import Answering, View


def decide(view: View) -> Action:
    """Choose the next action; the same view always gives the same one.

    Refusing and dismissing are steps of their own, and a step's records end with it: neither may come between a step that
    has begun and its end, or a paid reply would be asked for again and a started call run again.
    """
    turn = view.state.turn
    if turn is None:
        return _idle(view)
    if view.answering is not None and view.exhausted is None:  # what it was taken for stands, whatever came in since
        return _again(view, turn, view.answering)
    cancels = tuple(entry for entry in view.inbox if isinstance(entry, Cancel))
    mine = tuple(cancel for cancel in cancels if cancel.turn_id in (None, turn.turn_id))
    if mine:
        return Stop(cancel=mine[0], settle=_unanswered(view, turn))
    action = _busy(view, turn)
    waits = isinstance(action, Rest) and bool(turn.pending) and not action.again
    if waits or not (view.begun or isinstance(action, Fail)):
        return _aside(view, turn) or action
    return action


def interrupts(view: View, *, steering: bool) -> bool:
    """Whether something came in for which the step that runs gives up what it does; ``steering`` says that words may, too."""
    action = decide(replace(view, begun=True))
    return isinstance(action, Stop) or (steering and isinstance(action, Resolve) and bool(action.steer))


def _again(view: View, turn: Turn, answering: Answering) -> Action:
    """Give the answer that the pending step has begun to give; its message is there until the step ends."""
    message = next((entry for entry in _messages(view) if entry.seq == answering.seq), None)
    if message is None:
        return _busy(view, turn)
    return Answer(message=message, prompt_id=answering.prompt_id, option_id=answering.option_id)


def _aside(view: View, turn: Turn | None) -> Refuse | Dismiss | None:
    """What is not for this turn and can be settled at once."""
    denied = _denied(view)
    if denied:
        return Refuse(messages=denied)
    known = {pending.prompt_id for pending in turn.asked} if turn is not None else set()
    stale = tuple(
        entry
        for entry in view.inbox
        if (isinstance(entry, Response) and entry.prompt_id not in known)
        or (isinstance(entry, Cancel) and turn is not None)
        or (isinstance(entry, Undelivered) and (turn is None or not card_failed(turn, entry)))
        or (isinstance(entry, FromChild) and is_stale(turn, entry))
    )
    return Dismiss(inputs=stale) if stale else None


def _denied(view: View) -> tuple[Message, ...]:
    return tuple(message for message in _messages(view) if message.denied is not None)


def _messages(view: View) -> tuple[Message, ...]:
    return tuple(entry for entry in view.inbox if isinstance(entry, Message))


def _idle(view: View) -> Action:
    aside = _aside(view, None)
    if aside is not None:
        return aside
    cancel = next((entry for entry in view.inbox if isinstance(entry, Cancel)), None)
    messages = _messages(view)
    if cancel is not None:
        # of a turn that is over; or it came after a message whose turn has not begun, and stops that turn then
        messages = tuple(message for message in messages if message.seq < cancel.seq and cancel.turn_id is None)
        if not messages:
            return Dismiss(inputs=(cancel,))
    elif view.deadline_at is not None and view.deadline_at <= view.now:
        # what came in time is answered, even if no worker had a moment for it
        messages = tuple(message for message in messages if message.at < view.deadline_at)
        if not messages:
            return End(reason="expired")
    ready = _ready(messages)
    return Open(messages=_fold(ready, view.limits.folded_messages)) if ready else Rest()


def _ready(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages up to the first whose author's access is not known yet: none overtakes it."""
    unknown = next((place for place, message in enumerate(messages) if message.unjudged), len(messages))
    return messages[:unknown]


def _fold(messages: tuple[Message, ...], most: int) -> tuple[Message, ...]:
    """Join the first message with those right after it of the same person to the same place; anonymous ones stay alone."""
    first = messages[0]
    count = 1
    while count < min(len(messages), most) and _same_voice(messages[count], first):
        count += 1
    return messages[:count]


def _same_voice(message: Message, first: Message) -> bool:
    ours, theirs = message.body, first.body
    same = (ours.author, ours.place, ours.channel, ours.address) == (theirs.author, theirs.place, theirs.channel, theirs.address)
    return same and not theirs.author.anonymous


def _busy(view: View, turn: Turn) -> Action:
    if view.exhausted is not None:
        return Fail(code="attempts_exhausted", message=view.exhausted, settle=_unanswered(view, turn))
    steering = steering_of(view, turn)
    if turn.pending:
        return held(view, turn, steering)
    if steering and not view.replied:
        return Resolve(steer=steering)
    if view.retry_at is not None and view.retry_at > view.now:
        return Rest(timer_at=view.retry_at)
    return (None if view.replied else _limit(view, turn)) or Think()


def _limit(view: View, turn: Turn) -> AskLimit | Fail | None:
    """Why the model may not be asked, and what then: somebody is asked, where there is somebody to ask."""
    calls, tokens = view.limits.model_calls + turn.extra_calls, view.limits.input_tokens + view.state.extra_tokens
    if turn.model_calls >= calls:
        code, reached = MODEL_CALLS, f"the turn used its {calls} model calls"
    elif view.state.input_tokens >= tokens:
        code, reached = INPUT_TOKENS, f"the session used its {tokens} input tokens"
    else:
        return None
    return Fail(code=code, message=reached) if turn.address is None else AskLimit(code=code, reached=reached)


def steering_of(view: View, turn: Turn) -> tuple[Message, ...]:
    """The requester's own messages; a queued one only while a person is asked, and only if it is later than the question.

    One that a run was stopped for steers, whatever became of the question meanwhile.
    """
    asked = [view.asked_after.get(pending.prompt_id, 0) for pending in turn.asked]
    asked += [request.asked_after for pending in turn.at_work for request in pending.requests]
    stopped_for = {pending.stopped_for for pending in turn.at_work}
    return tuple(
        message
        for message in _messages(view)
        if message.denied is None
        and not message.unjudged
        and not turn.requester.anonymous
        and message.body.author.id == turn.requester.id
        and (
            message.body.turn_policy is TurnPolicy.STEER or message.seq in stopped_for or any(message.seq > seq for seq in asked)
        )
    )


def _unanswered(view: View, turn: Turn) -> tuple[str, ...]:
    """The prompts that are still open: an answered one was settled with its answer."""
    answered = {entry.prompt_id for entry in view.inbox if isinstance(entry, Response)}
    return tuple(dict.fromkeys(pending.prompt_id for pending in turn.asked if pending.prompt_id not in answered))
