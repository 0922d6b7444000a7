"""The store: where schedules, occurrences and runs live.

A store keeps what it is given and decides nothing. Its verbs are plain functions: any thread may call any of them, and
each is one transaction. Code on an event loop calls them through an executor. Every write is conditional and tells for
each row whether it took effect; a lost race is an ordinary answer, never an exception. Batches are the rule: a call may
carry thousands of rows, each independent of the others.

A *projection* is an occurrence of the trigger that never started. A row can be *claimed* from its time on: a pending
one from its due time (never while it waits for something, or a pause holds it), a leased one from the end of its lease,
at exactly that instant.

The *slot* of a schedule is held by at most one of its occurrences, from its start to its end, retries included. A place
under a *concurrency key* (a name within a tenant) is held while it is being delivered. Whoever waits for one stands in
line, and what becomes free is handed to the first in line in the same transaction. So nothing is free while somebody
who may run waits for it, nobody overtakes the line, and no wake-up can be lost. Facts that come with a decision are
kept as the occurrence's detail, in JSON.

A schedule that depends on others has *news* when anything about one of those, which are of its tenant, may have changed
what is decided: an occurrence of it ended, or was withdrawn because nothing is to come, or it was created, edited,
paused, resumed, deleted, or found to have nothing to come. News are counted in the transaction that brings them, and
whatever waits for them is given a time, now. What is kept as the moment of an end is later than that of the end before,
and than the watermark of every schedule without a trigger that depends on it, even where the clock stands still. With
the newest, such a schedule is told what it leads to: `core.causation.chain_after` of the occurrence that ended.

`core.system_events` lists what Noonmark emits events for: an occurrence ended, but was not superseded; an attempt
failed and another follows; a first start is late; a schedule was created, changed or completed. Each verb emits these
events in that order, in its own transaction, where a schedule of the tenant listens for their type when it ends. None
is lost and none comes twice.

An event is *matched* when all the schedules that may want it have been asked; until then it is in the way of the
tenant's later ones, so that whatever they set off is added in the order in which they were emitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from noonmark.ports.audit_log import AuditLog
from noonmark.ports.clock_repair import ClockRepair
from noonmark.ports.inspection import Inspection
from noonmark.ports.reads import Reads
from noonmark.ports.secret_store import SecretStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.admission import Admission, Busy, Claim
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan, Snapshot
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.reactions import Reaction, UnmatchedEvent
    from noonmark.core.settlement import Interim, Settlement
    from noonmark.ports.records import (
        Admitted,
        Graph,
        Heartbeat,
        Leadership,
        Lease,
        LeaseLost,
        NodeRecord,
        Renewal,
        Shares,
        StoreTraits,
    )


class Store(Reads, AuditLog, SecretStore, Inspection, ClockRepair, Protocol):
    """Every `now` is the store's own time, as `clock` tells it; verbs without one read that clock themselves."""

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""

    def open(self) -> None:
        """Make ready; creates or checks the schema. A schema newer than the code is refused."""

    def close(self) -> None:
        """Let go of everything; a second call does nothing."""

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring, from any thread, as soon as another process has written; returns what ends that.

        A store that cannot tell never rings, and one that can may miss something: see `watch_interval`.
        """

    def clock(self) -> Micros:
        """The store's time, by which leases are judged."""

    def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Keep new schedules, each with its first plan, or not at all.

        False where the tenant has a schedule of that id that is not deleted, also when it came earlier in this call, or
        where the plan's `graph` is no longer the version of the tenant's. The note of a plan that is kept is kept too.
        """

    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        """What these schedules depend on, directly and through others, in one consistent read.

        The version rises with every change of what the schedules of the tenant depend on.
        """

    def snapshot(self, uid: str) -> Snapshot | None:
        """What an edit needs to know of a schedule, deleted or not, in one consistent read.

        `beyond` has the trigger's rows that are neither projections nor superseded and whose last time, the nominal one
        or that of a gap's last fire, lies after the watermark. `exhausted` is what the last plan said. It is `unserved`
        when a beat came after now - patience, but none that named its route; patience is that of
        `core.policies.delivery` with its misfire grace, and now the store's. Without a trigger it has its upstreams,
        but not their newest rows.
        """

    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        """Active schedules whose time to plan has come, earliest first, then by uid. Changes nothing."""

    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Write each plan whose snapshot still has the stored revision, watermark and phase; False for the others.

        A plan that changes the schedule needs all of it as the snapshot has it, also what keeps the revision: labels.
        Where the schedule has `max_runs`, as the plan leaves it, the snapshot must have the stored count of runs too;
        where it has no trigger, there must be no news since; with a `graph`, that must be the version of the tenant's.
        False also when a projection of the snapshot that the plan closes or removes has started or begun to wait since:
        it would be counted twice.

        Planned rows are inserted; of a known id, they replace a projection or reopen a superseded row, and leave any
        other as it is; one of the snapshot that is gone has ended and was pruned, and stays away. One that waits keeps
        its place in the line, or its turn. Closed rows likewise, and they are
        final. Removed projections vanish; superseded and cancelled ones end as superseded/edited and cancelled/deleted.
        Every row touched has its fence raised, and an id that comes back after it was removed has a higher fence than
        it ever had. A projection that was sent back to be planned, and that the plan does not touch, can be claimed
        again at its due time. Tallies count what ended. An active schedule with nothing live and nothing to come is
        completed. The note of a plan that is written is kept too. With `rewound`, gaps vanish or are shortened first,
        and tallies count them no more.

        A change of the schedule also changes the rows that the plan does not name. When it is paused, pending rows of
        trigger and event origin cannot be claimed, and claimed ones go back, with their fence raised. When it is active
        again they can be, the first in line gets what is free, and failures in a row count from zero. When it is
        deleted, what is pending or claimed ends as cancelled/deleted. With another route, its live rows have that one.
        With another overlap policy or concurrency key, whatever waits gets a time, now, to be decided again; with
        another revision, whatever waits for its upstreams.
        """

    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        """Read a schedule, decide and write the plan in one transaction, in which nobody else changes that schedule.

        The schedule is locked before it is read, so the plan is never too late, however often others write: this call
        waits for its turn and then goes through. Callers change schedules by it; planning, of which there is always a
        next time, uses `commit_plans`.

        `decide` is given the snapshot and the store's time. It is pure: it calls no verb of the store, since it runs
        while the schedule is locked, and it may be called again where the transaction has to be repeated; the last call
        counts. None leaves the schedule as it is. What it raises is raised here, with nothing written.

        The plan is written as by `commit_plans`. False when nothing was: the schedule is unknown, `decide` gave None,
        or the plan's `graph` is no longer the version of the tenant's.
        """

    def add(self, occurrences: Sequence[Occurrence]) -> list[bool]:
        """Keep occurrences that the trigger did not name, pending ones and ended ones.

        False where the id is known, or the schedule is unknown or deleted.
        """

    def emit(self, tenant: str, events: Sequence[Event]) -> list[bool]:
        """Keep events, each of which has an id; False where the tenant has one of that id, also earlier in this call.

        The moment that is kept is the store's own: now, or just after that of the tenant's event before, so that no two
        are alike and their order is that in which they were emitted.
        """

    def unmatched(self, limit: int) -> list[UnmatchedEvent]:
        """Events that were not matched yet, each with schedules that may want it. Changes nothing.

        Those of a tenant in the order in which they were emitted; the tenant that was matched up to the earliest moment
        comes first. At most `limit` events, and `limit` schedules in all: an event for which there is not enough room
        ends the list, with the page of its schedules that fits. They are those of its tenant that are not deleted,
        whose trigger names its type, and whose discriminator, if there is one, is among those of the event; in an order
        of the store's own, from the cursor on. Others cost nothing, and are not counted. One whose record cannot be
        read is left out; an event that cannot be read has a problem, and nobody.
        """

    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        """Write what becomes of events, each with the page that was decided; False for what came too late.

        In the order given, each seeing the ones before it. The event must be the tenant's first that is not matched,
        with its cursor where it was read, and every schedule that is to have an occurrence must have the revision and
        the phase with which it was read; otherwise nothing of that reaction is written.

        Occurrences are added, pending ones and ended ones; one whose id is known stays as it is. The event goes on to
        its next page, or is matched, and the tenant's next event is the first.
        """

    def claim(  # noqa: PLR0913 - each says which rows
        self,
        node: str,
        routes: Collection[str],
        *,
        now: Micros,
        until: Micros,
        limit: int,
        lease: Micros,
        only: str | None = None,
        shares: Shares | None = None,
    ) -> list[Claim]:
        """Lease rows with one of the routes: pending ones whose time comes by `until`, leased ones free by `now`.

        With `only`, no other row than the one of that id.

        Earliest time first, then by nominal time. With `shares`, one of every owner before a second of any, and of each
        owner and route the earliest, though perhaps fewer than it has. The cost follows the owners who have something
        due, not how much that is; if they are too many to look at all of them, the last in their order are left out.

        Phase becomes claimed, the fence rises by one, the lease ends at now + lease, or at the store's own time + lease
        if that is later, since the call may have waited for its turn; the node is its node. A row found in dispatching
        has lost one more lease, and its attempt is taken back; it keeps the places it holds, its stop and its deadline,
        and the delivery that was lost is kept as the run `core.settlement.lost_run` makes of the row as it was, in the
        place of the open one, if there is one.
        """

    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds: same fence, phase claimed, its revision still the schedule's.

        In the order given, each seeing the ones before it. A start that this claim has made already is told again:
        whoever asks twice did not hear the answer.

        Start: takes the places it needs, looked at in the order `max_runs`, slot, concurrency key; Busy names the first
        that is not free, and nothing is written. A place it holds already it need not take. Phase dispatching, one
        more attempt, the revision it starts under, started now, the lease renewed. What trigger or events asked for
        counts as admitted when it first begins; when that uses up the `max_runs` it came with, its schedule is
        plannable at once.

        End: final, with its reason; one that is misfired is a gap of one fire. Then as after a settlement.

        Wait: pending without a time, in line by due time, nominal time and id; a place under a concurrency key is given
        back, the slot is kept. If what it waits for is free by now and nobody stands before it, it has its turn at
        once. With `replaces`, of those in line for the slot that trigger or events asked for and that never began, only
        the newest stays, perhaps not this one; the others end as skipped/replaced. With `cancel_grace`, the slot's
        holder, dispatching or awaiting completion, has replaced for its stop and now + cancel_grace for its deadline,
        unless it has an earlier one; a holder in another phase ends as cancelled/replaced, with its fence raised.

        For its upstreams it waits in no line, and has a time: `until`, if that is given, or now, if there are more news
        than it has `seen`. News give it a time, now: those of an upstream itself, and those of an occurrence of the
        upstream's trigger that stands for a time after `after` and up to its own, or without `after` of any occurrence.

        Replan: pending, its schedule plannable at once; it has no time until that schedule has been planned.
        """

    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        """The upstreams of each claim's schedule, in its order, in one consistent read. Changes nothing.

        Each has its newest row of trigger origin, but for superseded ones, that stands for a time in question
        (`core.admission.times_in_question`): the one with the latest such time, then the latest nominal time.
        """

    def renew(self, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
        """Extend the leases that are still held with this fence, even when they have run out unnoticed.

        They end as after a claim.
        """

    def release(self, holds: Sequence[Lease]) -> None:
        """Give claimed rows back as they were before the claim, but for the fence and the losses.

        What is no longer held, or has started, is left alone.
        """

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds, with their runs; False for the others, nothing written.

        Dispatching or awaiting completion it must be; what awaits completion is not accepted a second time. A run takes
        the place of the run with its id, if there is one, as `core.run.in_place_of` says.

        What was accepted awaits completion until its deadline, or an earlier one that it has already; it keeps its
        places, its node and its start, but has no lease: nobody can claim, renew or release it.

        A retry is pending at its time and keeps its slot, but not its place under a concurrency key; when its schedule
        is deleted it ends as cancelled/deleted instead. An end gives up both. The first in line for what became free
        is handed it in the same transaction, with a time, now; it keeps `waiting_for` until it starts, so that it
        cannot misfire. Whatever waits for it as its upstream is given a time likewise. A schedule without a trigger
        that depends on it is plannable at once; if it was completed, and has runs left, it is active again.

        Tallies count. An active schedule with nothing live and nothing to come is completed; otherwise `pause_after`
        failures in a row pause it, as `core.edits.pause` would.
        """

    def progress(self, interims: Sequence[Interim]) -> list[bool]:
        """Keep what deliveries that go on have put out so far: their runs, still open, in the place of the last such.

        Of those that are dispatching and whose fence still holds; False for the others, and for what somebody else is
        changing at this moment, nothing written. Nobody is told of it.
        """

    def request_stop(self, occurrence_id: str) -> bool:
        """Ask whoever delivers it to stop, as cancelled; False when it is not dispatching.

        The request outlives a lost lease, not a retry.
        """

    def cancel(self, occurrence_id: str) -> bool:
        """End a pending or claimed row as cancelled/cancelled, with its fence raised; False when there is none.

        Then as after a settlement.
        """

    def routes(self, source: str) -> list[str]:
        """The routes of the schedules from that source that are not deleted, each once, in order."""

    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        """Remember that a node is alive now, what it says of itself, and that it serves these routes now.

        One that has left is back. What is not listed any more may be forgotten.
        """

    def leave(self, node: str) -> None:
        """Remember that a node has stopped now; if it leads, nobody does from now on. An unknown one changes nothing.

        It has served its routes until its last beat, as if it had been lost.
        """

    def nodes(self) -> list[NodeRecord]:
        """The nodes that were heard of within the last day, also those that have left, by name.

        One that was last heard of within 30 days is among them until it was told to be lost, unless it has left.
        One is alive until it leaves, or until `seen` plus twice its lease; it leads while the lease of the leader is
        its own and has not ended. One whose record cannot be read is left out.
        """

    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        """Remember that a node was told to be lost, and emit the event for every tenant that listens for its type.

        Both or neither. False where the node was not last heard of at `seen`, has left, or was told to be lost before;
        a beat makes it one that can be lost again.
        """

    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        """Take the lease of the leader, or renew it, until now + lease; tells who leads then, perhaps somebody else.

        It can be taken when nobody has it, when it ended by `now`, at exactly its end too, and by whoever has it. The
        term stays when it is renewed before its end. Otherwise it rises by one, also when the last leader takes it
        again; it begins at 1, and never falls. No two nodes ever have the same term.
        """

    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        """Lease, as a claim does, rows that nobody could serve for as long as their schedule has patience.

        Patience is `core.policies.delivery.patience` with the schedule's misfire grace. Those that could be claimed
        before now - patience, pending ones and leased ones whose lease ended before then, and whose route no node has
        served since: no beat after now - patience named it. In the order of a claim.
        """

    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        """Deliveries, dispatching or awaiting completion, whose deadline has come by now, earliest first, then by id.

        Changes nothing.

        A row has one from the moment its target accepted the work, to say how it ended, or from the moment it was asked
        to give up the slot, to do so.
        """

    def changed_by_others(self) -> bool:
        """Whether another process may have written since this was last asked; costs next to nothing."""

    def next_time(self, routes: Collection[str]) -> Micros | None:
        """When anything can next be planned, is overdue, or can be claimed with one of the routes.

        The end of a lease counts too. While an event is not matched, it is now at the latest.
        """

    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget occurrences that ended before `before`, and of each schedule all ended ones but the newest `keep`.

        Newest by nominal time. Their runs go with them; live rows and tallies stay. At most `limit` in one call; says
        how many.
        """

    def prune_events(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget matched events from before `before`, and of each tenant all matched ones but the newest `keep`.

        Their ids are free again; what they set off stays. At most `limit` in one call; says how many.
        """
