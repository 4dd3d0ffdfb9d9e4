"""The outbox: what is owed to an address, and the lanes by which senders take it.

What lives here: putting, claiming lanes, saying how it went. What does not: rendering and sending.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from durable_core.errors import Broken, DurableError, LeaseLost
from durable_core.ids import new_id
from durable_core.model import Buried, Lane, OutboxDraft, OutboxItem, Postponed, Sent
from durable_core.stores import sealing
from durable_core.stores.rows import names
from durable_core.stores.sqlite.tx import UNOPENABLE_MS, Row, Tx

log = logging.getLogger("moorings.store")

FORGOTTEN: Final = "forgotten"
"""The error of what was owed by a run whose content was deleted."""

# A lane with `due_at` in the future is blocked by a Retry-After: more items don't unblock it.
_LANE: Final = """
    INSERT INTO moor_lane (channel, address, seq, done_seq, due_at, epoch) VALUES (:channel, :address, 1, 0, :now, 0)
    ON CONFLICT (channel, address) DO UPDATE SET seq = moor_lane.seq + 1, due_at = coalesce(moor_lane.due_at, :now)
    RETURNING seq
"""
_PUT: Final = """
    INSERT INTO moor_outbox (run_id, delivery_id, channel, address, lane_seq, body, prompt_id, edit_of, state, at)
    VALUES (:run_id, :delivery_id, :channel, :address, :lane_seq, :body, :prompt_id, :edit_of, 'pending', :at)
"""
_POSTED: Final = """
    SELECT at, lane_seq, delivery_id, channel, address, body, prompt_id FROM moor_outbox
    WHERE prompt_id = ? AND run_id = ? AND edit_of IS NULL
"""
# RELEASE gives a lane back: due again as long as it has pending rows, by its counters (CORE 1).
_RELEASE: Final = "owner = NULL, lease_until = NULL, due_at = CASE WHEN done_seq < seq THEN max(due_at, :now) END"
OF_CHANNELS: Final = "(:channels IS NULL OR channel IN (SELECT value FROM json_each(:channels)))"
"""Only lanes that a worker sends."""
_DUE: Final = f"""
    SELECT channel, address FROM moor_lane
    WHERE due_at IS NOT NULL AND due_at <= :now AND owner IS NULL AND {OF_CHANNELS} ORDER BY due_at LIMIT :limit
"""
_TAKE: Final = """
    UPDATE moor_lane SET owner = ?, lease_until = ?, epoch = epoch + 1 WHERE channel = ? AND address = ? RETURNING epoch
"""
_LEAVE: Final = "UPDATE moor_lane SET due_at = ? WHERE channel = ? AND address = ?"
_ITEMS: Final = """
    SELECT o.delivery_id, o.run_id, r.name, o.body, o.prompt_id, o.edit_of, p.ref, o.attempts, o.last_error, p.state
    FROM moor_outbox o JOIN moor_run r ON r.run_id = o.run_id LEFT JOIN moor_outbox p ON p.delivery_id = o.edit_of
    WHERE o.channel = ? AND o.address = ? AND o.state = 'pending' ORDER BY o.lane_seq LIMIT ?
"""
_WAITING: Final = "SELECT DISTINCT run_id FROM moor_outbox WHERE channel = ? AND address = ? AND state = 'pending'"
_HEAD: Final = """
    SELECT o.run_id, o.state, o.lane_seq, l.done_seq FROM moor_outbox o
    JOIN moor_lane l ON l.channel = o.channel AND l.address = o.address
    WHERE o.delivery_id = ? AND o.channel = ? AND o.address = ?
"""
# Whoever had a lane may have sent its head without saying so: from then on it is a repeat, which is looked for before it is sent.
_IN_DOUBT: Final = """
    UPDATE moor_outbox SET attempts = attempts + 1
    WHERE channel = ?1 AND address = ?2 AND state = 'pending'
      AND lane_seq = (SELECT done_seq + 1 FROM moor_lane WHERE channel = ?1 AND address = ?2)
"""
_DEAD: Final = "SELECT run_id, channel, address FROM moor_outbox WHERE delivery_id = ? AND state = 'dead' AND length(body) > 0"
# Its attempts stay: it may have been sent after all, so it is looked for first.
_REPLAY: Final = """
    UPDATE moor_outbox SET state = 'pending', lane_seq = ?, done_at = NULL, attempts = max(attempts, 1) WHERE delivery_id = ?
"""
_NEXT: Final = """
    SELECT delivery_id, length(body) FROM moor_outbox
    WHERE channel = ? AND address = ? AND state = 'pending' ORDER BY lane_seq LIMIT 1
