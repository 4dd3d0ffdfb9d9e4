"""The contract of a store: where durable state lives, and what every store promises.

What lives here: one Protocol and its numbered promises. What does not: SQL, encryption of values, waking other processes' loops.

Every implementation keeps these promises; `durable_core.testing.StoreContract` tests each under its number.

Admission
  S1   Nothing is returned before it is committed; what was returned survives a kill.
  S2   One (source, key) is admitted once. A repeat changes nothing and returns the first receipt, `deduplicated`; with another
       digest it raises `Conflict` (`refuse`) or returns the first receipt (`merge`).
  S3   An address belongs to at most one open run. Of racing first messages one creates the run; every other one is in its
       inbox, each with one receipt, in commit order without gaps.
  S4   Admission wakes the run: `inbox_seq` grows by one and `wake_at` is at most now, whoever owns the run (CORE 1).
  S5   Input for an ended run raises `SessionEnded`, for an unknown one `NotFound`; neither leaves a row. By address, only a
       target with `new` creates.
Claims
  S6   At most one live claim exists for a run; each claim has a higher epoch than every one before. (A power cut may undo a
       claim under which nothing was written; its owner is gone with it.)
  S7   A fenced write of a stale epoch changes nothing and raises `LeaseLost`.
  S8   A claim returns unconsumed commands in order, open prompts, and the records of the pending step.
  S9   A run whose owner is dead or whose lease is over can be claimed at once, as `interrupted`; it is charged unless a record
       was made under the lost claim. A release is not charged.
  S10  Only due, open runs that the worker is able to take are claimed, the longest due first; one that crashed twice only with
       `alone`.
  S43  `begin` is `admit`, and a claim of the run in the same transaction if the input made or woke one that nobody holds, that is
       due at once and that the worker is able to take; one that crashed twice isn't taken so, nor is one by a cancel. Nobody is
       told of a run that was: there is nothing left to do for others.
  S49  Of one claim at most `recovering` runs are such as lost their worker and got nothing from anybody since. What else is due
       is claimed past them, so that nobody's input waits behind a bulk of them.
Commits
  S11  A commit is whole: step, events, outbox, prompts, consumed commands, outcomes, the next state; or nothing at all.
  S12  A completed step never changes.
  S13  A released run sleeps until its timer or deadline, or is due at once when more came in than the commit had seen (CORE 1).
       A deadline that passed while a turn is under way wakes nothing more; whoever ends the turn looks at it.
  S14  Each submission gets exactly one outcome; ending a run aborts what nobody consumed and frees its addresses.
Records
  S15  A record of a key is written once; writing it again returns without change. Records end with their step.
Prompts
  S16  A prompt is settled once, by compare-and-set: open, not expired, no cancel pending. The loser learns who settled it.
  S17  Settling puts a response into the inbox, wakes the run and owes an edit to every posted copy, in one transaction.
  S18  An answer that needs a function waits as an interaction; it never waits behind the run's lease. Whoever answered in vain
       is owed what the answer said to tell, in the transaction that decided so. A verdict about one level counts for no other.
  S38  A prompt with a quorum is settled by that many different people who approve, or by one who denies; each yes counts once. An
       answer that counts without settling owes an edit to every posted copy. An override settles whatever the quorum is. With a
       yes that counts or settles go earlier votes of those whom the list doesn't name by now, or whom the verdict calls lapsed.
  S39  The times of an open prompt, whom it asks and its level change only by a commit; then every posted copy is edited.
  S40  Whatever settles, counts, is refused or hands a prompt to others, and each vote that goes, leaves one audit entry in the
       same transaction. Entries are numbered without gaps over the whole store, each bears the hash of the one before, and no
       purge deletes them.
Outbox
  S19  One lane is sent by one sender at a time, in order; an item is `sent`, postponed or buried, never dropped.
  S20  A sent item keeps the platform's reference, so that an edit finds its post.
Events
  S21  Positions and visible indexes have no gaps, whoever appends; an event is never changed but by S29 and S31.
  S22  Reads are absolute, or negative from the tail; they see committed events only.
Values
  S23  Bodies are sealed with a key of their run, bound to table, row and column; without the key they don't open.
Time
  S24  Time is the database's, or the clock's override; it never runs backwards within a run.
Workflows
  S25  Addresses of a commit belong to its run from then on, or the commit is refused whole with `AddressTaken`.
  S26  Runs that a commit starts are made with it or not at all; one whose (source, key) is known is not made again.
  S27  A stranded run is offered to other code only, or to all again by `unstrand`; nothing of it is lost or charged.
  S28  The first input of a new run with `wake_at` wakes it then and not before.
Keeping
  S29  Content goes only when its run has ended, its retention is over, a minute has passed and nothing of it is still to be sent;
       ids, times and outcomes stay. Reading what is gone raises `ContentGone`. Forgetting waits for none of that: what the run
       still owed is buried.
  S30  Wrapping keys anew changes nothing else; it may be broken off at any point and begun again.
  S31  Redacting replaces single bodies where they stand. A commit that says how many redactions it has seen is refused whole with
       `Redacted` when there are more, so that nothing brings back what was taken out.
Rebuilding
  S32  Every transaction that changes what a run is appends a hidden event that says so, besides the events it was given; but for
       a step that only leaves its run running, which its own row says. With the key columns of what came in and of steps, status,
       prompts, outcomes and child starts can be rebuilt from the list alone.
Deploys
  S33  A commit with `move` makes the run that deployment's, and its lifetime begins anew; without, both stay as they are.
  S34  A worker that has stopped or died is remembered for a quarter of an hour, with what it could read; it holds nothing.
  S35  A dead letter that is replayed is owed again under its id, behind what its lane owes; it counts as tried.
  S36  A run to which nothing has happened since `abilities.since` is not offered to that worker.
Claimed keys
  S37  A key of the namespace is claimed once until it is released. Of racing callers exactly one gets `claimed`, which is durable
       before it is told; every other one gets `done` with the value that was said first, or `pending` with who began. All of it
       is fenced. What is done stays done, also when the value goes with the content of the run that gave it. No event tells of it
       (S32): a claim changes nothing that a run is, and outlives the content of the one that made it.
  S50  A pending claim is settled from outside, by its id: it is done, or its key may be claimed anew. Of those who say so one
       does it. While somebody is at work on its run it is refused: the effect may be under way. What is done stays as it was
       said. Who did it leaves one audit entry in the same transaction.
Vault
  S44  Entries of the vault are written by compare-and-set, all of a call or none; of those who write over one version exactly one
       does. Versions of a name grow, and none comes back, not even after the entry was deleted.
  S45  A lease has one holder, until it is given back or over, or somebody writes the entry, whoever that is. Under a lease that
       doesn't stand any more nothing is written.
  S46  What has expired isn't there: not read, held, listed or due, its name free for another; a purge deletes it. Due are entries
       whose time has come and that nobody holds, the longest due first.
  S47  A value is sealed with the ring's current key, bound to name, kind, owner and version. A row that was swapped or changed
       raises `CannotOpen` where it is read, and stops no other. Wrapping keys anew (S30) covers entries.
  S48  An answer that is `aside` is owed its word and leaves an audit entry; the prompt, its votes and copies stay as they are.
       Where its giver may not answer, or the prompt is over, it is refused as any answer.
  S51  Of answers that say `most`, that many of one person to one prompt are taken within a minute that change nothing or wait for
       a worker; what comes above is refused as `too_often` and leaves no trace, not even its key.
Beside the loop
  S41  `prolong` is called from another thread and needs no loop. It is fenced as every write is: what was given back, or has
       another epoch by now, stays as it is.
Health
  S42  `probe` passes where the next write would, and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from durable_core.model import (
    SESSIONS,
    Abilities,
    Admission,
    AnswerReceipt,
    AuditEntry,
    Buried,
    Claim,
    ClaimedKey,
    ClaimRequest,
    Committed,
    DueWork,
    Event,
    EventDraft,
    Extra,
    Holdings,
    Incarnation,
    Interaction,
    KeyRequest,
    KeySettled,
    KeySettlement,
    Lane,
    Postponed,
    Prompt,
    PromptAnswer,
    Receipt,
    Record,
    RecordKind,
    Run,
    SeenOpen,
    Sent,
    Signals,
    Step,
    StepCommit,
    Submission,
    VaultEntry,
    VaultListing,
    VaultWrite,
    Verdict,
)

Listener = Callable[[Sequence[str] | None], None]
"""Called on the event loop with the ids of runs that changed; None means: anything may have."""


class Store(Protocol):
    """Where durable state lives. All calls raise `Unavailable` (try again) or `Broken` (stop) for the database's own faults."""

    # ── life ──
    async def open(self) -> None:
        """Ask for the keys, connect, check the schema. Raises `SchemaOutdated`, `KeysNotGiven`, `KeyMissing`, `KeyWrong`."""

    async def close(self) -> None:
        """Finish what was accepted and disconnect."""

    @property
    def incarnation(self) -> str:
        """Names this start of this process; what its worker holds dies with it. Known once open."""

    def watch(self, listener: Listener) -> Callable[[], None]:
        """Hear of changes, by this process at once, by others through the wake-up; returns the way to stop."""

    async def now(self) -> int:
        """The time the store goes by."""

    async def probe(self) -> None:
        """Raise what keeps the store from writing, as far as can be known without a write: for whoever asks often (S42)."""

    # ── admission ──
    async def admit(self, admission: Admission) -> Receipt:
        """Accept one input. Raises `Conflict`, `NotFound`, `SessionEnded`, `TooLarge`."""

    async def answer(self, answer: PromptAnswer) -> AnswerReceipt:
        """Accept an answer to a prompt; settles it at once when the policy is data. Raises `NotFound`, `Conflict`."""

    async def end(
        self, run_id: str, *, reason: str, events: Sequence[EventDraft], extra: Sequence[Extra] = (), seen: SeenOpen | None = None
    ) -> bool:
        """End a run by SQL alone, whoever owns it; False when it had ended already. Its claim is lost.

        With `seen` it raises `RunChanged` where something else is open by now than what `events` were worded for.
        """

    async def begin(self, admission: Admission, request: ClaimRequest) -> tuple[Receipt, Claim | None]:
        """Accept an input as `admit` does, and take the run that it makes or wakes (S43)."""

    # ── reading ──
    async def run(self, run_id: str) -> Run:
        """One run. Raises `NotFound`."""

    async def run_at(self, channel: str, address: str) -> Run | None:
        """The open run that owns an address."""

    async def submission(self, submission_id: str) -> Submission:
        """Where an input stands. Raises `NotFound`."""

    async def prompt(self, prompt_id: str) -> Prompt:
        """One prompt. Raises `NotFound`."""

    async def open_prompts(self, run_id: str) -> list[Prompt]:
        """A run's open prompts, oldest first."""

    async def steps(self, run_id: str, *, start: int = 0) -> list[Step]:
        """Finished steps from `start` on, in order."""

    async def records(self, run_id: str, step_n: int) -> list[Record]:
        """What a step recorded on its way."""

    async def events(self, run_id: str, *, start: int = 0, limit: int = 500, hidden: bool = False) -> list[Event]:
        """Visible events from index `start` (negative: from the tail); with `hidden`, all from position `start`."""

    async def content(self, run_id: str, rows: Sequence[str]) -> dict[str, bytes]:
        """Bodies that references name (`command:5`, `step:2`, `record:2:reply`, `prompt:prm_…`); missing ones are left out.

        `giver:sub_…` is who gave an answer that a worker decides or has decided, and from where.
        """

    async def rows(self, sql: str, parameters: dict[str, str | int | bytes | None]) -> list[tuple[str | int | bytes | None, ...]]:
        """Read with a statement of a layer above; named parameters, portable SQL."""

    # ── working ──
    async def enrol(self, incarnation: Incarnation) -> None:
        """Say that a worker has started, and what it can read."""

    async def withdraw(self, owner: str) -> None:
        """Say that a worker has stopped; whatever it still holds is released, not charged."""

    async def reap(self, owner: str) -> int:
        """Take back what a dead incarnation holds, and all leases that are over; the number of runs."""

    async def due(self, owner: str, abilities: Abilities = SESSIONS) -> DueWork:
        """What is due next that this worker is able to take, who holds something, and who of those has died."""

    async def claim(self, request: ClaimRequest) -> list[Claim]:
        """Take due runs."""

    async def renew(self, owner: str, leases: Sequence[tuple[str, int]], *, lease_ms: int) -> dict[str, Signals]:
        """Prolong leases (run id, epoch); runs that are missing in the answer are lost."""

    def prolong(self, owner: str, held: Holdings, *, lease_ms: int, lane_lease_ms: int, patience: float) -> None:
        """Prolong all that a worker holds, and say that it lives; called from a thread, while the loop doesn't answer (S41).

        It gives up after about `patience` seconds, with `Unavailable`.
        """

    async def release(self, run_id: str, epoch: int, *, timer_at: int | None, seen: int, unused: bool) -> None:
        """Give a run back without a step; `unused` takes the attempt back too."""

    async def charge(
        self, run_id: str, epoch: int, *, error: str, retry_at: int, seen: int, events: Sequence[EventDraft] = ()
    ) -> None:
        """Give a run back after a failed attempt that counts; it is due at `retry_at`, or when input comes."""

    async def record(
        self,
        run_id: str,
        epoch: int,
        *,
        step_n: int,
        key: str,
        kind: RecordKind,
        input_hash: str,
        body: bytes,
        events: Sequence[EventDraft] = (),
    ) -> Signals:
        """Keep what the pending step has so far, and append events with it."""

    async def append(self, run_id: str, epoch: int, events: Sequence[EventDraft]) -> Signals:
        """Append events of the attempt that runs."""

    async def commit(self, commit: StepCommit) -> Committed:
        """Finish a step. Raises `LeaseLost`, `AddressTaken`; `PromptTaken`, `Redacted`: load and decide anew."""

    async def strand(self, run_id: str, epoch: int, *, reason: str, code: str) -> None:
        """Give a run back that this code can't go on with. Raises `LeaseLost`."""

    async def unstrand(self, run_id: str) -> bool:
        """Offer a stranded run to all code again; False when it wasn't stranded."""

    async def refresh(self, run_id: str, epoch: int) -> Claim:
        """Read a held claim again: new commands, settled prompts, records. Raises `LeaseLost`."""

    # ── claimed keys ──
    async def claim_key(self, request: KeyRequest) -> ClaimedKey:
        """Claim a key, or say how it stands; again with one claim id it is the same claim. Raises `LeaseLost`."""

    async def finish_key(self, request: KeyRequest, value: bytes) -> ClaimedKey:
        """Say that what a key stands for is done, whoever claimed it; the first value stays. Raises `LeaseLost`."""

    async def release_key(self, request: KeyRequest) -> None:
        """Let a key be claimed anew, if the claim that the request names stands and isn't done. Raises `LeaseLost`."""

    async def settle_key(self, settlement: KeySettlement) -> KeySettled:
        """Say from outside what became of a pending claim (S50). Raises `NotFound`; `ContentGone`: no value can be kept."""

    # ── the vault ──
    async def vault(self, name: str) -> VaultEntry | None:
        """One entry, opened; None where there is none or it has expired. Raises `CannotOpen`, `KeyMissing`."""

    async def vault_write(self, writes: Sequence[VaultWrite]) -> tuple[int, ...] | None:
        """Write entries of different names, all or none: their new versions, 0 for a deletion; None when nothing is written."""

    async def vault_hold(self, name: str, holder: str, *, ms: int) -> VaultEntry | None:
        """Take the lease where it is free, over, or the caller's; the entry says who has it now, None that there is no entry."""

    async def vault_release(self, name: str, holder: str) -> None:
        """Give a lease back; nothing where it is another's."""

    async def vault_due(self, kind: str, *, limit: int) -> list[VaultEntry]:
        """Entries whose time has come, the longest due first; none that is held, and none that doesn't open."""

    async def vault_list(
        self, *, kind: str | None = None, owner: str | None = None, after: str = "", limit: int
    ) -> list[VaultListing]:
        """Entries by name, above `after`; nothing is opened."""

    # ── keeping ──
    async def purge(self, *, limit: int) -> list[str]:
        """Delete the content of ended runs that has been kept long enough; their ids. Expired entries of the vault go too."""

    async def forget(self, run_id: str) -> bool:
        """Delete the content of an ended run now; False when it is gone already or the run is open. Raises `NotFound`."""

    async def redact(self, run_id: str, bodies: Mapping[str, bytes], *, events: Sequence[EventDraft] = ()) -> int:
        """Replace bodies by name (`stores.cells.named` says which there are) and append `events`, whoever owns the run.

        Names that name no row are left out; the number that changed. Raises `NotFound`, `ContentGone`.
        """

    async def rewrap(self, *, after: str, limit: int) -> tuple[str | None, int]:
        """Wrap the keys of the next `limit` runs by the current key: where to go on (None at the end), how many changed.

        After the runs come the entries of the vault. What the ring can't open is left as it is.
        """

    async def audit(
        self, *, after: int = 0, limit: int = 500, run_id: str | None = None, prompt_id: str | None = None
    ) -> list[AuditEntry]:
        """Audit entries with numbers above `after`, in order."""

    # ── interactions ──
    async def take_interactions(self, owner: str, *, limit: int, lease_ms: int) -> list[Interaction]:
        """Take answers that wait for a policy, without the run's lease."""

    async def decide(self, verdict: Verdict) -> AnswerReceipt:
        """Settle or refuse an interaction. Raises `LeaseLost` when another worker has it."""

    async def postpone(self, interaction: Interaction, *, until: int) -> None:
        """Give an interaction back undecided, to be taken again from then on. Raises `LeaseLost` as `decide` does."""

    async def interaction_result(self, submission_id: str) -> AnswerReceipt | None:
        """What became of an answer; None while it is pending. Raises `NotFound`."""

    # ── outbox ──
    async def claim_lanes(
        self, owner: str, *, limit: int, lease_ms: int, items: int = 10, channels: Sequence[str] | None = None
    ) -> list[Lane]:
        """Take lanes with something due; only those of `channels`, None for all."""

    async def finish(self, lane: Lane, owner: str, result: Sent | Postponed | Buried) -> None:
        """Say how the head of a lane went. Raises `LeaseLost`."""

    async def release_lane(self, lane: Lane, owner: str) -> None:
        """Give a lane back in the middle of a send: its head counts as tried, since it may have been sent."""

    async def replay(self, delivery_id: str) -> bool:
        """Owe a dead letter again, behind what its lane owes by now; False when it is none."""
