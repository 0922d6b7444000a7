"""The store: where schedules, occurrences and runs live.

A store stores what it is given and decides nothing. Each verb is a plain function that any thread may call, and one
transaction. Every write is conditional and answers, row by row, whether it took effect; a lost race is an ordinary
answer, not an exception. Most verbs take batches: a call may carry thousands of rows, each independent of the others.

A *projection* is an occurrence of the trigger that never started. A row is *claimable* from its time on: a pending row
from its due time (never while it waits for something, or a pause holds it), a leased row from the end of its lease, at
exactly that instant.

The *slot* of a schedule has at most one holder, from the occurrence's start to its end, retries included. A place under
a *concurrency key* (a name within a tenant) is held during delivery only. Occurrences that need one wait in line, and
what becomes free is handed to the first in line in the same transaction. So nothing is free while an occurrence that
may run waits for it, nothing overtakes the line, and no wake-up is lost. The facts of a decision are stored as the
occurrence's detail, in JSON.

A schedule that depends on others has *news* when something about one of these upstreams, which belong to the same
tenant, may change a decision: an occurrence ended, or was withdrawn because no more fires will come, or the upstream
was created, edited, paused, resumed, deleted, or found to have nothing to come. News are counted in the transaction
that causes them, and rows that wait for them become claimable now. The end of an occurrence gets a moment of its own:
later than the end before it, and later than the watermark of every schedule without a trigger that depends on it, even
if the clock stands still. With the newest one, such a schedule learns the chain so far: `core.causation.chain_after` of
the occurrence that ended.

`core.system_events` lists what Noonmark emits events for: an occurrence ended, but was not superseded; an attempt
failed and another follows; a first start is late; a schedule was created, changed or completed. Each verb emits these
events in that order, in its own transaction, where a schedule of the tenant listens for their type when it ends. None
is lost and none comes twice.

An event is *matched* when every schedule that may want it has been asked. Until then it blocks the later events of its
tenant, so that occurrences are added in the order in which their events were emitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from noonmark.ports.budgets import BudgetStore
from noonmark.ports.bundles import BundleStore
from noonmark.ports.page_sessions import PageSessionStore
from noonmark.ports.proposals import ProposalStore
from noonmark.ports.sessions import SessionStore
from noonmark.ports.workflows import WorkflowStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from noonmark.core.admission import Admission, Busy, Claim
    from noonmark.core.api_key import ApiKey
    from noonmark.core.causation import Reaction, UnmatchedEvent
    from noonmark.core.event import Event
    from noonmark.core.halt import Halt
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase, SchedulePhase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.outcomes import Mark
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.quotas import Quota
    from noonmark.core.rate_limit import RateLimit, Taken
    from noonmark.core.run import Run
    from noonmark.core.schedule import AuditEntry, Pause, Schedule
    from noonmark.core.secret import Secret
    from noonmark.core.settlement import Interim, Settlement
    from noonmark.ports.changes import StoredChange
    from noonmark.ports.records import (
        Activity,
        Admitted,
        BackfillChange,
        BackfillProgress,
        Backlog,
        Condition,
        FoundOccurrences,
        Graph,
        Heartbeat,
        Horizons,
        Inspected,
        KeyRecord,
        Leadership,
        Lease,
        LeaseLost,
        MarkCount,
        MarkScope,
        NodeRecord,
        OccurrenceFilter,
        PageKey,
        Position,
        Renewal,
        ScheduleFilter,
        Shares,
        Span,
        StoredSchedule,
        StoreTraits,
        TrendPoint,
        Workload,
    )


class Reads(Protocol):
    """What callers read, in pages. A reader that continues after the last row of a page misses no row that was there.

    Nothing here changes anything.
    """

    def find(self, tenant: str, schedule_id: str, *, deleted: bool = False) -> StoredSchedule | None:
        """The schedule with that id that is not deleted; with `deleted`, failing that, the one deleted last."""

    def find_uid(self, uid: str) -> StoredSchedule | None:
        """The schedule with that uid, deleted or not."""

    def find_uids(self, uids: Collection[str]) -> dict[str, StoredSchedule]:
        """The schedules with these uids, deleted or not, by uid. Unknown and unreadable ones are left out."""

    def find_named(self, tenant: str, user: str, name: str) -> StoredSchedule | None:
        """The owner's oldest schedule with that name that is not deleted."""

    def schedules(
        self,
        tenant: str,
        *,
        after: str | None = None,
        limit: int,
        deleted: bool = False,
        wanted: ScheduleFilter | None = None,
        newest_first: bool = False,
    ) -> list[StoredSchedule]:
        """The tenant's schedules that are not deleted, by creation time, then by id.

        `deleted` lists the deleted ones instead, `wanted` filters, `newest_first` reverses the order. `after` is the
        uid of any schedule of the tenant, matching or not: the list continues after it, even if it is deleted by now.
        An unknown uid gives an empty list. A schedule whose record is unreadable is left out. A page with fewer than
        `limit` schedules is the last.
        """

    def count_schedules(self, tenant: str, wanted: ScheduleFilter | None = None, *, deleted: bool = False) -> int:
        """The number of schedules on all pages, including those whose record is unreadable."""

    def count_phases(self, tenant: str, user: str | None = None) -> dict[SchedulePhase, int]:
        """How many schedules of a tenant, or of one of its users, are in each phase; deleted ones are not counted."""

    def tenants(self, limit: int) -> list[str]:
        """The tenants that have schedules which are not deleted, in order; up to the limit."""

    def count_waiting(self, tenant: str, user: str | None = None) -> int:
        """How many occurrences of the schedules of a tenant, or of one of its users, are to start and have not.

        They are due, or did not come from the trigger and were not tried yet.
        """

    def count_places(self, tenant: str, key: str) -> int:
        """How many occurrences of a tenant hold a place under a concurrency key: they run, or are about to start."""

    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        """One occurrence."""

    def occurrences(
        self, uid: str, limit: int | None = None, *, before: PageKey | None = None, phases: Collection[Phase] = ()
    ) -> list[Occurrence]:
        """A schedule's occurrences, newest nominal time first, then highest id first.

        `before`, a nominal time and an id, continues after that position, whether or not such an occurrence exists.
        `phases` filters.
        """

    def search(
        self, tenant: str, wanted: OccurrenceFilter, limit: int, *, before: PageKey | None = None
    ) -> FoundOccurrences:
        """The occurrences of all schedules of a tenant, deleted ones included, latest time first, then highest id.

        `before`, a time and an id, continues after that position. One call reads a bounded part of the history, so it
        may find fewer than `limit`, or none, and still say where to go on. Failures have an index of their own.
        """

    def marks(self, scope: MarkScope, span: Span, limit: int) -> list[Mark]:
        """The occurrences of a stretch of time as marks, by time, then by id; the first ones, up to the limit.

        Superseded ones have none.
        """

    def count_marks(self, scope: MarkScope, span: Span, width: Micros) -> list[MarkCount]:
        """The numbers of marks in buckets of a width, by their state and by whether they started late.

        Where schedules are named, each of them has its own numbers. In no particular order.
        """

    def last_marks(self, uids: Sequence[str], limit: int, *, now: Micros) -> dict[str, list[Mark]]:
        """The last marks of each schedule that were due by now, in order, by uid; up to a limit for each."""

    def trend(self, uid: str, edges: Sequence[Micros], *, now: Micros) -> list[TrendPoint]:
        """What a schedule did in each of the stretches of time between edges, which are in order."""

    def lateness(self, scope: MarkScope, span: Span, percent: int) -> Micros | None:
        """The percentile of how long after their due times the marks of a span started; None if none has started."""

    def horizons(self, scope: MarkScope, *, until: Micros, limit: int) -> Horizons:
        """How far the fires of schedules are stored that may have more of them before an instant.

        Those that are planned again first come first. One call reads a bounded number of schedules, also those of other
        tenants, and says up to when the others have no more fires.
        """

    def known(self, occurrence_ids: Collection[str]) -> set[str]:
        """Those of the ids that occurrences have."""

    def occurrences_at(self, uid: str, time: Micros, limit: int) -> list[Occurrence]:
        """A schedule's occurrences that stand for a time: with that nominal time, or a gap that covers it.

        A gap covers the times after its nominal time up to that of its last fire. At most `limit` of each kind: of
        those with that nominal time, first the one of the trigger and then the latest due; of gaps, those that end
        first. In no particular order.
        """

    def runs(self, uid: str, limit: int | None = None, *, before: PageKey | None = None) -> list[Run]:
        """A schedule's runs, newest start first, then highest id first.

        A delivery in progress is a run without an end: its last reported progress, or else what
        `core.settlement.open_run` makes of its row. `before`, a start and an id, continues after that position.
        """

    def occurrence_runs(self, occurrence_id: str) -> list[Run]:
        """The runs of one occurrence, in the same order; none if it is unknown."""

    def last_runs(self, occurrence_ids: Sequence[str]) -> dict[str, Run]:
        """The last run of each occurrence that has ended or was accepted, by occurrence id.

        Without results, which may be large, so that a whole page can be read.
        """

    def run(self, run_id: str) -> tuple[str, Run] | None:
        """The uid of the run's schedule, and the run, in progress or not."""

    def activities(self, uids: Sequence[str]) -> list[Activity]:
        """What each schedule, deleted or not, does at present, in one consistent read."""

    def events(
        self, tenant: str, limit: int, *, before: Micros | None = None, event_type: str | None = None
    ) -> list[Event]:
        """The tenant's events, matched or not, newest first. An unreadable payload becomes None.

        `before` lists those emitted before that moment; `event_type` filters.
        """

    def event(self, tenant: str, event_id: str) -> Event | None:
        """The tenant's event with that id, until it is pruned. An unreadable payload becomes None."""

    def backlog(self, now: Micros, limit: int) -> Backlog:
        """How much is due and unclaimed, and how much waits, over all tenants and routes, each counted up to a limit.

        Due means that a claim could take it now, on any route; rows held by a pause are not due. A waiting row may have
        a later time at which it is decided again. The cost follows what is counted, not what is stored.
        """

    def workload(self, *, now: Micros, limit: int, tenant: str | None = None) -> Workload:
        """The occurrences of a tenant, or of all, that run, are due, wait, come next or are overdue.

        At most `limit` of each kind, and how many there are. One call reads a bounded number of rows, also those of
        other tenants, so a kind may be incomplete, and says so. What a pause holds and what a node has claimed but not
        started is left out; a claim whose lease ended is due. Damaged rows are left out, too. Changes nothing.
        """


