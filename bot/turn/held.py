"""What a held turn does next: answers, times that have come, words that were typed, cards that can't be delivered.

What lives here: the rules of waiting, pure. What does not: what each changes (waits.py), turns that are at work (decide.py).

Whoever waits for something new (a child, say) gives it a stage, sorts it in `_sort`, and adds its time to `_timers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bot.display import quoted_note
from bot.history import ResultStatus
from bot.turn import children, signing
from bot.turn.actions import (
    Action,
    Answer,
    Closed,
    Escalate,
    Interrupt,
    Raised,
    Relay,
    Remind,
    Reroute,
    Resolve,
    Rest,
    Stop,
    Tell,
)
from bot.turn.state import FromChild, Message, Pending, Purpose, Response, Stage, Turn, Undelivered
from bot.turn.view import OnExpiry, View
from durable_core.model import PromptOutcome

MODEL_CALLS = "model_call_limit"
INPUT_TOKENS = "session_token_limit"


@dataclass(slots=True)
class _Sorted:
    """What a turn waits for, by what has become of it."""

    run: list[Pending] = field(default_factory=list)
    closed: list[Closed] = field(default_factory=list)
    settle: list[tuple[str, PromptOutcome]] = field(default_factory=list)
    raised: Raised | None = None
    stop: Stop | None = None
    moved: list[Pending] = field(default_factory=list)
    open: list[Pending] = field(default_factory=list)
    """Asked, and nobody has answered yet."""
    asleep: list[Pending] = field(default_factory=list)
    working: list[Pending] = field(default_factory=list)
    ended: list[FromChild] = field(default_factory=list)
    """The ends of runs, which closed calls."""

    @property
    def was_stopped(self) -> bool:
        """Whether all that was waited for are runs that were stopped for the person's words."""
        rest = (*self.run, *self.moved, *self.open, *self.asleep, *self.working)
        return not rest and any(closed.pending.stopping for closed in self.closed)


def held(view: View, turn: Turn, steering: tuple[Message, ...]) -> Action:
    """Choose what a turn does that waits; times that have come always lead to something."""
    known = {pending.prompt_id for pending in turn.asked}
    responses = tuple(entry for entry in view.inbox if isinstance(entry, Response) and entry.prompt_id in known)
    words = children.words_of(view, turn)
    late = None if view.begun else _too_late(view, turn, responses)
    if late is not None:
        return late
    found = _sort(view, turn, responses)
    if words and not (found.run and view.begun):  # calls that have begun end first: their records end with their step
        return Relay(words=words)
    if found.run and view.retry_at is not None and view.retry_at > view.now:
        return Rest(timer_at=view.retry_at, again=True)
    if found.run or found.closed:
        return Resolve(
            run=tuple(found.run),
            closed=tuple(found.closed),
            settle=tuple(found.settle),
            consumed=tuple(one for one in responses if found.stop is None or one not in found.stop.consumed),
            raised=found.raised,
            ended=tuple(found.ended),
            steer=steering if found.was_stopped else (),
        )
    if found.stop is not None:
        return replace(found.stop, settle=_prompts(*found.open, *found.moved))
    if found.moved:
        return Escalate(prompts=tuple(found.moved))
    return (
        _spoken(view, turn, found, steering)
        or _undelivered(view, turn)
        or _due(view, found)
        or _told(view, turn)
        or Rest(timer_at=min(_timers(view, found), default=None))
    )


def _sort(view: View, turn: Turn, responses: Sequence[Response]) -> _Sorted:
    answers = {response.prompt_id: response for response in responses}
    ends = children.ends_of(view)
    found = _Sorted()
    for pending in turn.pending:
        answer = answers.get(pending.prompt_id)
        if pending.stage is Stage.READY:
            found.run.append(pending)
        elif pending.stage is Stage.ASLEEP:
            _wake(view, pending, found)
        elif pending.child is not None:
            _worked(view, pending, ends.get(pending.child), found)
        elif answer is not None:
            _answered(view, pending, answer, found)
        elif _over(view, pending, view.now):
            _expired(view, pending, found)
        else:
            found.open.append(pending)
    return found


