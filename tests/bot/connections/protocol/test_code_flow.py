"""The code flow against a real provider: PKCE, `iss`, rotation, revocation, who it is."""

from __future__ import annotations

import pytest
from yarl import URL

from bot.connections.protocol import Account, Provider, ProviderDown, ProviderNonsense, ProviderRefused
from bot.outgoing import Outgoing
from tests.bot.connections.protocol.asking import PUBLIC, SignIn, connection
from tests.oidc import SECRET, OidcPeer


@pytest.fixture
def provider(oidc: OidcPeer, outgoing: Outgoing) -> Provider:
    return Provider(connection(oidc.issuer), outgoing, public_url=PUBLIC)


async def test_a_person_signs_in_and_the_app_learns_who_they_are(oidc: OidcPeer, provider: Provider) -> None:
    sign_in = SignIn(provider)
    grant = await sign_in.exchange(await sign_in.come_back(oidc))
    assert grant.access_token
    assert grant.refresh_token
    assert grant.expires_in == 3600
    assert set(grant.scopes or ()) == {"openid", "email", "profile"}
    assert grant.id_claims is not None
    assert grant.id_claims["sub"] == "alice"
    assert await provider.account(grant) == Account("alice", "Alice", "alice@example.test", email_verified=True)


@pytest.mark.parametrize(
    ("client", "auth"), [("app", None), ("app-post", "client_secret_post"), ("public", None), ("public", "none")]
)
async def test_every_kind_of_client_proves_itself(oidc: OidcPeer, outgoing: Outgoing, client: str, auth: str | None) -> None:
    secret = None if client == "public" else SECRET
    made = connection(oidc.issuer, client_id=client, client_secret=secret, client_auth=auth)
    assert made.problems() == ()
    sign_in = SignIn(Provider(made, outgoing, public_url=PUBLIC))
    grant = await sign_in.exchange(await sign_in.come_back(oidc))
    assert grant.refresh_token
    assert (await sign_in.provider.refresh(grant.refresh_token)).access_token != grant.access_token


async def test_the_authorize_address_holds_what_it_must_and_no_secret(oidc: OidcPeer, outgoing: Outgoing) -> None:
    made = connection(oidc.issuer, extra={"prompt": "consent"})
    sign_in = SignIn(Provider(made, outgoing, public_url=PUBLIC))
    query = URL(await sign_in.url()).query
    assert query["response_type"] == "code"
    assert query["code_challenge_method"] == "S256"
    assert query["prompt"] == "consent"
    assert query["redirect_uri"] == f"{PUBLIC}/connect/callback/tracker"
    assert query["scope"] == "openid email profile"
    assert query["nonce"] == sign_in.nonce
    assert sign_in.verifier not in str(query)
    assert SECRET not in str(query)
    assert "nonce" not in URL(await sign_in.url("read")).query


async def test_a_wrong_verifier_or_redirect_address_gets_nothing(oidc: OidcPeer, provider: Provider) -> None:
    sign_in = SignIn(provider)
    code = await sign_in.come_back(oidc)
    with pytest.raises(ProviderRefused) as refused:
        await sign_in.exchange(code, verifier="x" * 43)
    assert refused.value.error == "invalid_grant"
    with pytest.raises(ProviderRefused):
        await sign_in.exchange(code, redirect_uri=f"{PUBLIC}/connect/callback/other")


async def test_a_code_works_once_and_its_second_use_ends_the_grant(oidc: OidcPeer, provider: Provider) -> None:
    sign_in = SignIn(provider)
    code = await sign_in.come_back(oidc)
    grant = await sign_in.exchange(code)
    with pytest.raises(ProviderRefused) as refused:
        await sign_in.exchange(code)
    assert refused.value.error == "invalid_grant"
    assert grant.refresh_token
    with pytest.raises(ProviderRefused):
        await provider.refresh(grant.refresh_token)


async def test_another_sign_ins_id_token_is_refused(oidc: OidcPeer, provider: Provider) -> None:
    sign_in = SignIn(provider)
    with pytest.raises(ProviderNonsense, match="another sign-in"):
        await sign_in.exchange(await sign_in.come_back(oidc), nonce="of another sign-in")


