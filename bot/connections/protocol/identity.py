"""An id_token, believed only when everything about it is right (OpenID Connect Core 3.1.3.7).

What lives here: keys, the signature, and what the claims must say. What does not: fetching the keys (provider.py), userinfo.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry, extract_compact
from joserfc.util import base64_to_int

from bot.connections.protocol.errors import ProviderNonsense
from bot.connections.protocol.reading import Answer, printable

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"},
)
"""Signatures that nobody but the provider can make: no `none`, no HS256, whose secret the app has as well."""
LEEWAY: Final = 120
"""Seconds that the clocks may be apart."""
KEYS: Final = 64

_KINDS: Final[Mapping[str, type[RSAKey | ECKey | OKPKey]]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_KIND_OF: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_RSA_LEAST, _RSA_MOST = 2048, 16_384  # bits; more is only a way to keep us busy
_EXPONENT: Final = 12
_BROKEN: Final = (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError, UnsupportedAlgorithm)
_WHAT: Final = "the id_token"


def read_keys(answer: Answer) -> tuple[Mapping[str, Any], ...]:
    """Return the entries of a JWK set that may be signing keys; kinds nobody here knows are left out (RFC 7517 5)."""
    found = answer.fields.get("keys")
    if not isinstance(found, list):
        raise answer.nonsense("keys", "is no list")
    return tuple(key for key in found[:KEYS] if _may_sign(key))


def _may_sign(key: Any) -> bool:
    return isinstance(key, dict) and isinstance(key.get("kty"), str) and key["kty"] in _KINDS and key.get("use") in (None, "sig")


def key_id(token: str) -> tuple[str, str | None]:
    """Return the algorithm and the key's id that a token names, before anything is believed.

    Raises: ProviderNonsense.
    """
    try:
        header = extract_compact(token.encode()).headers()
    except _BROKEN:
        header = {}
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or not isinstance(kid, str | None):
        raise ProviderNonsense(f"{_WHAT} is none, or is signed in a way that is not accepted")
    return algorithm, kid


def fitting(keys: Collection[Mapping[str, Any]], algorithm: str, kid: str | None) -> list[Mapping[str, Any]]:
    """Return the keys that a token of that header may be signed with."""
    return [
        key
        for key in keys
        if key["kty"] == _KIND_OF[algorithm[:2]] and key.get("alg") in (None, algorithm) and kid in (None, key.get("kid"))
    ]


def verify(
    token: str,
    keys: Collection[Mapping[str, Any]],
    *,
    issuer: str,
    client_id: str,
    nonce: str | None,
    now: float,
) -> Mapping[str, Any]:
    """Return the claims of a token that is right in every way.

    Raises: ProviderNonsense.
    """
    algorithm, kid = key_id(token)
    for key in fitting(keys, algorithm, kid)[:4]:
        claims = _signed(token, key, algorithm)
        if claims is not None:
            problem = _problem(claims, issuer=issuer, client_id=client_id, nonce=nonce, now=now)
            if problem:
                raise ProviderNonsense(f"{_WHAT} {problem}")
            return claims
    raise ProviderNonsense(f"{_WHAT} is signed by nobody the provider names")


def _signed(token: str, key: Mapping[str, Any], algorithm: str) -> dict[str, Any] | None:
    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = 4_096
    public = {name: value for name, value in key.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "key_ops")}
    try:
        if key["kty"] == "RSA" and not _reasonable(key):
            return None
        imported = _KINDS[key["kty"]].import_key(public)
        return jwt.decode(token, imported, registry=registry).claims
    except _BROKEN:
        return None


def _reasonable(key: Mapping[str, Any]) -> bool:
    """Judge an RSA key by its numbers: short ones are guessed, and large ones only keep us busy."""
    return _RSA_LEAST <= base64_to_int(key["n"]).bit_length() <= _RSA_MOST and len(key["e"]) <= _EXPONENT


def _problem(claims: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str | None, now: float) -> str | None:
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    subject = claims.get("sub")
    if claims.get("iss") != issuer:
        return "is of another issuer"
    if not isinstance(audiences, list) or client_id not in audiences:
        return "is for another app"
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != client_id:
        return "is for another app"
    if not isinstance(subject, str) or not subject or printable(subject, limit=255) != subject:
        return "names nobody"
    if not _number(claims.get("exp")) or claims["exp"] <= now - LEEWAY:
        return "has expired, or the clocks are far apart"
    if not _number(claims.get("iat")) or claims["iat"] > now + LEEWAY:
        return "is of the future, or the clocks are far apart"
    if "nbf" in claims and (not _number(claims["nbf"]) or claims["nbf"] > now + LEEWAY):
        return "is of the future, or the clocks are far apart"
    given = claims.get("nonce")
    if nonce is not None and not (isinstance(given, str) and secrets.compare_digest(given.encode(), nonce.encode())):
        return "belongs to another sign-in"
    return None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
