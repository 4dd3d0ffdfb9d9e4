"""id_tokens and userinfo: who somebody is, and everything that makes a provider's word worthless."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc.jwk import OctKey
from yarl import URL

from bot.connections.protocol import Account, AccountSource, Provider, ProviderDown, ProviderNonsense, ProviderRefused, TokenGrant
from bot.outgoing import Outgoing
from tests.bot.connections.protocol.asking import PUBLIC, SignIn
from tests.bot.connections.protocol.hostile import KEY, OTHER, WEAK, Hostile

NOW = 1_800_000_000


@pytest.fixture
def provider(hostile: Hostile, reaching: Outgoing) -> Provider:
    """Both clocks stand still: a test may run long after this module was read."""
    hostile.time = NOW
    return Provider(hostile.provider(reaching).connection, reaching, public_url=PUBLIC, now=lambda: float(NOW))


async def exchange(provider: Provider, hostile: Hostile, id_token: Any) -> TokenGrant:
    hostile.answers["/token"] = {"access_token": "a", "id_token": id_token}
    return await provider.exchange("c", verifier="v" * 43, redirect_uri=f"{PUBLIC}/connect/callback/tracker", nonce="n")


def by_hand(header: dict[str, Any], claims: Any) -> str:
    """Sign what the library would not."""
    parts = [base64.urlsafe_b64encode(orjson.dumps(one)).rstrip(b"=") for one in (header, claims)]
    assert KEY.private_key is not None
    signature = KEY.private_key.sign(b".".join(parts), PKCS1v15(), SHA256())
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def unsigned(claims: dict[str, Any], alg: str) -> str:
    parts = [base64.urlsafe_b64encode(orjson.dumps(one)).rstrip(b"=").decode() for one in ({"alg": alg}, claims)]
    return ".".join([*parts, ""])


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"aud": ["app"]},
        {"aud": ["app", "api"], "azp": "app"},
        {"azp": "app"},
        {"exp": NOW - 60},
        {"iat": NOW + 60},
        {"nbf": NOW + 60},
        {"exp": NOW + 0.5 + 300},
    ],
    ids=repr,
)
async def test_a_right_id_token_is_believed(hostile: Hostile, provider: Provider, claims: dict[str, Any]) -> None:
    grant = await exchange(provider, hostile, hostile.id_token(**claims))
    assert grant.id_claims is not None
    assert grant.id_claims["sub"] == "alice"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": ["x"]}, "another issuer"),
        ({"aud": "other"}, "another app"),
        ({"aud": []}, "another app"),
        ({"aud": None}, "another app"),
        ({"aud": {"app": 1}}, "another app"),
        ({"aud": ["app", "other"]}, "another app"),
        ({"aud": ["app", "other"], "azp": "other"}, "another app"),
        ({"azp": "other"}, "another app"),
        ({"azp": 5}, "another app"),
        ({"sub": None}, "nobody"),
        ({"sub": ""}, "nobody"),
        ({"sub": 5}, "nobody"),
        ({"sub": "a\nb"}, "nobody"),
        ({"sub": "x" * 300}, "nobody"),
        ({"exp": NOW - 600}, "clocks"),
        ({"exp": None}, "clocks"),
        ({"exp": "tomorrow"}, "clocks"),
        ({"exp": True}, "clocks"),
        ({"exp": 1e300}, "clocks"),
        ({"iat": NOW + 600}, "clocks"),
        ({"iat": None}, "clocks"),
        ({"nbf": NOW + 600}, "clocks"),
        ({"nbf": "x"}, "clocks"),
        ({"nonce": "m"}, "another sign-in"),
        ({"nonce": None}, "another sign-in"),
        ({"nonce": ["n"]}, "another sign-in"),
        ({"nonce": "ñ"}, "another sign-in"),
    ],
    ids=repr,
)
async def test_a_wrong_claim_makes_it_worthless(
    hostile: Hostile, provider: Provider, claims: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ProviderNonsense, match=reason):
        await exchange(provider, hostile, hostile.id_token(**claims))


async def test_a_signature_is_the_providers_or_none(hostile: Hostile, provider: Provider) -> None:
    right = orjson.loads(base64.urlsafe_b64decode(hostile.id_token().split(".")[1] + "=="))
    public = OctKey.import_key(orjson.dumps(KEY.as_dict(private=False)))  # the public key as a shared secret
    good = hostile.id_token()
    head, body, signature = good.split(".")
    for token in (
        unsigned(right, "none"),
        unsigned(right, "None"),
        unsigned(right, "RS256"),
        hostile.id_token(key=public, alg="HS256"),
        hostile.id_token(key=OTHER),
        hostile.id_token(key=OTHER, header={"kid": "unknown"}),
        hostile.id_token(key=OTHER, header={"jwk": OTHER.as_dict(private=False)}),
        by_hand({"alg": "RS256", "kid": "one", "crit": ["future"], "future": True}, right),
        by_hand({"alg": "RS256", "kid": "one", "b64": False, "crit": ["b64"]}, right),
        by_hand({"alg": "RS256", "kid": ["one"]}, right),
        by_hand({"alg": ["RS256"], "kid": "one"}, right),
        by_hand({"alg": "RS256", "kid": "one"}, [right]),
        hostile.id_token(header={"kid": "one", "x": "y" * 5_000}),
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{base64.urlsafe_b64encode(orjson.dumps({**right, 'sub': 'mallory'})).decode().rstrip('=')}.{signature}",
        f"{head}..{signature}",
        "a.b.c",
        "....",
        "x",
        "x" * 15_000,
        "." * 100,
        5,
        {"sub": "alice"},
    ):
        with pytest.raises(ProviderNonsense) as failed:
            await exchange(provider, hostile, token)
        assert failed.value.__context__ is None or failed.value.__suppress_context__
    for token in (good, by_hand({"alg": "RS256", "kid": "one"}, right)):
        assert (await exchange(provider, hostile, token)).id_claims


@pytest.mark.parametrize(
    "keys",
    [
        {"keys": []},
        {"keys": [5, None, "x", {}, {"kty": "oct", "k": "AAAA", "kid": "one"}]},
        {"keys": [{"kty": "RSA", "kid": "one"}]},
        {"keys": [{"kty": ["RSA"], "kid": ["one"], "use": {}}]},
        {"keys": [{"kty": "RSA", "kid": "one", "n": 5, "e": "AQAB"}]},
        {"keys": [{"kty": "RSA", "kid": "one", "n": "A" * 60_000, "e": "AQAB"}]},
        {"keys": [{**KEY.as_dict(private=False), "use": "enc"}]},
        {"keys": [{**KEY.as_dict(private=False), "alg": "RS512"}]},
        {"keys": [{**KEY.as_dict(private=False), "e": "A" * 2_000}]},
        {"keys": [{"kty": "EC", "kid": "one", "crv": "P-256", "x": "AA", "y": "AA"}]},
        {"keys": [WEAK.as_dict(private=False)]},
        {"keys": {}},
        {},
        [],
        (404, b"", {}),
        (200, b"<html>", {}),
    ],
    ids=(
        "none",
        "nonsense",
        "bare",
        "lists",
        "a number",
        "endless",
        "to encrypt",
        "another algorithm",
        "endless exponent",
        "short curve",
        "weak",
        "an object",
        "nothing",
        "a list",
        "missing",
        "a page",
    ),
)
async def test_keys_that_cannot_be_used_prove_nothing(hostile: Hostile, provider: Provider, keys: Any) -> None:
    hostile.answers["/jwks"] = keys
    with pytest.raises(ProviderNonsense):
        await exchange(provider, hostile, hostile.id_token())


async def test_a_weak_key_signs_nothing(hostile: Hostile, provider: Provider) -> None:
    hostile.answers["/jwks"] = {"keys": [WEAK.as_dict(private=False)]}
    with pytest.raises(ProviderNonsense, match="signed by nobody"):
        await exchange(provider, hostile, hostile.id_token(key=WEAK))


async def test_keys_beside_strange_ones_are_found(hostile: Hostile, provider: Provider) -> None:
    strange = [{"kty": "future", "kid": "one"}, {"kty": "RSA", "kid": "one", "n": "!", "e": "AQAB"}, OTHER.as_dict(private=False)]
    hostile.answers["/jwks"] = {"keys": [*strange, KEY.as_dict(private=False)]}
    assert (await exchange(provider, hostile, hostile.id_token())).id_claims
    assert (await exchange(provider, hostile, hostile.id_token(header={"kid": None}))).id_claims


async def test_new_keys_are_fetched_once_and_before_the_code_is_spent(hostile: Hostile, provider: Provider) -> None:
    assert (await exchange(provider, hostile, hostile.id_token())).id_claims
    assert hostile.paths() == ["/.well-known/openid-configuration", "/jwks", "/token"]
    fresh = OTHER.as_dict(private=True) | {"kid": "two"}
    hostile.answers["/jwks"] = {"keys": [{name: fresh[name] for name in ("kty", "n", "e", "kid")}]}
    assert (await exchange(provider, hostile, hostile.id_token(key=OTHER, header={"kid": "two"}))).id_claims
    assert hostile.paths()[3:] == ["/token", "/jwks"]


async def test_a_code_is_not_spent_when_the_keys_are_not_there(hostile: Hostile, provider: Provider) -> None:
    hostile.answers["/jwks"] = (503, b"", {})
    with pytest.raises(ProviderDown):
        await exchange(provider, hostile, hostile.id_token())
    assert "/token" not in hostile.paths()


async def test_without_pkce_the_nonce_has_to_bind_the_code(hostile: Hostile, reaching: Outgoing) -> None:
    """Slack refuses PKCE to apps that have a secret."""
    provider = Provider(hostile.provider(reaching).connection, reaching, public_url=PUBLIC, pkce=False)
    asked = URL(await SignIn(provider).url()).query
    assert not {"code_challenge", "code_challenge_method"} & asked.keys()
    assert (await exchange(provider, hostile, hostile.id_token())).id_claims
    assert "code_verifier" not in hostile.asked[-1][2]
    for id_token in (None, hostile.id_token(nonce="m"), hostile.id_token(nonce=None)):
        with pytest.raises(ProviderNonsense):
            await exchange(provider, hostile, id_token)


@pytest.mark.parametrize("verifier", ["", "short", "x" * 129])
async def test_a_verifier_that_can_be_guessed_is_no_verifier(hostile: Hostile, provider: Provider, verifier: str) -> None:
    sign_in = SignIn(provider)
    sign_in.verifier = verifier
    with pytest.raises(ValueError, match="43 to 128"):
        await sign_in.url()


# Accounts


CLAIMS: dict[str, Any] = {"sub": "alice", "email": "alice@example.test", "email_verified": True, "name": "Alice"}


async def test_an_id_token_that_says_it_all_is_enough(hostile: Hostile, provider: Provider) -> None:
    grant = await exchange(provider, hostile, hostile.id_token(**CLAIMS))
    assert await provider.account(grant) == Account("alice", "Alice", "alice@example.test", email_verified=True)
    assert "/userinfo" not in hostile.paths()


async def test_userinfo_of_somebody_else_is_refused(hostile: Hostile, provider: Provider) -> None:
    grant = await exchange(provider, hostile, hostile.id_token())
    hostile.answers["/userinfo"] = {**CLAIMS, "sub": "mallory"}
    with pytest.raises(ProviderNonsense, match="another account"):
        await provider.account(grant)
    hostile.answers["/userinfo"] = CLAIMS
    assert await provider.account(grant) == Account("alice", "Alice", "alice@example.test", email_verified=True)
    assert hostile.asked[-1][3]["Authorization"] == "Bearer a"
    hostile.answers["/userinfo"] = (403, b"", {})
    assert await provider.account(grant) == Account("alice")


@pytest.mark.parametrize(
    ("answer", "account"),
    [
        ({"sub": "a"}, Account("a")),
        ({**CLAIMS, "email_verified": "true"}, Account("alice", "Alice", "alice@example.test", email_verified=True)),
        ({**CLAIMS, "email_verified": "false"}, Account("alice", "Alice", "alice@example.test")),
        ({**CLAIMS, "email_verified": 1}, Account("alice", "Alice", "alice@example.test")),
        ({**CLAIMS, "email_verified": "yes"}, Account("alice", "Alice", "alice@example.test")),
        ({**CLAIMS, "email_verified": [True]}, Account("alice", "Alice", "alice@example.test")),
        ({**CLAIMS, "email": "a@b, c@d"}, Account("alice", "Alice")),
        ({**CLAIMS, "email": "<a@b>"}, Account("alice", "Alice")),
        ({**CLAIMS, "email": "nobody"}, Account("alice", "Alice")),
        ({**CLAIMS, "email": ["a@b"]}, Account("alice", "Alice")),
        ({"sub": "a", "name": "A\u202e\n\tB" + "x" * 500}, Account("a", "A B" + "x" * 197)),
        ({"sub": "a", "name": 5, "preferred_username": "al"}, Account("a", "5")),
        ({"sub": 12345}, Account("12345")),
    ],
    ids=lambda one: repr(one)[:70],
)
async def test_userinfo_is_read(hostile: Hostile, reaching: Outgoing, answer: Any, account: Account) -> None:
    hostile.answers["/userinfo"] = answer
    assert await hostile.static(reaching).account(TokenGrant("a")) == account


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({}, ProviderNonsense),
        ({"sub": ""}, ProviderNonsense),
        ({"sub": True}, ProviderNonsense),
        ({"sub": None}, ProviderNonsense),
        ({"sub": {"id": 1}}, ProviderNonsense),
        ([{"sub": "a"}], ProviderNonsense),
        (b"eyJ.a.b", ProviderNonsense),
        ((404, b"", {}), ProviderNonsense),
        ((401, b"", {}), ProviderRefused),
        ({"ok": False, "error": "invalid_auth"}, ProviderRefused),
        ((500, b"", {}), ProviderDown),
    ],
    ids=lambda one: repr(one)[:70],
)
async def test_an_account_of_nobody_is_none(hostile: Hostile, reaching: Outgoing, answer: Any, error: type[Exception]) -> None:
    hostile.answers["/userinfo"] = answer
    with pytest.raises(error):
        await hostile.static(reaching).account(TokenGrant("a"))


async def test_a_provider_with_its_own_way_of_saying_who(hostile: Hostile, reaching: Outgoing) -> None:
    source = AccountSource(
        subject=("data.viewer.id",),
        name=("data.viewer.nick", "data.viewer.name"),
        email=("data.viewer.email",),
        email_verified=True,
        headers={"X-Version": "2"},
        body=b'{"query": "{viewer{id}}"}',
    )
    hostile.answers["/userinfo"] = {"data": {"viewer": {"id": 7, "name": "Alice", "email": "a@b.test"}}}
    found = await hostile.static(reaching, account=source).account(TokenGrant("a"))
    assert found == Account("7", "Alice", "a@b.test", email_verified=True)
    method, _, _, headers = hostile.asked[-1]
    assert (method, headers["X-Version"], headers["Content-Type"]) == ("POST", "2", "application/json")


async def test_a_provider_that_says_nobody_anywhere(hostile: Hostile, reaching: Outgoing) -> None:
    assert await hostile.static(reaching, userinfo_url=None).account(TokenGrant("a")) is None
