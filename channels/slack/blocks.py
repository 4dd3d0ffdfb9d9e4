"""Cards as blocks. Every word of a card is literal text: nothing in it can format, link, or mention anybody.

What lives here: pure block building within Slack's limits. What does not: Markdown, whole messages, or calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from channels.fallback import visible
from channels.outbound import Button, Card, CardOutcome
from channels.slack.clicks import ACTION_PREFIX

Block = dict[str, Any]

# https://docs.slack.dev/reference/block-kit/blocks
MAX_BLOCKS = 50
MAX_SECTION = 3_000
MAX_CONTEXT = 2_000
MAX_CONTEXT_ELEMENTS = 10
MAX_LABEL = 75
BUTTONS_A_ROW = 5
MAX_BUTTONS = 25
MAX_PREFORMATTED = 2_800

_SIGNS = {"approved": "✅", "denied": "⛔", "expired": "⌛", "cancelled": "➖", "ignored": "➖"}


@dataclass(frozen=True, slots=True)
class LongValue:
    """A field that a card can't hold whole; `name` is the file that has it to the byte."""

    name: str
    value: str

    @property
    def content(self) -> bytes:
        """The value as it runs: the hash on the card is of these bytes."""
        return self.value.encode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class CardBlocks:
    """A card's blocks, and the values that had to be cut."""

    blocks: list[Block]
    long: tuple[LongValue, ...]


def card_blocks(card: Card, *, room: int, where: str) -> CardBlocks:
    """Draw a card. Its fields may take `room` characters; what is cut says so, `where` says where the rest is."""
    shares = _shares([visible(value) for _, value in card.fields], room)
    drawn: list[Block] = list(_sections(visible(card.question)))
    if card.detail:
        drawn += _contexts([visible(card.detail)])
    long: list[LongValue] = []
    elements: list[Block] = []
    for number, ((name, value), share) in enumerate(zip(card.fields, shares, strict=True), start=1):
        shown = visible(value)
        elements += [_label(name), *_preformatted(shown[:share])]
        if len(shown) > share:
            kept = LongValue(f"input-{number}.txt", value)
            long.append(kept)
            elements.append(_said(f"Cut: {share:,} of {len(shown):,} characters are shown. {where} {_hash(kept)}".strip()))
    drawn += _rich(elements)
    if card.evidence:
        drawn += _contexts(["Read from outside before this was asked:", *(visible(item) for item in card.evidence)])
    if card.outcome is not None:
        drawn += _outcome(card.outcome)
    else:
        drawn += buttons(card.buttons)
        if card.expires_at is not None:
            drawn.append({"type": "context", "elements": [_marked(f"Expires {moment(card.expires_at)}")]})
    return CardBlocks(drawn, tuple(long))


def plain_card_blocks(card: Card, text: str, *, room: int) -> list[Block]:
    """Draw a card in Slack's oldest blocks only: its words in sections, its buttons below."""
    shown = text if len(text) <= room else f"{text[:room]}\n… Cut: {room:,} of {len(text):,} characters are shown."
    return [*_sections(shown), *(() if card.outcome else buttons(card.buttons))]


def buttons(given: Sequence[Button]) -> list[Block]:
    """Draw buttons, five a row; a label too long for a button is written out above."""
    drawn: list[Block] = []
    labels = [" ".join(visible(button.label).split()) or f"Option {number}" for number, button in enumerate(given, start=1)]
    long = [f"{number}. {label}" for number, label in enumerate(labels, start=1) if len(label) > MAX_LABEL]
    if long:
        drawn += _contexts(long)
    elements = []
    for number, (button, label) in enumerate(zip(given, labels, strict=True), start=1):
        short = label if len(label) <= MAX_LABEL else f"{number}. {label[: MAX_LABEL - 6]}…"
        element: Block = {"type": "button", "text": _plain(short), "action_id": f"{ACTION_PREFIX}{number}", "value": button.value}
        if button.style != "plain":
            element["style"] = button.style
        elements.append(element)
    size = BUTTONS_A_ROW if len(elements) <= BUTTONS_A_ROW * 4 else MAX_BUTTONS
    drawn += [{"type": "actions", "elements": elements[at : at + size]} for at in range(0, len(elements), size)]
    return drawn


def moment(at: int) -> str:
    """Write a time in mrkdwn: in the reader's own time zone, in UTC where that can't be shown."""
    try:
        fallback = datetime.fromtimestamp(at / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "at some time"
    return f"<!date^{at // 1000}^{{date_short_pretty}} at {{time}}|{fallback}>"


def _shares(values: Sequence[str], room: int) -> list[int]:
    """Divide the room: short values are whole, the long ones share what is left evenly."""
    shares = [0] * len(values)
    left = room
    order = sorted(range(len(values)), key=lambda index: len(values[index]))
    for done, index in enumerate(order):
        shares[index] = min(len(values[index]), left // (len(order) - done))
        left -= shares[index]
    return shares


def _hash(value: LongValue) -> str:
    return f"SHA-256 {hashlib.sha256(value.content).hexdigest()}"


def _plain(text: str) -> Block:
    return {"type": "plain_text", "text": text, "emoji": False}


def _marked(text: str) -> Block:
    return {"type": "mrkdwn", "text": text}


def _parts(text: str, size: int) -> Iterator[str]:
    for at in range(0, len(text), size):
        part = text[at : at + size]
        if part.strip():
            yield part


def _sections(text: str) -> Iterator[Block]:
    for part in _parts(text, MAX_SECTION):
        yield {"type": "section", "text": _plain(part)}


def _contexts(texts: Sequence[str]) -> Iterator[Block]:
    elements = [_plain(part) for text in texts for part in _parts(text, MAX_CONTEXT)]
    for at in range(0, len(elements), MAX_CONTEXT_ELEMENTS):
        yield {"type": "context", "elements": elements[at : at + MAX_CONTEXT_ELEMENTS]}


def _text(text: str, *, bold: bool = False) -> Block:
    element: Block = {"type": "text", "text": text}
    return element | {"style": {"bold": True}} if bold else element


def _label(name: str) -> Block:
    return {"type": "rich_text_section", "elements": [_text(" ".join(visible(name).split())[:300] or "(no name)", bold=True)]}


def _said(text: str) -> Block:
    return {"type": "rich_text_section", "elements": [_text(text)]}


def _preformatted(value: str) -> Iterator[Block]:
    if not value:
        yield _said("(empty)")
    for at in range(0, len(value), MAX_PREFORMATTED):
        yield {"type": "rich_text_preformatted", "elements": [_text(value[at : at + MAX_PREFORMATTED])]}


def _rich(elements: Sequence[Block]) -> Iterator[Block]:
    """Pack labels and values into as few blocks as their size allows."""
    held: list[Block] = []
    size = 0
    for element in elements:
        length = sum(len(part["text"]) for part in element["elements"])
        if held and size + length > MAX_SECTION:
            yield {"type": "rich_text", "elements": held}
            held, size = [], 0
        held.append(element)
        size += length
    if held:
        yield {"type": "rich_text", "elements": held}


def _outcome(outcome: CardOutcome) -> list[Block]:
    line = f"{_SIGNS[outcome.kind]} {' '.join(visible(outcome.text).split())}"
    when: Block = {"type": "context", "elements": [_marked(moment(outcome.at))]}
    return [*_sections(line), *_sections(visible(outcome.result)[:MAX_SECTION]), when]
