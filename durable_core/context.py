"""Context: what the author of a workflow, and of a step, sees.

What lives here: `WorkflowContext`, and the facts a step is told. What does not: how operations complete (`replay`, `engine`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID

from durable_core.claiming import Claimer, KeyClaim, StoreCall
from durable_core.clock import milliseconds
from durable_core.codec import check_name
from durable_core.operations import (
    Answer,
    AskOptions,
    ChildStart,
    Hook,
    OnExpiry,
    Operation,
    OpKind,
    Option,
    Webhook,
    child_run_id,
    own_copy,
)
from durable_core.registry import StepOptions, Workflow, step_of

if TYPE_CHECKING:
    from durable_core.authorizing import Asking, Authorized
    from durable_core.loop import DetLoop

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step may know of itself; `idempotency_key` is the same in each attempt."""

    run_id: str
    operation_id: str
    attempt: int
    idempotency_key: str
    deps: Any = None
    """What the layer above opened for its steps."""
    origin: Any = None
    """Where the run comes from, as the layer above says."""
    lent: Any = field(default=None, repr=False, compare=False)
    """What the layer above lends this attempt (`authorizing.Lent`)."""
    claimer: Claimer | None = field(default=None, repr=False, compare=False)

    def claim(self, key: str) -> StoreCall[KeyClaim]:
        """Claim a key, for another side that knows no idempotency keys: `await` it, or `.wait()` in a plain function.

        The key is one of all runs of the store, 1 to 200 characters; it is kept for ever, so name in it what is to be done once.

        Raises:
            ValueError, Unstorable: it is no key.
            LeaseLost: another worker has the run. Raised by the call that is returned.
        """
        if self.claimer is None:
            raise RuntimeError("this step runs under no engine, and so has no store to claim in")
        return self.claimer.claim(key)


_STEP: ContextVar[StepContext] = ContextVar("moorings_step")


def step_context() -> StepContext:
    """Return the facts of the step that runs.

    Raises:
        RuntimeError: it is called outside a step.
    """
    found = _STEP.get(None)
    if found is None:
        raise RuntimeError("step_context() is known within a step only; a workflow's body has ctx")
    return found


@contextmanager
def entering_step(facts: StepContext) -> Iterator[None]:
    """Tell a step its facts while it runs; threads started by asyncio inherit them."""
    token = _STEP.set(facts)
    try:
        yield
    finally:
        _STEP.reset(token)


class Host(Protocol):
    """What a context asks of the replay that it belongs to."""

    run_id: str
    loop: DetLoop
    replaying: bool

    def patched(self, patch: str) -> bool: ...
    def progress(self, value: Any) -> None: ...


class ChildHandle:
    """A child that was started; it goes on whatever becomes of those who wait for it."""

    __slots__ = ("_future", "run_id")

    def __init__(self, run_id: str, future: asyncio.Future[Any]) -> None:
        self.run_id = run_id
        self._future = future

    def result(self) -> asyncio.Future[Any]:
        """Return its result, to be awaited as often as wanted; raises `ChildFailed` in the body."""
        return asyncio.shield(self._future)


