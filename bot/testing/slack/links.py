"""What of a message can be pressed as a link, as Slack's clients show it.

What lives here: reading links out of blocks and texts. What does not: following them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from bot.testing.slack.values import Json

_MRKDWN: Final = re.compile(r"<((?:https?://|mailto:)[^|>\s]+)(?:\|[^>]*)?>")
_MARKDOWN: Final = re.compile(r"(?<!\\)\]\(\s*<?((?:https?://|mailto:)[^\s()<>]+)|(?<!\\)<((?:https?://|mailto:)[^\s<>]+)>")
_BARE: Final = re.compile(r"(?<![\w/(<|\[])(?:https?://|www\.)[^\s<>|)\]]+[^\s<>|)\].,;:!?”]", re.IGNORECASE)
_CODE: Final = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_FENCED: Final = re.compile(r"^ {0,3}(`{3,})[^`\n]*$.*?(?:^ {0,3}\1`*[ ]*$|\Z)", re.DOTALL | re.MULTILINE)  # CommonMark 0.31 §4.5


def links_of(text: str, blocks: list[Json]) -> tuple[str, ...]:
    """Return the addresses behind all links of a message, in order: of its blocks, or of its text where it has none."""
    found = [link for block in blocks for link in _of_block(block)] if blocks else list(_of_mrkdwn(text, verbatim=False))
    return tuple(link.replace("&amp;", "&") for link in found)


def _of_block(block: Json) -> Iterator[str]:
    match block["type"]:
        case "markdown":
            prose = _CODE.sub(" ", _FENCED.sub(" ", str(block["text"])))
            yield from (one or other for one, other in _MARKDOWN.findall(prose))
            yield from _BARE.findall(_MARKDOWN.sub(" ", prose))
        case "actions":
            yield from (element["url"] for element in block["elements"] if element.get("url"))
        case "rich_text":
            yield from _urls(block)
        case _:
            yield from _of_objects(block)


def _of_objects(node: object) -> Iterator[str]:
    """Read the text objects in a block: in plain ones nothing is a link."""
    if isinstance(node, list):
        for item in node:
            yield from _of_objects(item)
    elif isinstance(node, dict):
        if node.get("type") == "mrkdwn":
            yield from _of_mrkdwn(str(node["text"]), verbatim=node.get("verbatim") is True)
        else:
            yield from _of_objects(list(node.values()))


def _of_mrkdwn(text: str, *, verbatim: bool) -> Iterator[str]:
    prose = _CODE.sub(" ", text)
    yield from _MRKDWN.findall(prose)
    if not verbatim:
        yield from _BARE.findall(_MRKDWN.sub(" ", prose))


def _urls(node: object) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _urls(item)
    elif isinstance(node, dict):
        if node.get("type") == "link":
            yield str(node["url"])
        yield from _urls(list(node.values()))
