"""The turn engine against a random thread: people talk, answer and cancel while the model and the tools do what they like.

What lives here: the machine and its invariants. What does not: any store; the shell is played in a few lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bot.history import Call, Item, ResultItem, ResultStatus, Usage, validate_history
from bot.model import ModelReply, RequestedCall
from bot.turn import changes
from bot.turn.actions import Action, Dismiss, End, Fail, Open, Refuse, Resolve, Rest, Stop, Think
from bot.turn.change import Begun, Change, NewPrompt
from bot.turn.decide import decide
from bot.turn.state import (
    Cancel,
    Input,
    Limits,
    Message,
    Purpose,
    Response,
    State,
    Turn,
    TurnPolicy,
    View,
    state_from_json,
    state_to_json,
)
from durable_core.model import AnswerPolicy, Outcome, PromptOutcome
from tests.bot.people import ALICE, BOB, NOBODY
from tests.bot.turn.views import cancel, message, response

PEOPLE = (ALICE, BOB, NOBODY)
MAX_STEPS = 300


@dataclass
class Asked:
    """A prompt as the store keeps it."""

    prompt: NewPrompt
    after: int
    outcome: PromptOutcome | None = None


@dataclass
class Ledger:
    """What happened, for the invariants."""

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    runs: list[tuple[str, str | None]] = field(default_factory=list)
    """(call, the prompt that allowed it)."""
    gated: set[str] = field(default_factory=set)
    finished: dict[str, int] = field(default_factory=dict)
    resolved: dict[str, int] = field(default_factory=dict)


class Thread(RuleBasedStateMachine):
    """One session whose shell is played by the test."""

    @initialize()
    def begin(self) -> None:
        self.state = State()
        self.history: list[Item] = []
        self.inbox: dict[int, Input] = {}
        self.prompts: dict[str, Asked] = {}
        self.ledger = Ledger()
        self.seq = 0
        self.now = 1_000
        self.charged = 0
        self.retry_at: int | None = None
        self.reply: ModelReply | None = None
        self.results: dict[str, ResultItem] = {}
        self.started: set[str] = set()
        self.minted = 0

    # ── people ──

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    @rule(who=st.sampled_from(PEOPLE), policy=st.sampled_from(TurnPolicy), denied=st.sampled_from([None, None, None, "no"]))
    def say(self, who: object, policy: TurnPolicy, denied: str | None) -> None:
        entry = message(self._next(), who=who, policy=policy, denied=denied)  # type: ignore[arg-type]
        self.inbox[entry.seq] = entry
        self.ledger.outcomes[entry.submission_id] = []

    @rule(named=st.booleans())
    def stop(self, named: bool) -> None:
        turn_id = self.state.turn.turn_id if self.state.turn is not None and named else None
        entry = cancel(self._next(), turn_id)
        self.inbox[entry.seq] = entry
        self.ledger.outcomes[entry.submission_id] = []

    @precondition(lambda self: self._open())
    @rule(data=st.data(), outcome=st.sampled_from([PromptOutcome.APPROVED, PromptOutcome.DENIED]))
    def answer(self, data: st.DataObject, outcome: PromptOutcome) -> None:
        asked = data.draw(st.sampled_from(self._open()))
        pending_cancel = any(isinstance(entry, Cancel) for entry in self.inbox.values())
        if pending_cancel or (asked.prompt.expires_at or 0) <= self.now:
            return  # the store refuses it
        asked.outcome = outcome
        self._resolved(asked.prompt.prompt_id)
        entry = response(self._next(), asked.prompt.prompt_id, outcome)
        self.inbox[entry.seq] = entry

    @rule(ms=st.sampled_from([1, 500, 2_000, 10_000]))
    def wait(self, ms: int) -> None:
        self.now += ms

    # ── the shell ──

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        action = self._decide()
        if not isinstance(action, Rest):
            self._do(action, data)

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        for _ in range(MAX_STEPS):
            action = self._decide()
            if isinstance(action, Rest):
                self._is_no_dead_end(action)
                return
            self._do(action, data)
        raise AssertionError("the session spins")

    @precondition(lambda self: self.state.turn is not None)
    @rule()
    def crash(self) -> None:
        self.charged += 1
        self.retry_at = None

    def _view(self) -> View:
        return View(
            state=self.state,
            inbox=tuple(self.inbox[seq] for seq in sorted(self.inbox)),
            expiries={asked.prompt.prompt_id: asked.prompt.expires_at for asked in self._open()},
            asked_after={asked.prompt.prompt_id: asked.after for asked in self._open()},
            now=self.now,
            exhausted="died" if self.charged >= 4 else None,
            replied=self.reply is not None,
            begun=self.charged > 0 or self.retry_at is not None or self.reply is not None or bool(self.started),
            retry_at=self.retry_at,
            limits=Limits(model_calls=6, folded_messages=3),
        )

    def _decide(self) -> Action:
        view = self._view()
        action = decide(view)
        assert decide(replace(view, state=state_from_json(state_to_json(self.state)))) == action
        return action

    def _do(self, action: Action, data: st.DataObject) -> None:
        turn = self.state.turn
        match action:
            case Open():
                assert turn is None
                self._commit(changes.opened(self.state, action))
            case Refuse():
                self._commit(changes.refused(self.state, action))
            case Dismiss():
                self._commit(changes.dismissed(self.state, action))
            case Think() if turn is not None:
                self._think(turn, data)
            case Resolve() if turn is not None:
                self._resolve(turn, action, data)
            case Stop() if turn is not None:
                self._commit(changes.stopped(self.state, turn, action, self._begun(turn)))
            case Fail() if turn is not None:
                self._commit(changes.failed(self.state, turn, action, self._begun(turn), error_id="err"))
            case Rest() | End() | _:
                raise AssertionError(f"unexpected {action}")

    def _think(self, turn: Turn, data: st.DataObject) -> None:
        if self.reply is None:
            if data.draw(st.integers(0, 5), label="fails") == 5:
                self.charged += 1
                self.retry_at = self.now + 1_000
                return
            wanted = data.draw(st.lists(st.sampled_from(["gated", "free", "bad"]), max_size=3), label="calls")
            asked = tuple(RequestedCall(tool, {}) for tool in wanted)
            self.reply = ModelReply(data.draw(st.sampled_from(["", "text"])), asked, usage=Usage(1, 1))
            if data.draw(st.integers(0, 4), label="dies after the reply") == 4:
                self.charged += 1
                if not asked:
                    self.reply = None  # only a reply with calls is kept before its step's commit
                return
        calls = self._calls(turn)
        prompts, refused = [], set()
        for call in calls:
            if call.tool == "gated":
                self.ledger.gated.add(call.call_id)
                prompts.append(self._prompt(call, Purpose.APPROVAL))
            elif call.tool == "bad":
                refused.add(call.call_id)
            else:
                prompts += self._run(call, None, data)
        done = {**self.results, **{one: self._result(call) for call in calls if (one := call.call_id) in refused}}
        ordered = [done[call.call_id] for call in calls if call.call_id in done]
        n = turn.step_index
        self._commit(
            changes.thought(
                self.state, turn, self.reply, n=n, calls=calls, results=ordered, prompts=prompts, refused=frozenset(refused)
            )
        )

    def _resolve(self, turn: Turn, action: Resolve, data: st.DataObject) -> None:
        ignored = [self.prompts[prompt_id].after for prompt_id, outcome in action.settle if outcome is PromptOutcome.IGNORED]
        words = [entry.body.turn_policy is TurnPolicy.STEER or entry.seq > min(ignored, default=0) for entry in action.steer]
        assert not ignored or any(words), "what was said before the question answered it"
        again: list[NewPrompt] = []
        for pending in action.run:
            again += self._run(pending.call, pending.prompt_id, data)
        self._commit(changes.resolved(self.state, turn, action, results=self.results, again=again))

    def _run(self, call: Call, consent: str | None, data: st.DataObject) -> list[NewPrompt]:
        """Run a call's body, unless it has a result; one that was cut off asks whether to run again."""
        if call.call_id in self.results:
            return []
        self.ledger.runs.append((call.call_id, consent))
        if data.draw(st.integers(0, 5), label="is cut off") == 5:
            return [self._prompt(call, Purpose.RERUN)]
        self.results[call.call_id] = self._result(call)
        return []

    def _result(self, call: Call) -> ResultItem:
        return ResultItem(call.call_id, call.tool, status=ResultStatus.COMPLETED, content="ok", origin="t")

    def _calls(self, turn: Turn) -> tuple[Call, ...]:
        wanted = self.reply.calls if self.reply is not None else ()
        return tuple(Call(f"{turn.number}.{turn.step_index}.{n}", one.tool, arguments={}) for n, one in enumerate(wanted))

    def _begun(self, turn: Turn) -> Begun:
        calls = self._calls(turn) or tuple(pending.call for pending in turn.pending)
        return Begun(reply=self.reply, calls=calls, results=dict(self.results))

    def _prompt(self, call: Call, purpose: Purpose) -> NewPrompt:
        self.minted += 1
        return NewPrompt(
            prompt_id=f"prm_{self.minted}",
            delivery_id=f"dlv_{self.minted}",
            call=call,
            purpose=purpose,
            body={},
            policy=AnswerPolicy.REQUESTER,
            expires_at=self.now + 5_000,
        )

    def _commit(self, change: Change) -> None:
        turn = self.state.turn
        for prompt_id, outcome in change.settle:
            assert self.prompts[prompt_id].outcome is None, "a prompt is settled twice"
            self.prompts[prompt_id].outcome = outcome
            self._resolved(prompt_id)
        for seq in change.consumed:
            del self.inbox[seq]
        for ended in change.outcomes:
            self.ledger.outcomes.setdefault(ended.submission_id, []).append(ended.outcome)
        for event in change.events:
            if event.type in {"turn.completed", "turn.failed", "turn.cancelled"}:
                turn_id = str(event.data["turn_id"])
                self.ledger.finished[turn_id] = self.ledger.finished.get(turn_id, 0) + 1
        for prompt in change.prompts:
            self.prompts[prompt.prompt_id] = Asked(prompt, self.seq)
        self.history += change.items
        self.state = change.state
        if change.kind in {"refuse", "dismiss", "resolve"}:
            assert turn is None or (self.reply is None and not self.results), "a step that began lost what it had"
        self.charged, self.retry_at, self.reply, self.results, self.started = 0, None, None, {}, set()

    def _open(self) -> list[Asked]:
        return [asked for asked in getattr(self, "prompts", {}).values() if asked.outcome is None]

    def _resolved(self, prompt_id: str) -> None:
        self.ledger.resolved[prompt_id] = self.ledger.resolved.get(prompt_id, 0) + 1

    # ── what always holds ──

    def _is_no_dead_end(self, rest: Rest) -> None:
        """Resting is right only when nobody's input and no time that has come could be acted on."""
        turn = self.state.turn
        if turn is None:
            assert not self.inbox
            assert all(len(outcomes) == 1 for outcomes in self.ledger.outcomes.values())
            return
        assert not any(isinstance(entry, Cancel) for entry in self.inbox.values())
        if not turn.pending:
            assert self.retry_at is not None
            assert rest.timer_at == self.retry_at > self.now
            return
        assert not any(isinstance(entry, Response) for entry in self.inbox.values())
        expiries = [asked.prompt.expires_at for asked in self._open()]
        assert expiries
        assert rest.timer_at == min(at for at in expiries if at is not None)
        assert rest.timer_at > self.now
        first = min(asked.after for asked in self._open())
        for entry in self.inbox.values():
            assert isinstance(entry, Message)
            mine = entry.body.author.id == turn.requester.id and not turn.requester.anonymous
            assert not mine or (entry.body.turn_policy is TurnPolicy.QUEUE and entry.seq <= first)
            assert entry.denied is None

    @invariant()
    def the_history_is_valid_but_for_what_waits(self) -> None:
        turn = self.state.turn
        waiting = turn.pending if turn is not None else ()
        validate_history([*self.history, *(self._result(pending.call) for pending in waiting)])

    @invariant()
    def each_input_ends_at_most_once(self) -> None:
        assert all(len(outcomes) <= 1 for outcomes in self.ledger.outcomes.values())

    @invariant()
    def each_turn_ends_exactly_once(self) -> None:
        over = self.state.turns - (1 if self.state.turn is not None else 0)
        assert self.ledger.finished == {f"turn_{number}": 1 for number in range(over)}

    @invariant()
    def a_call_runs_at_most_once_for_each_consent(self) -> None:
        assert len(self.ledger.runs) == len(set(self.ledger.runs))
        for call_id, consent in self.ledger.runs:
            assert consent is not None or call_id not in self.ledger.gated
            if consent is not None:
                asked = self.prompts[consent]
                assert (asked.prompt.call.call_id, asked.outcome) == (call_id, PromptOutcome.APPROVED)

    @invariant()
    def each_request_is_resolved_once_and_none_outlives_its_turn(self) -> None:
        assert all(times == 1 for times in self.ledger.resolved.values())
        waiting = {pending.prompt_id for pending in self.state.turn.pending} if self.state.turn is not None else set()
        assert {asked.prompt.prompt_id for asked in self._open()} <= waiting


Thread.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
TestThread = Thread.TestCase
