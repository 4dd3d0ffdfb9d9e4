"""The session API as a port: what HTTP asks of the running app.

What lives here: the protocol, its values and the running app around it. What does not: HTTP, and how a session runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from pydantic import JsonValue

from bot.principal import Principal
from bot.signins.api import SignInApi
from bot.turn.state import TurnPolicy
from channels.http import WebhookRequest, WebhookResponse

JsonObject: TypeAlias = dict[str, Any]


class ControlStatus(StrEnum):
    """What came of a control; all are success."""

    ACCEPTED = "accepted"
    NO_ACTIVE_TURN = "no_active_turn"
    RESET = "reset"
    NO_ACTIVE_SESSION = "no_active_session"


class ResponseStatus(StrEnum):
    """What came of one response to a request."""

    SETTLED = "settled"
    ALREADY_SETTLED = "already_settled"
    REFUSED = "refused"
    PENDING = "pending"
    COUNTED = "counted"
    """More people have to say the same."""


@dataclass(frozen=True, slots=True)
class Created:
    """A session that was made; `submission_id` is there if it came with a message."""

    session_id: str
    submission_id: str | None = None
    _: KW_ONLY
    deduplicated: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that was taken; its outcome is asked for by `submission_id`."""

    session_id: str
    submission_id: str
    _: KW_ONLY
    deduplicated: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """An answer to one request: an option, a text that names one or is the answer itself, a note, arguments that are changed."""

    request_id: str
    _: KW_ONLY
    option_id: str | None = None
    text: str | None = None
    note: str | None = None
    edits: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class ResponseResult:
    """What came of one answer; `reason` is for people."""

    request_id: str
    submission_id: str
    status: ResponseStatus
    _: KW_ONLY
    reason: str | None = None


class SessionApi(Protocol):
    """Sessions, as a caller who is known may use them.

    Every call checks that `caller` made the session or takes part in it; a foreign session is `NotFound`, like an unknown one.
    `key` is the idempotency key, of the caller: the same key gives the first answer, with another payload `Conflict`.

    Raises: NotFound (`what` is session, submission or prompt), SessionEnded, ContentGone (its retention is over), Stranded,
    Conflict, TooLarge, Unavailable, and Problem where the caller is told something else.
    """

    async def create(
        self, caller: Principal, *, message: str | None, agent: str | None, metadata: Mapping[str, Any] | None, key: str | None
    ) -> Created: ...

    async def message(
        self, caller: Principal, session_id: str, *, message: str, turn_policy: TurnPolicy | None, key: str | None
    ) -> Accepted: ...

    async def respond(
        self, caller: Principal, session_id: str, *, responses: Sequence[Response], key: str | None
    ) -> Sequence[ResponseResult]:
        """Answer requests; waits at most 2 s for what is pending. One never made: NotFound("prompt", id), nothing is taken.

        Whoever may answer a request may do so here, whosesoever the session is.
        """
        ...

    async def cancel(self, caller: Principal, session_id: str, *, turn_id: str | None, key: str | None) -> ControlStatus: ...

    async def reset(self, caller: Principal, session_id: str, *, reason: str | None, key: str | None) -> ControlStatus: ...

    async def view(self, caller: Principal, session_id: str) -> JsonObject: ...

    async def events(
        self, caller: Principal, session_id: str, *, start: int, follow: bool, after: str | None = None
    ) -> AsyncIterator[JsonObject]:
        """Check, then return the envelopes `{type, data, meta}` from `start` (negative: from the tail), or after an event's id.

        The iterator ends at the tail without `follow`, else when the session has ended; it may be closed at any time.
        """
        ...

    async def submission(self, caller: Principal, submission_id: str, *, wait: float) -> JsonObject:
        """Read one submission; waits at most `wait` seconds for it to reach an outcome."""
        ...


class PromptApi(Protocol):
    """Requests to people over all sessions; scopes are checked before."""

    async def listed(
        self, caller: Principal, *, everyone: bool, session_id: str | None, mine: bool, after: str | None, limit: int
    ) -> JsonObject:
        """List open requests: `{prompts, next}`. `mine` are those that the caller may answer."""
        ...

    async def override(
        self, caller: Principal, request_id: str, *, option_id: str, reason: str, note: str | None, key: str | None
    ) -> ResponseResult:
        """Decide a request whatever it says of who may. Raises: NotFound("prompt", id)."""
        ...

    async def connect(self, caller: Principal, request_id: str, *, key: str | None) -> JsonObject:
        """Make a fresh link for the one whom a sign-in request asks: `{url, code, expires_at}`, a secret of theirs.

        Raises: NotFound("prompt", id), Problem (403 for everybody else who sees it, 409 where there is nothing to connect).
        """
        ...

    async def audit(self, *, session_id: str | None, request_id: str | None, after: int, limit: int) -> JsonObject:
        """Read audit entries above a number: `{entries, next}`."""
        ...


class RunningApp(Protocol):
    """A bot with its store open, as the server needs it."""

    @property
    def sessions(self) -> SessionApi: ...

    @property
    def prompts(self) -> PromptApi: ...

    @property
    def sign_ins(self) -> SignInApi | None: ...

    async def ready(self) -> bool:
        """Tell whether new work would be taken."""
        ...

    async def ingress(self, channel: str, request: WebhookRequest) -> WebhookResponse:
        """Verify, parse and admit; raises NotFound("channel", name) or a ChannelError."""
        ...
