"""What a platform can't do, done in plain text: cards as numbered options, long texts as parts, tricks made visible.

What lives here: pure text rendering that any adapter may use. What does not: any platform's markup.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime

from channels.cards import Card, CardItem, CardOutcome
from channels.outbound import Outbound

MIN_PART = 64

_MANY_SPACES = re.compile(r" {33,}")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# Marks and letters that show nothing but are neither control nor format characters: combining grapheme joiner, Hangul and
# Khmer fillers, Mongolian and other variation selectors.
_HIDDEN_RANGES = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0100, 0xE01EF),
)


def visible(text: str) -> str:
    """Show what would be unseen: control, format, bidi and unassigned characters as escapes, long gaps by their length.

    Line breaks and tabs stay. For text that a person approves: what they read must be what will run.
    """
    shown = "".join(f"\\u{{{ord(char):x}}}" if _is_hidden(char) else char for char in text)
    return _MANY_SPACES.sub(lambda gap: f" [{len(gap[0])} spaces] ", shown)


def _is_hidden(char: str) -> bool:
    if char in "\n\t" or " " <= char <= "~":
        return False
    code = ord(char)
    return unicodedata.category(char) in _HIDDEN_CATEGORIES or any(low <= code <= high for low, high in _HIDDEN_RANGES)


def card_text(card: Card) -> str:
    """Write a card as text, its options numbered, or its outcome once it is settled.

    Of several questions, one is asked at a time: the options that are numbered belong to the first that is open, and those
    after it stand there by name. A value stands behind a bar on every one of its lines, so that none can pass for a line of ours.
    """
    if not card.items:
        return "\n".join(_question(card))
    lines = [visible(card.question), *([visible(card.detail)] if card.detail else [])]
    asked = False
    for number, item in enumerate(card.items, start=1):
        place = f"{number} of {len(card.items)}"
        if item.open and asked:
            lines += ["", f"({place}) comes next: {_one_line(item.question)}"]
        else:
            lines += ["", *_question(item, place=f"({place}) ")]
        asked = asked or bool(item.options) or (item.open and item.freeform)
    if card.outcome is not None:
        lines += ["", *_outcome(card.outcome)]
    return "\n".join(lines)


def _question(item: CardItem, *, place: str = "") -> list[str]:
    lines = [] if item.said and not place else [f"{place}{visible(item.question)}"]
    if item.detail:
        lines.append(visible(item.detail))
    for name, value in item.fields:
        lines += [f"{_one_line(name)}:", *_behind_bar(value)]
    if item.evidence:
        lines.append("What was read:")
        for read in item.evidence:
            lines += _behind_bar(read)
    if item.outcome is not None:
        return [*lines, *([""] if lines else []), *_outcome(item.outcome)]
    if item.progress:
        lines.append(_one_line(item.progress))
    lines += _options(item)
    if item.expires_at is not None:
        lines.append(f"Expires {_moment(item.expires_at)}.")
    return lines


def _options(item: CardItem) -> list[str]:
    lines = [
        f"{number}. {_one_line(option.label)}" + (f": {_one_line(option.description)}" if option.description else "")
        for number, option in enumerate(item.options, start=1)
    ]
    how = ["Answer with the number, or in your own words."] if item.freeform else ["Answer with the number."]
    if not lines:
        return ["Answer in your own words."] if item.freeform else []
    return ["", *lines, *how]


def _outcome(outcome: CardOutcome) -> list[str]:
    lines = [_one_line(outcome.text)]
    if outcome.note:
        lines += [f"{outcome.note_title}:", *_behind_bar(outcome.note)]
    for name, value in outcome.changes:
        lines += [f"Changed {_one_line(name)}:", *_behind_bar(value)]
    if outcome.result:
        lines += _behind_bar(outcome.result)
    return lines


def outbound_text(message: Outbound) -> str:
    """Write a whole message as text."""
    shown = [message.text] if message.text.strip() else []
    if message.card is not None:
        shown.append(card_text(message.card))
    return "\n\n".join(shown)


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())


def _behind_bar(text: str) -> list[str]:
    return [f"  | {line}" for line in visible(text).split("\n")]


def _moment(at: int) -> str:
    try:
        return datetime.fromtimestamp(at / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "at some time"


@dataclass(frozen=True, slots=True)
class _Fence:
    """An open code block: the line that opened it and the run of marks that closes it."""

    opening: str
    marks: str

    @property
    def closing_cost(self) -> int:
        return len(self.marks) + 1

    def is_closed_by(self, line: str) -> bool:
        found = _FENCE.fullmatch(line)
        return found is not None and found[1].startswith(self.marks) and not found[2].strip()


class _Parts:
    """Parts of at most `limit` characters, built line by line."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.done: list[str] = []
        self.lines: list[str] = []
        self.size = -1  # length of the lines joined; the first line has no separator
        self.fresh = True  # nothing but a reopened fence so far
        self.fence: _Fence | None = None

    def room(self, fence: _Fence | None) -> int:
        """Return how long the next line may be if `fence` is open behind it."""
        return self.limit - self.size - 1 - (fence.closing_cost if fence else 0)

    def put(self, line: str) -> None:
        self.lines.append(line)
        self.size += len(line) + 1
        self.fresh = False

    def cut(self) -> None:
        """End this part and begin the next, closing and reopening an open fence."""
        if not self.fresh:
            lines = [*self.lines, self.fence.marks] if self.fence else self.lines
            part = "\n".join(lines)
            if part.strip():
                self.done.append(part)
        self.lines, self.size, self.fresh = [], -1, True
        if self.fence is not None:
            self.lines, self.size = [self.fence.opening], len(self.fence.opening)

    def add(self, line: str) -> None:
        """Add a line, in the next part if it doesn't fit here, in several if it fits in none."""
        behind = _fence_behind(line, self.fence, limit=self.limit)
        if len(line) > self.room(behind) and not self.fresh:
            self.cut()
            if self.fence is not None and behind is None:
                # The cut has closed the block already; reopening it just to close it would show an empty one.
                self.lines, self.size, self.fence = [], -1, None
                return
        self.fence = behind or self.fence
        while len(line) > self.room(behind):
            at = _cut_at(line, self.room(behind), words=self.fence is None)
            self.put(line[:at])
            line = line[at:]
            self.cut()
        self.put(line)
        self.fence = behind


