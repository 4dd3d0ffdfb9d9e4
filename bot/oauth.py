"""Connections ready to use: what each provider does in its own way, found in its documents and written down once.

What lives here: one function a provider, and MCP servers. What does not: the declaration itself (bot/connections/connection.py).

Every one takes `name` for a second connection of its kind, and `hosts` in place of its own; what is not among its parameters is
set with `dataclasses.replace`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from bot.approvals import Approval
from bot.connections.accounts import AccountSource
from bot.connections.connection import ClientAuth, GrantType, OAuthConnection, Owner
from bot.environment import SecretText
from bot.policies import When

_GITHUB_IMPLIES: Final = {
    "repo": ("repo:status", "repo_deployment", "public_repo", "repo:invite", "security_events"),
    "admin:repo_hook": ("write:repo_hook", "read:repo_hook"),
    "write:repo_hook": ("read:repo_hook",),
    "admin:org": ("write:org", "read:org"),
    "write:org": ("read:org",),
    "admin:public_key": ("write:public_key", "read:public_key"),
    "write:public_key": ("read:public_key",),
    "user": ("read:user", "user:email", "user:follow"),
    "project": ("read:project",),
    "write:packages": ("read:packages",),
    "write:discussion": ("read:discussion",),
    "admin:gpg_key": ("write:gpg_key", "read:gpg_key"),
    "write:gpg_key": ("read:gpg_key",),
}
"""GitHub answers with the widest of scopes that hold one another ("Normalized scopes")."""


def github(
    *,
    client_id: str | SecretText,
    client_secret: SecretText | str | None = None,
    scopes: Sequence[str] = (),
    name: str = "github",
    title: str = "GitHub",
    host: str = "github.com",
    owner: Owner = "user",
    grant: GrantType = "code",
    hosts: Sequence[str] = (),
    approval: Approval | When | None = None,
) -> OAuthConnection:
    """GitHub, an OAuth App's client or a GitHub App's (which has no scopes); `host` names an Enterprise Server.

    Errors come with status 200, scopes with commas between them, and answers are forms where nobody asks for JSON. Tokens
    are ended in GitHub's own way, which needs the secret; without one a disconnect only forgets them here.
    https://docs.github.com/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps
    """
    own = host != "github.com"
    return OAuthConnection(
        name,
        title=title,
        client_id=client_id,
        client_secret=client_secret,
        authorize_url=f"https://{host}/login/oauth/authorize",
        token_url=f"https://{host}/login/oauth/access_token",
        device_url=f"https://{host}/login/device/code",
        userinfo_url=f"https://{host}/api/v3/user" if own else "https://api.github.com/user",
        revoke_url=f"{f'https://{host}/api/v3' if own else 'https://api.github.com'}/applications/{{client_id}}/token",
        account=AccountSource(subject=("id",), name=("login", "name"), email=("email",)),
        client_auth=_auth(client_secret),
        scopes=scopes,
        owner=owner,
        grant=grant,
        hosts=hosts or ((f"https://{host}/api",) if own else ("api.github.com", "uploads.github.com")),
        headers={"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"},
        implies=_GITHUB_IMPLIES,
        approval=approval,
    )


def google(
    *,
    client_id: str | SecretText,
    client_secret: SecretText | str | None = None,
    scopes: Sequence[str] = (),
    name: str = "google",
    title: str = "Google",
    owner: Owner = "user",
    grant: GrantType = "code",
    hosts: Sequence[str] = (),
    approval: Approval | When | None = None,
) -> OAuthConnection:
    """Google; give scopes in full: "https://www.googleapis.com/auth/gmail.readonly".

    A refresh token comes only with access_type=offline, and the second time only with prompt=consent. People may grant less than
    is asked for. https://developers.google.com/identity/protocols/oauth2/web-server
    """
    return OAuthConnection(
        name,
        title=title,
        client_id=client_id,
        client_secret=client_secret,
        issuer="https://accounts.google.com",
        client_auth=_auth(client_secret),
        scopes=_with(("openid", "email", "profile"), scopes),
        extra={"access_type": "offline", "prompt": "consent", "include_granted_scopes": "true"},
        owner=owner,
        grant=grant,
        hosts=hosts
        or (
            "www.googleapis.com",
            "gmail.googleapis.com",
            "people.googleapis.com",
            "docs.googleapis.com",
            "sheets.googleapis.com",
            "slides.googleapis.com",
            "tasks.googleapis.com",
        ),
        verifies_email=True,
        approval=approval,
    )


def microsoft(
    *,
    client_id: str | SecretText,
    client_secret: SecretText | str | None = None,
    scopes: Sequence[str] = ("User.Read",),
    tenant: str = "organizations",
    name: str = "microsoft",
    title: str = "Microsoft",
    owner: Owner = "user",
    grant: GrantType = "code",
    hosts: Sequence[str] = (),
    approval: Approval | When | None = None,
) -> OAuthConnection:
    """Microsoft Entra and Graph; `tenant` is an id, a domain, "organizations", "consumers" or "common".

    A refresh token comes only with the scope offline_access. The addresses are written out, since the metadata of "organizations"
    and "common" name an issuer with a blank in it. E-mail addresses are the tenant's word and prove nobody ("nOAuth").
    https://learn.microsoft.com/entra/identity-platform/v2-oauth2-auth-code-flow
    """
    base = f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0"
    return OAuthConnection(
        name,
        title=title,
        client_id=client_id,
        client_secret=client_secret,
        authorize_url=f"{base}/authorize",
        token_url=f"{base}/token",
        device_url=f"{base}/devicecode",
        userinfo_url="https://graph.microsoft.com/oidc/userinfo",
        client_auth=_auth(client_secret),
        scopes=_with(("openid", "profile", "email", "offline_access"), scopes),
        extra={"prompt": "select_account", "response_mode": "query"},
        owner=owner,
        grant=grant,
        hosts=hosts or ("graph.microsoft.com",),
        approval=approval,
    )


def slack_user(
    *,
    client_id: str | SecretText,
    client_secret: SecretText | str | None = None,
    scopes: Sequence[str] = ("users:read",),
    name: str = "slack_user",
    title: str = "Slack",
    hosts: Sequence[str] = (),
    approval: Approval | When | None = None,
) -> OAuthConnection:
    """Slack as a person (a user token, xoxp-), beside the bot's own token.

    The addresses of user tokens alone take `scope` and answer with the token at the top; /oauth/v2/authorize would want
    `user_scope`, and puts it under `authed_user`. Scopes are joined by commas, errors have status 200. Tokens end,
    and are renewed, only where the app has token rotation on. https://docs.slack.dev/reference/methods/oauth.v2.user.access
    """
    return OAuthConnection(
        name,
        title=title,
        client_id=client_id,
        client_secret=client_secret,
        authorize_url="https://slack.com/oauth/v2_user/authorize",
        token_url="https://slack.com/api/oauth.v2.user.access",  # noqa: S106 - an address
        userinfo_url="https://slack.com/api/auth.test",
        revoke_url="https://slack.com/api/auth.revoke",
        account=AccountSource(subject=("user_id",), name=("user",), email=()),
        client_auth=_auth(client_secret),
        scopes=scopes,
        scope_separator=",",
        hosts=hosts or ("https://slack.com/api",),
        approval=approval,
    )


def linear(
    *,
    client_id: str | SecretText,
    client_secret: SecretText | str | None = None,
    scopes: Sequence[str] = ("read",),
    name: str = "linear",
    title: str = "Linear",
    owner: Owner = "user",
    grant: GrantType = "code",
    hosts: Sequence[str] = (),
    approval: Approval | When | None = None,
) -> OAuthConnection:
    """Linear; `ctx.http(linear).post("/graphql", json={"query": …})`.

    Scopes go out with commas and come back with spaces; refresh tokens rotate. With owner="app" issues are the app's (actor=app).
    https://linear.app/developers/oauth-2-0-authentication
    """
    return OAuthConnection(
        name,
        title=title,
        client_id=client_id,
        client_secret=client_secret,
        authorize_url="https://linear.app/oauth/authorize",
        token_url="https://api.linear.app/oauth/token",  # noqa: S106 - an address
        userinfo_url="https://api.linear.app/graphql",
        revoke_url="https://api.linear.app/oauth/revoke",
        account=AccountSource(
            subject=("data.viewer.id",),
            name=("data.viewer.name",),
            email=("data.viewer.email",),
            email_verified=False,
            body=b'{"query": "{ viewer { id name email } }"}',
        ),
        client_auth=_auth(client_secret),
        scopes=scopes,
        scope_separator=",",
        extra={"prompt": "consent", "actor": "app" if owner == "app" else "user"},
        owner=owner,
        grant=grant,
        hosts=hosts or ("api.linear.app",),
        implies={"write": ("read", "issues:create", "comments:create")},
        approval=approval,
    )


def notion(
    *,
    client_id: str | SecretText,
    client_secret: SecretText | str,
    name: str = "notion",
    title: str = "Notion",
    owner: Owner = "user",
    hosts: Sequence[str] = (),
    approval: Approval | When | None = None,
) -> OAuthConnection:
    """Notion, a public connection; it has no scopes: what it may do is set at Notion, which pages by the person.

    It wants owner=user, and Basic at the token address. Every request of its API names a version.
    https://developers.notion.com/guides/get-started/authorization
    """
    version = {"notion-version": "2022-06-28"}
    return OAuthConnection(
        name,
        title=title,
        client_id=client_id,
        client_secret=client_secret,
        authorize_url="https://api.notion.com/v1/oauth/authorize",
        token_url="https://api.notion.com/v1/oauth/token",  # noqa: S106 - an address
        userinfo_url="https://api.notion.com/v1/users/me",
        account=AccountSource(
            subject=("bot.owner.user.id", "id"),
            name=("bot.owner.user.name", "name"),
            email=("bot.owner.user.person.email",),
            email_verified=False,
            headers=version,
        ),
        client_auth="client_secret_basic",
        extra={"owner": "user"},
        owner=owner,
        hosts=hosts or ("https://api.notion.com/v1",),
        headers=version,
        approval=approval,
    )


def atlassian(
    *,
    client_id: str | SecretText,
    client_secret: SecretText | str,
    scopes: Sequence[str] = ("read:jira-work",),
    name: str = "atlassian",
    title: str = "Atlassian",
    owner: Owner = "user",
    hosts: Sequence[str] = (),
    approval: Approval | When | None = None,
) -> OAuthConnection:
    """Atlassian cloud: Jira and Confluence at https://api.atlassian.com/ex/jira/CLOUD_ID/….

    It wants audience=api.atlassian.com and prompt=consent; a refresh token, which rotates, comes only with offline_access, and
    who somebody is only with read:me. https://developer.atlassian.com/cloud/jira/platform/oauth-2-3lo-apps/
    """
    return OAuthConnection(
        name,
        title=title,
        client_id=client_id,
        client_secret=client_secret,
        authorize_url="https://auth.atlassian.com/authorize",
        token_url="https://auth.atlassian.com/oauth/token",  # noqa: S106 - an address
        userinfo_url="https://api.atlassian.com/me",
        account=AccountSource(subject=("account_id",), name=("name", "email"), email=("email",), email_verified=False),
        client_auth="client_secret_post",
        scopes=_with(("read:me", "offline_access"), scopes),
        extra={"audience": "api.atlassian.com", "prompt": "consent"},
        owner=owner,
        hosts=hosts or ("api.atlassian.com",),
        approval=approval,
    )


def mcp(
    url: str,
    *,
    name: str = "",
    title: str = "",
    scopes: Sequence[str] = (),
    client_id: str | SecretText = "",
    client_secret: SecretText | str | None = None,
    owner: Owner = "user",
    approval: Approval | When | None = None,
    internal: bool = False,
) -> OAuthConnection:
    """An MCP server: who signs people in to it, and how this app makes itself known there, is found out when a tool first asks.

    Tokens are for that address alone (RFC 8707). The name is made of the host if none is given.
    """
    host = urlsplit(url).hostname or ""
    return OAuthConnection(
        name or re.sub(r"[^a-z0-9]+", "-", host.lower()).strip("-"),
        title=title or host,
        client_id=client_id,
        client_secret=client_secret,
        resource=url,
        scopes=scopes,
        owner=owner,
        hosts=(url.partition("?")[0],),
        approval=approval,
        internal=internal,
    )


def _auth(secret: SecretText | str | None) -> ClientAuth:
    return "none" if secret is None else "client_secret_post"


def _with(first: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *((more,) if isinstance(more, str) else more))))
