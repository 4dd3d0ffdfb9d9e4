"""Registry: workflows and steps as an author declares them.

What lives here: the decorators, their checks, the table of an app's workflows, the fingerprint of their code.
What does not: running any of it. There is no global list: an app names its workflows.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import update_wrapper
from hashlib import sha256
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from durable_core.codec import check_key, check_name
from durable_core.errors import DurableError
from durable_core.retry import RetryPolicy

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_ATTEMPTS: Final = 4


class WorkflowNameTaken(DurableError):
    """Two workflows of one app have the same name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two workflows are named {name!r}; give one of them a name: @workflow(name=...)")
        self.name = name


class UnknownWorkflow(DurableError):
    """A run asks for a workflow that this app doesn't have."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(f"no workflow {name!r} here; there are: {', '.join(self.known) or 'none'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is tried: `attempts` in all, each for at most `timeout`, `backoff` between them."""

    name: str
    attempts: int = DEFAULT_ATTEMPTS
    timeout: timedelta | None = None
    backoff: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a step needs a name")
        check_name(self.name, "the name of a step")
        if self.attempts < 1:
            raise ValueError(f"step {self.name}: attempts must be 1 or more, not {self.attempts}")
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise ValueError(f"step {self.name}: timeout must be longer than nothing")


class Step(Generic[P, R]):
    """A function with options for `ctx.step`; calling it runs the function, as if it were not decorated."""

    def __init__(self, fn: Callable[P, R], options: StepOptions) -> None:
        self.fn = fn
        self.options = options
        update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind a decorated method to its object."""
        if instance is None:
            return self
        return Step(self.fn.__get__(instance, owner), self.options)

    def __repr__(self) -> str:
        return f"<step {self.options.name}>"


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow: its name, which runs remember, and its body."""

    name: str
    fn: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the body, for tests that bring their own context."""
        return self.fn(*args, **kwargs)


@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = ...,
    attempts: int = ...,
    timeout: float | timedelta | None = ...,
    backoff: RetryPolicy | None = ...,
) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = ...,
    attempts: int = ...,
    timeout: float | timedelta | None = ...,
    backoff: RetryPolicy | None = ...,
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    attempts: int = DEFAULT_ATTEMPTS,
    timeout: float | timedelta | None = None,
    backoff: RetryPolicy | None = None,
) -> Any:
    """Give a function the options it is run with by `ctx.step`.

    Args:
        fn: sync (run in a thread) or async; `step(fn, name=...)` names a lambda or a local function.
        name: what the log calls it; the function's own name by default. Renaming it strands runs that asked for it.
        attempts: how often it is tried in all, before `StepFailed` is raised in the body.
        timeout: seconds (or a timedelta) one attempt may take.
        backoff: how long to wait between attempts; its own `attempts` don't count here.
    """

    def decorate(fn: Callable[..., Any]) -> Step[Any, Any]:
        if isinstance(fn, Step):
            raise TypeError(f"{fn!r} is a step already")
        limit = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
        return Step(
            fn,
            StepOptions(
                name=name or _own_name(fn, local=True), attempts=attempts, timeout=limit, backoff=backoff or RetryPolicy()
            ),
        )

    return decorate if fn is None else decorate(fn)


def step_of(fn: Callable[..., Any]) -> tuple[Callable[..., Any], StepOptions]:
    """Return the function to run and its options, for a decorated or a plain function.

    Raises:
        TypeError: it is not callable, or has no name of its own (lambdas, local functions, partials).
    """
    if isinstance(fn, Step):
        return fn.fn, fn.options
    if isinstance(fn, Workflow):
        raise TypeError(f"{fn.name} is a workflow; start it by ctx.child(...)")
    if not callable(fn):
        raise TypeError(
            f"ctx.step takes a function and its arguments, not {type(fn).__name__}; write ctx.step(fn, x), not ctx.step(fn(x))"
        )
    return fn, StepOptions(name=_own_name(fn, local=False))


def _own_name(fn: Callable[..., Any], *, local: bool) -> str:
    name = getattr(fn, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>" or (not local and "<locals>" in getattr(fn, "__qualname__", "")):
        raise TypeError(f"{fn!r} has no lasting name for the log; give it one: step(fn, name=...)")
    return name


@overload
def workflow(fn: Callable[..., Any], /) -> Workflow: ...
@overload
def workflow(*, name: str | None = ...) -> Callable[[Callable[..., Any]], Workflow]: ...
def workflow(fn: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Declare a workflow: `async def f(ctx: WorkflowContext, ...)`.

    Its name is what runs remember: renaming the function without `name=` strands them.

    Raises:
        TypeError: the function is not async, or its first parameter is not `ctx`.
        Unstorable: its name can't be kept.
    """

    def decorate(fn: Callable[..., Any]) -> Workflow:
        if isinstance(fn, Workflow):
            raise TypeError(f"{fn.name} is a workflow already")
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(f"a workflow is an async function: write `async def {getattr(fn, '__name__', 'f')}(ctx, ...)`")
        _check_context(fn)
        return Workflow(check_key(name or _own_name(fn, local=True), "the name of a workflow"), fn)

    return decorate if fn is None else decorate(fn)


