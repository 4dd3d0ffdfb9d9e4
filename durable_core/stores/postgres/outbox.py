"""The outbox: what is owed to an address, and the lanes by which senders take it.

What lives here: putting, claiming lanes, saying how it went. What does not: rendering and sending.

A lane's row is locked before anything of the lane is read, and numbers its items: whoever has the lock sees all items up to
its `seq`, committed. One statement locks all the lanes that a transaction needs at once, in the order of their names.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import takewhile
from operator import itemgetter
from typing import Final

from durable_core.errors import Broken, CannotOpen, ContentGone, KeyMissing, LeaseLost
from durable_core.ids import new_id
from durable_core.model import Buried, Lane, OutboxDraft, OutboxItem, Postponed, Sent
from durable_core.stores import sealing
from durable_core.stores.postgres.sql import now, storable
from durable_core.stores.postgres.tx import UNOPENABLE_MS, Row, Tx

log = logging.getLogger("moorings.store")

UNOPENABLE: Final = (KeyMissing, CannotOpen, ContentGone, Broken)
"""What keeps a row from being read, and is left alone for a while: reading it changes nothing in the transaction."""

FORGOTTEN: Final = "forgotten"
"""The error of what was owed by a run whose content was deleted."""

# A lane with `due_at` in the future is blocked by a Retry-After: more items don't unblock it.
_LANES: Final = """
    INSERT INTO moor_lane (channel, address, seq, done_seq, due_at, epoch)
    SELECT channel, address, items, 0, $4::bigint, 0
    FROM unnest($1::text[], $2::text[], $3::bigint[]) AS owed (channel, address, items)
    ORDER BY channel, address
    ON CONFLICT (channel, address) DO UPDATE SET
        seq = moor_lane.seq + excluded.seq, due_at = coalesce(moor_lane.due_at, excluded.due_at)
    RETURNING channel, address, seq
"""
_PUT: Final = """
    INSERT INTO moor_outbox (run_id, delivery_id, channel, address, lane_seq, body, prompt_id, edit_of, state, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9)
"""
_POSTED: Final = """
    SELECT o.delivery_id, o.channel, o.address, o.body, o.prompt_id
    FROM unnest($1::text[]) AS card (prompt_id) JOIN moor_outbox o ON o.prompt_id = card.prompt_id
    WHERE o.run_id = $2 AND o.edit_of IS NULL ORDER BY o.at, o.lane_seq
"""
_HOLD: Final = """
    INSERT INTO moor_lane (channel, address, seq, done_seq, epoch)
    SELECT channel, address, 0, 0, 0 FROM (
        SELECT o.channel, o.address FROM moor_prompt p JOIN moor_outbox o ON o.prompt_id = coalesce(p.group_id, p.prompt_id)
        WHERE p.run_id = $1 AND p.outcome IS NULL
        UNION SELECT channel, address FROM unnest($2::text[], $3::text[]) AS owed (channel, address)
    ) AS lane
    ORDER BY channel, address
    ON CONFLICT (channel, address) DO UPDATE SET epoch = moor_lane.epoch
"""
# A lane that somebody has locked is being put to, given back or taken: it is due again when that is done.
_TAKE: Final = """
    WITH due AS MATERIALIZED (
        SELECT channel, address, due_at FROM moor_lane
        WHERE due_at IS NOT NULL AND due_at <= $1 AND owner IS NULL AND ($2::text[] IS NULL OR channel = ANY ($2::text[]))
        ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED
    )
    UPDATE moor_lane l SET owner = $4, lease_until = $5, epoch = l.epoch + 1
    FROM due WHERE l.channel = due.channel AND l.address = due.address
    RETURNING due.due_at, l.channel, l.address, l.epoch
