"""What comes next for a body: the next completion among commands, attempts, timers and what the engine itself gives.

What lives here: the order of completions, and what each is made of. What does not: delivering and writing them (runner.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from durable_core import codec, internal
from durable_core.engine import formats
from durable_core.engine.live import Asked, Live, is_start
from durable_core.engine.signals import HOOK, new_token
from durable_core.engine.steps import Attempted, Tries
from durable_core.failures import HookTaken
from durable_core.model import Command, CommandKind, Prompt, PromptOutcome, PromptSettlement
from durable_core.operations import EntryKind, OpKind

NOTHING: bytes = codec.encode({"ok": True, "value": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """An entry to be: what is written, what the body is told, which commands it uses up."""

    kind: EntryKind
    op: str = ""
    ok: bool = True
    output: bytes = NOTHING
    told: dict[str, Any] | None = None
    """The output read again, where that is at hand."""
    at: int | None = None
    """Not before this time by the body's clock."""
    consumed: tuple[int, ...] = ()
    settle: tuple[PromptSettlement, ...] = ()
    reminds: Asked | None = None
    """The question that people are reminded of."""
    addresses: tuple[tuple[str, str], ...] = ()
    about: Mapping[str, codec.Storable] = field(default_factory=dict)
    """What its event says beside the operation."""

    @property
    def comes_again(self) -> bool:
        """Whether it comes as it is once more where it wasn't written: all but attempts of steps do."""
        return self.kind not in {EntryKind.STEP, EntryKind.FAILED}

    @property
    def prompts(self) -> tuple[str, ...]:
        """The questions whose end, or whose reminder, it is."""
        return (*(one.prompt_id for one in self.settle), *((self.reminds.prompt_id,) if self.reminds is not None else ()))


def next_completion(live: Live, public_url: str | None) -> Completion | None:
    """Return what the body is told next; None when nothing has happened. Answers are left to `next_answer`."""
    found = _cancel(live) or _hook_taken(live) or _command(live) or _attempt(live) or _webhook(live, public_url)
    if found is not None:
        return found
    now = live.now()
    return _same_child(live) or _due(live, now) or _reminder(live, now)


def read_command(live: Live, command: Command) -> dict[str, Any]:
    """Read what came in. Raises: Stranded."""
    return formats.read(formats.Kind.COMMAND, command.body, run_id=live.run_id)


def unanswered(live: Live) -> Command | None:
    """Return an answer whose prompt was not read yet."""
    for command in live.inbox.values():
        if command.kind is CommandKind.RESPONSE and read_command(live, command)["prompt_id"] not in live.settled:
            return command
    return None


def stale(live: Live) -> list[int]:
    """Return commands that lead to nothing any more; the next commit uses them up."""
    return [command.seq for command in live.inbox.values() if _is_stale(live, command)]


def _is_stale(live: Live, command: Command) -> bool:
    if command.kind is CommandKind.CANCEL:
        return live.cancel_at is not None
    if command.kind is CommandKind.RESPONSE:
        prompt = live.settled.get(read_command(live, command)["prompt_id"])
        return prompt is not None and prompt.call_id not in live.wanted
    if command.kind is CommandKind.SIGNAL and command.principal in live.wants.results:  # a child is told of once
        body = read_command(live, command)
        return body["kind"] == "child" and body["run_id"] in live.wants.results
    return False


# ── commands ──


def _cancel(live: Live) -> Completion | None:
    if live.cancel_at is not None:
        return None
    for command in live.inbox.values():
        if command.kind is CommandKind.CANCEL:
            about = {"reason": str(read_command(live, command).get("reason", "")), "by": command.principal}
            output = codec.encode({"ok": True, "value": about})
            return Completion(kind=EntryKind.CANCEL, output=output, consumed=(command.seq,), about=about)
    return None


def _command(live: Live) -> Completion | None:
    for seq in sorted(live.inbox):
        if not is_start(live.inbox[seq]) and (completion := _completion(live, live.inbox[seq])) is not None:
            return completion
    return None


def _completion(live: Live, command: Command) -> Completion | None:
    """Return what a command leads to; None where nobody waits for it any more."""
    match command.kind:
        case CommandKind.RESPONSE:
            return _answer(live, command)
        case CommandKind.SIGNAL:
            body = read_command(live, command)
            if body["kind"] != "child":
                return _signal(live, command, body)
            return None if body["run_id"] in live.wants.results else _child(live, command, body)
        case CommandKind.CANCEL if live.cancel_at is None:
            return _cancel(live)
        case _:
            return None


def _answer(live: Live, command: Command) -> Completion | None:
    prompt = live.settled.get(read_command(live, command)["prompt_id"])
    if prompt is None or prompt.call_id not in live.wanted:
        return None
    note = formats.read(formats.Kind.NOTE, prompt.note, run_id=live.run_id) if prompt.note is not None else {}
    value = {
        "option_id": prompt.option_id or None,
        "text": note.get("text"),
        "by": prompt.settled_name or None,
        "name": note.get("name") or prompt.settled_name or None,
        "prompt_id": prompt.prompt_id,
    }
    output = codec.encode({"ok": True, "value": value})
    op, about = prompt.call_id or "", about_answer(prompt)
    return Completion(kind=EntryKind.ANSWER, op=op, output=output, consumed=(command.seq,), about=about)


def about_answer(prompt: Prompt) -> dict[str, Any]:
    """Say how a settled question was settled."""
    outcome = prompt.outcome or PromptOutcome.ANSWERED
    return {
        "request_id": prompt.prompt_id,
        "outcome": outcome.value,
        "option_id": prompt.option_id,
        "by": prompt.settled_name,
    }


