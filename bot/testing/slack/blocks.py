"""Which blocks Slack takes, and how it says what is wrong with the others.

What lives here: the limits of Block Kit (docs.slack.dev/reference/block-kit/blocks). What does not: who may post them.
Blocks newer than most workspaces (card, container, plan, …) are refused as unknown: an app can't count on them.
"""

from __future__ import annotations

from typing import Any, Final

from bot.testing.slack.refusals import Refused
from bot.testing.slack.values import Json, texts

MAX_BLOCKS: Final = 50
MAX_MODAL_BLOCKS: Final = 100
MAX_TOTAL: Final = 13_200
MAX_MARKDOWN: Final = 12_000
_SELECTS: Final = frozenset({"static_select", "radio_buttons", "checkboxes", "overflow"})
_OPTIONS: Final = {"static_select": 100, "radio_buttons": 10, "checkboxes": 10, "overflow": 5}
_OTHER_ACTIONS: Final = frozenset(
    {"datepicker", "timepicker", "datetimepicker", "users_select", "conversations_select", "channels_select", "external_select"}
)
_INPUT: Final = frozenset({"type", "block_id", "label", "element", "hint", "optional", "dispatch_action"})
_TEXT_INPUT: Final = frozenset(
    {"type", "action_id", "placeholder", "initial_value", "multiline", "min_length", "max_length", "focus_on_load"}
    | {"dispatch_action_config"}
)
_UNCHECKED: Final = frozenset({"divider", "rich_text", "file", "video"})


def check_blocks(value: object, *, modal: bool = False) -> list[Json]:
    """Return the blocks, each with a block_id, or refuse them as Slack does. Raises: Refused."""
    if not isinstance(value, list) or not all(isinstance(block, dict) for block in value):
        raise Refused("invalid_blocks_format")
    checker = _Checker(modal=modal)
    checker.blocks(value)
    if checker.problems:
        raise Refused("invalid_blocks", messages=checker.problems)
    if not modal and sum(len(text) for text in texts(value)) > MAX_TOTAL:
        raise Refused("msg_blocks_too_long")
    return value


