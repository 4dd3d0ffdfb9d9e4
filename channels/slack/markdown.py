"""Text on its way to Slack: Markdown that can ping nobody, and the same in Slack's own older markup.

What lives here: pure text rendering. What does not: blocks, limits of messages, or calls.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

from channels.fallback import visible

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
# On one line and from a mark without a backslash: what is code for us must be code for Slack, or images would hide in it.
_CODE = re.compile(r"(?<![`\\])(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# What Slack reads as a mention of a person, a channel, a group, or everybody (https://docs.slack.dev/messaging/formatting-message-text).
_MENTION = re.compile(r"<(?=[@#][A-Za-z0-9]|!(?:channel|here|everyone|group|subteam\^|date\^))", re.IGNORECASE)
_SAFE = r"(?:https?://|mailto:)"
_ODD_LINK = re.compile(rf"\](?=\((?!\s*<?{_SAFE}))", re.IGNORECASE)
# A definition lends its address to words far from it: none is one.
_DEFINITION = re.compile(r"\](?=:)")
_ODD_AUTOLINK = re.compile(rf"<(?=[a-z][a-z0-9+.-]*:)(?!{_SAFE}[^\s|<>]{{0,2000}}>)", re.IGNORECASE)
# Lengths are bounded so that hostile text costs no more than its size.
_IMAGE = re.compile(r"!\[(?=[^\[\]\n]{0,500}\]\()")
_OTHER_IMAGE = re.compile(r"!(?=\[)")
_TARGET = re.compile(r"\]\(\s*<?https?://([^\s()<>|/?#\\]{1,300})", re.IGNORECASE)
_NAMED = re.compile(r"(?:https?://)?((?:[\w-]{1,63}\.){1,9}[^\W\d]{2,24})(?![\w-])", re.IGNORECASE)
_DECORATION = re.compile(r"[*_~`\\]|\u2060")
_UNCOMMON = re.compile(r"[^\n\t -~]")
# With words, between angles, or bare: all said to be links, so that Slack needn't guess what else is one.
_LINK = re.compile(
    r"\[([^\[\]\n]+)\]\((https?://[^\s()<>|]+(?:\([^\s()<>|]*\)[^\s()<>|]*)*)\)"
    r"|&lt;(https?://(?:[^\s<>|&]|&(?!lt;|gt;)){1,2000})&gt;"
    r"|(?<![\w/])(https?://(?:[^\s<>|&()]|&amp;){0,2000}(?:[^\s<>|&().,;:!?'\"*_~”’]|&amp;))"
)
# What looks like a character reference at an address's end is no part of it (GFM 0.29 §6.9); here each & is escaped already.
_NOT_OF_ADDRESS = re.compile(r"(?:&amp;[A-Za-z0-9]{1,31};|[.,:!?'\"*_~”’]|(?<!&amp);)$")
# What is bold ends at the next pair of marks or not at all: each is read once.
_BOLD = re.compile(r"\*\*(?=\S)((?:[^*\n]|\*(?!\*))+)(?<=\S)\*\*|__(?=\S)((?:[^_\n]|_(?!_))+)(?<=\S)__")
_EMPHASIS = re.compile(r"(?<![*\w])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![*\w])")
_STRUCK = re.compile(r"~~(?=\S)((?:[^~\n]|~(?!~))+)(?<=\S)~~")
_LANGUAGE = re.compile(r"[\w+#.-]{0,30}")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?=\S)")
_QUOTE = re.compile(r"(?: {0,3}>)+ ?")
_BULLET = re.compile(r"^(\s*)[-*+]\s+")

# What a backslash takes its meaning from (CommonMark 0.31 §2.4) stands aside as a private character while the rest is read.
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ASIDE = re.compile("[\U000f0021-\U000f007e]")
_ASIDE_BASE = 0xF0000
_MEANING = frozenset("*_~`:.@")

# Between the bracket and what follows, so that no reader of either markup takes the two for one; it has no width.
_JOINER = "\u2060"
_BOLD_MARK = "\x01"
# An address stays as it is: two underlines in it make nothing bold, nor the address another one.
_ADDRESS = re.compile(r"https?://[^\s<>|()]{0,2000}[^\s<>|().,;:!?'\"*_~”’]")
_KEPT = str.maketrans("*_~", "\x02\x03\x04")
_GIVEN_BACK = str.maketrans("\x02\x03\x04", "*_~")
_UNMARKED = str.maketrans("", "", "\x01\x02\x03\x04")


def escape(text: str) -> str:
    """Escape Slack's three control characters (https://docs.slack.dev/messaging/formatting-message-text#escaping)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def harmless(text: str) -> str:
    """Return Markdown for a `markdown` block in which nothing mentions anybody and no link has an odd scheme.

    Code keeps its text to the letter, but for what Slack would read as a mention even there.
    """
    return _MENTION.sub(f"<{_JOINER}", _outside_code(text, _plain_links, whole=_said_targets))


