"""Buttons and lists to choose from, within Slack's limits.

What lives here: pure building of `actions` blocks. What does not: what stands around them, or reading a click (`clicks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from channels.cards import Button, CardItem
from channels.slack.blocks import Block, Cuts, contexts, one_line, plain
from channels.slack.clicks import action_id

# https://docs.slack.dev/reference/block-kit/block-elements
BUTTONS_A_ROW = 5
MAX_BUTTONS = 25
MAX_LABEL = 75
MAX_OPTIONS = 100
MAX_OPTION_VALUE = 150

# Our own: the labels of a long list together, and what is written out above it.
MAX_LIST = 4_000
MAX_LEGEND = 1_500
MIN_LABEL = 12


@dataclass(slots=True)
class Controls:
    """Draws what can be pressed; ids are counted over the whole card, `origin` is the conversation a private card is about."""

    cuts: Cuts
    origin: str = ""
    count: int = 0
    legend: int = MAX_LEGEND
    """Characters of what is written out above a question's controls."""

    def of(self, item: CardItem) -> list[Block]:
        """Draw a question's buttons and list; a label or description too long for them is written out above."""
        if not item.open:
            return []
        in_list = [button for button in item.options if len(button.value) <= MAX_OPTION_VALUE] if _is_long(item) else []
        pressed = [button for button in item.buttons if button not in in_list]
        limit = min(MAX_LABEL, max(MIN_LABEL, MAX_LIST // max(1, len(in_list))))
        legend = [
            f"{number}. {label}{f': {description}' if description else ''}"
            for number, (button, label, description) in enumerate(map(_said, item.buttons), start=1)
            if len(label) > (limit if button in in_list else MAX_LABEL)
            or len(description) > (limit // 2 if button in in_list else 0)
        ]
        numbers = {id(button): number for number, button in enumerate(item.buttons, start=1)}
        drawn = list(contexts([self.cuts.kept("options.txt", "\n".join(legend), self.legend)])) if legend else []
        for at in range(0, len(in_list), MAX_OPTIONS):
            part = in_list[at : at + MAX_OPTIONS]
            drawn.append({"type": "actions", "elements": [self._list(part, numbers, limit=limit, first=at + 1, of=len(in_list))]})
        return [*drawn, *self._rows([self._button(button, numbers[id(button)]) for button in pressed])]

    def plainly(self, items: Sequence[tuple[str, CardItem]]) -> list[Block]:
        """Draw the same as buttons only, each with the head of its question before its label."""
        buttons = [
            self._button(button, number, head=head) for head, item in items for number, button in enumerate(_all(item), start=1)
        ]
        return self._rows(buttons)

    def _rows(self, elements: Sequence[Block]) -> list[Block]:
        size = BUTTONS_A_ROW if len(elements) <= BUTTONS_A_ROW * 4 else MAX_BUTTONS
        return [{"type": "actions", "elements": list(elements[at : at + size])} for at in range(0, len(elements), size)]

    def _button(self, button: Button, number: int, *, head: str = "") -> Block:
        label = head + (_said(button)[1] or f"Option {number}")
        element: Block = {
            "type": "button",
            "text": plain(label if len(label) <= MAX_LABEL else f"{number}. {label[: MAX_LABEL - 6]}…"),
            "action_id": self._next_id(),
            "value": button.value,
        }
        return element if button.style == "plain" else element | {"style": button.style}

    def _list(self, options: Sequence[Button], numbers: dict[int, int], *, limit: int, first: int, of: int) -> Block:
        said = f"Choose, {first} to {first + len(options) - 1} of {of}" if of > MAX_OPTIONS else "Choose an answer"
        return {
            "type": "static_select",
            "action_id": self._next_id(),
            "placeholder": plain(said),
            "options": [_option(option, numbers[id(option)], limit) for option in options],
        }

    def _next_id(self) -> str:
        self.count += 1
        return action_id(self.count, self.origin)


def _is_long(item: CardItem) -> bool:
    return item.display == "select" or len(item.options) > MAX_BUTTONS


def _all(item: CardItem) -> tuple[Button, ...]:
    return item.buttons if item.open else ()


def _said(button: Button) -> tuple[Button, str, str]:
    return button, one_line(button.label), one_line(button.description)


def _option(button: Button, number: int, limit: int) -> Block:
    _, label, description = _said(button)
    label = label or f"Option {number}"
    shown = label if len(label) <= limit else f"{number}. {label[: limit - 6]}…"
    option: Block = {"text": plain(shown), "value": button.value}
    return option | {"description": plain(description)} if 0 < len(description) <= limit // 2 else option