def _check_context(fn: Callable[..., Any]) -> None:
    first = next(iter(inspect.signature(fn).parameters.values()), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise TypeError(f"the first parameter of workflow {fn.__name__} must be `ctx: WorkflowContext`")
    said = first.annotation if isinstance(first.annotation, str) else getattr(first.annotation, "__name__", "")
    if first.name != "ctx" and not said.endswith("WorkflowContext"):
        raise TypeError(f"the first parameter of workflow {fn.__name__} must be `ctx: WorkflowContext`, not {first.name!r}")


class Registry:
    """The workflows of one app, by name."""

    __slots__ = ("_by_name",)

    def __init__(self, workflows: Iterable[Workflow] = ()) -> None:
        self._by_name: dict[str, Workflow] = {}
        for one in workflows:
            if self._by_name.setdefault(one.name, one) is not one:
                raise WorkflowNameTaken(one.name)

    def __iter__(self) -> Iterator[Workflow]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Workflow:
        found = self._by_name.get(name)
        if found is None:
            raise UnknownWorkflow(name, self._by_name)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(sorted(self._by_name))

    @property
    def fingerprint(self) -> str:
        """What `fingerprint` says of them."""
        return fingerprint(self)


def fingerprint(workflows: Iterable[Workflow]) -> str:
    """Return a text that changes when code changes that a body may run, or the minor version of Python (CORE, Replay 2).

    It reads the source files of the workflows' modules and of what they use from the same top-level package; where
    there is no file, the body's compiled code. A change of a mere comment changes it too, which costs one more try at
    replaying a stranded run.
    """
    digest = sha256(f"python {sys.version_info[0]}.{sys.version_info[1]}".encode())
    seen: dict[str, bytes] = {}
    for one in sorted(workflows, key=lambda one: one.name):
        digest.update(f"\0{one.name}\0".encode())
        home = sys.modules.get(one.fn.__module__)
        if home is None or _source(home) is None:
            digest.update(_compiled(one.fn.__code__))
        if home is not None:
            _read(home, seen)
    for name in sorted(seen):
        digest.update(f"\0{name}\0".encode() + seen[name])
    return digest.hexdigest()[:16]


def _read(module: ModuleType, seen: dict[str, bytes]) -> None:
    top = module.__name__.partition(".")[0]
    waiting = [module]
    while waiting:
        one = waiting.pop()
        if one.__name__ in seen:
            continue
        seen[one.__name__] = _source(one) or b""
        for value in list(vars(one).values()):
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(name, str) and name.partition(".")[0] == top and (found := sys.modules.get(name)) is not None:
                waiting.append(found)


def _source(module: ModuleType) -> bytes | None:
    path = getattr(module, "__file__", None)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def _compiled(code: CodeType) -> bytes:
    consts = [_compiled(one).hex() if isinstance(one, CodeType) else _steady(one) for one in code.co_consts]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, consts)).encode()


def _steady(value: object) -> str:
    """Write a constant; a frozen set's order differs from process to process."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def takes_loop(fn: Callable[..., Any]) -> bool:
    """Return whether a step's function runs on the loop; the others run in a thread."""
    return asyncio.iscoroutinefunction(fn) or asyncio.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
