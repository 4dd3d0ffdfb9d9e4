"""What the console page asks of the application behind it.

What lives here: the port and the errors it may raise. What does not: HTTP, the engine, the console's own platform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from bot.moved import Mark

JsonObject: TypeAlias = dict[str, Any]


class ConsolePortError(Exception):
    """Root of what a port raises on purpose; the page answers it with `status` and `code`."""

    retryable: ClassVar[bool] = False
    status: ClassVar[int] = 409
    code: ClassVar[str] = "refused"


class UnknownThread(ConsolePortError):
    """No thread of that id."""

    status: ClassVar[int] = 404
    code: ClassVar[str] = "unknown_thread"

    def __init__(self, thread_id: str) -> None:
        super().__init__("There is no such thread.")
        self.thread_id = thread_id


class UnknownMessage(ConsolePortError):
    """No message of that id in the thread."""

    status: ClassVar[int] = 404
    code: ClassVar[str] = "unknown_message"

    def __init__(self, message_id: str) -> None:
        super().__init__("There is no such message in this thread.")
        self.message_id = message_id


class ClientIdReused(ConsolePortError):
    """The same client id came with another payload."""

    code: ClassVar[str] = "client_id_reused"

    def __init__(self, client_id: str) -> None:
        super().__init__("This client_id was used for something else. Send again with a new one.")
        self.client_id = client_id


class TooLong(ConsolePortError):
    """A message over the platform's limit."""

    status: ClassVar[int] = 413
    code: ClassVar[str] = "too_long"

    def __init__(self, limit: int) -> None:
        super().__init__(f"A message has at most {limit:,} characters. Send it in parts.")
        self.limit = limit


class RefusedHere(ConsolePortError):
    """The console's platform doesn't take it."""

    status: ClassVar[int] = 422

    def __init__(self, why: str) -> None:
        super().__init__(f"The console can't take this: {why.replace('_', ' ')}.")
        self.why = why


class NotGoneOn(ConsolePortError):
    """The conversation is left alone; the sentence says why and what to do."""

    status: ClassVar[int] = 409

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)


class RolloutUnderWay(ConsolePortError):
    """A deploy has begun and not ended."""

    code: ClassVar[str] = "rollout_under_way"

    def __init__(self) -> None:
        super().__init__("A deploy is under way. Wait until it is done.")


class NothingToDeploy(ConsolePortError):
    """The page has no worker to replace."""

    status: ClassVar[int] = 404
    code: ClassVar[str] = "nothing_to_deploy"

    def __init__(self) -> None:
        super().__init__("This page has no worker that it could replace.")


class FarEnough(ConsolePortError):
    """The demo's clock is as far ahead as it goes."""

    code: ClassVar[str] = "far_enough"

    def __init__(self) -> None:
        super().__init__("The clock is decades ahead already. Begin with another folder: moorings demo --data DIR.")


class ConsolePort(Protocol):
    """The console as the page sees it. Every time is int milliseconds since the epoch.

    Any other exception is answered as 503 with an error id; its class attribute `retryable` says whether the page tries again.
    """

    def cast(self) -> list[JsonObject]:
        """List who can speak: `{id, name, role, initial, color}`.

        `color` is `#rrggbb`, dark enough for white text on it (4.5 : 1).
        """
        ...

    async def threads(self) -> list[JsonObject]:
        """List threads, newest first: `{id, title, channel, last_at, waiting}`."""
        ...

    async def thread(self, thread_id: str) -> JsonObject | None:
        """Read one thread: `{id, title, channel, session_id | None, agent?}`; `agent` is who answers there, as an author."""
        ...

    async def messages(self, thread_id: str, viewer: str) -> list[JsonObject]:
        """List what `viewer` (a cast id) sees of a thread, oldest first.

        `{id, seq, author: {id, name, initial, color, agent}, text, card | None, at, edited_at | None, private, notice, version}`.
        `text` is the Markdown subset. `version` changes with every edit; equal id and version means nothing to redraw.
        `card` is `channels.cards.Card` as its `to_json` writes it; one from before there were items, forms or notes lacks those.
        `notice` marks a remark of the system's.
        """
        ...

    async def post(self, thread_id: str | None, author: str, text: str, client_id: str) -> JsonObject:
        """Post as a cast member, into a new thread if `thread_id` is None: `{thread_id, message_id}`.

        The same `client_id` again gives the first answer and posts nothing. Returns once the message is stored.

        Raises: UnknownThread, ClientIdReused.
        """
        ...

    async def click(
        self, thread_id: str, message_id: str, author: str, value: str, client_id: str, *, fields: Mapping[str, str]
    ) -> JsonObject:
        """Click a card's button, or send a form of it: `{status, reason?}`.

        `status` is "settled", "counted" (more people have to say so), "already_settled", "refused" or "pending".

        Raises: UnknownThread, UnknownMessage, ClientIdReused.
        """
        ...

    def changes(self, thread_id: str | None) -> AsyncIterator[JsonObject]:
        """Follow what changes, from the first `anext` on; subscribe before the first await.

        `{"kind": "threads"}`, `{"kind": "messages", "thread"}`, `{"kind": "timeline", "thread"}` mean: read again.
        `{"kind": "live", "thread", "turn_id", "text", "attempt", "author"?}` carries the whole text so far, None once it is gone;
        `author` is an object as in `messages`.
        `{"kind": "worker", "state": "up" | "restarting", "pid"}`; the first item should be one of these.
        `{"kind": "clock", "ahead_ms"}` says how far the demo's clock is ahead of the machine's.
        `{"kind": "deployment", "runs", "next", "leaves" | None, "stage": None | "starting" | "draining", "failed"}` says which
        deployment takes what comes, which one drains, and why the last deploy came to nothing, if it did.
        """
        ...

    async def events(self, thread_id: str) -> list[JsonObject]:
        """List the events of the thread's session, `{type, data, meta: {id, index, at, attempt}}`, in order."""
        ...

    async def step(self, thread_id: str, step_index: int, *, turn_id: str | None) -> JsonObject | None:
        """Read one step decoded, `{input, output, records}`; `turn_id` None means the latest turn with that step."""
        ...

    async def kill_worker(self) -> JsonObject:
        """Kill the worker with SIGKILL: `{pid}` of the one that was killed."""
        ...


class PanelPort(Protocol):
    """What the panel of the demo's page moves for good, as the page sees it."""

    def now(self) -> int:
        """Return the time in ms, as the store tells it."""
        ...

    def marks(self) -> Sequence[Mark]:
        """List what was moved, oldest first."""
        ...

    def state(self) -> JsonObject:
        """Return `{moves, deploys, ahead_ms}`: which buttons are there, and how far ahead the clock is."""
        ...

    async def pass_days(self) -> JsonObject:
        """Move the clock on by three days, for every process; returns the state."""
        ...

    async def deploy(self) -> JsonObject:
        """Begin to roll the next deployment out: `{deployment}`, its name. Raises: RolloutUnderWay, NothingToDeploy."""
        ...