def _worked(view: View, pending: Pending, end: FromChild | None, found: _Sorted) -> None:
    if end is None and pending.stop_by is not None and pending.stop_by <= view.now:
        found.closed.append(children.unheard(pending))
    elif end is None:
        found.working.append(pending)
    else:
        found.closed.append(children.closed_by(pending, end))
        found.ended.append(end)


def _over(view: View, pending: Pending, at: int) -> bool:
    prompt = view.open.get(pending.prompt_id)
    return prompt is not None and prompt.expires_at is not None and prompt.expires_at <= at


def _wake(view: View, pending: Pending, found: _Sorted) -> None:
    if pending.until is None or pending.until <= view.now:
        content = f"Slept {_seconds(pending, pending.until)}."
        found.closed.append(Closed(pending=pending, status=ResultStatus.COMPLETED, content=content))
    else:
        found.asleep.append(pending)


def _seconds(pending: Pending, until: int | None) -> str:
    ms = 0 if until is None or pending.since is None else max(0, until - pending.since)
    return f"{ms / 1000:g} seconds"


def _answered(view: View, pending: Pending, answer: Response, found: _Sorted) -> None:
    who, note = answer.consent.name, answer.consent.note
    yes = answer.outcome is PromptOutcome.APPROVED
    match pending.purpose:
        case Purpose.LIMIT if yes:
            found.closed.append(Closed(pending=pending, status=ResultStatus.COMPLETED, content=""))
            found.raised = Raised(code=pending.limit, amount=max(1, _amount(view, pending)))
        case Purpose.LIMIT:
            words = f"{who} chose to stop at the limit."
            found.stop = Stop(consumed=(answer,), code=pending.limit, words=words)
        case Purpose.QUESTION:
            said = {"option": answer.label, "text": note, "by": who}
            content = {name: text for name, text in said.items() if text}
            found.closed.append(
                Closed(pending=pending, status=ResultStatus.COMPLETED, content={**content}, origin=f"tool:{pending.call.tool}")
            )
        case Purpose.SIGN_IN if yes:
            found.run.append(signing.released(pending, answer))
        case Purpose.SIGN_IN:
            found.closed.append(signing.refused(pending, answer, signing.title_of(view, pending)))
        case _ if yes:
            found.run.append(replace(pending, stage=Stage.READY, consent=answer.consent))
        case Purpose.RERUN:
            reason = f"It was cut off while it ran, and {who} chose not to run it again. {_UNKNOWN}"
            found.closed.append(Closed(pending=pending, status=ResultStatus.UNKNOWN, content=reason))
        case _:
            reason = f"{who} did not approve this call. It did not run." + (f" {quoted_note(note)}" if note else "")
            found.closed.append(Closed(pending=pending, status=ResultStatus.REJECTED, content=reason))


def _amount(view: View, pending: Pending) -> int:
    return view.limits.model_calls if pending.limit == MODEL_CALLS else view.limits.input_tokens


def _expired(view: View, pending: Pending, found: _Sorted) -> None:
    prompt = view.open[pending.prompt_id]
    if prompt.next_level is not None:
        found.moved.append(pending)
    elif pending.purpose is Purpose.LIMIT or prompt.on_expiry is OnExpiry.CANCEL:
        code = pending.limit or "expired"
        before = found.stop.expired if found.stop is not None else ()
        found.stop = Stop(expired=(*before, pending.prompt_id), code=code, words="Nobody answered in time.")
    else:
        if (pending.prompt_id, PromptOutcome.EXPIRED) not in found.settle:
            found.settle.append((pending.prompt_id, PromptOutcome.EXPIRED))
        found.closed.append(_unanswered(view, pending))


_UNKNOWN = "Whether it took effect is not known."


