"""Signed webhooks: HMAC-SHA256 over a timestamp and the raw body.

What lives here: signing and checking. What does not: remembering what was seen; a repeat is caught by its event key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from channels.contract import Verified
from channels.errors import InvalidSignature
from channels.http import WebhookRequest

NowMs = Callable[[], int]

WINDOW_SECONDS = 300

_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
_HEX_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def wall_clock() -> int:
    """Return the machine's time in ms since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class HmacScheme:
    """One way of signing: `<version>=<hex of HMAC-SHA256(secret, "<version>:<timestamp>:<body>")>`.

    This is the form that Slack uses with version "v0" (https://docs.slack.dev/authentication/verifying-requests-from-slack).
    The timestamp is in whole seconds, its window counts both ways. `now` returns ms since the epoch.
    """

    signature_header: str
    timestamp_header: str
    _: KW_ONLY
    version: str = "v1"
    window_seconds: int = WINDOW_SECONDS
    now: NowMs = field(default=wall_clock)

    def sign(self, body: bytes, secret: bytes) -> dict[str, str]:
        """Return the headers that prove this body, now."""
        timestamp = str(self.now() // 1000)
        digest = self._digest(secret, timestamp=timestamp, body=body)
        return {self.timestamp_header: timestamp, self.signature_header: f"{self.version}={digest}"}

    def verify(self, request: WebhookRequest, secrets: Sequence[bytes]) -> Verified:
        """Check a request against every secret in use (one is current, others are on their way out).

        A missing, empty, repeated or unreadable header is a refusal: without its timestamp a captured request
        could be replayed for ever. All secrets are always tried, each in constant time.

        Raises: InvalidSignature.
        """
        if not secrets or not all(secrets):
            raise InvalidSignature("no secret to check with")
        timestamp = self._the_only(request, self.timestamp_header)
        signature = self._the_only(request, self.signature_header)
        if not _TIMESTAMP.fullmatch(timestamp):
            raise InvalidSignature("the timestamp is not a number of seconds")
        prefix, _, digest = signature.partition("=")
        if prefix != self.version or not _HEX_DIGEST.fullmatch(digest):
            raise InvalidSignature(f"the signature is not {self.version}= and 64 hex digits")
        if abs(self.now() - int(timestamp) * 1000) > self.window_seconds * 1000:
            raise InvalidSignature("the timestamp is outside the window")
        proven = False
        for secret in secrets:
            expected = self._digest(secret, timestamp=timestamp, body=request.body)
            proven |= hmac.compare_digest(expected.encode("ascii"), digest.encode("ascii"))
        if not proven:
            raise InvalidSignature("the signature does not match")
        return Verified(request, f"hmac-sha256 {self.version}")

    def _digest(self, secret: bytes, *, timestamp: str, body: bytes) -> str:
        base = f"{self.version}:{timestamp}:".encode("ascii") + body
        return hmac.new(secret, base, hashlib.sha256).hexdigest()

    @staticmethod
    def _the_only(request: WebhookRequest, name: str) -> str:
        values = request.header_values(name)
        if len(values) != 1:
            raise InvalidSignature(f"{name} is there {len(values)} times, not once")
        return values[0]