async def test_refresh_tokens_rotate_and_reuse_ends_the_family(oidc: OidcPeer, provider: Provider) -> None:
    sign_in = SignIn(provider)
    first = await sign_in.exchange(await sign_in.come_back(oidc))
    assert first.refresh_token
    second = await provider.refresh(first.refresh_token, scopes=("openid",))
    assert second.refresh_token not in (None, first.refresh_token)
    assert second.scopes == ("openid",)
    with pytest.raises(ProviderRefused) as refused:
        await provider.refresh(first.refresh_token)
    assert refused.value.error == "invalid_grant"
    with pytest.raises(ProviderRefused):
        await provider.refresh(second.refresh_token or "")
    assert [one["outcome"] for one in oidc.asked("refresh_token")] == ["granted", "invalid_grant", "invalid_grant"]


async def test_who_refuses_is_told_from_who_failed(oidc: OidcPeer, provider: Provider) -> None:
    with pytest.raises(ProviderRefused) as refused:
        await SignIn(provider).come_back(oidc, deny=True)
    assert refused.value.error == "access_denied"


async def test_a_callback_of_another_provider_is_refused_before_its_error_is_read(oidc: OidcPeer, provider: Provider) -> None:
    sign_in = SignIn(provider)
    await sign_in.come_back(oidc)
    assert sign_in.params["iss"] == oidc.issuer
    for params in (
        {**sign_in.params, "iss": "https://evil.example"},
        {"error": "access_denied", "iss": "https://evil.example"},
        {"error": "access_denied"},
        {name: value for name, value in sign_in.params.items() if name != "iss"},
        {"iss": oidc.issuer},
        {"iss": oidc.issuer, "code": ""},
        {"iss": oidc.issuer, "code": "with a space"},
    ):
        with pytest.raises(ProviderNonsense):
            await provider.check_callback(params)


async def test_a_revoked_grant_is_over(oidc: OidcPeer, provider: Provider) -> None:
    sign_in = SignIn(provider)
    grant = await sign_in.exchange(await sign_in.come_back(oidc))
    assert grant.refresh_token
    assert await provider.revoke(grant.refresh_token)
    assert await provider.revoke(grant.refresh_token)
    assert await provider.revoke("never seen", "access_token")
    with pytest.raises(ProviderRefused):
        await provider.refresh(grant.refresh_token)
    with pytest.raises(ProviderRefused) as refused:
        await provider.account(type(grant)(grant.access_token))
    assert refused.value.error == "invalid_token"


async def test_a_wrong_secret_is_the_apps_fault(oidc: OidcPeer, outgoing: Outgoing) -> None:
    sign_in = SignIn(Provider(connection(oidc.issuer, client_secret="wrong"), outgoing, public_url=PUBLIC))
    with pytest.raises(ProviderRefused) as refused:
        await sign_in.exchange(await sign_in.come_back(oidc))
    assert refused.value.error == "invalid_client"


@pytest.mark.parametrize("skew", [-90, 90])
async def test_clocks_may_be_apart_a_little(oidc: OidcPeer, provider: Provider, skew: int) -> None:
    sign_in = SignIn(provider)
    oidc.settings(code_ttl=7200)
    code = await sign_in.come_back(oidc)
    oidc.settings(skew=skew, id_ttl=1)
    assert (await sign_in.exchange(code)).id_claims


@pytest.mark.parametrize("skew", [-3600, 3600])
async def test_clocks_an_hour_apart_are_said_to_be(oidc: OidcPeer, provider: Provider, skew: int) -> None:
    sign_in = SignIn(provider)
    oidc.settings(code_ttl=7200)
    code = await sign_in.come_back(oidc)
    oidc.settings(skew=skew, id_ttl=1)
    with pytest.raises(ProviderNonsense, match="clocks"):
        await sign_in.exchange(code)


@pytest.mark.parametrize(("drop", "spent"), [("before", False), ("after", True)])
async def test_a_lost_answer_may_have_spent_the_code(oidc: OidcPeer, provider: Provider, drop: str, spent: bool) -> None:
    sign_in = SignIn(provider)
    code = await sign_in.come_back(oidc)
    oidc.plan("/token", drop=drop)
    with pytest.raises(ProviderDown) as down:
        await sign_in.exchange(code)
    assert down.value.sent  # whether it was spent, nobody here can know
    assert len(oidc.asked("authorization_code")) == spent


async def test_tokens_are_in_no_repr(oidc: OidcPeer, provider: Provider) -> None:
    sign_in = SignIn(provider)
    grant = await sign_in.exchange(await sign_in.come_back(oidc))
    shown = repr(grant) + repr(await provider.account(grant)) + repr(await provider.client()) + repr(await provider.endpoints())
    for secret in (grant.access_token, grant.refresh_token, SECRET, "alice@example.test"):
        assert str(secret) not in shown
