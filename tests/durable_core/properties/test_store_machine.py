"""The store against a model of it in plain Python, in any order of calls that hypothesis finds; and a check of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Phases
from hypothesis.stateful import run_state_machine_as_test

from durable_core.errors import LeaseLost
from durable_core.model import (
    Admission,
    AnswerReceipt,
    Claim,
    ClaimRequest,
    Committed,
    EventDraft,
    Lane,
    PromptAnswer,
    Receipt,
    Signals,
    StepCommit,
)
from durable_core.stores.sqlite.store import SqliteStore
from durable_core.testing.builders import ALICE
from tests.durable_core.properties.machine import StoreMachine
from tests.durable_core.properties.world import MemoryWorld, World

SETTINGS = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
StoreMachine.TestCase.settings = SETTINGS
TestStoreMachine = StoreMachine.TestCase


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


BROKEN = (
    (Forgetful, "a wake-up was lost"),
    (Hasty, "a redelivery was taken for new"),
    (Lenient, "DID NOT RAISE"),
    (Careless, "charges disagree"),
    (Gullible, "settled by somebody who may not"),
    (Jumpy, "a lane is out of order"),
)


@pytest.mark.parametrize(("broken", "finding"), BROKEN)
def test_the_machine_finds_a_broken_store(broken: type[SqliteStore], finding: str) -> None:
    class Machine(StoreMachine):
        def make(self) -> World:
            return MemoryWorld(broken)

    Machine._hypothesis_internal_use_seed = 1
    quick = settings(SETTINGS, max_examples=100, database=None, phases=[Phases.generate], print_blob=False)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=finding):
        run_state_machine_as_test(Machine, settings=quick)
