"""Claiming: how an author makes sure that something is done once, where the other side knows no idempotency keys (CORE 24).

What lives here: what a step's and a tool's `claim(key)` return. What does not: the store's promise (S37), idempotency keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from durable_core import codec
from durable_core.errors import CommitUnknown, Unavailable
from durable_core.ids import new_id
from durable_core.model import ClaimedKey, ClaimState, KeyRequest
from durable_core.retry import retrying_unavailable

if TYPE_CHECKING:
    from durable_core.store import Store

T = TypeVar("T")

KEY_LENGTH: Final = 200


class StoreCall(Generic[T]):
    """A call to the store that an author makes: `await` it in a coroutine, `.wait()` for it in a plain function."""

    __slots__ = ("_loop", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop

    def __await__(self) -> Generator[Any, Any, T]:
        if asyncio.get_running_loop() is self._loop:
            return self._work.__await__()
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._work, self._loop)).__await__()

    def wait(self) -> T:
        """Do it, and block until it is done; plain steps and tools run in a thread, where that holds nothing else up.

        Raises:
            RuntimeError: it is called on the event loop, which would wait for itself.
        """
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            self._work.close()
            raise RuntimeError("write `await` in a coroutine; .wait() is for plain functions, which run in a thread")
        return asyncio.run_coroutine_threadsafe(self._work, self._loop).result()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyClaim:
    """How a key stood when it was claimed; ask `state`.

    `claimed`: nobody has begun. Have the effect, then say `done(value)`; where you know that there was none, `release()`.
    `done`: `value` is what was said first; None with `value_gone` when it was deleted with the content of whoever gave it.
    `pending`: somebody began and did not say that it is done. It may be done, under way or neither: look it up on the other side,
    then say `done(value)` or `release()`, or leave it to a person. `run_id`, `operation_id`, `attempt` and `since` say who began.
    """

    key: str
    state: ClaimState
    run_id: str
    """Whose claim it is: a run's, or a session's."""
    operation_id: str
    """The step's operation, or the tool's call, that began."""
    attempt: int
    since: datetime
    is_own: bool
    """Whether it is of this very call: `pending` then means an attempt of it that was cut off, or that released nothing."""
    value: Any = None
    value_gone: bool = False
    claim_id: str = field(repr=False)
    claimer: Claimer = field(repr=False, compare=False)

    def done(self, value: Any = None) -> StoreCall[KeyClaim]:
        """Say that it is done, and keep `value` (JSON values) for whoever asks from now on; returns how the key stands then.

        The first value stays. It may be said of a pending claim of somebody else, by whoever has found out.

        Raises:
            LeaseLost: another worker has the run; nothing was written. Raised by the call that is returned.
            Unstorable, TooLarge: the value can't be kept.
        """
        return self.claimer.finish(self, value)

    def release(self) -> StoreCall[None]:
        """Let the key be claimed anew: say it only where you know that there was no effect, and that nobody is at it.

        Nothing happens where it is done, or was released and claimed by somebody else in the meantime.

        Raises:
            LeaseLost: another worker has the run; nothing was written. Raised by the call that is returned.
        """
        return self.claimer.release(self)

    def __bool__(self) -> NoReturn:
        """Refuse: pending is neither."""
        raise TypeError("a KeyClaim is neither true nor false; compare claim.state with 'claimed', 'done' and 'pending'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimer:
    """An attempt of one operation, as the store knows who claims: under the fence of its run."""

    store: Store
    run_id: str
    epoch: int
    operation_id: str
    attempt: int
    loop: asyncio.AbstractEventLoop

    def claim(self, key: str) -> StoreCall[KeyClaim]:
        """Claim a key of the namespace; on disk before it is told.

        Raises:
            ValueError, Unstorable: it is no key.
            LeaseLost: another worker has the run; nothing was written. Raised by the call that is returned.
        """
        if not 0 < len(codec.check_name(key, "the key of a claim")) <= KEY_LENGTH:
            raise ValueError(f"the key of a claim has 1 to {KEY_LENGTH} characters, not {len(key)}")
        request = self._request(key, new_id("clm"))
        return self._call(lambda: self.store.claim_key(request), key)

    def finish(self, claim: KeyClaim, value: Any) -> StoreCall[KeyClaim]:
        """Say that what a claim is for is done."""
        request, body = self._request(claim.key, claim.claim_id), codec.encode(value)
        return self._call(lambda: self.store.finish_key(request, body), claim.key)

    def release(self, claim: KeyClaim) -> StoreCall[None]:
        """Let a claim's key be claimed anew."""
        request = self._request(claim.key, claim.claim_id)
        return StoreCall(_surely(lambda: self.store.release_key(request)), self.loop)

    def _request(self, key: str, claim_id: str) -> KeyRequest:
        return KeyRequest(
            run_id=self.run_id,
            epoch=self.epoch,
            key=key,
            claim_id=claim_id,
            operation_id=self.operation_id,
            attempt=self.attempt,
        )

    def _call(self, call: Callable[[], Awaitable[ClaimedKey]], key: str) -> StoreCall[KeyClaim]:
        async def work() -> KeyClaim:
            return self._told(key, await _surely(call))

        return StoreCall(work(), self.loop)

    def _told(self, key: str, found: ClaimedKey) -> KeyClaim:
        return KeyClaim(
            key=key,
            state=found.state,
            run_id=found.run_id,
            operation_id=found.operation_id,
            attempt=found.attempt,
            since=datetime.fromtimestamp(found.at / 1000, UTC),
            is_own=(found.run_id, found.operation_id) == (self.run_id, self.operation_id),
            value=None if found.value is None else codec.decode(found.value),
            value_gone=found.value_gone,
            claim_id=found.claim_id,
            claimer=self,
        )


async def _surely(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call, again where the database was away for moments. It may have arrived: its id makes both one."""
    async for attempt in retrying_unavailable():
        with attempt:
            try:
                return await call()
            except CommitUnknown as error:
                raise Unavailable(str(error)) from error
    raise AssertionError("a retry ends by a result or an error")
