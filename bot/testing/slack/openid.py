"""Sign in with Slack: the page where somebody agrees, codes and tokens, and claims that are signed.

What lives here: what Slack takes and refuses of it (docs.slack.dev/authentication/sign-in-with-slack). What does not: HTTP
(`server.py`), or the tokens of an app.
"""

from __future__ import annotations

import hashlib
import html
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from bot.testing.slack.args import Args
from bot.testing.slack.refusals import Refused
from bot.testing.slack.values import Json, User, UserKind, Workspace
from bot.testing.slack.world import World

CODE_MS: Final = 10 * 60 * 1000
TOKEN_SECONDS: Final = 300
_SCOPES: Final = frozenset({"openid", "profile", "email"})
_SIGNS_IN: Final = frozenset({UserKind.MEMBER, UserKind.SINGLE_CHANNEL_GUEST, UserKind.MULTI_CHANNEL_GUEST, UserKind.STRANGER})


@dataclass(frozen=True, slots=True)
class _Asked:
    """What an app asked for on the page."""

    redirect_uri: str
    _: KW_ONLY
    scopes: frozenset[str]
    state: str | None
    nonce: str | None
    team: str | None


@dataclass(frozen=True, slots=True)
class _Agreed:
    """What somebody agreed to; a code or a token stands for it."""

    user: User
    asked: _Asked
    until: int


