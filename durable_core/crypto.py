"""Encryption of content: a key per session, wrapped by a ring of keys that the operator holds.

What lives here: sealing, wrapping, keyed digests. What does not: where keys and sealed values are stored.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import os
import re
import secrets
import struct
from base64 import b64decode, b64encode
from functools import cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from durable_core.codec import unstamped
from durable_core.errors import BadKeyRing, CannotOpen, KeyMissing, KeyWrong, NoKeys
from durable_core.ids import new_id

KEY_BYTES: Final = 32
"""Length of every key: AES-256."""

_VERSION: Final = b"\x01"
_NONCE: Final = 12
_TAG: Final = 16
_KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class SessionKey:
    """Seal and open one session's values: AES-256-GCM with a random nonce, bound to the place they are stored in.

    A sealed value is version byte, nonce, ciphertext, tag. Nonces are random, so one key seals at most 2**32 values
    (NIST SP 800-38D §8.3).
    """

    __slots__ = ("_cipher",)

    def __init__(self, raw: bytes) -> None:
        if len(raw) != KEY_BYTES:
            raise ValueError(f"a session key is {KEY_BYTES} bytes, not {len(raw)}")
        self._cipher = AESGCM(raw)

    def seal(self, plain: bytes, *, table: str, row: str, column: str) -> bytes:
        """Return `plain` encrypted so that it opens at this table, row and column only."""
        nonce = os.urandom(_NONCE)  # what secrets.token_bytes does, three calls later
        return _VERSION + nonce + self._cipher.encrypt(nonce, plain, _aad(table, row, column))

    def open(self, sealed: bytes, *, table: str, row: str, column: str) -> bytes:
        """Return what was sealed.

        Raises:
            CannotOpen: another key, another place, or bytes that were cut or changed.
        """
        if len(sealed) < 1 + _NONCE + _TAG or sealed[:1] != _VERSION:
            raise CannotOpen(table, row, column)
        try:
            return self._cipher.decrypt(sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :], _aad(table, row, column))
        except InvalidTag:
            raise CannotOpen(table, row, column) from None


class KeyRing:
    """Wrap session keys by the first of some named keys, unwrap by whichever wrapped them.

    To rotate, put a new entry first and keep the old ones for as long as something is wrapped by them.
    """

    __slots__ = ("_current", "_digests", "_wraps")

    def __init__(self, keys: dict[str, bytes]) -> None:
        if not keys:
            raise NoKeys
        self._current = next(iter(keys))
        self._wraps = {key_id: AESGCM(_derive(raw, b"wrap")) for key_id, raw in keys.items()}
        self._digests = {key_id: _derive(raw, b"digest") for key_id, raw in keys.items()}

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """Read `id:base64-of-32-bytes`, comma-separated, the current one first.

        Raises:
            NoKeys: the text is empty.
            BadKeyRing: an entry can't be read; the reason names the entry, never the key.
        """
        if not text.strip():
            raise NoKeys
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.split(","), start=1):
            key_id, colon, encoded = entry.strip().partition(":")
            if not colon or _KEY_ID.fullmatch(key_id) is None:
                raise BadKeyRing(f"entry {number} is not id:base64")
            if key_id in keys:
                raise BadKeyRing(f"two entries have the id {key_id!r}")
            keys[key_id] = _read_key(key_id, encoded)
        return cls(keys)

    @property
    def current_id(self) -> str:
        """The id of the key that wraps."""
        return self._current

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys, the current one first."""
        return tuple(self._wraps)

    def wrap(self, session_key: bytes, aad: bytes) -> bytes:
        """Return a session's raw key, or another value, encrypted by the current key and bound to `aad` (say, the session's id).

        Nonces are random: one key of the ring wraps at most 2**32 times.
        """
        key_id = self._current.encode("ascii")
        header = _VERSION + bytes([len(key_id)]) + key_id
        nonce = secrets.token_bytes(_NONCE)
        return header + nonce + self._wraps[self._current].encrypt(nonce, session_key, _prefixed(header, aad))

    def unwrap(self, wrapped: bytes, aad: bytes) -> bytes:
        """Return what `wrap` was given.

        Raises:
            KeyMissing: the key that wrapped it is not in the ring.
            KeyWrong: another key by that id, another `aad`, or a body that was changed.
            CannotOpen: bytes that are no wrapped key.
        """
        key_id = wrapped_by(wrapped)
        if key_id is None:
            raise _cannot_unwrap(aad)
        cipher = self._wraps.get(key_id)
        if cipher is None:
            raise KeyMissing(key_id)
        start = 2 + len(key_id)
        body = wrapped[start:]
        if len(body) < _NONCE + _TAG:
            raise _cannot_unwrap(aad)
        try:
            return cipher.decrypt(body[:_NONCE], body[_NONCE:], _prefixed(wrapped[:start], aad))
        except InvalidTag:
            raise KeyWrong(key_id, _shown(aad)) from None

    def digest(self, data: bytes) -> bytes:
        """Return a keyed hash (HMAC-SHA256, current key) that tells nothing to who lacks the key."""
        return hmac.digest(self._digests[self._current], data, "sha256")

    def is_digest(self, digest: bytes, data: bytes) -> bool:
        """Return whether `digest` was made of `data` by any key of the ring, so that rotation makes nothing differ."""
        made = [hmac.compare_digest(hmac.digest(key, data, "sha256"), digest) for key in self._digests.values()]
        return any(made)


