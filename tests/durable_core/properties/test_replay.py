"""Any body, completed in any order, comes to the same place whenever it is dropped and built anew from its log.

100 bodies; 1,000 and more with MOORINGS_TEST_FULL=1. A failure names its seed.
"""

from __future__ import annotations

import os
import random as plain_random
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from durable_core.awaitables import DetFuture, DetTask
from durable_core.failures import Poison
from durable_core.ledger import Ledger
from durable_core.loop import DetLoop
from durable_core.operations import Entry, EntryKind, Operation, OpKind
from tests.durable_core.plays import Play
from tests.durable_core.properties.replay_bodies import HOOKS, Plan, Walk, make, walker

CASES = 1500 if os.environ.get("MOORINGS_TEST_FULL") else 100
ROOT = Path(__file__).resolve().parents[3]
MOST = 150
"""Entries of one run, at most."""


@dataclass(frozen=True)
class Told:
    """What came of a run."""

    end: str
    said: tuple[str, ...]
    log: tuple[Entry, ...]
    progress: tuple[Any, ...]
    wanted: tuple[str, ...]


class Outside:
    """Complete what a body wants, in an order that only the seed and the body decide."""

    def __init__(self, seed: object) -> None:
        self.random = Random(f"outside {seed}")
        self.seen: dict[str, OpKind] = {}
        self.done: set[str] = set()

    def next(self, play: Play) -> dict[str, Any]:
        """Return the arguments of the next delivery."""
        wanted = play.replay.wanted
        self.seen.update({one.id: one.kind for one in wanted if one.kind is not OpKind.SIGNAL})
        after = self.random.choice((0, 0, 1, 250, 3000))
        chance = self.random.random()
        stale = [op for op in self.seen if op not in self.done and op not in {one.id for one in wanted}]
        if chance < 0.05:
            return {"kind": EntryKind.SIGNAL, "op": f"signal:{self.random.choice(HOOKS)}", "value": after, "after_ms": after}
        if chance < 0.07:
            return {"kind": EntryKind.CANCEL, "after_ms": after}
        if chance < 0.10 and stale:
            op = self.random.choice(stale)
            self.done.add(op)
            return {"kind": self.kind(self.seen[op]), "op": op, "value": {}, "after_ms": after}
        if chance < 0.14 and (steps := [one.id for one in wanted if one.kind is OpKind.STEP]):
            return {"kind": EntryKind.FAILED, "op": self.random.choice(steps), "ok": False}
        if not wanted:  # only what was dropped is left
            return {"kind": EntryKind.SIGNAL, "op": f"signal:{HOOKS[0]}"}
        return self.complete(self.random.choice(wanted), play.replay.now, after)

    def complete(self, op: Operation, now: int, after: int) -> dict[str, Any]:
        self.done.add(op.id)
        number = self.random.randrange(1000)
        common = {"kind": self.kind(op.kind), "op": op.id, "after_ms": after}
        match op.kind:
            case OpKind.STEP | OpKind.CHILD if number < 100:
                return {**common, "ok": False, "value": {"type": "OSError", "message": str(number), "attempts": 4}}
            case OpKind.TIMER:
                assert op.due_at is not None
                return {**common, "after_ms": max(after, op.due_at - now)}
            case OpKind.ASK:
                return {**common, "value": {"expired": True} if number < 200 else {"option_id": "y", "by": "alice"}}
            case OpKind.WEBHOOK:
                return {**common, "value": {"token": f"t{number}", "url": None}}
            case _:
                return {**common, "value": {"is": [number]}}

    @staticmethod
    def kind(kind: OpKind) -> EntryKind:
        return EntryKind.ANSWER if kind is OpKind.ASK else EntryKind(kind.value)


