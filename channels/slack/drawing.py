"""Cards as blocks: one question or several, open, partly answered or settled.

What lives here: what of a card goes where, and what has to be cut. What does not: single blocks (`blocks.py`), what can be
pressed (`controls.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from channels.cards import Card, CardItem, CardOutcome
from channels.fallback import card_text
from channels.slack.blocks import (
    CUT_NOTE,
    MAX_BLOCKS,
    MAX_DETAIL,
    MIN_FIELDS,
    Block,
    Cuts,
    LongValue,
    characters,
    contexts,
    field_blocks,
    marked,
    moment,
    one_line,
    sections,
    shares,
    short,
)
from channels.slack.controls import Controls

MAX_QUESTION = 1_500
MAX_EVIDENCE = 1_000
MAX_RESULT = 1_000
MAX_NOTE = 1_000
MAX_TITLE = 200
BLOCKS_OF_A_SHORT_ITEM = 4
SPARE_BLOCKS = 5
ROOM_OF_A_SHORT_ITEM = 250

_SIGNS = {
    "approved": "✅",
    "denied": "⛔",
    "answered": "✅",
    "expired": "⌛",
    "cancelled": "➖",
    "ignored": "➖",
    "overridden": "⚠️",
    "mixed": "☑️",
}


@dataclass(frozen=True, slots=True)
class CardBlocks:
    """A card's blocks, and the values that had to be cut."""

    blocks: list[Block]
    long: tuple[LongValue, ...]


def card_blocks(card: Card, *, room: int, where: str, origin: str = "", seen: bool = True) -> CardBlocks:
    """Draw a card within `room` characters; what is cut says so with its length and hash, `where` says where the rest is.

    `origin` is the conversation that a card is about which is shown elsewhere. Where what is cut can't be `seen` anywhere, nobody
    answers for all of several questions at once.
    """
    cuts = Cuts(where)
    if not card.items:
        return CardBlocks(_whole(card, room, cuts, Controls(cuts, origin)), tuple(cuts.long))
    drawn = _several(card, room, cuts, Controls(cuts, origin))
    if cuts.long or len(drawn) > MAX_BLOCKS or characters(drawn) > room:
        cuts = Cuts(where)
        card = card if seen else replace(card, buttons=())
        drawn = _several_short(card, room, cuts, Controls(cuts, origin))
    return CardBlocks(drawn, tuple(cuts.long))


def plain_card_blocks(card: Card, *, room: int, origin: str = "", seen: bool = True) -> list[Block]:
    """Draw a card in Slack's oldest blocks only: its words in sections, its buttons below; as in `card_blocks`."""
    text = card_text(card.bare)
    items = [(f"{number}. ", item) for number, item in enumerate(card.items, start=1)]
    asked = Controls(Cuts(""), origin).plainly([*items, ("", card)])
    room = max(MIN_FIELDS, room - characters(asked))
    if items and len(text) > room and not seen:
        asked = Controls(Cuts(""), origin).plainly(items)
    shown = text if len(text) <= room else f"{text[:room]}\n… Cut: {room:,} of {len(text):,} characters are shown."
    return [*sections(shown), *asked]


# ── one question ──


def _whole(item: CardItem, room: int, cuts: Cuts, controls: Controls, *, head: str = "") -> list[Block]:
    top = [] if item.said else [*sections(head + cuts.kept("question.txt", item.question, MAX_QUESTION))]
    top += contexts([cuts.kept("detail.txt", item.detail, MAX_DETAIL)])
    tail = [*_evidence(item.evidence, cuts)]
    tail += _open_end(item, controls) if item.outcome is None else _outcome(item.outcome, cuts)
    return [*top, *field_blocks(item.fields, room=room - characters([*top, *tail]), cuts=cuts), *tail]


def _open_end(item: CardItem, controls: Controls) -> list[Block]:
    drawn = [*contexts([short(item.progress, MAX_DETAIL)]), *controls.of(item)]
    if item.expires_at is not None:
        drawn.append({"type": "context", "elements": [marked(f"Expires {moment(item.expires_at)}")]})
    return drawn


def _outcome(outcome: CardOutcome, cuts: Cuts) -> list[Block]:
    drawn = [*sections(f"{_SIGNS[outcome.kind]} {short(outcome.text, MAX_DETAIL)}")]
    if outcome.note:
        drawn += sections(f"{outcome.note_title}:\n{_quoted(cuts.kept('note.txt', outcome.note, MAX_NOTE))}")
    if outcome.changes:
        changed = card_text(Card("Changed before it ran:", fields=outcome.changes))
        drawn += sections(cuts.kept("changes.txt", changed, MAX_NOTE))
    drawn += sections(cuts.kept("result.txt", outcome.result, MAX_RESULT))
    return [*drawn, {"type": "context", "elements": [marked(moment(outcome.at))]}]


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


