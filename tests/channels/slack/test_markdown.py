"""Model text can ping nobody and link nowhere odd, and keeps its words."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channels.slack.markdown import escape, harmless, mrkdwn
from channels.slack.reading import readable

_PINGS = re.compile(r"<(?:[@#][A-Za-z0-9]|!(?:channel|here|everyone|group|subteam|date))", re.IGNORECASE)
_ENTITIES = re.compile(r"<([^<>]*)>")

HOSTILE = [
    "<!channel> <!here> <!everyone> <!subteam^S1|@ops>",
    "<@U123> <@W1|bob> <#C1|general>",
    "`<!channel>` and `` <@U1> ``",
    "```\n<!here>\n```",
    "| a | <@U1> |\n|---|---|\n| <!channel> | x |",
    "    <!channel>",
    "[x](javascript:alert(1))",
    "[x]( <javascript:alert(1)>)",
    "[x](JavaScript:alert(1))",
    "[x](data:text/html,x)",
    "[x](&#106;avascript:x)",
    "<javascript:alert(1)>",
    "<javascript:alert(1)|bank.example>",
    "<https://evil.example|https://bank.example>",
    "[1]: javascript:alert(1)\n[x][1]",
    "![pixel](https://evil.example/?secret)",
    "&lt;!channel&gt;",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_plain(text: str) -> None:
    assert not _PINGS.search(harmless(text))
    assert not _PINGS.search(mrkdwn(text))
    for found in _ENTITIES.findall(mrkdwn(text)):
        assert re.match(r"https?://", found), found
    live = re.sub(r"`[^`]*`", "", harmless(text))
    assert not re.search(r"\]\(\s*<?\s*(?!https?:|mailto:)|^\[[^\]]+\]:\s*(?!https?:)", live, re.IGNORECASE | re.MULTILINE)
    assert not re.search(r"<(?!\u2060)[a-z]+:[^>]*>", re.sub(r"<https?://[^|>]*>", "", live), re.IGNORECASE)
    assert "![" not in live


@pytest.mark.parametrize(
    "text",
    [
        "a < b && c > d",
        "if (a[i](x) < y) { }",
        "```js\nhandlers[i](event)\n<!-- a comment -->\n```",
        "<!DOCTYPE html>",
        "`m[0](x)`",
        "**bold** _it_ [ok](https://a.example) <https://a.example> [m](mailto:a@b.example)",
    ],
)
def test_what_harms_nobody_is_kept_to_the_letter(text: str) -> None:
    if "`" in text or "](x" not in text:
        assert harmless(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ("&lt;", "&amp;lt;"),
        ("**bold** and *it* and ~~gone~~", "*bold* and _it_ and ~gone~"),
        ("__bold__ 2 * 3 * 4", "*bold* 2 * 3 * 4"),
        ("# Title\n- one\n* two", "*Title*\n• one\n• two"),
        ("## **Both** here", "*Both here*"),
        ("> quoted & more", ">quoted &amp; more"),
        ("> > **deep**", ">*deep*"),
        ("[a b](https://a.example/x?y=1&z=2)", "<https://a.example/x?y=1&amp;z=2|a b>"),
        ("<https://a.example>", "<https://a.example>"),
        ("`a **b** <c>`", "`a **b** &lt;c&gt;`"),
        ("```py\nx = a < b ** c\n```\nafter", "```\nx = a &lt; b ** c\n```\nafter"),
        ("```\nopen", "```\nopen\n```"),
        ("~~~\na ``` b\n~~~", "```\na `\u2060`` b\n```"),
    ],
)
def test_markdown_becomes_slacks_own(text: str, shown: str) -> None:
    assert mrkdwn(text) == shown


_MARKDOWN = st.lists(
    st.sampled_from(
        [
            "**",
            "*",
            "_",
            "`",
            "```\n",
            "~~",
            "[",
            "](",
            ")",
            "<",
            ">",
            "&",
            "&amp;",
            "\n",
            "# ",
            "- ",
            "a",
            " ",
            "https://a.b",
            "!here",
        ]
    )
).map("".join)


@given(_MARKDOWN)
@example("<`a`!here>")
@example("[a](https://a.b|c>)")
def test_no_text_makes_an_entity_or_escapes_twice(text: str) -> None:
    shown = mrkdwn(text)
    assert not _PINGS.search(shown)
    assert not _PINGS.search(harmless(text))
    for found in _ENTITIES.findall(shown):
        assert found.startswith("https://"), (text, shown)
    assert shown.count("&amp;amp;") == text.count("&amp;")
    assert re.sub(r"&(?:amp|lt|gt);", "", shown).count("&") == 0


@given(st.text())
def test_escaping_is_undone_by_reading(text: str) -> None:
    for name, char in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        assert char == escape(char).replace(name, char)
    assert escape(text).count("<") == 0


@pytest.mark.parametrize(
    "piece",
    [
        "**x ",
        "~~x ",
        "![",
        "[",
        "](",
        "`",
        "``a` ",
        "<https://",
        "&lt;https://",
        "# a   ",
        "#",
        " ",
        "> ",
        "<a:",
        "[a]:",
        "*",
        "_",
        "(",
        "\n```\n",
    ],
)
def test_no_text_takes_longer_than_its_size(piece: str) -> None:
    text = "# a" + piece * (40_000 // len(piece)) + "b"
    for hostile in (text, text[3:]):
        assert mrkdwn(hostile)
        assert harmless(hostile)
    assert readable(text.replace("#", "<@U1>"), bot_user="U1")
