"""Secrets out of words: the shapes that turn up in errors, and words that must stay."""

from __future__ import annotations

import pytest

from bot.errors import ModelFailed
from bot.redact import redact


@pytest.mark.parametrize(
    "text",
    [
        "401 for https://api.example.com/v1?key=CANARY123456&x=1",
        "Authorization: Bearer CANARY123456",
        "authorization: basic CANARY123456==",
        'body was {"api_key": "CANARY123456"}',
        "token: CANARY123456",
        "could not reach postgres://user:CANARY123456@db:5432/x",
        "invalid key sk-CANARY123456",
        "xoxb-CANARY123456-1234",
        "eyJCANARY123456.CANARY123456.sig",
        "password='CANARY123456'",
        "the api_key is CANARY123456",
    ],
)
def test_a_secret_is_taken_out(text: str) -> None:
    assert "CANARY123456" not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    ["429: try again in 20 s", "the model 'gpt-5' does not exist", "context window of 200000 tokens exceeded", "no such key"],
)
def test_other_words_stay(text: str) -> None:
    assert redact(text) == text


def test_short_ones_too() -> None:
    assert redact("token=abc&password=pw1") == "token=***&password=***"


def test_a_failed_model_call_carries_no_secret() -> None:
    error = ModelFailed("model_error", "401 for https://x?key=CANARY123456", retryable=False)
    assert "CANARY123456" not in f"{error} {error.message} {error!r}"
