"""What has to be true after any number of deaths, judged on the data alone: store, platforms, ledger.

What lives here: the invariants and how their breaches are counted. What does not: the deaths.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bot.runtime import CONSOLE_FILE
from channels.console.platform import ConsolePlatform
from durable_core.clock import DatabaseClock
from durable_core.crypto import KeyRing
from durable_core.model import INTERNAL, Record, Run, RunKind, Step
from durable_core.store import Store
from durable_core.stores.open import open_store
from durable_core.streams import EventView, Streams
from tests.e2e import plain
from tests.e2e.account import ACCOUNT, AS
from tests.e2e.app import BEGIN, EFFECT, FLOW_LOGS, FLOW_STEPS, MODEL, STEP, WORDS
from tests.e2e.data import Read, has_file, reading
from tests.e2e.ledger import Ledger, Line
from tests.e2e.process import KEYS, settings_of
from tests.e2e.story import SIGN_IN, Story

MS = 1_000_000
ENDS = {"turn.completed", "turn.failed", "turn.cancelled"}


@dataclass(slots=True)
class Verdict:
    """What was found: breaches by kind, and what the app did."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    paid_twice: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    models: int = 0
    """Model calls that began."""
    begins: int = 0
    effects: int = 0
    reruns: int = 0
    """How often a person was asked whether to run a call again."""

    @property
    def breaches(self) -> list[str]:
        named = {"lost": self.lost, "doubled": self.doubled, "paid twice": self.paid_twice, "wrong": self.wrong}
        return [f"{kind}: {text}" for kind, texts in named.items() for text in texts]


@dataclass(frozen=True, slots=True)
class Past:
    """All that a store holds of one run."""

    run: Run
    steps: list[Step]
    records: dict[int, list[Record]]
    events: list[EventView]

    @property
    def run_id(self) -> str:
        return self.run.run_id


async def judge(folder: Path, stories: Sequence[Story], *, deaths: int, drains: int = 0) -> Verdict:
    """Judge a folder whose processes have all ended and in which nothing is left to do.

    `drains` counts the processes that had to let go of work when they were told to end.
    """
    verdict = Verdict()
    with reading(folder) as read:
        _rows(read, stories, verdict)
        # a death right before the end is seen at once on a file, elsewhere by whoever starts next
        gone = [row["owner"] for row in read("SELECT owner FROM moor_worker WHERE gone_at IS NULL")] if has_file(folder) else []
        verdict.wrong += [f"worker {owner} is still enrolled" for owner in gone]
        runs = [row["run_id"] for row in read("SELECT run_id FROM moor_run")]
        prompts = read("SELECT * FROM moor_prompt ORDER BY created_at")
        posts = read("SELECT * FROM moor_outbox ORDER BY at, lane_seq")
    store = open_store(settings_of(folder).database_url, keys=KeyRing.parse(KEYS), clock=DatabaseClock())
    await store.open()
    try:
        pasts = [await _past(store, run_id) for run_id in runs]
    finally:
        await store.close()
    await _shown(folder, stories, prompts, posts, verdict)
    lines = Ledger(folder).lines()
    flows = [past for past in pasts if past.run.kind is RunKind.WORKFLOW]
    _flows(flows, stories, lines, verdict)
    for past in (past for past in pasts if past not in flows):
        _models(past, lines, verdict)
        _tools(past, lines, prompts, verdict)
        _events(past, verdict, deaths=deaths, drains=drains)
    _account(folder, stories, lines, prompts, verdict)
    verdict.models = sum(line.what == MODEL for line in lines)
    verdict.begins = sum(line.what == BEGIN for line in lines)
    verdict.effects = sum(line.what == EFFECT for line in lines)
    verdict.reruns = sum(prompt["kind"] == "rerun" for prompt in prompts)
    known = {past.run_id for past in pasts}
    verdict.wrong += [f"{line.what} of an unknown session" for line in lines if line.key.rpartition(":")[0] not in known]
    return verdict


