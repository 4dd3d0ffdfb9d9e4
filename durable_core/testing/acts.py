"""Acts: what a worker or a person does in a test, in one call, with the checks that are always due.

What lives here: short stories on a store. What does not: values (`builders`), promises (the `test_s…` groups).
"""

from __future__ import annotations

from collections.abc import Sequence

from durable_core.model import (
    SESSIONS,
    Abilities,
    AnswerPolicy,
    Claim,
    ClaimRequest,
    Committed,
    EventDraft,
    Incarnation,
    Interaction,
    Lane,
    OutboxDraft,
    Outcome,
    Phase,
    Receipt,
    RecordKind,
    Sent,
    SubmissionOutcome,
)
from durable_core.store import Store
from durable_core.testing.builders import ADDRESS, LEASE, body, message, post, prompt, step_commit, to_address

WORKERS = ("w1", "w2", "w3")
"""Incarnations that every test's store knows."""


async def enrol(store: Store, owners: Sequence[str] = WORKERS) -> None:
    """Say that workers have started."""
    for owner in owners:
        await store.enrol(Incarnation(owner=owner, deployment="d1"))


async def claims(
    store: Store,
    owner: str = "w1",
    *,
    limit: int = 10,
    alone: bool = False,
    lease_ms: int = LEASE,
    abilities: Abilities = SESSIONS,
    recovering: int | None = None,
) -> list[Claim]:
    """Take all that is due."""
    return await store.claim(
        ClaimRequest(owner=owner, lease_ms=lease_ms, limit=limit, alone=alone, abilities=abilities, recovering=recovering)
    )


async def claim_one(store: Store, owner: str = "w1", *, alone: bool = False, lease_ms: int = LEASE) -> Claim:
    """Take the one run that is due."""
    taken = await claims(store, owner, alone=alone, lease_ms=lease_ms)
    assert len(taken) == 1, f"one run should be due, {len(taken)} are"
    return taken[0]


async def asleep(store: Store) -> bool:
    """Whether nothing is due."""
    return await claims(store, "w3") == []


async def start(store: Store, *, address: str = ADDRESS, lifetime_ms: int | None = None, owner: str = "w1") -> Claim:
    """Let a first message create a run, and claim it."""
    receipt = await store.admit(message(to_address(address, lifetime_ms=lifetime_ms)))
    claim = await claim_one(store, owner)
    assert claim.run_id == receipt.run_id
    return claim


async def park(store: Store, claim: Claim, *, timer_at: int | None = None, consume: bool = True) -> Committed:
    """Finish the pending step, complete what it consumed and let go of the run."""
    done = (
        tuple(SubmissionOutcome(submission_id=c.submission_id, outcome=Outcome.COMPLETED) for c in claim.commands)
        if consume
        else ()
    )
    return await store.commit(
        step_commit(claim, consume=consume, outcomes=done, phase=Phase.IDLE, release=True, timer_at=timer_at, turn_id="turn_0")
    )


async def parked(store: Store, *, address: str = ADDRESS, lifetime_ms: int | None = None, timer_at: int | None = None) -> str:
    """Have a run that sleeps with an empty inbox; its id."""
    claim = await start(store, address=address, lifetime_ms=lifetime_ms)
    await park(store, claim, timer_at=timer_at)
    return claim.run_id


async def owing(store: Store, *posts: OutboxDraft, address: str = ADDRESS) -> str:
    """Have a parked run that owes messages; its id."""
    claim = await start(store, address=address)
    await store.commit(step_commit(claim, outbox=posts, release=True, phase=Phase.IDLE))
    return claim.run_id


async def asked(
    store: Store,
    *,
    policy: AnswerPolicy = AnswerPolicy.REQUESTER,
    copies: Sequence[str] = (ADDRESS,),
    expires_at: int | None = None,
    release: bool = True,
    quorum: int = 1,
    answerers: tuple[str, ...] = (),
) -> tuple[Claim, str]:
    """Have a run that waits for an answer, a card posted to each of `copies`; its claim and the prompt's id."""
    claim = await start(store)
    draft = prompt(policy=policy, expires_at=expires_at, quorum=quorum, answerers=answerers)
    cards = tuple(post(address, text="card", prompt_id=draft.prompt_id) for address in copies)
    commit = step_commit(claim, prompts=(draft,), outbox=cards, release=release, phase=Phase.WAITING, turn_id="turn_0")
    await store.commit(commit)
    return claim, draft.prompt_id


async def reply(
    store: Store,
    claim: Claim,
    *,
    key: str = "reply",
    text: str = "reply",
    step_n: int | None = None,
    events: Sequence[EventDraft] = (),
) -> None:
    """Record a model's reply of the pending step."""
    await store.record(
        claim.run_id,
        claim.epoch,
        step_n=claim.step_no if step_n is None else step_n,
        key=key,
        kind=RecordKind.REPLY,
        input_hash="h",
        body=body(text),
        events=events,
    )


async def lane_one(store: Store, owner: str = "w1", *, lease_ms: int = LEASE, items: int = 10) -> Lane:
    """Take the one lane that is due."""
    lanes = await store.claim_lanes(owner, limit=10, lease_ms=lease_ms, items=items)
    assert len(lanes) == 1, f"one lane should be due, {len(lanes)} are"
    return lanes[0]


async def send_all(store: Store, owner: str = "w1") -> list[str]:
    """Send all that is due, first lane first; the delivery ids in the order sent."""
    sent: list[str] = []
    while lanes := await store.claim_lanes(owner, limit=10, lease_ms=LEASE):
        for lane in lanes:
            for item in lane.items:
                sent.append(item.delivery_id)
                last = item is lane.items[-1]
                await store.finish(lane, owner, Sent(delivery_id=item.delivery_id, ref=f"ref-{item.delivery_id}", release=last))
    return sent


async def interaction_one(store: Store, owner: str = "w1", *, lease_ms: int = LEASE) -> Interaction:
    """Take the one answer that waits for a policy."""
    taken = await store.take_interactions(owner, limit=10, lease_ms=lease_ms)
    assert len(taken) == 1, f"one interaction should wait, {len(taken)} do"
    return taken[0]


async def accept(store: Store, run_id: str, *texts: str) -> list[Receipt]:
    """Send messages to a run, one after another."""
    return [await store.admit(message(run_id, text=text)) for text in texts]
