"""Blocks and their limits. Every word is literal text: nothing in it can format, link, or mention anybody.

What lives here: pure building of sections, contexts, fields and cuts. What does not: cards, Markdown, whole messages, or calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from channels.cards import Card
from channels.fallback import card_text, visible

Block = dict[str, Any]

# https://docs.slack.dev/reference/block-kit/blocks
MAX_BLOCKS = 50
MAX_SECTION = 3_000
MAX_CONTEXT = 2_000
MAX_CONTEXT_ELEMENTS = 10
MAX_PREFORMATTED = 2_800

# Our own, so that a card stays far below what Slack takes of a message.
MAX_DETAIL = 600
MAX_NAME = 80
MAX_CUT_FIELDS = 10
MIN_FIELDS = 1_000
CUT_NOTE = 170


@dataclass(frozen=True, slots=True)
class LongValue:
    """A text that a card can't hold whole; `name` is the file that has it to the byte."""

    name: str
    value: str

    @property
    def content(self) -> bytes:
        """The value as it runs: the hash on the card is of these bytes."""
        return self.value.encode("utf-8", errors="replace")


@dataclass(slots=True)
class Cuts:
    """What had to be cut; `where` says where the rest is, `head` goes before the names of files."""

    where: str
    head: str = ""
    long: list[LongValue] = field(default_factory=list)

    def kept(self, name: str, text: str, limit: int) -> str:
        """Return the text made visible, or its beginning with what is missing: its length, its hash and its file."""
        shown = visible(text)
        return shown if len(shown) <= limit else f"{shown[:limit]}\n{self.cut(name, text, limit)}"

    def cut(self, name: str, text: str, shown: int) -> str:
        """Note a text that is cut, and say so."""
        value = LongValue(f"{self.head}{name}", text)
        self.long.append(value)
        digest = hashlib.sha256(value.content).hexdigest()
        said = f"Cut: {shown:,} of {len(visible(text)):,} characters are shown. SHA-256 of the whole: {digest}."
        return f"{said} {self.where.format(value.name)}".strip()

    def under(self, head: str) -> Cuts:
        """Return the same with other names of files; what is cut there is noted here."""
        return Cuts(self.where, head, self.long)


def characters(blocks: Sequence[Block]) -> int:
    """Count the characters that blocks show: Slack limits their sum as well."""
    return sum(_size(block) for block in blocks)


def _size(part: object) -> int:
    if isinstance(part, dict):
        return sum(len(value) if name == "text" and isinstance(value, str) else _size(value) for name, value in part.items())
    return sum(map(_size, part)) if isinstance(part, list) else 0


def field_blocks(fields: Sequence[tuple[str, str]], *, room: int, cuts: Cuts) -> list[Block]:
    """Draw names and values; if they are more than `room`, the long ones share it."""
    room = max(MIN_FIELDS, room)
    names, shown = _names(fields), [visible(value) for _, value in fields]
    overhead = sum(map(len, names))
    if overhead + sum(map(len, shown)) > room:
        fields = _bounded_fields(fields)
        names, shown = _names(fields), [visible(value) for _, value in fields]
        overhead = sum(map(len, names)) + len(fields) * CUT_NOTE
    parts = shares([len(value) for value in shown], max(MIN_FIELDS, room - overhead))
    elements: list[Block] = []
    for number, (name, value, share) in enumerate(zip(names, shown, parts, strict=True), start=1):
        elements += [_words(name, bold=True), *_preformatted(value[:share])]
        if len(value) > share:
            elements.append(_words(cuts.cut(f"input-{number}.txt", fields[number - 1][1], share)))
    return list(_rich(elements))


def _bounded_fields(fields: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Return so few fields that each gets some room: the last one has those that don't, each behind its name."""
    if len(fields) <= MAX_CUT_FIELDS:
        return fields
    rest = fields[MAX_CUT_FIELDS - 1 :]
    return [*fields[: MAX_CUT_FIELDS - 1], (f"{len(rest)} more fields", card_text(Card("", fields=tuple(rest))).strip("\n"))]


def _names(fields: Sequence[tuple[str, str]]) -> list[str]:
    return [one_line(name)[:MAX_NAME] or "(no name)" for name, _ in fields]


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Divide the room: short values are whole, the long ones share what is left evenly."""
    divided = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for done, index in enumerate(order):
        divided[index] = min(sizes[index], max(0, room) // (len(order) - done))
        room -= divided[index]
    return divided


def moment(at: int) -> str:
    """Write a time in mrkdwn: in the reader's own time zone, in UTC where that can't be shown."""
    try:
        fallback = datetime.fromtimestamp(at / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "at some time"
    return f"<!date^{at // 1000}^{{date_short_pretty}} at {{time}}|{fallback}>"


def one_line(text: str) -> str:
    """Return a text made visible on one line."""
    return " ".join(visible(text).split())


def short(text: str, limit: int) -> str:
    """Return a text made visible on one line, with a sign where it is cut."""
    line = one_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def plain(text: str) -> Block:
    """Return a text object in which nothing means anything."""
    return {"type": "plain_text", "text": text, "emoji": False}


def marked(text: str) -> Block:
    """Return a text object in Slack's markup: for times only."""
    return {"type": "mrkdwn", "text": text}


def sections(text: str) -> Iterator[Block]:
    """Draw a text, in several sections if it is long."""
    for part in _parts(text, MAX_SECTION):
        yield {"type": "section", "text": plain(part)}


def contexts(texts: Sequence[str]) -> Iterator[Block]:
    """Draw small texts, ten a block."""
    elements = [plain(part) for text in texts for part in _parts(text, MAX_CONTEXT)]
    for at in range(0, len(elements), MAX_CONTEXT_ELEMENTS):
        yield {"type": "context", "elements": elements[at : at + MAX_CONTEXT_ELEMENTS]}


def _parts(text: str, size: int) -> Iterator[str]:
    for at in range(0, len(text), size):
        part = text[at : at + size]
        if part.strip():
            yield part


def _words(text: str, *, bold: bool = False) -> Block:
    element: Block = {"type": "text", "text": text}
    return {"type": "rich_text_section", "elements": [element | {"style": {"bold": True}} if bold else element]}


def _preformatted(value: str) -> Iterator[Block]:
    if not value:
        yield _words("(empty)")
    for at in range(0, len(value), MAX_PREFORMATTED):
        yield {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": value[at : at + MAX_PREFORMATTED]}]}


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
