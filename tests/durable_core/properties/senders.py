"""Senders and judges: lanes, and answers that wait for a worker, as rules of the state machine.

What lives here: what a worker does without a run's lease. What does not: runs (`workers`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from durable_core.errors import LeaseLost
from durable_core.model import INTERNAL, AnswerStatus, Buried, Lane, Postponed, Sent, Verdict
from durable_core.testing.acts import WORKERS
from durable_core.testing.builders import CHANNEL, LEASE, MINUTE, event, post
from tests.durable_core.properties.expected import ExpectedLane, Place
from tests.durable_core.properties.people import TELL, TOLD, People
from tests.durable_core.properties.setting import lane_of

CHANNELS = (None, None, (CHANNEL,), (INTERNAL, "none"))


class Senders(People):
    """What workers do with what is owed, and with answers."""

    def take_lanes(self, pick: int, limit: int, *, keep: bool) -> None:
        owner, channels = WORKERS[pick % 2], CHANNELS[pick % 4]
        self.lose_lanes()
        due = self.expected.lanes_due(channels)
        lanes = self.do(self.real.claim_lanes(owner, limit=100, lease_ms=LEASE, items=limit, channels=channels))
        handed = {lane_of(lane) for lane in lanes}
        gone = {place: self.bury(place, owed, limit, taken=place in handed) for place, owed in due.items()}
        assert handed == {place for place, owed in due.items() if owed.items and not owed.skipped}, "a lane was forgotten"
        for lane in lanes:
            owed = due[lane_of(lane)]
            assert lane.epoch > owed.epoch
            owed.owner, owed.epoch, owed.lease_until = owner, lane.epoch, self.expected.now + LEASE
            self.check_items(lane, owed, limit, gone[lane_of(lane)])
            if keep:
                self.lanes.append((lane, owner))
            else:
                self.send(lane, owner, pick)

    def bury(self, place: Place, owed: ExpectedLane, limit: int, *, taken: bool) -> int:
        """Give up what forgotten runs owe, and count it; a store may look at `limit` items only, then the lane stays due."""
        gone = self.expected.forgotten(owed)
        owed.skipped = not taken and limit <= gone and (gone < len(owed.items) or (limit < gone and self.still_due(place)))
        for _ in range(min(gone, limit) if owed.skipped else gone):
            self.expected.done(owed, None)
        if not owed.items:
            owed.due_at = None
        elif owed.skipped:
            owed.give_back(self.expected.now)
        return gone

    def still_due(self, place: Place) -> bool:
        """Tell whether a lane that holds only what is forgotten was looked at in part."""
        sql = "SELECT 1 FROM moor_lane WHERE channel = :channel AND address = :address AND due_at IS NOT NULL"
        return bool(self.do(self.real.rows(sql, {"channel": place[0], "address": place[1]})))

    def check_items(self, lane: Lane, owed: ExpectedLane, limit: int, gone: int) -> None:
        wanted = self.expected.sendable(owed, limit)
        fewer = self.expected.sendable(owed, max(limit - gone, 1))  # of a store that looked at what is gone as well
        assert len(lane.items) in {len(wanted), len(fewer)}, "a lane holds something else"
        for item, expected in zip(lane.items, wanted, strict=False):
            here = (expected.edit_of, expected.delivery_id or item.delivery_id, expected.run.run_id)
            assert (item.edit_of, item.delivery_id, item.run_id) == here, "a lane is out of order"
            assert item.edit_ref == self.expected.sent.get(expected.edit_of or "")
            assert item.attempts == expected.attempts

    def send(self, lane: Lane, owner: str, pick: int) -> None:
        """Send what a lane holds; the last one, or the only one, may fail."""
        owed = self.expected.lanes[lane_of(lane)]
        for item in lane.items[:-1]:
            self.do(
                self.real.finish(lane, owner, Sent(delivery_id=item.delivery_id, ref=f"ref-{item.delivery_id}", release=False))
            )
            self.expected.done(owed, f"ref-{item.delivery_id}")
        last = lane.items[-1].delivery_id
        how = pick % 5
        if how == 0:
            self.do(self.real.finish(lane, owner, Buried(delivery_id=last, error="e", release=True)))
            self.expected.done(owed, None)
            owed.give_back(self.expected.now)
        elif how == 1:
            until, counted = self.expected.now + MINUTE, pick % 2 == 0
            self.do(self.real.finish(lane, owner, Postponed(delivery_id=last, until=until, error="e", counted=counted)))
            owed.items[0].attempts += counted
            owed.owner, owed.due_at = None, until
        elif how == 2:
            self.do(self.real.release_lane(lane, owner))
            owed.items[0].attempts += 1
            owed.give_back(self.expected.now)
        else:
            sent = Sent(delivery_id=last, ref=f"ref-{last}", release=True)
            self.do(self.real.finish(lane, owner, sent))
            self.expected.done(owed, sent.ref)
            owed.give_back(self.expected.now)

    def go_on_sending(self, pick: int) -> None:
        """Come back to a lane that was taken a while ago; it may be lost."""
        lane, owner = self.lanes.pop(pick % len(self.lanes))
        owed = self.expected.lanes[lane_of(lane)]
        if (owed.owner, owed.epoch) == (owner, lane.epoch):
            self.send(lane, owner, pick)
            return
        last = lane.items[-1].delivery_id
        with pytest.raises(LeaseLost):
            self.do(self.real.finish(lane, owner, Sent(delivery_id=last, ref="zombie", release=True)))
        with pytest.raises(LeaseLost):
            self.do(self.real.release_lane(lane, owner))

    def take_answers(self, pick: int) -> None:
        owner = WORKERS[pick % 2]
        due = {a.submission_id: a for a in self.expected.answers if not a.decided and a.due_at <= self.expected.now}
        taken = self.do(self.real.take_interactions(owner, limit=100, lease_ms=LEASE))
        assert {t.interaction_id for t in taken} == set(due), "an answer was forgotten"
        for one in taken:
            answer = due[one.interaction_id]
            assert one.epoch > answer.epoch
            answer.owner, answer.epoch, answer.due_at = owner, one.epoch, self.expected.now + LEASE
            self.taken.append((one, answer))

    def judge(self, pick: int, *, allowed: bool, tell: bool) -> None:
        one, answer = self.taken.pop(pick % len(self.taken))
        run, question = answer.run, answer.prompt
        if run.purged_at is not None:
            return
        verdict = Verdict(
            interaction_id=one.interaction_id,
            epoch=one.epoch,
            allowed=allowed,
            events=(event("settled"),),
            counted=(event("counted"),),
        )
        if tell:
            verdict = replace(verdict, tell=post(TELL[1]))
        if answer.decided or (answer.epoch, answer.owner is None) != (one.epoch, False):
            with pytest.raises(LeaseLost):
                self.do(self.real.decide(verdict))
            return
        if pick % 4 == 0:
            answer.owner, answer.due_at = None, self.expected.now + MINUTE
            self.do(self.real.postpone(one, until=answer.due_at))
            return
        receipt = self.do(self.real.decide(verdict))
        answer.decided, answer.owner = True, None
        by, outcome, override = answer.by, answer.outcome, answer.override
        status = AnswerStatus.REFUSED
        if allowed:
            status = self.expected.judge(run, question, by, outcome, override=override, waits=False, aside=answer.aside)
        assert receipt.status is status, "a judge was not heard"
        self.expected.take(run, question, status, by, outcome, override=override, submission_id=one.interaction_id)
        if tell and status in TOLD:
            self.expected.owe(run, TELL, cast("str", verdict.tell and verdict.tell.delivery_id))
