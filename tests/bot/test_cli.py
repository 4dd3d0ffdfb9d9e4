"""The command, in real processes: what it says, how it starts, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from durable_core.crypto import KeyRing, new_key_entry
from durable_core.schema import HEAD, found_version, upgrade
from tests.bot.command import ROOT, Running, environment, refusal, run, running
from tests.durable_core.migrating import later_folder

SHADOWS = ["bot.py", "bot/__init__.py", "channels.py", "channels/__init__.py", "durable_core.py", "durable_core/__init__.py"]
JSON = {"Content-Type": "application/json"}
DEMO = ["demo", "--port", "0", "--no-open", "--data", "data"]


def ready_to_start(folder: Path, **variables: str) -> dict[str, str]:
    """Prepare everything that `start` asks for."""
    (folder / "app.py").write_text("from bot.app import Bot\nbot = Bot(agents=[])\n")
    url = f"sqlite:///{folder / 'm.db'}"
    upgrade(url)
    return environment(stubs=True, MOORINGS_ENCRYPTION_KEYS=new_key_entry(), MOORINGS_DATABASE_URL=url, **variables)


def ask(
    url: str, *, data: bytes | None = None, headers: Mapping[str, str] | None = None, cookies: bool = False
) -> tuple[int, str]:
    request = urllib.request.Request(url, data=data, headers=dict(headers or {}))  # noqa: S310 - our own server
    jar = [urllib.request.HTTPCookieProcessor()] if cookies else []
    try:
        with urllib.request.build_opener(*jar).open(request, timeout=40) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Words


def test_help_and_version_come_without_anything_heavy(tmp_path: Path) -> None:
    done = run(tmp_path, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"moorings \S+\n", done.stdout)
    done = run(tmp_path, "--help")
    assert done.returncode == 0
    for command in ("demo", "start", "migrate", "keys"):
        assert f"  {command} " in done.stdout
    assert "worker" not in done.stdout
    heavy = ("aiohttp", "pydantic", "sqlalchemy", "alembic", "cryptography", "rich")
    look = f"import sys, bot.cli; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_new_key_can_be_used(tmp_path: Path) -> None:
    done = run(tmp_path, "keys", "new")
    assert (done.returncode, done.stderr) == (0, "")
    KeyRing.parse(done.stdout.strip())
    assert run(tmp_path, "keys", "new").stdout != done.stdout


def test_migrate_makes_the_schema_and_says_where_it_is(tmp_path: Path) -> None:
    env = environment(MOORINGS_DATABASE_URL=f"sqlite:///{tmp_path}/new/m.db")
    assert run(tmp_path, "migrate", env=env).stdout == f"The database is at {HEAD} now.\n"
    assert found_version(tmp_path / "new" / "m.db") == HEAD
    assert run(tmp_path, "migrate", env=env).stdout == f"The database is at {HEAD} already.\n"


# Reasons not to start


@pytest.mark.parametrize("shadow", SHADOWS)
def test_a_file_that_would_shadow_a_package_is_refused_by_name(tmp_path: Path, shadow: str) -> None:
    path = tmp_path / shadow
    path.parent.mkdir(exist_ok=True)
    path.write_text("print('IMPORTED')\n")
    for arguments in (["demo", "--no-open"], ["start", "app:bot"], ["--version"]):
        said = refusal(run(tmp_path, *arguments, script=True))
        assert str(path if shadow.endswith(".py") and "/" not in shadow else path.parent) in said
        assert "rename" in said
    if not shadow.startswith("bot"):  # `python -m bot` beside a bot of the user's is that bot
        assert shadow.partition("/")[0].removesuffix(".py") in refusal(run(tmp_path, "demo", "--no-open"))


def test_our_own_folder_shadows_nothing(tmp_path: Path) -> None:
    assert run(ROOT, "--version").returncode == 0
    (tmp_path / "here").symlink_to(ROOT)
    assert run(tmp_path / "here", "--version").returncode == 0
    for name in ("bot", "channels", "durable_core"):
        (tmp_path / name).symlink_to(ROOT / name)
    assert run(tmp_path, "--version").returncode == 0


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        said = refusal(run(tmp_path, "demo", "--no-open", "--port", port))
        assert f"port {port} on 127.0.0.1 is in use" in said
        assert "port" in refusal(run(tmp_path, "start", "app:bot", "--port", port, env=ready_to_start(tmp_path)))


def test_a_folder_that_cant_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("file", "file/below", "/proc/moorings"):
        said = refusal(run(tmp_path, "demo", "--no-open", "--port", "0", "--data", folder))
        assert folder in said
        assert "--data" in said


def test_the_demo_lets_the_network_in_only_when_told(tmp_path: Path) -> None:
    said = refusal(run(tmp_path, "demo", "--no-open", "--port", "0", "--host", "0.0.0.0"))  # noqa: S104 - is refused
    assert "--allow-network" in said
    said = refusal(run(tmp_path, "demo", "--no-open", "--port", "0", "--host", "192.0.2.1", "--allow-network"))
    assert "not an address of this machine" in said


def test_start_needs_a_key_and_a_schema(tmp_path: Path) -> None:
    env = ready_to_start(tmp_path)
    without = {name: value for name, value in env.items() if name != "MOORINGS_ENCRYPTION_KEYS"}
    assert "moorings keys new" in refusal(run(tmp_path, "start", "app:bot", env=without))
    empty = env | {"MOORINGS_DATABASE_URL": f"sqlite:///{tmp_path}/empty.db"}
    assert "moorings migrate" in refusal(run(tmp_path, "start", "app:bot", env=empty))
    assert not (tmp_path / "empty.db").exists()


def test_start_names_a_missing_package_and_its_extra(tmp_path: Path) -> None:
    env = ready_to_start(tmp_path, MOORINGS_MODEL="anthropic:claude-sonnet-5")
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "usercustomize.py").write_text("import sys; sys.modules['anthropic'] = None\n")
    env["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'hide'}"
    said = refusal(run(tmp_path, "start", "app:bot", env=env))
    assert "pip install 'moorings[anthropic]'" in said


def test_settings_are_told_line_by_line(tmp_path: Path) -> None:
    env = environment(MOORINGS_API_TOKENS="alice:hunter2:admin", MOORINGS_MODEL="x")
    done = run(tmp_path, "start", "app:bot", env=env)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    ("reference", "source", "said"),
    [
        ("app", "", "module:attribute"),
        ("app:", "", "module:attribute"),
        ("app.py:bot", "", "module"),
        ("app-x:bot", "", "module:attribute"),
        ("nowhere:bot", "", "no module nowhere"),
        ("app:other", "bot = 1\n", "app has no `other`"),
        ("app:bot", "bot = 1\n", "app:bot holds a value of type int, not a Bot"),
        ("app:bot", "x = 1\n\nbot = x +\n", "app.py line 3: SyntaxError"),
        ("app:bot", "def f():\n    return 1 / 0\n\nbot = f()\n", "app.py line 2: ZeroDivisionError: division by zero"),
        ("app:bot", "import json\nbot = json.loads('x')\n", "app.py line 2: JSONDecodeError"),
        ("app:bot", "import nowhere\n", "app.py line 1: the package nowhere is not installed"),
        ("app:bot", "import sys\nsys.exit('no')\n", "app.py line 2: SystemExit: no"),
        ("app:bot", "raise ModuleNotFoundError(name='slack_sdk')\n", "pip install 'moorings[slack]'"),
    ],
)
def test_an_app_that_cant_be_loaded_is_told_with_its_line(tmp_path: Path, reference: str, source: str, said: str) -> None:
    env = ready_to_start(tmp_path)
    (tmp_path / "app.py").write_text(source)
    told = refusal(run(tmp_path, "start", reference, "--port", "0", env=env, script=True))
    assert said in told
    assert "Traceback" not in told


def test_a_role_that_isnt_one_is_refused(tmp_path: Path) -> None:
    assert "all, web, worker" in refusal(run(tmp_path, "start", "app:bot", "--role", "boss"))


# The demo


def demo_env() -> dict[str, str]:
    return environment(stubs=True, PYTHONWARNINGS="default", MOORINGS_DATABASE_URL="postgresql://not/this")


def worker_up(command: Running) -> int:
    return int(command.until(r"STUB worker up (\d+)")[1])


def test_the_demo_prints_its_address_serves_and_ends(tmp_path: Path) -> None:
    with running(tmp_path, *DEMO, env=demo_env()) as demo:
        pid = worker_up(demo)
        address, key = demo.until(r"^Moorings console: (http://127\.0\.0\.1:\d+)/console/\?k=(\S+)$").groups()
        assert ask(f"{address}/healthz") == (200, '{"status": "ok"}')
        assert ask(f"{address}/readyz")[0] == 200
        assert ask(f"{address}/console/?k=wrong")[0] in {401, 403, 404}
        status, text = ask(f"{address}/v1/sessions", data=b"{}", headers=JSON)
        assert (status, set(json.loads(text))) == (202, {"session_id", "status"})
        if not any("STUB worker started" in line for line in demo.said):
            demo.until("STUB worker started")
        demo.process.send_signal(signal.SIGTERM)
        assert demo.end() == 0
    assert not alive(pid)
    assert "STUB web drained" in demo.said
    assert "STUB worker drained" in demo.said
    data = tmp_path / "data"
    assert found_version(data / "moorings.db") == HEAD
    for name in ("keys", "console.key"):
        assert stat.S_IMODE((data / name).stat().st_mode) == 0o600
    assert (data / "console.key").read_text().strip() == key


def test_the_address_and_the_keys_survive_a_restart(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with running(tmp_path, *DEMO, env=demo_env()) as demo:
            key = demo.until(r"/console/\?k=(\S+)")[1]
            seen.append((key, (tmp_path / "data" / "keys").read_text()))
            demo.process.send_signal(signal.SIGINT)
            assert demo.end() == 0
    assert seen[0] == seen[1]


def test_a_killed_worker_is_back_and_the_server_never_left(tmp_path: Path) -> None:
    with running(tmp_path, *DEMO, env=demo_env()) as demo:
        first = worker_up(demo)
        address = demo.until(r"(http://127\.0\.0\.1:\d+)/console")[1]
        os.kill(first, signal.SIGKILL)
        second = worker_up(demo)
        assert second != first
        assert ask(f"{address}/healthz")[0] == 200
        demo.process.send_signal(signal.SIGTERM)
        assert demo.end() == 0


def test_the_worker_ends_when_the_demo_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, *DEMO, env=demo_env()) as demo:
        demo.until("STUB worker started")
        demo.process.kill()
        demo.end()  # the pipe ends only when the worker, which holds it too, has gone
    assert not any("drain" in line for line in demo.said)


def test_a_second_signal_ends_the_drain_at_once(tmp_path: Path) -> None:
    with running(tmp_path, *DEMO, env=demo_env() | {"STUB_DRAIN": "20"}) as demo:
        demo.until("Moorings console")
        demo.process.send_signal(signal.SIGTERM)
        demo.until("STUB web drains")
        demo.process.send_signal(signal.SIGTERM)
        assert demo.end() == 128 + signal.SIGTERM
    assert not any("drained" in line for line in demo.said)


def test_the_demo_itself_greets_over_the_api(tmp_path: Path) -> None:
    env = environment() | {"PYTHONWARNINGS": "default"}
    with running(tmp_path, *DEMO, env=env) as demo:
        address, page = demo.until(r"(http://127\.0\.0\.1:\d+)(/console/\?k=\S+)").groups()
        assert ask(f"{address}{page}", cookies=True)[0] == 200
        _, text = ask(f"{address}/v1/sessions", data=b'{"message": "hello"}', headers=JSON)
        created = json.loads(text)
        _, text = ask(f"{address}/v1/submissions/{created['submission_id']}?wait=30")
        submission = json.loads(text)
        assert (submission["status"], submission["error"]) == ("completed", None)
        assert submission["reply"]["text"]
        status, text = ask(f"{address}/v1/sessions/{created['session_id']}/events?follow=false")
        events = [json.loads(line) for line in text.splitlines()]
        assert status == 200
        assert [event["meta"]["index"] for event in events] == list(range(len(events)))
        assert {"turn.started", "message.completed", "turn.completed"} <= {event["type"] for event in events}
        assert ask(f"{address}/console/")[0] in {401, 403, 404}
        demo.process.send_signal(signal.SIGTERM)
        assert demo.end() == 0, demo.said


def test_a_tool_that_was_killed_runs_again_and_the_call_gets_its_answer(tmp_path: Path) -> None:
    env = environment() | {"PYTHONWARNINGS": "default"}
    with running(tmp_path, *DEMO, env=env) as demo:
        address, page = demo.until(r"(http://127\.0\.0\.1:\d+)(/console/\?k=\S+)").groups()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        browser.open(f"{address}{page}", timeout=20).close()
        _, text = ask(f"{address}/v1/sessions", data=b'{"message": "slow 1"}', headers=JSON)
        key = demo.until(r"slow: start, 1 s, key (\S+), attempt 1")[1]
        kill = urllib.request.Request(f"{address}/console/api/worker/kill", data=b"{}", headers=JSON)  # noqa: S310 - our own server
        with browser.open(kill, timeout=20) as answer:
            assert json.load(answer)["pid"]
        _, text = ask(f"{address}/v1/submissions/{json.loads(text)['submission_id']}?wait=30")
        assert json.loads(text)["reply"] == {"text": "That took 1 s."}
        demo.process.send_signal(signal.SIGTERM)
        assert demo.end() == 0, demo.said
    ends = [line for line in demo.said if line.startswith("slow: end")]
    assert ends == [f"slow: end, 1 s, key {key}, attempt 2"]


# Production


@pytest.mark.parametrize("role", ["all", "web", "worker"])
def test_start_takes_on_a_role_and_drains(tmp_path: Path, role: str) -> None:
    env = ready_to_start(tmp_path, MOORINGS_API_TOKENS="alice:alice-token") | {"PYTHONWARNINGS": "default"}
    with running(tmp_path, "start", "app:bot", "--role", role, "--port", "0", env=env) as started:
        started.until(f"STUB {role} started")
        if role != "worker":
            address = started.until(r"Listening on (\S+)")[1]
            assert ask(f"{address}/readyz")[0] == 200
            assert ask(f"{address}/v1/sessions/x")[0] == 401
            assert ask(f"{address}/console/")[0] == 404
        started.process.send_signal(signal.SIGTERM)
        assert started.end() == 0
    assert [line for line in started.said if line.startswith("STUB")][1:] == [
        f"STUB {role} drains",
        f"STUB {role} drained",
        f"STUB {role} closed",
    ]


# Versions


def test_dev_leaves_alone_what_an_earlier_start_left_unless_told(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from bot import Agent, Bot\nbot = Bot(agents=[Agent('helper', 'scripted')])\n")
    began = int(time.time() * 1000)
    for more in ((), ("--resume",)):
        with running(tmp_path, "dev", "app:bot", "--port", "0", "--no-open", "--data", "data", *more, env=demo_env()) as dev:
            dev.until("Moorings console")
            since = int((tmp_path / "data" / "started").read_text())
            command = Path(f"/proc/{dev.process.pid}/task/{dev.process.pid}/children").read_text().split()
            lines = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in command]
            assert [b"--since" in line for line in lines] == [not more]
            dev.process.send_signal(signal.SIGTERM)
            assert dev.end() == 0
        assert (since == 0) if more else (began <= since <= int(time.time() * 1000))


def test_migrate_says_what_waits_for_older_versions(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from durable_core import schema;"
        "folder = Path(sys.argv.pop(1)); schema.migrations_folder = lambda: folder; schema.HEAD = '9998_post_y';"
        "from bot.cli import main; main()"
    )
    env = environment(MOORINGS_DATABASE_URL=f"sqlite:///{tmp_path}/m.db")
    upgrade(f"sqlite:///{tmp_path}/m.db")
    folder = later_folder(tmp_path, "9997_pre_x", "9998_post_y")

    def migrate(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, str(folder), "migrate", *more]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    waits = "9998_post_y can be applied once no older version runs: moorings migrate --finish\n"
    assert migrate().stdout == f"The database is at 9997_pre_x now.\n{waits}"
    assert migrate().stdout == f"The database is at 9997_pre_x already.\n{waits}"
    with closing(sqlite3.connect(tmp_path / "m.db")) as file:
        file.execute(
            "INSERT INTO moor_worker (owner, deployment, min_readable, current, host, pid, started_at, heartbeat)"
            " VALUES ('w', 'v0', 1, 1, 'box', 7, 0, ?)",
            (int(time.time() * 1000),),
        )
        file.commit()
    assert "v0 (box, process 7)" in refusal(migrate("--finish"))
    with closing(sqlite3.connect(tmp_path / "m.db")) as file:
        file.execute("DELETE FROM moor_worker")
        file.commit()
    assert migrate("--finish").stdout == "The database is at 9998_post_y now.\n"
    env |= {"MOORINGS_ENCRYPTION_KEYS": new_key_entry()}
    assert "9998_post_y is for newer versions only" in refusal(run(tmp_path, "start", "app:bot", env=env))