async def _past(store: Store, run_id: str) -> Past:
    steps = await store.steps(run_id)
    records = {n: await store.records(run_id, n) for n in range(len(steps) + 1)}
    streams = Streams(store)
    events: list[EventView] = []
    while page := await streams.read(run_id, start=len(events), hidden=True):
        events += page
    return Past(await store.run(run_id), steps, records, events)


def _rows(read: Read, stories: Sequence[Story], verdict: Verdict) -> None:
    """Every input ends once, and nothing is left to do."""
    admissions = read("SELECT * FROM moor_admission")
    expected = sum(len(story.said) for story in stories)
    count = sum(row["kind"] == "message" and row["source"] != INTERNAL for row in admissions)
    if count < expected:
        verdict.lost.append(f"{count} of {expected} messages were admitted")
    if count > expected:
        verdict.doubled.append(f"{count} admissions of {expected} messages")
    verdict.lost += [f"{row['kind']} ended as {row['outcome']}" for row in admissions if row["outcome"] != "completed"]
    for row in read("SELECT kind, count(*) AS n FROM moor_command WHERE taken_step IS NULL GROUP BY kind"):
        verdict.lost.append(f"{row['n']} commands of kind {row['kind']} were not taken")
    for row in read("SELECT * FROM moor_run WHERE kind = 'workflow'"):
        if (row["status"], row["end_reason"], row["wake_at"], row["owner"]) != ("ended", "completed", None, None):
            verdict.wrong.append(f"a workflow is {row['status']}, {row['end_reason']}, owner {row['owner']}")
    for row in read("SELECT * FROM moor_run WHERE kind = 'session'"):
        if row["phase"] != "idle" or row["owner"] is not None or row["status"] != "open" or row["turn_id"] is not None:
            verdict.wrong.append(f"a run is {row['phase']}, owner {row['owner']}")
        if row["wake_at"] != row["deadline_at"]:
            verdict.wrong.append("a run is due though nothing is left to do")
    for row in read("SELECT * FROM moor_lane WHERE done_seq <> seq OR owner IS NOT NULL OR due_at IS NOT NULL"):
        verdict.wrong.append(f"a lane to {row['channel']} is not at rest")
    for row in read("SELECT state, count(*) AS n FROM moor_outbox WHERE state <> 'sent' GROUP BY state"):
        verdict.lost.append(f"{row['n']} messages are {row['state']}")


async def _shown(
    folder: Path,
    stories: Sequence[Story],
    prompts: Sequence[dict[str, Any]],
    posts: Sequence[dict[str, Any]],
    verdict: Verdict,
) -> None:
    """One visible reply a message, one settled card a prompt, nothing that a person said twice."""
    people: Counter[str] = Counter()
    bots: list[tuple[str, str, dict[str, Any] | None]] = []
    platform = ConsolePlatform(folder / CONSOLE_FILE)
    try:
        for thread in await platform.threads():
            for message in await platform.messages(thread.id):
                if message.author == "bot" and message.notice and message.private_to is not None:
                    continue  # a link, or why there was none, told to one person alone
                if message.author == "bot":
                    bots.append((message.id, message.text, message.card))
                else:
                    people[message.text] += 1
    finally:
        await platform.close()
    bots += [(message["id"], message["text"], message["card"]) for message in plain.shown(folder)]
    on_console = Counter(text for story in stories if story.through == "console" for text in story.said)
    if people != on_console:
        verdict.doubled.append(f"people said {dict(people)}, not {dict(on_console)}")
    visible = [story for story in stories if story.through != "api"]
    expected = Counter(text for story in visible for text in replies(story, prompts))
    found = Counter(text for _, text, card in bots if card is None)
    _compare("reply", found, expected, verdict)
    cards = [prompt["prompt_id"] for prompt in prompts if any(post["prompt_id"] == prompt["prompt_id"] for post in posts)]
    refs = {post["ref"]: post["prompt_id"] for post in posts if post["prompt_id"] and post["edit_of"] is None}
    asked_alone = [
        prompt["prompt_id"] for prompt in prompts if prompt["kind"] == SIGN_IN
    ]  # beside it, the others see who is asked
    wanted = Counter([*cards, *asked_alone])
    _compare("card", Counter(refs.get(id_, f"stray {id_}") for id_, _, card in bots if card is not None), wanted, verdict)
    for _, _, card in bots:
        if card is not None and (card["buttons"] or card["outcome"] is None):
            verdict.wrong.append(f"a card is not settled: {card['question']}")
    if len(cards) != len(prompts) and len(visible) == len(stories):
        verdict.lost.append(f"{len(prompts)} prompts, {len(cards)} cards")


