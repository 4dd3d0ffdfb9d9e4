"""What a Slack app is set up with: given in code, or read from the environment when it is needed.

What lives here: tokens, secrets and addresses, and what of them is missing. What does not: calls.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from channels.identity import IdentityProvider
from channels.slack.api import DEFAULT_URL
from channels.slack.identity import provider

TOKEN, SECRET, API_URL = "SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET", "SLACK_API_URL"
CLIENT_ID, CLIENT_SECRET = "SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET"


@dataclass(frozen=True, slots=True)
class Settings:
    """What was given in code; None is read from the environment."""

    _: KW_ONLY
    bot_token: str | None = field(default=None, repr=False)
    signing_secret: str | Sequence[str] | None = field(default=None, repr=False)
    api_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)

    def token(self) -> str:
        """The bot's token, or ""."""
        return _read(self.bot_token, TOKEN)

    def url(self) -> str:
        """Where the Web API is."""
        return _read(self.api_url, API_URL) or DEFAULT_URL

    def signing_secrets(self) -> list[bytes]:
        """The secrets that a signature may be made with; several while one replaces another."""
        given = os.environ.get(SECRET, "").split(",") if self.signing_secret is None else self.signing_secret
        given = (given,) if isinstance(given, str) else given
        return [secret.strip().encode() for secret in given if secret.strip()]

    def identity(self, team: str | None) -> IdentityProvider | None:
        """Sign in with Slack, or None without a client; `team` leads to that workspace."""
        client_id, client_secret = _read(self.client_id, CLIENT_ID), _read(self.client_secret, CLIENT_SECRET)
        if not (client_id and client_secret):
            return None
        return provider(self.url(), client_id=client_id, client_secret=client_secret, team=team)

    def problems(self) -> tuple[str, ...]:
        """Say what is missing before this can work."""
        found = []
        token = self.token()
        if not token:
            found.append(f"slack: no bot token; set {TOKEN}, or give Slack(bot_token=…)")
        elif not token.startswith(("xoxb-", "xoxe.xoxb-")):
            found.append(
                f"slack: the bot token does not begin with xoxb-; {TOKEN} takes the one of the bot, not of a person or app"
            )
        if not self.signing_secrets():
            found.append(f"slack: no signing secret; set {SECRET}, or give Slack(signing_secret=…)")
        if not self.url().startswith(("https://", "http://")):
            found.append(f"slack: {API_URL} is not an http(s) address")
        if bool(_read(self.client_id, CLIENT_ID)) != bool(_read(self.client_secret, CLIENT_SECRET)):
            found.append(f"slack: signing in with Slack takes both {CLIENT_ID} and {CLIENT_SECRET}; set the other, or neither")
        try:
            import slack_sdk  # noqa: F401, PLC0415 - whether it is there
        except ImportError:
            found.append("slack: slack-sdk is not installed; install moorings[slack]")
        return tuple(found)


def _read(given: str | None, name: str) -> str:
    return (os.environ.get(name, "") if given is None else given).strip()