def payload_digest(payload: bytes) -> bytes:
    """Hash a payload, so that a repeat under the same key can be told from another one; stores keep a keyed form of it.

    In which format it was written makes no difference: a repeat may reach a newer version.
    """
    return hashlib.sha256(unstamped(payload)).digest()


def new_session_key() -> bytes:
    """Return a new raw session key."""
    return secrets.token_bytes(KEY_BYTES)


def new_key_entry() -> str:
    """Return a new entry for a key ring, `id:base64`; the ids of later entries sort later."""
    made = new_id("key").removeprefix("key_")
    return f"k{made[:10]}{made[-4:]}:{b64encode(secrets.token_bytes(KEY_BYTES)).decode('ascii')}"


def wrapped_by(wrapped: bytes) -> str | None:
    """Return the id of the key that wrapped these bytes, None where they are no wrapped key: to find what to re-wrap."""
    if len(wrapped) < 2 or wrapped[:1] != _VERSION or len(wrapped) < 2 + wrapped[1]:
        return None
    key_id = wrapped[2 : 2 + wrapped[1]].decode("ascii", "replace")
    return key_id if _KEY_ID.fullmatch(key_id) else None


def _read_key(key_id: str, encoded: str) -> bytes:
    """Read base64 in either alphabet, strictly."""
    try:
        raw = b64decode(encoded.translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError):
        raise BadKeyRing(f"the key of {key_id!r} is not base64") from None
    if len(raw) != KEY_BYTES:
        raise BadKeyRing(f"the key of {key_id!r} has {len(raw)} bytes, not {KEY_BYTES}")
    return raw


def _derive(raw: bytes, purpose: bytes) -> bytes:
    """Return a key for one purpose: HKDF-Expand (RFC 5869 §2.3), whose first block is all that is needed."""
    return hmac.digest(raw, b"moorings " + purpose + b"\x01", "sha256")


def _aad(table: str, row: str, column: str) -> bytes:
    head, tail = _ends(table, column)
    name = row.encode()
    return head + len(name).to_bytes(4, "big") + name + tail


@cache
def _ends(table: str, column: str) -> tuple[bytes, bytes]:
    """Return what stands before and behind a row's name; there are only so many columns."""
    return _prefixed(table.encode()), _prefixed(column.encode())


def _prefixed(*parts: bytes) -> bytes:
    """Join with lengths, so that ("ab", "c") and ("a", "bc") differ."""
    return b"".join([struct.pack(">I", len(part)) + part for part in parts])


def _cannot_unwrap(aad: bytes) -> CannotOpen:
    return CannotOpen("session", _shown(aad), "key")


def _shown(aad: bytes) -> str:
    return aad.decode("utf-8", "backslashreplace")[:80]