def _account(
    folder: Path, stories: Sequence[Story], lines: Sequence[Line], prompts: Sequence[dict[str, Any]], verdict: Verdict
) -> None:
    """Asked once for an account, it is there once, and whatever was done with it was done as its owner."""
    expected = sum(story.signs_in for story in stories)
    asked = [prompt for prompt in prompts if prompt["kind"] == SIGN_IN]
    if [(prompt["outcome"], prompt["option_id"]) for prompt in asked] != [("approved", "connected")] * expected:
        verdict.wrong.append(f"asked for an account: {[(prompt['outcome'], prompt['option_id']) for prompt in asked]}")
    with reading(folder) as read:
        kept = Counter(row["kind"] for row in read("SELECT kind FROM moor_vault WHERE kind = 'credential'"))
        left = read("SELECT name FROM moor_vault WHERE kind = 'sign-in' AND due_at IS NOT NULL")
        alone = read("SELECT prompt_id FROM moor_outbox WHERE prompt_id IS NOT NULL AND edit_of IS NULL")
    if kept["credential"] != expected:
        verdict.wrong.append(f"{kept['credential']} accounts are kept")
    verdict.wrong += [f"{row['name']} has still to be looked at" for row in left]
    cards = Counter(row["prompt_id"] for row in alone)
    verdict.wrong += [
        f"{cards[prompt['prompt_id']]} cards are owed for an account" for prompt in asked if cards[prompt["prompt_id"]] != 2
    ]
    acted = [line.note for line in lines if line.what == AS]
    if set(acted) != ({ACCOUNT} if expected else set()):
        verdict.wrong.append(f"acted as {acted}")


def replies(story: Story, prompts: Sequence[dict[str, Any]]) -> list[str]:
    """Say what the person has to read in the end."""
    skipped = any(prompt["kind"] == "rerun" and prompt["outcome"] == "denied" for prompt in prompts)
    found = []
    for text in story.said:
        if text.partition(" ")[0] in {*story.tools, *story.flows}:
            found.append(f"{text}: {'unknown' if skipped and story.again == 'skip' else 'completed'}")
        elif text.startswith("stream"):
            found.append(" ".join(f"w{place}" for place in range(WORDS)))
        else:
            found.append(f"You said: {text}")
    return found


def _compare(what: str, found: Counter[str], expected: Counter[str], verdict: Verdict) -> None:
    verdict.lost += [f"{what} {text!r}" for text in expected - found]
    for text in found - expected:
        (verdict.doubled if text in expected else verdict.wrong).append(f"{what} {text!r}")


def _models(past: Past, lines: Sequence[Line], verdict: Verdict) -> None:
    """A reply that was recorded is never asked for again; one that wasn't may be, by another process."""
    calls: defaultdict[int, list[Line]] = defaultdict(list)
    for line in lines:
        session, _, number = line.key.rpartition(":")
        if line.what == MODEL and session == past.run_id:
            calls[int(number)].append(line)
    steps = [step for step in past.steps if step.kind == "model"]
    if sorted(calls) != list(range(len(steps))):
        verdict.wrong.append(f"model calls {sorted(calls)} for {len(steps)} model steps")
    for sequence, step in enumerate(steps):
        kept = next((record.at for record in past.records[step.n] if record.key == "reply"), step.completed_at)
        late = [line for line in calls[sequence] if line.at_ns > (kept + 1) * MS]
        verdict.paid_twice += [f"model call {sequence} after its reply was kept" for _ in late]
        if len({line.pid for line in calls[sequence]}) != len(calls[sequence]):
            verdict.paid_twice.append(f"model call {sequence} twice by one process")


