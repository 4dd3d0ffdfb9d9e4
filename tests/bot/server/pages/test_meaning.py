"""What each page says and lets one do, whatever the words that came from elsewhere."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from bot.server.pages import MARK_PATH, PAGE_HEADERS, STYLE_PATH, draw, mark, style, words
from bot.server.pages.scopes import scope_words
from bot.signins.page import Page, PageKind
from tests.bot.server.pages.reading import Read
from tests.bot.server.pages.samples import (
    ASKED,
    CODE,
    CONFIRM,
    EMOJI,
    HOSTILE,
    PAGES,
    RIGHT_TO_LEFT,
    THREAD,
    TOO_LONG,
    UNSEEN,
    filled,
)


def read(name: str) -> Read:
    return Read(draw(PAGES[name]))


# Every page


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_valid_and_holds_nothing_active(name: str) -> None:
    page = read(name)
    assert page.faults == []
    assert page.said("title")
    assert page.meta("viewport") == "width=device-width, initial-scale=1"
    assert page.meta("referrer") == "no-referrer"
    assert [attributes["href"] for tag, attributes in page.tags if tag == "link"] == [
        f"{MARK_PATH}?v={mark().etag}",
        f"{STYLE_PATH}?v={style().etag}",
    ]
    assert {"http", "https"} & {attribute for _, attributes in page.tags for attribute in attributes} == set()


def test_every_kind_has_a_sample() -> None:
    assert {page.kind for page in PAGES.values()} == set(PageKind)


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.agent])
def test_agent_and_asker_are_named_first(name: str) -> None:
    page = read(name)
    assert re.match(rf"\w \w {PAGES[name].agent} for {PAGES[name].person} ", page.text)


@pytest.mark.parametrize("kind", PageKind)
def test_a_page_of_which_nothing_else_is_known_still_says_what_it_is(kind: PageKind) -> None:
    page = Read(draw(Page(kind=kind)))
    assert page.faults == []
    assert page.said("h1")
    assert "’s " not in page.text.replace("agent’s", "")
    assert not re.search(r" [,.?]|\bNone\b", page.text)


@pytest.mark.parametrize("kind", PageKind)
@pytest.mark.parametrize("text", [HOSTILE, UNSEEN, TOO_LONG, RIGHT_TO_LEFT, EMOJI, "\ud800", "\n\n", "\x00"])
def test_words_from_elsewhere_stay_words(kind: PageKind, text: str) -> None:
    html = draw(filled(kind, text))
    page = Read(html)
    assert page.faults == []
    assert html.encode()
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\x00]", html)
    assert all(form.action == "" for form in page.forms)
    assert set(page.links) <= {""}
    assert "49" not in page.text


def test_every_text_of_a_page_is_made_fit_to_be_shown() -> None:
    texts = {field.name for field in fields(Page) if field.type == "str"}
    assert texts >= {"agent", "person", "service", "tool", "place", "note", "reason", "account", "problem", "thread_url", "go"}
    for kind in PageKind:
        assert "\u202e" not in draw(filled(kind, UNSEEN))


# Names


def test_names_keep_what_their_script_needs_and_hide_nothing() -> None:
    assert words.name(EMOJI) == EMOJI
    assert words.name("  Al\n ice  ") == "Al ice"
    assert words.name("می\u200cخواهم") == "می\u200cخواهم"
    assert words.name("क्\u200dष") == "क्\u200dष"
    assert words.name("git\u200chub") == "git\\u200chub"
    assert words.name("moc.\u202ebuhtig") == "moc.\\u202ebuhtig"
    assert "Ops-bot for Alice" in Read(draw(replace(CONFIRM, agent="ops-bot"))).text
    assert words.name("\u200d") == "\\u200d"
    assert words.name("x" * 400) == "x" * 64 + "…"
    assert words.term("x" * 400) == "x" * 160 + "…"
    assert words.prose(" one \n\n two\t\n") == "one\ntwo"


def test_only_a_plain_address_becomes_a_link() -> None:
    assert words.linkable(THREAD) == THREAD
    assert words.linkable("http://127.0.0.1:8080/console/#t1") == "http://127.0.0.1:8080/console/#t1"
    for address in (
        "javascript:alert(1)",
        "data:text/html,x",
        "//evil.example",
        "/connect/x",
        "https://a@evil.example/",
        "https://",
        "https://[::1",
        "https://x/ y",
        'https://x/"',
        "slack://open",
        "",
        None,
    ):
        assert words.linkable(address) is None, address
    assert words.host_of("https://GitHub.com:8443/login?x") == "github.com:8443"


def test_a_form_goes_only_to_this_site() -> None:
    assert words.own_path("/connect/att_1.s-e_c~/decline") == "/connect/att_1.s-e_c~/decline"
    for address in ("//evil.example/x", "https://evil.example", "connect", "/\\evil", "/a?b", "/a b", ""):
        assert words.own_path(address) == "", address


# Confirm


def test_confirm_says_whose_account_what_for_and_what_it_may() -> None:
    page = read("confirm-email")
    assert page.said("h1") == "Connect Alice’s GitHub account?"
    for part in (
        "Support needs it to go on with what Alice asked for.",
        "Account GitHub, Alice’s own",
        "It may Read and change your repositories, private ones too repo See your profile read:user",
        "To run open_issue",
        "Asked by Alice, in Slack",
        "What happens next GitHub asks you to sign in and to agree. You can still say no there.",
        "Your e-mail address there has to be the one that Slack knows of Alice. If it is another, nothing is kept.",
        "Support goes on where it stopped, with Alice’s account and only for Alice.",
        "Not Alice? Then close this page: the link is for Alice alone.",
        "This link works once, for 9 more minutes.",
    ):
        assert part in page.text
    assert [(form.method, form.action, form.buttons) for form in page.forms] == [
        ("post", "/connect/att_1.secret", ["Continue to GitHub"]),
        ("post", "/connect/att_1.secret/decline", ["Not now"]),
    ]
    assert page.forms[0].inputs == []


def test_confirm_sends_a_person_to_the_platform_first() -> None:
    page = read("confirm-platform")
    assert "Slack asks you to sign in. It shows that you are Alice. GitHub asks you to sign in and to agree." in page.text
    assert page.forms[0].buttons == ["Continue with Slack"]


def test_confirm_asks_for_the_code_where_nothing_better_proves_the_person() -> None:
    page = read("confirm-code")
    (box,) = page.forms[0].inputs
    assert (box["name"], box["inputmode"], box["autocomplete"]) == ("code", "numeric", "one-time-code")
    assert "required" in box
    assert "aria-invalid" not in box
    assert "nothing more. Never type one that somebody else sent you." in page.text


def test_a_wrong_code_is_told_beside_the_field() -> None:
    page = read("confirm-code-wrong")
    (box,) = page.forms[0].inputs
    assert box["aria-invalid"] == "true"
    assert "autofocus" in box
    assert box["aria-describedby"] == "wrong about-code"
    assert "That isn’t the code. 4 tries are left." in page.text
    assert page.said("title").startswith("Not yet:")
    assert "for 1 more minute." in page.text


def test_confirm_says_when_everybody_will_use_the_account() -> None:
    page = read("confirm-shared")
    assert page.said("h1") == "Connect GitHub for everybody who uses Triage?"
    assert "Triage will act with this account for everybody, not only for you." in page.text
    assert "only for Olga" not in page.text


def test_a_form_that_was_refused_says_so() -> None:
    assert "This has to be pressed on this page" in read("confirm-refused").text


def test_scopes_are_told_in_words_where_they_are_known() -> None:
    shown, more = scope_words(("https://www.googleapis.com/auth/drive.file", "repo", "repo", " ", "x:admin"))
    assert [(each.words != "", each.scope) for each in shown] == [
        (True, "https://www.googleapis.com/auth/drive.file"),
        (True, "repo"),
        (False, "x:admin"),
    ]
    assert more == 0
    assert (
        "and 10 more, which GitHub lists before you agree"
        in Read(draw(replace(CONFIRM, scopes=tuple(f"s{number}" for number in range(50))))).text
    )
    assert "What GitHub shows you before you agree" in Read(draw(replace(CODE, scopes=()))).text


# The others


def test_progress_leaves_by_itself_and_by_a_link() -> None:
    page = read("progress-leaving")
    go = PAGES["progress-leaving"].go
    assert page.meta("refresh", "http-equiv") == f"0; url={go}"
    assert page.links == {go: "Go on to GitHub"}
    assert "You are leaving for github.com." in page.text
    assert "state=" not in page.text


def test_progress_with_nowhere_to_go_looks_again() -> None:
    page = read("progress-waiting")
    assert page.meta("refresh", "http-equiv") == "2"
    assert page.links == {"": "Look again"}


def test_no_other_page_goes_anywhere_by_itself() -> None:
    for name, page in PAGES.items():
        if page.kind is not PageKind.PROGRESS:
            assert read(name).meta("refresh", "http-equiv") is None


def test_connected_says_as_whom_and_leads_back() -> None:
    page = read("connected")
    assert page.said("h1") == "GitHub is connected"
    assert "As alice@example.test. Support goes on by itself with what was asked." in page.text
    assert page.links == {THREAD: "Back to Slack"}
    weak = read("connected-weak")
    assert "A code alone showed that this was Alice." in weak.text
    assert "in 8 hours you will be asked again" in weak.text
    assert "You can close this page and go back to Slack." in weak.text
    assert weak.links == {}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("declined", ["Nothing was connected", "Support is told that you said no", "ask for the same again"]),
        ("expired", ["This link has expired", "Nothing was connected.", "Press Connect in the conversation again"]),
        ("used", ["This is settled already", "GitHub was connected at 10:44, by another link."]),
        ("other-browser", ["This was begun in another browser", "Nothing was connected here.", "cookies", "fresh link"]),
        ("other-person", ["This link is for Alice alone", "You signed in to Slack as Bob.", "the use of your account"]),
        ("failed", ["GitHub could not be connected", "GitHub did not answer in time.", "a fresh link", "err_0123456789abcdef"]),
        ("failed-for-good", ["A fresh link would not help. Tell whoever looks after Support."]),
        ("not-found", ["There is no such link", "Open the link from your private message once more"]),
    ],
)
def test_an_end_says_what_happened_and_what_to_do(name: str, parts: list[str]) -> None:
    page = read(name)
    for part in parts:
        assert part in page.text
    assert page.forms == []


def test_pages_of_failed_ways_lead_to_no_main_action() -> None:
    for name in ("other-browser", "failed"):
        kinds = [attributes["class"] for tag, attributes in read(name).tags if tag == "a"]
        assert kinds == ["out"]


def test_a_page_without_a_thread_says_that_it_can_be_closed() -> None:
    for kind in (PageKind.CONNECTED, PageKind.DECLINED, PageKind.EXPIRED, PageKind.USED, PageKind.FAILED):
        page = Read(draw(replace(ASKED, kind=kind, thread_url="")))
        assert "You can close this page and go back to Slack." in page.text


# Headers and files


def test_pages_may_load_their_style_and_nothing_else() -> None:
    policy = dict(part.strip().split(" ", 1) for part in PAGE_HEADERS["Content-Security-Policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "style-src": "'self'",
        "img-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    assert PAGE_HEADERS["Cache-Control"] == "no-store"
    assert PAGE_HEADERS["Referrer-Policy"] == "no-referrer"


def test_the_style_is_kept_only_under_its_own_version() -> None:
    sheet = style()
    assert sheet.headers(sheet.etag)["Cache-Control"] == "public, max-age=31536000, immutable"
    assert sheet.headers("other")["Cache-Control"] == "no-cache"
    assert sheet.headers(None)["Cache-Control"] == "no-cache"
    assert b"url(" not in sheet.body
    assert b"@import" not in sheet.body