"""
_LEAVE: Final = "UPDATE moor_lane SET owner = NULL, lease_until = NULL, due_at = $1 WHERE channel = $2 AND address = $3"
_ITEMS: Final = """
    SELECT o.channel, o.address, o.delivery_id, o.run_id, r.name, o.body, o.prompt_id, o.edit_of, p.ref, o.attempts,
           o.last_error, p.state
    FROM unnest($1::text[], $2::text[]) AS lane (channel, address)
    CROSS JOIN LATERAL (
        SELECT * FROM moor_outbox
        WHERE channel = lane.channel AND address = lane.address AND state = 'pending' ORDER BY lane_seq LIMIT $3
    ) o
    JOIN moor_run r ON r.run_id = o.run_id LEFT JOIN moor_outbox p ON p.delivery_id = o.edit_of
    ORDER BY o.channel, o.address, o.lane_seq
"""
_FENCE: Final = f"""
    SELECT done_seq, {now("$5")} FROM moor_lane
    WHERE channel = $1 AND address = $2 AND epoch = $3 AND owner = $4 FOR UPDATE
"""
_HEAD: Final = "SELECT run_id, state, lane_seq FROM moor_outbox WHERE delivery_id = $1 AND channel = $2 AND address = $3"
_DEAD: Final = """
    SELECT run_id, channel, address FROM moor_outbox WHERE delivery_id = $1 AND state = 'dead' AND length(body) > 0
"""
# Its attempts stay: it may have been sent after all, so it is looked for first.
_REPLAY: Final = """
    UPDATE moor_outbox SET state = 'pending', lane_seq = $2, done_at = NULL, attempts = greatest(attempts, 1)
    WHERE delivery_id = $1
"""
_LOCK: Final = "SELECT 1 FROM moor_lane WHERE channel = $1 AND address = $2 FOR UPDATE"
_DONE: Final = "UPDATE moor_outbox SET state = $2, ref = $3, last_error = $4, done_at = greatest(at, $5) WHERE delivery_id = $1"
_POSTPONE: Final = "UPDATE moor_outbox SET attempts = attempts + $2, last_error = $3 WHERE delivery_id = $1"
_KEEP: Final = "UPDATE moor_lane SET done_seq = done_seq + $3 WHERE channel = $1 AND address = $2"
# Due again as long as it has pending rows, by its counters (CORE 1).
_GIVE_BACK: Final = """
    UPDATE moor_lane SET owner = NULL, lease_until = NULL, done_seq = done_seq + $3,
        due_at = CASE WHEN done_seq + $3 < seq THEN greatest(due_at, $4) END
    WHERE channel = $1 AND address = $2
"""
_TAKE_BACK: Final = """
    WITH gone AS MATERIALIZED (SELECT channel, address FROM moor_lane WHERE {which} ORDER BY channel, address FOR UPDATE {skip})
    UPDATE moor_lane l SET owner = NULL, lease_until = NULL, epoch = l.epoch + 1,
        due_at = CASE WHEN l.done_seq < l.seq THEN greatest(l.due_at, $1) END
    FROM gone WHERE l.channel = gone.channel AND l.address = gone.address
    RETURNING l.channel, l.address
"""
_EXPIRED: Final = _TAKE_BACK.format(which="owner IS NOT NULL AND lease_until < $1", skip="SKIP LOCKED")
_OWNED: Final = _TAKE_BACK.format(which="owner = $2", skip="")
# Whoever had a lane may have sent its head without saying so: from then on it is a repeat, which is looked for before it is sent.
_IN_DOUBT: Final = """
    UPDATE moor_outbox o SET attempts = o.attempts + 1
    FROM unnest($1::text[], $2::text[]) AS gone (channel, address)
    JOIN moor_lane l ON l.channel = gone.channel AND l.address = gone.address
    WHERE o.channel = l.channel AND o.address = l.address AND o.state = 'pending' AND o.lane_seq = l.done_seq + 1
"""
_WAITING: Final = """
    SELECT DISTINCT o.run_id FROM unnest($1::text[], $2::text[]) AS gone (channel, address)
    JOIN moor_outbox o ON o.channel = gone.channel AND o.address = gone.address WHERE o.state = 'pending'