def _tools(past: Past, lines: Sequence[Line], prompts: Sequence[dict[str, Any]], verdict: Verdict) -> None:
    """A finished call ran once; a cut-off one runs again with its key if that does no harm, else when a person says so."""
    begins: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.what == BEGIN and line.key.startswith(f"{past.run_id}:"):
            begins[line.key.partition(":")[2]].append(line)
    results = {
        record.key.removeprefix("result:"): record
        for records in past.records.values()
        for record in records
        if record.key.startswith("result:")
    }
    verdict.lost += [
        f"call {call_id} has no result" for call_id in begins.keys() - results.keys() if not _skipped(call_id, past, prompts)
    ]
    for call_id, starts in begins.items():
        kept = results.get(call_id)
        if kept is not None and any(line.at_ns > (kept.at + 1) * MS for line in starts):
            verdict.doubled.append(f"call {call_id} after its result was kept")
        for before, after in pairwise(starts):
            if before.pid == after.pid and after.note not in {"once", "pay"}:
                verdict.doubled.append(f"call {call_id} twice by one process")
            if after.note in {"once", "pay"} and not _let_run(call_id, past, prompts, before, after):
                verdict.doubled.append(f"call {call_id} ran again and nobody had said so")


def _skipped(call_id: str, past: Past, prompts: Sequence[dict[str, Any]]) -> bool:
    asked = [prompt for prompt in prompts if prompt["run_id"] == past.run_id and prompt["call_id"] == call_id]
    return any(prompt["kind"] == "rerun" and prompt["outcome"] == "denied" for prompt in asked)


def _let_run(call_id: str, past: Past, prompts: Sequence[dict[str, Any]], before: Line, after: Line) -> bool:
    return any(
        prompt["run_id"] == past.run_id
        and prompt["call_id"] == call_id
        and prompt["kind"] == "rerun"
        and prompt["outcome"] == "approved"
        and before.at_ns <= (prompt["settled_at"] + 1) * MS
        and (prompt["settled_at"] - 1) * MS <= after.at_ns
        for prompt in prompts
    )


def _flows(pasts: Sequence[Past], stories: Sequence[Story], lines: Sequence[Line], verdict: Verdict) -> None:
    """One run a call; each step is recorded once, and doesn't run again when it is; one answer."""
    expected = sum(len(story.flows) for story in stories)
    if len(pasts) != expected:
        (verdict.doubled if len(pasts) > expected else verdict.lost).append(f"{len(pasts)} runs for {expected} calls")
    for past in pasts:
        _places(past.events, verdict)
        entries = Counter(step.name for step in past.steps if step.kind != "asked")
        if entries != Counter(FLOW_LOGS[past.run.name]):
            verdict.wrong.append(f"the log of a workflow has {dict(entries)}")
        for name in FLOW_STEPS[past.run.name]:
            kept = next((step.completed_at for step in past.steps if step.name == f"step:{name}#0"), None)
            bodies = [line for line in lines if line.what == STEP and line.key == f"{past.run_id}:{name}"]
            if not bodies:
                verdict.lost.append(f"step {name} never ran")
            if kept is not None and any(line.at_ns > (kept + 1) * MS for line in bodies):
                verdict.doubled.append(f"step {name} after its result was kept")
            if len({line.pid for line in bodies}) != len(bodies):
                verdict.doubled.append(f"step {name} twice by one process")


def _places(events: Sequence[EventView], verdict: Verdict) -> None:
    """The list of events has no gaps."""
    if [event.seq for event in events] != list(range(len(events))):
        verdict.wrong.append("positions of events have gaps")
    visible = [event for event in events if event.index is not None]
    if [event.index for event in visible] != list(range(len(visible))):
        verdict.wrong.append("indexes of events have gaps")
    if any(after.at < before.at for before, after in pairwise(events)):
        verdict.wrong.append("times of events run backwards")


