"""The house rules hold, and each rule can be broken.

What lives here: the rules run on this repository and on small trees that break them. What does not: the rules (house.py).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

from tests import house

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# Size, promises, exports


def test_no_module_is_long() -> None:
    assert house.long_modules(ROOT) == []


def test_a_long_module_is_named(tmp_path: Path) -> None:
    plant(tmp_path, {"bot/a.py": "x = 1\n" * 400, "channels/slack/b.py": "x = 1\n" * 401, "tests/c.py": "x = 1\n" * 999})
    assert house.long_modules(tmp_path) == ["channels/slack/b.py has 401 lines"]


@pytest.mark.parametrize(("contract", "letter"), [("durable_core/store.py", "S"), ("channels/contract.py", "C")])
def test_every_promise_has_a_test(contract: str, letter: str) -> None:
    assert house.unproven(ROOT, contract, letter) == []


def test_a_promise_without_a_test_is_named(tmp_path: Path) -> None:
    store = '"""Promises.\n\nS1  One.\nS2  Two, see S9.\n"""\n\nclass Store:\n    """Keep.\n\n    S3  Three.\n    """\n'
    kit = "class Suite:\n    async def test_s1_one(self): ...\n    def test_s2(self): ...\n"
    plant(
        tmp_path,
        {"durable_core/store.py": store, "durable_core/testing/suite.py": kit, "tests/t.py": "def test_s4_four(): ...\n"},
    )
    assert house.unproven(tmp_path, "durable_core/store.py", "S") == [
        "durable_core/store.py promises S2, no test_s2_…",
        "durable_core/store.py promises S3, no test_s3_…",
        "test_s4_… tests no promise of durable_core/store.py",
    ]
    plant(tmp_path, {"durable_core/store.py": '"""None."""\n', "tests/t.py": "", "durable_core/testing/suite.py": ""})
    assert house.unproven(tmp_path, "durable_core/store.py", "S") == ["durable_core/store.py makes no promise S1"]


@pytest.mark.parametrize("package", house.PACKAGES)
def test_every_package_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("package", house.PACKAGES)
def test_every_exported_name_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    names = list(module.__all__)
    assert names
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(module, name)] == []


# Channels


def _channels(package: types.ModuleType) -> set[str]:
    base = importlib.import_module("channels.contract").Channel
    found: set[str] = set()
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if ".testing" in info.name:
            continue
        for name, value in vars(importlib.import_module(info.name)).items():
            if (
                inspect.isclass(value)
                and issubclass(value, base)
                and value.__module__ == info.name
                and not inspect.isabstract(value)
            ):
                found.add(name)
    return found


def test_every_channel_is_in_the_contract_suite() -> None:
    adapters = _channels(importlib.import_module("channels"))
    assert "Console" in adapters
    assert adapters - house.names_used(ROOT, "tests/channels/contract") == set()


def test_a_channel_named_only_in_prose_is_not_in_the_suite(tmp_path: Path) -> None:
    plant(tmp_path, {"cases/a.py": '"""Telegram comes later."""\n# Telegram\ncase = slack.Slack("Telegram")\n'})
    assert house.names_used(tmp_path, "cases") == {"case", "slack", "Slack"}


# Dependencies


def test_constraints_are_versions_only() -> None:
    assert house.bad_constraints(ROOT) == []


def test_a_constraint_with_more_than_a_version_is_named(tmp_path: Path) -> None:
    project = '[project]\ndependencies = ["orjson>=3", "aiohttp"]\n[project.optional-dependencies]\ndb = ["psycopg[binary]>=3"]\n'
    lines = "orjson==3.1\npsycopg==3.2 --hash=sha256:00\n--index-url https://example.com/simple\na @ file:///a.whl\n"
    plant(tmp_path, {"pyproject.toml": project, "constraints.txt": lines})
    assert house.bad_constraints(tmp_path) == [
        "not a plain version: psycopg==3.2 --hash=sha256:00",
        "not a plain version: --index-url https://example.com/simple",
        "not a plain version: a @ file:///a.whl",
        "no version for aiohttp",
    ]


def test_imports_and_requirements_agree() -> None:
    assert house.import_complaints(ROOT) == []


def test_an_undeclared_import_and_an_unused_requirement_are_named(tmp_path: Path) -> None:
    project = '[project]\ndependencies = ["orjson>=3", "aiohttp"]\n[project.optional-dependencies]\ndb = ["psycopg[binary]>=3"]\n'
    code = (
        "import json\nfrom . import own\nfrom orjson import dumps\n\ndef f():\n    import psycopg.rows\n    import hypothesis\n"
    )
    plant(tmp_path, {"pyproject.toml": project, "bot/a.py": code})
    assert house.import_complaints(tmp_path) == [
        "bot/a.py imports hypothesis, which is not declared",
        "aiohttp is required, but nothing imports it",
    ]


def test_no_file_names_a_registry() -> None:
    assert house.registry_hosts(ROOT) == []


def test_a_file_that_names_a_registry_is_found(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {"a.txt": f"from https://{house.REGISTRY_HOSTS[0]}/simple\n", "b.txt": "plain\n", ".venv/c": house.REGISTRY_HOSTS[1]},
    )
    assert house.registry_hosts(tmp_path) == ["a.txt"]


def test_no_test_skips_behind_the_switch() -> None:
    assert house.skips(ROOT) == []


def test_a_test_that_skips_by_itself_is_named(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "tests/a.py": "pytest.skip('no')\n",
            "tests/b.py": "@pytest.mark.skipif(True)\n",
            "tests/c.py": "missing('browser', '')\n",
        },
    )
    assert house.skips(tmp_path) == ["tests/a.py", "tests/b.py"]


# README


def test_readme_has_its_two_commands() -> None:
    commands = house.readme_commands(README)
    assert commands["demo"].endswith("moorings demo")
    assert commands["test"].endswith("-m pytest -n 2")
    for name in ("demo", "test"):
        assert commands[name].startswith("python3 -m venv ")
        assert "-c constraints.txt" in commands[name]


def test_ci_runs_the_command_of_the_readme() -> None:
    shown = subprocess.run(["bash", ROOT / ".ci" / "run", "--show"], check=True, capture_output=True, text=True, cwd="/").stdout
    assert shown.strip() == house.readme_commands(README)["test"]
    assert "pytest" not in (ROOT / ".ci" / "run").read_text()


def test_readme_code_runs() -> None:
    blocks = house.python_blocks(README)
    assert blocks
    for number, block in enumerate(blocks):
        module = types.ModuleType(f"readme_{number}")
        sys.modules[module.__name__] = module  # annotations are looked up in the module by name
        try:
            exec(compile(block, f"README.md, block {number}", "exec"), vars(module))  # noqa: S102  (our own example)
        finally:
            del sys.modules[module.__name__]
        if "# app.py" in block:
            assert isinstance(vars(module)["bot"], importlib.import_module("bot").Bot)


@pytest.mark.parametrize("command", sorted(set(re.findall(r"(?<!@)\bmoorings ([a-z]+)\b", README))))
def test_every_command_in_the_readme_exists(command: str) -> None:
    done = subprocess.run([sys.executable, "-m", "bot", command, "--help"], check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


# The wheel


def test_the_wheel_carries_all_that_is_not_code(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], check=True, capture_output=True, cwd=ROOT
    )
    (wheel,) = tmp_path.glob("moorings-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    folders = (ROOT / "bot" / "console" / "static", ROOT / "bot" / "server" / "pages")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    static = {path.relative_to(ROOT).as_posix() for path in files}
    assert "bot/server/pages/templates/base.html" in static
    revisions = {f"durable_core/migrations/versions/{path.name}" for path in (ROOT / "migrations" / "versions").glob("*.py")}
    assert static
    assert revisions
    expected = static | revisions | {"durable_core/migrations/env.py", "durable_core/migrations/script.py.mako"}
    assert expected | {f"{package}/py.typed" for package in house.PACKAGES} <= packed
    assert not [name for name in packed if name.startswith(("tests/", "migrations/"))]
