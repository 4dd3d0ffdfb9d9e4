"""The engine: a store and the workflows of an app, started, signalled, answered, and advanced.

What lives here: what an app calls. What does not: advancing a run (runner.py), the worker's loop (durable_core/worker.py).
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from types import TracebackType
from typing import Any, Final, Self

from durable_core import codec
from durable_core.clock import Clock, DatabaseClock, milliseconds
from durable_core.crypto import payload_digest
from durable_core.engine.beginning import Beginnings
from durable_core.engine.handles import PromptView, RunHandle, RunView, Waiters, row_view
from durable_core.engine.opening import opened
from durable_core.engine.runner import Runner
from durable_core.engine.signals import by_hook, cancel_admission, signal_admission
from durable_core.engine.starts import start_admission
from durable_core.engine.surface import ANYONE
from durable_core.errors import NotFound, SessionEnded
from durable_core.ids import new_id
from durable_core.keys import Keys
from durable_core.model import AnswerReceipt, Interaction, Lane, PromptAnswer, PromptOutcome, ToRun
from durable_core.registry import Registry, Workflow
from durable_core.store import Store
from durable_core.stores.open import StoreOptions
from durable_core.streams import EventView, Streams
from durable_core.worker import Held, Worker, WorkerOptions

DEPLOYMENT_VARIABLE: Final = "MOORINGS_DEPLOYMENT"
_RUNS: Final = """
    SELECT run_id, name, status, phase, end_reason, stranded, created_at, ended_at, wake_at FROM moor_run
    WHERE kind = 'workflow' AND (:name = '' OR name = :name) ORDER BY created_at DESC, run_id DESC LIMIT :most
