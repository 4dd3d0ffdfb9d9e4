"""How a platform's own sign-in proves who somebody is.

What lives here: the value that names its endpoints. What does not: any platform's, or the flow through a browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """A platform's OpenID Connect provider, and this app's client there.

    With `pkce` the platform takes S256 challenges. `extra` are parameters of its own for the authorize page, never secret.
    The `id_token` is checked by `jwks_url`, or is taken straight from `token_url` over TLS (OpenID Connect Core 1.0 §3.1.3.7).
    """

    issuer: str
    _: KW_ONLY
    authorize_url: str
    token_url: str
    userinfo_url: str
    jwks_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...] = ("openid",)
    pkce: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
