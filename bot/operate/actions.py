"""What the operators' commands do, on a store.

What lives here: reads over runs and what changes one. What does not: options (the package's top), how it looks (show.py).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from bot import formats, preflight
from bot.errors import NotReady
from bot.formats import Kind
from bot.moved import clock_of
from bot.operate import start_mark
from bot.runtime import keys_of, store_options
from bot.settings import DEFAULT_FOLDER, Settings, own_settings
from durable_core import codec, listing
from durable_core.errors import ContentGone, NotFound, SessionEnded
from durable_core.ids import new_id
from durable_core.listing import OwedLine, RunLine, Which
from durable_core.model import Admission, CommandKind, EventDraft, Phase, Run, RunKind, RunStatus, ToRun
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.stranding import readers
from durable_core.streams import Streams

SOURCE: Final = "cli"
_PROMPTS: Final = "SELECT prompt_id FROM moor_prompt WHERE run_id = :run_id ORDER BY created_at, prompt_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which runs somebody asks for, in the words of the command."""

    stranded: bool = False
    dormant_before: int | None = None
    status: str | None = None
    kind: str | None = None
    deployment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """All there is of a run, decoded; `gone` where its content was deleted, and only ids and times are left."""

    run: Run
    gone: bool
    steps: list[dict[str, Any]]
    records: list[dict[str, Any]]
    prompts: list[dict[str, Any]]
    events: list[dict[str, Any]]


@asynccontextmanager
async def opened(data: Path | None, *, app: str | None = None) -> AsyncIterator[Store]:
    """Open the store that the environment names, or that of a demo's or dev's folder; `app` names a bot with its own keys.

    Raises: BadSettings, NotReady, SchemaOutdated, Unavailable.
    """
    own = data is not None or not os.environ.get("MOORINGS_DATABASE_URL", "").strip()
    settings = own_settings(os.environ, data or DEFAULT_FOLDER) if own and _made(data) else Settings.from_env(os.environ)
    bot = preflight.load_app(app) if app is not None else None
    preflight.check_keys(settings, bot)
    preflight.check_drivers(settings)
    preflight.check_schema(settings)
    keys = keys_of(bot, settings)
    store = open_store(settings.database_url, keys=keys, clock=clock_of(settings), options=store_options(settings))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _made(data: Path | None) -> bool:
    """Whether a folder was made by demo or dev. Raises: NotReady when it was named and wasn't."""
    folder = data or DEFAULT_FOLDER
    if (folder / "keys").is_file():
        return True
    if data is not None:
        raise NotReady(f"{folder} holds no data of a demo or dev; give the folder with --data.")
    return False