"""
_ADVANCE: Final = "UPDATE moor_lane SET done_seq = done_seq + 1 WHERE channel = ? AND address = ?"
_DONE: Final = """
    UPDATE moor_outbox SET state = :state, ref = :ref, last_error = :error, done_at = max(at, :now)
    WHERE delivery_id = :delivery_id
"""


def put(tx: Tx, run_id: str, drafts: Sequence[OutboxDraft], at: int) -> None:
    """Owe messages, in this order."""
    for draft in drafts:
        lane = tx.one(_LANE, {"channel": draft.channel, "address": draft.address, "now": tx.now})
        tx.run(
            _PUT,
            {
                "run_id": run_id,
                "delivery_id": draft.delivery_id,
                "channel": draft.channel,
                "address": draft.address,
                "lane_seq": lane and lane[0],
                "body": tx.seal(run_id, draft.body, sealing.outbox_body(draft.delivery_id)),
                "prompt_id": draft.prompt_id,
                "edit_of": draft.edit_of,
                "at": at,
            },
        )
        tx.changed.add(run_id)


def owes(tx: Tx, delivery_id: str) -> bool:
    """Tell whether something is, or was, owed under an id."""
    return tx.one("SELECT 1 FROM moor_outbox WHERE delivery_id = ?", (delivery_id,)) is not None


def edit_copies(tx: Tx, run_id: str, prompt_ids: Iterable[str], at: int) -> None:
    """Owe an edit to every posted copy of cards, sent or not: in its lane the edit comes after the post.

    One that this operation owes already is enough.
    """
    wanted = [prompt_id for prompt_id in dict.fromkeys(prompt_ids) if prompt_id not in tx.edited]
    tx.edited.update(wanted)
    posted = sorted(row for prompt_id in wanted for row in tx.all(_POSTED, (prompt_id, run_id)))
    drafts = [
        OutboxDraft(
            delivery_id=new_id("dlv"),
            channel=channel,
            address=address,
            body=tx.open(run_id, body, sealing.outbox_body(delivery_id)),
            prompt_id=prompt_id,
            edit_of=delivery_id,
        )
        for _, _, delivery_id, channel, address, body, prompt_id in posted
    ]
    put(tx, run_id, drafts, at)


def of_channels(channels: Sequence[str] | None) -> dict[str, str | None]:
    """Write the channels that a worker sends, as the parameter of `OF_CHANNELS`."""
    return {"channels": None if channels is None else names(channels)}


def claim_lanes(
    tx: Tx, owner: str, *, limit: int, lease_ms: int, items: int, channels: Sequence[str] | None = None
) -> list[Lane]:
    """Take lanes that are due, the longest due first; those whose sender's lease is over are due too."""
    take_back_expired(tx)
    lanes = []
    for channel, address in tx.all(_DUE, {"now": tx.now, "limit": limit, **of_channels(channels)}):
        got = tx.apart(lambda at=(channel, address): _take(tx, owner, at, lease_ms=lease_ms, items=items))  # type: ignore[misc]
        if isinstance(got, DurableError):
            log.error("the lane %s %s can't be read, and is left alone for a while: %s", channel, address, got)
            tx.run(_LEAVE, (tx.now + UNOPENABLE_MS, channel, address))
        elif got is not None:
            lanes.append(got)
    return lanes


def _take(tx: Tx, owner: str, at: tuple[str, str], *, lease_ms: int, items: int) -> Lane | None:
    channel, address = at
    if not _bury_forgotten(tx, channel, address):
        return None
    row = tx.one(_TAKE, (owner, tx.now + lease_ms, channel, address))
    rows = tx.all(_ITEMS, (channel, address, items))
    return Lane(channel=channel, address=address, epoch=row[0] if row else 0, items=_sendable(tx, rows))


def _bury_forgotten(tx: Tx, channel: str, address: str) -> bool:
    """Take what was owed by runs that are forgotten out of a lane's head; False when nothing is left to send."""
    while True:
        head = tx.one(_NEXT, (channel, address))
        if head is None:
            tx.run("UPDATE moor_lane SET due_at = NULL WHERE channel = ? AND address = ?", (channel, address))
            return False
        if head[1]:
            return True
        tx.run(_DONE, {"state": "dead", "ref": None, "error": FORGOTTEN, "now": tx.now, "delivery_id": head[0]})
        tx.run(_ADVANCE, (channel, address))


