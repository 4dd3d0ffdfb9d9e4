"""Signed webhooks: what proves a request, and the many things that don't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import InvalidSignature, WebhookRequest
from channels.signing import HmacScheme

NOW = 1_800_000_000_000
BODY = b'{"a": 1}'


def scheme_at(now: int) -> HmacScheme:
    return HmacScheme("X-Signature", "X-Timestamp", now=lambda: now)


def signed(*, secret: bytes = b"current", body: bytes = BODY, at: int = NOW) -> WebhookRequest:
    return WebhookRequest("POST", "/", headers=scheme_at(at).sign(body, secret), body=body)


def test_a_signed_request_is_proven() -> None:
    verified = scheme_at(NOW).verify(signed(), [b"current"])
    assert verified.request == signed()
    assert verified.proof == "hmac-sha256 v1"


def test_slacks_documented_example_verifies() -> None:
    # The example of https://docs.slack.dev/authentication/verifying-requests-from-slack
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
        b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
        b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d"
        b"10d2c447fce8b6703c"
    )
    headers = {
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        "X-Slack-Request-Timestamp": "1531420618",
    }
    scheme = HmacScheme("X-Slack-Signature", "X-Slack-Request-Timestamp", version="v0", now=lambda: 1_531_420_618_000)
    assert scheme.verify(WebhookRequest("POST", "/", headers=headers, body=body), [b"8f742231b10e8888abcd99yyyzzz85a5"]).proof


def test_any_secret_in_use_proves() -> None:
    for secret in (b"current", b"former"):
        assert scheme_at(NOW).verify(signed(secret=secret), [b"current", b"former"]).proof
    with pytest.raises(InvalidSignature):
        scheme_at(NOW).verify(signed(secret=b"other"), [b"current", b"former"])


@pytest.mark.parametrize("secrets", [[], [b""], [b"current", b""]])
def test_no_secret_proves_nothing(secrets: list[bytes]) -> None:
    with pytest.raises(InvalidSignature, match="no secret"):
        scheme_at(NOW).verify(signed(), secrets)


@pytest.mark.parametrize("minutes", [-4, 0, 4])
def test_a_timestamp_in_the_window_is_taken(minutes: int) -> None:
    assert scheme_at(NOW).verify(signed(at=NOW + minutes * 60_000), [b"current"]).proof


@pytest.mark.parametrize("seconds", [-600, -301, 301, 600])
def test_the_window_counts_both_ways(seconds: int) -> None:
    with pytest.raises(InvalidSignature, match="window"):
        scheme_at(NOW).verify(signed(at=NOW + seconds * 1000), [b"current"])


@pytest.mark.parametrize(
    "timestamp", ["", " ", "abc", "-1", "+1800000000", "1800000000.0", "1e9", "٣٣", "1_0", "9" * 13, "0x1", "\n1"]
)
def test_an_unreadable_timestamp_is_refused(timestamp: str) -> None:
    headers = dict(signed().headers) | {"X-Timestamp": timestamp}
    with pytest.raises(InvalidSignature, match="number of seconds"):
        scheme_at(NOW).verify(WebhookRequest("POST", "/", headers=headers, body=BODY), [b"current"])


@pytest.mark.parametrize("header", ["X-Timestamp", "X-Signature"])
def test_a_missing_or_repeated_header_is_refused(header: str) -> None:
    pairs = list(dict(signed().headers).items())
    without = [pair for pair in pairs if pair[0] != header]
    twice = [*pairs, next((name.lower(), value) for name, value in pairs if name == header)]
    for headers in (without, twice):
        with pytest.raises(InvalidSignature, match=f"{header} is there {len(headers) - 1 if headers is twice else 0} times"):
            scheme_at(NOW).verify(WebhookRequest("POST", "/", headers=headers, body=BODY), [b"current"])


@given(st.text(max_size=100), st.text(max_size=100))
def test_no_invented_header_proves_or_crashes(timestamp: str, signature: str) -> None:
    for headers in ({"X-Timestamp": timestamp}, {"X-Timestamp": str(NOW // 1000)}):
        request = WebhookRequest("POST", "/", headers=headers | {"X-Signature": signature}, body=BODY)
        with pytest.raises(InvalidSignature):
            scheme_at(NOW).verify(request, [b"current"])


@given(st.binary(max_size=200), st.integers(0, 199), st.integers(1, 255))
def test_a_changed_body_is_refused(body: bytes, at: int, change: int) -> None:
    good = signed(body=body)
    assert scheme_at(NOW).verify(good, [b"current"]).proof
    at = at % (len(body) + 1)
    other = body[:at] + bytes([(body[at] ^ change) if at < len(body) else change]) + body[at + 1 :]
    with pytest.raises(InvalidSignature):
        scheme_at(NOW).verify(WebhookRequest("POST", "/", headers=good.headers, body=other), [b"current"])