class _Checker:
    """Walks blocks; a problem names its place as a JSON pointer."""

    def __init__(self, *, modal: bool) -> None:
        self.problems: list[str] = []
        self._modal = modal
        self._markdown = 0

    def blocks(self, blocks: list[Json]) -> None:
        most = MAX_MODAL_BLOCKS if self._modal else MAX_BLOCKS
        if len(blocks) > most:
            self._say(f"no more than {most} items allowed", "/blocks")
            return
        seen: set[str] = set()
        for number, block in enumerate(blocks):
            at = f"/blocks/{number}"
            block_id = block.get("block_id")
            if block_id is not None:
                self._id(block_id, f"{at}/block_id")
                if block_id in seen:
                    self._say(f"block_id `{block_id}` already exists", f"{at}/block_id")
                seen.add(str(block_id))
            self._block(block, at)
        if self._markdown > MAX_MARKDOWN:
            self._say(f"markdown blocks must be less than {MAX_MARKDOWN + 1} characters together", "/blocks")

    def _block(self, block: Json, at: str) -> None:
        match block.get("type"):
            case "section":
                self._section(block, at)
            case "header":
                self._text(block.get("text"), f"{at}/text", most=150, plain=True)
            case "context":
                self._context(block, at)
            case "actions":
                self._actions(block, at)
            case "markdown":
                self._string(block.get("text"), f"{at}/text", MAX_MARKDOWN)
                self._markdown += len(str(block.get("text", "")))
            case "image":
                self._image(block, at)
            case "table":
                self._table(block, at)
            case "input":
                self._input(block, at)
            case kind if kind not in _UNCHECKED:
                self._say(f"unsupported type: {kind}", f"{at}/type")

    def _section(self, block: Json, at: str) -> None:
        fields = block.get("fields")
        if "text" not in block and fields is None:
            self._say("missing required field: text", at)
        if "text" in block:
            self._text(block["text"], f"{at}/text", most=3000)
        if fields is not None and self._items(fields, f"{at}/fields", 10):
            for number, item in enumerate(fields):
                self._text(item, f"{at}/fields/{number}", most=2000)
        if "accessory" in block:
            self._element(block["accessory"], f"{at}/accessory", {"image"})

    def _input(self, block: Json, at: str) -> None:
        if not self._modal:
            self._say("unsupported type: input", f"{at}/type")
        for name in sorted(block.keys() - _INPUT):
            self._say(f"no more fields allowed: {name}", at)
        self._text(block.get("label"), f"{at}/label", most=2000, plain=True)
        if "hint" in block:
            self._text(block["hint"], f"{at}/hint", most=2000, plain=True)
        for name in ("optional", "dispatch_action"):
            if not isinstance(block.get(name, False), bool):
                self._say("must be a boolean", f"{at}/{name}")
        element = block.get("element")
        if not isinstance(element, dict):
            self._say("missing required field: element", at)
        elif element.get("type") == "plain_text_input":
            self._text_input(element, f"{at}/element")
        elif element.get("type") not in {*_SELECTS - {"overflow"}, *_OTHER_ACTIONS}:
            self._say(f"unsupported type: {element.get('type')}", f"{at}/element/type")

    def _text_input(self, element: Json, at: str) -> None:
        for name in sorted(element.keys() - _TEXT_INPUT):
            self._say(f"no more fields allowed: {name}", at)
        if "action_id" in element:
            self._id(element["action_id"], f"{at}/action_id")
        if "placeholder" in element:
            self._text(element["placeholder"], f"{at}/placeholder", most=150, plain=True)
        least, most = element.get("min_length", 0), element.get("max_length", 3000)
        if not (isinstance(least, int) and isinstance(most, int) and 0 <= least <= 3000 and 1 <= most <= 3000 and least <= most):
            self._say("must be a length from 0 to 3000", f"{at}/max_length")
        elif "initial_value" in element:
            self._string(element["initial_value"], f"{at}/initial_value", most)

    def _context(self, block: Json, at: str) -> None:
        elements = block.get("elements")
        if not self._items(elements, f"{at}/elements", 10):
            return
        for number, element in enumerate(elements or ()):
            place = f"{at}/elements/{number}"
            if isinstance(element, dict) and element.get("type") == "image":
                self._image(element, place)
            else:
                self._text(element, place, most=3000)

    def _actions(self, block: Json, at: str) -> None:
        elements = block.get("elements")
        if not self._items(elements, f"{at}/elements", 25):
            return
        seen: set[object] = set()
        for number, element in enumerate(elements or ()):
            place = f"{at}/elements/{number}"
            self._element(element, place, set())
            action_id = element.get("action_id") if isinstance(element, dict) else None
            if isinstance(action_id, str):
                if action_id in seen:
                    self._say(f"`action_id`: `{action_id}` already exists for another element in this block", place)
                seen.add(action_id)

    def _element(self, element: Any, at: str, more: set[str]) -> None:
        if not isinstance(element, dict):
            self._say("must be an object", at)
            return
        kind = element.get("type")
        if "action_id" in element:
            self._id(element["action_id"], f"{at}/action_id")
        if kind == "button":
            self._button(element, at)
        elif kind in _SELECTS:
            self._select(element, at, _OPTIONS[kind])
        elif kind == "image" and kind in more:
            self._image(element, at)
        elif kind not in _OTHER_ACTIONS:
            self._say(f"unsupported type: {kind}", f"{at}/type")

    def _button(self, button: Json, at: str) -> None:
        self._text(button.get("text"), f"{at}/text", most=75, plain=True)
        if "value" in button:
            self._string(button["value"], f"{at}/value", 2000)
        if "url" in button:
            self._string(button["url"], f"{at}/url", 3000)
        if "accessibility_label" in button:
            self._string(button["accessibility_label"], f"{at}/accessibility_label", 75)
        if button.get("style") not in {None, "primary", "danger"}:
            self._say("must be one of primary, danger", f"{at}/style")
        if "confirm" in button:
            self._confirm(button["confirm"], f"{at}/confirm")

    def _confirm(self, confirm: Any, at: str) -> None:
        if not isinstance(confirm, dict):
            self._say("must be an object", at)
            return
        for name, most in (("title", 100), ("text", 300), ("confirm", 30), ("deny", 30)):
            self._text(confirm.get(name), f"{at}/{name}", most=most, plain=name != "text")

    def _select(self, element: Json, at: str, most: int) -> None:
        if "placeholder" in element:
            self._text(element["placeholder"], f"{at}/placeholder", most=150, plain=True)
        options = element.get("options")
        if not self._items(options, f"{at}/options", most):
            return
        for number, option in enumerate(options or ()):
            place = f"{at}/options/{number}"
            if not isinstance(option, dict):
                self._say("must be an object", place)
                continue
            self._text(option.get("text"), f"{place}/text", most=75)
            self._string(option.get("value"), f"{place}/value", 150)
            if "description" in option:
                self._text(option["description"], f"{place}/description", most=75, plain=True)

    def _image(self, image: Json, at: str) -> None:
        self._string(image.get("alt_text"), f"{at}/alt_text", 2000)
        if "image_url" not in image and "slack_file" not in image:
            self._say("missing required field: image_url", at)
        elif "image_url" in image:
            self._string(image["image_url"], f"{at}/image_url", 3000)

    def _table(self, block: Json, at: str) -> None:
        rows = block.get("rows")
        if self._items(rows, f"{at}/rows", 100):
            for number, row in enumerate(rows or ()):
                self._items(row, f"{at}/rows/{number}", 20)

    def _text(self, value: Any, at: str, *, most: int, plain: bool = False) -> None:
        if value is None:
            self._say(f"missing required field: {at.rpartition('/')[2]}", at.rpartition("/")[0])
            return
        kinds = {"plain_text"} if plain else {"plain_text", "mrkdwn"}
        if not isinstance(value, dict) or value.get("type") not in kinds:
            self._say(f"must be a text object of type {' or '.join(sorted(kinds))}", at)
            return
        for name in value.keys() - {"type", "text", "emoji" if value["type"] == "plain_text" else "verbatim"}:
            self._say(f"no more fields allowed: {name}", at)
        self._string(value.get("text"), f"{at}/text", most)

    def _id(self, value: Any, at: str) -> None:
        self._string(value, at, 255)

    def _string(self, value: Any, at: str, most: int) -> None:
        if not isinstance(value, str):
            self._say("must be a string", at)
        elif not value:
            self._say("must be more than 0 characters", at)
        elif len(value) > most:
            self._say(f"must be less than {most + 1} characters", at)

    def _items(self, value: Any, at: str, most: int) -> bool:
        if not isinstance(value, list):
            self._say("must be an array", at)
        elif not value:
            self._say("no less than 1 items allowed", at)
        elif len(value) > most:
            self._say(f"no more than {most} items allowed", at)
        else:
            return True
        return False

    def _say(self, problem: str, at: str) -> None:
        self.problems.append(f"{problem} [json-pointer:{at}]")