class AuditLog(Protocol):
    """What callers changed, and the idempotency keys they used. Entries keep their order; a plan carries its own."""

    def add_audit_entries(self, tenant: str, entries: Sequence[AuditEntry]) -> None:
        """Store entries that belong to no plan."""

    def audit_entries(
        self,
        tenant: str,
        limit: int,
        *,
        before: int | None = None,
        schedule_id: str | None = None,
        changes: bool = False,
    ) -> list[AuditEntry]:
        """The tenant's entries with their numbers, newest first.

        `before` lists those with a lower number; `schedule_id` those about any schedule that has had that id; `changes`
        those that changed a schedule.
        """

    def prune_audit_entries(self, *, before: Micros, limit: int) -> int:
        """Delete up to `limit` entries from before `before`; returns how many."""

    def claim_key(self, tenant: str, key: str, fingerprint: str, *, now: Micros, lifetime: Micros) -> KeyRecord:
        """Store an idempotency key with the fingerprint of its request; returns what is stored.

        That is this request if the key was not used since now - lifetime; otherwise it is the earlier one, unchanged.
        """

    def prune_keys(self, *, before: Micros, limit: int) -> int:
        """Delete up to `limit` keys first used before `before`; returns how many."""


class SecretStore(Protocol):
    """Secrets by tenant and name: their hosts and their sealed values. The store cannot read a value."""

    def put_secret(self, tenant: str, secret: Secret, *, most: int, note: AuditEntry | None = None) -> Secret | None:
        """Store a secret and an audit entry; returns it as stored.

        It replaces the secret with that name but keeps its creation time. None, with nothing stored, if the name is new
        and the tenant already has `most` secrets.
        """

    def secrets(self, tenant: str) -> list[Secret]:
        """The tenant's secrets, by name."""

    def find_secrets(self, tenant: str, names: Collection[str]) -> list[Secret]:
        """The tenant's secrets with one of the names, by name."""

    def forget_secret(self, tenant: str, name: str, *, note: AuditEntry | None = None) -> Secret | None:
        """Delete a secret and store an audit entry; returns the deleted secret, or None if the name is unknown."""

    def own_key(self) -> bytes:
        """The store's own key: 32 random bytes, drawn on first use and the same ever after, in every process.

        It is not among any tenant's secrets.
        """


