"""Arguments that no card, event or answer of the API shows: the real value runs, people read a mask.

What lives here: the mark an author puts on a type, and arguments with it applied. What does not: where they are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue
from pydantic_core import CoreSchema, core_schema

MASK: Final = "•••"
_SHOWN: Final = "bot.masks.shown"
_MARK: Final = "writeOnly"
_PYDANTIC_MASK: Final = "**********"
_SHORTEST: Final = 4
"""Characters: what is shorter is not looked for in texts, where it would be found by chance."""


class Secret:
    """Mark a tool's argument, or a field of a model in it, as one that people don't get to see: ``Annotated[str, Secret]``.

    Cards, events, the HTTP API and question templates show ``•••``; the tool gets the value. The model wrote it, so it knows it.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Serialize as a mask where the values are to be shown; so it holds at any depth."""
        inner = handler(source)
        serialization = core_schema.wrap_serializer_function_ser_schema(_serialized, info_arg=True, schema=inner)
        return core_schema.no_info_after_validator_function(_same, inner, serialization=serialization)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Say it in JSON Schema's own word, as pydantic does for its `SecretStr`."""
        return {**handler(schema), _MARK: True}


def _same(value: Any) -> Any:
    return value


def _serialized(value: Any, handler: core_schema.SerializerFunctionWrapHandler, info: core_schema.SerializationInfo) -> Any:
    return MASK if info.context == _SHOWN else handler(value)


def unmarked(value: JsonValue) -> JsonValue:
    """Take the mark out of a JSON Schema: providers need not know the word."""
    if isinstance(value, list):
        return [unmarked(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {name: unmarked(part) for name, part in value.items() if not (name == _MARK and part is True)}


def marked(schema: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Name the parameters of a tool that hold something secret, at any depth, from their JSON Schema."""
    properties, defs = schema.get("properties"), schema.get("$defs")
    known = defs if isinstance(defs, dict) else {}
    return tuple(name for name, part in properties.items() if _marked(part, known, set())) if isinstance(properties, dict) else ()


def _marked(part: JsonValue, defs: Mapping[str, JsonValue], seen: set[str]) -> bool:
    if isinstance(part, list):
        return any(_marked(one, defs, seen) for one in part)
    if not isinstance(part, dict):
        return False
    ref = part.get("$ref")
    if isinstance(ref, str) and ref not in seen:
        seen.add(ref)
        if _marked(defs.get(ref.rpartition("/")[2]), defs, seen):
            return True
    return part.get(_MARK) is True or any(_marked(one, defs, seen) for one in part.values())


def masked(arguments: BaseModel) -> dict[str, JsonValue]:
    """Arguments as people may see them, as far as they were given; all of them masked if that can't be told."""
    return _dumped(arguments, given=True, context=_SHOWN)


def whole(arguments: BaseModel) -> dict[str, JsonValue]:
    """All arguments as they run, defaults too."""
    return _dumped(arguments)


def hidden(arguments: BaseModel) -> dict[str, JsonValue]:
    """The arguments that hold something secret, each with its mask in place."""
    return {name: value for name, value in _dumped(arguments, context=_SHOWN).items() if _holds_mask(value)}


def _holds_mask(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(_holds_mask(part) for part in value.values())
    if isinstance(value, list):
        return any(_holds_mask(part) for part in value)
    return value in (MASK, _PYDANTIC_MASK)


def secrets(arguments: BaseModel) -> tuple[str, ...]:
    """The secret texts themselves, to be taken out of words that an author's function made of them."""
    return tuple(_differing(_dumped(arguments, context=_SHOWN), _dumped(arguments)))


def scrubbed(text: str, found: tuple[str, ...]) -> str:
    """Put masks where a text repeats a secret."""
    for secret in sorted(found, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def without(value: JsonValue, found: tuple[str, ...]) -> JsonValue:
    """Take secrets out of every text of a value."""
    if isinstance(value, str):
        return scrubbed(value, found)
    if isinstance(value, list):
        return [without(part, found) for part in value]
    if isinstance(value, dict):
        return {scrubbed(name, found): without(part, found) for name, part in value.items()}
    return value


def all_masked(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Mask every value: these arguments fit no schema, so any of them may be the secret."""
    return dict.fromkeys(arguments, MASK)


def _dumped(arguments: BaseModel, *, given: bool = False, context: str | None = None) -> dict[str, JsonValue]:
    try:
        return arguments.model_dump(mode="json", by_alias=True, exclude_unset=given, context=context, warnings=False)
    except Exception:  # noqa: BLE001 - a serializer of the author's may raise anything; then nothing is shown
        names = (field.alias or name for name, field in type(arguments).model_fields.items())
        return dict.fromkeys(names, MASK)


def _differing(shown: JsonValue, real: JsonValue) -> Iterator[str]:
    if isinstance(shown, dict) and isinstance(real, dict):
        for name, value in real.items():
            yield from _differing(shown.get(name), value)
    elif isinstance(shown, list) and isinstance(real, list) and len(shown) == len(real):
        for one, other in zip(shown, real, strict=True):
            yield from _differing(one, other)
    elif shown != real:
        yield from _texts(real)


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif value is not None and len(str(value)) >= _SHORTEST:
        yield str(value)
