"""What the bot asks a channel to show, and what came of it.

What lives here: messages, deliveries, references and their JSON form. What does not: cards (`cards.py`), any platform's markup.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from channels import strict
from channels.cards import Card
from channels.strict import Json

MAX_MENTIONS = 50


@dataclass(frozen=True, slots=True)
class Outbound:
    """A message to show: Markdown text, a card, or both. `notice` marks an error or a remark of the system's.

    `private_to` is the id of the one author who may see it; nobody else ever does (C10). `mentions` are the ids of authors who
    are called to it, where the platform can.
    """

    text: str = ""
    card: Card | None = None
    _: KW_ONLY
    notice: bool = False
    private_to: str | None = None
    mentions: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Return plain JSON."""
        card = self.card.to_json() if self.card else None
        shown: Json = {"text": self.text, "card": card, "notice": self.notice}
        return shown | {"private_to": self.private_to, "mentions": list(self.mentions)}

    @classmethod
    def from_json(cls, data: object) -> Outbound:
        """Read what `to_json` wrote. Raises: MalformedPayload."""
        fields = strict.an_object(data, ("text", "card", "notice", "private_to", "mentions"))
        return cls(
            strict.text(fields, "text"),
            strict.optional(fields, "card", Card.from_json),
            notice=strict.flag(fields, "notice"),
            private_to=strict.optional(fields, "private_to", lambda value: strict.a_string(value, "private_to")),
            mentions=tuple(strict.a_string(one, "mentions") for one in strict.a_list(fields, "mentions", most=MAX_MENTIONS)),
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