"""


async def hold(tx: Tx, run_id: str, drafts: Sequence[OutboxDraft]) -> None:
    """Lock the lanes of these messages and of all cards of open prompts: for who puts twice, by settling and by owing."""
    await tx.run(_HOLD, run_id, *_names([(draft.channel, draft.address) for draft in drafts]))


async def put(tx: Tx, run_id: str, drafts: Sequence[OutboxDraft], at: int) -> None:
    """Owe messages, in this order. The lanes stay locked: nothing but more messages may be written after it."""
    if not drafts:
        return
    owed = Counter((draft.channel, draft.address) for draft in drafts)
    lanes = await tx.all(_LANES, *_names(list(owed)), list(owed.values()), await tx.now())
    last = {(channel, address): seq - owed[channel, address] for channel, address, seq in lanes}
    await tx.know(run_id)
    written = []
    for draft in drafts:
        lane = (draft.channel, draft.address)
        last[lane] += 1
        body = tx.seal(run_id, draft.body, sealing.outbox_body(draft.delivery_id))
        written.append((run_id, draft.delivery_id, *lane, last[lane], body, draft.prompt_id, draft.edit_of, at))
    await tx.many(_PUT, written)
    tx.changed.add(run_id)


async def owes(tx: Tx, delivery_id: str) -> bool:
    """Tell whether something is, or was, owed under an id."""
    return await tx.one("SELECT 1 FROM moor_outbox WHERE delivery_id = $1", delivery_id) is not None


async def edit_copies(tx: Tx, run_id: str, prompt_ids: Sequence[str], at: int) -> None:
    """Owe an edit to every posted copy of cards, sent or not: in its lane the edit comes after the post.

    One that this operation owes already is enough.
    """
    wanted = [prompt_id for prompt_id in dict.fromkeys(prompt_ids) if prompt_id not in tx.edited]
    if not wanted:
        return
    tx.edited.update(wanted)
    posted = await tx.all(_POSTED, wanted, run_id)
    if not posted:
        return
    await tx.know(run_id)
    drafts = [
        OutboxDraft(
            delivery_id=new_id("dlv"),
            channel=channel,
            address=address,
            body=tx.open(run_id, body, sealing.outbox_body(delivery_id)),
            prompt_id=prompt_id,
            edit_of=delivery_id,
        )
        for delivery_id, channel, address, body, prompt_id in posted
    ]
    await put(tx, run_id, drafts, at)


async def claim_lanes(
    tx: Tx, owner: str, *, limit: int, lease_ms: int, items: int, channels: Sequence[str] | None = None
) -> list[Lane]:
    """Take lanes that are due, the longest due first; those whose sender's lease is over are due too."""
    at = await tx.now()
    await take_back_expired(tx)
    wanted = None if channels is None else list(channels)
    taken = await tx.all(_TAKE, at, wanted, limit, owner, at + lease_ms)
    if not taken:
        return []
    rows = defaultdict(list)
    for row in await tx.all(_ITEMS, *_names([lane[1:] for lane in taken]), items):
        rows[row[0], row[1]].append(row[2:])
    await tx.know(*(row[1] for lane in rows.values() for row in lane))
    lanes = []
    for _, channel, address, epoch in sorted(taken, key=itemgetter(0)):
        owed = rows[channel, address]
        gone = await _bury_forgotten(tx, owed)
        if gone == len(owed):
            await tx.run(_GIVE_BACK, channel, address, gone, at)
            continue
        if gone:
            await tx.run(_KEEP, channel, address, gone)
        try:
            sendable = _sendable(tx, owed[gone:])
        except UNOPENABLE as error:
            log.error("%s %s can't be read, and is left alone for a while: %s", channel, address, error)  # noqa: TRY400
            await tx.run(_LEAVE, at + UNOPENABLE_MS, channel, address)
        else:
            lanes.append(Lane(channel=channel, address=address, epoch=epoch, items=sendable))
    return lanes


async def _bury_forgotten(tx: Tx, rows: Sequence[Row]) -> int:
    """Take what was owed by runs that are forgotten out of a lane's head; how many they were."""
    gone = [row[0] for row in takewhile(lambda row: not row[3], rows)]
    for delivery_id in gone:
        await tx.run(_DONE, delivery_id, "dead", None, FORGOTTEN, await tx.now())
    return len(gone)


