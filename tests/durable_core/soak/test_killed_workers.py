"""A worker dies every second: every run finishes, each step is recorded once, and only what was killed is repeated."""

from __future__ import annotations

from tests.durable_core.soak.killings import story


async def test_each_step_is_recorded_once_though_a_worker_dies_every_second(migrated_url: str) -> None:
    again, killed = await story(migrated_url)
    assert [effect for effect in again if effect.owner not in killed] == []
