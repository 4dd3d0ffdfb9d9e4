"""Nothing is parsed that Slack did not sign just now, and nothing of Slack's library is needed to tell."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from channels import InvalidSignature, PayloadTooLarge, WebhookRequest
from channels.slack import Slack
from channels.slack.channel import MAX_BODY
from tests.channels.slack.fake import NOW
from tests.channels.slack.payloads import as_json, envelope, mention, signed

BODY = as_json(envelope(mention()))
GOOD = dict(signed(BODY).headers)
SIGNATURE, STAMP = "X-Slack-Signature", "X-Slack-Request-Timestamp"


def channel(*secrets: str) -> Slack:
    return Slack(signing_secret=secrets or ("s3cret",), now=lambda: NOW)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {STAMP: GOOD[STAMP]},
        {SIGNATURE: GOOD[SIGNATURE]},
        GOOD | {STAMP: "abc"},
        GOOD | {STAMP: ""},
        GOOD | {STAMP: "-1"},
        GOOD | {STAMP: "٣" * 10},
        GOOD | {STAMP: "9" * 400},
        GOOD | {STAMP: str(NOW // 1000 - 301)},
        GOOD | {STAMP: str(NOW // 1000 + 301)},
        GOOD | {SIGNATURE: ""},
        GOOD | {SIGNATURE: "v0="},
        GOOD | {SIGNATURE: "v0=" + "é" * 64},
        GOOD | {SIGNATURE: "\ud800"},
        GOOD | {SIGNATURE: GOOD[SIGNATURE].upper()},
        GOOD | {SIGNATURE: GOOD[SIGNATURE].replace("v0", "v1")},
        GOOD | {SIGNATURE: "v0=" + "0" * 64},
        [*GOOD.items(), (SIGNATURE, GOOD[SIGNATURE])],
        [*GOOD.items(), (STAMP, GOOD[STAMP])],
    ],
)
@pytest.mark.parametrize("body", [BODY, b"{not json", b"\xff", b"ssl_check=1", b'{"type":"url_verification","challenge":"c"}'])
async def test_every_bad_signature_is_401_before_anything_is_read(headers: object, body: bytes) -> None:
    request = WebhookRequest("POST", "/", headers=headers, body=body)  # type: ignore[arg-type]
    with pytest.raises(InvalidSignature) as refused:
        await channel().verify(request)
    assert refused.value.status == 401


async def test_a_changed_byte_is_refused() -> None:
    with pytest.raises(InvalidSignature):
        await channel().verify(replace(signed(BODY), body=BODY + b" "))


async def test_a_secret_can_be_replaced_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = signed(BODY, secret="old"), signed(BODY, secret="new")
    for request in (old, new):
        await channel("new", "old").verify(request)
    monkeypatch.setenv("SLACK_SIGNING_SECRET", "new, old")
    for request in (old, new):
        await Slack(now=lambda: NOW).verify(request)
    with pytest.raises(InvalidSignature):
        await channel("new").verify(old)


@pytest.mark.parametrize("secret", ["", " ", ",", None])
async def test_without_a_secret_nothing_is_believed(secret: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_SIGNING_SECRET", raising=False)
    empty = Slack(signing_secret=secret, now=lambda: NOW)
    with pytest.raises(InvalidSignature):
        await empty.verify(signed(BODY, secret="x"))


async def test_a_body_has_a_limit() -> None:
    await channel().verify(signed(b" " * MAX_BODY))
    with pytest.raises(PayloadTooLarge) as refused:
        await channel().verify(signed(b" " * (MAX_BODY + 1)))
    assert refused.value.status == 413


def test_what_is_missing_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET", "SLACK_API_URL"):
        monkeypatch.delenv(name, raising=False)
    assert [problem for problem in Slack().problems() if "SLACK_BOT_TOKEN" in problem]
    assert [problem for problem in Slack().problems() if "SLACK_SIGNING_SECRET" in problem]
    assert any("xoxb-" in problem for problem in Slack(bot_token="xapp-1", signing_secret="s").problems())
    assert any(
        "SLACK_API_URL" in problem for problem in Slack(bot_token="xoxb-1", signing_secret="s", api_url="ftp://x").problems()
    )
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    monkeypatch.setenv("SLACK_SIGNING_SECRET", "s")
    assert Slack().problems() == ()


def test_secrets_are_not_shown() -> None:
    shown = repr(Slack(bot_token="xoxb-hidden", signing_secret="hidden"))
    assert "hidden" not in shown


_READS = """
import sys
for name in ("slack_sdk", "slack_bolt", "aiohttp"):
    sys.modules[name] = None
from channels import Verified, WebhookRequest
from channels.slack import Slack
request = WebhookRequest("POST", "/", body=sys.argv[1].encode())
print(Slack(signing_secret="s").parse(Verified(request, "test")).events[0].text)
"""


def test_reading_needs_nothing_of_slacks() -> None:
    done = subprocess.run([sys.executable, "-c", _READS, BODY.decode()], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("hello", "")
