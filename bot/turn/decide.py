"""What a session does next: a pure function of its state and its inbox.

What lives here: the rules of steering, queueing, cancelling, waiting and expiry. What does not: doing any of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from bot.history import ResultStatus
from bot.turn.state import Cancel, Message, Pending, Purpose, Response, Stage, Turn, TurnPolicy, View
from durable_core.model import PromptOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Nothing to do until input comes, or until a time."""

    timer_at: int | None = None
    again: bool = False
    """A step that has begun waits to be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Messages of people who may not speak here."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismiss:
    """Input that is about nothing any more: answers of a turn that ended, cancels without a turn."""

    inputs: tuple[Response | Cancel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Start a turn with these messages of one person."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """Ask the model, then run the calls it asks for that need nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A waiting call that ends without running."""

    pending: Pending
    status: ResultStatus
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Run what was released, close what was refused or ran out, take in what steers."""

    run: tuple[Pending, ...] = ()
    closed: tuple[Closed, ...] = ()
    settle: tuple[tuple[str, PromptOutcome], ...] = ()
    steer: tuple[Message, ...] = ()
    consumed: tuple[Response, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Cancel the turn, and the prompts that nobody has answered."""

    cancel: Cancel
    settle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """End the turn as failed, and cancel the prompts that nobody has answered."""

    code: str
    message: str
    settle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the session."""

    reason: str


Action: TypeAlias = Rest | Refuse | Dismiss | Open | Think | Resolve | Stop | Fail | End


def decide(view: View) -> Action:
    """Choose the next action; the same view always gives the same one.

    Refusing and dismissing are steps of their own, and a step's records end with it: neither may come between a step that
    has begun and its end, or a paid reply would be asked for again and a started call run again.
    """
    turn = view.state.turn
    if turn is None:
        return _idle(view)
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


def _aside(view: View, turn: Turn | None) -> Refuse | Dismiss | None:
    """What is not for this turn and can be settled at once."""
    denied = _denied(view)
    if denied:
        return Refuse(messages=denied)
    known = {pending.prompt_id for pending in turn.pending} if turn is not None else set()
    stale = tuple(
        entry
        for entry in view.inbox
        if (isinstance(entry, Response) and entry.prompt_id not in known) or (isinstance(entry, Cancel) and turn is not None)
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
        known = {pending.prompt_id for pending in turn.pending}
        responses = tuple(entry for entry in view.inbox if isinstance(entry, Response) and entry.prompt_id in known)
        return _held(view, turn, responses, steering)
    if steering and not view.replied:
        return Resolve(steer=steering)
    if view.retry_at is not None and view.retry_at > view.now:
        return Rest(timer_at=view.retry_at)
    if turn.model_calls >= view.limits.model_calls and not view.replied:
        return Fail(code="model_call_limit", message=f"the turn used its {view.limits.model_calls} model calls")
    if view.state.input_tokens >= view.limits.input_tokens and not view.replied:
        return Fail(code="session_token_limit", message=f"the session used its {view.limits.input_tokens} input tokens")
    return Think()


def steering_of(view: View, turn: Turn) -> tuple[Message, ...]:
    """The requester's own messages; a queued one only while a person is asked, and only if it is later than the question."""
    asked = [view.asked_after.get(pending.prompt_id, 0) for pending in turn.asked]
    return tuple(
        message
        for message in _messages(view)
        if message.denied is None
        and not message.unjudged
        and not turn.requester.anonymous
        and message.body.author.id == turn.requester.id
        and (message.body.turn_policy is TurnPolicy.STEER or any(message.seq > seq for seq in asked))
    )


def _unanswered(view: View, turn: Turn) -> tuple[str, ...]:
    """The prompts that are still open: an answered one was settled with its answer."""
    answered = {entry.prompt_id for entry in view.inbox if isinstance(entry, Response)}
    return tuple(pending.prompt_id for pending in turn.asked if pending.prompt_id not in answered)


def _held(view: View, turn: Turn, responses: tuple[Response, ...], steering: tuple[Message, ...]) -> Action:
    answers = {response.prompt_id: response for response in responses}
    run: list[Pending] = []
    closed: list[Closed] = []
    settle: list[tuple[str, PromptOutcome]] = []
    open_: list[Pending] = []
    for pending in turn.pending:
        answer = answers.get(pending.prompt_id)
        if pending.stage is Stage.READY:
            run.append(pending)
        elif answer is not None:
            released = _answered(pending, answer)
            (run if isinstance(released, Pending) else closed).append(released)  # type: ignore[arg-type]
        elif _over(view.expiries.get(pending.prompt_id), view.now):
            settle.append((pending.prompt_id, PromptOutcome.EXPIRED))
            closed.append(_expired(pending))
        else:
            open_.append(pending)
    if run and view.retry_at is not None and view.retry_at > view.now:
        return Rest(timer_at=view.retry_at, again=True)
    if run or closed:
        return Resolve(run=tuple(run), closed=tuple(closed), settle=tuple(settle), consumed=responses)
    if steering:
        return Resolve(
            closed=tuple(_ignored(pending) for pending in open_),
            settle=tuple((pending.prompt_id, PromptOutcome.IGNORED) for pending in open_),
            steer=steering,
        )
    ends = [at for pending in open_ if (at := view.expiries.get(pending.prompt_id)) is not None]
    return Rest(timer_at=min(ends, default=None))


def _over(expires_at: int | None, now: int) -> bool:
    return expires_at is not None and expires_at <= now


def _answered(pending: Pending, answer: Response) -> Pending | Closed:
    who, note = answer.consent.name, answer.consent.note
    if answer.outcome is PromptOutcome.APPROVED:
        return replace(pending, stage=Stage.READY, consent=answer.consent)
    if pending.purpose is Purpose.RERUN:
        reason = f"It was cut off while it ran, and {who} chose not to run it again. Whether it took effect is not known."
        return Closed(pending=pending, status=ResultStatus.UNKNOWN, reason=reason)
    reason = f"{who} did not approve this call. It did not run." + (f" {quoted_note(note)}" if note else "")
    return Closed(pending=pending, status=ResultStatus.REJECTED, reason=reason)


def _expired(pending: Pending) -> Closed:
    if pending.purpose is Purpose.RERUN:
        reason = (
            "It was cut off while it ran, and nobody said in time whether to run it again. Whether it took effect is not known."
        )
        return Closed(pending=pending, status=ResultStatus.UNKNOWN, reason=reason)
    return Closed(pending=pending, status=ResultStatus.EXPIRED, reason="Nobody answered in time. The call did not run.")


def _ignored(pending: Pending) -> Closed:
    if pending.purpose is Purpose.RERUN:
        reason = "It was cut off while it ran, and the person wrote on instead of answering. Whether it took effect is not known."
        return Closed(pending=pending, status=ResultStatus.UNKNOWN, reason=reason)
    return Closed(
        pending=pending,
        status=ResultStatus.REJECTED,
        reason="The person wrote a new message instead of answering. The call did not run.",
    )


def quoted_note(note: str) -> str:
    """Quote the words that came with an answer; forgetting somebody finds them by this form."""
    return f'Their note: "{note}"'