def _unanswered(view: View, pending: Pending) -> Closed:
    match pending.purpose:
        case Purpose.SIGN_IN:
            return signing.expired(pending, signing.title_of(view, pending))
        case Purpose.RERUN:
            reason = f"It was cut off while it ran, and nobody said in time whether to run it again. {_UNKNOWN}"
            return Closed(pending=pending, status=ResultStatus.UNKNOWN, content=reason)
        case Purpose.QUESTION:
            return Closed(pending=pending, status=ResultStatus.EXPIRED, content="Nobody answered in time.")
        case _:
            reason = "Nobody answered in time. The call did not run."
            return Closed(pending=pending, status=ResultStatus.EXPIRED, content=reason)


def waiting_after(turn: Turn, action: Resolve) -> tuple[Pending, ...]:
    """What a turn still waits for once others of its calls were released or closed."""
    gone = {one.call.call_id for one in (*action.run, *(closed.pending for closed in action.closed))}
    return tuple(one for one in turn.pending if one.call.call_id not in gone)


# ── what is typed ──


def _spoken(view: View, turn: Turn, found: _Sorted, steering: tuple[Message, ...]) -> Answer | Interrupt | Resolve | None:
    """The first message that answers or steers; what comes after it has its turn later."""
    for message in (entry for entry in view.inbox if isinstance(entry, Message)):
        if message.denied is not None or message.unjudged:
            continue
        answer = typed(view, turn, found.open, message) or _typed_to_child(turn, message)
        if answer is not None:
            return answer
        if message in steering and found.working:  # what runs is stopped and has come to its end before the words are taken in
            return children.interrupt(turn, message)
        if message in steering:
            closed = (*(_ignored(view, pending) for pending in found.open), *(_woken(view, pending) for pending in found.asleep))
            settle = tuple((prompt_id, PromptOutcome.IGNORED) for prompt_id in _prompts(*found.open))
            return Resolve(closed=closed, settle=settle, steer=steering)
    return None


def typed(view: View, turn: Turn, waiting: Sequence[Pending], message: Message) -> Answer | None:
    """The answer that a message is: to the first open prompt of its place that it is later than, or none."""
    here = (message.body.channel, message.body.address)
    for pending in waiting:
        prompt = view.open.get(pending.prompt_id) or view.answered.get(pending.prompt_id)
        asked_after = view.asked_after.get(pending.prompt_id)
        if prompt is None or asked_after is None or message.seq <= asked_after or here not in _places(turn, pending):
            continue
        chosen = option_of(prompt.options, message.body.text)
        if chosen is None and message.body.author.id not in prompt.speakers:
            return None
        return Answer(message=message, prompt_id=pending.prompt_id, option_id=chosen or "")
    return None


def _too_late(view: View, turn: Turn, responses: Sequence[Response]) -> Answer | None:
    """The answer that a message is to a prompt that was answered, or ran out, since: it must not count for the one after it."""
    answered = {response.prompt_id: response.seq for response in responses}
    for message in (entry for entry in view.inbox if isinstance(entry, Message)):
        if message.denied is not None or message.unjudged:
            continue
        there = [
            one
            for one in turn.asked
            if message.seq < answered.get(one.prompt_id, message.seq + 1) and not _over(view, one, message.at)
        ]
        answer = typed(view, turn, there, message)
        gone = {one.prompt_id for one in there if one.prompt_id in answered or _over(view, one, view.now)}
        if answer is not None and answer.prompt_id in gone:
            return answer
    return None


def _typed_to_child(turn: Turn, message: Message) -> Answer | None:
    """The answer that a message is to what a run of this turn asks, in the turn's own place."""
    if (message.body.channel, message.body.address) != (turn.channel, turn.address):
        return None
    for request in (request for pending in turn.at_work for request in pending.requests):
        if message.seq <= request.asked_after:
            continue
        chosen = option_of(request.options, message.body.text)
        if chosen is None and message.body.author.id not in request.speakers:
            return None
        return Answer(message=message, prompt_id=request.prompt_id, option_id=chosen or "")
    return None


