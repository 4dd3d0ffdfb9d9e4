"""Secrets of a sign-in: how they are made, kept as hashes, and told apart.

What lives here: tokens, codes, hashes. What does not: what they open.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import Final

_BYTES: Final = 32
"""256 bits."""
_MOST: Final = 200


def new_secret() -> str:
    """Make a secret of 256 bits that can stand in a URL, in a cookie and in Markdown, where underlines mean something."""
    return secrets.token_hex(_BYTES)


def new_code() -> str:
    """Make six digits."""
    return f"{secrets.randbelow(1_000_000):06}"


def hashed(purpose: str, attempt_id: str, secret: str) -> str:
    """Hash a secret for keeping, bound to what it is for: one of another attempt or purpose never fits."""
    return sha256(f"{purpose}|{attempt_id}|{secret}".encode("utf-8", "replace")).hexdigest()


def same(kept: str, purpose: str, attempt_id: str, secret: str) -> bool:
    """Compare in a time that doesn't depend on the secret; nothing is equal to what was never set."""
    return bool(kept and secret) and hmac.compare_digest(kept, hashed(purpose, attempt_id, secret))


def joined(attempt_id: str, secret: str) -> str:
    """Put both into one token."""
    return f"{attempt_id}.{secret}"


def parted(token: str) -> tuple[str, str]:
    """Take a token apart; what is none gives empty parts."""
    if len(token) > _MOST or not token.isascii():
        return "", ""
    attempt_id, dot, secret = token.partition(".")
    return (attempt_id, secret) if dot and attempt_id and secret else ("", "")
