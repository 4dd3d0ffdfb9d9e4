"""A question to people as a card: what is asked, what can be pressed or filled in, and how it ended.

What lives here: the values and their JSON form. What does not: any platform's markup, or what a button means.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, cast, get_args

from channels import strict
from channels.errors import MalformedPayload
from channels.strict import Json

MAX_BUTTON_VALUE = 255
MAX_BUTTONS = 200
MAX_ITEMS = 50
MAX_FORM_FIELDS = 20
MAX_FIELD_NAME = 200
MAX_FIELD_VALUE = 3_000
MAX_CARD = 64 * 1024 * 1024
"""Characters of a card that is read."""

ButtonStyle = Literal["primary", "danger", "plain"]
Display = Literal["buttons", "select"]
OutcomeKind = Literal["approved", "denied", "answered", "expired", "cancelled", "ignored", "overridden", "mixed"]


@dataclass(frozen=True, slots=True)
class FormField:
    """Something to fill in; `name` comes back in `Click.fields` with what was filled in, at most 3,000 characters."""

    name: str
    label: str
    _: KW_ONLY
    value: str = ""
    multiline: bool = False
    required: bool = False

    def __post_init__(self) -> None:
        """Refuse what some platform would cut."""
        if not 1 <= len(self.name) <= MAX_FIELD_NAME:
            raise ValueError(f"a form field's name has 1 to {MAX_FIELD_NAME} characters, not {len(self.name)}")
        if len(self.value) > MAX_FIELD_VALUE:
            raise ValueError(f"a form field's value has at most {MAX_FIELD_VALUE} characters, not {len(self.value)}")

    def to_json(self) -> Json:
        """Return plain JSON."""
        shown: Json = {"name": self.name, "label": self.label, "value": self.value}
        return shown | {"multiline": self.multiline, "required": self.required}

    @classmethod
    def from_json(cls, data: object) -> FormField:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        fields = strict.an_object(data, ("name", "label", "value", "multiline", "required"))
        name, label, value = (strict.text(fields, key) for key in ("name", "label", "value"))
        multiline, required = strict.flag(fields, "multiline"), strict.flag(fields, "required")
        return strict.made(lambda: cls(name, label, value=value, multiline=multiline, required=required))


@dataclass(frozen=True, slots=True)
class Form:
    """What opens when a button is pressed. Sending it is a `Click` with this `value` and the fields."""

    title: str
    value: str
    _: KW_ONLY
    submit: str
    fields: tuple[FormField, ...]

    def __post_init__(self) -> None:
        """Refuse what some platform would cut."""
        _check_value(self.value)
        if not 1 <= len(self.fields) <= MAX_FORM_FIELDS:
            raise ValueError(f"a form has 1 to {MAX_FORM_FIELDS} fields, not {len(self.fields)}")
        if len({one.name for one in self.fields}) != len(self.fields):
            raise ValueError("two fields of a form have one name")

    def to_json(self) -> Json:
        """Return plain JSON."""
        fields = [one.to_json() for one in self.fields]
        return {"title": self.title, "value": self.value, "submit": self.submit, "fields": fields}

    @classmethod
    def from_json(cls, data: object) -> Form:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        read = strict.an_object(data, ("title", "value", "submit", "fields"))
        title, value, submit = (strict.text(read, key) for key in ("title", "value", "submit"))
        fields = tuple(FormField.from_json(one) for one in strict.a_list(read, "fields", most=MAX_FORM_FIELDS))
        return strict.made(lambda: cls(title, value, submit=submit, fields=fields))


@dataclass(frozen=True, slots=True)
class Button:
    """A button; `value` comes back in a `Click` as it is: opaque, 1 to 255 characters.

    One with a form opens that instead, where the channel has forms; elsewhere it is left out, so it must not be the only way.
    """

    label: str
    value: str
    _: KW_ONLY
    style: ButtonStyle = "plain"
    description: str = ""
    form: Form | None = None

    def __post_init__(self) -> None:
        """Refuse a value that some platform would cut."""
        _check_value(self.value)

    def to_json(self) -> Json:
        """Return plain JSON."""
        form = self.form.to_json() if self.form else None
        shown: Json = {"label": self.label, "value": self.value, "style": self.style}
        return shown | {"description": self.description, "form": form}

    @classmethod
    def from_json(cls, data: object) -> Button:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        fields = strict.an_object(data, ("label", "value", "style", "description", "form"))
        style = cast("ButtonStyle", strict.one_of(fields, "style", get_args(ButtonStyle)))
        label, value, description = (strict.text(fields, key) for key in ("label", "value", "description"))
        form = strict.optional(fields, "form", Form.from_json)
        return strict.made(lambda: cls(label, value, style=style, description=description, form=form))


@dataclass(frozen=True, slots=True)
class CardOutcome:
    """How a question was settled: "Approved by Alice", when (ms since the epoch), and what came of it.

    `note` is what the person wrote, to be quoted: a reason, or the answer. `changes` are the fields as they were changed.
    """

    kind: OutcomeKind
    text: str
    _: KW_ONLY
    at: int
    result: str = ""
    note: str = ""
    changes: tuple[tuple[str, str], ...] = ()

    @property
    def note_title(self) -> str:
        """Say what the note is."""
        return {"answered": "Answer", "overridden": "Reason"}.get(self.kind, "Note")

    def to_json(self) -> Json:
        """Return plain JSON."""
        shown: Json = {"kind": self.kind, "text": self.text, "at": self.at, "result": self.result}
        return shown | {"note": self.note, "changes": [list(pair) for pair in self.changes]}

    @classmethod
    def from_json(cls, data: object) -> CardOutcome:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        fields = strict.an_object(data, ("kind", "text", "at", "result", "note", "changes"))
        return cls(
            cast("OutcomeKind", strict.one_of(fields, "kind", get_args(OutcomeKind))),
            strict.text(fields, "text"),
            at=strict.integer(fields, "at"),
            result=strict.text(fields, "result"),
            note=strict.text(fields, "note"),
            changes=strict.pairs(fields, "changes"),
        )


@dataclass(frozen=True, slots=True)
class CardItem:
    """One question: who may answer it (`detail`), what would run (`fields`), and how it stands.

    All strings are plain text, never markup. `expires_at` is in ms since the epoch. `progress` tells of answers that count
    but don't settle ("1 of 2 approved: Alice"). With `freeform`, words of the person's own are an answer too. With `display`
    "select" the options are many: a list to choose from, where the platform has one.
    """

    question: str
    detail: str = ""
    _: KW_ONLY
    fields: tuple[tuple[str, str], ...] = ()
    evidence: tuple[str, ...] = ()
    buttons: tuple[Button, ...] = ()
    display: Display = "buttons"
    freeform: bool = False
    progress: str = ""
    expires_at: int | None = None
    outcome: CardOutcome | None = None

    def __post_init__(self) -> None:
        """Refuse more than anybody can choose from."""
        if len(self.buttons) > MAX_BUTTONS:
            raise ValueError(f"a question has at most {MAX_BUTTONS} buttons, not {len(self.buttons)}")

    @property
    def open(self) -> bool:
        """Tell whether it still waits for an answer."""
        return self.outcome is None

    @property
    def said(self) -> bool:
        """Tell whether the outcome is the question in its own words: a card that only says how something stands."""
        return self.outcome is not None and self.outcome.text == self.question

    @property
    def options(self) -> tuple[Button, ...]:
        """The buttons that answer at once; those that open a form are left out."""
        return tuple(button for button in self.buttons if button.form is None) if self.open else ()

    @property
    def forms(self) -> tuple[Button, ...]:
        """The buttons that open a form."""
        return tuple(button for button in self.buttons if button.form is not None) if self.open else ()

    def to_json(self) -> Json:
        """Return plain JSON."""
        return {
            "question": self.question,
            "detail": self.detail,
            "fields": [list(pair) for pair in self.fields],
            "evidence": list(self.evidence),
            "buttons": [button.to_json() for button in self.buttons],
            "display": self.display,
            "freeform": self.freeform,
            "progress": self.progress,
            "expires_at": self.expires_at,
            "outcome": self.outcome.to_json() if self.outcome else None,
        }

    @classmethod
    def from_json(cls, data: object) -> CardItem:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        return _item(strict.an_object(data, _ITEM_FIELDS))


_ITEM_FIELDS = (
    *("question", "detail", "fields", "evidence", "buttons", "display", "freeform", "progress", "expires_at", "outcome"),
)


@dataclass(frozen=True, slots=True)
class Card(CardItem):
    """A question with buttons, or several: then each of `items` is one, and the card's own buttons are for all of them.

    A card with an outcome is settled; one of whose items only some have an outcome is still open.
    """

    _: KW_ONLY
    items: tuple[CardItem, ...] = ()

    def __post_init__(self) -> None:
        """Refuse more than a card can hold."""
        CardItem.__post_init__(self)
        if len(self.items) > MAX_ITEMS:
            raise ValueError(f"a card has at most {MAX_ITEMS} questions, not {len(self.items)}")

    @property
    def choices(self) -> tuple[Button, ...]:
        """Everything that answers at once when it is pressed, for a channel with plain buttons only.

        Labels have their descriptions in them, and where there are several questions, the number of theirs.
        """
        found = [(f"{number}. ", button) for number, item in enumerate(self.items, start=1) for button in item.options]
        return tuple(
            replace(one, label=f"{head}{one.label}{f': {one.description}' if one.description else ''}", description="")
            for head, one in (*found, *(("", button) for button in self.options))
        )

    @property
    def bare(self) -> Card:
        """The card without anything to press, for a channel that shows that beside its text."""
        return replace(self, buttons=(), items=tuple(replace(item, buttons=()) for item in self.items))

    @property
    def size(self) -> int:
        """Count the characters that it shows."""
        return sum(_size(one) for one in (self, *self.items))

    def to_json(self) -> Json:
        """Return plain JSON."""
        return {**CardItem.to_json(self), "items": [item.to_json() for item in self.items]}

    @classmethod
    def from_json(cls, data: object) -> Card:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        fields = strict.an_object(data, (*_ITEM_FIELDS, "items"))
        own = _item({name: fields[name] for name in _ITEM_FIELDS})
        items = tuple(CardItem.from_json(item) for item in strict.a_list(fields, "items", most=MAX_ITEMS))
        card = strict.made(lambda: cls(**{name: getattr(own, name) for name in _ITEM_FIELDS}, items=items))
        if card.size > MAX_CARD:
            raise MalformedPayload("the card is too large")
        return card


def _item(fields: strict.Fields) -> CardItem:
    buttons = tuple(Button.from_json(one) for one in strict.a_list(fields, "buttons", most=MAX_BUTTONS))
    return CardItem(
        strict.text(fields, "question"),
        strict.text(fields, "detail"),
        fields=strict.pairs(fields, "fields"),
        evidence=tuple(strict.a_string(one, "evidence") for one in strict.a_list(fields, "evidence")),
        buttons=buttons,
        display=cast("Display", strict.one_of(fields, "display", get_args(Display))),
        freeform=strict.flag(fields, "freeform"),
        progress=strict.text(fields, "progress"),
        expires_at=None if fields["expires_at"] is None else strict.integer(fields, "expires_at"),
        outcome=strict.optional(fields, "outcome", CardOutcome.from_json),
    )


def _size(item: CardItem) -> int:
    texts = [item.question, item.detail, item.progress, *item.evidence]
    texts += [part for pair in item.fields for part in pair]
    texts += [part for button in item.buttons for part in (button.label, button.description)]
    if item.outcome is not None:
        texts += [item.outcome.text, item.outcome.result, item.outcome.note]
        texts += [part for pair in item.outcome.changes for part in pair]
    return sum(map(len, texts))


def _check_value(value: str) -> None:
    if not 1 <= len(value) <= MAX_BUTTON_VALUE:
        raise ValueError(f"a button's value has 1 to {MAX_BUTTON_VALUE} characters, not {len(value)}")