def run(plan: Plan, seed: object, *, crashes: Random | None) -> Told:
    """Drive one body to its end, dropping it on the way where `crashes` says so."""
    walks: list[Walk] = []
    try:
        play = Play(walker(walks), plan)
    except Poison as poison:
        return Told(worded(poison), tuple(walks[-1].said), (), (), ())
    try:
        drive(play, Outside(seed), crashes)
        end = repr(play.outcome) if play.outcome else "cut short"
    except Poison as poison:
        end = worded(poison)
    finally:
        play.replay.close()
    return Told(end, tuple(walks[-1].said), tuple(play.log), tuple(play.progress), tuple(play.wanted))


def drive(play: Play, outside: Outside, crashes: Random | None) -> None:
    while play.outcome is None and len(play.log) < MOST:
        event = outside.next(play)
        chance = crashes.random() if crashes else 1.0
        if chance < 0.25:
            play.again()
        elif chance < 0.4:  # it saw the entry, and died before that was committed
            play.replay.deliver(Entry(n=len(play.log), **entry(event, play.replay.now)))
            play.replay.close()
            play.build()
        play.deliver(**event)
    if crashes:
        play.again()


def worded(poison: Poison) -> str:
    return f"{type(poison).__name__} {str(poison).partition(': ')[2]}"


def entry(event: dict[str, Any], now: int) -> dict[str, Any]:
    return {**{key: value for key, value in event.items() if key != "after_ms"}, "at": now + event.get("after_ms", 0)}


def differs(seed: object) -> str | None:
    """Return what is not the same in a run that was interrupted."""
    plan = make(Random(f"plan {seed}"))
    straight = run(plan, seed, crashes=None)
    broken = run(plan, seed, crashes=Random(f"crashes {seed}"))
    for name in ("log", "said", "progress", "wanted", "end"):
        one, two = getattr(straight, name), getattr(broken, name)
        if name == "progress" and straight.end.startswith(("NotDurable", "NonDet")):
            continue  # what was shown in the delivery that failed is taken by nobody
        if one != two:
            return f"seed {seed}: {name}: {one!r} became {two!r} in {plan}"
    return None


def test_a_body_that_is_dropped_and_rebuilt_comes_to_the_same_place() -> None:
    print(f"seeds 0 to {CASES - 1}")
    for seed in range(CASES):
        try:
            assert differs(seed) is None
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def digest(seeds: range) -> str:
    told = [run(make(Random(f"plan {seed}")), seed, crashes=None) for seed in seeds]
    return sha256(repr(told).encode()).hexdigest()


def test_every_process_tells_the_same() -> None:
    script = "from tests.durable_core.properties.test_replay import digest; print(digest(range(40)))"
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2, 3)
    }
    assert told == {digest(range(40)) + "\n"}


def test_the_bodies_do_all_that_bodies_do() -> None:
    ends, kinds = set(), set()
    for seed in range(60):
        told = run(make(Random(f"plan {seed}")), seed, crashes=None)
        ends.add(told.end.partition("(")[0].partition(" ")[0])
        kinds |= {one.kind for one in told.log}
    assert {"Returned", "Raised"} <= ends
    assert kinds >= set(EntryKind) - {EntryKind.ASKED, EntryKind.END}


def found(seeds: range) -> bool:
    for seed in seeds:
        try:
            if differs(seed) is not None:
                return True
        except AssertionError:
            return True
    return False


def test_the_property_finds_hashes_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DetTask, "__hash__", lambda task: id(task) * 2654435761 >> 7)
    monkeypatch.setattr(DetFuture, "__hash__", lambda future: id(future) * 2654435761 >> 7)
    assert found(range(100))


def test_the_property_finds_a_clock_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000_000))
    monkeypatch.setattr(DetLoop, "time", lambda _: next(clock) / 1000)
    assert found(range(100))


def test_the_property_finds_lost_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Ledger.signal

    def forgetful(ledger: Ledger, name: str, payload: Any) -> None:
        if plain_random.random() < 0.7:
            real(ledger, name, payload)

    monkeypatch.setattr(Ledger, "signal", forgetful)
    assert found(range(100))
