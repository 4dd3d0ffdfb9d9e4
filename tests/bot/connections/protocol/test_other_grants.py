"""Devices, the app's own tokens and registration, against a real provider."""

from __future__ import annotations

import pytest

from bot.connections.protocol import NoClient, Pending, Provider, ProviderRefused, TokenGrant
from bot.outgoing import Outgoing
from tests.bot.connections.protocol.asking import PUBLIC, Kept, SignIn, connection
from tests.oidc import OidcPeer


@pytest.mark.parametrize("client", ["app", "public"])
async def test_a_device_flow(oidc: OidcPeer, outgoing: Outgoing, client: str) -> None:
    made = connection(oidc.issuer, client_id=client, grant="device", **({} if client == "app" else {"client_secret": None}))
    provider = Provider(made, outgoing, public_url=PUBLIC)
    start = await provider.start_device(("openid", "email"))
    assert start.uri == f"{oidc.issuer}/device"
    assert start.uri_complete is not None
    assert start.user_code in start.uri_complete
    assert start.expires_in == 600
    assert await provider.poll_device(start.device_code) == Pending()
    await oidc.approve_device(start.uri_complete, "bob")
    grant = await provider.poll_device(start.device_code)
    assert isinstance(grant, TokenGrant)
    account = await provider.account(grant)
    assert account is not None
    assert (account.subject, account.email, account.email_verified) == ("bob", "bob@example.test", True)
    assert grant.refresh_token
    assert (await provider.refresh(grant.refresh_token)).access_token
    with pytest.raises(ProviderRefused) as refused:
        await provider.poll_device(start.device_code)
    assert refused.value.error == "invalid_grant"


async def test_a_device_flow_that_is_refused(oidc: OidcPeer, outgoing: Outgoing) -> None:
    provider = Provider(connection(oidc.issuer, grant="device"), outgoing, public_url=PUBLIC)
    start = await provider.start_device(("openid",))
    await oidc.approve_device(start.uri_complete or "", deny=True)
    with pytest.raises(ProviderRefused) as refused:
        await provider.poll_device(start.device_code)
    assert refused.value.error == "access_denied"


async def test_a_device_flow_that_takes_too_long(oidc: OidcPeer, outgoing: Outgoing) -> None:
    provider = Provider(connection(oidc.issuer, grant="device"), outgoing, public_url=PUBLIC)
    start = await provider.start_device(("openid",))
    oidc.settings(skew=601)
    with pytest.raises(ProviderRefused) as refused:
        await provider.poll_device(start.device_code)
    assert refused.value.error == "expired_token"


async def test_the_app_gets_a_token_of_its_own(oidc: OidcPeer, outgoing: Outgoing) -> None:
    made = connection(oidc.issuer, client_id="machine", grant="client_credentials", owner="app", scopes=("read",))
    assert made.problems() == ()
    grant = await Provider(made, outgoing, public_url=PUBLIC).client_credentials(("read",))
    assert (grant.scopes, grant.refresh_token, grant.expires_in) == (("read",), None, 3600)
    with pytest.raises(ProviderRefused):
        await Provider(connection(oidc.issuer), outgoing, public_url=PUBLIC).client_credentials(("read",))


async def test_an_app_that_nobody_registered_registers_once(oidc: OidcPeer, outgoing: Outgoing) -> None:
    kept = Kept()
    made = connection(oidc.issuer, client_id="", client_secret=None)
    provider = Provider(made, outgoing, public_url=PUBLIC, registrations=kept)
    client = await provider.client()
    assert client == await Provider(made, outgoing, public_url=PUBLIC, registrations=kept).client()
    assert list(kept.found) == [(oidc.issuer, f"{PUBLIC}/connect/callback/tracker")]
    sign_in = SignIn(provider)
    grant = await sign_in.exchange(await sign_in.come_back(oidc))
    assert grant.refresh_token
    assert (await provider.refresh(grant.refresh_token)).access_token


async def test_a_registration_that_is_forgotten_there_is_made_anew(oidc: OidcPeer, outgoing: Outgoing) -> None:
    kept = Kept()
    made = connection(oidc.issuer, client_id="", client_secret=None)
    provider = Provider(made, outgoing, public_url=PUBLIC, registrations=kept)
    before = await provider.client()
    oidc.forget_clients()
    with pytest.raises(ProviderRefused) as refused:
        await provider.refresh("any")
    assert refused.value.error == "invalid_client"
    assert kept.found == {}
    assert (await provider.client()).client_id != before.client_id


async def test_an_app_that_cannot_register_says_what_to_do(oidc: OidcPeer, outgoing: Outgoing) -> None:
    made = connection(oidc.issuer, client_id="", client_secret=None)
    with pytest.raises(NoClient, match="set client_id"):
        await Provider(made, outgoing, public_url=PUBLIC).client()
