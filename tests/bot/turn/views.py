"""Views and inputs of the turn engine, short to write.

What lives here: builders. What does not: expectations.
"""

from __future__ import annotations

from bot.history import Call
from bot.principal import Principal
from bot.turn.state import (
    Cancel,
    Consent,
    Input,
    Message,
    MessageBody,
    Pending,
    Purpose,
    Response,
    Stage,
    State,
    Turn,
    TurnPolicy,
)
from bot.turn.view import OpenPrompt, View
from channels.events import Place
from durable_core.model import PromptOutcome
from tests.bot.people import ALICE

PLACE = Place("channel")


def message(
    seq: int, text: str = "hi", *, who: Principal = ALICE, policy: TurnPolicy = TurnPolicy.STEER, denied: str | None = None
) -> Message:
    body = MessageBody(text=text, author=who, place=PLACE, channel="console", address="a", turn_policy=policy)
    return Message(seq=seq, submission_id=f"sub_{seq}", body=body, at=seq, denied=denied)


def response(seq: int, prompt_id: str, outcome: PromptOutcome = PromptOutcome.APPROVED) -> Response:
    consent = Consent(principal=ALICE.id, name="Alice", at=seq)
    return Response(seq=seq, submission_id=f"sub_{seq}", prompt_id=prompt_id, outcome=outcome, consent=consent)


def cancel(seq: int, turn_id: str | None = None) -> Cancel:
    return Cancel(seq=seq, submission_id=f"sub_{seq}", turn_id=turn_id)


def pending(place: int = 0, *, purpose: Purpose = Purpose.APPROVAL) -> Pending:
    call = Call(f"0.0.{place}", "refund", arguments={})
    return Pending(call=call, purpose=purpose, stage=Stage.ASKED, prompt_id=f"prm_{place}", delivery_id=f"dlv_{place}")


def turn(*waiting: Pending, who: Principal = ALICE, model_calls: int = 0) -> Turn:
    return Turn(
        number=0,
        requester=who,
        place=PLACE,
        channel="console",
        address="a",
        submissions=("sub_0",),
        pending=waiting,
        model_calls=model_calls,
    )


def busy(*inbox: Input, waiting: tuple[Pending, ...] = (), now: int = 1000, **more: object) -> View:
    open_ = {one.prompt_id: OpenPrompt(expires_at=5000) for one in waiting if one.prompt_id}
    state = State(turns=1, turn=turn(*waiting))
    return View(state=state, inbox=inbox, now=now, **{"open": open_, **more})  # type: ignore[arg-type]


def idle(*inbox: Input, now: int = 1000, deadline_at: int | None = None) -> View:
    return View(state=State(), inbox=inbox, now=now, deadline_at=deadline_at)