def mrkdwn(text: str) -> str:
    """Return Markdown as Slack's mrkdwn, everything escaped; the same text gives the same for a post and for an edit."""
    return _outside_code(text, _to_mrkdwn, code=escape, fence=_fence_to_mrkdwn, whole=_said_targets)


def revealed(text: str) -> str:
    """Show what would be unseen or turn the reading round, as cards do; what makes emoji and joins letters stays."""
    return _UNCOMMON.sub(lambda found: found[0] if _joins(text, found.start()) else visible(found[0]), text)


def _joins(text: str, at: int) -> bool:
    """Tell whether this is a joiner or an emoji's selector between characters that it is made for."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    match text[at]:
        case "\ufe0e" | "\ufe0f":
            return unicodedata.category(before or " ")[0] == "S" or (before in _KEYCAPS and after == "\u20e3")
        case "\u200d":
            return all(unicodedata.category(char or " ")[:2] in _JOINED for char in (before, after)) and after > "\u02ff"
        case "\u200c":
            return all(unicodedata.category(char or " ")[:2] in _LETTERS and char > "\u02ff" for char in (before, after))
        case _:
            return False


_KEYCAPS = frozenset("0123456789#*")
_LETTERS = frozenset({"Lo", "Mn", "Mc"})
_JOINED = _LETTERS | {"So", "Sk"}


def _said_targets(text: str) -> str:
    """Write the true host behind link words that name another one."""
    code = [found.span() for found in _CODE.finditer(text)]
    done: list[str] = []
    at = number = 0
    for found in _TARGET.finditer(text):
        here = found.start()
        while number < len(code) and code[number][1] <= here:
            number += 1
        if number < len(code) and code[number][0] <= here:
            continue
        host = found[1].rpartition("@")[2].partition(":")[0].lower()
        words = _DECORATION.sub("", _words_before(text, here))
        if any(name.lower().removeprefix("www.") != host.removeprefix("www.") for name in _NAMED.findall(words)):
            done += [text[at:here], f" ({host})"]
            at = here
    return "".join([*done, text[at:]])


def _words_before(text: str, end: int) -> str:
    """Return the words of the link whose bracket closes here."""
    depth = 0
    for at in range(end - 1, max(-1, end - 500), -1):
        if text[at] == "]":
            depth += 1
        elif text[at] == "[":
            if not depth:
                return text[at + 1 : end]
            depth -= 1
    return ""


def _plain_links(text: str) -> str:
    text = _OTHER_IMAGE.sub(f"!{_JOINER}", _IMAGE.sub("[", text))
    text = _ODD_LINK.sub(f"]{_JOINER}", text)
    text = _DEFINITION.sub(f"]{_JOINER}", text)
    return _ODD_AUTOLINK.sub(f"<{_JOINER}", text)


def _to_mrkdwn(text: str) -> str:
    text = _ESCAPED.sub(lambda found: chr(_ASIDE_BASE + ord(found[1])), _ASIDE.sub("\ufffd", text))
    marked = "\n".join(_line_to_mrkdwn(line) for line in _IMAGE.sub("[", text).split("\n"))
    return _ASIDE.sub(lambda found: _literally(chr(ord(found[0]) - _ASIDE_BASE)), marked)


def _literally(char: str) -> str:
    """Write a character as itself; mrkdwn has no backslashes, and makes links of bare addresses."""
    return f"{_JOINER}{char}{_JOINER}" if char in _MEANING else escape(char)


def _line_to_mrkdwn(line: str) -> str:
    quoted = _QUOTE.match(line)
    if quoted:  # however deep: mrkdwn has one level
        return f">{_words_to_mrkdwn(line[quoted.end() :])}"
    return _words_to_mrkdwn(line)


def _words_to_mrkdwn(line: str) -> str:
    line = _ADDRESS.sub(lambda found: found[0].translate(_KEPT), escape(line.translate(_UNMARKED)))
    heading = _HEADING.match(line)
    if heading:
        words = line[heading.end() :].rstrip()
        words = words.rstrip("#").rstrip() or words
        line = f"{_BOLD_MARK}{_BOLD.sub(lambda found: found[1] or found[2], words)}{_BOLD_MARK}"
    line = _BULLET.sub(lambda found: f"{found[1]}• ", line)
    line = _BOLD.sub(lambda found: f"{_BOLD_MARK}{found[1] or found[2]}{_BOLD_MARK}", line)
    line = _EMPHASIS.sub(r"_\1_", line).replace(_BOLD_MARK, "*")
    line = _STRUCK.sub(r"~\1~", line).translate(_GIVEN_BACK)
    return _LINK.sub(_link, line)


def _link(found: re.Match[str]) -> str:
    words, target, autolink, bare = found.groups()
    if target:
        return f"<{target}|{words}>"
    if autolink:
        return f"<{autolink}>"
    address = bare
    if found.string.startswith(";", found.end()):
        address += ";"
        while end := _NOT_OF_ADDRESS.search(address, max(0, len(address) - 40)):
            address = address[: end.start()]
    return f"<{address}>{bare[len(address) :]}" if address.partition("://")[2] else bare


def _fence_to_mrkdwn(lines: str) -> str:
    """Write a code block without its language, which Slack would show as a line of the code; other words are kept."""
    first, newline, rest = lines.partition("\n")
    found = _FENCE.fullmatch(first)
    marks = found[1] if found else "```"
    body, _, last = rest.rpartition("\n")
    closed = last.strip() == "" or not last.strip().strip(marks[0])
    code = body if newline and closed else rest
    if found and not _LANGUAGE.fullmatch(found[2].strip()):
        code = f"{found[2].strip()}\n{code}"
    return f"```\n{escape(code).replace('```', f'`{_JOINER}``')}\n```"


def _outside_code(
    text: str,
    prose: Callable[[str], str],
    *,
    code: Callable[[str], str] = str,
    fence: Callable[[str], str] = str,
    whole: Callable[[str], str] = str,
) -> str:
    """Apply `whole` to all but code blocks and then `prose` to what stands in no code, `code` to spans, `fence` to blocks."""
    return "\n".join(fence(part) if fenced else _spans(whole(part), prose, code) for fenced, part in _blocks(text))


def _spans(text: str, prose: Callable[[str], str], code: Callable[[str], str]) -> str:
    done, at = [], 0
    for found in _CODE.finditer(text):
        done += [prose(text[at : found.start()]), code(found[0])]
        at = found.end()
    return "".join([*done, prose(text[at:])])


def _blocks(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the text in order, as prose and as fenced code with its fences (CommonMark 0.31 §4.5)."""
    lines: list[str] = []
    marks = ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        if marks:
            lines.append(line)
            if found and found[1].startswith(marks) and not found[2].strip():
                yield True, "\n".join(lines)
                lines, marks = [], ""
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            if lines:
                yield False, "\n".join(lines)
            lines, marks = [line], found[1]
        else:
            lines.append(line)
    if lines:
        yield bool(marks), "\n".join(lines)