def option_of(options: Sequence[tuple[str, str]], text: str) -> str | None:
    """The option that a text names by its id, its label or its place, and nothing else; None where it is none, or not one."""
    said = " ".join(text.split()).casefold()
    named = {
        id_
        for place, (id_, label) in enumerate(options, start=1)
        if said in (id_.casefold(), " ".join(label.split()).casefold(), str(place))
    }
    return named.pop() if len(named) == 1 else None


def _places(turn: Turn, pending: Pending) -> set[tuple[str | None, str | None]]:
    return {turn.place_of(copy) for copy in pending.cards} or {(turn.channel, turn.address)}


def _prompts(*waiting: Pending) -> tuple[str, ...]:
    """The prompts that calls wait for: several may wait for one."""
    return tuple(dict.fromkeys(pending.prompt_id for pending in waiting))


def _ignored(view: View, pending: Pending) -> Closed:
    if pending.purpose is Purpose.SIGN_IN:
        return signing.ignored(pending, signing.title_of(view, pending))
    if pending.purpose is Purpose.RERUN:
        reason = f"It was cut off while it ran, and the person wrote on instead of answering. {_UNKNOWN}"
        return Closed(pending=pending, status=ResultStatus.UNKNOWN, content=reason)
    reason = "The person wrote a new message instead of answering."
    if pending.purpose is Purpose.APPROVAL:
        reason += " The call did not run."
    return Closed(pending=pending, status=ResultStatus.REJECTED, content=reason)


def _woken(view: View, pending: Pending) -> Closed:
    content = f"Woken by a new message after {_seconds(pending, view.now)}."
    return Closed(pending=pending, status=ResultStatus.CANCELLED, content=content)


# ── cards, times, and who waits ──


def card_failed(turn: Turn, signal: Undelivered) -> tuple[Pending, ...]:
    """Who is asked by a card that can't be delivered."""
    return tuple(one for one in turn.asked if any(copy.delivery_id == signal.delivery_id for copy in one.cards))


def _undelivered(view: View, turn: Turn) -> Reroute | Resolve | None:
    for entry in view.inbox:
        prompts = card_failed(turn, entry) if isinstance(entry, Undelivered) else ()
        if isinstance(entry, Undelivered) and prompts:
            failed = next(copy for copy in prompts[0].cards if copy.delivery_id == entry.delivery_id)
            if prompts[0].purpose is Purpose.SIGN_IN:
                return signing.undelivered(view, turn, entry, failed, prompts[0])
            thread = (turn.channel, turn.address)
            in_thread = turn.place_of(failed) == thread and failed.private_to is None
            others = [copy for copy in prompts[0].cards if copy is not failed]
            there = any(turn.place_of(copy) == thread and copy.private_to is None for copy in others)
            stays = thread == (None, None) or there or failed.plain or failed.private_to is not None
            to = None if stays else "text" if in_thread else "thread"
            return Reroute(signal=entry, prompts=prompts, failed=failed, to=to)
    return None


def _due(view: View, found: _Sorted) -> Remind | None:
    due = {
        pending.prompt_id: pending
        for pending in reversed(found.open)
        if (prompt := view.open.get(pending.prompt_id)) is not None
        and prompt.remind_at is not None
        and prompt.remind_at <= view.now
    }
    return Remind(prompts=tuple(reversed(due.values()))) if due else None


def _told(view: View, turn: Turn) -> Tell | None:
    """Messages of others who don't know yet that they wait, the first of each person."""
    found: dict[str, Message] = {}
    for entry in view.inbox:
        if not isinstance(entry, Message) or entry.denied is not None or entry.unjudged or entry.body.address is None:
            continue
        who = entry.body.author
        if not who.anonymous and who.id != turn.requester.id and who.id not in turn.told:
            found.setdefault(who.id, entry)
    return Tell(messages=tuple(found.values())) if found else None


def _timers(view: View, found: _Sorted) -> list[int]:
    prompts = [view.open[pending.prompt_id] for pending in found.open if pending.prompt_id in view.open]
    times = [at for prompt in prompts for at in (prompt.expires_at, prompt.remind_at)]
    times += [pending.until for pending in found.asleep]
    times += [pending.stop_by for pending in found.working]
    return [at for at in times if at is not None]
