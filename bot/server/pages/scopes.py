"""What a scope allows, in a person's words.

What lives here: words for the scopes of well-known providers. What does not: which scopes a tool needs (its connection says so).
A scope that is not known here is shown as it is: a made-up sentence would promise more than anybody knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bot.server.pages.words import term

_MOST_SCOPES = 40


@dataclass(frozen=True, slots=True)
class ScopeWords:
    """One scope: what it allows in words ("" where nobody here knows), and its own name."""

    words: str
    scope: str


def scope_words(scopes: tuple[str, ...]) -> tuple[tuple[ScopeWords, ...], int]:
    """Put scopes into words, each once and in order; returns those that are shown, and how many more there are."""
    each = list(dict.fromkeys(scope for scope in scopes if scope.strip()))
    shown = tuple(ScopeWords(_words(scope), term(scope)) for scope in each[:_MOST_SCOPES])
    return shown, max(len(each) - _MOST_SCOPES, 0)


def _words(scope: str) -> str:
    for prefix in _PREFIXES:
        if scope.startswith(prefix):
            return _WORDS.get(scope.removeprefix(prefix), "")
    return _WORDS.get(scope, "")


_PREFIXES: Final = ("https://www.googleapis.com/auth/", "https://graph.microsoft.com/")
_WORDS: Final[dict[str, str]] = {
    # OpenID Connect
    "openid": "See who you are",
    "profile": "See your name and picture",
    "email": "See your e-mail address",
    "offline_access": "Stay connected while you are away",
    # GitHub
    "repo": "Read and change your repositories, private ones too",
    "public_repo": "Read and change your public repositories",
    "repo:status": "Read and set the status of commits",
    "read:user": "See your profile",
    "user": "See and change your profile",
    "user:email": "See your e-mail addresses",
    "read:org": "See your organisations and teams",
    "gist": "Write gists",
    "workflow": "Change workflow files in your repositories",
    "notifications": "Read your notifications",
    # Google
    "userinfo.email": "See your e-mail address",
    "userinfo.profile": "See your name and picture",
    "calendar": "See, change and delete your calendars",
    "calendar.readonly": "See your calendars",
    "calendar.events": "See and change events in your calendars",
    "calendar.events.readonly": "See events in your calendars",
    "drive": "See, change and delete all your files in Drive",
    "drive.readonly": "See all your files in Drive",
    "drive.file": "See and change the files in Drive that you open with it",
    "https://mail.google.com/": "Read, write, send and delete your e-mail",
    "gmail.readonly": "Read your e-mail",
    "gmail.send": "Send e-mail as you",
    "gmail.modify": "Read, write and send your e-mail",
    "spreadsheets": "See, change and delete your spreadsheets",
    "spreadsheets.readonly": "See your spreadsheets",
    "documents": "See, change and delete your documents",
    "documents.readonly": "See your documents",
    # Microsoft
    "User.Read": "See your profile",
    "Mail.Read": "Read your e-mail",
    "Mail.Send": "Send e-mail as you",
    "Calendars.Read": "See your calendars",
    "Calendars.ReadWrite": "See and change your calendars",
    "Files.Read": "See your files",
    "Files.ReadWrite": "See, change and delete your files",
    # Slack
    "chat:write": "Post messages as you",
    "channels:read": "See the public channels",
    "channels:history": "Read messages in public channels",
    "search:read": "Search messages and files that you can see",
    "users:read": "See the people of the workspace",
    "users:read.email": "See the e-mail addresses of the people of the workspace",
    "identify": "See who you are",
    # Linear and Atlassian
    "read": "Read what you can read there",
    "write": "Change what you can change there",
    "issues:create": "Open issues",
    "comments:create": "Write comments",
    "read:me": "See your profile",
    "read:jira-work": "Read issues and projects in Jira",
    "write:jira-work": "Open and change issues in Jira",
    "read:jira-user": "See people's names in Jira",
    "read:confluence-content.all": "Read pages in Confluence",
    "write:confluence-content": "Write pages in Confluence",
}
