"""S25–S28 and S43: what a store promises to workflows: addresses and runs that a commit makes, stranding, when a run starts.

What lives here: the promises that only code run by replay needs. What does not: replay itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from durable_core.errors import AddressTaken, Conflict, LeaseLost, NotFound, SessionEnded
from durable_core.model import SESSIONS, Abilities, Admission, ClaimRequest, Phase, RunKind, RunStatus, ToNew
from durable_core.store import Store
from durable_core.testing.acts import asked, asleep, claim_one, claims, parked, start
from durable_core.testing.bench import StoreBench, WindableClock
from durable_core.testing.builders import (
    LEASE,
    MINUTE,
    SECOND,
    body,
    cancel,
    event,
    message,
    ms,
    new_run,
    step_commit,
    to_address,
)
from durable_core.testing.histories import check_run

ORDERS = Abilities(sessions=False, workflows=("order",), code="c1")
TAKES = ClaimRequest(owner="w1", lease_ms=LEASE, limit=1, abilities=ORDERS)
MESSAGES = replace(TAKES, abilities=SESSIONS)
HOOK = ("hook", "payment:1")


class Workflows(StoreBench):
    """What only workflows need."""

    async def test_s10_a_worker_is_offered_what_it_is_able_to_take(self, store: Store) -> None:
        await store.admit(message(to_address("session")))
        order = await store.admit(message(ToNew(new=new_run(kind=RunKind.WORKFLOW, name="order"))))
        other = replace(ORDERS, workflows=("other", "orders"))
        assert await claims(store, abilities=other) == []
        assert (await store.due("w1", other)).run_at is None
        (taken,) = await claims(store, abilities=ORDERS)
        assert (taken.run_id, taken.kind) == (order.run_id, RunKind.WORKFLOW)
        assert (await store.run(order.run_id)).kind is RunKind.WORKFLOW
        (session,) = await claims(store)
        assert session.kind is RunKind.SESSION

    async def test_s25_an_address_belongs_to_the_run_that_committed_it(self, store: Store) -> None:
        owner, rival = await start(store, address="a"), await start(store, address="b")
        await store.commit(step_commit(owner, addresses=(HOOK,)))
        found = await store.run_at(*HOOK)
        assert found is not None
        assert found.run_id == owner.run_id
        with pytest.raises(AddressTaken) as refused:
            await store.commit(step_commit(rival, addresses=(("hook", "free"), HOOK), events=(event("lost"),)))
        assert (refused.value.channel, refused.value.address) == HOOK
        assert await store.run_at("hook", "free") is None
        assert (await store.run(rival.run_id)).step_no == rival.step_no
        again = await store.refresh(owner.run_id, owner.epoch)
        await store.commit(step_commit(again, addresses=(HOOK,), end="done"))
        assert await store.run_at(*HOOK) is None
        await store.commit(step_commit(rival, addresses=(HOOK,)))

    async def test_s26_a_commit_makes_runs_with_it_and_once(self, store: Store) -> None:
        parent = await start(store)
        child = message(ToNew(new=new_run(kind=RunKind.WORKFLOW, name="order")), source="child", key="p:1")
        with pytest.raises(LeaseLost):
            await store.commit(step_commit(replace(parent, epoch=parent.epoch - 1), starts=(child,)))
        assert await claims(store, abilities=ORDERS) == []
        await store.commit(step_commit(parent, starts=(child,)))
        (claim,) = await claims(store, abilities=ORDERS)
        assert isinstance(child.target, ToNew)
        assert claim.run_id == child.target.new.run_id
        assert [c.submission_id for c in claim.commands] == [child.submission_id]
        again = await store.refresh(parent.run_id, parent.epoch)
        twin = replace(child, target=ToNew(new=new_run(kind=RunKind.WORKFLOW, name="order")), submission_id="sub_twin")
        await store.commit(step_commit(again, starts=(twin,)))
        assert await claims(store, abilities=ORDERS) == []
        with pytest.raises(NotFound):
            await store.submission("sub_twin")

    async def test_s27_a_stranded_run_waits_for_other_code(self, store: Store) -> None:
        receipt = await store.admit(message(ToNew(new=new_run(kind=RunKind.WORKFLOW, name="order"))))
        (claim,) = await claims(store, abilities=ORDERS)
        await store.strand(claim.run_id, claim.epoch, reason="step a is gone", code="c1")
        with pytest.raises(LeaseLost):
            await store.commit(step_commit(claim))
        run = await store.run(receipt.run_id)
        assert (run.stranded, run.status) == ("step a is gone", RunStatus.OPEN)
        assert await claims(store, abilities=ORDERS) == []
        assert (await store.due("w1", ORDERS)).run_at is None
        (other,) = await claims(store, abilities=replace(ORDERS, code="c2"))
        assert (other.charged, [c.submission_id for c in other.commands]) == (0, [receipt.submission_id])
        await store.commit(step_commit(other))
        assert (await store.run(receipt.run_id)).stranded is None
        await store.strand(other.run_id, other.epoch, reason="step b is gone", code="c2")
        assert await store.unstrand(other.run_id)
        assert not await store.unstrand(other.run_id)
        (again,) = await claims(store, abilities=replace(ORDERS, code="c2"))
        assert again.run_id == other.run_id

    async def test_s28_a_delayed_run_wakes_when_it_is_to(self, store: Store, clock: WindableClock) -> None:
        later = clock.now_ms + MINUTE
        receipt = await store.admit(message(to_address(new=new_run(wake_at=later))))
        assert await asleep(store)
        assert (await store.due("w1")).run_at == later
        clock.advance(ms(MINUTE - 1))
        assert await asleep(store)
        clock.advance(ms(1))
        assert (await claim_one(store)).run_id == receipt.run_id

    async def test_s28_what_comes_later_wakes_it_at_once(self, store: Store, clock: WindableClock) -> None:
        receipt = await store.admit(message(to_address(new=new_run(wake_at=clock.now_ms + MINUTE))))
        await store.admit(cancel(receipt.run_id))
        assert (await claim_one(store)).run_id == receipt.run_id

    async def test_s28_a_repeat_does_not_hurry_it(self, store: Store, clock: WindableClock) -> None:
        later = clock.now_ms + MINUTE
        first = message(to_address(new=new_run(wake_at=later)), key="k")
        receipt = await store.admit(first)
        assert await store.admit(replace(first, submission_id="sub_again")) == replace(receipt, deduplicated=True)
        assert await asleep(store)
        assert (await store.due("w1")).run_at == later

    async def test_s28_a_run_that_is_there_is_not_delayed(self, store: Store, clock: WindableClock) -> None:
        run_id = await parked(store)
        await store.admit(message(to_address(new=new_run(wake_at=clock.now_ms + MINUTE))))
        assert (await claim_one(store)).run_id == run_id

    # ── S43 ──
    async def test_s43_a_run_is_taken_with_its_first_input(self, store: Store, clock: WindableClock) -> None:
        heard: list[str] = []
        unwatch = store.watch(lambda run_ids: heard.extend(run_ids or ()))
        receipt, claim = await store.begin(order(), TAKES)
        unwatch()
        assert claim is not None
        assert (receipt.run_id, receipt.seq, receipt.created, receipt.deduplicated) == (claim.run_id, 1, True, False)
        assert claim == await store.refresh(claim.run_id, claim.epoch)
        assert [c.submission_id for c in claim.commands] == [receipt.submission_id]
        assert heard == []
        assert await claims(store, "w2", abilities=ORDERS) == []
        clock.advance(ms(SECOND))
        await store.commit(step_commit(claim, events=(event(),)))
        await check_run(store, claim.run_id)
        assert await store.reap("w1") == 1
        (again,) = await claims(store, "w2", abilities=ORDERS)
        assert (again.epoch > claim.epoch, again.interrupted, again.charged, again.step_no) == (True, True, 1, 1)
        with pytest.raises(LeaseLost):
            await store.commit(step_commit(claim, step_n=1))

    async def test_s43_a_lease_that_began_with_its_run_ends_as_others_do(self, store: Store, clock: WindableClock) -> None:
        _, claim = await store.begin(order(), TAKES)
        assert claim is not None
        clock.advance(ms(LEASE) + ms(SECOND))
        (again,) = await claims(store, "w2", abilities=ORDERS)
        assert (again.run_id, again.interrupted) == (claim.run_id, True)

    async def test_s43_what_is_known_later_or_not_this_workers_is_admitted_alone(
        self, store: Store, clock: WindableClock
    ) -> None:
        first, claim = await store.begin(order(key="one"), TAKES)
        assert claim is not None
        second, none = await store.begin(order(key="one"), TAKES)
        assert (second.run_id, second.deduplicated, none) == (first.run_id, True, None)
        _, none = await store.begin(order(wake_at=clock.now_ms + MINUTE), TAKES)
        assert none is None
        other, none = await store.begin(order(name="other"), TAKES)
        assert none is None
        assert await claims(store, abilities=ORDERS) == []
        (taken,) = await claims(store, abilities=replace(ORDERS, workflows=("other",)))
        assert taken.run_id == other.run_id
        session = await parked(store)
        message_, none = await store.begin(message(to_address()), TAKES)
        assert (message_.run_id, message_.created, none) == (session, False, None)
        assert (await claim_one(store)).run_id == session

    async def test_s43_a_run_is_taken_with_the_input_that_wakes_it(self, store: Store, clock: WindableClock) -> None:
        claim, prompt_id = await asked(store)
        await store.admit(message(claim.run_id, text="first"))
        heard: list[str] = []
        unwatch = store.watch(lambda run_ids: heard.extend(run_ids or ()))
        receipt, taken = await store.begin(message(to_address(), text="second"), MESSAGES)
        unwatch()
        assert taken is not None
        assert (receipt.run_id, receipt.seq, receipt.created, heard) == (claim.run_id, 3, False, [])
        assert (taken.run_id, taken.epoch > claim.epoch, taken.interrupted) == (claim.run_id, True, False)
        assert [(c.seq, c.body) for c in taken.commands] == [(2, body("first")), (3, body("second"))]
        assert [p.prompt_id for p in taken.prompts] == [prompt_id]
        assert taken == await store.refresh(taken.run_id, taken.epoch)
        clock.advance(ms(SECOND))
        await store.commit(step_commit(taken, events=(event(),), release=True, timer_at=clock.now_ms + MINUTE))
        await check_run(store, claim.run_id)
        receipt, again = await store.begin(message(claim.run_id, text="third"), replace(MESSAGES, owner="w2"))
        assert again is not None
        assert (receipt.seq, again.owner, again.prompts[0].prompt_id) == (4, "w2", prompt_id)
        assert (again.step_no, [c.body for c in again.commands]) == (taken.step_no + 1, [body("third")])
        await store.commit(step_commit(again, events=(event(),)))

    async def test_s43_a_run_that_was_taken_as_it_woke_is_taken_back_as_others_are(self, store: Store) -> None:
        run_id = await parked(store)
        _, claim = await store.begin(message(run_id), MESSAGES)
        assert claim is not None
        assert await store.reap("w1") == 1
        again = await claim_one(store, "w2")
        assert (again.run_id, again.interrupted, again.charged, [c.seq for c in again.commands]) == (run_id, True, 1, [2])
        with pytest.raises(LeaseLost):
            await store.commit(step_commit(claim))

    async def test_s43_an_input_takes_no_run_that_is_held_or_kills_its_workers(self, store: Store) -> None:
        heard: list[str] = []
        claim = await start(store)
        unwatch = store.watch(lambda run_ids: heard.extend(run_ids or ()))
        receipt, none = await store.begin(message(claim.run_id), replace(MESSAGES, owner="w2"))
        unwatch()
        assert (receipt.seq, none, heard) == (2, None, [claim.run_id]), "its holder has to hear of it"
        for owner in ("w1", "w2"):
            await store.reap(owner)
            (claim,) = await claims(store, "w2", alone=True)
        await store.reap("w2")
        _, none = await store.begin(message(claim.run_id), MESSAGES)
        assert none is None

    async def test_s43_what_can_not_be_put_in_leaves_the_run_alone(self, store: Store) -> None:
        run_id = await parked(store)
        first, claim = await store.begin(message(run_id, key="k"), MESSAGES)
        assert claim is not None
        await store.commit(step_commit(claim, release=True, phase=Phase.IDLE))
        again, none = await store.begin(message(run_id, key="k"), MESSAGES)
        assert (again, none) == (replace(first, deduplicated=True), None)
        with pytest.raises(Conflict):
            await store.begin(message(run_id, key="k", text="another"), MESSAGES)
        with pytest.raises(NotFound):
            await store.begin(message("run_unknown"), MESSAGES)
        _, none = await store.begin(cancel(run_id), MESSAGES)
        assert none is None, "there was nothing to cancel"
        assert await asleep(store)
        assert await store.end(run_id, reason="reset", events=())
        with pytest.raises(SessionEnded):
            await store.begin(message(run_id), MESSAGES)

    async def test_s43_a_cancel_takes_no_run(self, store: Store) -> None:
        claim, _ = await asked(store)
        receipt, none = await store.begin(cancel(claim.run_id), MESSAGES)
        assert (receipt.seq, none) == (2, None)
        assert (await claim_one(store)).signals.cancel_pending

    async def test_s43_of_racing_inputs_to_one_run_one_takes_it(self, store: Store, peer: Store) -> None:
        run_id = await parked(store)
        calls = [s.begin(message(run_id), replace(MESSAGES, owner=o)) for _ in range(6) for s, o in ((store, "w1"), (peer, "w2"))]
        found = await asyncio.gather(*calls)
        (claim,) = [claim for _, claim in found if claim is not None]
        assert sorted(receipt.seq for receipt, _ in found) == list(range(2, 14))
        again = await store.refresh(claim.run_id, claim.epoch)
        assert [c.seq for c in again.commands] == list(range(2, 14))

    async def test_s43_of_racing_starts_with_one_key_one_is_taken(self, store: Store, peer: Store) -> None:
        calls = [s.begin(order(key="one"), replace(TAKES, owner=o)) for _ in range(8) for s, o in ((store, "w1"), (peer, "w2"))]
        found = await asyncio.gather(*calls)
        assert len({receipt.run_id for receipt, _ in found}) == 1
        assert sum(claim is not None for _, claim in found) == 1
        assert await claims(store, "w3", abilities=ORDERS) == []


def order(*, key: str | None = None, name: str = "order", wake_at: int | None = None) -> Admission:
    """Return the start of a workflow."""
    return message(ToNew(new=new_run(kind=RunKind.WORKFLOW, name=name, wake_at=wake_at)), key=key)
