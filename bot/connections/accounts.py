"""How to read whose account it is, where a provider has its own way of saying so.

What lives here: the value that a connection holds. What does not: asking (bot/connections/protocol).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field


@dataclass(frozen=True, slots=True)
class AccountSource:
    """How to read who somebody is, where it is not OpenID's userinfo.

    Fields are paths into the answer (`data.viewer.id`); a name has several, and the first that is there counts. With `body` the
    address is asked by POST with that JSON (GraphQL). `email_verified`: a path, or True where the provider vouches for every
    address it tells.
    """

    subject: Sequence[str] = ("sub",)
    _: KW_ONLY
    name: Sequence[str] = ("name", "preferred_username")
    email: Sequence[str] = ("email",)
    email_verified: str | bool = "email_verified"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
