"""What the README says is so: its blocks run, its links lead somewhere."""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests import house
from tests.bot.command import ROOT, run
from tests.e2e.demo import Demo
from tests.e2e.shell import against, prepared, started

README = (ROOT / "README.md").read_text()
COMMANDS = house.readme_commands(README)


def call(address: str, body: object = None, *, token: str | None = None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(address, json.dumps(body).encode() if body else None, headers)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
    return found


def example() -> str:
    """Return the app that the README writes."""
    [block] = [block for block in house.python_blocks(README) if block.startswith("# app.py")]
    return block


def scripted(block: str) -> str:
    """Return the example with the scripted model in place of a paid one."""
    code, count = re.subn(r'model="[^"]+"', 'model="scripted"', block)
    assert count == 1
    return code


def test_the_walk_over_http_refunds_once(demo: Demo, tmp_path: Path) -> None:
    said = against(COMMANDS["http"], demo.base, tmp_path, env=prepared(tmp_path))
    assert '"type":"turn.waiting"' in said
    assert '"status":"settled"' in said
    outcome, _ = json.JSONDecoder().raw_decode(said[said.rindex('{"submission_id"') :])
    assert outcome["status"] == "completed"
    assert re.fullmatch(r"Refunded 20 for ch_1, receipt rf_\d+\.", outcome["reply"]["text"])
    story = [json.loads(line)["type"] for line in said[said.rindex('{"type":"session.started"') :].splitlines() if line]
    assert story[-2:] == ["turn.completed", "session.waiting"]
    assert story.count("action.result") == 1


def test_the_example_app_is_complete() -> None:
    block = example()
    namespace: dict[str, Any] = {"__name__": "readme_app"}
    module = type(sys)("readme_app")
    sys.modules["readme_app"] = module
    try:
        exec(compile(scripted(block), "README.md", "exec"), vars(module))  # noqa: S102 - our own example
        namespace |= vars(module)
    finally:
        del sys.modules["readme_app"]
    namespace["bot"].check()
    assert [tool.name for tool in namespace["support"].tools] == ["refund_charge"]


def test_the_example_app_starts_as_told(tmp_path: Path) -> None:
    block = example()
    (tmp_path / "app.py").write_text(scripted(block))
    token = "a-long-random-token"
    with started(COMMANDS["start"], tmp_path, env=prepared(tmp_path)) as base:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            call(f"{base}/v1/sessions", {"message": "hello"})
        with pytest.raises(urllib.error.HTTPError, match="404"):
            call(f"{base}/demo/api/issues", token=token)  # the demo's account provider is the demo's alone
        small = call(f"{base}/v1/sessions", {"message": "refund 20 for ch_1"}, token=token)
        done = call(f"{base}/v1/submissions/{small['submission_id']}?wait=20", token=token)
        assert (done["status"], done["reply"]["text"]) == ("completed", "refunded 20 for ch_1")
        large = call(f"{base}/v1/sessions", {"message": "refund 250 for ch_2"}, token=token)
        for event in follow(f"{base}/v1/sessions/{large['session_id']}/events?start=0", token):
            if event["type"] == "turn.waiting":
                break
        [prompt] = call(f"{base}/v1/sessions/{large['session_id']}", token=token)["open_prompts"]
        assert prompt["text"] == "Refund 250 for ch_2?"
        answer = {"responses": [{"request_id": prompt["request_id"], "option_id": "approve"}]}
        [result] = call(f"{base}/v1/sessions/{large['session_id']}/responses", answer, token=token)["results"]
        assert result["status"] == "settled"
        done = call(f"{base}/v1/submissions/{large['submission_id']}?wait=20", token=token)
        assert (done["status"], done["reply"]["text"]) == ("completed", "refunded 250 for ch_2")


def follow(address: str, token: str) -> list[dict[str, Any]]:
    """Read events until the turn waits or ends."""
    found: list[dict[str, Any]] = []
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        for line in answer:
            if line.strip():
                found.append(json.loads(line))
                if found[-1]["type"] in {"turn.waiting", "turn.completed", "turn.failed"}:
                    break
    return found


def test_the_demo_has_the_options_that_the_readme_tells_of(tmp_path: Path) -> None:
    said = run(tmp_path, "demo", "--help").stdout
    assert all(option in said for option in ("--port", "--host", "--data", "--no-open"))


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            linked = (ROOT / page).parent / path if path else ROOT / page
            assert linked.is_file(), target
            assert not anchor or anchor in anchors(linked), target


def anchors(page: Path) -> set[str]:
    """Name a page's headings as links do."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
