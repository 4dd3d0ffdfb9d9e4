"""What is stored comes back equal and of the same types, or was refused with its path."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durable_core.codec import LIMIT, MAX_DEPTH, MOST, decode, encode, read_json, size_of, unstamped
from durable_core.errors import Broken, TooLarge, Unstorable

if TYPE_CHECKING:
    from collections.abc import Callable

Shade = StrEnum("Shade", ["DARK"])
Pair = namedtuple("Pair", ["one", "two"])  # noqa: PYI024 - the kind that is refused


@dataclass(frozen=True)
class Point:
    x: int


class Loud(str):
    __slots__ = ()


OFFSETS = st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
TEXT = st.text()  # hypothesis leaves surrogates out
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=st.none() | st.just(UTC) | OFFSETS),
    st.dates(),
    st.uuids(),
    st.binary(),
)
KEYS = TEXT | st.sampled_from(["$t", "v", "$T", "$t "])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner), max_leaves=30
)


def shape(value: object) -> object:
    """Return the types of a value, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [shape(item) for item in value]
    if isinstance(value, float | Decimal):
        return type(value), str(value)  # -0.0, and the zeros at the end of a Decimal
    return type(value)


def tagged(tag: object, value: object) -> bytes:
    return b"\x01" + json.dumps({"$t": tag, "v": value}).encode()


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


class TestRoundTrip:
    @settings(suppress_health_check=[HealthCheck.too_slow], max_examples=400)
    @given(VALUES)
    def test_every_type_comes_back(self, value: Any) -> None:
        again = decode(encode(value))
        assert again == value
        assert shape(again) == shape(value)

    @given(VALUES)
    def test_storing_twice_writes_the_same_bytes(self, value: Any) -> None:
        assert encode(decode(encode(value))) == encode(value)

    @given(VALUES)
    def test_a_value_is_not_touched_by_storing_it(self, value: Any) -> None:
        before = repr(value)
        encode(value)
        assert repr(value) == before

    @pytest.mark.parametrize(
        "value", [2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**5000, -(10**5000)], ids=lambda value: hex(value)[:20]
    )
    def test_integers_of_any_size_stay_integers(self, value: int) -> None:
        again = decode(encode([value]))
        assert isinstance(again, list)
        assert type(again[0]) is int
        assert again[0] - value == 0

    @pytest.mark.parametrize(
        "value",
        [
            {"$t": "decimal", "v": "1.20"},
            {"$t": {"$t": {"$t": 1}}},
            {"$t": "dict", "v": {"$t": "dict", "v": {}}},
            {"$t": None},
            {"$t": Decimal("1.20"), "v": [{"$t": b"x"}]},
        ],
    )
    def test_data_that_looks_like_a_tag_is_data(self, value: Any) -> None:
        assert decode(encode(value)) == value
        assert decode(encode({"in": [value, (value,)]})) == {"in": [value, (value,)]}

    def test_the_order_of_keys_is_kept(self) -> None:
        again = decode(encode({"b": 1, "a": Decimal(2), "$t": 3}))
        assert isinstance(again, dict)
        assert list(again) == ["b", "a", "$t"]


class TestFormat:
    def test_plain_json_is_readable_as_it_stands(self) -> None:
        assert unstamped(encode({"a": [1, None]})) == b'\x01{"a":[1,null]}'
        assert unstamped(encode(Decimal("1.20"))) == b'\x01{"$t":"decimal","v":"1.20"}'
        assert unstamped(encode(2**64)) == b'\x01{"$t":"int","v":"0x10000000000000000"}'
        assert unstamped(encode({"$t": 1})) == b'\x01{"$t":"dict","v":{"$t":1}}'

    def test_long_values_are_compressed_where_that_makes_them_smaller(self) -> None:
        assert unstamped(encode("a" * 2000))[0] == 2
        assert len(encode("a" * 2000)) < 100
        assert unstamped(encode("a" * 400))[0] == 1
        noise = UUID(int=0).hex.join(str(UUID(int=n**9 % 2**128)) for n in range(3, 40))
        assert decode(encode(noise)) == noise


