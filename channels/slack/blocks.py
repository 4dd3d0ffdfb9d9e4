"""Cards as blocks. Every word of a card is literal text: nothing in it can format, link, or mention anybody.

What lives here: pure block building within Slack's limits. What does not: Markdown, whole messages, or calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from channels.fallback import card_text, visible
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

# Our own, so that a card stays far below what Slack takes of a message.
MAX_QUESTION = 1_500
MAX_DETAIL = 600
MAX_EVIDENCE = 1_000
MAX_RESULT = 1_000
MAX_NAME = 80
MAX_CUT_FIELDS = 10
MIN_FIELDS = 1_000
CUT_NOTE = 170
MAX_LONG_LABELS = 1_500

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
    """Draw a card within `room` characters; what is cut says so with its length and hash, `where` says where the rest is."""
    long: list[LongValue] = []

    def kept(name: str, text: str, limit: int) -> str:
        shown = visible(text)
        if len(shown) <= limit:
            return shown
        long.append(LongValue(name, text))
        return f"{shown[:limit]}\n{_cut(limit, shown, long[-1], where)}"

    head = [*_sections(kept("question.txt", card.question, MAX_QUESTION))]
    head += _contexts([kept("detail.txt", card.detail, MAX_DETAIL)])
    tail = [*_evidence(card.evidence)]
    if card.outcome is None:
        tail += buttons(card.buttons)
        if card.expires_at is not None:
            tail.append({"type": "context", "elements": [_marked(f"Expires {moment(card.expires_at)}")]})
    else:
        tail += _outcome(card.outcome, kept("result.txt", card.outcome.result, MAX_RESULT))
    left = room - characters([*head, *tail])
    drawn, cut = _fields(card.fields, room=max(MIN_FIELDS, left), where=where)
    return CardBlocks([*head, *drawn, *tail], (*long, *cut))


def plain_card_blocks(card: Card, *, room: int) -> list[Block]:
    """Draw a card in Slack's oldest blocks only: its words in sections, its buttons below."""
    text, asked = card_text(card), [] if card.outcome else buttons(card.buttons)
    room = max(MIN_FIELDS, room - characters(asked))
    shown = text if len(text) <= room else f"{text[:room]}\n… Cut: {room:,} of {len(text):,} characters are shown."
    return [*_sections(shown), *asked]


def characters(blocks: Sequence[Block]) -> int:
    """Count the characters that blocks show: Slack limits their sum as well."""
    return sum(_size(block) for block in blocks)


def _size(part: object) -> int:
    if isinstance(part, dict):
        return sum(len(value) if name == "text" and isinstance(value, str) else _size(value) for name, value in part.items())
    return sum(map(_size, part)) if isinstance(part, list) else 0


def _bounded_fields(fields: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Return so few fields that each gets some room: the last one has those that don't, each behind its name."""
    if len(fields) <= MAX_CUT_FIELDS:
        return fields
    rest = fields[MAX_CUT_FIELDS - 1 :]
    return [*fields[: MAX_CUT_FIELDS - 1], (f"{len(rest)} more fields", card_text(Card("", fields=tuple(rest))).strip("\n"))]


def _fields(fields: Sequence[tuple[str, str]], *, room: int, where: str) -> tuple[list[Block], list[LongValue]]:
    names, shown = _names(fields), [visible(value) for _, value in fields]
    overhead = sum(map(len, names))
    if overhead + sum(map(len, shown)) > room:
        fields = _bounded_fields(fields)
        names, shown = _names(fields), [visible(value) for _, value in fields]
        overhead = sum(map(len, names)) + len(fields) * CUT_NOTE
    shares = _shares([len(value) for value in shown], max(MIN_FIELDS, room - overhead))
    elements: list[Block] = []
    long: list[LongValue] = []
    for number, (name, value, share) in enumerate(zip(names, shown, shares, strict=True), start=1):
        elements += [_words(name, bold=True), *_preformatted(value[:share])]
        if len(value) > share:
            long.append(LongValue(f"input-{number}.txt", fields[number - 1][1]))
            elements.append(_words(_cut(share, value, long[-1], where)))
    return list(_rich(elements)), long


def _names(fields: Sequence[tuple[str, str]]) -> list[str]:
    return [" ".join(visible(name).split())[:MAX_NAME] or "(no name)" for name, _ in fields]


def _cut(share: int, shown: str, value: LongValue, where: str) -> str:
    digest = hashlib.sha256(value.content).hexdigest()
    said = f"Cut: {share:,} of {len(shown):,} characters are shown. SHA-256 of the whole: {digest}."
    return f"{said} {where.format(value.name)}".strip()


def _evidence(evidence: Sequence[str]) -> Iterator[Block]:
    if not evidence:
        return
    lines: list[str] = []
    room = MAX_EVIDENCE
    for number, item in enumerate(evidence):
        shown = " ".join(visible(item).split())
        line = shown if len(shown) <= MAX_DETAIL // 2 else f"{shown[: MAX_DETAIL // 2]}… ({len(shown):,} characters)"
        if len(line) > room:
            lines.append(f"and {len(evidence) - number} more")
            break
        lines.append(line)
        room -= len(line) + 1
    yield from _contexts(["Read from outside before this was asked:", *lines])


def buttons(given: Sequence[Button]) -> list[Block]:
    """Draw buttons, five a row; a label too long for a button is written out above."""
    drawn: list[Block] = []
    labels = [
        " ".join(visible(button.label).split())[:MAX_DETAIL] or f"Option {number}" for number, button in enumerate(given, start=1)
    ]
    long = [f"{number}. {label}" for number, label in enumerate(labels, start=1) if len(label) > MAX_LABEL]
    long = [label[: MAX_LONG_LABELS // len(long)] for label in long]
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


def _shares(sizes: Sequence[int], room: int) -> list[int]:
    """Divide the room: short values are whole, the long ones share what is left evenly."""
    shares = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for done, index in enumerate(order):
        shares[index] = min(sizes[index], room // (len(order) - done))
        room -= shares[index]
    return shares


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


def _words(text: str, *, bold: bool = False) -> Block:
    return {"type": "rich_text_section", "elements": [_text(text, bold=bold)]}


def _preformatted(value: str) -> Iterator[Block]:
    if not value:
        yield _words("(empty)")
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


def _outcome(outcome: CardOutcome, result: str) -> list[Block]:
    line = f"{_SIGNS[outcome.kind]} {' '.join(visible(outcome.text).split())[:MAX_DETAIL]}"
    when: Block = {"type": "context", "elements": [_marked(moment(outcome.at))]}
    return [*_sections(line), *_sections(result), when]
