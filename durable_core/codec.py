"""Codec: values to bytes and back, as typed JSON behind one format byte.

What lives here: which values can be stored and how they are written. What does not: encryption, and models of any kind.
"""

from __future__ import annotations

import json
import math
import re
import threading
from base64 import b64decode, b64encode
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

import orjson
import zstandard

from durable_core import versions
from durable_core.errors import Broken, TooLarge, Unstorable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Leaf: TypeAlias = bool | int | float | str | Decimal | datetime | date | UUID | bytes | None
JsonValue: TypeAlias = "_Leaf | list[JsonValue] | tuple[JsonValue, ...] | dict[str, JsonValue]"
"""What `decode` returns: exactly these types, never a subclass."""
Storable: TypeAlias = "_Leaf | Sequence[Storable] | Mapping[str, Storable]"
"""What `encode` takes; the same values, typed so that a `dict[str, str]` passes."""

LIMIT: Final = 16 * 1024 * 1024
"""Largest value that comes in, in bytes of JSON, before compression."""
MOST: Final = 4 * LIMIT
"""Largest value that is put together of such ones, and so the largest that is read."""
MAX_DEPTH: Final = 200
"""Deepest nesting; a tuple, and a dict with a key `$t`, count twice."""

_PLAIN: Final = 0x01
_ZSTD: Final = 0x02
_STAMPED: Final = 0x03
_STAMP: Final = 2
_COMPRESS_ABOVE: Final = 512
_TAG: Final = "$t"
_MIN_INT: Final = -(2**63)  # beyond these orjson refuses to write and reads a float
_MAX_INT: Final = 2**64 - 1
_SHOWN_KEYS: Final = 12
_KEY_BYTES: Final = 1_000
"""Longest name that is looked up: an entry of an index holds 2.7 KB on PostgreSQL, and two of them."""
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")


class _Refused(Exception):
    """Carry why a value can't be stored; keys are gathered while it rises."""

    def __init__(self, type_name: str) -> None:
        super().__init__(type_name)
        self.type_name = type_name
        self.keys: list[str | int] = []


def encode(value: Storable, *, limit: int = LIMIT, written: int | None = None) -> bytes:
    """Return `value` as bytes that `decode` gives back equal and of the same types.

    JSON types stand as they are; Decimal, datetime, date, UUID, bytes, tuple and ints beyond 64 bits become
    `{"$t": type, "v": …}`; a dict that has a key `$t` itself is wrapped as `{"$t": "dict", "v": …}`. Subclasses
    (enums, models, named tuples) are refused, since they would come back as something else. Order of keys is kept.
    From the second format on, the bytes say in which one they were written (`written_by`): this code's, unless the value was read
    in another, not brought up, and is put back.

    Raises:
        Unstorable: a value of another type, NaN or an infinity, a key that is no str, text with a lone surrogate,
            nesting beyond `MAX_DEPTH` (a cycle is that); the path says where.
        TooLarge: more than `limit` bytes of JSON.
    """
    return _squeezed(_written(value), limit, written)


def encode_own(value: Storable, *, limit: int = LIMIT) -> tuple[bytes, JsonValue]:
    """Return what `encode` does, and what `decode` makes of that: the bytes needn't be expanded for it."""
    text = _written(value)
    return _squeezed(text, limit, None), _read(text)


def written_by(data: bytes) -> int:
    """Return the format (`versions`) in which a value was written; one without a stamp is of the first."""
    return data[1] if len(data) > _STAMP and data[0] == _STAMPED else versions.FIRST_SPEC


def unstamped(data: bytes) -> bytes:
    """Return the bytes without their stamp: equal values of two formats are equal again."""
    return data[_STAMP:] if len(data) > _STAMP and data[0] == _STAMPED else data


def check_name(name: str, what: str) -> str:
    """Return a name that is kept as text of its own, where every database can. Raises: Unstorable."""
    if "\0" in name or not (name.isascii() or _lone_surrogate(name) is None):
        raise Unstorable(what, "str with a NUL or a lone surrogate")
    return name


def check_key(name: str, what: str) -> str:
    """Return a name that is also looked up by, where every database can. Raises: Unstorable."""
    size = len(check_name(name, what).encode())
    if size > _KEY_BYTES:
        raise Unstorable(what, f"str of {size} bytes, which is over {_KEY_BYTES},")
    return name


