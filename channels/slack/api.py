"""Slack's Web API over slack_sdk: one call at a time, never repeated here, every failure put into our words.

What lives here: the client, its life, and the meaning of error codes. What does not: what to send, or when to try again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from channels.errors import DeliveryFailed, RateLimited
from channels.slack.pacing import Pacer

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from slack_sdk.web.async_client import AsyncWebClient

log = logging.getLogger("moorings.slack")

CALL_SECONDS = 8.0
"""One call; a third of any lease, and under what one attempt of a delivery may take."""

DEFAULT_URL = "https://slack.com/api/"

UNCLEAR = "unclear"
"""The call may have been done: no answer came, or none that can be read."""

# No retry helps: somebody has to change something at Slack's side, or the message is gone.
PERMANENT = frozenset(
    {
        "access_denied",
        "account_inactive",
        "as_user_not_supported",
        "cannot_reply_to_message",
        "cannot_dm_bot",
        "cant_post_message",
        "cant_update_message",
        "channel_is_limited_access",
        "channel_not_found",
        "channel_type_not_supported",
        "edit_window_closed",
        "ekm_access_denied",
        "enterprise_is_restricted",
        "invalid_auth",
        "invalid_thread_ts",
        "is_archived",
        "is_inactive",
        "message_not_found",
        "messages_tab_disabled",
        "method_not_supported_for_channel_type",
        "missing_scope",
        "no_permission",
        "no_text",
        "not_allowed_token_type",
        "not_authed",
        "not_in_channel",
        "org_login_required",
        "restricted_action",
        "restricted_action_non_threadable_channel",
        "restricted_action_read_only_channel",
        "restricted_action_thread_locked",
        "restricted_action_thread_only_channel",
        "team_access_not_granted",
        "team_not_found",
        "thread_not_found",
        "token_expired",
        "token_revoked",
        "two_factor_setup_required",
        "user_disabled",
        "user_not_found",
        "user_not_in_channel",
        "user_not_visible",
        "users_not_found",
    }
)
# The form of the message was refused, not the message: a plainer form may go through.
REFUSED_FORM = frozenset(
    {
        "invalid_arguments",
        "invalid_blocks",
        "invalid_blocks_format",
        "invalid_markdown_text",
        "markdown_text_conflict",
        "msg_blocks_too_long",
        "msg_blocks_too_many",
        "msg_too_long",
        "too_many_blocks",
    }
)
_LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})

Answer = Mapping[str, Any]


@dataclass(slots=True)
class Api:
    """Calls with one token; a client for each event loop, since a connection belongs to the loop that opened it."""

    token: str = field(repr=False)
    url: str
    _: KW_ONLY
    pacer: Pacer
    _clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncWebClient, ClientSession]] = field(
        default_factory=WeakKeyDictionary, repr=False
    )

    def grant(self, method: str, channel: str) -> None:
        """Count a call that `post` makes afterwards, with `granted`. Raises: RateLimited."""
        self.pacer.take(method, channel)

    async def post(self, method: str, body: Mapping[str, object], *, channel: str = "", granted: bool = False) -> Answer:
        """Call with a JSON body. Raises: DeliveryFailed, RateLimited."""
        client = self._client()
        return await self._call(method, channel, lambda: client.api_call(method, json=dict(body)), granted=granted)

    async def get(self, method: str, query: Mapping[str, object], *, patience: float = 0.0) -> Answer:
        """Call a method that only reads, after a wait of up to `patience` seconds for its turn; such take no JSON.

        Raises: DeliveryFailed, RateLimited.
        """
        client = self._client()
        wait = self.pacer.book(method, most=patience)
        if wait:
            await asyncio.sleep(wait)
            self.pacer.check(method)
        return await self._call(method, "", lambda: client.api_call(method, http_verb="GET", params=dict(query)), granted=True)

    async def upload(self, name: str, content: bytes) -> str:
        """Upload a file that nobody sees until it is shared, and return its id. Raises: DeliveryFailed, RateLimited."""
        client = self._client()
        # Slack takes no empty file.
        content = content or b"\n"
        method = "files.getUploadURLExternal"
        place = await self._call(method, "", lambda: client.api_call(method, params={"filename": name, "length": len(content)}))
        url, file = place.get("upload_url"), place.get("file_id")
        if not (isinstance(url, str) and isinstance(file, str) and file):
            raise DeliveryFailed(UNCLEAR, permanent=False)
        try:
            async with self._session().post(url, data=content) as answer:
                status = answer.status
        except Exception as error:  # noqa: BLE001 - aiohttp's, ValueError on an odd address included
            log.info("an upload failed (%s)", type(error).__name__)
            status = 0
        if status != 200:
            raise DeliveryFailed(UNCLEAR, permanent=False) from None
        return file

    async def share(self, files: Mapping[str, str], *, channel: str, thread: str | None) -> None:
        """Show uploaded files, ids by their names, in a thread. Raises: DeliveryFailed, RateLimited."""
        client = self._client()
        given = json.dumps([{"id": file, "title": name} for name, file in files.items()])
        query = {"files": given, "channel_id": channel} | ({"thread_ts": thread} if thread else {})
        method = "files.completeUploadExternal"
        await self._call(method, "", lambda: client.api_call(method, params=query))

    async def close(self) -> None:
        """Close the client of this loop."""
        found = self._clients.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[1].close()

    def _client(self) -> AsyncWebClient:
        loop = asyncio.get_running_loop()
        found = self._clients.get(loop)
        if found is None or found[1].closed:
            # Late, so that reading and signing need none of it.
            from aiohttp import ClientSession, ClientTimeout  # noqa: PLC0415
            from slack_sdk.web.async_client import AsyncWebClient  # noqa: PLC0415

            # A logger without a level makes slack_sdk write out every request, unread or not.
            quiet = logging.getLogger("moorings.slack.sdk")
            quiet.setLevel(logging.INFO)
            session = ClientSession(timeout=ClientTimeout(total=CALL_SECONDS))
            # slack_sdk would send a message again after a dropped connection: no handler of its own may retry.
            client = AsyncWebClient(
                token=self.token, base_url=self.url, session=session, timeout=int(CALL_SECONDS), retry_handlers=[], logger=quiet
            )
            found = self._clients[loop] = (client, session)
        return found[0]

    def _session(self) -> ClientSession:
        self._client()
        return self._clients[asyncio.get_running_loop()][1]

    async def _call(self, method: str, channel: str, call: Callable[[], Awaitable[Any]], *, granted: bool = False) -> Answer:
        if not granted:
            self.pacer.take(method, channel)
        try:
            answer = (await call()).data
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - slack_sdk lets a dozen kinds through, AttributeError on a text answer included
            failure = self._failure(method, channel, error)
        else:
            if isinstance(answer, dict):
                return answer
            failure = DeliveryFailed(UNCLEAR, permanent=False)
        # Not chained: slack_sdk's errors hold the request, and with it the token.
        raise failure from None

    def _failure(self, method: str, channel: str, error: Exception) -> DeliveryFailed | RateLimited:
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None) or getattr(response, "status", None)
        body = getattr(response, "data", None)
        code = str(body.get("error") or "") if isinstance(body, dict) else ""
        if status == 429 or code in _LIMITED:
            seconds = _retry_after(getattr(response, "headers", None))
            self.pacer.close(method, channel, seconds=seconds)
            return RateLimited(seconds)
        if isinstance(status, int) and status < 500 and code:
            needed = str(body.get("needed") or "") if isinstance(body, dict) else ""
            level = logging.WARNING if code in PERMANENT else logging.INFO
            log.log(level, "%s was refused: %s%s", method, code, f" (needs {needed})" if needed else "")
            return DeliveryFailed(code[:80], code in PERMANENT)
        log.info("%s: no clear answer (%s, status %s)", method, type(error).__name__, status)
        return DeliveryFailed(UNCLEAR, permanent=False)


def _retry_after(headers: object) -> float:
    """Read the wait in seconds; a minute if Slack names none, an hour at most."""
    try:
        found = {str(name).lower(): value for name, value in dict(headers or {}).items()}  # type: ignore[call-overload]
        return min(3_600.0, max(1.0, float(found["retry-after"])))
    except (KeyError, TypeError, ValueError):
        return 60.0
