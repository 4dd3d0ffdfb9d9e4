"""Secrets out of words: what an error's text may carry that nobody should read.

What lives here: the shapes of secrets. What does not: where words go (logs, events, callers).
"""

from __future__ import annotations

import re
from typing import Final

_SHAPES: Final = (
    # scheme://user:password@host
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    # Authorization: Bearer …, Basic …
    re.compile(r"(?i)(?<=\bbearer )[\w.~+/=-]{6,}"),
    re.compile(r"(?i)(?<=\bbasic )[\w+/=]{6,}"),
    # api_key=…, "token": "…", password is …, in URLs, JSON and prose
    re.compile(
        r"""(?ix) (?<![a-z]) (?: api[_-]?key | token | secret | password | passwd | signature )
        ["']? \s* (?: [=:] | \s is \s ) \s* ["']? (?P<value> [^\s"'&,;)}\]]+ )"""
    ),
    # names that are often harmless: only where something long follows
    re.compile(r"""(?ix) (?<![a-z]) (?: key | sig | code | state ) ["']? \s* [=:] \s* ["']? (?P<value> [^\s"'&,;)}\]]{6,} )"""),
    # the prefixes of well-known providers
    re.compile(r"\b(?:sk|pk|rk|xox[abeoprs]|xapp|gh[oprsu]|github_pat|glpat|AKIA|AIza|whsec)[-_A-Za-z0-9]{8,}"),
    # JSON web tokens
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"),
)


def redact(text: str) -> str:
    """Replace what looks like a secret; a word too many is hidden rather than one too few."""
    for shape in _SHAPES:
        text = shape.sub(_hidden, text)
    return text


def _hidden(match: re.Match[str]) -> str:
    whole = match.group()
    value = match.groupdict().get("value") or whole
    return whole.removesuffix(value) + "***"
