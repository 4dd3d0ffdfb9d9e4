"""What judges said of the calls of one step, recorded: a worker that takes the step over doesn't ask and pay again.

What lives here: keeping and finding verdicts. What does not: asking for one (bot/deciding.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from bot import formats
from bot.deciding import Ruled, Says
from bot.formats import Kind
from bot.session.live import LiveSession
from durable_core import codec
from durable_core.model import Record, RecordKind
from durable_core.store import Store


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts of a session's pending step, by call."""

    store: Store
    session: LiveSession

    def known(self, call_id: str) -> Ruled | None:
        """Find what was said of a call in an attempt before."""
        record = self.session.records.get(_key(call_id))
        if record is None:
            return None
        told = formats.read(Kind.RECORD, record.body, run_id=self.session.run_id)
        return Ruled(cast("Says", told["says"]), str(told["why"]))

    async def keep(self, call_id: str, ruled: Ruled) -> None:
        """Record what was said of a call. Raises: LeaseLost."""
        session, key = self.session, _key(call_id)
        body = codec.encode({"says": ruled.says, "why": ruled.why})
        await self.store.record(
            session.run_id, session.epoch, step_n=session.step_no, key=key, kind=RecordKind.REPLY, input_hash="", body=body
        )
        session.records[key] = Record(
            key=key, kind=RecordKind.REPLY, input_hash="", body=body, attempt=session.attempt, at=session.now
        )


def _key(call_id: str) -> str:
    return f"judged:{call_id}"
