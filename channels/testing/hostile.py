"""Hostile input: bodies and headers that nobody should send and somebody will.

What lives here: pure generators, the same every time. What does not: judging what an adapter does with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from channels.http import WebhookRequest

# What a value is replaced by: every JSON type, half a character, invisible and separating ones, and too much of it.
STRANGE: tuple[object, ...] = (
    None,
    True,
    -1,
    10**400,
    1.5,
    "",
    " ",
    "\x00",
    "\ud800",
    "a:b%3A/../\u202e\u200b",
    "bot",
    "x" * 70_000,
    [],
    [None],
    {},
    {"id": None},
)


def hostile_bodies(good: bytes) -> Iterator[bytes]:
    """Yield bodies: garbage, and the good one with each of its parts replaced, removed, cut or flipped."""
    yield from (b"", b"\x00", b"\xff\xfe\xfa", b"null", b"[]", b"{}", b"0", b'"text"', b"NaN", b"-", b"payload=%7B", b"a=b&a=c")
    yield from (b"[" * 50_000, b'{"a":' * 50_000, b"[" + b"9" * 10_000 + b"]", b'{"type":"message","type":"click"}')
    yield from (good[: len(good) * part // 8] for part in range(1, 8))
    yield from (good + b"\x00", b"\xef\xbb\xbf" + good, good.replace(b'"', b"'"), good + good)
    for at in range(0, len(good), max(1, len(good) // 32)):
        yield good[:at] + bytes([good[at] ^ 0x80]) + good[at + 1 :]
    yield from _mutated_json(good)


def hostile_requests(good: WebhookRequest) -> Iterator[WebhookRequest]:
    """Yield the good request with each of its headers gone, repeated, or replaced."""
    headers = list(good.headers.items()) if isinstance(good.headers, Mapping) else list(good.headers)
    for index, (name, value) in enumerate(headers):
        others = headers[:index] + headers[index + 1 :]
        yield _with(good, others)
        yield _with(good, [*headers, (name, value)])
        for strange in ("", " ", "abc", "-1", "\u0663", "v0=\u00e9", "\ud800", "9" * 5_000, "=" * 50, f" {value}"):
            yield _with(good, [*others, (name, strange)])


def _with(good: WebhookRequest, headers: list[tuple[str, str]]) -> WebhookRequest:
    return WebhookRequest(good.method, good.path, headers=headers, body=good.body, query=good.query)


def _mutated_json(good: bytes) -> Iterator[bytes]:
    try:
        paths = list(_paths(json.loads(good)))
    except ValueError:
        return  # not a JSON platform; cuts and flips have to do
    for path in paths:
        for strange in STRANGE:
            tree = json.loads(good)
            _parent(tree, path)[path[-1]] = strange
            yield json.dumps(tree).encode()
        tree = json.loads(good)
        del _parent(tree, path)[path[-1]]
        yield json.dumps(tree).encode()


def _paths(tree: object, head: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items: list[tuple[str | int, object]] = []
    if isinstance(tree, dict):
        items = list(tree.items())
    elif isinstance(tree, list):
        items = list(enumerate(tree))
    for key, value in items:
        yield (*head, key)
        yield from _paths(value, (*head, key))


def _parent(tree: Any, path: tuple[str | int, ...]) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree
