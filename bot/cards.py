"""Prompts as a card: open questions, and their settled form, drawn from the prompts' rows alone.

What lives here: prompts to `Card`, forms, words for outcomes. What does not: any platform's markup (channels/), what a button
means.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from bot import formats
from bot.buttons import EDIT, FREE_TEXT, NOTE, TEXT, all_value, button_value, form_value
from bot.display import reveal, show
from bot.formats import Kind
from channels.cards import (
    MAX_BUTTON_VALUE,
    MAX_BUTTONS,
    MAX_FIELD_VALUE,
    MAX_FORM_FIELDS,
    Button,
    ButtonStyle,
    Card,
    CardItem,
    CardOutcome,
    Display,
    Form,
    FormField,
    OutcomeKind,
)
from durable_core.model import Prompt, PromptOutcome

SIGNED_IN_BY: Final = "connect"
"""How a prompt was settled by a sign-in itself: nobody answers that way."""
MOST_BUTTONS: Final = 5
"""More options than this are a list to choose from."""

_KINDS: Final[dict[PromptOutcome, OutcomeKind]] = {
    PromptOutcome.ANSWERED: "answered",
    PromptOutcome.APPROVED: "approved",
    PromptOutcome.DENIED: "denied",
    PromptOutcome.EXPIRED: "expired",
    PromptOutcome.CANCELLED: "cancelled",
    PromptOutcome.IGNORED: "ignored",
}


def prompt_body(prompt: Prompt) -> dict[str, Any]:
    """What a prompt asks, as it was frozen when it was opened; whoever acts on it calls `readable` first."""
    return formats.show(Kind.PROMPT, prompt.body)


def prompt_note(prompt: Prompt) -> dict[str, Any]:
    """What was written with the answer: `text`, `edits`, the `reason` of an override."""
    return formats.show(Kind.NOTE, prompt.note) if prompt.note else {}


def readable(prompt: Prompt) -> None:
    """See that a prompt can be acted on.

    Raises: Stranded: a newer version wrote it.
    """
    formats.read(Kind.PROMPT, prompt.body, run_id=prompt.run_id)


def card(prompts: Sequence[Prompt], *, results: Mapping[str, str] | None = None) -> Card:
    """Draw prompts that share a card, the first one's id being the card's, as they stand; `results` by the prompts' ids."""
    told = results or {}
    items = [_item(prompt, told.get(prompt.prompt_id, "")) for prompt in prompts]
    if len(items) == 1:
        return _alone(items[0])
    waiting = [item for item in items if item.open]
    return Card(
        _heading(len(waiting), len(items)),
        items=tuple(items),
        buttons=_for_all(prompts),
        outcome=None if waiting else _together(items),
    )


def status_card(prompt: Prompt) -> Card:
    """Draw what everybody may see of a request that was put to one person: who is waited for, then how it ended."""
    body = prompt_body(prompt)
    if prompt.outcome is not None:
        words = settled_words(prompt, body)
        return Card(words, outcome=CardOutcome(_KINDS[prompt.outcome], words, at=prompt.settled_at or 0))
    return Card(f"Paused: waiting for {body['waiting_for']} to connect {body['title']}.")


def form_of(prompt: Prompt, form: str) -> Form | None:
    """Return the form that a button of an open prompt opens, or None."""
    value = form_value(prompt.prompt_id, form)
    return next((button.form for button in _buttons(prompt, prompt_body(prompt)) if button.value == value), None)


# ── open ──


def _alone(item: CardItem) -> Card:
    return Card(
        item.question,
        item.detail,
        fields=item.fields,
        evidence=item.evidence,
        buttons=item.buttons,
        display=item.display,
        freeform=item.freeform,
        progress=item.progress,
        expires_at=item.expires_at,
        outcome=item.outcome,
    )


def _heading(waiting: int, of: int) -> str:
    if not waiting:
        return f"{of} calls, all of them settled"
    if waiting == of:
        return f"{of} calls wait for an answer"
    return f"{waiting} of {of} calls still {'waits' if waiting == 1 else 'wait'} for an answer"


def _for_all(prompts: Sequence[Prompt]) -> tuple[Button, ...]:
    """Return the buttons for everything that is open, where that is more than one approval."""
    if sum(prompt.outcome is None and prompt.kind == "approval" for prompt in prompts) < 2:
        return ()
    leader = prompts[0].group or prompts[0].prompt_id
    return (
        Button("Approve all", all_value(leader, "approve"), style="primary"),
        Button("Deny all", all_value(leader, "deny")),
    )