def started_at(data: Path | None) -> int:
    """Return when the dev of a folder was started; 0 where it leaves nothing alone.

    Raises: NotReady.
    """
    mark = start_mark(data or DEFAULT_FOLDER)
    try:
        return int(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotReady(f"{mark} does not say when dev was started; give its folder with --data.") from error


async def runs(store: Store, wanted: Wanted, *, limit: int) -> list[RunLine]:
    """Return runs, the newest first.

    Raises: NotReady (a word that is none).
    """
    which = Which(
        kind=_one_of(RunKind, wanted.kind, "--kind"),
        status=RunStatus(wanted.status) if wanted.status in set(RunStatus) else None,
        phase=None if wanted.status in set(RunStatus) else _one_of(Phase, wanted.status, "--status"),
        deployment=wanted.deployment,
        unfinished_before=wanted.dormant_before,
    )
    if not wanted.stranded:
        return await listing.list_runs(store, which, limit=limit)
    return await _stranded(store, which, limit=limit)


async def _stranded(store: Store, which: Which, *, limit: int) -> list[RunLine]:
    """Those that some code gave back, and those in a format that nobody who lives reads."""
    from dataclasses import replace  # noqa: PLC0415 - one use

    found = {line.run_id: line for line in await listing.list_runs(store, replace(which, marked=True), limit=limit)}
    now = await store.now()
    live = [reader for reader in await readers(store) if reader.lives(now)]
    # without anybody there is nobody who could tell: what this version reads is not called stranded
    windows = [(one.min_readable, one.current) for one in live] or [_own_window()]
    least, most = min(low for low, _ in windows), max(high for _, high in windows)
    for line in await listing.list_runs(store, replace(which, outside=(least, most)), limit=limit):
        found.setdefault(line.run_id, line)
    return sorted(found.values(), key=lambda line: (line.created_at, line.run_id), reverse=True)[:limit]


def _own_window() -> tuple[int, int]:
    from durable_core import versions  # noqa: PLC0415 - read when it is asked for

    return versions.MIN_READABLE_SPEC, versions.CURRENT_SPEC


async def inspect(store: Store, run_id: str) -> Inspection:
    """Read all there is of a run.

    Raises: NotFound.
    """
    run = await store.run(run_id)
    try:
        return await _whole(store, run)
    except ContentGone:
        return Inspection(run=await store.run(run_id), gone=True, steps=[], records=[], prompts=[], events=[])


async def _whole(store: Store, run: Run) -> Inspection:
    if run.purged_at is not None:
        raise ContentGone(run.run_id)
    steps = [
        {
            "n": step.n,
            "kind": step.kind,
            "name": step.name,
            "attempt": step.attempt,
            "spec_version": step.spec_version,
            "deployment": step.deployment,
            "started_at": step.started_at,
            "completed_at": step.completed_at,
            "input": formats.show(Kind.STEP_INPUT, step.input),
            "output": formats.show(Kind.STEP, step.output),
        }
        for step in await store.steps(run.run_id)
    ]
    records = [
        {
            "key": one.key,
            "kind": one.kind.value,
            "attempt": one.attempt,
            "at": one.at,
            "body": formats.show(Kind.RECORD, one.body),
        }
        for one in await store.records(run.run_id, run.step_no)
    ]
    prompts = []
    for (prompt_id,) in await store.rows(_PROMPTS, {"run_id": run.run_id}):
        prompt = await store.prompt(str(prompt_id))
        prompts.append(
            {
                "prompt_id": prompt.prompt_id,
                "kind": prompt.kind,
                "requester": prompt.requester,
                "outcome": prompt.outcome.value if prompt.outcome else None,
                "settled_by": prompt.settled_by,
                "created_at": prompt.created_at,
                "expires_at": prompt.expires_at,
                "body": formats.show(Kind.PROMPT, prompt.body),
            }
        )
    return Inspection(run=run, gone=False, steps=steps, records=records, prompts=prompts, events=await _events(store, run))


async def _events(store: Store, run: Run) -> list[dict[str, Any]]:
    streams = Streams(store, formats.UPCASTERS)
    found: list[dict[str, Any]] = []
    position = 0
    while page := await streams.read(run.run_id, start=position, hidden=True):
        found += [{"seq": one.seq, "type": one.type, "attempt": one.attempt, "at": one.at, "data": one.data} for one in page]
        position = page[-1].seq + 1
    return found


async def resume(store: Store, run_id: str) -> str:
    """Offer a stranded run to all code again; says what came of it."""
    run = await store.run(run_id)
    if await store.unstrand(run_id):
        return f"{run_id} is offered to the code that runs again."
    if run.status is RunStatus.ENDED:
        return f"{run_id} has ended; there is nothing to go on with."
    return f"{run_id} is not stranded; whoever can read format {run.spec_version} goes on with it."


async def cancel(store: Store, run_id: str) -> str:
    """Stop what a run does now; says what came of it."""
    submission_id = new_id("sub")
    try:
        await store.admit(
            Admission(
                source=SOURCE,
                key=submission_id,
                digest=b"cancel",
                on_conflict="refuse",
                submission_id=submission_id,
                target=ToRun(run_id=run_id),
                kind=CommandKind.CANCEL,
                body=codec.encode({"turn_id": None}),
                principal=SOURCE,
            )
        )
    except SessionEnded:
        return f"{run_id} has ended; there is nothing to stop."
    detail = (await store.submission(submission_id)).detail
    if detail is not None:
        return f"{run_id} does nothing that could be stopped."
    await store.unstrand(run_id)
    return f"{run_id} is told to stop."


async def retire(store: Store, deployment: str) -> list[str]:
    """End every open run of a deployment; their ids."""
    data: dict[str, JsonValue] = {"reason": "retired"}

    def told(line: RunLine) -> tuple[EventDraft, ...]:
        type_ = "session.completed" if line.kind is RunKind.SESSION else "run.completed"
        return (EventDraft(type=type_, body=codec.encode(data)),)

    return await listing.retire(store, deployment, events=told)


async def owed(store: Store, *, state: str, limit: int) -> list[OwedLine]:
    """Return deliveries in a state, the oldest first."""
    return await listing.list_owed(store, state=state, limit=limit)


async def replay(store: Store, delivery_id: str) -> str:
    """Owe a dead letter again.

    Raises: NotFound.
    """
    if not await store.replay(delivery_id):
        raise NotFound("dead letter", delivery_id)
    return f"{delivery_id} is owed again; it is sent after what waits for its address."


def _one_of(words: Any, word: str | None, option: str) -> Any:
    if word is None:
        return None
    if word not in set(words):
        more = (*RunStatus, *words) if option == "--status" else tuple(words)
        raise NotReady(f"{option} {word} is not known; give one of: {', '.join(more)}.")
    return words(word)