def _fence_behind(line: str, fence: _Fence | None, *, limit: int) -> _Fence | None:
    """Return the code block that is open behind this line (CommonMark 0.31 §4.5)."""
    if fence is not None:
        return None if fence.is_closed_by(line) else fence
    found = _FENCE.fullmatch(line)
    if found is None or (found[1][0] == "`" and "`" in found[2]):
        return None
    marks = found[1]
    if len(marks) > limit // 8:
        return None  # nothing a person writes; it would leave no room for the text
    return _Fence(line if len(line) <= limit // 2 else marks, marks)


def _cut_at(line: str, room: int, *, words: bool) -> int:
    """Return where to cut a line too long: behind a blank if there is one in the second half, never before a mark of a fence."""
    at = line.rfind(" ", room // 2, room) + 1 if words else 0
    at = at or room
    while at > 1 and line[at] in "`~":
        at -= 1
    return at if at > 1 else room


def split_text(text: str, limit: int) -> tuple[str, ...]:
    """Split a text into parts of at most `limit` characters (64 or more), at line breaks where possible.

    A code block that is cut is closed in one part and opened again in the next. Parts of blanks only are left out, so
    an empty text has no parts.
    """
    if limit < MIN_PART:
        raise ValueError(f"a part has {MIN_PART} characters at least, not {limit}")
    if len(text) <= limit:
        return (text,) if text.strip() else ()
    parts = _Parts(limit)
    for line in text.split("\n"):
        parts.add(line)
    parts.cut()
    return tuple(parts.done)