async def finish(tx: Tx, lane: Lane, owner: str, result: Sent | Postponed | Buried) -> None:
    """Say how the head of a lane went; saying it twice, as after an unknown commit, is once.

    Raises:
        LeaseLost: another sender has the lane.
        Broken: the delivery is not the lane's head.
    """
    done_seq = await _fence(tx, lane, owner)
    row = await tx.one(_HEAD, result.delivery_id, lane.channel, lane.address)
    if row is None:
        raise Broken(f"{result.delivery_id} is not in the lane {lane.channel} {lane.address}")
    run_id, state, lane_seq = row
    pending = state == "pending"
    if pending:
        if lane_seq != done_seq + 1:
            raise Broken(f"{result.delivery_id} is not the head of its lane")
        await _note(tx, result)
        tx.changed.add(run_id)
    done = int(pending and not isinstance(result, Postponed))
    if isinstance(result, Postponed) or result.release:
        until = result.until if pending and isinstance(result, Postponed) else await tx.now()
        await _give_back(tx, lane, done=done, until=until)
    elif done:
        await tx.run(_KEEP, lane.channel, lane.address, done)


async def release_lane(tx: Tx, lane: Lane, owner: str) -> None:
    """Give a lane back in the middle of a send; whether its head was sent is not known.

    Raises:
        LeaseLost: another sender has it.
    """
    await _fence(tx, lane, owner)
    await tx.run(_IN_DOUBT, [lane.channel], [lane.address])
    await _give_back(tx, lane, done=0, until=await tx.now())
    tx.changed.update(item.run_id for item in lane.items)


async def take_back(tx: Tx, owner: str) -> None:
    """Give back the lanes of a sender that is gone; their epoch ends, and the runs whose messages wait there are told of."""
    await _given_back(tx, await tx.all(_OWNED, await tx.now(), owner))


async def take_back_expired(tx: Tx) -> None:
    """Give back lanes whose sender's lease is over."""
    await _given_back(tx, await tx.all(_EXPIRED, await tx.now()))


async def _given_back(tx: Tx, lanes: Sequence[Row]) -> None:
    if lanes:
        await tx.run(_IN_DOUBT, *_names(lanes))
        tx.changed.update(row[0] for row in await tx.all(_WAITING, *_names(lanes)))


async def replay(tx: Tx, delivery_id: str) -> bool:
    """Owe a dead letter again, behind what its lane owes by now; False when there is no such dead letter."""
    row = await tx.one(_DEAD, delivery_id)
    if row is None:
        return False
    run_id, *lane = row
    await tx.one(_LOCK, *lane)
    if await tx.one(_DEAD, delivery_id) is None:  # another one replayed it while this one waited for the lane
        return False
    (owed,) = await tx.all(_LANES, *_names([lane]), [1], await tx.now())
    await tx.run(_REPLAY, delivery_id, owed[2])
    tx.changed.add(run_id)
    return True


def _names(lanes: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Return channels and addresses, as the two arrays that statements take."""
    return [lane[0] for lane in lanes], [lane[1] for lane in lanes]


def _sendable(tx: Tx, rows: Sequence[Row]) -> tuple[OutboxItem, ...]:
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


async def _fence(tx: Tx, lane: Lane, owner: str) -> int:
    """Lock a lane that this sender still has, and return how far it is done."""
    row = await tx.one(_FENCE, lane.channel, lane.address, lane.epoch, owner, tx.override)
    if row is None:
        raise LeaseLost(f"{lane.channel} {lane.address}", lane.epoch)
    tx.note_now(row[1])
    return int(row[0])


async def _note(tx: Tx, result: Sent | Postponed | Buried) -> None:
    """Write on an item how it went."""
    match result:
        case Sent():
            await tx.run(_DONE, result.delivery_id, "sent", result.ref, None, await tx.now())
        case Buried():
            await tx.run(_DONE, result.delivery_id, "dead", None, storable(result.error), await tx.now())
        case Postponed():
            await tx.run(_POSTPONE, result.delivery_id, int(result.counted), storable(result.error))


async def _give_back(tx: Tx, lane: Lane, *, done: int, until: int) -> None:
    await tx.run(_GIVE_BACK, lane.channel, lane.address, done, until)
