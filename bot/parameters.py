"""From a tool's signature to the model that validates its arguments.

What lives here: reading signature, annotations and docstring. What does not: the tool itself (tools.py).
"""

from __future__ import annotations

import inspect
import typing
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import PydanticJsonSchemaWarning
from pydantic_core import SchemaError

from bot.context import ToolContext
from bot.docstrings import describe
from bot.errors import BadTool
from bot.masks import marked, unmarked

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class Parameters(NamedTuple):
    """What a signature says: the description, the arguments model, its JSON Schema, and which parameters hold secrets."""

    description: str
    model: type[BaseModel]
    schema: dict[str, JsonValue]
    secret: tuple[str, ...]


def arguments_model(name: str, function: Callable[..., Any], *, context: type = ToolContext) -> Parameters:
    """Build the description, the arguments model and its JSON Schema; the first parameter is the ``context``.

    Fields are numbered and carry the parameter's name as alias: a parameter may be called ``schema`` or ``copy``, which a
    model's field may not.

    Raises:
        BadTool: The signature can't be offered.
    """
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadTool(
            name, f"an annotation can't be read: {error}; it must be importable at run time, at module level"
        ) from error
    except (TypeError, ValueError) as error:
        raise BadTool(name, f"its signature can't be read: {error}") from error
    description, texts = describe(function)
    first, *others = signature.parameters.values() or (None,)
    if first is None or not _is(hints.get(first.name), context):
        raise BadTool(name, f"its first parameter must be a {context.__name__}")
    fields = {f"arg{number}": _field(name, parameter, hints, texts) for number, parameter in enumerate(others)}
    unknown = sorted(set(texts) - {parameter.name for parameter in signature.parameters.values()})
    if unknown:
        raise BadTool(name, f"its docstring describes {', '.join(unknown)}, which it doesn't take")
    model, schema = _checked(name, fields)
    return Parameters(description, model, cast("dict[str, JsonValue]", unmarked(schema)), marked(schema))


def _is(hint: object, context: type) -> bool:
    return hint is context or typing.get_origin(hint) is context


def _field(name: str, parameter: inspect.Parameter, hints: dict[str, Any], texts: dict[str, str]) -> tuple[Any, FieldInfo]:
    if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        raise BadTool(name, f"parameter {parameter.name!r} must be an ordinary one, a model names its arguments")
    if parameter.name not in hints:
        raise BadTool(name, f"parameter {parameter.name!r} has no type")
    hint = hints[parameter.name]
    if _is(hint, ToolContext):
        raise BadTool(name, f"parameter {parameter.name!r} is a second ToolContext")
    default: Any = ... if parameter.default is inspect.Parameter.empty else parameter.default
    text = texts.get(parameter.name)
    described = any(isinstance(extra, FieldInfo) and extra.description for extra in getattr(hint, "__metadata__", ()))
    if described or text is None:  # a description passed as None would wipe out the annotation's own
        return hint, Field(default, alias=parameter.name)
    return hint, Field(default, alias=parameter.name, description=text)


def _checked(name: str, fields: dict[str, tuple[Any, FieldInfo]]) -> tuple[type[BaseModel], dict[str, JsonValue]]:
    """Build the model and its schema once, so that whatever can't work fails while the author's module loads."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PydanticJsonSchemaWarning)
            # mypy has no overload for fields by a dict of pairs.
            model: type[BaseModel] = create_model(name, __config__=_CONFIG, **fields)  # type: ignore[call-overload]
            schema: dict[str, JsonValue] = model.model_json_schema()
    except (PydanticUserError, PydanticJsonSchemaWarning, SchemaError, TypeError) as error:
        raise BadTool(name, f"no schema can be made of its parameters: {str(error).splitlines()[0]}") from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return model, schema