def read_json(text: bytes) -> Any:
    """Read JSON that somebody else wrote; integers past 64 bits, of which orjson makes floats, stay what they are.

    Raises:
        ValueError: it is none.
    """
    value = orjson.loads(text)
    if not _LONG_NUMBER.search(text):
        return value
    try:
        return json.loads(text.decode())
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def size_of(value: Storable) -> int:
    """Return how many bytes of JSON a value comes to: what limits count. Raises: Unstorable."""
    return len(_written(value))


def decode(data: bytes, *, limit: int = MOST) -> JsonValue:
    """Return the value that `encode` wrote, in whatever format (`versions`) that was; it is not brought up.

    Raises:
        Broken: these are not bytes that `encode` wrote.
        TooLarge: the value says it is over `limit` bytes of JSON; it was not expanded.
    """
    if not data:
        raise Broken("stored value is empty")
    data = unstamped(data)
    if data[0] == _PLAIN:
        text = data[1:]
        if len(text) > limit:
            raise TooLarge(len(text), limit)
    elif data[0] == _ZSTD:
        text = _expand(data[1:], limit)
    else:
        raise Broken(f"stored value has the unknown format {data[0]:#04x}")
    return _read(text)


def _read(text: bytes) -> JsonValue:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Broken(f"stored value is not JSON: {error.msg} at byte {error.pos}") from None
    if b'"$t"' not in text:
        return cast("JsonValue", value)
    try:
        return _unpack(value, 0)
    except (ValueError, InvalidOperation):
        raise Broken("stored value has a tag whose content can't be read") from None


def _squeezed(text: bytes, limit: int, written: int | None) -> bytes:
    if len(text) > limit:
        raise TooLarge(len(text), limit)
    if len(text) > _COMPRESS_ABOVE:
        squeezed = _ZSTD_OF_THREAD.compressor.compress(text)
        if len(squeezed) < len(text):
            return _stamp(written) + b"\x02" + squeezed
    return _stamp(written) + b"\x01" + text


def _stamp(written: int | None) -> bytes:
    spec = versions.CURRENT_SPEC if written is None else written
    return b"" if spec == versions.FIRST_SPEC else bytes((_STAMPED, spec))


class _ThreadZstd(threading.local):
    """Hold a thread's zstd contexts: they cost more to make than to use, and must not be shared between threads."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=1)
        self.decompressor = zstandard.ZstdDecompressor()


_ZSTD_OF_THREAD: Final = _ThreadZstd()


def _expand(data: bytes, limit: int) -> bytes:
    """Expand one zstd frame that says its size; what says too much is refused before memory is taken for it."""
    try:
        size = zstandard.frame_content_size(data)
        if size < 0:
            raise Broken("stored value is compressed without its size")
        if size > limit:
            raise TooLarge(size, limit)
        return _ZSTD_OF_THREAD.decompressor.decompress(data, allow_extra_data=False)  # never more than `size`
    except zstandard.ZstdError as error:
        raise Broken(f"stored value can't be expanded: {error}") from None


def _written(value: Storable) -> bytes:
    """Write a value as JSON with its tags."""
    try:
        return orjson.dumps(_pack(value, 0))
    except _Refused as refused:
        raise Unstorable(_path(refused.keys), refused.type_name) from None
    except orjson.JSONEncodeError:
        keys = _lone_surrogate(value)
        if keys is None:
            raise
        raise Unstorable(_path(keys), "str with a lone surrogate") from None


def _pack(value: object, depth: int) -> object:
    """Return what orjson is to write: `value` itself where nothing in it needs a tag."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is dict:
        return _pack_dict(cast("dict[object, object]", value), depth)
    if kind is list:
        return _pack_list(cast("list[object]", value), depth)
    if kind is tuple:
        return _tagged("tuple", _pack_list(list(cast("tuple[object, ...]", value)), depth + 1))
    if kind is int:
        return value if _MIN_INT <= cast("int", value) <= _MAX_INT else _tagged("int", hex(cast("int", value)))
    if kind is float:
        if math.isfinite(cast("float", value)):
            return value
        raise _Refused(f"float {value}")
    return _pack_scalar(value)


def _pack_scalar(value: object) -> object:
    kind = type(value)
    if kind is Decimal:
        if cast("Decimal", value).is_finite():
            return _tagged("decimal", str(value))
        raise _Refused(f"Decimal {value}")
    if kind is datetime:
        offset = cast("datetime", value).utcoffset()
        if offset is not None and offset.microseconds:  # datetime.fromisoformat reads +00:00:00.000001 as UTC
            raise _Refused("datetime with a fraction of a second in its offset")
        return _tagged("datetime", cast("datetime", value).isoformat())
    if kind is date:
        return _tagged("date", cast("date", value).isoformat())
    if kind is UUID:
        return _tagged("uuid", str(value))
    if kind is bytes:
        return _tagged("bytes", b64encode(cast("bytes", value)).decode("ascii"))
    raise _Refused(kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}")


