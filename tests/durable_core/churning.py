"""All that can be done to a store, in an order that a seed decides.

What lives here: what the child of `test_hold_lines` does until it is killed. What does not: killing and judging it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random

from durable_core.errors import ContentGone, DurableError, LeaseLost, SessionEnded
from durable_core.model import AnswerPolicy, Claim, Phase, Receipt, ToNew, Verdict
from durable_core.store import Store
from durable_core.testing.acts import claims, enrol, reply, send_all
from durable_core.testing.builders import LEASE, answer, event, message, new_run, post, prompt, step_commit, to_address

PASSING = (LeaseLost, SessionEnded, ContentGone)
"""What becomes of acts that come too late; nothing else may."""


class Churn:
    """One process that never stops."""

    def __init__(self, store: Store, seed: int, say: Callable[[Receipt], None]) -> None:
        self._store = store
        self._random = Random(seed)
        self._say = say
        self._prompts: list[str] = []
        self._runs: list[str] = []

    async def run(self) -> None:
        """Do some things at once, again and again."""
        await enrol(self._store)
        acts = (self._admit, self._admit, self._work, self._work, self._click, self._judge, self._send, self._end, self._forget)
        while True:
            chosen = [self._random.choice(acts)() for _ in range(6)]
            for result in await asyncio.gather(*chosen, return_exceptions=True):
                if isinstance(result, BaseException) and not isinstance(result, PASSING):
                    raise result

    async def _admit(self) -> None:
        keep_ms = self._random.choice((None, 0))
        receipt = await self._store.admit(message(to_address(f"a{self._random.randrange(4)}", new=new_run(keep_ms=keep_ms))))
        self._runs.append(receipt.run_id)
        self._say(receipt)

    async def _work(self) -> None:
        for claim in await claims(self._store, self._random.choice(("w1", "w2")), limit=2):
            with suppress(*PASSING):
                await self._step(claim)

    async def _step(self, claim: Claim) -> None:
        await reply(self._store, claim, events=(event(),))
        if self._random.random() < 0.1:
            await self._store.strand(claim.run_id, claim.epoch, reason="gone", code="c1")
            return
        policy = self._random.choice((AnswerPolicy.REQUESTER, AnswerPolicy.FUNCTION))
        question = prompt(policy=policy)
        commit = step_commit(
            claim,
            events=(event(), event(visible=False)),
            prompts=(question,),
            outbox=(post(f"a{self._random.randrange(4)}", prompt_id=question.prompt_id),),
            starts=(message(ToNew(new=new_run())),),
            phase=Phase.WAITING,
            release=True,
            end=self._random.choice((None, None, None, "done")),
        )
        await self._store.commit(commit)
        self._prompts.append(question.prompt_id)

    async def _click(self) -> None:
        if self._prompts:
            with suppress(DurableError):
                await self._store.answer(answer(self._random.choice(self._prompts)))

    async def _judge(self) -> None:
        for waiting in await self._store.take_interactions("w1", limit=3, lease_ms=LEASE):
            with suppress(*PASSING):
                await self._store.decide(Verdict(interaction_id=waiting.interaction_id, epoch=waiting.epoch, allowed=True))

    async def _send(self) -> None:
        await send_all(self._store)

    async def _end(self) -> None:
        if self._runs:
            await self._store.end(self._random.choice(self._runs), reason="reset", events=(event(),))

    async def _forget(self) -> None:
        if self._runs:
            await self._store.forget(self._random.choice(self._runs))