class ApiKeyStore(Protocol):
    """API keys by their ids, of all tenants. The store has their digests, and keeps revoked ones."""

    def has_api_keys(self) -> bool:
        """Whether there has ever been a key."""

    def keep_api_key(self, key: ApiKey, *, most: int, note: AuditEntry | None = None) -> bool:
        """Store a new key, and an audit entry of the tenant that it acts for.

        False, with nothing stored, if its id is taken, or its tenant already has `most` keys without a revocation.
        """

    def find_api_key(self, key_id: str) -> ApiKey | None:
        """The key with that id. A damaged one counts as unknown."""

    def api_keys(self, tenant: str | None, limit: int, *, after: tuple[Micros, str] | None = None) -> list[ApiKey]:
        """The keys of a tenant, or of all, by creation time, then by id; after a place, given by both of them."""

    def revoke_api_key(
        self, key_id: str, *, at: Micros, successor: ApiKey | None = None, note: AuditEntry | None = None
    ) -> ApiKey | None:
        """Revoke a key from an instant on, store the key that replaces it, and an audit entry; returns the old key.

        A key that is revoked from an earlier instant on stays so. None, with nothing stored, if the key is unknown, or
        if there is a successor and the key has a revocation already, or the successor's id is taken.
        """

    def use_api_keys(self, used: Mapping[str, Micros]) -> None:
        """Store when keys were last used, by id, unless a later time is stored."""