class WorkflowContext:
    """What a body acts by, and nobody else. Each durable call returns an awaitable, for gather, wait and TaskGroup."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = host.loop

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._host.run_id

    @property
    def is_replaying(self) -> bool:
        """Whether what happens now happened before; for logging, never for deciding."""
        return self._host.replaying

    @property
    def random(self) -> Random:
        """Random numbers, seeded by the run's id: the same in every replay."""
        self._loop.check_inside()
        return self._random

    @cached_property
    def _random(self) -> Random:
        return Random(f"random:{self.run_id}")  # noqa: S311 - that is the point

    @cached_property
    def _asking(self) -> Asking:
        from durable_core.authorizing import Asking  # noqa: PLC0415 - as in `authorize`

        return Asking()

    @cached_property
    def _uuids(self) -> Random:
        return Random(f"uuid:{self.run_id}")  # noqa: S311 - same

    def now(self) -> datetime:
        """Return the time of the last completion that the body saw."""
        return datetime.fromtimestamp(self._loop.now_ms / 1000, UTC)

    def uuid(self) -> UUID:
        """Return a UUID (version 4 in form), the same in every replay."""
        self._loop.check_inside()
        return UUID(int=self._uuids.getrandbits(128), version=4)

    def patched(self, patch: str) -> bool:
        """Return whether this run takes the new way: True on new runs, False where the old code passed here already."""
        self._loop.check_inside()
        return self._host.patched(patch)

    def progress(self, value: Any) -> None:
        """Show where the run is; not recorded, not shown again in a replay."""
        self._host.progress(own_copy(value))

    @overload
    def step(self, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]: ...
    @overload
    def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]: ...
    def step(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Run a function outside the body, once it is recorded for good; raises `StepFailed` in the body.

        The function is tried again when it raises (four times in all by default, `Fatal` stops that) and when the
        worker dies before its result is recorded, so it may run more than once.
        """
        run, options = step_of(fn)
        _refuse_awaitables(options.name, args, kwargs)
        op = Operation(
            id=self._loop.next_id(OpKind.STEP, options.name),
            kind=OpKind.STEP,
            name=options.name,
            fn=run,
            args=own_copy(args),
            kwargs=own_copy(kwargs),
            options=options,
        )
        return self._loop.open_operation(op)

    def sleep(self, duration: timedelta | float) -> asyncio.Future[Any]:
        """Sleep for a timedelta or seconds; days cost nothing. `asyncio.sleep` does the same."""
        delay = milliseconds(duration if isinstance(duration, timedelta) else timedelta(seconds=duration))
        return self._loop.sleep(delay)

    def ask(
        self,
        text: str,
        options: Sequence[Option] = (),
        *,
        allow_freeform: bool = False,
        expires: timedelta | None = None,
        on_expiry: OnExpiry = "deny",
        by: Any = None,
        remind_after: timedelta | None = None,
        name: str = "",
    ) -> asyncio.Future[Answer]:
        """Ask a person and wait for the answer, however long it takes.

        Args:
            text: the question; it may change between versions of the code, open questions keep theirs.
            options: the buttons.
            allow_freeform: whether typed text answers it.
            expires: when nobody answers for so long, the answer says `expired`.
            on_expiry: what an expired question counts as.
            by: who may answer, as the layer above understands it (JSON values).
            remind_after: after how long people are reminded, once, if it is still open then.
            name: tells this question from others in the log.
        """
        if not options and not allow_freeform:
            raise ValueError("a question needs options, or allow_freeform=True")
        if remind_after is not None and remind_after <= timedelta(0):
            raise ValueError("remind_after= must be in the future")
        ids = [one.id for one in options]
        if len(set(ids)) < len(ids):
            raise ValueError(f"two options of a question have the same id: {ids}")
        question = AskOptions(
            text=text,
            options=tuple(options),
            allow_freeform=allow_freeform,
            expires=expires,
            on_expiry=on_expiry,
            by=by,
            remind_after=remind_after,
        )
        return self._open(OpKind.ASK, name, question=question)

    def authorize(self, what: Any, /) -> asyncio.Task[Authorized]:
        """Have whoever the run works for connect an account, and wait until they have; at once where they have already.

        ``what`` is a connection of the layer above. They are asked in private, where the run was started. Steps then act with the
        account. Branches that wait for one connection at the same time have them asked once: what comes of it counts for all.

        Raises (when it is awaited):
            NotAuthorized: they declined, it took them too long, or nobody can be asked; the reason says which.
            StepFailed: it can't be asked for, because the app doesn't know it, say.
        """
        from durable_core.authorizing import authorized, look  # noqa: PLC0415 - it looks at steps, whose facts are defined here

        self._loop.check_inside()
        name = f"authorize {getattr(what, 'name', '')}"

        def checked() -> asyncio.Future[Mapping[str, Any]]:
            op = self._loop.next_id(OpKind.STEP, name)
            options = StepOptions(name=name)
            return self._loop.open_operation(
                Operation(id=op, kind=OpKind.STEP, name=name, fn=look, args=(what,), options=options)
            )

        def asked(question: AskOptions) -> Coroutine[Any, Any, tuple[Answer, bool]]:
            return self._asking.ask(name, lambda: self._open(OpKind.ASK, name, question=question))

        return self._loop.create_task(authorized(checked, asked))

    def wait_for(self, hook: Hook | str) -> asyncio.Future[Any]:
        """Return the next payload of a hook; those that came before are kept in order."""
        return self._loop.next_signal(Hook(hook) if isinstance(hook, str) else hook)

    def webhook(self, name: str = "") -> asyncio.Future[Webhook]:
        """Return a hook with a secret address of its own; what is POSTed there comes by `ctx.wait_for(hook)`."""
        return self._open(OpKind.WEBHOOK, name)

    def child(self, workflow: Workflow, /, *args: Any, key: str | None = None, **kwargs: Any) -> asyncio.Future[Any]:
        """Run another workflow as a run of its own and wait for its result; raises `ChildFailed` in the body.

        With `key`, the child's id comes from it: the same key of one parent is the same child.
        """
        return self._child(workflow, args, kwargs, key=key, detached=False)[1]

    def start(self, workflow: Workflow, /, *args: Any, key: str | None = None, **kwargs: Any) -> ChildHandle:
        """Start another workflow that goes on by itself."""
        return ChildHandle(*self._child(workflow, args, kwargs, key=key, detached=True))

    def as_completed(self, awaitables: Iterable[Any]) -> Iterator[asyncio.Future[Any]]:
        """Return futures that complete in the order in which the given ones do, the same in every replay."""
        slots: list[asyncio.Future[Any]] = []
        waiting = [asyncio.ensure_future(one) for one in awaitables]
        done = iter(slots)

        def pass_on(finished: asyncio.Future[Any]) -> None:
            slot = next(one for one in done)
            if slot.done():
                return
            if finished.cancelled():
                slot.cancel()
            elif (error := finished.exception()) is not None:
                slot.set_exception(error)
            else:
                slot.set_result(finished.result())

        slots.extend(self._loop.create_future() for _ in waiting)
        for one in waiting:
            one.add_done_callback(pass_on)
        return iter(tuple(slots))

    def _child(
        self, workflow: Workflow, args: tuple[Any, ...], kwargs: dict[str, Any], *, key: str | None, detached: bool
    ) -> tuple[str, asyncio.Future[Any]]:
        if not isinstance(workflow, Workflow):
            raise TypeError(f"a child is a workflow (@workflow), not {workflow!r}; functions run by ctx.step(...)")
        _refuse_awaitables(workflow.name, args, kwargs)
        op = self._loop.next_id(OpKind.CHILD, workflow.name)
        said = op if key is None else _said(workflow.name, check_name(key, "key"))
        run_id = child_run_id(self._host.run_id, said)
        args, kwargs = own_copy(args), own_copy(kwargs)
        child = ChildStart(workflow=workflow, args=args, kwargs=kwargs, run_id=run_id, key=key, detached=detached)
        return run_id, self._loop.open_operation(Operation(id=op, kind=OpKind.CHILD, name=workflow.name, child=child))

    def _open(self, kind: OpKind, name: str, *, question: AskOptions | None = None) -> asyncio.Future[Any]:
        op = self._loop.next_id(kind, name)
        hook = Webhook(op) if kind is OpKind.WEBHOOK else None
        return self._loop.open_operation(Operation(id=op, kind=kind, name=name, question=question, hook=hook))


def _said(workflow: str, key: str) -> str:
    """Name a child by its key. A workflow's name may hold a colon itself: then its length tells where it ends."""
    return f"key:{workflow}:{key}" if ":" not in workflow else f"key {len(workflow)}:{workflow}:{key}"


def _refuse_awaitables(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for where, value in (*enumerate(args), *kwargs.items()):
        if asyncio.isfuture(value) or asyncio.iscoroutine(value):
            if asyncio.iscoroutine(value):
                value.close()
            raise TypeError(f"argument {where!r} of {name} is not awaited yet: write `await` before it")