class TestUnstorable:
    @pytest.mark.parametrize(
        ("value", "path", "type_name"),
        [
            (object(), "$", "object"),
            ({"items": [1, {"amount": {1}}]}, "$.items[1].amount", "set"),
            ({"a b": {'q"': frozenset()}}, '$["a b"]["q\\""]', "frozenset"),
            ([1, (2, [float("nan")])], "$[1][1][0]", "float nan"),
            ({"x": float("-inf")}, "$.x", "float -inf"),
            ([Decimal("NaN")], "$[0]", "Decimal NaN"),
            ([Decimal("sNaN")], "$[0]", "Decimal sNaN"),
            ({"x": Decimal("Infinity")}, "$.x", "Decimal Infinity"),
            ({"a": {1: 2}}, "$.a", "a key of type int"),
            ({"a": {Shade.DARK: 2}}, "$.a", "a key of type Shade"),
            ([Shade.DARK], "$[0]", f"{__name__}.Shade"),
            ([Loud("a")], "$[0]", f"{__name__}.Loud"),
            ([Point(1)], "$[0]", f"{__name__}.Point"),
            ([Pair(1, 2)], "$[0]", f"{__name__}.Pair"),
            ([OrderedDict()], "$[0]", "collections.OrderedDict"),
            ([bytearray()], "$[0]", "bytearray"),
            (
                [datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1)))],
                "$[0]",
                "datetime with a fraction of a second in its offset",
            ),
            ([timedelta()], "$[0]", "datetime.timedelta"),
            ([datetime(2026, 1, 1, tzinfo=UTC).timetz()], "$[0]", "datetime.time"),
            ({"a": ["ok", "\ud800"]}, "$.a[1]", "str with a lone surrogate"),
            ({"a": ({"$t": "\udfff"},)}, '$.a[0]["$t"]', "str with a lone surrogate"),
            ({"a": {"\udc00": 1}}, '$.a["\\udc00"]', "str with a lone surrogate"),
        ],
    )
    def test_the_error_says_what_and_where(self, value: Any, path: str, type_name: str) -> None:
        with pytest.raises(Unstorable) as caught:
            encode(value)
        assert caught.value.type_name == type_name
        assert caught.value.path == path
        str(caught.value).encode()  # can be logged and sent

    def test_a_cycle_is_an_error_not_a_crash(self) -> None:
        ring: list[Any] = []
        ring.append(ring)
        with pytest.raises(Unstorable, match="deeper than 200") as caught:
            encode(ring)
        assert caught.value.path == "$" + "[0]" * 6 + "…" + "[0]" * 6
        loop: dict[str, Any] = {}
        loop["again"] = (loop,)
        with pytest.raises(Unstorable, match="deeper than 200"):
            encode(loop)

    @pytest.mark.parametrize(
        ("wrap", "cost"),
        [(lambda v: [v], 1), (lambda v: {"k": v}, 1), (lambda v: (v,), 2), (lambda v: {"$t": v}, 2)],
        ids=["list", "dict", "tuple", "escaped dict"],
    )
    def test_nesting_has_a_bound_and_up_to_it_all_comes_back(self, wrap: Callable[[Any], Any], cost: int) -> None:
        deepest = nested(MAX_DEPTH // cost, wrap)
        assert decode(encode(deepest)) == deepest
        marked = [nested((MAX_DEPTH - 2) // cost, wrap), b"x"]  # a tag, so that decoding walks the value
        assert decode(encode(marked)) == marked
        with pytest.raises(Unstorable, match="deeper"):
            encode(nested(MAX_DEPTH // cost + 1, wrap))


class TestSize:
    def test_a_value_over_the_limit_is_refused_by_its_size_before_compression(self) -> None:
        assert decode(encode("a" * 98, limit=100)) == "a" * 98
        with pytest.raises(TooLarge) as caught:
            encode("a" * 99, limit=100)
        assert (caught.value.size, caught.value.limit) == (101, 100)

    def test_size_is_what_the_limit_counts(self) -> None:
        assert size_of("a" * 98) == 100
        with pytest.raises(Unstorable):
            size_of("\ud800")

    def test_what_is_put_together_of_values_at_the_limit_is_read(self) -> None:
        together = encode(["a" * (LIMIT - 10)] * 3, limit=MOST)
        value = decode(together)
        assert isinstance(value, list)
        assert len(value) == 3
        with pytest.raises(TooLarge):
            encode(["a" * (LIMIT - 10)] * 3)

    def test_a_decompression_bomb_is_refused_before_it_is_expanded(self) -> None:
        bomb = b"\x02" + zstandard.ZstdCompressor(level=1).compress(b" " * (MOST + 1))
        assert len(bomb) < 20_000
        with pytest.raises(TooLarge) as caught:
            decode(bomb)
        assert caught.value.size == MOST + 1

    def test_a_bomb_that_hides_its_size_is_refused(self) -> None:
        bomb = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(b" " * 1_000_000)
        with pytest.raises(Broken, match="without its size"):
            decode(b"\x02" + bomb)

    def test_a_bomb_that_lies_about_its_size_is_refused(self) -> None:
        honest = zstandard.ZstdCompressor(level=1).compress(b" " * 100_000)
        place = honest.index((100_000).to_bytes(4, "little"))
        for lie in (0, 1, 600):
            liar = honest[:place] + lie.to_bytes(4, "little") + honest[place + 4 :]
            assert zstandard.frame_content_size(liar) == lie
            with pytest.raises(Broken):
                decode(b"\x02" + liar)

    def test_plain_json_over_the_limit_is_refused(self) -> None:
        with pytest.raises(TooLarge):
            decode(b'\x01"' + b"a" * 100 + b'"', limit=100)


class TestCorrupt:
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\x00{}",
            b"\x03{}",
            b"{}",
            b"\x01",
            b"\x01{",
            b"\x01NaN",
            b'\x01"\xff"',
            b"\x02",
            b"\x02{}",
            encode("a" * 2000)[:-1],
            encode("a" * 2000) + b"x",
            b"\x01" + b"[" * 900 + b'"$t"' + b"]" * 900,
            b"\x01" + b"[" * 5000 + b"]" * 5000,
            b'\x01{"$t":"int"}',
            b'\x01{"$t":"int","v":"1","w":1}',
            tagged("int", "one"),
            tagged("int", 1),
            tagged("int", [1]),
            tagged("decimal", "1,2"),
            tagged("decimal", {}),
            tagged("decimal", [0, [1], 99]),
            tagged("datetime", "yesterday"),
            tagged("date", 5),
            tagged("uuid", "x"),
            tagged("uuid", 7),
            tagged("bytes", "a"),
            tagged("bytes", "Zg==!"),
            tagged("bytes", "é"),
            tagged("dict", []),
            tagged("dict", "x"),
            tagged("tuple", {}),
            tagged("tuple", "ab"),
            tagged("set", []),
            tagged(None, 1),
            tagged([1], 1),
            tagged({}, 1),
        ],
    )
    def test_bytes_that_were_not_written_by_us_are_broken(self, data: bytes) -> None:
        with pytest.raises(Broken):
            decode(data)

    @given(st.builds(bytes.__add__, st.sampled_from([b"", b"\x01", b"\x02", b"\x03\x02\x01", b"\x03\x02\x02"]), st.binary()))
    def test_any_bytes_decode_or_fail_by_name(self, data: bytes) -> None:
        with suppress(Broken, TooLarge):
            decode(data)

    @given(VALUES, st.data())
    def test_a_flipped_byte_decodes_or_fails_by_name(self, value: Any, data: st.DataObject) -> None:
        stored = bytearray(encode(value))
        place = data.draw(st.integers(0, len(stored) - 1))
        stored[place] ^= data.draw(st.integers(1, 255))
        with suppress(Broken, TooLarge):
            decode(bytes(stored))

    def test_a_dates_own_type_is_kept(self) -> None:
        assert type(decode(encode(date(2026, 1, 1)))) is date


class TestOthersJson:
    @pytest.mark.parametrize("number", [2**64 - 1, 2**64, -(2**63) - 1, 10**40, 1.5, 12345678901234567890.5])
    def test_a_number_is_what_it_says(self, number: float) -> None:
        read = read_json(f'{{"n": [{number}], "text": "{number}"}}'.encode())
        assert read == {"n": [number], "text": str(number)}
        assert type(read["n"][0]) is type(number)

    @pytest.mark.parametrize(
        "text", [b"", b"NaN", b"9" * 5_000, b'"\xff"', b"[" * 1_000 + b"1" * 20 + b"]" * 1_000, b'{"a": 12345678901234567890']
    )
    def test_what_is_none_or_too_much_is_a_value_error(self, text: bytes) -> None:
        with pytest.raises(ValueError):
            read_json(text)
