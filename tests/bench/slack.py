"""Slack's side of a real `start` process: how soon events are taken, how soon an approved tool runs.

What lives here: latencies that Slack and a person see. What does not: Slack's own time, deaths (tests/e2e/test_slack_kills.py).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

from bot.testing.slack import FakeSlack, Said
from channels.slack.settings import API_URL, SECRET, TOKEN
from tests.bench.processes import Server, prepare, serving
from tests.bench.tables import Row, spread

CHANNELS = 9
"""Posting is limited to four at once in each, looking channels up to ten at once: all clicks together stay below that."""
MENTIONS = 200
SLOW_TURNS = 50
CLICKS = 18


async def acks_and_clicks(folder: Path) -> list[Row]:
    """Accept mentions, idle and beside slow turns; approve by a click."""
    prepare(folder)
    async with FakeSlack() as slack:
        places = itertools.cycle([slack.add_channel(f"bench-{number}", "alice").name for number in range(CHANNELS)])
        more = {TOKEN: slack.token, SECRET: slack.signing_secret, API_URL: slack.api_url}
        async with serving(folder, more=more) as server:
            slack.events_url = f"http://127.0.0.1:{server.port}/channels/slack/events"
            clicks = [await _click(slack, server, next(places)) for _ in range(CLICKS)]
            idle = [await _mentioned(slack, next(places)) for _ in range(MENTIONS)]
            began = await _slow_turns(slack, server, places)
            busy = [await _mentioned(slack, next(places)) for _ in range(MENTIONS)]
            await server.kill()  # its slow turns would be waited for
            slack.events_url = ""
    how = f"n = {MENTIONS}, signed POST → 200, durable insert included"
    return [
        Row("Slack: mention → 200, idle, p50 / p99", spread([_ms(said, 0) for said in idle]), how),
        Row("Slack: its twin → 200, idle, p50 / p99", spread([_ms(said, 1) for said in idle]), f"n = {MENTIONS}, recognised"),
        Row(f"Slack: mention → 200, {began} slow turns, p50 / p99", spread([_ms(said, 0) for said in busy]), how),
        Row("Slack: click → 200, p50 / p99", spread([ack for ack, _ in clicks]), f"n = {CLICKS}"),
        Row("Slack: click → approved tool started, p50 / p99", spread([tool for _, tool in clicks]), "clock read in the tool"),
    ]


def _ms(said: Said, twin: int) -> float:
    return said.postings[twin].attempts[0].ms / 1000


async def _mentioned(slack: FakeSlack, place: str) -> Said:
    said = await slack.mention("alice", place, "Where is my parcel?")
    await asyncio.sleep(0.05)
    return said


async def _click(slack: FakeSlack, server: Server, place: str) -> tuple[float, float]:
    said = await slack.mention("alice", place, "mark")
    card = await slack.until(lambda: slack.card(said))
    await slack.settled()
    line = len(server.lines)
    began = time.monotonic_ns()
    posting = await slack.click(card, card.buttons[0].label, "alice")
    _, text = await server.line("mark ", after=line)
    took = (int(text.split()[2]) - began) / 1e9
    return posting.attempts[0].ms / 1000, took


async def _slow_turns(slack: FakeSlack, server: Server, places: itertools.cycle[str]) -> int:
    """Begin turns that take a minute; how many run."""
    for _ in range(SLOW_TURNS):
        await slack.mention("alice", next(places), "wait")
    end = time.monotonic() + 5
    while (began := sum(line.startswith("wait ") for _, line in server.lines)) < SLOW_TURNS and time.monotonic() < end:
        await asyncio.sleep(0.05)
    return began
