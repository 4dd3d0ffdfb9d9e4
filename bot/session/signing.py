"""The last gate before a body: whoever asked has the accounts that it acts with, or is asked to connect them.

What lives here: checking, what a refused token leads to, prompts that calls share. What does not: what people read
(bot/turn/signing.py), accounts and tokens (bot/connections), the link (bot/signins).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic import JsonValue

from bot.connections.connection import Need, OAuthConnection
from bot.connections.connections import Barred, Check, NeedsSignIn, Ready
from bot.connections.errors import Reason, Unauthorized
from bot.connections.lent import Lent
from bot.history import Call, ResultItem, ResultStatus, Trust
from bot.principal import Principal
from bot.session.edits import run_call
from bot.tools import Tool
from bot.turn.actions import FRAMEWORK
from bot.turn.change import NewPrompt
from bot.turn.questions import REMIND_MS
from bot.turn.signing import Account, Origin, sign_in_body, unrun, was_cut_off
from bot.turn.state import Earlier, Pending, Purpose, Stage, Turn
from durable_core import codec
from durable_core.errors import TooLarge
from durable_core.ids import new_id, request_id
from durable_core.model import AnswerPolicy


class Accounts(Protocol):
    """What a session asks of the accounts that its calls act with; `Connections` is it."""

    async def check(self, needs: Sequence[Need], requester: Principal) -> Check:
        """Say whether a call may begin as somebody, or what has to happen first."""
        ...

    def lend(self, needs: Sequence[Need], requester: Principal) -> Lent:
        """Return what a body that runs as somebody is given."""
        ...

    def owner_of(self, connection: OAuthConnection, requester: Principal) -> str:
        """Name whose account it is."""
        ...

    async def drop(self, connection: OAuthConnection, owner: str, version: int) -> bool:
        """Forget a credential that was refused, if it is still the one that was used."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A token that was not taken while a body ran: of which connection, why, and which version of it was used."""

    connection: str
    reason: Reason = "refused"
    version: int | None = None

    @classmethod
    def of(cls, error: Unauthorized, lent: Lent | None) -> Refusal:
        """Read what a body raised."""
        used = lent.used.get(error.connection) if lent is not None else None
        return cls(connection=error.connection, reason=error.reason, version=used)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Refusal:
        """Read what `to_json` wrote."""
        return cls(connection=stored["connection"], reason=stored["reason"], version=stored["version"])

    def to_json(self) -> dict[str, JsonValue]:
        """Turn this into plain JSON."""
        return {"connection": self.connection, "reason": self.reason, "version": self.version}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A call at this gate: as the model asked for it, what it waited for until now, and how often it was begun before."""

    call: Call
    waited: Pending | None
    tool: Tool
    begun: int = 0

    @property
    def signed_in(self) -> tuple[str, ...]:
        """The connections that were asked for on its behalf."""
        return self.waited.signed_in if self.waited is not None else ()

    def closed(self, words: str) -> ResultItem:
        """Close it, where nobody can be asked."""
        ends = ResultStatus.FAILED if self.begun else ResultStatus.REJECTED
        status, text = unrun(words, ends, begun=self.begun, cut_off=was_cut_off(self.waited))
        call = self.call
        return ResultItem(call.call_id, call.tool, status=status, content=text, origin=FRAMEWORK, trust=Trust.SYSTEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A call that waits for an account. ``scopes`` is what that is to be asked for, at least what the call needs."""

    one: Guarded
    need: Need
    reason: Reason
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """The gate of one process's sessions. ``private`` says of a channel whether it can show something to one person alone."""

    accounts: Accounts | None = None
    private: Callable[[str], bool] = lambda _: True

    def lend(self, turn: Turn, tool: Tool) -> Lent | None:
        """Return the accounts that a body acts with."""
        return self.accounts.lend(tool.connections, turn.requester) if self.accounts is not None else None

    async def gate(self, turn: Turn, one: Guarded) -> Wanted | ResultItem | None:
        """Say what keeps a call from beginning: an account that is asked for, or why it can't run at all."""
        if not one.tool.connections:
            return None
        if self.accounts is None:
            return one.closed("This bot was started without the accounts that it acts with.")
        found = await self.accounts.check(one.tool.connections, turn.requester)
        return None if isinstance(found, Ready) else self._lacks(turn, one, found)

    async def refused(self, turn: Turn, one: Guarded, refusal: Refusal, *, again: bool) -> Wanted | ResultItem | None:
        """Drop a token that was refused while a body ran, and say what comes next; None: run it again, there is a newer one.

        One new sign-in, no loop: a call for which its person has signed in already fails. ``again`` says that it was run again.
        """
        need = next(need for need in one.tool.connections if need.name == refusal.connection)
        if self.accounts is None:
            raise RuntimeError(f"{one.tool.name} ran without the accounts that it acts with")
        if refusal.version is not None and refusal.reason != "scopes":
            owner = self.accounts.owner_of(need.connection, turn.requester)
            await self.accounts.drop(need.connection, owner, refusal.version)
        if need.name in one.signed_in or refusal.reason == "scopes":
            return self._wanted(turn, one, need, refusal.reason)
        found = await self.accounts.check(one.tool.connections, turn.requester)
        if isinstance(found, Ready):
            return None if refusal.version is not None and not again else self._wanted(turn, one, need, "refused")
        return self._lacks(turn, one, found, refused=need.name)

    def _lacks(self, turn: Turn, one: Guarded, found: NeedsSignIn | Barred, *, refused: str = "") -> Wanted | ResultItem:
        if isinstance(found, Barred):
            return one.closed(f"{found.reason.removesuffix('.')} ({found.code}).")
        reason: Reason = "refused" if found.need.name == refused else found.reason
        return self._wanted(turn, one, found.need, reason, found.scopes)

    def _wanted(self, turn: Turn, one: Guarded, need: Need, reason: Reason, scopes: tuple[str, ...] = ()) -> Wanted | ResultItem:
        """Ask for an account, once a call, where whoever asked can be asked."""
        who, title = turn.requester.name, need.connection.title
        if need.connection.owner != "user":
            return one.closed(f"The app's own account at {title} is not taken, or may not do this.")
        if need.name in one.signed_in:
            return one.closed(f"{who} connected {title} for this call, but {_IN_VAIN[reason]}.")
        if turn.address is not None and turn.place.kind != "direct" and not self.private(turn.channel or ""):
            where = "They may write to this bot directly."
            return one.closed(f"{who} has to connect {title} first, and can't be asked privately here. {where}")
        return Wanted(one=one, need=need, reason=reason, scopes=tuple(dict.fromkeys((*need.scopes, *scopes))))