def _events(past: Past, verdict: Verdict, *, deaths: int, drains: int) -> None:
    """A turn ends once, and attempts are told as they were."""
    events = past.events
    _places(events, verdict)
    started = Counter(event.data["turn_id"] for event in events if event.type == "turn.started")
    ended = Counter(event.data["turn_id"] for event in events if event.type in ENDS)
    if set(started.values()) - {1}:
        verdict.doubled.append("a turn started twice")
    if started != ended:
        verdict.wrong.append(f"turns started {dict(started)}, ended {dict(ended)}")
    verdict.wrong += [f"a turn ended as {event.type}" for event in events if event.type in ENDS - {"turn.completed"}]
    received = Counter(event.data["submission_id"] for event in events if event.type == "message.received")
    if set(received.values()) - {1}:
        verdict.doubled.append("a message was received twice")
    resolved = Counter(
        resolution["request_id"] for event in events if event.type == "input.resolved" for resolution in event.data["resolutions"]
    )
    asked = Counter(
        request["request_id"] for event in events if event.type == "input.requested" for request in event.data["requests"]
    )
    if asked != resolved or set(asked.values()) - {1}:
        verdict.wrong.append(f"asked {dict(asked)}, resolved {dict(resolved)}")
    begun = Counter(event.data["run_id"] for event in events if event.type == "task.started")
    settled = Counter(event.data["run_id"] for event in events if event.type == "task.settled")
    if begun != settled or set(begun.values()) - {1}:
        verdict.wrong.append(f"runs told as begun {dict(begun)}, as settled {dict(settled)}")
    results = Counter(event.data["call_id"] for event in events if event.type == "action.result")
    if set(results.values()) - {1}:
        verdict.doubled.append(f"results were told twice: {dict(results)}")
    _attempts(past, verdict, deaths=deaths, drains=drains)


def _attempts(past: Past, verdict: Verdict, *, deaths: int, drains: int) -> None:
    previous = {"killed"} if deaths else set()
    previous |= {"released"} if drains else set()
    begun: dict[tuple[str, int], EventView] = {}
    text: dict[tuple[str, int], str] = {}
    for event in past.events:
        if event.attempt > deaths + drains + 1:
            verdict.wrong.append(f"{event.type} of attempt {event.attempt} after {deaths} deaths and {drains} drains")
        if "step_index" not in event.data:
            continue
        where = (event.data["turn_id"], event.data["step_index"])
        if event.type == "step.started":
            _beginning(past, event, begun.get(where), verdict, previous=previous)
            begun[where] = event
            text[where] = ""
        elif where in begun and event.attempt != begun[where].attempt:
            verdict.wrong.append(f"{event.type} of attempt {event.attempt}, its step began attempt {begun[where].attempt}")
        elif event.type == "message.appended":
            text[where] += event.data["delta"]
        elif event.type == "message.completed" and text[where] not in {"", event.data["message"]}:
            verdict.wrong.append(f"streamed {text[where]!r}, completed {event.data['message']!r}")


def _beginning(past: Past, event: EventView, before: EventView | None, verdict: Verdict, *, previous: set[str]) -> None:
    if before is not None and event.attempt <= before.attempt:
        verdict.wrong.append(f"attempt {event.attempt} began after attempt {before.attempt}")
    if event.attempt > 1 and event.data.get("previous") not in previous:
        verdict.wrong.append(f"attempt {event.attempt} says that the one before was {event.data.get('previous')}")
    if event.attempt == 1 and "previous" in event.data:
        verdict.wrong.append("a first attempt speaks of one before")
    if "reused" not in event.data:
        return
    step = next(
        (step for step in past.steps if step.started_at <= event.at <= step.completed_at and step.attempt >= event.attempt), None
    )
    kept = [record for record in past.records[step.n] if record.attempt < event.attempt] if step is not None else []
    told = event.data["reused"]
    if told["model"] != any(record.key == "reply" for record in kept):
        verdict.wrong.append(f"attempt {event.attempt} says reused.model={told['model']}")
    if sorted(told["tools"]) != sorted(record.key.removeprefix("result:") for record in kept if record.key.startswith("result:")):
        verdict.wrong.append(f"attempt {event.attempt} says reused.tools={told['tools']}")
