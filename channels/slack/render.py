"""A whole message for Slack: its blocks, its plain text, and what has to go into a file.

What lives here: pure rendering of `Outbound` within a message's limits. What does not: single blocks, or calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from channels.cards import Card
from channels.fallback import card_text, split_text
from channels.outbound import Outbound
from channels.slack.address import is_id
from channels.slack.blocks import MAX_BLOCKS, MAX_SECTION, Block, characters
from channels.slack.drawing import card_blocks, plain_card_blocks
from channels.slack.markdown import escape, harmless, mrkdwn, revealed

MAX_MARKDOWN = 12_000
"""Of all `markdown` blocks of a message together; other blocks were refused at about as much."""
MAX_TEXT = 40_000
MAX_EDITED_TEXT = 3_800
"""Bytes: an update with a longer `text` is refused as too long, whatever the blocks say."""

MAX_WITH_CARD = 2_000
PREVIEW = 3_000
MAX_NOTICE = 2_000
MAX_MENTIONS = 20

_UNSENDABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


class Files(StrEnum):
    """Whether what doesn't fit can go into a file."""

    ADDED = "added"
    REFUSED = "refused"
    EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class File:
    """A file that is shared in the thread behind the message."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to show a message; without blocks, Slack shows the text."""

    text: str
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    """A message in its best form, in a plainer one for when that is refused, and its files."""

    best: Shape
    plain: Shape
    files: tuple[File, ...] = ()


def render(message: Outbound, *, tag: str, files: Files = Files.ADDED, editing: bool = False, origin: str = "") -> Rendered:
    """Draw a message. `tag` makes the ids of its blocks, which have to be new for every update.

    `origin` is the conversation that a card is about which is shown elsewhere.
    """
    text, kept = _fitted(_whole(message.text), with_card=message.card is not None, files=files, editing=editing)
    called = _called(message.mentions)
    blocks = [*([_small(called)] if called else []), *_text_blocks(text, notice=message.notice)]
    if message.card is None:
        shown = " ".join(filter(None, [called, mrkdwn(text).strip()])) or "(an empty message)"
        plain = Shape(_cut(shown, MAX_EDITED_TEXT) if editing else shown)
        return Rendered(Shape(_cut(shown, MAX_EDITED_TEXT), _tagged(blocks, tag)) if blocks else plain, plain, kept)
    return _with_card(message.card, text, blocks, tag=tag, files=files, kept=kept, origin=origin)


def _with_card(
    card: Card, text: str, blocks: list[Block], *, tag: str, files: Files, kept: tuple[File, ...], origin: str
) -> Rendered:
    seen = files is not Files.REFUSED
    drawn = card_blocks(card, room=MAX_MARKDOWN - characters(blocks), where=_WHERE[files], origin=origin, seen=seen)
    # Buttons carry the choice: they stand beside the text, not in it.
    words = card_text(card.bare)
    sections = _section_blocks(text)
    plain = [*sections, *plain_card_blocks(card, room=MAX_MARKDOWN - characters(sections), origin=origin, seen=seen)]
    summary = _cut("\n".join(filter(None, [mrkdwn(text).strip(), escape(words)])), MAX_EDITED_TEXT)
    added = (*kept, *(File(long.name, long.content) for long in drawn.long)) if files is Files.ADDED else ()
    return Rendered(Shape(summary, _tagged([*blocks, *drawn.blocks], tag)), Shape(summary, _tagged(plain, f"{tag}-p")), added)


_WHERE = {
    Files.ADDED: "The file {} below has all of it.",
    Files.REFUSED: "The rest can't be shown here: Slack took no file.",
    Files.EARLIER: "",
}


def _whole(text: str) -> str:
    """Return the text with a sign for each half character and control character, which no message can hold; no tricks."""
    return revealed(_UNSENDABLE.sub("\ufffd", text.replace("\r\n", "\n")))


def _fitted(text: str, *, with_card: bool, files: Files, editing: bool) -> tuple[str, tuple[File, ...]]:
    """Return the text that fits, and the file with all of it if it doesn't."""
    small = MAX_WITH_CARD if with_card else MAX_MARKDOWN
    if len(text) <= small:
        return text, ()
    # A longer one goes as sections or, if those are refused, as text: an update takes neither.
    if not (with_card or editing or len(text) > MAX_TEXT or len(mrkdwn(text)) > MAX_TEXT or len(_sections(text)) > MAX_BLOCKS):
        return text, ()
    if files is Files.ADDED:
        preview = _beginning(text, PREVIEW)
        note = f"_The beginning of {len(text):,} characters. The file below has all of it._"
        return f"{preview}\n\n{note}", (File("reply.md", text.encode()),)
    shown = _beginning(text, MAX_WITH_CARD if with_card else MAX_MARKDOWN - 500)
    return f"{shown}\n\n_Cut: {len(shown):,} of {len(text):,} characters are shown; Slack took no file._", ()


def _beginning(text: str, size: int) -> str:
    return next(iter(split_text(text, size)), "")


def _text_blocks(text: str, *, notice: bool) -> list[Block]:
    if not text.strip():
        return []
    if notice and len(mrkdwn(text)) <= MAX_NOTICE:
        return [_small(mrkdwn(text))]
    shown = harmless(text)
    if len(shown) <= MAX_MARKDOWN:
        return [{"type": "markdown", "text": shown}]
    return _section_blocks(text)


def _small(marked: str) -> Block:
    # Verbatim: a bare address or a channel's name that a remark quotes is no link.
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": marked, "verbatim": True}]}


def _called(mentions: Sequence[str]) -> str:
    """Mention people by their ids; what can't be an id mentions nobody."""
    return " ".join(f"<@{one}>" for one in mentions[:MAX_MENTIONS] if is_id(one))


def _section_blocks(text: str) -> list[Block]:
    return [{"type": "section", "text": {"type": "mrkdwn", "text": part}} for part in _sections(text)]


def _sections(text: str) -> list[str]:
    return [part for piece in split_text(text, MAX_SECTION - 200) for part in _section(piece)]


def _section(piece: str) -> Iterator[str]:
    """Write a piece in mrkdwn, in several where the escapes make it too long."""
    shown = mrkdwn(piece)
    if len(shown) <= MAX_SECTION:
        if shown.strip():
            yield shown
        return
    for smaller in split_text(piece, max(64, len(piece) // 2)):
        yield from _section(smaller)


def _cut(text: str, limit: int) -> str:
    """Cut at a number of bytes, saying how long it was."""
    size = len(text.encode())
    if size <= limit:
        return text
    note = f"\n… Cut: {len(text):,} characters in all."
    kept = text.encode()[: limit - len(note.encode())].decode(errors="ignore")
    # Not within an escape or a link.
    opened = max(kept.rfind("&"), kept.rfind("<"))
    if opened > max(kept.rfind(";"), kept.rfind(">")):
        kept = kept[:opened]
    return kept + note


def _tagged(blocks: list[Block], tag: str) -> tuple[Block, ...]:
    return tuple(block | {"block_id": f"{tag[:200]}-{number}"} for number, block in enumerate(blocks))
