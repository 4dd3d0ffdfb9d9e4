"""Starting runs: what a new run's header holds, the ids of children, the admissions that make them.

What lives here: starts, by a caller and by a parent. What does not: when a child is due to be started (commits.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from durable_core import codec
from durable_core.crypto import payload_digest
from durable_core.engine import formats
from durable_core.ids import new_id
from durable_core.model import INTERNAL, Admission, CommandKind, NewRun, RunKind, ToNew
from durable_core.operations import ChildStart
from durable_core.versions import Stored

RUN_PREFIX: Final = "run"


@dataclass(frozen=True, slots=True)
class Parent:
    """Who waits for a run, and by which operation."""

    run_id: str
    op: str


@dataclass(frozen=True, slots=True)
class Start:
    """A run's header, read."""

    args: list[Any]
    kwargs: dict[str, Any]
    submission: str
    parent: Parent | None
    origin: Any = None
    """Where it comes from, as the layer above said; its children's as well."""


def start_admission(
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    source: str,
    key: str,
    creator: str,
    deployment: str,
    run_id: str | None = None,
    parent: Parent | None = None,
    wake_at: int | None = None,
    keep_ms: int | None = None,
    origin: Any = None,
) -> Admission:
    """Return the one input of a new run.

    Raises:
        Unstorable, TooLarge: the arguments can't be kept.
    """
    given: dict[str, Any] = {"args": list(args), "kwargs": dict(sorted(kwargs.items()))}
    submission = new_id("sub")
    header: dict[str, Any] = {**given, "submission": submission}
    if parent is not None:
        header["parent"] = {"run_id": parent.run_id, "op": parent.op}
    if origin is not None:
        header["origin"] = origin
    new = NewRun(
        run_id=run_id or new_id(RUN_PREFIX),
        kind=RunKind.WORKFLOW,
        name=name,
        creator=codec.check_name(creator, "started_by"),
        header=codec.encode(header),
        deployment=deployment,
        lifetime_ms=None,
        keep_ms=keep_ms,
        wake_at=wake_at,
    )
    return Admission(
        source=source,
        key=codec.check_key(key, "key"),
        digest=payload_digest(codec.encode(given)),
        on_conflict="refuse" if parent is None else "merge",
        submission_id=submission,
        target=ToNew(new=new),
        kind=CommandKind.MESSAGE,
        body=codec.encode({}),
        principal=creator,
    )


def child_admission(
    child: ChildStart, *, parent: Parent, creator: str, deployment: str, keep_ms: int | None = None, origin: Any = None
) -> Admission:
    """Return what starts a child with its parent's commit, once however often it is tried.

    Raises:
        Unstorable, TooLarge: the arguments can't be kept.
    """
    return start_admission(
        child.workflow.name,
        child.args,
        child.kwargs,
        source=INTERNAL,
        key=child.run_id,
        creator=creator,
        deployment=deployment,
        run_id=child.run_id,
        parent=parent,
        keep_ms=keep_ms,
        origin=origin,
    )


def read_header(header: bytes, run_id: str) -> Start:
    """Read a run's header. Raises: Stranded."""
    data = formats.read(formats.Kind.HEADER, header, run_id=run_id)
    return Start(
        args=data["args"],
        kwargs=data["kwargs"],
        submission=data["submission"],
        parent=_parent(data),
        origin=data.get("origin"),
    )


def parent_of(header: bytes) -> Parent | None:
    """Read who waits for a run, whatever version started it."""
    return _parent(formats.show(formats.Kind.HEADER, header))


def _parent(data: Stored) -> Parent | None:
    parent = data.get("parent")
    return None if parent is None else Parent(parent["run_id"], parent["op"])
