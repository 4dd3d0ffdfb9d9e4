"""Sign in with Slack: where it is, and whom its claims name (https://docs.slack.dev/authentication/sign-in-with-slack).

What lives here: endpoints, claims, and links into Slack. What does not: the flow through a browser, or calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from channels.identity import IdentityProvider
from channels.slack.address import SlackAddress, is_id

USER_ID, TEAM_ID, ENTERPRISE_ID = (f"https://slack.com/{name}_id" for name in ("user", "team", "enterprise"))
SCOPES = ("openid", "profile")
"""Who somebody is, and their name: an address is not asked for."""


def provider(api_url: str, *, client_id: str, client_secret: str, team: str | None) -> IdentityProvider:
    """Name the endpoints beside a Web API's address.

    Slack takes PKCE from apps that were made public clients, which can't be undone: the nonce and the secret do without.
    """
    base = api_url.rstrip("/").removesuffix("/api")
    return IdentityProvider(
        base,
        authorize_url=f"{base}/openid/connect/authorize",
        token_url=f"{base}/api/openid.connect.token",
        userinfo_url=f"{base}/api/openid.connect.userInfo",
        jwks_url=f"{base}/openid/connect/keys",
        client_id=client_id,
        client_secret=client_secret,
        scopes=SCOPES,
        extra={"team": team} if team else {},
    )


def author_of(claims: Mapping[str, object], tenancy: str | None) -> tuple[str, str] | None:
    """Return tenancy and id of the person whom claims name; their organisation is a tenancy as well as their workspace."""
    user, team, enterprise = (claims.get(name) for name in (USER_ID, TEAM_ID, ENTERPRISE_ID))
    if not isinstance(user, str) or not isinstance(team, str) or not (is_id(user) and is_id(team)):
        return None
    if tenancy is not None and isinstance(enterprise, str) and is_id(enterprise) and tenancy == enterprise:
        return enterprise, user
    return team, user


def conversation_link(address: SlackAddress, api_url: str) -> str:
    """Link to a conversation as a whole (https://docs.slack.dev/interactivity/deep-linking)."""
    base = api_url.rstrip("/").removesuffix("/api")
    return f"{base}/app_redirect?{urlencode({'team': address.team, 'channel': address.channel})}"


def is_permalink(link: object, api_url: str) -> bool:
    """Tell whether this leads to Slack and nowhere else: it is put behind a word that people press."""
    if not isinstance(link, str):
        return False
    try:
        parts = urlsplit(link)
        home = urlsplit(api_url).hostname or ""
    except ValueError:
        return False
    host = parts.hostname or ""
    ours = any(host == name or host.endswith(f".{name}") for name in {home, "slack.com"} - {""})
    return parts.scheme == "https" and ours and parts.username is None and parts.password is None
