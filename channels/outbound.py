"""What the bot asks a channel to show, and what came of it.

What lives here: messages, cards, deliveries and their JSON form. What does not: any platform's markup, or what a button means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeVar, cast, get_args

from channels.errors import MalformedPayload

MAX_BUTTON_VALUE = 255

ButtonStyle = Literal["primary", "danger", "plain"]
OutcomeKind = Literal["approved", "denied", "expired", "cancelled", "ignored"]

Json = dict[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Button:
    """A button; `value` comes back in a `Click` as it is: opaque, 1 to 255 characters."""

    label: str
    value: str
    _: KW_ONLY
    style: ButtonStyle = "plain"

    def __post_init__(self) -> None:
        """Refuse a value that some platform would cut."""
        if not 1 <= len(self.value) <= MAX_BUTTON_VALUE:
            raise ValueError(f"a button's value has 1 to {MAX_BUTTON_VALUE} characters, not {len(self.value)}")

    def to_json(self) -> Json:
        """Return plain JSON."""
        return {"label": self.label, "value": self.value, "style": self.style}

    @classmethod
    def from_json(cls, data: object) -> Button:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        fields = _object(data)
        style = cast("ButtonStyle", _one_of(fields, "style", get_args(ButtonStyle)))
        return _made(lambda: cls(_text(fields, "label"), _text(fields, "value"), style=style))


@dataclass(frozen=True, slots=True)
class CardOutcome:
    """How a card was settled: "Approved by Alice", when (ms since the epoch), and what came of it."""

    kind: OutcomeKind
    text: str
    _: KW_ONLY
    at: int
    result: str = ""

    def to_json(self) -> Json:
        """Return plain JSON."""
        return {"kind": self.kind, "text": self.text, "at": self.at, "result": self.result}

    @classmethod
    def from_json(cls, data: object) -> CardOutcome:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        fields = _object(data)
        kind = cast("OutcomeKind", _one_of(fields, "kind", get_args(OutcomeKind)))
        return cls(kind, _text(fields, "text"), at=_integer(fields, "at"), result=_text(fields, "result"))


@dataclass(frozen=True, slots=True)
class Card:
    """A question with buttons. `detail` says who may answer and as whom it runs; a settled card has an outcome.

    All strings but `question` and `detail` are plain text, never markup. `expires_at` is in ms since the epoch.
    """

    question: str
    detail: str = ""
    _: KW_ONLY
    fields: tuple[tuple[str, str], ...] = ()
    evidence: tuple[str, ...] = ()
    buttons: tuple[Button, ...] = ()
    expires_at: int | None = None
    outcome: CardOutcome | None = None

    def to_json(self) -> Json:
        """Return plain JSON."""
        return {
            "question": self.question,
            "detail": self.detail,
            "fields": [list(pair) for pair in self.fields],
            "evidence": list(self.evidence),
            "buttons": [button.to_json() for button in self.buttons],
            "expires_at": self.expires_at,
            "outcome": self.outcome.to_json() if self.outcome else None,
        }

    @classmethod
    def from_json(cls, data: object) -> Card:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        fields = _object(data)
        expires_at = fields.get("expires_at")
        outcome = fields.get("outcome")
        return cls(
            _text(fields, "question"),
            _text(fields, "detail"),
            fields=tuple(_pair(item) for item in _list(fields, "fields")),
            evidence=tuple(_string(item, "evidence") for item in _list(fields, "evidence")),
            buttons=tuple(Button.from_json(item) for item in _list(fields, "buttons")),
            expires_at=None if expires_at is None else _integer(fields, "expires_at"),
            outcome=None if outcome is None else CardOutcome.from_json(outcome),
        )


@dataclass(frozen=True, slots=True)
class Outbound:
    """A message to show: Markdown text, a card, or both. `notice` marks an error or a remark of the system's.

    `private_to` is the id of the one author who may see it; nobody else ever does (C10).
    """

    text: str = ""
    card: Card | None = None
    _: KW_ONLY
    notice: bool = False
    private_to: str | None = None

    def to_json(self) -> Json:
        """Return plain JSON."""
        card = self.card.to_json() if self.card else None
        return {"text": self.text, "card": card, "notice": self.notice, "private_to": self.private_to}

    @classmethod
    def from_json(cls, data: object) -> Outbound:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        fields = _object(data)
        card, private_to = fields.get("card"), fields.get("private_to")
        return cls(
            _text(fields, "text"),
            None if card is None else Card.from_json(card),
            notice=fields.get("notice") is True,
            private_to=None if private_to is None else _string(private_to, "private_to"),
        )


@dataclass(frozen=True, slots=True)
class MessageRef:
    """A message the platform shows; what `edit` takes and `find` returns."""

    channel: str
    address: str
    _: KW_ONLY
    id: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message on its way. `id` stays the same over every attempt: the platform's idempotency hangs on it."""

    id: str
    attempt: int
    _: KW_ONLY
    address: str
    message: Outbound


def _made(make: Callable[[], _T]) -> _T:
    try:
        return make()
    except ValueError as error:
        raise MalformedPayload(str(error)) from None


def _object(data: object) -> Mapping[str, object]:
    if not isinstance(data, dict):
        raise MalformedPayload(f"an object was expected, not {type(data).__name__}")
    return cast("dict[str, object]", data)


def _string(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise MalformedPayload(f"{name} is not text")
    return value


def _text(fields: Mapping[str, object], name: str) -> str:
    return _string(fields.get(name), name)


def _integer(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedPayload(f"{name} is not a whole number")
    return value


def _list(fields: Mapping[str, object], name: str) -> list[object]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise MalformedPayload(f"{name} is not a list")
    return cast("list[object]", value)


def _pair(item: object) -> tuple[str, str]:
    if not isinstance(item, list) or len(item) != 2:
        raise MalformedPayload("a field is not a pair")
    return _string(item[0], "field name"), _string(item[1], "field value")


def _one_of(fields: Mapping[str, object], name: str, allowed: tuple[str, ...]) -> str:
    value = _text(fields, name)
    if value not in allowed:
        raise MalformedPayload(f"{name} is not one of {', '.join(allowed)}")
    return value
