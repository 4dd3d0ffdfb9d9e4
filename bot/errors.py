"""Errors of the bot package, one tree.

What lives here: every exception this package raises on purpose. What does not: errors of channels, the core or providers.

BotError
├── BadTool        a tool can't be offered: its signature, its approval or its name is wrong
├── BadArguments   arguments that don't fit a tool's schema
├── BadHistory     a history item that can't be read, or calls and results that don't pair up
├── BadModel       a model's name that means nothing here
├── ModelFailed    a model call failed; says whether another attempt may help
├── BadApp         the bot can't start as it was put together; every problem at once
├── Problem        a call of the session API is refused, with what to tell the caller
├── BadSettings    the environment is not usable; every problem at once
├── VariableMissing  a variable of the environment that an author's code names isn't set
├── Unauthorized … with what else accounts elsewhere can meet: see bot/connections/errors.py
└── NotReady       a command can't do its work here; one sentence says why
"""

from __future__ import annotations

from typing import ClassVar, Final

from bot.redact import redact

MESSAGE_LIMIT: Final = 2_000


class BotError(Exception):
    """Root of everything this package raises on purpose."""

    retryable: ClassVar[bool] = False


class BadTool(BotError):
    """A tool that can't be offered to a model; raised while the author's module loads."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"tool {name!r}: {problem}")
        self.name = name
        self.problem = problem


class BadArguments(BotError):
    """Arguments that don't fit the tool's schema; each error names the argument and never repeats its value."""

    def __init__(self, tool: str, errors: tuple[str, ...]) -> None:
        super().__init__(f"{tool} was not run: its arguments are not valid. {'; '.join(errors)}")
        self.tool = tool
        self.errors = errors


class BadHistory(BotError):
    """A history that can't be read or doesn't hold together."""

    def __init__(self, problem: str, position: int | None = None) -> None:
        super().__init__(problem if position is None else f"history item {position}: {problem}")
        self.problem = problem
        self.position = position


class ModelFailed(BotError):
    """A model call failed.

    ``retryable`` (here an attribute of the instance) says whether the same call may succeed later; ``retry_after`` is what
    the provider asked for, in seconds. ``message`` is for the developer, with secrets taken out; ``code`` is stable.
    """

    def __init__(self, code: str, message: str, *, retryable: bool, retry_after: float | None = None) -> None:
        told = redact(message)[:MESSAGE_LIMIT]
        super().__init__(f"{code}: {told}")
        self.code = code
        self.message = told
        self.retryable = retryable  # type: ignore[misc]  # one class for both kinds: the provider decides, not the type
        self.retry_after = retry_after


class BadModel(BotError):
    """A model's name that means nothing here."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"model {name!r}: {problem}")
        self.name = name
        self.problem = problem


class BadApp(BotError):
    """A bot that can't start as it was put together; one sentence a problem."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Problem(BotError):
    """A call of the session API that is refused.

    ``message`` is for the caller and says what to do; ``code`` is stable; ``status`` is the HTTP status. ``retryable`` (here
    an attribute of the instance) says whether the same call may succeed later, and ``retry_after`` in how many seconds.
    """

    def __init__(self, status: int, code: str, message: str, *, retryable: bool = False, retry_after: int = 1) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.retryable = retryable  # type: ignore[misc]  # the case decides, not the type
        self.retry_after = retry_after


class BadSettings(BotError):
    """Settings that can't be used; one sentence a problem, none repeats a secret."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class VariableMissing(BotError):
    """A variable of the environment that an author's code names isn't set."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the environment variable {name} is not set")
        self.name = name


class NotReady(BotError):
    """A command that can't do its work here and now; the sentence says why and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
