"""One page of each kind as people meet it, and some that are meant to break the drawing.

What lives here: values. What does not: what is expected of their drawing (test_meaning.py, test_looks.py).
"""

from __future__ import annotations

from dataclasses import fields, replace

from bot.signins.page import Page, PageKind

THREAD = "https://example.slack.com/archives/C1/p1700000000000000"
ASKED = Page(
    kind=PageKind.CONFIRM,
    agent="Support",
    person="Alice",
    service="GitHub",
    scopes=("repo", "read:user"),
    tool="open_issue",
    place="Slack",
    thread_url=THREAD,
)
CONFIRM = replace(
    ASKED,
    action="/connect/att_1.secret",
    decline="/connect/att_1.secret/decline",
    proof="platform",
    proof_name="Slack",
    expires_at=1_800_000_000_000,
    minutes=9,
)
CODE = replace(CONFIRM, proof="code")
TOO_LONG = "Alice-Philippa-Maximiliana-Konstantinopolitanska" * 9
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}{% raw %}javascript:alert(3)"
UNSEEN = "Al\u202eeci\u202c\u2066 \u200b\u0000 \u2069x"
RIGHT_TO_LEFT = "فاطمة الزهراء"
EMOJI = "🚀 Ops 👩🏽‍💻"

PAGES: dict[str, Page] = {
    "confirm-platform": CONFIRM,
    "confirm-email": replace(CONFIRM, proof="email"),
    "confirm-code": CODE,
    "confirm-code-wrong": replace(CODE, problem="That isn’t the code. 4 tries are left.", minutes=1),
    "confirm-shared": replace(CONFIRM, agent="Triage", shared=True, tool="", person="Olga", scopes=(), place="", proof="email"),
    "confirm-refused": replace(CONFIRM, problem="This has to be pressed on this page, in the browser that shows it."),
    "progress-leaving": replace(
        ASKED, kind=PageKind.PROGRESS, go="https://github.com/login/oauth/authorize?a=1;b=2&state=s", go_name="GitHub"
    ),
    "progress-waiting": replace(ASKED, kind=PageKind.PROGRESS),
    "connected": replace(ASKED, kind=PageKind.CONNECTED, account="alice@example.test"),
    "connected-weak": replace(
        ASKED,
        kind=PageKind.CONNECTED,
        account="alice@example.test",
        weak=True,
        thread_url="",
        note="GitHub gave no way to renew the access: in 8 hours you will be asked again.",
    ),
    "declined": replace(ASKED, kind=PageKind.DECLINED),
    "expired": replace(ASKED, kind=PageKind.EXPIRED, again=True),
    "used": replace(ASKED, kind=PageKind.USED, reason="GitHub was connected at 10:44, by another link."),
    "other-browser": replace(ASKED, kind=PageKind.OTHER_BROWSER),
    "other-person": replace(
        ASKED, kind=PageKind.OTHER_PERSON, reason="You signed in to Slack as Bob. Nothing was connected.", thread_url=""
    ),
    "failed": replace(
        ASKED,
        kind=PageKind.FAILED,
        reason="GitHub did not answer in time. That is not your fault.",
        again=True,
        error_id="err_0123456789abcdef",
    ),
    "failed-for-good": replace(ASKED, kind=PageKind.FAILED, reason="GitHub refused the app itself (invalid_client)."),
    "not-found": Page(kind=PageKind.NOT_FOUND),
}


def filled(kind: PageKind, text: str) -> Page:
    """Return a page of a kind in which every text is this one."""
    texts = {field.name: text for field in fields(Page) if field.type == "str"}
    return Page(kind=kind, scopes=(text, text + "2"), minutes=3, expires_at=1_800_000_000_000, again=True, weak=True, **texts)  # type: ignore[arg-type]
