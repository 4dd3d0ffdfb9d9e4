"""The schema's revisions by name: which database this code can work on, and how far a migration goes.

What lives here: rules on names. What does not: reading a database, applying revisions (schema.py).

A revision's name says how it gets on with older code. `NNNN_pre_*` only adds what older code needn't know: it is applied while
older code runs. `NNNN_post_*` takes away or changes what older code needs: it is applied once no older code runs.

- Code works on a database where every `pre` of its own is applied; a `post` of its own may be pending.
- Code works on a database with revisions it doesn't know, as long as all of its own are applied and the unknown ones are `pre`.
  The database names each applied revision (`moor_revision`), so a `post` among them is seen even if a `pre` came after it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from durable_core.errors import SchemaOutdated

_NAME = re.compile(r"\d{4}_(pre|post)_\w+")


def known(folder: Path) -> tuple[str, ...]:
    """Return the names of the revisions in a migrations folder, in order."""
    return tuple(sorted(path.stem for path in (folder / "versions").glob("*.py") if _NAME.fullmatch(path.stem)))


def is_post(name: str) -> bool:
    """Whether a revision waits until no older code runs; a name that says nothing is taken for such."""
    found = _NAME.fullmatch(name)
    return found is None or found[1] == "post"


def pending(ours: Sequence[str], found: str | None) -> tuple[str, ...]:
    """Return those of our revisions that come after the one found; none where it is newer than all of ours."""
    return tuple(name for name in ours if found is None or name > found)


def check(ours: Sequence[str], found: str | None, applied: Collection[str]) -> None:
    """See that this code can work on a database.

    Raises:
        SchemaOutdated: it can't; the error names what is found and what is needed.
    """
    wanted = ours[-1]
    if found is None:
        raise SchemaOutdated(None, wanted)
    if found in ours:
        rest = pending(ours, found)
        if all(is_post(name) for name in rest):
            return
        command = "moorings migrate --finish" if is_post(rest[0]) else "moorings migrate"
        raise SchemaOutdated(found, _last_pre(ours), cure=f"run `{command}`")
    if not set(ours) <= set(applied):
        raise SchemaOutdated(found, wanted)
    strangers = sorted(name for name in set(applied) - set(ours) if is_post(name))
    if strangers:
        raise SchemaOutdated(found, wanted, cure=f"{strangers[0]} is for newer versions only; run a newer version")


def target(ours: Sequence[str], found: str | None, *, finish: bool) -> str | None:
    """Return the revision a migration goes to: up to the first `post`, or to the end; None where there is nothing to do."""
    if found is None:
        return ours[-1]  # nothing is in it, and no older code is at work on it
    goal = None
    for name in pending(ours, found):
        if is_post(name) and not finish:
            break
        goal = name
    return goal


def waiting(ours: Sequence[str], found: str | None) -> tuple[str, ...]:
    """Return the pending revisions that only a migration with `finish` applies."""
    rest = pending(ours, found)
    first = next((place for place, name in enumerate(rest) if is_post(name)), len(rest))
    return rest[first:]


def _last_pre(ours: Sequence[str]) -> str:
    return next(name for name in reversed(ours) if not is_post(name))