def _item(prompt: Prompt, result: str) -> CardItem:
    body = prompt_body(prompt)
    is_open = prompt.outcome is None
    options = body["options"]
    display: Display = "select" if body.get("display") == "select" or len(options) > MOST_BUTTONS else "buttons"
    return CardItem(
        body["text"],
        _detail(prompt, body),
        fields=tuple((name, value) for name, value in body["fields"]),
        evidence=tuple(body["evidence"]),
        buttons=_buttons(prompt, body) if is_open else (),
        display=display,
        freeform=is_open and body.get("allow_freeform") is True,
        progress=_progress(prompt, body) if is_open else "",
        expires_at=prompt.expires_at if is_open else None,
        outcome=_outcome(prompt, body, result),
    )


def _detail(prompt: Prompt, body: Mapping[str, Any]) -> str:
    """Say who may answer; of a prompt that was handed on, who may now."""
    left = len(body["options"]) - len(_shown(prompt, body))
    detail = f"{body['detail']}{f' {left} more options are not shown here.' if left else ''}"
    if not prompt.level or not prompt.asked:
        return detail
    before, now = f"{body.get('waiting_for')} may answer", f"{prompt.asked} may answer, as nobody did in time"
    return detail.replace(before, now, 1) if before in detail else f"{now}. {detail}".strip()


def _progress(prompt: Prompt, body: Mapping[str, Any]) -> str:
    if prompt.quorum < 2:
        return ""
    approving = {option["id"] for option in body["options"] if option["outcome"] == PromptOutcome.APPROVED.value}
    names = [vote.name or vote.principal for vote in prompt.votes if vote.option_id in approving]
    counted = f"{len(names)} of {prompt.quorum} approved"
    return f"{counted}: {', '.join(names)}" if names else counted


def _buttons(prompt: Prompt, body: Mapping[str, Any]) -> tuple[Button, ...]:
    """Return a button for every option, and those that open a form behind them: changes, a note, words of one's own."""
    buttons: list[Button] = []
    for option in _shown(prompt, body):
        value = button_value(prompt.prompt_id, option["id"])
        style, described = cast("ButtonStyle", option["style"]), str(option.get("description") or "")
        buttons.append(Button(option["label"], value, style=style, description=described))
        buttons += _with_form(prompt, body, option)
    if body.get("allow_freeform") is True:
        field = FormField(TEXT, "Your answer", multiline=True, required=True)
        form = Form("Answer in words", button_value(prompt.prompt_id, ""), submit="Send", fields=(field,))
        buttons.append(Button("Answer in words", form_value(prompt.prompt_id, FREE_TEXT), form=form))
    return tuple(buttons)


_FORMS: Final = 3
"""How many buttons may open a form."""