_IN_VAIN: Final[dict[Reason, str]] = {
    "missing": "it is not connected any more",
    "refused": "it does not take their account",
    "scopes": "the account may not do all that the call needs",
}


# ── prompts ──


def sign_ins(
    wanted: Sequence[Wanted], turn: Turn, waiting: Iterable[Pending], *, agent: str, session_id: str, now: int
) -> tuple[list[NewPrompt], list[Pending]]:
    """Ask for accounts, for each once: calls join what is asked already, be it of this step or, in ``waiting``, before it."""
    prompts: list[NewPrompt] = []
    joined: list[Pending] = []
    before = {one.connection: one for one in waiting if one.purpose is Purpose.SIGN_IN and one.stage is Stage.ASKED}
    for name in dict.fromkeys(one.need.name for one in wanted):
        alike = [one for one in wanted if one.need.name == name]
        asked = before.get(name)
        if asked is not None:
            joined += [_joining(one, asked.prompt_id, asked.scopes) for one in alike]
            continue
        prompt = _prompt(alike, turn, agent=agent, session_id=session_id, now=now)
        prompts.append(prompt)
        joined += [_joining(one, prompt.prompt_id, prompt.scopes) for one in alike[1:]]
    return prompts, joined


def _prompt(alike: Sequence[Wanted], turn: Turn, *, agent: str, session_id: str, now: int) -> NewPrompt:
    first, connection = alike[0].one, alike[0].need.connection
    prompt_id = request_id()
    scopes = tuple(dict.fromkeys(scope for each in alike for scope in each.scopes))
    reasons = {each.reason for each in alike}
    reason: Reason = "missing" if "missing" in reasons else "refused" if "refused" in reasons else "scopes"
    lasts = int(connection.expires.total_seconds() * 1000)
    call, waited = first.call, first.waited
    shown = call if waited is None else run_call(waited)
    body = sign_in_body(
        prompt_id,
        Account(connection=connection.name, title=connection.title, scopes=scopes, reason=reason),
        Origin(
            requester=turn.requester,
            agent=agent,
            session_id=session_id,
            turn_id=turn.turn_id,
            channel=turn.channel,
            address=turn.address,
        ),
        asked_for=tuple(dict.fromkeys(each.one.call.tool for each in alike)),
        action={"call_id": call.call_id, "tool": call.tool, "input": first.tool.shown(shown.arguments)},
        expires_at=now + lasts,
        remind_ms=REMIND_MS if lasts > REMIND_MS else None,
    )
    try:
        codec.encode(body)
    except TooLarge:  # what it acts on is not what is asked: the account is
        body["action"] = {"call_id": call.call_id, "tool": call.tool, "input": {}}
    return NewPrompt(
        prompt_id=prompt_id,
        delivery_id=new_id("dlv") if turn.address is not None else None,
        call=call,
        purpose=Purpose.SIGN_IN,
        body=body,
        policy=AnswerPolicy.REQUESTER,
        expires_at=now + lasts,
        begun=first.begun,
        binding=waited.binding if waited is not None else "",
        means=waited.means if waited is not None else {},
        for_requester=True,
        connection=connection.name,
        scopes=scopes,
        signed_in=(*first.signed_in, connection.name),
        consent=waited.consent if waited is not None else None,
        earlier=_earlier(waited),
    )


def _joining(wanted: Wanted, prompt_id: str, scopes: Sequence[str]) -> Pending:
    """Wait for what was asked on behalf of another call; where that asks for less, this one may ask for the rest later."""
    one, waited, name = wanted.one, wanted.one.waited, wanted.need.name
    enough = set(wanted.need.scopes) <= set(scopes)
    return Pending(
        call=one.call,
        purpose=Purpose.SIGN_IN,
        stage=Stage.ASKED,
        prompt_id=prompt_id,
        begun=one.begun,
        binding=waited.binding if waited is not None else "",
        means=waited.means if waited is not None else {},
        connection=name,
        scopes=tuple(scopes),
        signed_in=(*one.signed_in, name) if enough else one.signed_in,
        consent=waited.consent if waited is not None else None,
        earlier=_earlier(waited),
    )


def _earlier(waited: Pending | None) -> Earlier | None:
    """What let a call run before it has to sign in."""
    if waited is None or waited.purpose is Purpose.SIGN_IN:
        return waited.earlier if waited is not None else None
    return Earlier(purpose=waited.purpose, prompt_id=waited.prompt_id, copies=waited.cards, group=waited.group)