def finish(tx: Tx, lane: Lane, owner: str, result: Sent | Postponed | Buried) -> None:
    """Say how the head of a lane went; saying it twice, as after an unknown commit, is once.

    Raises:
        LeaseLost: another sender has the lane.
        Broken: the delivery is not the lane's head.
    """
    _fence(tx, lane, owner)
    row = tx.one(_HEAD, (result.delivery_id, lane.channel, lane.address))
    if row is None:
        raise Broken(f"{result.delivery_id} is not in the lane {lane.channel} {lane.address}")
    run_id, state, lane_seq, done_seq = row
    if state == "pending":
        if lane_seq != done_seq + 1:
            raise Broken(f"{result.delivery_id} is not the head of its lane")
        if isinstance(result, Postponed):
            _postpone(tx, lane, result)
        else:
            _done(tx, lane, result)
        tx.changed.add(run_id)
    if isinstance(result, Postponed) or result.release:
        _give_back(tx, lane)


def release_lane(tx: Tx, lane: Lane, owner: str) -> None:
    """Give a lane back in the middle of a send; whether its head was sent is not known.

    Raises:
        LeaseLost: another sender has it.
    """
    _fence(tx, lane, owner)
    tx.run(_IN_DOUBT, (lane.channel, lane.address))
    _give_back(tx, lane)
    tx.changed.update(item.run_id for item in lane.items)


def take_back(tx: Tx, which: str, parameters: dict[str, str]) -> None:
    """Give back lanes of senders that are gone; their epoch ends, and the runs whose messages wait there are told of."""
    lanes = tx.all(
        f"UPDATE moor_lane SET {_RELEASE}, epoch = epoch + 1 WHERE {which} RETURNING channel, address",
        {"now": tx.now, **parameters},
    )
    for lane in lanes:
        tx.run(_IN_DOUBT, lane)
        tx.changed.update(run_id for (run_id,) in tx.all(_WAITING, lane))


def take_back_expired(tx: Tx) -> None:
    """Give back lanes whose sender's lease is over."""
    take_back(tx, "owner IS NOT NULL AND lease_until < :now", {})


def replay(tx: Tx, delivery_id: str) -> bool:
    """Owe a dead letter again, behind what its lane owes by now; False when there is no such dead letter."""
    row = tx.one(_DEAD, (delivery_id,))
    if row is None:
        return False
    run_id, channel, address = row
    lane = tx.one(_LANE, {"channel": channel, "address": address, "now": tx.now})
    tx.run(_REPLAY, (lane and lane[0], delivery_id))
    tx.changed.add(run_id)
    return True


def _sendable(tx: Tx, rows: list[Row]) -> tuple[OutboxItem, ...]:
    """Read items up to an edit whose post is still pending before it, for its reference isn't known yet, or a forgotten one."""
    items: list[OutboxItem] = []
    for delivery_id, run_id, name, body, prompt_id, edit_of, ref, attempts, error, post_state in rows:
        if not body or (items and post_state == "pending"):
            break
        items.append(
            OutboxItem(
                delivery_id=delivery_id,
                run_id=run_id,
                run_name=name,
                body=tx.open(run_id, body, sealing.outbox_body(delivery_id)),
                prompt_id=prompt_id,
                edit_of=edit_of,
                edit_ref=ref,
                attempts=attempts,
                last_error=error,
            )
        )
    return tuple(items)


def _fence(tx: Tx, lane: Lane, owner: str) -> None:
    sql = "SELECT 1 FROM moor_lane WHERE channel = ? AND address = ? AND epoch = ? AND owner = ?"
    if tx.one(sql, (lane.channel, lane.address, lane.epoch, owner)) is None:
        raise LeaseLost(f"{lane.channel} {lane.address}", lane.epoch)


def _done(tx: Tx, lane: Lane, result: Sent | Buried) -> None:
    ref, error = (result.ref, None) if isinstance(result, Sent) else (None, result.error)
    state = "sent" if isinstance(result, Sent) else "dead"
    tx.run(_DONE, {"state": state, "ref": ref, "error": error, "now": tx.now, "delivery_id": result.delivery_id})
    tx.run(_ADVANCE, (lane.channel, lane.address))


def _postpone(tx: Tx, lane: Lane, result: Postponed) -> None:
    sql = "UPDATE moor_outbox SET attempts = attempts + ?, last_error = ? WHERE delivery_id = ?"
    tx.run(sql, (int(result.counted), result.error, result.delivery_id))
    tx.run("UPDATE moor_lane SET due_at = ? WHERE channel = ? AND address = ?", (result.until, lane.channel, lane.address))


def _give_back(tx: Tx, lane: Lane) -> None:
    sql = f"UPDATE moor_lane SET {_RELEASE} WHERE channel = :channel AND address = :address"
    tx.run(sql, {"now": tx.now, "channel": lane.channel, "address": lane.address})
