"""A failpoint does nothing until it is armed, then kills at the hit that was asked for, once if told so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from durable_core.failpoints import FAILPOINTS, UnknownFailpoint, arm, arm_from, hit

ROOT = Path(__file__).parents[2]
PASSES_THREE_TIMES = """
from durable_core.failpoints import hit
try:
    for number in (1, 2, 3):
        hit("commit.after")
        print(number, flush=True)
finally:
    print("finally", flush=True)
"""


class Boom(Exception):
    """What an armed failpoint raises here."""


def boom() -> None:
    raise Boom


def run(code: str = PASSES_THREE_TIMES, **environ: str) -> tuple[int, str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MOORINGS_")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=kept | environ, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_unarmed_places_are_passed() -> None:
    for name in FAILPOINTS:
        hit(name)


@pytest.mark.parametrize("name", ["", "commit", "commit.After"])
def test_a_name_that_does_not_exist_is_a_programming_error(name: str) -> None:
    with pytest.raises(UnknownFailpoint):
        hit(name)
    with pytest.raises(UnknownFailpoint):
        arm(name, boom)
    assert issubclass(UnknownFailpoint, AssertionError)


def test_an_armed_place_acts_until_it_is_disarmed() -> None:
    with arm("commit.before", boom) as armed:
        hit("commit.after")
        for _ in range(2):
            with pytest.raises(Boom):
                hit("commit.before")
        assert armed.hits == 2
    hit("commit.before")


def test_arming_works_without_a_context_too() -> None:
    armed = arm("commit.before", boom)
    try:
        with pytest.raises(Boom):
            hit("commit.before")
    finally:
        armed.disarm()
    hit("commit.before")
    armed.disarm()  # once more does no harm


def test_it_can_act_at_one_hit_only() -> None:
    with arm("send.after", boom, on=2):
        hit("send.after")
        with pytest.raises(Boom):
            hit("send.after")
        hit("send.after")


def test_one_place_is_armed_once_at_a_time() -> None:
    with arm("send.after", boom), pytest.raises(UnknownFailpoint, match="already"):
        arm("send.after", boom)


@pytest.mark.parametrize(
    "asked", ["commit", "commit.after:", "commit.after:0", "commit.after:-1", "commit.after:x", "commit.after:²"]
)
def test_a_misspelt_environment_is_an_error_rather_than_a_test_that_proves_nothing(asked: str) -> None:
    with pytest.raises(UnknownFailpoint):
        arm_from({"MOORINGS_FAILPOINT": asked})


def test_an_empty_environment_arms_nothing() -> None:
    assert arm_from({}) is None
    assert arm_from({"MOORINGS_FAILPOINT": ""}) is None


def test_a_misspelt_environment_stops_the_process_at_import() -> None:
    code, out, errors = run(MOORINGS_FAILPOINT="comit.after")
    assert (code, out) == (1, "")
    assert "UnknownFailpoint" in errors


@pytest.mark.parametrize(("asked", "printed"), [("commit.after", ""), ("commit.after:1", ""), ("commit.after:3", "1\n2\n")])
def test_the_process_is_killed_at_the_hit_that_was_asked_for(asked: str, printed: str) -> None:
    assert run(MOORINGS_FAILPOINT=asked)[:2] == (-signal.SIGKILL, printed)


@pytest.mark.parametrize("asked", ["commit.after:4", "commit.before", ""])
def test_the_process_lives_if_the_hit_never_comes(asked: str) -> None:
    assert run(MOORINGS_FAILPOINT=asked)[:2] == (0, "1\n2\n3\nfinally\n")


def test_with_a_once_file_the_restarted_process_lives(tmp_path: Path) -> None:
    once = tmp_path / "once"
    environ = {"MOORINGS_FAILPOINT": "commit.after:2", "MOORINGS_FAILPOINT_ONCE_FILE": str(once)}
    assert run(**environ)[:2] == (-signal.SIGKILL, "1\n")
    assert once.exists()
    assert run(**environ)[:2] == (0, "1\n2\n3\nfinally\n")


def test_a_once_file_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    code, _, errors = run(MOORINGS_FAILPOINT="commit.after", MOORINGS_FAILPOINT_ONCE_FILE=str(tmp_path / "no" / "once"))
    assert code == 1
    assert "FileNotFoundError" in errors
