"""Who may answer, when, and over which way: all combinations, each with what it has to come to.

What lives here: the table and the oracle. What does not: driving the app (desk.py).
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.settings import Settings, sqlite_url
from durable_core import schema
from durable_core.clock import ManualClock
from durable_core.crypto import new_key_entry
from durable_core.model import PromptOutcome
from tests.bot.answers.desk import POLICIES, START, WAYS, Desk, Seen, Session, opened

TIMES = ("before", "during", "after", "twice", "restart", "expired", "cancelled")
RIGHTFUL = {
    "requester": ("alice",),
    "listed": ("farah",),
    "group": ("farah",),
    "function": ("farah",),
    "quorum": ("farah", "bob"),
    "own": ("farah", "alice"),
}
BY_REQUESTER = "Only the person who asked may answer this."


@dataclass(frozen=True, slots=True)
class Row:
    policy: str
    who: str
    time: str
    way: str

    @property
    def may(self) -> bool:
        return self.who in RIGHTFUL[self.policy]

    @property
    def unseen(self) -> bool:
        """Over the API a request is unknown to whom it does not concern."""
        return self.way == "api" and self.who != "alice" and not self.may

    def status(self) -> str:
        """What the last answer of the row is told."""
        if self.time == "before":
            return "nothing"
        if self.unseen:
            return "not_found"
        if self.time in {"expired", "cancelled"}:
            return "refused"
        if self.time == "after":
            return "already_settled"
        if not self.may:
            return "refused"
        if self.policy == "quorum":
            return "refused" if self.time == "twice" else "counted"
        return "already_settled" if self.time == "twice" else "settled"

    def outcome(self) -> PromptOutcome:
        """How the prompt ends in the end; the rightful ones settle those that are answered after."""
        if self.time == "cancelled":
            return PromptOutcome.CANCELLED
        answered = self.time == "after" or (self.time in {"during", "twice", "restart"} and self.may and self.policy != "quorum")
        return PromptOutcome.APPROVED if answered else PromptOutcome.EXPIRED


ROWS = [
    Row(policy, who, time, way) for policy, who, time, way in itertools.product(POLICIES, ("alice", "bob", "farah"), TIMES, WAYS)
]
"""Each row is a session of its own; all of one store are in it at once."""


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = sqlite_url(tmp_path)
    if request.param == "postgres":
        url = request.getfixturevalue("migrated_url")
    else:
        await asyncio.to_thread(schema.upgrade, url)
    return Settings(tmp_path, url, encryption_keys=new_key_entry(), deployment="test")


async def test_every_combination_comes_to_what_it_has_to(settings: Settings) -> None:
    clock, ran = ManualClock(START), list[str]()
    seen: dict[Row, Seen] = {}
    sessions: dict[Row, Session] = {}
    async with opened(settings, clock, ran) as desk:
        for row in ROWS:
            session = sessions[row] = await desk.begin(row.way, row.policy)
            if row.time == "before":  # nobody is asked yet: words are no answer, and a value can only be guessed
                await desk.say(session, row.who, "approve")
                seen[row] = Seen("nothing")
        await desk.work()
        for row in ROWS:
            await desk.asked(sessions[row])
        for row in ROWS:
            if row.time in {"during", "after", "twice", "cancelled"}:
                seen[row] = await answered(desk, row, sessions[row])
    async with opened(settings, clock, ran) as desk:  # another process; what the first one left is due here
        for row in ROWS:
            if row.time == "restart":
                seen[row] = await desk.answer(sessions[row], row.who)
        await desk.work()
        await desk.later(4)
        for row in ROWS:
            if row.time == "expired":
                seen[row] = await desk.answer(sessions[row], row.who)
        await desk.work()
        ended = {row: await desk.store.prompt(prompt_of(sessions[row])) for row in ROWS}
        steps = {row: sessions[row].run_id for row in ROWS}
    wrong = []
    for row in ROWS:
        runs = ran.count(steps[row])
        expected = (row.status(), row.outcome(), int(row.outcome() is PromptOutcome.APPROVED))
        found = (seen[row].status, ended[row].outcome, runs)
        if found != expected or (found[0] in {"refused", "already_settled", "counted"} and not seen[row].reason):
            wrong.append(f"{row}: expected {expected}, saw {found}, told {seen[row].reason!r}")
    assert not wrong, f"{len(wrong)} of {len(ROWS)} rows:\n" + "\n".join(wrong)


async def answered(desk: Desk, row: Row, session: Session) -> Seen:
    match row.time:
        case "after":
            for who in RIGHTFUL[row.policy][: 2 if row.policy == "quorum" else 1]:
                await desk.answer(session, who)
        case "twice":
            first = await desk.answer(session, row.who, key=f"twice-{session.run_id}")
            again = await desk.answer(session, row.who, key=f"twice-{session.run_id}")
            assert again.status == first.status, f"{row}: the same click again came to {again}, first to {first}"
        case "cancelled":
            await desk.cancel(session)
    return await desk.answer(session, row.who)


def prompt_of(session: Session) -> str:
    assert session.prompt is not None
    return session.prompt.prompt_id


def test_the_table_is_as_large_as_it_says() -> None:
    assert len(set(ROWS)) == 6 * 3 * 7 * 3