@dataclass(slots=True)
class OpenId:
    """The client that is registered for the app, and what people agreed to.

    `redirect_urls` are the app's, compared to the letter. Slack takes https only; a test's app on a loopback port may do
    without. A browser may be sent to the page, where it is asked who it is; `choose` does the same without one.
    """

    world: World
    wall: Callable[[], int]
    client_id: str
    client_secret: str = field(repr=False)
    redirect_urls: set[str] = field(default_factory=set)
    base: str = ""
    _codes: dict[str, _Agreed] = field(default_factory=dict, repr=False)
    _tokens: dict[str, _Agreed] = field(default_factory=dict, repr=False)
    _key: rsa.RSAPrivateKey | None = field(default=None, repr=False)

    @classmethod
    def of(cls, world: World, *, wall: Callable[[], int]) -> OpenId:
        """Register a client."""
        return cls(world, wall, f"{world.digits(12)}.{world.digits(13)}", world.hex(32))

    # ── the page ──

    def choose(self, url: str, user: str | None) -> str:
        """Have somebody open the page at `url` and agree, or turn away (None); where their browser is sent then.

        Raises: Refused: Slack shows an error and sends nobody anywhere.
        """
        asked = self._asked(dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)))
        return self._chosen(asked, user)

    def page(self, query: Mapping[str, str]) -> str:
        """Return the page: a form for each who may be at the browser. Raises: Refused."""
        asked = self._asked(query)
        kept = "".join(f'<input type="hidden" name="{_safe(name)}" value="{_safe(value)}">' for name, value in query.items())
        people = [user for user in self.world.users.values() if user.kind in _SIGNS_IN and asked.team in {None, user.team_id}]
        buttons = "".join(f'<button name="as" value="{_safe(user.id)}">Allow as {_safe(user.name)}</button>' for user in people)
        form = (
            f'<form action="/openid/connect/choice" method="get">{kept}{buttons}<button name="as" value="">Cancel</button></form>'
        )
        return f"<!doctype html><title>Sign in with Slack</title><h1>Sign in with Slack</h1>{form}"

    def choice(self, query: Mapping[str, str]) -> str:
        """Return where a browser goes from the page. Raises: Refused."""
        return self._chosen(self._asked({name: value for name, value in query.items() if name != "as"}), query.get("as") or None)

    def _asked(self, query: Mapping[str, str]) -> _Asked:
        if query.get("client_id") != self.client_id:
            raise Refused("invalid_client_id")
        redirect = query.get("redirect_uri", "")
        parts = urlsplit(redirect)
        if redirect not in self.redirect_urls or (parts.scheme != "https" and parts.hostname not in {"127.0.0.1", "localhost"}):
            raise Refused("bad_redirect_uri")
        if query.get("response_type") != "code":
            raise Refused("invalid_response_type")
        if "code_challenge" in query:
            raise Refused("pkce_not_enabled")  # only for apps that were made public clients
        scopes = frozenset(query.get("scope", "").replace(",", " ").split())
        if "openid" not in scopes or scopes - _SCOPES:
            raise Refused("invalid_scope")
        team = query.get("team") or None
        if team is not None and team not in self.world.workspaces:
            team = None  # whoever isn't there is asked for a workspace
        return _Asked(redirect, scopes=scopes, state=query.get("state"), nonce=query.get("nonce"), team=team)

    def _chosen(self, asked: _Asked, user: str | None) -> str:
        answer: dict[str, str]
        if user is None:
            answer = {"error": "access_denied"}
        else:
            person = next((one for one in self.world.users.values() if user in {one.id, one.name}), None)
            if person is None or person.kind not in _SIGNS_IN or asked.team not in {None, person.team_id}:
                raise Refused("user_not_found")
            code = f"{self.world.digits(12)}.{self.world.digits(13)}.{self.world.hex(64)}"
            self._codes[code] = _Agreed(person, asked, self.world.clock.now_ms + CODE_MS)
            answer = {"code": code}
        if asked.state is not None:
            answer["state"] = asked.state
        return f"{asked.redirect_uri}{'&' if urlsplit(asked.redirect_uri).query else '?'}{urlencode(answer)}"

    # ── the API ──

    def token(self, args: Args) -> Json:
        """openid.connect.token: a code is good once."""
        if args.text("client_id") != self.client_id:
            raise Refused("invalid_client_id")
        if args.text("client_secret") != self.client_secret:
            raise Refused("bad_client_secret")
        if args.text("grant_type", "authorization_code") != "authorization_code":
            raise Refused("invalid_grant_type")
        agreed = self._codes.pop(args.text("code"), None)
        if agreed is None or self.world.clock.now_ms > agreed.until:
            raise Refused("invalid_code")
        if args.text("redirect_uri") != agreed.asked.redirect_uri:
            raise Refused("bad_redirect_uri")
        access = f"xoxp-{self.world.digits(12)}-{self.world.digits(12)}-{self.world.hex(32)}"
        self._tokens[access] = agreed
        return {"access_token": access, "token_type": "Bearer", "id_token": self._signed(agreed, access)}

    def user_info(self, token: str) -> Json:
        """openid.connect.userInfo; its token is the one of the person, not of the bot."""
        if not token:
            raise Refused("not_authed")
        if token not in self._tokens:
            raise Refused("invalid_auth")
        return self._claims(self._tokens[token])

    def configuration(self) -> Json:
        """Return the description at /.well-known/openid-configuration."""
        return {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/openid/connect/authorize",
            "token_endpoint": f"{self.base}/api/openid.connect.token",
            "userinfo_endpoint": f"{self.base}/api/openid.connect.userInfo",
            "jwks_uri": f"{self.base}/openid/connect/keys",
            "scopes_supported": ["openid", "profile", "email"],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "claims_supported": ["sub", "auth_time", "iss"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
        }

    def keys(self) -> Json:
        """Return the keys that claims are signed with, at /openid/connect/keys."""
        public = self._private().public_key().public_numbers()
        number = {name: _base64(value.to_bytes((value.bit_length() + 7) // 8, "big")) for name, value in _parts(public)}
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "simulated"} | number]}

    # ── how it is done ──

    def _claims(self, agreed: _Agreed) -> Json:
        user, scopes = agreed.user, agreed.asked.scopes
        home: Workspace | None = self.world.workspaces.get(user.team_id)
        found: Json = {"sub": user.id, "https://slack.com/user_id": user.id, "https://slack.com/team_id": user.team_id}
        if home is not None and home.enterprise_id is not None:
            found["https://slack.com/enterprise_id"] = home.enterprise_id
        if "email" in scopes:
            found |= {"email": user.email, "email_verified": True, "date_email_verified": 1_622_128_723}
        if "profile" in scopes:
            names = {"name": user.name.title(), "given_name": user.name.title(), "family_name": "", "locale": "en-US"}
            found |= names | {"https://slack.com/team_name": home.name if home is not None else ""}
        return found

    def _signed(self, agreed: _Agreed, access: str) -> str:
        now = self.wall() // 1000
        times = {"exp": now + TOKEN_SECONDS, "iat": now, "auth_time": now}
        half = _base64(hashlib.sha256(access.encode()).digest()[:16])
        claims = {"iss": self.base, "aud": self.client_id, "at_hash": half} | times | self._claims(agreed)
        if agreed.asked.nonce is not None:
            claims["nonce"] = agreed.asked.nonce
        head = {"alg": "RS256", "kid": "simulated", "typ": "JWT"}
        body = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
        return f"{body}.{_base64(self._private().sign(body.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def _private(self) -> rsa.RSAPrivateKey:
        if self._key is None:  # made when it is first needed: it takes a while
            self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        return self._key


def _parts(public: rsa.RSAPublicNumbers) -> tuple[tuple[str, int], ...]:
    return ("n", public.n), ("e", public.e)


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _safe(text: Any) -> str:
    return html.escape(str(text))
