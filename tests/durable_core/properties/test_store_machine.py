"""Stores against a model of them in plain Python, in any order of calls that hypothesis finds; and a check of the machine.

The seeded tenth of the examples runs always, the rest with MOORINGS_TEST_FULL=1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Phases
from hypothesis.stateful import run_state_machine_as_test

from durable_core.errors import AddressTaken, LeaseLost
from durable_core.model import (
    Admission,
    AnswerReceipt,
    Claim,
    ClaimRequest,
    Committed,
    EventDraft,
    Interaction,
    Lane,
    PromptAnswer,
    Receipt,
    Signals,
    StepCommit,
    ToAddress,
    ToNew,
    Verdict,
)
from durable_core.stores.sqlite import claims
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.testing.builders import ALICE
from tests.durable_core.properties.machine import StoreMachine
from tests.durable_core.properties.world import FileWorld, MemoryWorld, PostgresWorld, World

FULL = os.environ.get("MOORINGS_TEST_FULL") == "1"
SETTINGS = settings(
    max_examples=2_000 if FULL else 200,
    stateful_step_count=50 if FULL else 20,
    derandomize=not FULL,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def play(place: World | None) -> None:
    """Play all examples in one world, or each in a new one in memory."""

    class Machine(StoreMachine):
        world = place

    try:
        run_state_machine_as_test(Machine, settings=SETTINGS)
    finally:
        if place is not None:
            place.close()


def test_a_store_in_memory() -> None:
    play(None)


def test_two_stores_on_one_file(tmp_path: Path) -> None:
    play(FileWorld(tmp_path))


def test_two_stores_on_one_postgres_database(migrated_url: str) -> None:
    play(PostgresWorld(migrated_url))


# ── the machine itself: it has to find what is wrong ──


class Forgetful(SqliteStore):
    """Sleep whatever came in meanwhile: the lost wake-up of CORE 1."""

    async def commit(self, commit: StepCommit) -> Committed:
        return await super().commit(replace(commit, seen=1_000) if commit.release else commit)


class Hasty(SqliteStore):
    """Take each redelivery for something new."""

    async def admit(self, admission: Admission) -> Receipt:
        return await super().admit(replace(admission, key=admission.submission_id))


class Lenient(SqliteStore):
    """Let a zombie believe that it wrote."""

    async def append(self, run_id: str, epoch: int, events: Sequence[EventDraft]) -> Signals:
        try:
            return await super().append(run_id, epoch, events)
        except LeaseLost:
            return Signals(inbox_seq=0, cancel_pending=False)


class Careless(SqliteStore):
    """Charge nobody for a crash."""

    async def claim(self, request: ClaimRequest) -> list[Claim]:
        return [replace(c, charged=0) if c.interrupted else c for c in await super().claim(request)]


class Gullible(SqliteStore):
    """Take anybody's click for the requester's."""

    async def answer(self, answer: PromptAnswer) -> AnswerReceipt:
        return await super().answer(replace(answer, principal=ALICE))


class Jumpy(SqliteStore):
    """Send the second item of a lane first."""

    async def claim_lanes(
        self, owner: str, *, limit: int, lease_ms: int, items: int = 10, channels: Sequence[str] | None = None
    ) -> list[Lane]:
        lanes = await super().claim_lanes(owner, limit=limit, lease_ms=lease_ms, items=items, channels=channels)
        return [replace(lane, items=lane.items[::-1]) for lane in lanes]


class Grabby(SqliteStore):
    """Leave an address to whoever has it, and tell the other one that it is his."""

    async def commit(self, commit: StepCommit) -> Committed:
        try:
            return await super().commit(commit)
        except AddressTaken:
            return await super().commit(replace(commit, addresses=()))


class Childless(SqliteStore):
    """Forget the runs that a commit starts."""

    async def commit(self, commit: StepCommit) -> Committed:
        return await super().commit(replace(commit, starts=()))


class Fertile(SqliteStore):
    """Start a child once more when its step is run again."""

    async def commit(self, commit: StepCommit) -> Committed:
        return await super().commit(replace(commit, starts=tuple(replace(s, key=s.submission_id) for s in commit.starts)))


class Stubborn(SqliteStore):
    """Offer a stranded run to the very code that could not go on with it."""

    async def claim(self, request: ClaimRequest) -> list[Claim]:
        return await super().claim(replace(request, abilities=replace(request.abilities, code="")))


class Impatient(SqliteStore):
    """Start at once what was to start later."""

    async def admit(self, admission: Admission) -> Receipt:
        target = admission.target
        if isinstance(target, ToNew | ToAddress) and target.new is not None:
            admission = replace(admission, target=replace(target, new=replace(target.new, wake_at=None)))
        return await super().admit(admission)


class Hoarder(SqliteStore):
    """Keep content for ever."""

    async def purge(self, *, limit: int) -> list[str]:
        return []


class Mute(SqliteStore):
    """Say nothing of it when a stranded run is offered again."""

    async def unstrand(self, run_id: str) -> bool:
        sql = claims._UNSTRAND
        return await self._writer.run(lambda tx: tx.run(sql, {"run_id": run_id, "now": tx.now}) > 0)


class Meddler(SqliteStore):
    """Take lanes of any channel."""

    async def claim_lanes(
        self, owner: str, *, limit: int, lease_ms: int, items: int = 10, channels: Sequence[str] | None = None
    ) -> list[Lane]:
        return await super().claim_lanes(owner, limit=limit, lease_ms=lease_ms, items=items)


class Slack(SqliteStore):
    """Leave answers where they are once somebody had them."""

    async def take_interactions(self, owner: str, *, limit: int, lease_ms: int) -> list[Interaction]:
        return await super().take_interactions(owner, limit=limit, lease_ms=lease_ms * 1_000)


class Biased(SqliteStore):
    """Let everybody answer, whatever the policy said."""

    async def decide(self, verdict: Verdict) -> AnswerReceipt:
        return await super().decide(replace(verdict, allowed=True))


class Pushover(SqliteStore):
    """Take everybody's click for an override."""

    async def answer(self, answer: PromptAnswer) -> AnswerReceipt:
        return await super().answer(replace(answer, override=True))