def _signal(live: Live, command: Command, body: dict[str, Any]) -> Completion:
    name = live.tokens.get(body["name"], body["name"])
    output = codec.encode({"ok": True, "value": body["body"]})
    return Completion(
        kind=EntryKind.SIGNAL, op=f"{OpKind.SIGNAL.value}:{name}", output=output, consumed=(command.seq,), about={"name": name}
    )


def _child(live: Live, command: Command, body: dict[str, Any]) -> Completion:
    """Return the end of a child. One that nobody waits for is kept all the same: its key may be asked for again."""
    op = live.wants.waiting_for(body["run_id"])
    shown = "value" if body["ok"] else "error"
    output = codec.encode({"ok": body["ok"], shown: body[shown], "run_id": body["run_id"]})
    return _child_ended(body["op"] if op is None else op.id, body["run_id"], output, (command.seq,))


def _same_child(live: Live) -> Completion | None:
    """Give a further operation with the same key what its child came to before."""
    for op in live.wants.known.values():
        if op.child is not None and op.id in live.wants.written:
            return _child_ended(op.id, op.child.run_id, live.wants.results[op.child.run_id])
    return None


def _child_ended(op: str, run_id: str, output: bytes, consumed: tuple[int, ...] = ()) -> Completion:
    ok = bool(internal.read(output)["ok"])
    about: dict[str, codec.Storable] = {"run_id": run_id, "ok": ok}
    return Completion(kind=EntryKind.CHILD, op=op, ok=ok, output=output, consumed=consumed, about=about)


def _hook_taken(live: Live) -> Completion | None:
    """Tell the body that another run owns a hook it waits by; it may have been told of something else since it asked."""
    for name in sorted(live.taken):
        op = f"{OpKind.SIGNAL.value}:{name}"
        if op in live.wanted:
            error = HookTaken(name)
            about: dict[str, codec.Storable] = {"code": error.code, "type": type(error).__name__, "message": str(error)}
            output = codec.encode({"ok": False, "error": about})
            return Completion(kind=EntryKind.SIGNAL, op=op, ok=False, output=output, about={"name": name})
        live.taken.discard(name)
    return None


# ── attempts ──


def _attempt(live: Live) -> Completion | None:
    while live.steps.ended:
        attempted = live.steps.ended.popleft()
        if attempted.op.id in live.wanted:
            return _attempted(live, attempted)
    return None


def _attempted(live: Live, attempted: Attempted) -> Completion:
    op, failure = attempted.op, attempted.failure
    if failure is None:
        del live.steps.tries[op.id]
        about: dict[str, codec.Storable] = {"attempt": attempted.number} if attempted.number > 1 else {}
        return Completion(kind=EntryKind.STEP, op=op.id, output=attempted.output, told=attempted.told, about=about)
    tries = live.steps.tries.setdefault(op.id, Tries(begun=attempted.number))
    tries.failed += 1
    options = op.options
    if options is None or failure.final or tries.failed >= options.attempts:
        del live.steps.tries[op.id]
        about = {"attempt": attempted.number, "final": True}
        return Completion(kind=EntryKind.STEP, op=op.id, ok=False, output=attempted.output, about=about)
    tries.again_at = live.now() + options.backoff.delay_ms(tries.failed, retry_after=failure.retry_after)
    live.wants.rest(op.id, tries.again_at)
    output = codec.encode({"ok": False, "error": failure.data(attempted.number), "again_at": tries.again_at})
    about = {"attempt": attempted.number, "final": False, "again_at": tries.again_at}
    return Completion(kind=EntryKind.FAILED, op=op.id, ok=False, output=output, about=about)


# ── what the engine gives ──


def _webhook(live: Live, public_url: str | None) -> Completion | None:
    for op in live.wants.webhooks.values():
        token = new_token()
        live.tokens[token] = op.id
        url = None if public_url is None else f"{public_url.rstrip('/')}/hooks/{token}"
        output = codec.encode({"ok": True, "value": {"token": token, "url": url}})
        return Completion(kind=EntryKind.WEBHOOK, op=op.id, output=output, addresses=((HOOK, token),))
    return None


def _due(live: Live, now: int) -> Completion | None:
    """Return the earliest timer or question that is over."""
    timer = live.wants.timers.first()
    due: list[tuple[int, str, Asked | None]] = [(*timer, None)] if timer is not None and timer[0] <= now else []
    for op_id, asked in live.prompts.items():
        if op_id in live.wanted and asked.expires_at is not None and asked.expires_at <= now:
            due.append((asked.expires_at, op_id, asked))
    if not due:
        return None
    at, op, prompt = min(due, key=lambda one: one[0])
    if prompt is None:
        return Completion(kind=EntryKind.TIMER, op=op, at=at)
    output = codec.encode({"ok": True, "value": {"expired": True, "prompt_id": prompt.prompt_id}})
    return Completion(
        kind=EntryKind.ANSWER,
        op=op,
        output=output,
        at=at,
        settle=(PromptSettlement(prompt_id=prompt.prompt_id, outcome=PromptOutcome.EXPIRED),),
        about={"request_id": prompt.prompt_id, "outcome": PromptOutcome.EXPIRED.value},
    )


def _reminder(live: Live, now: int) -> Completion | None:
    """Return that people are to be reminded of a question; the body isn't told."""
    for op_id, asked in live.prompts.items():
        if op_id in live.wanted and asked.remind_at is not None and asked.remind_at <= now:
            return Completion(kind=EntryKind.ASKED, op=op_id, reminds=asked, about={"request_id": asked.prompt_id})
    return None