class HaltStore(Protocol):
    """Halts by tenant: the records that admission reads in the transaction of every start.

    When `set_halt` has returned, no start of what it covers is committed any more, on any node, until it is lifted:
    admission answers `Busy` with the place `halt`. Only a workflow run that was asked to stop still starts, to end.
    """

    def set_halt(self, halt: Halt, *, most: int, note: AuditEntry | None = None) -> int | None:
        """Store a halt and an audit entry, and ask what it covers and runs to stop; returns how many that are.

        None, with nothing stored, if the tenant already has `most` halts, or the id is taken.
        """

    def lift_halt(self, tenant: str, halt_id: str, *, note: AuditEntry | None = None) -> Halt | None:
        """Delete a halt and store an audit entry; returns the halt, or None if there is none with that id."""

    def halts(self, tenant: str | None = None) -> list[Halt]:
        """The halts of a tenant, or of all, oldest first."""


class RateBuckets(Protocol):
    """Buckets of tokens, by name, which the nodes share."""

    def take_tokens(self, name: str, limit: RateLimit, wanted: int) -> Taken:
        """Take as many of the wanted tokens as a bucket has, by the store's time: see `core.rate_limit`."""


class Inspection(Protocol):
    """The condition of a store, row by row and as a whole. Read-only, except `set_aside`."""

    def set_aside(self, uid: str, problem: str) -> None:
        """Stop planning a schedule whose record is damaged, until it is edited."""

    def inspect(self, after: Position | None = None, *, limit: int) -> Inspected:
        """Check up to `limit` rows, table by table, from the beginning or after a position."""

    def condition(self) -> Condition:
        """The condition of the whole database. This may take a while."""

    def damage(self) -> Mapping[str, int]:
        """The number of damaged rows this process has found so far, by table. Reads nothing."""