"""
_MOST: Final = 10_000
_FAR: Final = 2**62
"""An index past all events, and one that a database takes."""
_signature: Final = cache(inspect.signature)


class Engine:
    """Durable workflows on a database.

    Args:
        database: `sqlite:///file.db`, `sqlite:///:memory:`, `postgresql://…`, or a store that is open already (it stays so).
        workflows: what it can run; runs of others are left alone.
        keys: what content is encrypted with, or who gives it; else MOORINGS_ENCRYPTION_KEYS, else a file beside the SQLite file.
        clock: the database's unless a test sets it by hand.
        deployment: the name of this version of the app; the fingerprint of its code unless given.
        options: bounds of its worker.
        migrate: whether to bring the schema up to date first; by default of SQLite files only.
        work: whether it advances runs; else it only starts, signals and reads them, or works by `run_due`.
        public_url: where webhooks are reached.
        keep: how long content is kept once a run has ended; for ever unless given.
        store_options: how the database is reached: schema, pool, pooler.
    """

    def __init__(
        self,
        database: str | Store,
        *,
        workflows: Iterable[Workflow],
        keys: Keys | None = None,
        clock: Clock | None = None,
        deployment: str | None = None,
        options: WorkerOptions | None = None,
        migrate: bool | None = None,
        work: bool = True,
        public_url: str | None = None,
        keep: timedelta | None = None,
        store_options: StoreOptions | None = None,
    ) -> None:
        self._database = database
        self._registry = Registry(workflows)
        self._keys = keys
        self._clock = clock or DatabaseClock()
        self._options = replace(options or WorkerOptions(), interactions=0)  # questions of workflows settle at once
        self._migrate = migrate
        self._store_options = store_options or StoreOptions()
        self.works = work
        """Whether it advances runs by itself; may be changed while it is closed."""
        self._public_url = public_url
        self._keep_ms = None if keep is None else milliseconds(keep)
        self.deployment = deployment or os.environ.get(DEPLOYMENT_VARIABLE) or self._registry.fingerprint
        self._store: Store | None = None
        self._waiters: Waiters | None = None
        self._streams: Streams | None = None
        self._runner: Runner | None = None
        self._worker: Worker | None = None
        self._beginnings: Beginnings | None = None
        self._due = asyncio.Lock()

    # ── life ──

    async def __aenter__(self) -> Self:
        """Open the store and begin to work. Raises: NoKeys, BadKeyRing, SchemaOutdated, Unavailable, Broken."""
        if self._store is not None:
            raise RuntimeError("this engine is running already")
        store = self._database
        if isinstance(store, str):
            store = await opened(store, keys=self._keys, clock=self._clock, migrate=self._migrate, options=self._store_options)
        self._store = store
        self._waiters, self._streams = Waiters(store), Streams(store)
        self._waiters.start()
        self._streams.start()
        self._runner = Runner(
            store=store,
            registry=self._registry,
            clock=self._clock,
            public_url=self._public_url,
            keep_ms=self._keep_ms,
            poll=self._options.poll,
            on_end=self._waiters.ended,
        )
        if self.works:
            try:
                self._worker = self._new_worker()
                await self._worker.start()
                self._beginnings = Beginnings(store, self._worker, self._options)
            except BaseException:
                await self.close(0)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drain and close."""
        await self.close(0 if kind is not None else 5.0)

    async def close(self, seconds: float = 30.0) -> None:
        """Let what runs end for so long, give the rest back, and disconnect; nothing is lost or charged."""
        beginnings, self._beginnings = self._beginnings, None
        if beginnings is not None:
            await beginnings.close()
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.drain(seconds)
        if self._runner is not None:
            self._runner.warm.clear()
        if self._streams is not None:
            self._streams.stop()
        store, self._store = self._store, None
        if self._waiters is not None:
            self._waiters.stop()
        if store is not None and isinstance(self._database, str):
            await store.close()

    @property
    def store(self) -> Store:
        """The open store."""
        if self._store is None:
            raise RuntimeError("the engine is not running: use it in `async with engine:`")
        return self._store

    @property
    def waiters(self) -> Waiters:
        """Who waits for which run."""
        if self._waiters is None:
            raise RuntimeError("the engine is not running: use it in `async with engine:`")
        return self._waiters

    @property
    def workflows(self) -> tuple[str, ...]:
        """The names of what it can run."""
        return self._registry.names

    async def run_due(self, *, until_idle: bool = True, limit: int | None = None) -> int:
        """Advance what is due and return how many times a run was taken; for cron, CI and serverless, beside workers or alone.

        Args:
            until_idle: go on until nothing is due any more; else take once what is due now.
            limit: take runs at most so often.
        """
        if self.works:
            raise RuntimeError("this engine works by itself; run_due() is for Engine(..., work=False)")
        if self._store is None:
            async with self:
                return await self.run_due(until_idle=until_idle, limit=limit)
        async with self._due:
            return await self._new_worker().until_idle(limit, once=not until_idle)

    # ── runs ──

    async def start(
        self,
        workflow: Workflow | str,
        /,
        *args: Any,
        key: str | None = None,
        delay: timedelta | None = None,
        at: datetime | None = None,
        started_by: str = "",
        **kwargs: Any,
    ) -> RunHandle:
        """Start a run, now or later; it is durable once this returns.

        Args:
            workflow: what to run, or its name.
            args: what the body gets after `ctx`.
            key: names this start; the same key of a workflow is the same run.
            delay: how long from now; what is sent to the run earlier begins it.
            at: when; an aware datetime.
            started_by: who starts it.
            kwargs: as `args`; a parameter that is named as one of these options is to be given by position.

        Raises:
            Conflict: the key was used with other arguments.
            Unstorable, TooLarge: the arguments can't be kept.
            UnknownWorkflow, TypeError: it can't be called so.
        """
        known = self._registry[workflow if isinstance(workflow, str) else workflow.name]
        _signature(known.fn).bind(None, *args, **kwargs)
        admission = start_admission(
            known.name,
            args,
            kwargs,
            source=f"start:{known.name}",
            key=key or new_id("key"),
            creator=started_by,
            deployment=self.deployment,
            wake_at=await self._time(delay, at),
            keep_ms=self._keep_ms,
        )
        return RunHandle(self, (await (self._beginnings or self.store).admit(admission)).run_id)

    async def _time(self, delay: timedelta | None, at: datetime | None) -> int | None:
        if at is not None:
            if delay is not None or at.tzinfo is None:
                raise ValueError("give delay=, or at= with a time zone")
            return -int(-at.timestamp() * 1000 // 1)
        return None if delay is None else await self.store.now() + milliseconds(delay)

    def run(self, run_id: str) -> RunHandle:
        """Return the handle of a run; nothing is read. Raises: Unstorable."""
        return RunHandle(self, codec.check_name(run_id, "run_id"))

    async def runs(self, *, status: str | None = None, workflow: str | None = None, limit: int = 100) -> list[RunView]:
        """Return runs, the youngest first; `status` as in `RunView`, looked for among the youngest 10,000."""
        most = limit if status is None else _MOST
        rows, now = await self.store.rows(_RUNS, {"name": workflow or "", "most": most}), await self.store.now()
        views = [row_view(row, now) for row in rows]
        return [view for view in views if status is None or view.status == status][:limit]

    async def events(self, run_id: str, *, start: int = 0, follow: bool = False) -> AsyncIterator[EventView]:
        """A run's events from index `start` on (negative: from the tail); with `follow`, as they come until it ends."""
        if self._streams is None:
            raise RuntimeError("the engine is not running: use it in `async with engine:`")
        await self.store.run(codec.check_name(run_id, "run_id"))
        start = max(-_FAR, min(start, _FAR))
        if follow:
            async for event in self._streams.follow(run_id, start=start):
                yield event
            return
        position: int | None = start
        while position is not None:
            page = await self._streams.read(run_id, start=position)
            for event in page:
                yield event
            position = (page[-1].index or 0) + 1 if page else None

    # ── what reaches a run ──

    async def signal(
        self,
        hook: str | None = None,
        value: Any = None,
        *,
        run_id: str | None = None,
        name: str | None = None,
        key: str | None = None,
        by: str = "",
    ) -> str:
        """Send a signal by its hook to whoever waits there, or by name to one run, which keeps it until it waits; the run's id.

        Args:
            hook: what a run gave to `ctx.wait_for`, or a webhook's token.
            value: what it gets.
            run_id: which run, with `name`.
            name: the hook's name there.
            key: names this signal; the same key is the same signal.
            by: who sends it.

        Raises:
            NotFound: nobody waits there, or there is no such run.
            SessionEnded: the run has ended.
            Conflict: the key was used with another value.
        """
        if (hook is None) is (run_id is None) or (run_id is None) is not (name is None):
            raise ValueError("give a hook, or run_id= and name=")
        target = by_hook(hook) if hook is not None else ToRun(run_id=run_id or "")
        try:
            receipt = await (self._beginnings or self.store).admit(
                signal_admission(target, hook or name or "", value, key=key, by=by)
            )
        except NotFound as error:
            raise NotFound("run", run_id) if run_id is not None else NotFound("hook", hook or "") from error
        return receipt.run_id

    async def cancel(self, run_id: str, reason: str = "", *, by: str = "") -> bool:
        """Cancel a run; False when it had ended. One that is set aside ends without its code. Raises: NotFound."""
        try:
            taken = (await self.store.admit(cancel_admission(run_id, reason=reason, by=by))).seq > 0
        except SessionEnded:
            return False
        await self.store.unstrand(run_id)
        return taken

    async def prompts(self, run_id: str) -> list[PromptView]:
        """Return what a run asks people, oldest first."""
        return [PromptView.of(prompt) for prompt in await self.store.open_prompts(run_id)]

    async def answer(
        self, prompt_id: str, *, option_id: str | None = None, text: str | None = None, by: str = "", key: str | None = None
    ) -> AnswerReceipt:
        """Answer a question, by an option, by text, or both; the receipt says what became of it.

        Raises:
            NotFound: there is no such question.
            ValueError: it has no such option, or takes no text.
            Conflict: the key was used with another answer.
        """
        asked = PromptView.of(await self.store.prompt(codec.check_key(prompt_id, "prompt_id")))
        _check_answer(asked.body, option_id, text)
        given = codec.encode({"option_id": option_id, "text": text, "by": by})
        return await self.store.answer(
            PromptAnswer(
                source=f"answer:{prompt_id}",
                key=codec.check_key(key or new_id("key"), "key"),
                digest=payload_digest(given),
                submission_id=new_id("sub"),
                prompt_id=prompt_id,
                run_id=None,
                option_id=option_id or "",
                outcome=PromptOutcome.ANSWERED,
                note=None if text is None else codec.encode({"text": text}),
                principal=ANYONE,
                name=codec.check_name(by, "by"),
                via="api",
                body=given,
                refused=None if _may_answer(asked.body.get("by"), by) else "not_yours",
            )
        )

    # ── a worker's duties ──

    async def advance(self, held: Held) -> None:
        """Advance a run until it is given back."""
        if self._runner is not None:
            with self.waiters.busy(held.claim.run_id):
                await self._runner.advance(held)

    async def send(self, lane: Lane) -> None:
        """Send nothing: its worker takes internal lanes only."""

    async def evaluate(self, interaction: Interaction) -> None:
        """Decide nothing: its worker takes no interactions."""

    def _new_worker(self) -> Worker:
        if self._runner is None:
            raise RuntimeError("the engine is not running: use it in `async with engine:`")
        return Worker(
            self.store,
            self,
            owner=self.store.incarnation,
            deployment=self.deployment,
            abilities=self._runner.abilities,
            options=self._options,
        )


def _may_answer(allowed: Any, by: str) -> bool:
    """Whether a question that names who answers it means this one; what it says otherwise is for a layer above to check."""
    match allowed:
        case None:
            return True
        case str():
            return by == allowed
        case list() | tuple():
            return by in allowed
        case _:
            return False


def _check_answer(body: dict[str, Any], option_id: str | None, text: str | None) -> None:
    ids = [option["id"] for option in body.get("options", ())]
    if option_id is None and text is None:
        raise ValueError("give option_id= or text=")
    if option_id is not None and option_id not in ids:
        raise ValueError(f"the question has no option {option_id!r}; it has {', '.join(ids) or 'none'}")
    if option_id is None and not body.get("allow_freeform"):
        raise ValueError(f"the question takes no text; its options are {', '.join(ids)}")
