"""What the timeline says of a turn, story by story."""

from __future__ import annotations

from typing import Any

import pytest

from bot.console.rows import span
from bot.console.timeline import timeline
from bot.moved import Mark, MarkKind
from tests.bot.console import stories

DAY = 86_400_000
START = 1_700_000_000_000  # 22:13:20 UTC


def knobs(turn: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(step["label"], step["state"], step["note"]) for step in turn["steps"]]


def test_a_killed_tool_runs_again_with_the_recorded_model_reply() -> None:
    [turn] = timeline(stories.killed_then_parked(START), now=START + 244_000)
    assert knobs(turn) == [
        ("Model call", "recorded", "asked for find_charge"),
        ("find_charge, attempt 1", "cut", "worker killed at 22:13:21"),
        ("find_charge, attempt 2", "recorded", "model reply reused, tool ran again with the same key"),
        ("Model call", "recorded", "asked for refund_charge"),
        ("Waiting for Finance", "waiting", "parked: no process, no memory"),
    ]
    assert turn["state"] == "waiting"
    assert turn["number"] == 3
    assert turn["summary"] == "4 steps, 2 attempts, waiting 4 min, nothing held in memory"
    assert [step["duration_ms"] for step in turn["steps"]] == [412, 886, 1110, 470, 240_090]


def test_shares_are_of_the_working_time_and_waiting_has_none() -> None:
    [turn] = timeline(stories.killed_then_parked(START), now=START + 244_000)
    *working, waiting = [step["share"] for step in turn["steps"]]
    assert sum(working) == pytest.approx(1, abs=0.001)
    assert waiting == 0


def test_an_approved_call_shows_who_approved_and_the_call_itself() -> None:
    [turn] = timeline(stories.approved(START), now=START + 999_000)
    assert knobs(turn)[-3:] == [
        ("Waited for Finance", "recorded", "approved by Farah, held nothing meanwhile"),
        ("refund_charge", "recorded", ""),
        ("Model call", "recorded", "answered"),
    ]
    assert turn["state"] == "completed"
    assert turn["summary"] == "6 steps, 2 attempts, done in 4 min"


def test_an_account_that_was_connected_is_not_called_approved() -> None:
    request = {"request_id": "p", "kind": "sign-in", "call_id": "a", "waiting_for": "Alice"}
    said = {"request_id": "p", "kind": "sign-in", "outcome": "approved", "responder": {"name": "Alice"}}
    events = stories.told(
        START,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (9, "actions.requested", {"actions": [stories.call("a", "open_issue")]}, 1),
        (10, "step.completed", {"step_index": 0}, 1),
        (11, "authorization.required", {"call_id": "a", "call_ids": ["a"], "request_id": "p", "name": "tracker"}, 1),
        (11, "input.requested", {"requests": [request]}, 1),
        (12, "turn.waiting", {"on": "input"}, 1),
        (50, "input.resolved", {"resolutions": [said]}, 1),
        (51, "step.started", {"step_index": 1}, 1),
        (60, "action.result", {"call_id": "a", "status": "completed"}, 1),
    )
    [turn] = timeline(events, now=START + 99)
    [waited] = [knob for knob in knobs(turn) if knob[0].startswith("Waited")]
    assert waited == ("Waited for Alice", "recorded", "connected by Alice, held nothing meanwhile")
    assert ("open_issue", "recorded", "") in knobs(turn)


def test_calls_that_wait_for_one_account_are_each_shown_once_it_is_there() -> None:
    request = {"request_id": "p", "kind": "sign-in", "action": {"call_id": "a", "tool": "open_issue"}, "waiting_for": "Alice"}
    said = {"request_id": "p", "kind": "sign-in", "outcome": "approved", "responder": {"name": "Alice"}}
    events = stories.told(
        START,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (9, "actions.requested", {"actions": [stories.call("a", "open_issue"), stories.call("b", "read_issue")]}, 1),
        (11, "input.requested", {"requests": [request]}, 1),
        (11, "authorization.required", {"call_ids": ["a", "b"], "request_id": "p", "name": "tracker"}, 1),
        (11, "step.completed", {"step_index": 0}, 1),
        (12, "turn.waiting", {"on": "input"}, 1),
        (50, "authorization.completed", {"request_id": "p", "name": "tracker", "outcome": "authorized"}, 1),
        (50, "input.resolved", {"resolutions": [said]}, 1),
        (51, "step.started", {"step_index": 1}, 1),
        (60, "action.result", {"call_id": "a", "status": "completed"}, 1),
        (61, "action.result", {"call_id": "b", "status": "completed"}, 1),
        (62, "step.completed", {"step_index": 1}, 1),
    )
    [parked] = timeline(events[:7], now=START + 20)
    assert [name for name, *_ in knobs(parked)] == ["Model call", "Waiting for Alice"]
    [turn] = timeline(events, now=START + 99)
    assert [knob[:2] for knob in knobs(turn)] == [
        ("Model call", "recorded"),
        ("Waited for Alice", "recorded"),
        ("open_issue", "recorded"),
        ("read_issue", "recorded"),
    ]


