"""The README's five steps as somebody new takes them, in a Slack that knows no more than the manifest it is given."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp

from bot.testing import FakeSlack
from tests import house
from tests.bot.command import ROOT, Running
from tests.e2e.shell import prepared

COMMANDS = house.readme_commands((ROOT / "README.md").read_text())
ADDRESS = "your-address.example"
HOOK = "/channels/slack/events"


def finished(script: str, folder: Path, env: dict[str, str]) -> str:
    return subprocess.run(["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


def started(script: str, folder: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@asynccontextmanager
async def installed(folder: Path) -> AsyncIterator[tuple[FakeSlack, str]]:
    """Take steps two to four; gives Slack with the bot in it, and where the bot listens on this machine."""
    env = prepared(folder)
    done = await asyncio.to_thread(finished, COMMANDS["slack_manifest"], folder, env)
    made = json.loads(done)
    assert made["settings"]["event_subscriptions"]["request_url"] == f"https://{ADDRESS}{HOOK}"
    events, scopes = made["settings"]["event_subscriptions"]["bot_events"], made["oauth_config"]["scopes"]["bot"]
    async with FakeSlack(scopes=scopes, events=events) as slack:
        block = COMMANDS["slack"].replace("xoxb-your-token", slack.token).replace("your-signing-secret", slack.signing_secret)
        assert block.endswith("\nmoorings demo")
        script = f"{block.removesuffix('moorings demo')}exec moorings demo --no-open --port 0"
        with started(script, folder, env | {"SLACK_API_URL": slack.api_url}) as process:
            running = Running(process)
            try:
                base = (await asyncio.to_thread(running.until, r"Moorings console: (http://[^/]+)/"))[1]
                heard = (await asyncio.to_thread(running.until, r"Moorings hears slack at (\S+)"))[1]
                assert f"{base}{HOOK}".startswith(heard)
                slack.events_url = f"{base}{HOOK}"
                yield slack, base
            finally:
                process.terminate()
                assert await asyncio.to_thread(running.end) == 0, running.said


async def test_the_five_steps_lead_to_an_approved_refund(tmp_path: Path) -> None:
    async with installed(tmp_path) as (slack, _):
        assert await slack.handshake()
        asked = await slack.mention("alice", "general", "refund 20 for ch_1")
        card = await slack.until(lambda: slack.card(asked))
        assert [button.label for button in card.buttons] == ["Approve", "Deny", "Deny with a note"]
        await slack.click(card, "Approve", "bob")
        [told] = await slack.until(lambda: slack.whispers("bob"))
        assert "may answer this" in told.words
        await slack.click(card, "Approve", "alice")
        [reply] = await slack.until(lambda: slack.replies(asked)[1:])
        assert reply.words.startswith("Refunded 20 for ch_1, receipt rf_")
        await slack.until(lambda: "Approved by" in slack.replies(asked)[0].words)
        assert slack.replies(asked)[0].buttons == ()
        # In the thread it goes on without a mention, for whoever began it.
        await slack.message("alice", "general", "hello", asked)
        [_, again] = await slack.until(lambda: found if len(found := slack.replies(asked)[1:]) == 2 else None)
        assert "This is message 2" in again.words
        await slack.direct("bob", "hello")
        await slack.until(lambda: [one for one in slack.visible_to("bob") if one.from_bot and "message 1" in one.words])
        # Above the limit it is finance's to say, and nobody here is that.
        large = await slack.mention("alice", "general", "refund 250 for ch_2")
        card = await slack.until(lambda: slack.card(large))
        assert "Finance may answer" in card.words
        await slack.click(card, "Approve", "farah")
        [told] = await slack.until(lambda: slack.whispers("farah"))
        assert "Finance may answer this" in told.words
        assert [call.answer for call in slack.calls if not call.ok] == []


async def test_guests_and_shared_channels_are_refused_in_private(tmp_path: Path) -> None:
    async with installed(tmp_path) as (slack, _):
        for who, where in (("mia", "general"), ("alice", "shared"), ("otto", "shared")):
            said = await slack.mention(who, where, "hello")
            told = await slack.until(partial(slack.whispers, who))
            assert "bot" in told[-1].words
            assert slack.replies(said) == []


async def test_through_a_tunnel_only_slack_gets_in(tmp_path: Path) -> None:
    tunnel = {"Host": ADDRESS, "X-Forwarded-For": "203.0.113.9", "X-Forwarded-Host": ADDRESS, "X-Forwarded-Proto": "https"}
    body = json.dumps({"type": "url_verification", "challenge": "c" * 50, "token": "t"}).encode()
    async with installed(tmp_path) as (slack, base), aiohttp.ClientSession() as http:
        headers = tunnel | slack.sign(body) | {"Content-Type": "application/json"}
        async with http.post(f"{base}{HOOK}", data=body, headers=headers) as answer:
            assert (answer.status, await answer.text()) == (200, "c" * 50)
        async with http.post(f"{base}{HOOK}", data=body, headers=tunnel) as answer:
            assert answer.status == 401
        async with http.post(f"{base}/channels/console", data=body, headers=headers) as answer:
            assert answer.status == 401
        for path in ("/", "/console/", "/v1/sessions", "/healthz", "/channels/..%2fv1/sessions", "/channels%2f../v1/sessions"):
            async with http.get(f"{base}{path}", headers=tunnel, allow_redirects=False) as answer:
                assert answer.status in {403, 404, 405}, path
                assert "sessions" not in await answer.text()
