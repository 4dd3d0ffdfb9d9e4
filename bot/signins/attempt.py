"""One attempt to sign in: what is kept of it from the link to its end, and the stages it goes through.

What lives here: the value, its stages, its stored form. What does not: keeping it (keeping.py), moving it on (signins.py).

    opened ──▶ proving ──▶ started ──▶ returned ──▶ exchanging ──▶ connected
       │  (by the platform)   ▲  ╲                      │
       └──────────────────────┘   ▶ declined            ▶ failed

`polling` takes the place of everything from `opened` to `returned` where a provider knows only the device flow. A stage is
left by a compare-and-set on the entry's version, so each step is taken once, by whoever comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from pydantic import JsonValue

MINUTE_MS: Final = 60_000
VALID_MS: Final = 10 * MINUTE_MS
"""How long a link, and each way through a provider, is good for."""
KEPT_MS: Final = 60 * MINUTE_MS
"""How long it can be looked up what came of an attempt."""
TRIES: Final = 5
"""How often a code may be given."""


class Stage(StrEnum):
    """How far an attempt is."""

    OPENED = "opened"
    PROVING = "proving"
    """Away at the chat platform, to prove the person."""
    STARTED = "started"
    """Away at the provider."""
    POLLING = "polling"
    """The device flow: the provider is asked now and then."""
    RETURNED = "returned"
    """Back with a code, which nobody has spent."""
    EXCHANGING = "exchanging"
    """The code is being spent. Found like this by another process it is spent with an unknown outcome, so it ends."""
    CONNECTED = "connected"
    DECLINED = "declined"
    FAILED = "failed"


ENDED: Final = frozenset({Stage.CONNECTED, Stage.DECLINED, Stage.FAILED})
AWAY: Final = frozenset({Stage.PROVING, Stage.STARTED})


class Proof(StrEnum):
    """How it is made sure that it is the person, and not only somebody with their link."""

    PLATFORM = "platform"
    """Sign in to the chat platform; it says who it is."""
    EMAIL = "email"
    """The provider's verified e-mail address is the one that the chat platform knows."""
    CODE = "code"
    """Six digits told in the private chat: proves only that both are seen by one person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt. Secrets are kept as hashes, but for what has to be said again to a provider; all of it is sealed."""

    attempt_id: str
    principal: str
    """Whose account it is to be; for an app's own account, whoever connects it."""
    person: str
    connection: str
    owner: str
    """Whose the credential will be: the principal, or nobody in particular where it is the app's own."""
    scopes: tuple[str, ...] = ()
    prompt_id: str = ""
    """What waits for it; "" where nothing does (an app's own account)."""
    run_id: str = ""
    session_id: str = ""
    agent: str = ""
    channel: str = ""
    address: str = ""
    tool: str = ""
    stage: Stage = Stage.OPENED
    proof: Proof = Proof.CODE
    link_hash: str = field(repr=False)
    code_hash: str = field(default="", repr=False)
    tries: int = 0
    valid_until: int
    """Until when the link, or the way through the provider, is good."""
    browser_hash: str = field(default="", repr=False)
    press_hash: str = field(default="", repr=False)
    """Of the loading of the page whose button was pressed."""
    state_hash: str = field(default="", repr=False)
    spent_hash: str = field(default="", repr=False)
    """Of the state that came back: the same callback again is shown what came of it."""
    nonce: str = field(default="", repr=False)
    verifier: str = field(default="", repr=False)
    redirect_uri: str = ""
    provider: str = ""
    """The connection as it was when the browser left (`OAuthConnection.identity`): another one is shown no code of the first."""
    after: int = 0
    """An account that was connected before this moment is not what is waited for: it was refused, or may too little."""
    code: str = field(default="", repr=False)
    """The provider's code, from when it came until it is spent."""
    device_code: str = field(default="", repr=False)
    interval: int = 0
    """Of the device flow, in seconds."""
    account: str = ""
    reason: str = ""
    """What is told: on the page, and to whoever waits."""
    note: str = ""
    fault: str = ""
    """For the log and for pages: `other_person`, `provider_down`, `refused`, `nonsense`, `scopes`, `email`, `cut_off` …"""
    settled: bool = False
    """Whoever waits for it has been told."""

    @property
    def ended(self) -> bool:
        """Tell whether nothing about it changes any more, but for telling it."""
        return self.stage in ENDED

    @property
    def shared(self) -> bool:
        """Tell whether the account will be the app's own."""
        return self.owner != self.principal

    def to_json(self) -> dict[str, JsonValue]:
        """Return plain JSON."""
        plain = {"stage": self.stage.value, "proof": self.proof.value, "scopes": list[JsonValue](self.scopes)}
        return {**asdict(self), **plain}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Attempt:
        """Read what `to_json` wrote; what another version adds is left out."""
        known = {one.name for one in fields(cls)}
        values = {name: value for name, value in stored.items() if name in known}
        scopes = tuple(str(one) for one in values.pop("scopes"))
        return cls(**values | {"scopes": scopes, "stage": Stage(values["stage"]), "proof": Proof(values["proof"])})
