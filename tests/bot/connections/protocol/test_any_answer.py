"""Whatever a provider answers, its readers give a value or say that it is nonsense."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.connections.accounts import AccountSource
from bot.connections.protocol import Account, DeviceStart, Endpoints, ProtocolError, TokenGrant
from bot.connections.protocol.devices import read_start
from bot.connections.protocol.discovery import read_endpoints, read_resource
from bot.connections.protocol.grants import read_answer, read_grant
from bot.connections.protocol.identity import fitting, read_keys, verify
from bot.connections.protocol.people import read_account
from bot.connections.protocol.reading import Answer
from bot.outgoing import Fetched, Outgoing
from tests.bot.connections.protocol.hostile import KEY, Hostile

OUTGOING = Outgoing()
HERE = "https://provider.example"
MADE_BY = Hostile()
MADE_BY.origin = HERE
TOKEN = MADE_BY.id_token()
TEXT = st.text(st.characters(max_codepoint=0x2FFF), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.sampled_from([HERE, "http://127.0.0.1/", "RSA", "sig", "error", "ok"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.sampled_from(["kty", "n", "e", "sub", "id"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def changed(right: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Take a right answer and put anything in the place of any of its fields."""
    return st.dictionaries(st.sampled_from(sorted(right)), JSON).map(lambda wrong: {**right, **wrong})


GRANT = {
    "access_token": "a",
    "refresh_token": "r",
    "expires_in": 3600,
    "scope": "repo",
    "token_type": "bearer",
    "error": None,
    "ok": True,
}


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(changed(GRANT))
def test_grants(fields: dict[str, Any]) -> None:
    try:
        found = read_grant(Answer(fields, "it"))
    except ProtocolError:
        return
    assert isinstance(found, TokenGrant)
    assert isinstance(found.access_token, str)
    assert found.access_token.isascii()
    assert found.access_token.isprintable()
    assert isinstance(found.refresh_token, str | None)
    assert found.expires_in is None or (type(found.expires_in) is int and 0 < found.expires_in < 2**40)
    assert found.scopes is None or all(isinstance(scope, str) for scope in found.scopes)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.binary() | TEXT.map(str.encode),
    st.integers(200, 499),
    st.sampled_from(["application/json", "application/x-www-form-urlencoded", "x"]),
)
def test_bodies(body: bytes, status: int, kind: str) -> None:
    try:
        read_grant(read_answer(Fetched(status, {"Content-Type": kind}, body), "it", ("secret-4711",)))
    except ProtocolError:
        return


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(changed({"sub": "a", "name": "A", "email": "a@b.test", "email_verified": True, "data": {"viewer": {"id": 1}}}))
def test_accounts(fields: dict[str, Any]) -> None:
    for source in (AccountSource(), AccountSource(("data.viewer.id", "sub.id"), email=("email.x", "email"))):
        try:
            found = read_account(fields, source)
        except ProtocolError:
            continue
        assert isinstance(found, Account)
        assert found.subject
        assert found.email is None or "@" in found.email
        assert found.email is not None or not found.email_verified


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    changed(
        {
            "issuer": HERE,
            "token_endpoint": f"{HERE}/token",
            "jwks_uri": f"{HERE}/jwks",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }
    )
)
def test_descriptions(fields: dict[str, Any]) -> None:
    try:
        found = read_endpoints(OUTGOING, Answer(fields, "it"), HERE)
    except ProtocolError:
        return
    assert isinstance(found, Endpoints)
    assert found.issuer == HERE
    for address in (found.token, found.jwks):
        assert address is None or address.startswith("https://")


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(changed({"resource": f"{HERE}/mcp", "authorization_servers": [HERE], "scopes_supported": ["read"]}))
def test_descriptions_of_servers(fields: dict[str, Any]) -> None:
    try:
        found = read_resource(OUTGOING, Answer(fields, "it"), f"{HERE}/mcp")
    except ProtocolError:
        return
    assert found.issuer.startswith("https://")


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    changed(
        {
            "device_code": "d",
            "user_code": "u",
            "verification_uri": HERE,
            "verification_uri_complete": HERE,
            "expires_in": 9,
            "interval": 1,
        }
    )
)
def test_devices(fields: dict[str, Any]) -> None:
    try:
        found = read_start(Answer(fields, "it"), OUTGOING, named_by=HERE)
    except ProtocolError:
        return
    assert isinstance(found, DeviceStart)
    assert found.uri.startswith("https://")
    assert found.interval >= 1


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(changed(dict(KEY.as_dict(private=False))) | JSON, max_size=3))
def test_keys(keys: list[Any]) -> None:
    found = read_keys(Answer({"keys": keys}, "it"))
    assert isinstance(fitting(found, "RS256", "one"), list)
    with suppress(ProtocolError):
        verify(TOKEN, found, issuer=HERE, client_id="app", nonce="n", now=0)
