"""A function that a model may call.

What lives here: the ``@tool`` declaration, its schema, and one run of its body. What does not: gates, records and retries
around a call (turn.py), what a person is asked (approvals.py).
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final, Literal, overload

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import from_json, to_json

from bot import masks
from bot.approvals import Approval, ToolCall
from bot.bindings import binding
from bot.connections.connection import Need, OAuthConnection, needs_of
from bot.connections.errors import Unauthorized
from bot.context import ToolContext
from bot.display import show
from bot.edge import Threads, contained, wording
from bot.errors import BadArguments, BadTool
from bot.history import ResultStatus
from bot.model import ToolSpec
from bot.parameters import arguments_model
from bot.policies import When
from bot.principal import Principal

if typing.TYPE_CHECKING:
    from bot.turn.questions import Wait
    from durable_core.registry import Workflow

OUTPUT_LIMIT: Final = 256 * 1024
ERROR_LIMIT: Final = 4 * 1024
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class Effect(StrEnum):
    """Whether a tool changes anything outside."""

    READ = "read"
    WRITE = "write"


class Interrupt(StrEnum):
    """What happens to a call whose process died in its body."""

    RERUN = "rerun"
    ASK = "ask"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """How one run of a body ended. ``error`` is the exception's type, ``cut`` says that ``content`` isn't all of it.

    ``unauthorized`` is set where an account that the tool declares was refused.
    """

    status: ResultStatus
    content: JsonValue
    _: KW_ONLY
    error: str | None = None
    cut: bool = False
    unauthorized: Unauthorized | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A declared tool; made by ``@tool``, checked when it is.

    ``arguments`` validates what a model sends, ``schema`` is its JSON Schema.
    ``asks_after_untrusted`` says that a call waits for a person, whatever the policy says, once untrusted content was read.
    ``approval`` is None where it declares none: then an agent's holds.
    """

    name: str
    description: str
    function: Callable[..., Any] = field(repr=False)
    arguments: type[BaseModel] = field(repr=False)
    schema: Mapping[str, JsonValue] = field(repr=False)
    effect: Effect = Effect.WRITE
    approval: Approval | None = None
    idempotent: bool = False
    on_interrupt: Interrupt = Interrupt.ASK
    asks_after_untrusted: bool = True
    waits: Callable[[Mapping[str, Any]], Wait] | None = field(default=None, repr=False)
    """Of a tool whose calls wait for something in place of a run of its body: for what, given its arguments."""
    workflow: Workflow | None = field(default=None, repr=False)
    """Of a tool whose calls start a run of their own, what they start."""
    secret: tuple[str, ...] = ()
    """The parameters that hold something people don't get to see."""
    connections: tuple[Need, ...] = ()
    """The accounts that its body acts with: who asked signs in before it runs."""

    @property
    def acts_as_requester(self) -> bool:
        """Whether its body acts with an account of whoever asked, so that what it returns is theirs."""
        return any(need.connection.owner == "user" for need in self.connections)

    @property
    def spec(self) -> ToolSpec:
        """Return what a model is told of this tool."""
        return ToolSpec(self.name, self.description, schema=self.schema)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Name the arguments, in the order of the signature."""
        return tuple(info.alias or name for name, info in self.arguments.model_fields.items())

    def validate(self, arguments: Mapping[str, JsonValue] | str) -> dict[str, Any]:
        """Turn a model's JSON, parsed or not, into typed arguments with all defaults filled in.

        Raises:
            BadArguments: What is wrong, by argument, in words a model can act on.
        """
        return self._typed(self._valid(arguments))

    def call(self, arguments: Mapping[str, JsonValue] | str, call_id: str, *, requester: Principal) -> ToolCall:
        """Build the validated call that policies and cards look at.

        Raises:
            BadArguments: As ``validate``.
        """
        valid = self._valid(arguments)
        made = ToolCall(self.name, self._typed(valid), call_id=call_id, requester=requester)
        if not self.secret:
            return made
        shown = {name: show(value) for name, value in masks.hidden(valid).items()}
        return replace(made, shown=shown, secrets=masks.secrets(valid))

    def filled(self, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return arguments with those defaults, as they are now, that are made anew each time: what is shown is to run.

        Raises:
            BadArguments: As ``validate``.
        """
        fields = {info.alias or name: info for name, info in self.arguments.model_fields.items() if info.default_factory}
        missing = [name for name in fields if name not in arguments and name not in self.secret]
        if not missing:
            return arguments
        made = masks.whole(self._valid(arguments))
        full = {**arguments, **{name: made[name] for name in missing}}
        try:
            self._valid(full)
        except BadArguments:  # a default that JSON can't hold
            return arguments
        return full

    def shown(self, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return a model's arguments as people may see them; if they are not valid, none of those of a tool with secrets."""
        if not self.secret:
            return arguments
        try:
            return masks.masked(self._valid(arguments))
        except BadArguments:
            return masks.all_masked(arguments)

    def scrubbed(self, content: JsonValue, arguments: Mapping[str, JsonValue]) -> JsonValue:
        """Take secrets out of what a run gave back: an error may repeat them, and results are shown."""
        if not self.secret:
            return content
        try:
            return masks.without(content, masks.secrets(self._valid(arguments)))
        except BadArguments:
            return content

    def binding(self, arguments: Mapping[str, JsonValue]) -> str:
        """Digest what a yes to a call with these arguments is given to."""
        return binding(self.name, self.schema, arguments)

    def _typed(self, valid: BaseModel) -> dict[str, Any]:
        return {info.alias or name: getattr(valid, name) for name, info in self.arguments.model_fields.items()}

    def _valid(self, arguments: Mapping[str, JsonValue] | str) -> BaseModel:
        try:
            text = arguments if isinstance(arguments, str) else to_json(dict(arguments))
            return self.arguments.model_validate_json(text, strict=True)
        except ValidationError as error:
            raise BadArguments(self.name, tuple(_complaint(detail) for detail in _details(error))) from error
        except ValueError as error:  # what JSON can't hold: NaN, half a surrogate pair
            raise BadArguments(self.name, (str(error),)) from error
        except BaseException as error:  # a validator is the author's code, and may raise anything
            raise BadArguments(self.name, (wording(error),)) from error

    async def run(
        self, ctx: ToolContext[Any], arguments: Mapping[str, JsonValue] | str, *, threads: Threads | None = None
    ) -> ToolOutcome:
        """Validate, run the body once and turn what it returns into JSON; gates are not asked.

        Whatever the body raises becomes a failed outcome with its type and message; only a cancellation of this task goes
        through. A plain function runs in one of ``threads``, which a cancellation leaves running.
        """
        ended = await contained(self._body(ctx, arguments, threads if threads is not None else Threads()))
        if ended.error is not None or ended.result is None:
            error = ended.error or RuntimeError("no outcome")
            declared = isinstance(error, Unauthorized) and any(need.name == error.connection for need in self.connections)
            refused = error if isinstance(error, Unauthorized) and declared else None
            return ToolOutcome(ResultStatus.FAILED, _wording(error), error=type(error).__name__, unauthorized=refused)
        return ended.result

    async def _body(self, ctx: ToolContext[Any], arguments: Mapping[str, JsonValue] | str, threads: Threads) -> ToolOutcome:
        typed = self.validate(arguments)
        if inspect.iscoroutinefunction(self.function):
            return completed(self.name, await self.function(ctx, **typed))
        ended = await threads.run(partial(self.function, ctx, **typed))
        if ended.error is not None:
            raise ended.error
        result: Any = ended.result
        return completed(self.name, await result if inspect.isawaitable(result) else result)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    effect: Literal["read", "write"] = ...,
    approval: Approval | When | None = ...,
    idempotent: bool = ...,
    on_interrupt: Literal["rerun", "ask", "report"] | None = ...,
    untrusted: Literal["allow"] | None = ...,
    connections: Sequence[OAuthConnection | Need] = ...,
    name: str | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Literal["read", "write"] = "write",
    approval: Approval | When | None = None,
    idempotent: bool = False,
    on_interrupt: Literal["rerun", "ask", "report"] | None = None,
    untrusted: Literal["allow"] | None = None,
    connections: Sequence[OAuthConnection | Need] = (),
    name: str | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a function whose first parameter is a ``ToolContext`` as a tool; schema and description are read from it.

    Args:
        function: The body, async or plain.
        effect: ``read`` if running it changes nothing.
        approval: Who has to say yes first, and when: an ``Approval``, or what its ``when`` takes (``never``, ``once()``, a
            function of the call). Unset, what the agent says for its writes; else nobody is asked.
        idempotent: A second run with the same ``ctx.idempotency_key`` has no second effect.
        on_interrupt: What to do with a call that was interrupted: run again, ask a person, or report it as unknown.
            Unset, reads and idempotent writes run again and other writes ask.
        untrusted: ``allow`` lets a write run unasked after untrusted content was read.
        connections: The accounts that it acts with, each a connection or ``connection.scoped("…")``; ``ctx.http`` takes them.
        name: What models and records call it; the function's name if unset. Keep it when you rename the function.

    Raises:
        BadTool: The function can't be offered as declared.
    """

    def declare(body: Callable[..., Any]) -> Tool:
        own_name: str = name or getattr(body, "__name__", "") or repr(body)
        if not _NAME.fullmatch(own_name):
            raise BadTool(own_name, "the name must be 1 to 64 ASCII letters, digits, '_' or '-'")
        if inspect.isasyncgenfunction(body) or inspect.isgeneratorfunction(body):
            raise BadTool(own_name, "a generator has no result; return one value")
        read = arguments_model(own_name, body)
        gate = approval if approval is None or isinstance(approval, Approval) else Approval(when=approval)
        rerun = effect == "read" or idempotent
        made = Tool(
            name=own_name,
            description=read.description,
            function=body,
            arguments=read.model,
            schema=read.schema,
            effect=Effect(effect),
            approval=gate,
            idempotent=idempotent,
            on_interrupt=Interrupt(on_interrupt or ("rerun" if rerun else "ask")),
            asks_after_untrusted=effect == "write" and untrusted != "allow",
            secret=read.secret,
            connections=_needs(own_name, connections),
        )
        if gate and (problems := gate.problems(made.parameters, masked=made.secret)):
            raise BadTool(own_name, "; ".join(problems))
        return made

    return declare if function is None else declare(function)


def _needs(tool_name: str, given: Sequence[OAuthConnection | Need]) -> tuple[Need, ...]:
    """Check what a tool says it acts with. Raises: BadTool."""
    entries: tuple[object, ...] = (given,) if isinstance(given, OAuthConnection | Need) else tuple(given)
    for entry in entries:
        if not isinstance(entry, OAuthConnection | Need):
            raise BadTool(tool_name, f"connections= holds {type(entry).__name__}, which is no connection; see bot.oauth")
    needs = [Need.of(entry) for entry in entries if isinstance(entry, OAuthConnection | Need)]
    for one in needs:
        if any(one.name == other.name and one.connection != other.connection for other in needs):
            raise BadTool(tool_name, f"connections= holds two that are named {one.name!r}")
    return needs_of(needs)


def completed(name: str, result: object) -> ToolOutcome:
    """Turn what a body or a run returned into JSON of bounded size; a value that isn't JSON doesn't undo that the body ran."""
    try:
        encoded = to_json(result, inf_nan_mode="strings", bytes_mode="base64")
        content = from_json(encoded, allow_inf_nan=False)
    except Exception:  # noqa: BLE001 - the value's own serializer may raise anything
        if not isinstance(result, str):
            kind = type(result).__name__
            return ToolOutcome(ResultStatus.COMPLETED, f"{name} ran, but returned a {kind} that is not JSON.", error=kind)
        content = result.encode("utf-8", "replace").decode()
        encoded = content.encode()
    if len(encoded) <= OUTPUT_LIMIT:
        return ToolOutcome(ResultStatus.COMPLETED, content)
    plain = content.encode() if isinstance(content, str) else encoded
    return ToolOutcome(ResultStatus.COMPLETED, _cut(plain, OUTPUT_LIMIT), cut=True)


def _cut(encoded: bytes, limit: int) -> str:
    note = f"\n[cut: the first {limit} of {len(encoded)} bytes]"
    return encoded[:limit].decode("utf-8", "ignore") + note


def _wording(error: BaseException) -> str:
    text = str(error) if isinstance(error, BadArguments) else wording(error)
    encoded = text.encode("utf-8", "replace")
    return encoded.decode() if len(encoded) <= ERROR_LIMIT else _cut(encoded, ERROR_LIMIT)


def _details(error: ValidationError) -> list[Any]:
    return typing.cast("list[Any]", error.errors(include_url=False, include_input=False, include_context=False))


def _complaint(detail: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    return f"{where}: {detail['msg']}" if where else str(detail["msg"])