def _pack_dict(value: dict[object, object], depth: int) -> object:
    if depth >= MAX_DEPTH:
        raise _Refused(f"dict nested deeper than {MAX_DEPTH} levels")
    escaped = _TAG in value
    inner = depth + 1 + escaped
    packed = value
    key: object = None
    try:
        for key, item in value.items():
            if type(key) is not str:
                raise _Refused(f"a key of type {type(key).__qualname__}")  # noqa: TRY301 - the path is added below
            kind = type(item)
            if kind is str or kind is bool or item is None:
                continue
            stored = _pack(item, inner)
            if stored is not item:
                if packed is value:
                    packed = value.copy()
                packed[key] = stored
    except _Refused as refused:
        if type(key) is str:
            refused.keys.append(key)
        raise
    return _tagged("dict", packed) if escaped else packed


def _pack_list(value: list[object], depth: int) -> list[object]:
    if depth >= MAX_DEPTH:
        raise _Refused(f"list nested deeper than {MAX_DEPTH} levels")
    packed = value
    index = 0
    try:
        for index, item in enumerate(value):
            kind = type(item)
            if kind is str or kind is bool or item is None:
                continue
            stored = _pack(item, depth + 1)
            if stored is not item:
                if packed is value:
                    packed = value.copy()
                packed[index] = stored
    except _Refused as refused:
        refused.keys.append(index)
        raise
    return packed


def _tagged(kind: str, value: object) -> dict[str, object]:
    return {_TAG: kind, "v": value}


def _unpack(value: Any, depth: int) -> JsonValue:
    if depth > MAX_DEPTH:
        raise Broken(f"stored value is nested deeper than {MAX_DEPTH} levels")
    if type(value) is dict:
        if _TAG in value:
            return _untag(value, depth)
        return {key: _unpack(item, depth + 1) for key, item in value.items()}
    if type(value) is list:
        return [_unpack(item, depth + 1) for item in value]
    return cast("JsonValue", value)


def _untag(tagged: dict[str, Any], depth: int) -> JsonValue:
    kind, value = tagged[_TAG], tagged.get("v")
    if len(tagged) != 2 or value is None:
        raise Broken("stored value has a tag without its content")
    if kind == "dict" and type(value) is dict:
        return {key: _unpack(item, depth + 2) for key, item in value.items()}
    if kind == "tuple" and type(value) is list:
        return tuple(_unpack(item, depth + 2) for item in value)
    if type(kind) is not str or type(value) is not str:
        raise Broken("stored value has a tag whose content can't be read")
    return _from_text(kind, value)


def _from_text(kind: str, text: str) -> JsonValue:
    match kind:
        case "int":
            return int(text, 16)  # hex: it has no limit of digits, and long ones cost no more than their length
        case "decimal":
            return Decimal(text)
        case "datetime":
            return datetime.fromisoformat(text)
        case "date":
            return date.fromisoformat(text)
        case "uuid":
            return UUID(text)
        case "bytes":
            return b64decode(text, validate=True)
        case _:
            raise Broken(f"stored value has the unknown tag {kind[:40]!r}")


def _lone_surrogate(value: object) -> list[str | int] | None:
    """Return the keys, innermost first, to a text that UTF-8 can't write; None if there is none."""
    if type(value) is str:
        return [] if any("\ud800" <= character <= "\udfff" for character in value) else None
    items: list[tuple[str | int, object]] = []
    if type(value) is dict:
        items = list(value.items())
    elif type(value) in (list, tuple):
        items = list(enumerate(cast("Sequence[object]", value)))
    for key, item in items:
        found = [] if _lone_surrogate(key) is not None else _lone_surrogate(item)
        if found is not None:
            return [*found, key]
    return None


def _path(keys: list[str | int]) -> str:
    """Write keys, innermost first, as a path such as `$.items[3].amount`; the middle of a very long one is left out."""
    steps = [_step(key) for key in reversed(keys)]
    if len(steps) > _SHOWN_KEYS:
        steps = [*steps[: _SHOWN_KEYS // 2], "…", *steps[-_SHOWN_KEYS // 2 :]]
    return "$" + "".join(steps)


def _step(key: str | int) -> str:
    if type(key) is int:
        return f"[{key}]"
    name = str(key)
    return f".{name}" if name.isidentifier() else f"[{json.dumps(name[:60])}]"
