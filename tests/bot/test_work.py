"""`moorings work` with a bot, and what it refuses; engines are tested in tests/durable_core/engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_core.crypto import new_key_entry
from tests.bot.command import environment, refusal, run


def ready(folder: Path) -> dict[str, str]:
    env = environment(MOORINGS_ENCRYPTION_KEYS=new_key_entry(), MOORINGS_DATABASE_URL=f"sqlite:///{folder / 'bot.db'}")
    assert run(folder, "migrate", env=env).returncode == 0
    return env


def test_a_bot_with_nothing_due_leaves_at_once(tmp_path: Path) -> None:
    env = ready(tmp_path) | {"MOORINGS_PUBLIC_URL": "http://127.0.0.1:8700"}  # people sign in to the demo's tracker there
    done = run(tmp_path, "work", "bot.demo:bot", "--until-idle", env=env)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "Advanced 0 runs.", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bot.demo:nothing"], "Bot or the Engine"),
        (["bot.demo:Path"], "neither a Bot nor an Engine"),
        (["bot.demo"], "module:attribute"),
        (["bot.demo:bot", "--limit", "3"], "--until-idle"),
    ],
)
def test_what_can_not_work_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    assert said in refusal(run(tmp_path, "work", *arguments, env=environment()))


def test_a_database_that_is_not_migrated_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bot.db'}"
    env = environment(MOORINGS_ENCRYPTION_KEYS=new_key_entry(), MOORINGS_DATABASE_URL=url)
    assert "moorings migrate" in refusal(run(tmp_path, "work", "bot.demo:bot", "--until-idle", env=env))
