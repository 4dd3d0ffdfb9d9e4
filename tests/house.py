"""Checks of the house rules, as functions from a source tree to a list of complaints.

What lives here: the rules that no linter knows. What does not: running them (test_house.py), and the linters' own settings.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

PACKAGES = ("bot", "channels", "durable_core")
LINE_LIMIT = 400
KITS = ("durable_core/testing", "channels/testing")

# A distribution that comes with a declared one, at the very version that one needs.
COMPANIONS = {"pydantic-core": "pydantic"}

# Written in halves, so that this file isn't its own finding.
REGISTRY_HOSTS = tuple(
    f"{name}.{domain}"
    for name, domain in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry.npmjs", "org"),
        ("registry.yarnpkg", "com"),
        ("deb.debian", "org"),
        ("security.debian", "org"),
        ("proxy.golang", "org"),
        ("conda.anaconda", "org"),
    )
)


def modules(root: Path, folders: Iterable[str] = PACKAGES) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((root / folder).rglob("*.py"))


def long_modules(root: Path) -> list[str]:
    """Name each module over the limit."""
    counts = ((path, len(path.read_text().splitlines())) for path in modules(root))
    return [f"{path.relative_to(root)} has {lines} lines" for path, lines in counts if lines > LINE_LIMIT]


def promises(contract: Path, letter: str) -> set[int]:
    """Read the numbers of the promises that a contract's docstrings make: a line that begins with `S1` or `C1`."""
    tree = ast.parse(contract.read_text())
    owners = (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef))
    text = "\n".join(ast.get_docstring(node) or "" for node in owners)
    return {int(number) for number in re.findall(rf"^\s*{letter}(\d+)\b", text, re.MULTILINE)}


def proofs(root: Path, letter: str) -> set[int]:
    """Read the numbers of the promises that have a test, in the tests and in the kits."""
    found: set[int] = set()
    files = [*modules(root, ("tests", *KITS)), *(root / f"{kit}.py" for kit in KITS)]
    for path in files:
        if path.exists():
            found |= {
                int(number)
                for number in re.findall(rf"^\s*(?:async )?def test_{letter.lower()}(\d+)_\w", path.read_text(), re.MULTILINE)
            }
    return found


def unproven(root: Path, contract: str, letter: str) -> list[str]:
    """Name each promise without a test, and each test of a promise that isn't made."""
    made, tested = promises(root / contract, letter), proofs(root, letter)
    complaints = [f"{contract} promises {letter}{number}, no test_{letter.lower()}{number}_…" for number in sorted(made - tested)]
    complaints += [f"test_{letter.lower()}{number}_… tests no promise of {contract}" for number in sorted(tested - made)]
    return complaints or ([] if made else [f"{contract} makes no promise {letter}1"])


def readme_commands(text: str) -> dict[str, str]:
    """Read the blocks that follow a `<!-- command: name -->` line."""
    return {
        name: block.strip()
        for name, block in re.findall(r"^<!-- command: (\w+) -->\n```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    }


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def requirement_name(requirement: str) -> str:
    return normal(re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0])


def declared(pyproject: Path) -> tuple[set[str], set[str]]:
    """Read the distributions that are required, and those that some extra adds."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = (name for names in project["optional-dependencies"].values() for name in names)
    return {requirement_name(name) for name in project["dependencies"]}, {requirement_name(name) for name in extras}


def bad_constraints(root: Path) -> list[str]:
    """Name each line that is not `name==version`, and each declared distribution without one."""
    lines = [line.strip() for line in (root / "constraints.txt").read_text().splitlines()]
    complaints = [f"not a plain version: {line}" for line in lines if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+", line)]
    pinned = {requirement_name(line) for line in lines}
    needed = set().union(*declared(root / "pyproject.toml"))
    return complaints + [f"no version for {name}" for name in sorted(needed - pinned)]


def tracked_files(root: Path) -> list[Path]:
    """List the files of the repository, or of the folder when it isn't one."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, check=False, capture_output=True, text=True
    )
    if listing.returncode == 0:
        return [path for name in listing.stdout.split("\0") if name and (path := root / name).is_file()]
    hidden = {".venv", ".git", ".moorings"}
    return [path for path in sorted(root.rglob("*")) if path.is_file() and not hidden & set(path.parts)]


def registry_hosts(root: Path) -> list[str]:
    """Name each file that speaks of a package registry's host: which one is used is the machine's business."""
    hosts = [host.encode() for host in REGISTRY_HOSTS]
    return [str(path.relative_to(root)) for path in tracked_files(root) if any(host in path.read_bytes() for host in hosts)]


def skips(root: Path) -> list[str]:
    """Name each test file that skips by itself, which the strict switch would not see."""
    banned = re.compile(r"\bpytest\.(skip|importorskip)\(|mark\.(skip|skipif)\b|\bunittest\.skip")
    allowed = {"parts.py", "house.py", "test_parts.py", "test_house.py"}
    return [
        str(path.relative_to(root))
        for path in modules(root, ("tests",))
        if path.name not in allowed and banned.search(path.read_text())
    ]


def imports(path: Path) -> set[str]:
    """Read the top-level names that a module imports absolutely, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def import_complaints(root: Path) -> list[str]:
    """Name each import that no requirement brings, and each requirement that nothing imports."""
    used: dict[str, str] = {}
    known = packages_distributions()
    for path in modules(root, (*PACKAGES, "migrations")):
        for name in imports(path) - set(sys.stdlib_module_names) - set(PACKAGES):
            for distribution in known.get(name, [name]):
                used.setdefault(normal(distribution), str(path.relative_to(root)))
    required, extra = declared(root / "pyproject.toml")
    brought = required | extra | {companion for companion, owner in COMPANIONS.items() if owner in required}
    complaints = [f"{path} imports {name}, which is not declared" for name, path in sorted(used.items()) if name not in brought]
    return complaints + [f"{name} is required, but nothing imports it" for name in sorted(required - set(used))]


def names_used(root: Path, folder: str) -> set[str]:
    """Read every name that code in a folder refers to."""
    found: set[str] = set()
    for path in modules(root, (folder,)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
    return found