def _evidence(evidence: Sequence[str], cuts: Cuts) -> list[Block]:
    if not evidence:
        return []
    lines: list[str] = []
    room = MAX_EVIDENCE
    for number, item in enumerate(evidence):
        line = one_line(item)
        if len(line) > min(room, MAX_DETAIL // 2):
            rest = "\n".join(evidence[number:])
            lines.append(f"and {len(evidence) - number} more. {cuts.cut('evidence.txt', rest, 0)}")
            break
        lines.append(line)
        room -= len(line) + 1
    return list(contexts(["Read from outside before this was asked:", *lines]))


# ── several questions ──


def _several(card: Card, room: int, cuts: Cuts, controls: Controls) -> list[Block]:
    drawn = _head(card, cuts)
    for number, item in enumerate(card.items, start=1):
        drawn.append({"type": "divider"})
        own = cuts.under(f"{number}-")
        drawn += _whole(item, room, own, controls, head=f"{number}. ") if item.open else _settled(number, item, own)
    return [*drawn, *_foot(card, cuts, controls)]


def _several_short(card: Card, room: int, cuts: Cuts, controls: Controls) -> list[Block]:
    """Draw many questions, or long ones: each as one text with its buttons, what is settled in a line, the rest in a file."""
    head = _head(card, cuts)
    foot = _foot(card, cuts, controls)
    numbered = list(enumerate(card.items, start=1))
    settled = [f"{_SIGNS[item.outcome.kind]} {_title(number, item)}" for number, item in numbered if item.outcome is not None]
    waiting = [(number, item) for number, item in numbered if item.open]
    done = [*sections(cuts.kept("settled.txt", "\n".join(settled), MAX_NOTE))]
    room -= characters([*head, *done, *foot])
    places = (MAX_BLOCKS - len([*head, *done, *foot]) - SPARE_BLOCKS) // BLOCKS_OF_A_SHORT_ITEM
    shown = waiting[: max(1, min(places, room // (ROOM_OF_A_SHORT_ITEM + CUT_NOTE)))]
    rest = waiting[len(shown) :]
    if rest:
        room -= 2 * CUT_NOTE
    texts = [_words(number, item) for number, item in shown]
    controls.legend //= len(shown) + 1
    asked = [controls.of(item) for _, item in shown]
    room -= sum(map(characters, asked)) + len(shown) * CUT_NOTE
    parts = shares([len(text) for text in texts], max(room, len(shown) * ROOM_OF_A_SHORT_ITEM))
    drawn: list[Block] = []
    for (number, _), text, part, pressed in zip(shown, texts, parts, asked, strict=True):
        drawn += [*sections(cuts.under(f"{number}-").kept("question.txt", text, part)), *pressed]
    if rest:
        whole = "\n\n".join(_words(number, item) for number, item in rest)
        said = f"{len(rest)} more wait for their turn, and are asked here when one above is settled. "
        drawn += sections(said + cuts.cut("waiting.txt", whole, 0))
    return [*head, *done, *drawn, *foot]


def _head(card: Card, cuts: Cuts) -> list[Block]:
    shown = [*sections(cuts.kept("question.txt", card.question, MAX_DETAIL))]
    return [*shown, *contexts([cuts.kept("detail.txt", card.detail, MAX_DETAIL)])]


def _foot(card: Card, cuts: Cuts, controls: Controls) -> list[Block]:
    return _open_end(card, controls) if card.outcome is None else _outcome(card.outcome, cuts)


def _words(number: int, item: CardItem) -> str:
    fields = tuple((name, value) for name, value in item.fields)
    whole = Card(
        item.question, item.detail, fields=fields, evidence=item.evidence, progress=item.progress, expires_at=item.expires_at
    )
    return f"{number}. {card_text(whole)}"


def _title(number: int, item: CardItem) -> str:
    title = f"{number}. {short(item.question, MAX_TITLE)}"
    return title if item.outcome is None else f"{title}: {short(item.outcome.text, MAX_DETAIL)}"


def _settled(number: int, item: CardItem, cuts: Cuts) -> list[Block]:
    """Draw an answered question among others: in two lines, with what was written and changed."""
    outcome = item.outcome
    if outcome is None:
        return []
    drawn = [*sections(f"{_SIGNS[outcome.kind]} {_title(number, item)}")]
    if outcome.note or outcome.changes or outcome.result:
        return [*drawn, *_outcome(outcome, cuts)[1:]]
    return [*drawn, {"type": "context", "elements": [marked(moment(outcome.at))]}]