def _shown(prompt: Prompt, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the options that a card can hold: no platform takes any number of them, nor any length of their ids."""
    fit = [one for one in body["options"] if len(button_value(prompt.prompt_id, one["id"])) <= MAX_BUTTON_VALUE]
    return fit[: MAX_BUTTONS - _FORMS]


def _with_form(prompt: Prompt, body: Mapping[str, Any], option: Mapping[str, Any]) -> list[Button]:
    name, label = str(option["id"]), str(option["label"])
    match option["outcome"]:
        case "approved" if body.get("edit"):
            fields = _editable(body)
            title, button, submit = "Change, then approve", "Change first", f"{label} with changes"
        case "denied" if body.get("note") is True:
            fields = (FormField(NOTE, "Why? The agent is told.", multiline=True),)
            title, button, submit = f"{label} with a note", f"{label} with a note", label
        case _:
            return []
    if not fields:
        return []
    form = Form(title, button_value(prompt.prompt_id, name), submit=submit, fields=fields)
    return [Button(button, form_value(prompt.prompt_id, name), form=form)]


def _editable(body: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return a field for each argument that may be changed and can be shown: neither masked nor too long for a form."""
    masked = set(body.get("masked") or ())
    fields: list[FormField] = []
    for one in body["edit"]:
        value = plain(str(one["value"]))
        if one["name"] in masked or len(value) > MAX_FIELD_VALUE:
            continue
        multiline = one.get("multiline") is True
        fields.append(FormField(f"{EDIT}{one['name']}", reveal(str(one["label"])), value=value, multiline=multiline))
    return tuple(fields[:MAX_FORM_FIELDS])


def plain(text: str) -> str:
    """Return a value's JSON text as people write it: a text without its quotes."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


# ── settled ──


def _outcome(prompt: Prompt, body: Mapping[str, Any], result: str) -> CardOutcome | None:
    if prompt.outcome is None:
        return None
    note = prompt_note(prompt)
    reason = str(note.get("reason") or "")
    changes = tuple((reveal(str(name)), show(value)) for name, value in (note.get("edits") or {}).items())
    words = reveal(reason or str(note.get("text") or ""))
    if prompt.settled_via == SIGNED_IN_BY and not reason:  # they are the framework's, not a person's to be quoted
        words, result = "", words
    return CardOutcome(
        "overridden" if reason else _KINDS[prompt.outcome],
        settled_words(prompt, body),
        at=prompt.settled_at or 0,
        result=result,
        note=words,
        changes=changes,
    )


def _together(items: Sequence[CardItem]) -> CardOutcome | None:
    """Sum up what became of all questions of a card."""
    outcomes = [item.outcome for item in items if item.outcome is not None]
    if not outcomes:
        return None
    counts = Counter(outcome.kind for outcome in outcomes)
    kind: OutcomeKind = outcomes[0].kind if len(counts) == 1 else "mixed"
    words = {outcome.text for outcome in outcomes}
    counted = ", ".join(f"{count} {_WORDS[one]}" for one, count in counts.items())
    return CardOutcome(kind, words.pop() if len(words) == 1 else counted, at=max(outcome.at for outcome in outcomes))


_WORDS: Final[dict[OutcomeKind, str]] = {
    "approved": "approved",
    "denied": "denied",
    "answered": "answered",
    "expired": "expired",
    "cancelled": "no longer needed",
    "ignored": "no longer needed",
    "overridden": "decided by override",
    "mixed": "settled",
}


def settled_words(prompt: Prompt, body: Mapping[str, Any]) -> str:
    """Say in words how a prompt ended and by whom."""
    note = prompt_note(prompt)
    who = prompt.settled_name or prompt.settled_by or "somebody"
    override = " by override" if note.get("reason") else ""
    rerun = prompt.kind == "rerun"
    if prompt.kind == "sign-in":
        return _signed_in(prompt, body)
    match prompt.outcome:
        case PromptOutcome.APPROVED if rerun:
            return f"{who} chose to run it again{override}"
        case PromptOutcome.DENIED if rerun:
            return f"{who} chose not to run it again{override}"
        case PromptOutcome.APPROVED:
            voted = [vote.name or vote.principal for vote in prompt.votes if vote.principal != prompt.settled_by]
            names = [*voted, who] if prompt.quorum > 1 and not override else [who]
            changed = " with changes" if note.get("edits") else ""
            return f"Approved by {_listed(names)}{override}{changed}"
        case PromptOutcome.DENIED:
            return f"Denied by {who}{override}"
        case PromptOutcome.EXPIRED:
            return "Nobody answered in time. It did not run." if body.get("action") else "Nobody answered in time."
        case PromptOutcome.CANCELLED:
            return f"No longer needed: {'what asked' if 'op' in body else 'the turn'} was stopped."
        case PromptOutcome.IGNORED:
            return f"No longer needed: {body['requester']['name']} wrote on."
        case _:
            return _answered(prompt, body, who)


def _signed_in(prompt: Prompt, body: Mapping[str, Any]) -> str:
    """Say how a sign-in ended; which account it was is for nobody but the person."""
    who, title = body["requester"]["name"], body["title"]
    match prompt.outcome:
        case PromptOutcome.APPROVED:
            return f"{who} connected {title}."
        case PromptOutcome.DENIED:
            return f"{who} did not connect {title}."
        case PromptOutcome.EXPIRED:
            return f"Nobody connected {title} in time."
        case PromptOutcome.IGNORED:
            return f"{title} was not connected: {who} wrote on."
        case _:
            return f"{title} was not connected: it is not needed any more."


def _answered(prompt: Prompt, body: Mapping[str, Any], who: str) -> str:
    chosen = next((str(option["label"]) for option in body["options"] if option["id"] == prompt.option_id), "")
    return f"Answered by {who}: {chosen}" if chosen else f"Answered by {who}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
