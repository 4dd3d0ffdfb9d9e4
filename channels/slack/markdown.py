"""Text on its way to Slack: Markdown that can ping nobody, and the same in Slack's own older markup.

What lives here: pure text rendering. What does not: blocks, limits of messages, or calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
# What Slack reads as a mention of a person, a channel, a group, or everybody (https://docs.slack.dev/messaging/formatting-message-text).
_MENTION = re.compile(r"<(?=[@#][A-Za-z0-9]|!(?:channel|here|everyone|group|subteam\^|date\^))", re.IGNORECASE)
_SAFE = r"(?:https?://|mailto:)"
_ODD_LINK = re.compile(rf"\](?=\((?!\s*<?{_SAFE}))", re.IGNORECASE)
_ODD_DEFINITION = re.compile(rf"^( {{0,3}}\[[^\]\n]+\])(?=:(?!\s*<?{_SAFE}))", re.IGNORECASE | re.MULTILINE)
_ODD_AUTOLINK = re.compile(rf"<(?=[a-z][a-z0-9+.-]*:)(?!{_SAFE}[^\s|<>]{{0,2000}}>)", re.IGNORECASE)
# Lengths are bounded so that hostile text costs no more than its size.
_IMAGE = re.compile(r"!\[(?=[^\[\]\n]{0,500}\]\()")
_LINK = re.compile(r"\[([^\[\]\n]+)\]\((https?://[^\s()<>|]+(?:\([^\s()<>|]*\)[^\s()<>|]*)*)\)")
_AUTOLINK = re.compile(r"&lt;(https?://(?:[^\s<>|&]|&(?!lt;|gt;)){1,2000})&gt;")
# What is bold ends at the next pair of marks or not at all: each is read once.
_BOLD = re.compile(r"\*\*(?=\S)((?:[^*\n]|\*(?!\*))+)(?<=\S)\*\*|__(?=\S)((?:[^_\n]|_(?!_))+)(?<=\S)__")
_EMPHASIS = re.compile(r"(?<![*\w])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![*\w])")
_STRUCK = re.compile(r"~~(?=\S)((?:[^~\n]|~(?!~))+)(?<=\S)~~")
_LANGUAGE = re.compile(r"[\w+#.-]{0,30}")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?=\S)")
_QUOTE = re.compile(r"(?: {0,3}>)+ ?")
_BULLET = re.compile(r"^(\s*)[-*+]\s+")

# Between the bracket and what follows, so that no reader of either markup takes the two for one; it has no width.
_JOINER = "\u2060"
_BOLD_MARK = "\x01"


def escape(text: str) -> str:
    """Escape Slack's three control characters (https://docs.slack.dev/messaging/formatting-message-text#escaping)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def harmless(text: str) -> str:
    """Return Markdown for a `markdown` block in which nothing mentions anybody and no link has an odd scheme.

    Code keeps its text to the letter, but for what Slack would read as a mention even there.
    """
    return _MENTION.sub(f"<{_JOINER}", _outside_code(text, _plain_links))


def mrkdwn(text: str) -> str:
    """Return Markdown as Slack's mrkdwn, everything escaped; the same text gives the same for a post and for an edit."""
    return _outside_code(text, _to_mrkdwn, code=escape, fence=_fence_to_mrkdwn)


def _plain_links(text: str) -> str:
    text = _IMAGE.sub("[", text)
    text = _ODD_LINK.sub(f"]{_JOINER}", text)
    text = _ODD_DEFINITION.sub(rf"\1{_JOINER}", text)
    return _ODD_AUTOLINK.sub(f"<{_JOINER}", text)


def _to_mrkdwn(text: str) -> str:
    return "\n".join(_line_to_mrkdwn(line) for line in _IMAGE.sub("[", text).split("\n"))


def _line_to_mrkdwn(line: str) -> str:
    quoted = _QUOTE.match(line)
    if quoted:  # however deep: mrkdwn has one level
        return f">{_words_to_mrkdwn(line[quoted.end() :])}"
    return _words_to_mrkdwn(line)


def _words_to_mrkdwn(line: str) -> str:
    line = escape(line.replace(_BOLD_MARK, ""))
    heading = _HEADING.match(line)
    if heading:
        words = line[heading.end() :].rstrip()
        words = words.rstrip("#").rstrip() or words
        line = f"{_BOLD_MARK}{_BOLD.sub(lambda found: found[1] or found[2], words)}{_BOLD_MARK}"
    line = _BULLET.sub(lambda found: f"{found[1]}• ", line)
    line = _BOLD.sub(lambda found: f"{_BOLD_MARK}{found[1] or found[2]}{_BOLD_MARK}", line)
    line = _EMPHASIS.sub(r"_\1_", line).replace(_BOLD_MARK, "*")
    line = _STRUCK.sub(r"~\1~", line)
    return _AUTOLINK.sub(r"<\1>", _LINK.sub(lambda found: f"<{found[2]}|{found[1]}>", line))


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
) -> str:
    """Apply `prose` to all that stands in no code, `code` to code spans, `fence` to code blocks."""
    return "\n".join(fence(part) if fenced else _spans(part, prose, code) for fenced, part in _blocks(text))


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
