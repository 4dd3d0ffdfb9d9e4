"""How providers say no, in one vocabulary.

What lives here: OAuth errors read from an answer or a callback, and the dialects of those that speak another. What does not:
what is done about them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

from bot.connections.protocol.errors import ProviderNonsense, ProviderRefused
from bot.connections.protocol.reading import printable
from bot.redact import redact

DESCRIPTION: Final = 200

_DIALECTS: Final = MappingProxyType(
    {
        # GitHub (docs.github.com, "Troubleshooting OAuth app access token request errors"), all with HTTP 200
        "bad_verification_code": "invalid_grant",
        "bad_refresh_token": "invalid_grant",
        "incorrect_client_credentials": "invalid_client",
        "incorrect_device_code": "invalid_grant",
        "device_flow_disabled": "unauthorized_client",
        # Slack (api.slack.com/methods/oauth.v2.access), all with HTTP 200
        "invalid_code": "invalid_grant",
        "code_already_used": "invalid_grant",
        "invalid_refresh_token": "invalid_grant",
        "token_revoked": "invalid_grant",
        "token_expired": "invalid_grant",
        "bad_client_secret": "invalid_client",
        "invalid_client_id": "invalid_client",
        "bad_redirect_uri": "invalid_request",
        # Device flows before RFC 8628
        "authorization_declined": "access_denied",
        "code_expired": "expired_token",
    }
)
_WORD: Final = re.compile(r"[a-z][a-z_]{2,39}")  # no digits, no capitals: a word, no secret
UNKNOWN: Final = "unknown_error"
_SHORTEST: Final = 6


def refusal(fields: Mapping[str, Any], secrets: Collection[str] = ()) -> ProviderRefused | None:
    """Read the error of an answer, whatever its HTTP status; None where there is none.

    `secrets` are what the request held: a description that repeats one is left out.

    Raises: ProviderNonsense, for an error that is no word.
    """
    error = fields.get("error")
    if error is None or error == "":
        if fields.get("ok") is False:  # Slack, without a word
            return ProviderRefused(UNKNOWN)
        return None
    if not isinstance(error, str):
        raise ProviderNonsense("the answer holds an error that is no OAuth error")
    description = fields.get("error_description")
    text = printable(description, limit=DESCRIPTION) if isinstance(description, str) else ""
    if any(secret in text or text in secret for secret in secrets if len(secret) >= _SHORTEST and len(text) >= _SHORTEST):
        text = ""
    word = _DIALECTS.get(error, error)
    known = _WORD.fullmatch(word) and word not in secrets
    return ProviderRefused(word if known else UNKNOWN, redact(text))