def test_a_model_call_that_was_cut_is_shown_apart_from_its_second_attempt() -> None:
    [turn] = timeline(stories.killed_in_model(START), now=START + 9000)
    assert knobs(turn) == [
        ("Model call, attempt 1", "cut", "worker killed before 22:13:21"),
        ("Model call, attempt 2", "recorded", "answered"),
    ]


def test_a_model_that_fails_shows_each_failure() -> None:
    [turn] = timeline(stories.fails_twice(START), now=START + 9000)
    assert knobs(turn) == [
        ("Model call, attempt 1", "failed", "The model answered 503."),
        ("Model call, attempt 2", "failed", "The model answered 503."),
        ("Model call, attempt 3", "recorded", "answered"),
    ]
    assert turn["summary"] == "1 step, 3 attempts, done in 2.4 s"


def test_a_result_recorded_before_the_kill_is_not_shown_as_run_twice() -> None:
    [turn] = timeline(stories.recorded_before_the_kill(START), now=START + 9000)
    assert knobs(turn) == [
        ("Model call", "recorded", "asked for slow"),
        ("slow", "recorded", "recorded in time, worker killed before 22:13:23, result reused"),
    ]


def test_a_kill_between_two_recordings_is_still_told() -> None:
    events = stories.told(
        START,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (200, "actions.requested", {"actions": [stories.call("c", "slow")]}, 1),
        (400, "action.result", {"call_id": "c", "status": "completed"}, 1),
        (900, "step.started", {"step_index": 0, "previous": "killed", "reused": {"model": True, "tools": ["c"]}}, 2),
        (910, "step.completed", {"step_index": 0}, 2),
    )
    [turn] = timeline(events, now=START + 1000)
    assert knobs(turn) == [
        ("Model call", "recorded", "asked for slow"),
        ("slow", "recorded", ""),
        ("Attempt 1", "cut", "worker killed before 22:13:20"),
    ]
    assert turn["summary"] == "2 steps, 2 attempts, running"


def test_a_reply_that_was_recorded_is_reused_without_a_tool() -> None:
    events = stories.told(
        START,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (900, "step.started", {"step_index": 0, "previous": "killed", "reused": {"model": True}}, 2),
        (910, "message.completed", {"message": "hi"}, 2),
        (920, "turn.completed", {}, 2),
    )
    [turn] = timeline(events, now=START + 1000)
    assert knobs(turn) == [
        ("Model call", "recorded", "recorded in time, worker killed before 22:13:20, reply reused"),
        ("Model call, attempt 2", "recorded", "reply reused, not asked again"),
    ]


@pytest.mark.parametrize(
    ("kind", "state", "note"), [("turn.failed", "failed", "Too long."), ("turn.cancelled", "cut", "cancelled")]
)
def test_what_was_open_ends_with_the_turn(kind: str, state: str, note: str) -> None:
    events = stories.told(
        START,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (50, kind, {"message": "Too long."} if kind == "turn.failed" else {}, 1),
    )
    [turn] = timeline(events, now=START + 1000)
    assert knobs(turn) == [("Model call", state, note)]
    assert turn["state"] == kind.removeprefix("turn.")


