"""What somebody answered, read from a button, a form, a text or an API: an option or words, a note, changes.

What lives here: reading it against what was asked, pure. What does not: whether they may (rights.py), what changes do (edits.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from bot.buttons import EDIT, NOTE, TEXT
from bot.cards import plain
from bot.display import reveal
from bot.session.edits import NotEdited, read_edit
from bot.telling import NO_WORDS, UNKNOWN_OPTION
from bot.tools import Tool
from bot.turn.held import option_of
from bot.turn.signing import LINK
from durable_core.model import PromptOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An answer as it was given; with ``refused``, why it is none."""

    option_id: str
    outcome: PromptOutcome
    words: str = ""
    """A note with an option, else the answer itself."""
    edits: Mapping[str, JsonValue] = field(default_factory=dict)
    refused: str | None = None
    aside: bool = False
    """It asks for a link, and answers nothing."""


def given(
    body: Mapping[str, Any],
    option_id: str,
    *,
    words: str = "",
    fields: Mapping[str, str] | None = None,
    edits: Mapping[str, JsonValue] | None = None,
    tool: Tool | None = None,
) -> Given:
    """Read an answer to a prompt of this body. Without an option it is the words; changes count with a yes alone."""
    filled = fields or {}
    options = body.get("options") or ()
    option = next((one for one in options if one["id"] == option_id), None) if option_id else None
    if option is None:
        said = words or filled.get(TEXT, "")
        refused = None if said.strip() else NO_WORDS
        if option_id or body.get("allow_freeform") is not True:
            refused = UNKNOWN_OPTION
        return Given(option_id=option_id, outcome=PromptOutcome.ANSWERED, words=said, refused=refused)
    if option.get("outcome") == LINK:
        return Given(option_id=option_id, outcome=PromptOutcome.ANSWERED, aside=True)
    outcome = PromptOutcome(option.get("outcome", PromptOutcome.ANSWERED))
    note = words or filled.get(NOTE, "")
    if outcome is not PromptOutcome.APPROVED:
        return Given(option_id=option_id, outcome=outcome, words=note)
    read = dict(edits or {})
    for name, text in filled.items():
        if name.startswith(EDIT) and not _unchanged(body, name.removeprefix(EDIT), text):
            value = _read(body, tool, name.removeprefix(EDIT), text)
            if isinstance(value, NotEdited):
                return Given(option_id=option_id, outcome=outcome, words=note, refused=value.reason)
            read[name.removeprefix(EDIT)] = value
    return Given(option_id=option_id, outcome=outcome, words=note, edits=read)


def option_named(body: Mapping[str, Any], text: str) -> str:
    """Return the option that a text names by its id, its label or its place; "" where it is words of their own."""
    return option_of([(str(option["id"]), str(option["label"])) for option in body.get("options") or ()], text) or ""


def _editable(body: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    return next((one for one in body.get("edit") or () if one["name"] == name), None)


def _unchanged(body: Mapping[str, Any], name: str, text: str) -> bool:
    """Whether a field came back as it was shown: no edit, whatever its text would be read as."""
    one = _editable(body, name)
    return one is not None and _lines(text) == _lines(plain(str(one["value"])))


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read(body: Mapping[str, Any], tool: Tool | None, name: str, text: str) -> JsonValue | NotEdited:
    one = _editable(body, name)
    if one is None:
        return NotEdited(f"{reveal(name)} may not be changed here.")
    try:
        shown: JsonValue = json.loads(str(one["value"]))
    except ValueError:
        shown = None
    return read_edit(tool, name, text, shown=shown)