class Literal(SqliteStore):
    """Take whoever asks for something beside the answer at their word."""

    async def answer(self, answer: PromptAnswer) -> AnswerReceipt:
        return await super().answer(replace(answer, aside=False))


class Hurried(SqliteStore):
    """Let one person's yes do where two are needed."""

    async def commit(self, commit: StepCommit) -> Committed:
        return await super().commit(replace(commit, prompts=tuple(replace(p, quorum=1) for p in commit.prompts)))


class Rigid(SqliteStore):
    """Never change the times of a prompt."""

    async def commit(self, commit: StepCommit) -> Committed:
        return await super().commit(replace(commit, updates=()))


class Scattered(SqliteStore):
    """Don't know that prompts share a card."""

    async def commit(self, commit: StepCommit) -> Committed:
        return await super().commit(replace(commit, prompts=tuple(replace(p, group=None) for p in commit.prompts)))


class Discreet(SqliteStore):
    """Keep refusals out of the audit."""

    async def answer(self, answer: PromptAnswer) -> AnswerReceipt:
        receipt = await super().answer(answer)
        await self._writer.run(lambda tx: tx.run("DELETE FROM moor_audit WHERE act = 'refused'"))
        return receipt


class Forger(SqliteStore):
    """Change what the audit said."""

    async def answer(self, answer: PromptAnswer) -> AnswerReceipt:
        receipt = await super().answer(answer)
        await self._writer.run(lambda tx: tx.run("UPDATE moor_audit SET place = 'elsewhere' WHERE n = 1"))
        return receipt


BROKEN = (
    (Forgetful, "let go, admit", "a wake-up is wrong|a wake-up was lost"),
    (Hasty, "redeliver", "a redelivery was taken for new"),
    (Lenient, "release, zombie", "DID NOT RAISE"),
    (Careless, "die, claim", "charges disagree"),
    (Gullible, "ask, click", "an answer was judged otherwise|the audit tells of something else"),
    (Jumpy, "let go, ask, send", "a lane is out of order"),
    (Grabby, "own", "DID NOT RAISE"),
    (Childless, "start", "not exactly one outcome"),
    (Fertile, "start", "not exactly one outcome"),
    (Stubborn, "strand, claim", "a run was offered to a worker that can't take it"),
    (Impatient, "new", "a wake-up is wrong|what is due next"),
    (Hoarder, "end, purge, new", "content was kept too long"),
    (Mute, "strand, unstrand", "the list tells of another run"),
    (Meddler, "let go, send", "a lane was forgotten"),
    (Slack, "ask, click, take", "an answer that is due is not looked for"),
    (Biased, "ask, click, take, judge", "a judge was not heard"),
    (Pushover, "ask, click", "an answer was judged otherwise|the audit tells of something else"),
    (Literal, "ask, click", "an answer was judged otherwise"),
    (Hurried, "ask, click", "an answer was judged otherwise"),
    (Rigid, "ask, move", "a prompt is another one|DID NOT RAISE"),
    (
        Scattered,
        "ask, click, send",
        "a lane holds something else|a lane is out of order|a lane was forgotten|a lane that is due is not looked for",
    ),
    (Discreet, "ask, click", "the audit tells of something else"),
    (Forger, "ask, click", "the chain of the audit is broken"),
)


@pytest.mark.parametrize(("broken", "often", "finding"), BROKEN)
def test_the_machine_finds_a_broken_store(broken: type[SqliteStore], often: str, finding: str) -> None:
    class Machine(StoreMachine):
        focus = tuple(often.split(", "))

        def make(self) -> World:
            return MemoryWorld(broken)

    Machine._hypothesis_internal_use_seed = 1
    quick = settings(SETTINGS, max_examples=400, derandomize=False, phases=[Phases.generate], print_blob=False)
    quick = settings(quick, stateful_step_count=50, report_multiple_bugs=False)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=finding):
        run_state_machine_as_test(Machine, settings=quick)