def test_a_denied_call_never_appears_as_run() -> None:
    prompt = {"request_id": "p", "kind": "approval", "action": stories.call("c", "refund_charge")}
    events = stories.told(
        START,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (10, "actions.requested", {"actions": [stories.call("c", "refund_charge")]}, 1),
        (11, "input.requested", {"requests": [prompt]}, 1),
        (12, "turn.waiting", {"on": "input"}, 1),
        (99, "input.resolved", {"resolutions": [{"request_id": "p", "outcome": "denied", "responder": {"name": "Farah"}}]}, 1),
        (100, "action.result", {"call_id": "c", "status": "rejected"}, 1),
    )
    [turn] = timeline(events, now=START + 1000)
    assert knobs(turn) == [
        ("Model call", "recorded", "asked for refund_charge"),
        ("Waited for approval", "recorded", "denied by Farah, held nothing meanwhile"),
    ]


def test_turns_are_apart_and_unknown_events_pass() -> None:
    events = stories.fails_twice(START) + stories.killed_then_parked(START + 10_000)
    events.insert(1, {"type": "from.the.future", "data": None, "meta": {}})
    assert [turn["turn_id"] for turn in timeline(events, now=START + 99_000)] == ["turn_0", "turn_2"]


def test_times_may_be_iso_8601() -> None:
    events = [
        {"type": "turn.started", "data": {"turn_id": "turn_0"}, "meta": {"at": "2023-11-14T22:13:20Z"}},
        {"type": "turn.completed", "data": {}, "meta": {"at": "2023-11-14T22:13:25+00:00"}},
    ]
    [turn] = timeline(events, now=START)
    assert (turn["started_at"], turn["ended_at"]) == (START, START + 5000)


def test_no_events_are_no_turns() -> None:
    assert timeline([], now=START) == []


@pytest.mark.parametrize(
    ("ms", "words"),
    [(412, "412 ms"), (900, "900 ms"), (1100, "1.1 s"), (240_000, "4 min"), (5_400_000, "1 h 30 min"), (259_200_000, "3 days")],
)
def test_durations_in_words(ms: int, words: str) -> None:
    assert span(ms) == words


def test_a_call_that_runs_again_shows_while_it_runs() -> None:
    events = stories.killed_then_parked(START)[:5]
    [turn] = timeline(events, now=START + 3000)
    assert knobs(turn)[-1] == ("find_charge, attempt 2", "running", "model reply reused, tool ran again with the same key")


def asked_for(*call_ids: str, kind: str = "approval", tool: str = "mail") -> list[stories.Line]:
    """A turn that waits for an answer to each of its calls."""
    calls = [stories.call(one, tool) for one in call_ids]
    requests = [{"request_id": f"p{one['call_id']}", "kind": kind, "waiting_for": "Alice", "action": one} for one in calls]
    return [
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (10, "actions.requested", {"actions": calls}, 1),
        *((11, "input.requested", {"requests": [request]}, 1) for request in requests),
        (12, "step.completed", {"step_index": 0}, 1),
        (13, "turn.waiting", {"on": "input"}, 1),
    ]


def said(call_id: str, outcome: str) -> stories.Line:
    return (50, "input.resolved", {"resolutions": [{"request_id": f"p{call_id}", "outcome": outcome}]}, 1)


def test_a_request_that_is_handed_on_waits_for_those_who_have_it_now() -> None:
    handed = (40, "input.escalated", {"request_id": "pa", "kind": "approval", "level": 1, "waiting_for": "a team lead"}, 1)
    [turn] = timeline(stories.told(START, *asked_for("a"), handed), now=START + 99)
    assert knobs(turn)[-1] == ("Waiting for a team lead", "waiting", "parked: no process, no memory")


def test_a_question_is_a_wait_and_no_call_beside_it() -> None:
    result = (60, "action.result", {"call_id": "a", "tool": "ask_question", "status": "completed"}, 1)
    events = stories.told(
        START,
        *asked_for("a", kind="question", tool="ask_question"),
        said("a", "answered"),
        result,
        (61, "step.started", {"step_index": 1}, 1),
        (70, "message.completed", {"message": "Thank you."}, 1),
    )
    [turn] = timeline(events, now=START + 99)
    assert [label for label, _, _ in knobs(turn)] == ["Model call", "Waited for Alice", "Model call"]


