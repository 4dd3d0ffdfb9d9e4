"""A store that stops at a chosen call, as if its process were killed there, and one that fails once.

What lives here: what a test puts between an engine and its store. What does not: what it expects afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from durable_core.store import Store

COUNTED = frozenset(
    {"admit", "claim", "commit", "release", "refresh", "steps", "prompt", "charge", "strand", "claim_lanes", "finish"}
)
"""Calls that are boundaries; when others come is a matter of real time."""


GRAVES: list[Breaking] = []
"""Stores that stopped, kept so that what hangs in them isn't collected, which asyncio would report."""


class Breaking:
    """Passes calls on until the `at`-th that counts: that one and all after it never return.

    With `after`, it is done all the same, as when the process dies before the answer.
    """

    def __init__(self, store: Store, *, at: int | None, after: bool = False) -> None:
        self._store = store
        self._at = at
        self._after = after
        self.calls: list[str] = []
        self.dead = asyncio.Event()
        self._never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        GRAVES.append(self)

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    @property
    def incarnation(self) -> str:
        return self._store.incarnation

    def watch(self, listener: Any) -> Callable[[], None]:
        return self._store.watch(lambda run_ids: None if self.dead.is_set() else listener(run_ids))

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        async def passed(*args: Any, **kwargs: Any) -> Any:
            if self.dead.is_set():
                await asyncio.shield(self._never)
            if name in COUNTED:
                self.calls.append(name)
                if len(self.calls) == self._at:
                    self.dead.set()
                    if self._after:
                        await call(*args, **kwargs)
                    await asyncio.shield(self._never)
            return await call(*args, **kwargs)

        return passed


class Failing:
    """Raises `error` once, at the `at`-th call of `name`; with `after`, once it is done."""

    def __init__(self, store: Store, name: str, error: Exception, *, at: int = 1, after: bool = False) -> None:
        self._store = store
        self._name = name
        self._error = error
        self._left = at
        self._after = after

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    @property
    def raised(self) -> bool:
        return self._left <= 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name != self._name:
            return call

        async def passed(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                if self._after:
                    await call(*args, **kwargs)
                raise self._error
            return await call(*args, **kwargs)

        return passed
