"""Values as a person reads them before saying yes.

What lives here: one value to plain text in which nothing is hidden or cut. What does not: layout of cards, a platform's markup.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum

from pydantic_core import to_jsonable_python

_PADDING = re.compile(r"[ \u3000]{17,}")
_MARKS = re.compile(r"[\[\]<>`\\]|:(?=//)|(?<=www)\.|(?<=\w)@(?=\w)", re.IGNORECASE)
"""What begins a link, code or mark-up in Markdown, bare addresses that readers turn into links among them."""
_BACKTICKS = re.compile("`+")
_EXPONENT_LIMIT = 30
_PLAIN_SPACES = {" ", "\u3000"}
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Categories that leave no ink, and the letters, marks and symbols that leave none either though their category says they do.
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp", "Zs"})
_UNSEEN_OTHERS = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0}
    | set(range(0xFE00, 0xFE10))
    | set(range(0xE0100, 0xE01F0))
)
_EMOJI_STYLE = "\ufe0f"
_OPENER = re.compile(r"(?:An?|The|(?:Any|Some|Every)(?:body|one)?|All|Both|Each|Either|One|Two|Three|Whoever)(?: |$)")


def show(value: object, *, lines: bool = False) -> str:
    r"""Render a value plainly and in full: never cut, nothing unseen.

    Invisible, bidirectional and control characters become escapes, long runs of spaces are counted instead of shown.
    Line breaks become ``\n`` unless ``lines``: a value can't look like a line of the card around it.
    """
    text = reveal(_plain(value))
    return text if lines else text.replace("\n", "\\n")


def reveal(text: str) -> str:
    """Make every character that leaves no ink visible as an escape; line breaks stay."""
    shown: list[str] = []
    before = ""
    for char in text:
        shown.append(_escape(char) if _is_unseen(char, before) else char)
        before = char
    return _PADDING.sub(lambda run: f"[{len(run.group())} spaces]", "".join(shown))


def quoted(text: str) -> str:
    """Quote text within Markdown of our own: it can hold no link, no code and no mark-up of ours, and stays on its line."""
    return f"“{literal(text)}”"


def literal(text: str) -> str:
    """Write a name, or other words of people's, within Markdown of our own, as `quoted` does."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))


def verbatim(text: str) -> str:
    """Write text as Markdown that shows it to the letter, lines and all: as code, behind more backticks than are in it."""
    marks = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{marks}\n{text}\n{marks}"


def quoted_note(note: str) -> str:
    """Quote the words that came with an answer; forgetting somebody finds them by this form."""
    return f'Their note: "{note}"'


def within(words: str) -> str:
    """Return words that begin a sentence, such as "Whoever is on call", as they stand within one; names keep their capital."""
    return words[:1].lower() + words[1:] if _OPENER.match(words) else words


def _is_unseen(char: str, before: str) -> bool:
    if char == "\n" or char in _PLAIN_SPACES:
        return False
    if char == _EMOJI_STYLE and before and unicodedata.category(before) == "So":
        return False  # one per symbol is how emoji are written; alone or repeated it can carry hidden text
    return unicodedata.category(char) in _UNSEEN_CATEGORIES or ord(char) in _UNSEEN_OTHERS


def _escape(char: str) -> str:
    code = ord(char)
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _plain(value: object) -> str:
    match value:
        case Enum():
            return _plain(value.value)
        case str():
            return value
        case Decimal():
            return _decimal(value)
        case Mapping() | list() | tuple() | set() | frozenset():
            return json.dumps(_json(value), ensure_ascii=False)
        case _:
            plain = _json(value)
            return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _decimal(value: Decimal) -> str:
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and abs(exponent) <= _EXPONENT_LIMIT:
        return format(value, "f")
    return str(value)


def _json(value: object) -> object:
    return to_jsonable_python(value, inf_nan_mode="strings", bytes_mode="base64", fallback=repr)