def test_of_two_approved_calls_each_shows_once_in_the_step_that_ran_it() -> None:
    events = stories.told(
        START,
        *asked_for("a", "b"),
        said("a", "approved"),
        said("b", "approved"),
        (60, "step.started", {"step_index": 1}, 1),
        (61, "action.result", {"call_id": "b", "status": "completed"}, 1),
        (62, "step.completed", {"step_index": 1}, 1),
        (63, "turn.waiting", {"on": "input"}, 1),
        (64, "step.started", {"step_index": 2}, 1),
        (65, "action.result", {"call_id": "a", "status": "completed"}, 1),
        (66, "step.completed", {"step_index": 2}, 1),
    )
    [turn] = timeline(events, now=START + 99)
    assert [(step["label"], step["index"]) for step in turn["steps"] if "Wait" not in step["label"]] == [
        ("Model call", 0),
        ("mail", 1),
        ("mail", 2),
    ]


def test_a_call_with_a_run_of_its_own_lasts_until_its_end_whatever_it_asks() -> None:
    question = {"request_id": "p", "kind": "question", "call_id": "a", "waiting_for": "Alice"}
    begun: list[stories.Line] = [
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (10, "actions.requested", {"actions": [stories.call("a", "deploy")]}, 1),
        (11, "task.started", {"call_id": "a", "tool": "deploy"}, 1),
        (12, "step.completed", {"step_index": 0}, 1),
        (13, "turn.waiting", {"on": "task"}, 1),
        (20, "input.requested", {"call_id": "a", "requests": [question]}, 1),
        (21, "action.partial", {"call_id": "a", "text": "Planned."}, 1),
    ]
    [turn] = timeline(stories.told(START, *begun), now=START + 99)
    assert knobs(turn)[1:] == [("deploy", "running", "Planned."), ("Waiting for Alice", "waiting", "")]
    ended: list[stories.Line] = [
        (50, "input.resolved", {"resolutions": [{"request_id": "p", "outcome": "answered"}]}, 1),
        (80, "action.result", {"call_id": "a", "status": "completed"}, 1),
        (81, "step.started", {"step_index": 1}, 1),
        (90, "message.completed", {"message": "Deployed."}, 1),
    ]
    [turn] = timeline(stories.told(START, *begun, *ended), now=START + 99)
    assert [label for label, _, _ in knobs(turn)] == ["Model call", "deploy", "Waited for Alice", "Model call"]
    assert knobs(turn)[1] == ("deploy", "recorded", "")
    assert turn["steps"][1]["duration_ms"] == 70


def test_what_was_moved_stands_where_it_came() -> None:
    events = stories.told(
        START,
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0}, 1),
        (9, "message.completed", {"message": "Hello."}, 1),
        (10, "step.completed", {"step_index": 0}, 1),
        (10, "turn.completed", {}, 1),
        (50, "turn.started", {"turn_id": "turn_1"}, 1),
        (51, "step.started", {"step_index": 0}, 1),
    )
    moves = [Mark(START - 5, MarkKind.CLOCK, 1), Mark(START + 10, MarkKind.DEPLOY, 2), Mark(START + 60, MarkKind.CLOCK, 3 * DAY)]
    first, second = timeline(events, now=START + 99, marks=moves)
    assert knobs(first) == [
        ("Model call", "recorded", "answered"),
        ("v2 deployed", "recorded", "v1 finished its work or handed it over"),
    ]
    assert knobs(second)[1] == ("Clock moved on 3 days", "recorded", "what was due by then came due")
    assert [step["kind"] for step in second["steps"]] == ["model", "mark"]
    assert second["summary"] == "1 step, running"
    assert second["steps"][1]["share"] == 0


def test_a_row_says_whose_it_is_once_there_was_more_than_one_deployment() -> None:
    lines: list[stories.Line] = [
        (0, "turn.started", {"turn_id": "turn_0"}, 1),
        (1, "step.started", {"step_index": 0, "deployment": "v1"}, 1),
        (2, "actions.requested", {"actions": [stories.call("a", "slow")]}, 1),
        (90, "step.started", {"step_index": 0, "deployment": "v2", "previous": "released", "reused": {"model": True}}, 2),
    ]
    [alone] = timeline(stories.told(START, *lines[:3]), now=START + 99)
    assert [step["by"] for step in alone["steps"]] == ["", ""]
    [turn] = timeline(stories.told(START, *lines), now=START + 99)
    assert [(step["label"], step["by"]) for step in turn["steps"]] == [
        ("Model call", "v1"),
        ("slow, attempt 1", "v1"),
        ("slow, attempt 2", "v2"),
    ]
    assert "handed over by its worker before" in turn["steps"][1]["note"]
