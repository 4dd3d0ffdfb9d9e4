"""The turn engine against a random thread: people talk, answer and cancel while model, tools and runs do what they like.

What lives here: the machine and its invariants. What does not: any store; the shell is played in a few lines.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import ClassVar, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bot.connections.connection import Need, OAuthConnection
from bot.connections.errors import Reason
from bot.context import ToolContext
from bot.history import Call, Item, ResultItem, ResultStatus, Usage, validate_history
from bot.model import ModelReply, RequestedCall
from bot.session.signing import Guarded, Wanted, sign_ins
from bot.tools import tool
from bot.turn import changes, children, waits
from bot.turn.actions import (
    Action,
    Answer,
    AskLimit,
    Dismiss,
    End,
    Escalate,
    Fail,
    Interrupt,
    Open,
    Refuse,
    Relay,
    Remind,
    Reroute,
    Resolve,
    Rest,
    Stop,
    Tell,
    Think,
)
from bot.turn.change import Begun, Change, Draft, Flows, NewPrompt
from bot.turn.decide import decide
from bot.turn.held import waiting_after
from bot.turn.questions import Pause, Question, asleep, limit_prompt, question_prompt
from bot.turn.routes import put
from bot.turn.state import (
    Cancel,
    FromChild,
    Input,
    Limits,
    Message,
    Pending,
    Purpose,
    Response,
    Stage,
    State,
    Turn,
    TurnPolicy,
    Undelivered,
    state_from_json,
    state_to_json,
)
from bot.turn.view import Answering, OpenPrompt, View, moved, open_prompt
from durable_core.model import AnswerPolicy, Outcome, PromptOutcome
from tests.bot.people import ALICE, BOB, NOBODY
from tests.bot.turn.views import cancel, message, response

PEOPLE = (ALICE, BOB, NOBODY)
MAX_STEPS = 300
FULL = os.environ.get("MOORINGS_TEST_FULL") == "1"
SAYS = ("asked", "asked", "resolved", "progress", "ended", "failed")
LIMITS = Limits(model_calls=3, folded_messages=3)
HUB, DRIVE = (OAuthConnection(name, title=name.title(), expires=timedelta(seconds=5)) for name in ("hub", "drive"))
SIGNED = {
    "signed": (Need(HUB),),
    "signed_admin": (HUB.scoped("admin"),),
    "signed_both": (Need(HUB), Need(DRIVE)),
    "gated_signed": (Need(HUB),),
}
"""Tools that act with accounts, and what each needs."""
WANTED = ("gated", "gated_flow", "flow", "flow", "free", "bad", "ask", "nap", *SIGNED)


@dataclass
class Asked:
    """A prompt as the store keeps it."""

    prompt: NewPrompt
    after: int
    open: OpenPrompt
    outcome: PromptOutcome | None = None
    reminders: int = 0


@dataclass
class Run:
    """A run that works for a call: what it has asked and not been answered, whether it has ended."""

    call_id: str
    asks: list[str] = field(default_factory=list)
    ended: bool = False


@dataclass
class Ledger:
    """What happened, for the invariants."""

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    runs: list[tuple[str, str | None]] = field(default_factory=list)
    """(call, the prompt that allowed it)."""
    gated: set[str] = field(default_factory=set)
    finished: dict[str, int] = field(default_factory=dict)
    resolved: dict[str, int] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    """The prompt that each message was given to."""
    tasks: dict[str, list[str]] = field(default_factory=dict)
    """What readers were told of each run."""
    asked: dict[str, list[str]] = field(default_factory=dict)
    """What readers were told of each request of a run."""


@tool
def act(ctx: ToolContext[None]) -> str:
    """Act; its arguments are all that is asked of it here."""
    raise NotImplementedError


TOOL = act


class Thread(RuleBasedStateMachine):
    """One session whose shell is played by the test."""

    tools: ClassVar[tuple[str, ...]] = WANTED

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
        self.answering: Answering | None = None
        self.given: dict[str, str] = {}
        self.runs: dict[str, Run] = {}
        self.accounts: dict[str, set[str]] = {}
        self.waited: dict[str, set[str]] = {}
        self.accounts_asked: dict[tuple[str, str], list[set[str]]] = {}

    # ── people ──

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    @rule(
        who=st.sampled_from(PEOPLE),
        policy=st.sampled_from(TurnPolicy),
        denied=st.sampled_from([None, None, None, "no"]),
        text=st.sampled_from(["hi", "hi", "approve", " Deny", "1", "continue", "connect", "cancel"]),
    )
    def say(self, who: object, policy: TurnPolicy, denied: str | None, text: str) -> None:
        entry = message(self._next(), text, who=who, policy=policy, denied=denied)  # type: ignore[arg-type]
        self.inbox[entry.seq] = entry
        self.ledger.outcomes[entry.submission_id] = []

    @rule(named=st.booleans(), meant=st.integers(0, 3))
    def stop(self, named: bool, meant: int) -> None:
        if meant:
            return  # rarely: a turn that is stopped early waits for nothing
        turn_id = self.state.turn.turn_id if self.state.turn is not None and named else None
        entry = cancel(self._next(), turn_id)
        self.inbox[entry.seq] = entry
        self.ledger.outcomes[entry.submission_id] = []

    @precondition(lambda self: self._open())
    @rule(data=st.data(), outcome=st.sampled_from([PromptOutcome.APPROVED, PromptOutcome.DENIED]))
    def answer(self, data: st.DataObject, outcome: PromptOutcome) -> None:
        asked = data.draw(st.sampled_from(self._open()))
        if self._settle_by(asked, outcome) and asked.prompt.purpose is Purpose.SIGN_IN and outcome is PromptOutcome.APPROVED:
            self._connected(asked.prompt, data)

    def _connected(self, prompt: NewPrompt, data: st.DataObject) -> None:
        """Keep the account that somebody connected: with all that was asked for, with less, or not for long."""
        match data.draw(st.sampled_from(["all", "all", "all", "less", "gone"]), label="connects"):
            case "all":
                self.accounts[prompt.connection] = set(prompt.scopes)
            case "less":
                self.accounts[prompt.connection] = set(prompt.scopes) - {"admin"}

    @rule(name=st.sampled_from(["hub", "drive"]), rarely=st.integers(0, 5))
    def disconnect(self, name: str, rarely: int) -> None:
        if not rarely:
            self.accounts.pop(name, None)

    def _settle_by(self, asked: Asked, outcome: PromptOutcome) -> bool:
        pending_cancel = any(isinstance(entry, Cancel) for entry in self.inbox.values())
        if pending_cancel or asked.outcome is not None or (asked.open.expires_at or 0) <= self.now:
            return False  # the store refuses it
        asked.outcome = outcome
        self._resolved(asked.prompt.prompt_id)
        entry = response(self._next(), asked.prompt.prompt_id, outcome)
        self.inbox[entry.seq] = entry
        return True

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        copies = [copy for pending in self.state.turn.asked for copy in pending.cards] if self.state.turn is not None else []
        if copies:
            seq = self._next()
            copy = data.draw(st.sampled_from(copies))
            entry = Undelivered(seq=seq, submission_id=f"sub_{seq}", delivery_id=copy.delivery_id, error="is_archived")
            self.inbox[seq] = entry
            self.ledger.outcomes[entry.submission_id] = []

    # ── runs ──

    @precondition(lambda self: self._working())
    @rule(data=st.data(), what=st.sampled_from(SAYS), nested=st.booleans(), dies=st.integers(0, 3))
    def hear(self, data: st.DataObject, what: str, nested: bool, dies: int) -> None:
        if not dies and self.state.turn is not None:
            self.charged, self.retry_at = self.charged + 1, None
        child = data.draw(st.sampled_from(self._working()))
        run = self.runs[child]
        told: dict[str, object] = {}
        match what:
            case "asked":
                run.asks.append(self._mint("prm"))
                options = [{"id": "go", "label": "Go"}]
                told = {"request": {"request_id": run.asks[-1], "options": options, "requester": {"id": ALICE.id}}}
                told["request"]["allow_freeform"] = nested  # type: ignore[index]
            case "resolved" if run.asks:
                told = {"request_id": run.asks.pop(0), "outcome": "answered", "by": "Alice"}
            case "progress":
                told = {"text": "half"}
            case "ended" | "failed":
                run.ended = True
                told = {"ok": what == "ended", "value": {"done": 1}, "error": {"code": "cancelled"}}
            case _:
                return
        kind = children.ENDED if run.ended else what
        seq = self._next()
        self.inbox[seq] = FromChild(
            seq=seq,
            submission_id=f"sub_{seq}",
            run_id="run_nested" if nested and not run.ended else child,
            call_id=run.call_id,
            kind=kind,
            told=told,  # type: ignore[arg-type]
        )
        self.ledger.outcomes[f"sub_{seq}"] = []

    def _working(self) -> list[str]:
        """Runs that have not ended, also those that nobody waits for any more."""
        return [child for child, run in getattr(self, "runs", {}).items() if not run.ended]

    def _begins(self, pending: Pending) -> Pending:
        child = f"run_{pending.call.call_id}"
        assert child not in self.runs, "a call started two runs"
        self.runs[child] = Run(pending.call.call_id)
        return children.begun(pending, child)

    @rule(ms=st.sampled_from([1, 500, 2_000, 10_000, 60_000]))
    def wait(self, ms: int) -> None:
        self.now += ms

    # ── the shell ──

    @rule(data=st.data(), ms=st.sampled_from([1, 700, 5_000]))
    def later(self, data: st.DataObject, ms: int) -> None:
        self.settle(data)
        self.wait(ms)
        self.settle(data)

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
            open={asked.prompt.prompt_id: asked.open for asked in self._open()},
            answering=self.answering,
            asked_after={asked.prompt.prompt_id: asked.after for asked in self._open()},
            now=self.now,
            exhausted="died" if self.charged >= 4 else None,
            replied=self.reply is not None,
            begun=self.charged > 0
            or self.retry_at is not None
            or self.reply is not None
            or bool(self.started)
            or self.answering is not None,
            retry_at=self.retry_at,
            limits=LIMITS,
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
                self._were_no_answers(action.messages)
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
                self.given.clear()  # what could not be consumed in four attempts is a message again
                self._commit(changes.failed(self.state, turn, action, self._begun(turn), error_id="err"))
            case AskLimit() | Answer() | Remind() | Escalate() | Reroute() | Tell() | Relay() | Interrupt() if turn is not None:
                self._wait(turn, action, data)
            case Rest() | End() | _:
                raise AssertionError(f"unexpected {action}")

    def _wait(
        self,
        turn: Turn,
        action: AskLimit | Answer | Remind | Escalate | Reroute | Tell | Relay | Interrupt,
        data: st.DataObject,
    ) -> None:
        prompts = {asked.prompt.prompt_id: asked.open for asked in self._open()}
        match action:
            case AskLimit():
                prompt = limit_prompt(turn, action, LIMITS, **self._ids(), now=self.now)
                self._commit(waits.limited(self.state, turn, *put(turn, (prompt,), now=self.now, mint=self._mint)))
            case Answer():
                self._answer(turn, action, data)
            case Remind():
                for pending in action.prompts:
                    self.prompts[pending.prompt_id].reminders += 1
                self._commit(waits.reminded(self.state, turn, action, prompts))
            case Escalate():
                self._commit(waits.escalated(self.state, turn, action, prompts, now=self.now, mint=self._mint))
            case Reroute():
                self._commit(waits.rerouted(self.state, turn, action, mint=self._mint))
            case Tell():
                self._commit(waits.told(self.state, turn, action))
            case Relay():
                self._commit(children.relayed(self.state, turn, action))
            case Interrupt():
                change = children.interrupted(self.state, turn, action, now=self.now)
                assert change.cancels
                self._commit(change)

    def _answer(self, turn: Turn, action: Answer, data: st.DataObject) -> None:
        """Give a message to a prompt, once under its key; the worker may die before, between and after."""
        message = action.message
        asked = self.prompts.get(action.prompt_id)
        if asked is None:  # a run asked, and hears of it by itself
            assert any(request.prompt_id == action.prompt_id for one in turn.at_work for request in one.requests)
            assert self.ledger.answers.setdefault(message.submission_id, action.prompt_id) == action.prompt_id
            self.given[message.submission_id] = "settled"
            self._commit(waits.answered(self.state, turn, action, {"status": "settled"}))
            return
        assert message.seq > asked.after, "what was said before the question answered it"
        assert self.ledger.answers.setdefault(message.submission_id, action.prompt_id) == action.prompt_id
        self.answering = Answering(seq=message.seq, prompt_id=action.prompt_id, option_id=action.option_id)
        place = data.draw(st.integers(0, 6), label="dies while it answers")
        if place == 5:
            self.charged += 1
            return
        if message.submission_id not in self.given:
            aside = action.option_id == "connect"
            yes = action.option_id in {"approve", "rerun", "continue"}
            outcome = PromptOutcome.APPROVED if yes else PromptOutcome.DENIED
            if asked.prompt.purpose is Purpose.QUESTION:
                outcome = PromptOutcome.ANSWERED
            may = message.body.author.id == turn.requester.id
            settled = may and not aside and self._settle_by(asked, outcome)
            self.given[message.submission_id] = "aside" if aside else "settled" if settled else "refused"
        if place == 6:
            self.charged += 1
            return
        self._commit(waits.answered(self.state, turn, action, {"status": self.given[message.submission_id]}))

    def _ids(self) -> dict[str, str]:
        return {"prompt_id": self._mint("prm"), "delivery_id": self._mint("dlv")}

    def _mint(self, kind: str = "dlv") -> str:
        self.minted += 1
        return f"{kind}_{self.minted}"

    def _think(self, turn: Turn, data: st.DataObject) -> None:
        if self.reply is None:
            if data.draw(st.integers(0, 5), label="fails") == 5:
                self.charged += 1
                self.retry_at = self.now + 1_000
                return
            wanted = data.draw(
                st.lists(
                    st.sampled_from(["gated", "gated_flow", "flow", "flow", "free", "bad", "ask", "nap", *SIGNED, *SIGNED]),
                    max_size=4,
                ),
                label="calls",
            )
            asked = tuple(RequestedCall(tool, {}) for tool in wanted)
            self.reply = ModelReply(data.draw(st.sampled_from(["", "text"])), asked, usage=Usage(1, 1))
            if data.draw(st.integers(0, 4), label="dies after the reply") == 4:
                self.charged += 1
                if not asked:
                    self.reply = None  # only a reply with calls is kept before its step's commit
                return
        calls = self._calls(turn)
        prompts, sleeping, flows, refused = [], [], [], set()
        wanted_accounts: list[Wanted] = []
        for call in calls:
            if call.tool in {"gated", "gated_flow", "gated_signed"}:
                self.ledger.gated.add(call.call_id)
                prompts.append(self._prompt(call, Purpose.APPROVAL, data))
            elif call.tool == "ask":
                prompts.append(self._question(call, turn))
            elif call.tool == "nap":
                sleeping.append(asleep(call, Pause(ms=data.draw(st.sampled_from([0, 1, 3_000]), label="naps")), now=self.now))
            elif call.tool == "flow":
                flows.append(self._begins(Pending(call=call, purpose=Purpose.WORKFLOW, stage=Stage.AT_WORK)))
            elif call.tool == "bad":
                refused.add(call.call_id)
            else:
                prompts += self._run(call, None, data, wanted_accounts)
        sign_in, joined = self._sign_ins(wanted_accounts, turn, turn.asked)
        done = {**self.results, **{one: self._result(call) for call in calls if (one := call.call_id) in refused}}
        ordered = [done[call.call_id] for call in calls if call.call_id in done]
        n = turn.step_index
        self._commit(
            changes.thought(
                self.state,
                turn,
                self.reply,
                n=n,
                calls=calls,
                results=ordered,
                prompts=put(turn, [*prompts, *sign_in], now=self.now, mint=self._mint),
                asleep=sleeping,
                joined=joined,
                flows=Flows(pending=tuple(flows)),
                refused=frozenset(refused),
            )
        )

    def _were_no_answers(self, messages: tuple[Message, ...]) -> None:
        assert not {one.submission_id for one in messages} & set(self.given), "an answer was taken for words as well"

    def _resolve(self, turn: Turn, action: Resolve, data: st.DataObject) -> None:
        self._were_no_answers(action.steer)
        ignored = [self.prompts[prompt_id].after for prompt_id, outcome in action.settle if outcome is PromptOutcome.IGNORED]
        words = [entry.body.turn_policy is TurnPolicy.STEER or entry.seq > min(ignored, default=0) for entry in action.steer]
        assert not ignored or any(words), "what was said before the question answered it"
        again: list[NewPrompt] = []
        flows: list[Pending] = []
        wanted: list[Wanted] = []
        for pending in action.run:
            if pending.call.tool == "gated_flow":
                self.ledger.runs.append((pending.call.call_id, pending.prompt_id))
                flows.append(self._begins(pending))
            else:
                again += self._run(pending.call, pending, data, wanted)
        sign_in, joined = self._sign_ins(wanted, turn, waiting_after(turn, action))
        again_put = put(turn, [*again, *sign_in], now=self.now, mint=self._mint)
        begins = Flows(pending=tuple(flows))
        self._commit(
            changes.resolved(self.state, turn, action, results=self.results, again=again_put, joined=joined, flows=begins)
        )

    def _run(self, call: Call, waited: Pending | None, data: st.DataObject, wanted: list[Wanted]) -> list[NewPrompt]:
        """Run a call's body, unless it has a result or lacks an account; one that was cut off asks whether to run again."""
        if call.call_id in self.results:
            return []
        if waited is not None and waited.purpose is Purpose.SIGN_IN:
            self._may_still(waited)
        needs = SIGNED.get(call.tool, ())
        one = Guarded(call=call, waited=waited, tool=TOOL, begun=waited.begun if waited is not None else 0)
        for need in needs:
            kept = self.accounts.get(need.name)
            if kept is None or not set(need.scopes) <= kept:
                self._wants(one, need, "missing" if kept is None else "scopes", wanted)
                return []
        self.ledger.runs.append((call.call_id, waited.prompt_id if waited is not None else None))
        if needs and data.draw(st.integers(0, 4), label="is refused") == 4:
            self.accounts.pop(needs[0].name)
            self._wants(replace(one, begun=one.begun + 1), needs[0], "refused", wanted)
            return []
        if data.draw(st.integers(0, 5), label="is cut off") == 5:
            return [replace(self._prompt(call, Purpose.RERUN, data), signed_in=one.signed_in)]
        self.results[call.call_id] = self._result(call)
        return []

    def _may_still(self, waited: Pending) -> None:
        """A call that signed in was let run before, if it had to be; and once is enough."""
        before = waited.earlier
        assert waited.call.call_id not in self.ledger.gated or before is not None
        if before is not None:
            assert self.prompts[before.prompt_id].outcome is PromptOutcome.APPROVED
            assert waited.consent is not None

    def _wants(self, one: Guarded, need: Need, reason: Reason, wanted: list[Wanted]) -> None:
        if need.name in one.signed_in:
            self.results[one.call.call_id] = one.closed("In vain.")
        else:
            wanted.append(Wanted(one=one, need=need, reason=reason, scopes=need.scopes))

    def _sign_ins(self, wanted: list[Wanted], turn: Turn, waiting: Sequence[Pending]) -> tuple[list[NewPrompt], list[Pending]]:
        prompts, joined = sign_ins(wanted, turn, waiting, agent="a", session_id="ses_1", now=self.now)
        waits_for: list[NewPrompt | Pending] = [*prompts, *joined]
        for one in waits_for:
            self.waited.setdefault(one.prompt_id, set()).add(one.call.call_id)
            asked = self.accounts_asked.setdefault((one.call.call_id, one.connection), [])
            needed = next(set(need.scopes) for need in SIGNED[one.call.tool] if need.name == one.connection)
            assert not any(needed <= before for before in asked), "an account was asked for twice for one call"
            asked.append(set(one.scopes))
        return prompts, joined

    def _result(self, call: Call) -> ResultItem:
        return ResultItem(call.call_id, call.tool, status=ResultStatus.COMPLETED, content="ok", origin="t")

    def _calls(self, turn: Turn) -> tuple[Call, ...]:
        wanted = self.reply.calls if self.reply is not None else ()
        return tuple(Call(f"{turn.number}.{turn.step_index}.{n}", one.tool, arguments={}) for n, one in enumerate(wanted))

    def _begun(self, turn: Turn) -> Begun:
        calls = self._calls(turn) or turn.open_calls
        return Begun(reply=self.reply, calls=calls, results=dict(self.results))

    def _prompt(self, call: Call, purpose: Purpose, data: st.DataObject) -> NewPrompt:
        names = ("approve", "deny") if purpose is Purpose.APPROVAL else ("rerun", "skip")
        levels = data.draw(
            st.sampled_from([(), (), (("Finance", "room"),), (("Finance", None), ("Board", "room"))]), label="levels"
        )
        on_expiry = "escalate" if levels else data.draw(st.sampled_from(["deny", "cancel"]), label="on expiry")
        to = data.draw(st.sampled_from(["thread", "thread", "direct", "address"]), label="route")
        body = {
            "options": [{"id": name, "label": name} for name in names],
            "route": {"to": to, "channel": "console", "address": "elsewhere"} if to == "address" else {"to": to},
            "levels": [{"waiting_for": who, "channel": where and "console", "address": where} for who, where in levels],
            "level_ms": [2_000, 1_000][: len(levels)],
            "on_expiry": on_expiry,
            "remind_ms": data.draw(st.sampled_from([None, 1, 700]), label="reminds"),
        }
        return NewPrompt(
            prompt_id=self._mint("prm"),
            delivery_id=self._mint("dlv"),
            call=call,
            purpose=purpose,
            body=body,  # type: ignore[arg-type]
            policy=AnswerPolicy.REQUESTER,
            expires_at=self.now + 5_000,
        )

    def _question(self, call: Call, turn: Turn) -> NewPrompt:
        return question_prompt(
            call,
            turn,
            Question(text="Which?", options=("red", "blue")),
            prompt_id=self._mint("prm"),
            delivery_id=self._mint("dlv"),
            policy=AnswerPolicy.REQUESTER,
            now=self.now,
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
            self._heard_by_readers(event)
        for update in change.updates:
            asked = self.prompts[update.prompt_id]
            assert asked.outcome is None, "a prompt that is settled was moved"
            asked.open = moved(asked.open, update)
        for prompt in change.prompts:
            seen = open_prompt(prompt.body, expires_at=prompt.expires_at, remind_at=prompt.remind_at, policy=prompt.policy)
            self.prompts[prompt.prompt_id] = Asked(prompt, self.seq, seen)
        self._has_its_cards(change)
        self.history += change.items
        self.state = change.state
        if change.kind not in {"model", "tools", "cancel", "fail"}:
            assert turn is None or (self.reply is None and not self.results), "a step that began lost what it had"
        self.charged, self.retry_at, self.reply, self.results, self.started = 0, None, None, {}, set()
        self.answering = None

    def _heard_by_readers(self, event: Draft) -> None:
        match event.type:
            case "task.started" | "task.settled":
                self.ledger.tasks.setdefault(str(event.data["run_id"]), []).append(event.type)
            case "input.requested" if "requests" in event.data:
                for request in cast("list[dict[str, str]]", event.data["requests"]):
                    self.ledger.asked.setdefault(request["request_id"], []).append(event.type)
            case "input.resolved":
                for resolution in cast("list[dict[str, str]]", event.data["resolutions"]):
                    if resolution["request_id"] not in self.prompts:
                        self.ledger.asked.setdefault(resolution["request_id"], []).append(event.type)

    def _has_its_cards(self, change: Change) -> None:
        """Each card that is owed is known to who waits for it, or an edit of one that was."""
        waiting = change.state.turn.pending if change.state.turn is not None else ()
        known = {copy.delivery_id for pending in waiting for copy in pending.cards}
        posted = [post.delivery_id for post in change.posts if post.body["kind"] == "card" and post.edit_of is None]
        assert set(posted) <= known
        assert len(posted) == len(set(posted))

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
        assert not any(isinstance(entry, Response | Undelivered | FromChild) for entry in self.inbox.values())
        prompts = [asked.open for asked in self._open()]
        naps = [pending.until for pending in turn.pending if pending.stage is Stage.ASLEEP]
        stops = [pending.stop_by for pending in turn.at_work]
        times = [*naps, *stops, *(at for prompt in prompts for at in (prompt.expires_at, prompt.remind_at))]
        assert rest.timer_at == min((at for at in times if at is not None), default=None)
        assert rest.timer_at is None or rest.timer_at > self.now, "a time that has come leads to something, or the session spins"
        if stopping := [pending for pending in turn.at_work if pending.stopping]:  # words wait for their ends, no longer
            assert rest.timer_at is not None
            assert all(pending.stopped_for for pending in stopping)
            return
        after = [request.asked_after for pending in turn.at_work for request in pending.requests]
        first = min((*after, *(asked.after for asked in self._open())), default=self.seq)
        for entry in self.inbox.values():
            assert isinstance(entry, Message)
            mine = entry.body.author.id == turn.requester.id and not turn.requester.anonymous
            assert not mine or (entry.body.turn_policy is TurnPolicy.QUEUE and entry.seq <= first)
            assert entry.denied is None

    @invariant()
    def the_history_is_valid_but_for_what_waits(self) -> None:
        turn = self.state.turn
        waiting = turn.open_calls if turn is not None else ()
        validate_history([*self.history, *(self._result(call) for call in waiting)])

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
                assert asked.outcome is PromptOutcome.APPROVED
                assert call_id in self.waited.get(consent, {asked.prompt.call.call_id})

    @invariant()
    def no_account_is_asked_for_twice_at_once(self) -> None:
        open_ = [asked.prompt.connection for asked in self._open() if asked.prompt.purpose is Purpose.SIGN_IN]
        assert len(open_) == len(set(open_))

    @invariant()
    def each_reminder_comes_once_for_each_level(self) -> None:
        assert all(asked.reminders <= 1 + asked.open.level for asked in getattr(self, "prompts", {}).values())

    @invariant()
    def readers_hear_of_each_run_and_of_what_it_asks_from_beginning_to_end(self) -> None:
        at_work = self.state.turn.at_work if self.state.turn is not None else ()
        waiting = {str(pending.child) for pending in at_work}
        for run_id, told in self.ledger.tasks.items():
            assert told == ["task.started"] + ["task.settled"] * (run_id not in waiting)
        assert waiting <= set(self.ledger.tasks)
        open_ = {request.prompt_id for pending in at_work for request in pending.requests}
        for prompt_id, told in self.ledger.asked.items():
            assert told == ["input.requested"] + ["input.resolved"] * (prompt_id not in open_)
        assert open_ <= set(self.ledger.asked)

    @invariant()
    def each_request_is_resolved_once_and_none_outlives_its_turn(self) -> None:
        assert all(times == 1 for times in self.ledger.resolved.values())
        waiting = {pending.prompt_id for pending in self.state.turn.pending} if self.state.turn is not None else set()
        assert {asked.prompt.prompt_id for asked in self._open()} <= waiting


Thread.TestCase.settings = settings(
    max_examples=3_000 if FULL else 100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
TestThread = Thread.TestCase
