"""Model text can ping nobody and link nowhere odd, and keeps its words."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from channels.cards import Card
from channels.outbound import Outbound
from channels.slack.markdown import escape, harmless, mrkdwn, revealed
from channels.slack.reading import readable
from channels.slack.render import render

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
        ("[a](https://a.example/x.__b__c~~d~~)", "<https://a.example/x.__b__c~~d~~|a>"),
        ("**see [a](https://a.example/__b__c)**", "*see <https://a.example/__b__c|a>*"),
        ("**https://a.example/__b__c** and __d__", "*<https://a.example/__b__c>* and *d*"),
        ("https://a.example?b&amp;", "<https://a.example?b>&amp;amp;"),
        ("https://a.example.&amp;&copy;; b", "<https://a.example>.&amp;amp;&amp;copy;; b"),
        ("https://a.example/b&;&lt; c", "<https://a.example/b&amp;>;&amp;lt; c"),
        ("https://a.example?b&amp;c; d", "<https://a.example?b&amp;amp;c>; d"),
        ("https://a.example?b=1&c=2; https://&gt;", "<https://a.example?b=1&amp;c=2>; https://&amp;gt;"),
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
@example("https://a.b&amp;")
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


@pytest.mark.parametrize("piece", ["**a ", "__a ", "~~a ", "![", "<https://", "&lt;https://", "[a](https://", "**a *b", "*", "~"])
def test_twice_the_text_takes_about_twice_as_long(piece: str) -> None:
    def spent(size: int) -> float:
        text, least = piece * (size // len(piece)), 1e9
        for _ in range(3):
            at = time.thread_time()  # not of who else is at work
            mrkdwn(text)
            harmless(text)
            least = min(least, time.thread_time() - at)
        return least

    assert spent(40_000) <= 4 * spent(20_000) + 0.02


@pytest.mark.parametrize(
    "text",
    [
        "![a][r]",
        "![r]",
        "![a [b] c](https://evil.example)",
        "`\n\n![a](https://evil.example)\n\n`",
        "\\`![a](https://evil.example)`",
    ],
)
def test_no_form_of_an_image_is_one(text: str) -> None:
    assert "![" not in harmless(text)


@pytest.mark.parametrize(
    "text", ["[r]: https://evil.example", "> - [r]: <https://evil.example>", "[https://good.example][r]\n[r]: //x"]
)
def test_no_address_is_lent_to_words_elsewhere(text: str) -> None:
    assert "]:" not in harmless(text)


@pytest.mark.parametrize(
    "words",
    [
        "https://good.example",
        "good.example/login",
        "**good**.example",
        "`good.example`",
        "see [good.example] now",
        "HTTPS://GOOD.EXAMPLE",
    ],
)
@pytest.mark.parametrize(
    "target", ["https://evil.example/x", "https://good.example@evil.example", "HTTPS://Evil.Example:443?good.example"]
)
def test_words_that_name_another_host_are_followed_by_the_true_one(words: str, target: str) -> None:
    assert f" (evil.example)]({target})" in harmless(f"`a` [{words}]({target})")
    assert "(evil.example)" in mrkdwn(f"[{words}]({target})")


@pytest.mark.parametrize(
    "text",
    [
        "[here](https://a.example)",
        "[www.a.example](https://a.example/x)",
        "`[b.example](https://a.example)`",
        "[A.example](https://www.a.example:8)",
    ],
)
def test_honest_links_and_code_are_kept(text: str) -> None:
    assert harmless(text) == text


def test_what_is_unseen_is_shown_in_replies() -> None:
    assert revealed("a\u202eb\u200bc\u2066") == "a\\u{202e}b\\u{200b}c\\u{2066}"
    assert revealed("a\ufe0fb\u200dc") == "a\\u{fe0f}b\\u{200d}c"
    for kept in ("✔\ufe0f 1\ufe0f\u20e3 \U0001f468\u200d\U0001f469", "می\u200cخواهم", "é ü 漢字", "a" + " " * 50 + "b"):
        assert revealed(kept) == kept
    drawn = render(Outbound("a\u202eb"), tag="t")
    assert "\u202e" not in f"{drawn}"
    assert "\\u{202e}" in drawn.plain.text


_HOSTILE = st.lists(
    st.tuples(
        st.sampled_from(["> ", "**", "__", "~~", "![", "](", "`", "```\n", "~~~\n", "\n", "\ud800", "\x01", "\u202e", "&", "<"]),
        st.integers(1, 3_000),
    ),
    max_size=5,
).map(lambda parts: "".join(piece * times for piece, times in parts))


@settings(deadline=None, max_examples=40)
@given(_HOSTILE)
@example("> " * 20_000)
def test_no_text_fails_to_be_drawn(text: str) -> None:
    mrkdwn(text)
    harmless(text)
    for editing in (False, True):
        render(Outbound(text), tag="t", editing=editing)
    render(Outbound(text, Card(text, text, fields=((text, text),), evidence=(text,))), tag="t")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"\[x\](https://evil.example)", "[x](<https://evil.example>)"),
        (r"\[x\](https\://evil.example)", "[x](https\u2060:\u2060//evil.example)"),
        (r"\*not bold\* and *this*", "\u2060*\u2060not bold\u2060*\u2060 and _this_"),
        (r"a\_b\_c \< \&amp;", "a\u2060_\u2060b\u2060_\u2060c &lt; &amp;amp;"),
        (r"C:\new `C:\[new]`", r"C:\new `C:\[new]`"),
        ("\U000f0041\U000f003c", "\ufffd\ufffd"),
        ("https://ours.example/a_b?c=d&e", "<https://ours.example/a_b?c=d&amp;e>"),
        ("see https://ours.example/, (http://b.example/x).", "see <https://ours.example/>, (<http://b.example/x>)."),
        ("[a](https://b.example) xhttps://c.example", "<https://b.example|a> xhttps://c.example"),
        ("https://a.example/?q=<b>&c", "<https://a.example/?q=>&lt;b&gt;&amp;c"),
    ],
)
def test_a_backslash_takes_the_meaning_away_and_an_address_alone_is_a_link(text: str, shown: str) -> None:
    assert mrkdwn(text) == shown
