"""What the command says about Slack: the manifest, and a set-up that is not complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bot.command import environment, refusal, run

DEMO = ["demo", "--port", "0", "--no-open", "--data", "data"]


def test_the_manifest_is_printed_for_an_address(tmp_path: Path) -> None:
    done = run(tmp_path, "slack", "manifest", "--url", "https://bot.example.com/", "--name", "Harbour Help")
    assert (done.returncode, done.stderr) == (0, "")
    made = json.loads(done.stdout)
    assert made["settings"]["event_subscriptions"]["request_url"] == "https://bot.example.com/channels/slack/events"
    assert made["display_information"]["name"] == "Harbour Help"
    assert made["features"]["bot_user"]["display_name"] == "harbour-help"


def test_the_manifest_takes_the_address_of_the_environment(tmp_path: Path) -> None:
    done = run(tmp_path, "slack", "manifest", env=environment(MOORINGS_PUBLIC_URL="https://bot.example.com"))
    assert "https://bot.example.com/channels/slack/events" in done.stdout


@pytest.mark.parametrize("options", [[], ["--url", "http://bot.example.com"], ["--url", "bot.example.com"]])
def test_the_manifest_needs_an_address_that_slack_takes(tmp_path: Path, options: list[str]) -> None:
    said = refusal(run(tmp_path, "slack", "manifest", *options))
    assert said == "Slack needs an https address of this app; give --url https://… or set MOORINGS_PUBLIC_URL."


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SLACK_BOT_TOKEN": "xoxb-1"}, "slack: no signing secret; set SLACK_SIGNING_SECRET, or give Slack(signing_secret=…)"),
        ({"SLACK_SIGNING_SECRET": "abc"}, "slack: no bot token; set SLACK_BOT_TOKEN, or give Slack(bot_token=…)"),
        (
            {"SLACK_BOT_TOKEN": "xapp-1", "SLACK_SIGNING_SECRET": "abc"},
            "slack: the bot token does not begin with xoxb-; SLACK_BOT_TOKEN takes the one of the bot, not of a person or app",
        ),
    ],
)
def test_a_demo_with_half_of_slack_says_what_is_missing(tmp_path: Path, variables: dict[str, str], said: str) -> None:
    assert refusal(run(tmp_path, *DEMO, env=environment() | variables)) == said
    assert not (tmp_path / "data").exists()


def test_an_app_with_half_of_slack_is_not_developed_either(tmp_path: Path) -> None:
    source = "from bot import Agent, Bot\nfrom channels.slack import Slack\n"
    (tmp_path / "app.py").write_text(
        f"{source}bot = Bot(agents=[Agent('support', 'scripted')], channels=[Slack(bot_token='xoxb-1')])\n"
    )
    said = refusal(run(tmp_path, "dev", "app:bot", *DEMO[1:]))
    assert said == "slack: no signing secret; set SLACK_SIGNING_SECRET, or give Slack(signing_secret=…)"
