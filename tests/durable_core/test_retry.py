"""Waits grow, stay under their cap, honour what the other side asks for, and end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_core.errors import Broken, CommitUnknown, DurableError, Unavailable
from durable_core.retry import DATABASE_RETRY, RetryPolicy, retrying_unavailable, surely


def low() -> float:
    return 0.0


def high() -> float:
    return 1.0


def test_waits_double_up_to_the_cap() -> None:
    waits = [RetryPolicy().delay_ms(attempt, random=low) for attempt in range(1, 10)]
    assert waits == [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]


def test_jitter_shortens_a_wait_by_its_share_at_most() -> None:
    assert RetryPolicy(jitter=0.25).delay_ms(2, random=high) == 750
    assert RetryPolicy(jitter=0).delay_ms(2, random=high) == 1000


def test_the_default_randomness_spreads_waits() -> None:
    assert len({RetryPolicy(jitter=1).delay_ms(8) for _ in range(50)}) > 25


@pytest.mark.parametrize(("random", "expected"), [(low, 90_000), (high, 112_500)])
def test_retry_after_is_never_shortened_even_over_the_cap(random: object, expected: int) -> None:
    assert RetryPolicy().delay_ms(1, retry_after=90, random=high if random is high else low) == expected


def test_a_short_retry_after_does_not_cut_the_backoff() -> None:
    assert RetryPolicy().delay_ms(5, retry_after=1, random=low) == 8000


@pytest.mark.parametrize(
    ("asked", "expected"), [(0, 500), (-5, 500), (float("nan"), 500), (float("-inf"), 500), (float("inf"), 86_400_000)]
)
def test_a_senseless_retry_after_neither_hurries_nor_hangs(asked: float, expected: int) -> None:
    assert RetryPolicy().delay_ms(1, retry_after=asked, random=low) == expected


@given(st.integers(-5, 10**9), st.none() | st.floats(), st.floats(0, 1, exclude_max=True))
def test_any_attempt_has_a_wait_within_bounds(attempt: int, asked: float | None, chance: float) -> None:
    assert 0 <= RetryPolicy().delay_ms(attempt, retry_after=asked, random=lambda: chance) <= 86_400_000 * 1.25


def test_a_policy_ends_after_its_attempts() -> None:
    policy = RetryPolicy(attempts=4)
    assert [policy.exhausted(charged) for charged in range(6)] == [False, False, False, False, True, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: RetryPolicy(attempts=0),
        lambda: RetryPolicy(first=timedelta(seconds=-1)),
        lambda: RetryPolicy(first=timedelta(seconds=61)),
        lambda: RetryPolicy(jitter=1.1),
        lambda: RetryPolicy(jitter=float("nan")),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(make: type[RetryPolicy]) -> None:
    with pytest.raises(ValueError, match="policy"):
        make()


class Flaky:
    """Fail as told, then answer; keep the waits between instead of waiting."""

    def __init__(self, *failures: DurableError) -> None:
        self.failures = list(failures)
        self.calls = 0
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def call(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


async def test_a_database_that_comes_back_is_asked_again() -> None:
    flaky = Flaky(Unavailable("busy"), Unavailable("busy"))
    assert await retrying_unavailable(sleep=flaky.sleep)(flaky.call) == "answer"
    assert flaky.calls == 3
    assert 0.025 <= flaky.waits[0] <= 0.05
    assert 0.05 <= flaky.waits[1] <= 0.1


async def test_a_database_that_stays_away_is_reported_as_it_said() -> None:
    flaky = Flaky(*(Unavailable(str(number)) for number in range(1, 10)))
    with pytest.raises(Unavailable) as caught:
        await retrying_unavailable(sleep=flaky.sleep)(flaky.call)
    assert caught.value.reason == str(DATABASE_RETRY.attempts) == str(flaky.calls)


async def test_what_a_run_has_done_is_written_down_whenever_the_database_is_back_while_its_lease_lasts() -> None:
    flaky = Flaky(*(Unavailable("a failover") for _ in range(30)))
    assert await surely(flaky.call, sleep=flaky.sleep) == "answer"
    gone = Flaky(*(Unavailable("gone") for _ in range(100)))
    with pytest.raises(Unavailable):
        await surely(gone.call, sleep=gone.sleep)
    assert 44 <= sum(gone.waits) <= 90, "a lease is 60 s"
    unknown = Flaky(Unavailable("busy"), CommitUnknown("connection lost"))
    with pytest.raises(CommitUnknown):
        await surely(unknown.call, sleep=unknown.sleep)


@pytest.mark.parametrize("error", [CommitUnknown("connection lost"), Broken("corrupt")])
async def test_what_another_try_could_not_mend_is_not_tried_again(error: DurableError) -> None:
    flaky = Flaky(error)
    with pytest.raises(type(error)):
        await retrying_unavailable(sleep=flaky.sleep)(flaky.call)
    assert flaky.calls == 1
