"""Random threads whose tools act with accounts: people connect them, or less, or cancel, or write on; tokens are refused.

What lives here: the machine of test_machine.py with such tools alone, and people who sign in often. What does not: its rules.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from bot.turn.state import Purpose, TurnPolicy
from durable_core.model import PromptOutcome
from tests.bot.people import ALICE
from tests.bot.turn.test_machine import SIGNED, Asked, Thread


class SigningThread(Thread):
    """One session of somebody who signs in."""

    tools: ClassVar[tuple[str, ...]] = (*SIGNED, *SIGNED, "free")

    def _asked_for(self, purpose: Purpose) -> list[Asked]:
        return [asked for asked in self._open() if asked.prompt.purpose is purpose]

    @precondition(lambda self: self.state.turn is None)
    @rule(data=st.data())
    def begin_a_turn(self, data: st.DataObject) -> None:
        self.say(ALICE, TurnPolicy.STEER, None, "hi")
        self.settle(data)

    @precondition(lambda self: self._asked_for(Purpose.SIGN_IN))
    @rule(data=st.data(), works=st.booleans())
    def sign_in(self, data: st.DataObject, works: bool) -> None:
        asked = data.draw(st.sampled_from(self._asked_for(Purpose.SIGN_IN)))
        if self._settle_by(asked, PromptOutcome.APPROVED):
            if works:
                self.accounts[asked.prompt.connection] = set(asked.prompt.scopes)
            else:
                self._connected(asked.prompt, data)
        self.settle(data)

    @precondition(lambda self: self._asked_for(Purpose.SIGN_IN))
    @rule(data=st.data(), rarely=st.integers(0, 2))
    def lose_a_card(self, data: st.DataObject, rarely: int) -> None:
        if not rarely:
            self.bury(data)
            self.settle(data)

    @precondition(lambda self: self._asked_for(Purpose.APPROVAL))
    @rule(data=st.data())
    def approve(self, data: st.DataObject) -> None:
        self._settle_by(data.draw(st.sampled_from(self._asked_for(Purpose.APPROVAL))), PromptOutcome.APPROVED)
        self.settle(data)


SigningThread.TestCase.settings = Thread.TestCase.settings
TestSigningThread = SigningThread.TestCase