class ClockRepair(Protocol):
    """What it takes to judge the store's time, and to undo what a wrong clock wrote."""

    def newest_time(self, before: Micros | None = None) -> Micros | None:
        """The newest time of an ended occurrence, a heartbeat, an audit entry or the end of a lease.

        With `before`, the newest before that time. None if nothing of that kind is stored. Cheap.
        """

    def due_since(self, routes: Collection[str]) -> Micros | None:
        """The time from which the first row with one of the routes is claimable; None if there is none."""

    def planned_ahead(self, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
        """Schedules that are not deleted with a watermark later than `until`, by uid, after the uid `after`.

        Their `beyond` begins at `now`, or at the watermark if that is earlier; `gaps` has those of these rows that have
        a last missed time. A schedule whose record is unreadable is left out. Changes nothing.
        """

    def repair(self, *, now: Micros, after: Micros, lease: Micros) -> int:
        """Set back every time later than `after` that a fast clock wrote; returns the number of rows.

        Leases of occurrences and of the leader end at now + lease, so that a live holder renews them. Heartbeats,
        served routes, ends of occurrences, audit entries and first uses of keys move to now.

        What waits for a false time becomes claimable now: a pending row that is claimable only after its due time; an
        occurrence that a caller asked for, or that is leased; a retry that is due later than any policy allows; and a
        schedule that is to be planned after its watermark.
        """


class Store(
    Reads,
    AuditLog,
    SecretStore,
    ApiKeyStore,
    BudgetStore,
    HaltStore,
    PageSessionStore,
    BundleStore,
    ProposalStore,
    WorkflowStore,
    SessionStore,
    RateBuckets,
    Inspection,
    ClockRepair,
    Protocol,
):
    """Every `now` is the store's time, as `clock` returns it; verbs without one read that clock themselves."""

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""

    def open(self) -> None:
        """Connect; create or check the schema. A schema newer than the code is refused."""

    def close(self) -> None:
        """Release everything. A second call does nothing."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from any thread, whenever another process has written; returns a function that ends this.

        A store without notifications never calls it, and one with them may miss a write: see `watch_interval`.
        """

    def clock(self) -> Micros:
        """The store's time, by which leases are judged."""

    def wants_timed_uids(self) -> bool:
        """Whether new schedules get timed uids (see `core.ids`).

        Not where nothing is stored in the order of ids, nor while a node may run that does not know them: it would
        compute other ids for the same occurrences, and store them a second time.
        """

    def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Create schedules, each with its first plan and its audit entry.

        False if the tenant has a schedule with that id that is not deleted (also one earlier in this call), or if the
        plan's `graph` is no longer the tenant's version. Then nothing of it is written.
        """

    def create_each(self, plans: Sequence[Plan]) -> list[bool | Exception]:
        """The same for plans of several callers, in as few transactions as possible.

        One that is refused has its error as the answer, and does not fail the others.
        """

    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        """What these schedules depend on, directly and transitively, in one consistent read.

        The version rises with every change of a dependency between schedules of the tenant.
        """

    def snapshot(self, uid: str) -> Snapshot | None:
        """What an edit needs to know of a schedule, deleted or not, in one consistent read.

        `beyond` has the trigger's rows that are neither projections nor superseded and whose last time (the nominal
        time, or that of a gap's last fire) is later than the watermark. `exhausted` is from the last plan. `unserved`
        means that heartbeats came after now - patience but none named its route; patience is that of
        `core.policies.delivery` with the schedule's misfire grace, and `lacks_node` the same for `MIN_PATIENCE`. A
        schedule without a trigger comes with its upstreams, but not with their newest rows.
        """

    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        """Active and paused schedules whose time to plan has come, earliest first, then by uid. Changes nothing."""

    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Write each plan whose snapshot still has the stored revision, watermark and phase; False for the others.

        Further conditions: a plan that changes the schedule needs it unchanged in full, also where the revision stays
        (labels). If the schedule has `max_runs` after the plan, the count of runs is unchanged. If it has no trigger,
        there are no news since. A plan with a `graph` needs that to be the tenant's version. And no projection that the
        plan closes or removes has started or begun to wait since: it would count twice.

        Planned rows are inserted. If the id exists, they replace a projection or reopen a superseded row, and leave any
        other row alone; a row of the snapshot that is gone has ended and was pruned, and does not come back. A waiting
        row keeps its place in line, or its turn. The same holds for closed rows, which are final. Removed projections
        are deleted; superseded and cancelled ones end as superseded/edited and cancelled/deleted. Every touched row has
        its fence raised, and an id that comes back after removal has a higher fence than ever before. A projection that
        was sent back for planning and that the plan does not touch is claimable again at its due time. Counters count
        what ended. An active schedule with nothing live and nothing to come is completed. The plan's audit entry is
        written with it. `rewound` first removes or shortens gaps, and takes them back from the counters.

        A change of the schedule also affects rows that the plan does not name. A pause makes pending rows of trigger
        and event origin unclaimable, and takes claimed ones back with a raised fence. A resume reverses that, hands
        what is free to the first in line, and restarts the count of consecutive failures. A delete ends pending and
        claimed rows as cancelled/deleted. A new route applies to all live rows. A new overlap policy or concurrency key
        makes waiting rows claimable now, to be decided again; a new revision does so for rows that wait for upstreams.
        """

    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        """Read a schedule, decide and write the plan in one transaction, with the schedule locked throughout.

        The lock comes before the read, so the plan is never too late, however often others write. Callers change
        schedules by this verb; planning, which always has a next time, uses `commit_plans`.

        `decide` gets the snapshot and the store's time. It is pure: it calls no verb of the store, and it may be called
        again if the transaction is repeated; the last call counts. None changes nothing. An exception is raised here,
        with nothing written.

        The plan is written as by `commit_plans`. False if nothing was: the schedule is unknown, `decide` returned None,
        or the plan's `graph` is no longer the tenant's version.
        """

    def add(self, occurrences: Sequence[Occurrence], *, limits: Sequence[Quota] = ()) -> list[bool]:
        """Add occurrences that do not come from the trigger, pending or ended.

        False if the id exists, or the schedule is unknown or deleted. QuotaExceeded, and nothing is added, if so many
        more may not wait by the limits of the owners of their schedules.
        """

    def emit(self, tenant: str, events: Sequence[Event], *, user: str = "", limits: Sequence[Quota] = ()) -> list[bool]:
        """Store events, each with an id; False if the tenant has one with that id, also earlier in this call.

        QuotaExceeded, and nothing is stored or counted, if those that are new do not fit the limits of the user or of
        the tenant, or if the queue of one of them is full. An event that is known counts nothing.

        The stored moment is the store's: now, or just after the tenant's last event, so that moments are unique and in
        the order of emission.
        """

    def unmatched(self, limit: int) -> list[UnmatchedEvent]:
        """Events that are not matched yet, each with schedules that may match it. Changes nothing.

        Events of a tenant come in the order of emission; the tenant that was matched up to the earliest moment comes
        first. At most `limit` events and `limit` schedules in all: an event with more ends the list with the page that
        fits. The schedules are those of the tenant that are not deleted, whose trigger names the type, and whose index
        entry (`core.filters.index`), if any, is among those of the event; in the store's own order, from the cursor on.
        Other schedules cost nothing. A schedule whose record is unreadable is left out; an unreadable event comes with
        a problem and without schedules.
        """

    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        """Write what events trigger, each with the page that was decided; False for what came too late.

        In the order given, each seeing the ones before it. The event must be the tenant's first unmatched one, with its
        cursor unchanged, and every schedule that gets an occurrence must have the same revision and phase as when read;
        otherwise nothing of that reaction is written.

        Occurrences are added, pending or ended; one whose id exists stays as it is. The event moves to its next page,
        or is matched, and the tenant's next event becomes the first.
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
        """Lease rows with one of the routes: pending ones due by `until`, leased ones whose lease ended by `now`.

        If `now` is ahead of the store's clock, that clock decides: a fast node must not take what others still hold.
        `only` limits the claim to the row with that id.

        Earliest time first, then by nominal time. With `shares`, one of every owner before a second of any; of each
        owner and route the earliest, though perhaps fewer than exist. The cost follows the number of owners with
        something due, not how much that is; of too many owners the last in their order are left out.

        The phase becomes claimed, the fence rises by one, and the lease ends at now + lease, or at the store's time +
        lease if that is later, since the call may have waited. A row found dispatching has lost one more lease, and its
        attempt is taken back; it keeps its places, its stop and its deadline, and its lost delivery is stored as the
        run that `core.settlement.lost_run` makes of the row, in place of the open run, if any.
        """

    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds: same fence, phase claimed, revision still the schedule's.

        In the order given, each seeing the ones before it. A start that this claim has already made is answered again:
        the caller asks twice if it missed the answer.

        Start: takes the places it needs, checked in the order `max_runs`, slot, concurrency key, budgets. Busy names
        the first that is not free, and nothing is written; a place it already holds needs no check. The call that it
        names is reserved, and given back at the end of the occurrence if it was not made. The phase becomes
        dispatching, with one more attempt, the revision it starts under, started now, and the lease renewed. An
        occurrence of trigger or event origin counts as admitted at its first start; if that uses up `max_runs`, its
        schedule is plannable at once.

        End: final, with its reason; a misfired one is a gap of one fire. Then as after a settlement.

        Wait: pending without a time, in line by due time, nominal time and id. The place under a concurrency key is
        given back, the slot is kept. If what it waits for is free by now and the line before it is empty, it has its
        turn at once. With `replaces`, of those in line for the slot that have trigger or event origin and never
        started, only the newest stays, perhaps not this one; the others end as skipped/replaced. With `cancel_grace`,
        the slot's holder, if dispatching or awaiting completion, is asked to stop with reason replaced and the deadline
        now + cancel_grace, or an earlier one it has; a holder in another phase ends as cancelled/replaced, with its
        fence raised.

        A row that waits for an approval takes the slot, and can be claimed from `until` on, or once it is approved. The
        approval is requested unless that was done before. Busy, and nothing is written, if the slot is taken.

        A row that waits for upstreams is in no line, and has a time: `until`, if given, or now, if there are more news
        than it has `seen`. It becomes claimable by news of an upstream itself, and by those of an occurrence of the
        upstream's trigger that stands for a time after `after` and up to its own, or without `after` of any.

        Replan: pending, its schedule plannable at once; not claimable until that schedule has been planned.
        """

    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        """The upstreams of each claim's schedule, in its order, in one consistent read. Changes nothing.

        Each has its newest row of trigger origin, superseded ones aside, that stands for a time in question
        (`core.admission.times_in_question`): the one with the latest such time, then the latest nominal time.
        """

    def renew(self, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
        """Extend leases that are still held with this fence, even if they ran out unnoticed. They end as in a claim."""

    def release(self, holds: Sequence[Lease]) -> None:
        """Return claimed rows to their state before the claim, except for the fence and the count of lost leases.

        Rows that are no longer held, or have started, stay as they are.
        """

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds, with their runs; False for the others.

        The row must be dispatching or awaiting completion; a row that awaits completion is not accepted again. A run
        replaces the run with its id, if any, as `core.run.in_place_of` says.

        An accepted row awaits completion until its deadline, or an earlier one it already has. It keeps its places, its
        node and its start, but has no lease: it cannot be claimed, renewed or released. A settlement that `begins` a
        row, dispatching or awaiting completion, sets its start and its deadline, but extends no stop request; an event
        says if that start is late.

        One that `is_overdue` goes on: its deadline becomes that of the settlement, if it is unchanged since, and an
        event reports it. A row that starts has as its deadline when it takes longer than its schedule expects.

        A retry is pending at its time and keeps its slot, but not its place under a concurrency key; if its schedule is
        deleted, it ends as cancelled/deleted instead. An end gives up both. The first in line for what became free gets
        it in the same transaction and is claimable now; it keeps `waiting_for` until it starts, so that it cannot
        misfire. Rows that wait for it as an upstream become claimable too. A schedule without a trigger that depends on
        it is plannable at once; if it was completed, and has runs left, it is active again.

        Counters count. An active schedule with nothing live and nothing to come is completed; otherwise `pause_after`
        consecutive failures pause it, as `core.edits.pause` would.
        """

    def progress(self, interims: Sequence[Interim]) -> list[bool]:
        """Store the output so far of deliveries in progress: their open runs, each replacing the last.

        For rows that are dispatching and whose fence still holds; False, with nothing written, for the others and for
        rows that another transaction is changing. Wakes no other node.
        """

    def backfills(self, uid: str) -> list[BackfillProgress]:
        """The backfills of a schedule whose occurrences are kept, the last one requested first, then by id."""

    def change_backfill(self, uid: str, backfill_id: str, change: BackfillChange, why: Pause | None = None) -> int:
        """Hold, release or cancel the occurrences of a backfill; returns how many are changed.

        What is pending or claimed is held: it cannot be claimed until it is released, keeps no slot and no place, and
        a node that has claimed it loses it. Cancelled are the same ones, as cancelled/cancelled; those that are
        dispatching are asked to stop. What awaits its completion is left as it is. `why` is kept in the detail of what
        is held, until it is released.
        """

    def request_stop(self, occurrence_id: str) -> bool:
        """Ask the node that delivers it to cancel it; False if it is neither delivered nor suspended.

        A suspended workflow run becomes claimable, so that a node ends it. What a target has accepted is overdue from
        now on, and ends as cancelled; a workflow run that an engine has accepted is not, since it ends by itself. The
        request survives a lost lease and a suspension, but not a retry.
        """

    def cancel(self, occurrence_id: str) -> bool:
        """End a pending or claimed row as cancelled/cancelled, with its fence raised; False if there is none.

        Then as after a settlement. A suspended workflow run is asked to stop instead, as by `request_stop`.
        """

    def routes(self, source: str) -> list[str]:
        """The distinct routes of the schedules from that source that are not deleted, in order."""

    def pipeline_schedules(self, tenant: str, limit: int) -> list[Schedule]:
        """The tenant's schedules of pipelines that are not deleted, by id; without those that are unreadable."""

    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        """Record that a node is alive now, what it says of itself, and the routes that it serves.

        A node that has left is back. Routes it no longer lists may be forgotten.
        """

    def leave(self, node: str) -> None:
        """Record that a node has stopped. If it leads, there is no leader from now on. Ignores an unknown node.

        It has served its routes until its last heartbeat, as if it had been lost.
        """

    def nodes(self) -> list[NodeRecord]:
        """The nodes seen within the last day, including those that have left, by name.

        A node seen within 30 days is listed until it is reported lost, unless it has left. A node is alive until it
        leaves, its process is found to be gone (`expire_leases`), or until `seen` plus twice its lease; it leads while
        it holds the leader's lease. A node whose record is unreadable is left out.
        """

    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        """Record that a node is reported lost, and emit the event for every tenant that listens for its type.

        Both or neither. False if the node was not last seen at `seen`, has left, or was reported before; a heartbeat
        allows the next report.
        """

    def expire_leases(self, node: str, process_lock: str) -> int:
        """End the leases of a node whose process is gone, now, and its leadership; returns how many leases of rows.

        Only if its last heartbeat names this lock: otherwise nothing is written. Its rows are claimable at once, as if
        they had not been renewed; leases that have ended stay as they are. The node is no longer alive, until it sends
        a heartbeat. The runs that are lost with it say that its process was gone (`core.settlement.lost_run`).
        """

    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        """Take the leader's lease, or renew it, until now + lease; returns who leads then, perhaps another node.

        It can be taken if no node holds it, if it ended by `now` (at exactly its end too), and by its holder. The term
        stays if it is renewed before its end. Otherwise it rises by one, also if the last leader takes it again; it
        begins at 1 and never falls. No two nodes ever have the same term.
        """

    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        """Lease, as a claim does, rows that no node could serve for as long as their schedule has patience.

        Patience is `core.policies.delivery.patience` with the schedule's misfire grace. Included are pending rows that
        were claimable before now - patience, and leased ones whose lease ended before then, if no heartbeat after now -
        patience named their route. In the order of a claim.
        """

    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        """Deliveries, dispatching or awaiting completion, whose deadline has passed, earliest first, then by id.

        A row has a deadline from the moment its target accepts the work, to report its end, or from the moment it is
        asked to give up the slot, to do so. Changes nothing.
        """

    def changed_by_others(self, reader: str = "") -> bool:
        """Whether another process may have written since the last call of this reader. Cheap."""

    def recent_changes(self, since: Micros, limit: int) -> list[StoredChange]:
        """What was written since a time, by the store's clock, by this process or another: hints, not all of them.

        At most `limit` of each kind, the newest. A store that no other process writes returns none.
        """

    def next_time(self, routes: Collection[str], *, lookahead: Micros = 0) -> Micros | None:
        """When something can next be planned, is overdue, or is claimable with one of the routes.

        What becomes ready is claimable `lookahead` earlier. Ends of leases count. While an event is unmatched, it is
        `MIN_INSTANT`: a node whose clock is a little behind must not wait for what was emitted just now.
        """

    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Delete occurrences that ended before `before`, and of each schedule all ended ones but the newest `keep`.

        Newest by nominal time. Their runs and steps go with them; live rows and counters stay. At most `limit` per
        call; returns how many. Versions of workflows that were deleted before `before`, and that no run began with,
        are deleted as well.
        """

    def prune_events(self, *, before: Micros, keep: int, limit: int) -> int:
        """Delete matched events from before `before`, and of each tenant all matched ones but the newest `keep`.

        Their ids are free again; what they triggered stays. At most `limit` per call; returns how many.
        """
