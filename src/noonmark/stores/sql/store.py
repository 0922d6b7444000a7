"""The store port on an SQL database. SQLite and PostgreSQL differ in transactions, connections and notifications."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.errors import NoonmarkError
from noonmark.core.run import Outcome
from noonmark.ports.records import KeyRecord, make_admitted
from noonmark.stores.grouped_creates import GroupedCreates
from noonmark.stores.rules import admission, backfills, dependencies, leases, plan_writes, system_events
from noonmark.stores.rules import budgets as budget_rules
from noonmark.stores.rules import events as event_rules
from noonmark.stores.rules import halts as halt_rules
from noonmark.stores.rules import proposals as proposal_rules
from noonmark.stores.rules import sessions as session_rules
from noonmark.stores.rules import workflows as workflow_rules
from noonmark.stores.rules.bundles import users as bundle_users
from noonmark.stores.rules.snapshots import by_uid
from noonmark.stores.sql import (
    api_keys,
    audit_log,
    budgets,
    bundles,
    claims,
    clock_repair,
    fast_path,
    nodes,
    page_sessions,
    secret_store,
)
from noonmark.stores.sql import events as stored_events
from noonmark.stores.sql import halts as stored_halts
from noonmark.stores.sql import runs as stored_runs
from noonmark.stores.sql import sessions as stored_sessions
from noonmark.stores.sql import workflows as stored_workflows
from noonmark.stores.sql.dependencies import graph
from noonmark.stores.sql.reads import (
    changes,
    history,
    inspection,
    marks,
    runs,
    schedules,
    search,
    workflows,
    workload,
)
from noonmark.stores.sql.reads.history import count as count_backlog
from noonmark.stores.sql.schedule_documents import ScheduleCache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from noonmark.core.admission import Admission, Busy, Claim
    from noonmark.core.agents.session import Message, Mob, SessionState
    from noonmark.core.agents.session import Session as AgentSession
    from noonmark.core.api_key import ApiKey
    from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Refused, Reservation, Reserved, Standing
    from noonmark.core.budgets.spend import Usage
    from noonmark.core.causation import Reaction, UnmatchedEvent
    from noonmark.core.event import Event
    from noonmark.core.halt import Halt
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase, SchedulePhase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.outcomes import Mark
    from noonmark.core.page_session import PageSession
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.proposals import Proposal
    from noonmark.core.quotas import Quota
    from noonmark.core.rate_limit import RateLimit, Taken
    from noonmark.core.run import Run
    from noonmark.core.schedule import AuditEntry, Pause, Schedule
    from noonmark.core.secret import Secret
    from noonmark.core.settlement import Interim, Settlement
    from noonmark.core.workflows.run import StepRecord, WorkflowRun
    from noonmark.ports.budgets import Settled, UsageBy, UsageGroup, UsageRecord
    from noonmark.ports.bundles import Bundle
    from noonmark.ports.changes import StoredChange
    from noonmark.ports.records import (
        Activity,
        Admitted,
        BackfillChange,
        BackfillProgress,
        Backlog,
        FoundOccurrences,
        Graph,
        Heartbeat,
        Horizons,
        Inspected,
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
        TrendPoint,
        Workload,
    )
    from noonmark.ports.sessions import Turn
    from noonmark.ports.workflows import Approval, ApprovalState, StepWrites, UsedKind, WorkflowVersion
    from noonmark.stores.sql.unit_of_work import UnitOfWork

T = TypeVar("T")
logger = logging.getLogger("noonmark.store")

_SET_ASIDE = "UPDATE schedule_states SET fault = ? WHERE uid = ? AND fault IS NULL"


_TENANTS_OF_UIDS = """
    SELECT DISTINCT tenant FROM schedule_states CROSS JOIN schedules ON schedules.key = schedule
    WHERE uid IN EACH(text)
"""
_TENANTS_OF_ROWS = """
    SELECT DISTINCT tenant FROM occurrences CROSS JOIN schedules ON schedules.key = schedule WHERE id IN EACH(text)
"""
_PLACES = "SELECT taken FROM concurrency_keys WHERE tenant = ? AND name = ?"
_TENANTS_OF_KEYS = """
    SELECT DISTINCT tenant FROM occurrences CROSS JOIN schedules ON schedules.key = schedule
    WHERE occurrences.key IN EACH(bigint)
"""


class SqlStore(ABC):
    """The methods of the store, each in one transaction, or in an unlocked write and a locked one.

    A database implements the kinds of transaction.
    """

    _schedule_cache: ScheduleCache
    _grouped_creates: GroupedCreates
    _wants_timed_uids: bool
    """Asked until it is so: old nodes cannot start any more."""

    def _reset_caches(self) -> None:
        """Drop what is cached and who waits: for a new store, and in a forked process."""
        self._schedule_cache = ScheduleCache()
        self._wants_timed_uids = False
        self._grouped_creates = GroupedCreates(self._create_each, self._create_all, self._lock_name)

    @abstractmethod
    def _read(self, work: Callable[[UnitOfWork], T]) -> T:
        """Read from one snapshot of the database."""

    @abstractmethod
    def _autocommit(self, work: Callable[[UnitOfWork], T]) -> T:
        """Execute one reading statement, which needs no transaction around it."""

    @abstractmethod
    def _write_unlocked(self, work: Callable[[UnitOfWork], T]) -> T:
        """Change rows that no other transaction is changing."""

    def _write_node_state(self, work: Callable[[UnitOfWork], T]) -> T:
        """Write claims, leases and heartbeats: nodes write them again after a crash of the database."""
        return self._write_unlocked(work)

    @abstractmethod
    def _start_unlocked(self, work: Callable[[UnitOfWork], T]) -> T:
        """The same, and no halt is set meanwhile."""

    @abstractmethod
    def _write_locked(
        self,
        tenants: Iterable[str],
        work: Callable[[UnitOfWork], T],
        *,
        notify: bool = False,
        stops_starts: bool = False,
    ) -> T:
        """Change anything of some tenants, one transaction at a time; with `stops_starts`, while nothing starts.

        Other nodes are notified if `notify` is set and something was changed, and whenever a waiting row became due:
        perhaps only another node can serve it.
        """

    @abstractmethod
    def _lock_name(self, tenant: str) -> str:
        """The name of what a locked write of a tenant waits for: writes with the same name may share a transaction."""

    @abstractmethod
    def _tenants(self, query: str, values: Iterable[str | int]) -> Collection[str]:
        """The tenants that a locked write must name, found by a query with a list of values."""

    @abstractmethod
    def clock(self) -> Micros:
        """The store's time."""

    def wants_timed_uids(self) -> bool:
        if not self._wants_timed_uids:
            now = self.clock()
            self._wants_timed_uids = not self._autocommit(lambda uow: nodes.has_old(uow.session, now=now))
        return self._wants_timed_uids

    def create(self, plans: Sequence[Plan]) -> list[bool]:
        return self._grouped_creates.create(plans)

    def create_each(self, plans: Sequence[Plan]) -> list[bool | Exception]:
        return self._grouped_creates.create_each(plans)

    def _create_all(self, plans: Sequence[Plan]) -> list[bool]:
        tenants = {plan.snapshot.schedule.owner.tenant for plan in plans}

        def create(uow: UnitOfWork) -> list[bool]:
            return plan_writes.create_all(uow, plans, partial(fast_path.create_plain, uow))

        return self._write_locked(tenants, create, notify=True)

    def _create_each(self, tenant: str, take: Callable[[], Sequence[Plan]]) -> Sequence[bool | NoonmarkError]:
        def create(uow: UnitOfWork) -> Sequence[bool | NoonmarkError]:
            return plan_writes.create_each(uow, take(), partial(fast_path.create_plain, uow))

        return self._write_locked({tenant}, create, notify=True)

    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        return self._read(lambda uow: graph(uow.session, tenant, schedule_ids))

    def snapshot(self, uid: str) -> Snapshot | None:
        return self._read(lambda uow: by_uid(uow, uid))

    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        while True:
            snapshots, faults = self._read(lambda uow: schedules.plannable(uow, now, limit))
            if not faults:
                return snapshots
            # They would be found again and again, before the others.
            for fault in faults.items():
                self._write_unlocked(partial(_note_fault, fault=fault))

    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        tenants = {plan.snapshot.schedule.owner.tenant for plan in plans}
        return self._write_locked(tenants, lambda uow: plan_writes.commit_all(uow, plans), notify=True)

    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        tenants = self._tenants(_TENANTS_OF_UIDS, [uid])
        return self._write_locked(tenants, lambda uow: plan_writes.commit_change(uow, uid, decide), notify=True)

    def add(self, occurrences: Sequence[Occurrence], *, limits: Sequence[Quota] = ()) -> list[bool]:
        tenants = self._tenants(_TENANTS_OF_UIDS, (one.uid for one in occurrences))
        return self._write_locked(tenants, lambda uow: plan_writes.add_all(uow, occurrences, limits), notify=True)

    def emit(self, tenant: str, events: Sequence[Event], *, user: str = "", limits: Sequence[Quota] = ()) -> list[bool]:
        return self._write_locked(
            {tenant}, lambda uow: event_rules.emit(uow, tenant, events, user=user, limits=limits), notify=True
        )

    def unmatched(self, limit: int) -> list[UnmatchedEvent]:
        events, damaged = self._read(lambda uow: (event_rules.unmatched(uow, limit), uow.damaged_streams))
        if damaged:
            tenants = [tenant for tenant in damaged if isinstance(tenant, str)]
            self._write_locked(
                tenants, lambda uow: stored_events.repair(uow.session, damaged, self._schedule_cache.damage)
            )
        return events

    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        tenants = {one.audience.tenant for one in reactions}
        return self._write_locked(tenants, lambda uow: event_rules.commit(uow, reactions))

    def claim(  # noqa: PLR0913 - as the port has it
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
        def claim(uow: UnitOfWork) -> tuple[list[Claim], claims.Faults]:
            # A node whose clock is ahead must not take what others still hold.
            at = min(now, uow.now())
            if only is not None:
                rows = claims.only_due(uow.session, only, routes, now=at, until=until)[:limit]
            elif shares is not None:
                rows = claims.due_in_turn(uow.session, routes, shares, now=at, until=until, limit=limit)
            else:
                rows = claims.due(uow.session, routes, now=at, until=until, limit=limit)
            if not rows and only is None:
                claims.end_orphans(uow.session, routes, now=at, until=until)
            return claims.take(uow, rows, node, now=at, lease=lease)

        leased, faults = self._write_node_state(claim)
        self._end_damaged(faults)
        return leased

    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        started = self._start_unlocked(lambda uow: fast_path.start_all(uow, admissions, now=now, lease=lease))
        others = [one for one in admissions if one.claim.occurrence.id not in started]
        tenants = {one.claim.schedule.owner.tenant for one in others}

        def admit(uow: UnitOfWork) -> list[Admitted | LeaseLost | Busy]:
            return admission.admit_all(uow, admissions, started, now=now, lease=lease)

        if others:
            return self._write_locked(tenants, admit)
        return [make_admitted(occurrence=started[one.claim.occurrence.id]) for one in admissions]

    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        return self._read(lambda uow: dependencies.of_claims(uow, claims))

    def renew(self, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
        return self._write_node_state(lambda uow: claims.renew(uow, holds, now=now, lease=lease))

    def release(self, holds: Sequence[Lease]) -> None:
        tenants = self._tenants(_TENANTS_OF_ROWS, (hold.occurrence_id for hold in holds))
        self._write_locked(tenants, lambda uow: admission.release(uow, holds), notify=True)

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        ended = self._write_unlocked(lambda uow: fast_path.end_all(uow, settlements))
        others = [one.occurrence.id for one in settlements if one.occurrence.id not in ended]
        if not others:
            return [True] * len(settlements)
        tenants = self._tenants(_TENANTS_OF_ROWS, others)
        # A node that ends a run looks for what that frees; one that stops and hands its runs back does not.
        notify = any(one.run.outcome is Outcome.LEASE_LOST for one in settlements)
        return self._write_locked(tenants, lambda uow: admission.settle_all(uow, settlements, ended), notify=notify)

    def request_stop(self, occurrence_id: str) -> bool:
        tenants = self._tenants(_TENANTS_OF_ROWS, [occurrence_id])
        return self._write_locked(tenants, lambda uow: admission.request_stop(uow, occurrence_id), notify=True)

    def backfills(self, uid: str) -> list[BackfillProgress]:
        return self._read(lambda uow: backfills.progress(history.backfill_counts(uow.session, uid)))

    def change_backfill(self, uid: str, backfill_id: str, change: BackfillChange, why: Pause | None = None) -> int:
        tenants = self._tenants(_TENANTS_OF_UIDS, [uid])
        return self._write_locked(
            tenants, lambda uow: backfills.change(uow, uid, backfill_id, change, why), notify=True
        )

    def cancel(self, occurrence_id: str) -> bool:
        tenants = self._tenants(_TENANTS_OF_ROWS, [occurrence_id])
        return self._write_locked(tenants, lambda uow: admission.cancel(uow, occurrence_id), notify=True)

    def routes(self, source: str) -> list[str]:
        return self._autocommit(lambda uow: schedules.routes(uow.session, source))

    def pipeline_schedules(self, tenant: str, limit: int) -> list[Schedule]:
        return self._autocommit(lambda uow: schedules.of_pipelines(uow, tenant, limit))

    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        self._write_node_state(lambda uow: nodes.beat(uow.session, beat, now=now))

    def leave(self, node: str) -> None:
        # Its last ends may have freed a slot, and it does not look for that any more.
        self._write_locked((), lambda uow: nodes.leave(uow.session, node, now=uow.now()), notify=True)

    def nodes(self) -> list[NodeRecord]:
        # Not from one snapshot: a node that has just become the leader may be listed with the one before it.
        return self._autocommit(lambda uow: nodes.records(uow.session, now=uow.now()))

    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        tenants = self._autocommit(lambda uow: uow.subscribed_tenants(event.event_type))
        return self._write_locked(tenants, lambda uow: system_events.publish_lost_node(uow, node, seen, event, tenants))

    def expire_leases(self, node: str, process_lock: str) -> int:
        # Perhaps only a node elsewhere can serve its rows.
        return self._write_locked((), lambda uow: leases.expire(uow, node, process_lock), notify=True)

    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        def lead(uow: UnitOfWork) -> Leadership:
            return nodes.lead(uow.session, node, now=min(now, uow.now()), lease=lease)

        return self._write_node_state(lead)

    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        def claim(uow: UnitOfWork) -> tuple[list[Claim], claims.Faults]:
            rows = claims.lacking(uow.session, now=min(now, uow.now()), limit=limit)
            return claims.take(uow, rows, node, now=now, lease=lease)

        leased, faults = self._write_node_state(claim)
        self._end_damaged(faults)
        return leased

    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        occurrences, faults, strays = self._read(lambda uow: history.overdue(uow, now=now, limit=limit))
        self._end_damaged(faults, strays)
        return occurrences

    def next_time(self, routes: Collection[str], *, lookahead: Micros = 0) -> Micros | None:
        return self._autocommit(lambda uow: history.next_time(uow, routes, lookahead))

    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        return self._write_unlocked(lambda uow: history.prune(uow.session, before=before, keep=keep, limit=limit))

    def _end_damaged(self, faults: Mapping[int, str], strays: Sequence[int] = ()) -> None:
        """End damaged rows, each in its own transaction, and rows that belong to no schedule."""
        for key, problem in faults.items():
            try:
                self._write_locked(
                    self._tenants(_TENANTS_OF_KEYS, [key]), partial(claims.end_unreadable, faults={key: problem})
                )
            except NoonmarkError:
                raise
            except Exception:
                # Its schedule is damaged as well. The row would be found again and again.
                logger.exception("damaged occurrence %s cannot be ended with all that follows, and is ended alone", key)
                self._write_unlocked(partial(_end_alone, keys=[key]))
        if strays:
            self._write_unlocked(partial(_end_alone, keys=strays))

    def find(self, tenant: str, schedule_id: str, *, deleted: bool = False) -> StoredSchedule | None:
        def find(uow: UnitOfWork) -> StoredSchedule | None:
            stored = schedules.find(uow, schedules.BY_ID, tenant, schedule_id)
            if stored is None and deleted:
                return schedules.find(uow, schedules.DELETED_BY_ID, tenant, schedule_id)
            return stored

        return self._read(find)

    def find_uid(self, uid: str) -> StoredSchedule | None:
        return self._read(lambda uow: schedules.find(uow, schedules.BY_UID, uid))

    def find_uids(self, uids: Collection[str]) -> dict[str, StoredSchedule]:
        return self._read(lambda uow: schedules.find_uids(uow, uids))

    def find_named(self, tenant: str, user: str, name: str) -> StoredSchedule | None:
        return self._read(lambda uow: schedules.find(uow, schedules.BY_NAME, tenant, user, name))

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
        choice = schedules.choice(tenant, wanted, deleted=deleted)
        if choice is None:
            return []
        return self._read(
            lambda uow: schedules.page(uow, choice, tenant, after=after, limit=limit, newest_first=newest_first)
        )

    def count_schedules(self, tenant: str, wanted: ScheduleFilter | None = None, *, deleted: bool = False) -> int:
        choice = schedules.choice(tenant, wanted, deleted=deleted)
        return 0 if choice is None else self._read(lambda uow: schedules.count(uow, choice))

    def count_phases(self, tenant: str, user: str | None = None) -> dict[SchedulePhase, int]:
        return self._read(lambda uow: marks.count_phases(uow, tenant, user))

    def tenants(self, limit: int) -> list[str]:
        return self._read(lambda uow: schedules.tenants(uow, limit))

    def count_waiting(self, tenant: str, user: str | None = None) -> int:
        return self._read(lambda uow: uow.count_waiting(tenant, user))

    def count_places(self, tenant: str, key: str) -> int:
        rows = self._autocommit(lambda uow: uow.session.query(_PLACES, tenant, key))
        return int(rows[0][0]) if rows else 0

    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        return self._read(lambda uow: history.one(uow, occurrence_id))

    def occurrences(
        self, uid: str, limit: int | None = None, *, before: PageKey | None = None, phases: Collection[Phase] = ()
    ) -> list[Occurrence]:
        return self._read(lambda uow: history.of_schedule(uow, uid, limit, before, phases))

    def search(
        self, tenant: str, wanted: OccurrenceFilter, limit: int, *, before: PageKey | None = None
    ) -> FoundOccurrences:
        return self._read(lambda uow: search.search(uow, tenant, wanted, limit, before))

    def marks(self, scope: MarkScope, span: Span, limit: int) -> list[Mark]:
        return self._read(lambda uow: marks.marks(uow, scope, span, limit))

    def count_marks(self, scope: MarkScope, span: Span, width: Micros) -> list[MarkCount]:
        return self._read(lambda uow: marks.count(uow, scope, span, width))

    def last_marks(self, uids: Sequence[str], limit: int, *, now: Micros) -> dict[str, list[Mark]]:
        return self._read(lambda uow: marks.last(uow, uids, limit, now=now))

    def trend(self, uid: str, edges: Sequence[Micros], *, now: Micros) -> list[TrendPoint]:
        return self._read(lambda uow: marks.trend(uow, uid, edges, now=now))

    def lateness(self, scope: MarkScope, span: Span, percent: int) -> Micros | None:
        return self._read(lambda uow: marks.lateness(uow, scope, span, percent))

    def horizons(self, scope: MarkScope, *, until: Micros, limit: int) -> Horizons:
        return self._read(lambda uow: marks.horizons(uow, scope, until=until, limit=limit))

    def known(self, occurrence_ids: Collection[str]) -> set[str]:
        return self._read(lambda uow: search.known(uow, occurrence_ids))

    def occurrences_at(self, uid: str, time: Micros, limit: int) -> list[Occurrence]:
        return self._read(lambda uow: history.standing_for(uow, uid, time, limit))

    def runs(self, uid: str, limit: int | None = None, *, before: PageKey | None = None) -> list[Run]:
        return self._read(lambda uow: runs.of_schedule(uow, uid, limit, before))

    def occurrence_runs(self, occurrence_id: str) -> list[Run]:
        return self._read(lambda uow: runs.of_occurrence(uow, occurrence_id))

    def last_runs(self, occurrence_ids: Sequence[str]) -> dict[str, Run]:
        return self._read(lambda uow: runs.last_of(uow, occurrence_ids))

    def run(self, run_id: str) -> tuple[str, Run] | None:
        return self._read(lambda uow: runs.one(uow, run_id))

    def progress(self, interims: Sequence[Interim]) -> list[bool]:
        return self._write_unlocked(lambda uow: stored_runs.write_progress(uow.session, interims))

    def activities(self, uids: Sequence[str]) -> list[Activity]:
        return self._read(lambda uow: runs.activities(uow, uids))

    def events(
        self, tenant: str, limit: int, *, before: Micros | None = None, event_type: str | None = None
    ) -> list[Event]:
        return self._read(lambda uow: stored_events.newest(uow.session, tenant, limit, before, event_type))

    def event(self, tenant: str, event_id: str) -> Event | None:
        return self._read(lambda uow: stored_events.one(uow.session, tenant, event_id))

    def backlog(self, now: Micros, limit: int) -> Backlog:
        return self._read(lambda uow: count_backlog(uow.session, now, limit))

    def workload(self, *, now: Micros, limit: int, tenant: str | None = None) -> Workload:
        return self._read(lambda uow: workload.workload(uow, now=now, limit=limit, tenant=tenant))

    def recent_changes(self, since: Micros, limit: int) -> list[StoredChange]:
        return self._read(lambda uow: changes.recent(uow.session, since, limit))

    def newest_time(self, before: Micros | None = None) -> Micros | None:
        return self._read(lambda uow: clock_repair.newest_time(uow.session, before))

    def due_since(self, routes: Collection[str]) -> Micros | None:
        return self._read(lambda uow: clock_repair.due_since(uow.session, routes))

    def planned_ahead(self, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
        return self._read(lambda uow: clock_repair.planned_ahead(uow, now=now, until=until, after=after, limit=limit))

    def repair(self, *, now: Micros, after: Micros, lease: Micros) -> int:
        return self._write_unlocked(lambda uow: clock_repair.repair(uow.session, now=now, after=after, lease=lease))

    def prune_events(self, *, before: Micros, keep: int, limit: int) -> int:
        return self._write_unlocked(lambda uow: stored_events.prune(uow.session, before=before, keep=keep, limit=limit))

    def add_audit_entries(self, tenant: str, entries: Sequence[AuditEntry]) -> None:
        def add(uow: UnitOfWork) -> None:
            for entry in entries:
                uow.add_audit_entry(tenant, entry)

        self._write_locked({tenant}, add)

    def audit_entries(
        self,
        tenant: str,
        limit: int,
        *,
        before: int | None = None,
        schedule_id: str | None = None,
        changes: bool = False,
    ) -> list[AuditEntry]:
        return self._read(
            lambda uow: audit_log.newest(uow.session, tenant, limit, before, schedule_id, changes=changes)
        )

    def prune_audit_entries(self, *, before: Micros, limit: int) -> int:
        return self._write_unlocked(lambda uow: audit_log.prune_audit_entries(uow.session, before=before, limit=limit))

    def claim_key(self, tenant: str, key: str, fingerprint: str, *, now: Micros, lifetime: Micros) -> KeyRecord:
        fresh = KeyRecord(fingerprint=fingerprint, created=now)
        return self._write_locked(
            {tenant}, lambda uow: audit_log.claim_key(uow.session, tenant, key, fresh, since=now - lifetime)
        )

    def prune_keys(self, *, before: Micros, limit: int) -> int:
        return self._write_unlocked(lambda uow: audit_log.prune_keys(uow.session, before=before, limit=limit))

    def put_secret(self, tenant: str, secret: Secret, *, most: int, note: AuditEntry | None = None) -> Secret | None:
        def keep(uow: UnitOfWork) -> Secret | None:
            stored = secret_store.put(uow.session, tenant, secret, most=most)
            return _noted(uow, tenant, stored, note)

        return self._write_locked({tenant}, keep)

    def secrets(self, tenant: str) -> list[Secret]:
        return self._read(lambda uow: secret_store.every(uow.session, tenant))

    def find_secrets(self, tenant: str, names: Collection[str]) -> list[Secret]:
        return self._read(lambda uow: secret_store.some(uow.session, tenant, names))

    def forget_secret(self, tenant: str, name: str, *, note: AuditEntry | None = None) -> Secret | None:
        return self._write_locked(
            {tenant}, lambda uow: _noted(uow, tenant, secret_store.delete(uow.session, tenant, name), note)
        )

    def has_api_keys(self) -> bool:
        return self._autocommit(lambda uow: api_keys.are_there(uow.session))

    def keep_api_key(self, key: ApiKey, *, most: int, note: AuditEntry | None = None) -> bool:
        def keep(uow: UnitOfWork) -> bool:
            is_kept = api_keys.add(uow.session, key, most=most)
            return _noted(uow, key.acts_for, is_kept or None, note) is not None

        return self._write_locked({key.tenant, key.acts_for}, keep)

    def find_api_key(self, key_id: str) -> ApiKey | None:
        return self._autocommit(lambda uow: api_keys.find(uow.session, key_id))

    def api_keys(self, tenant: str | None, limit: int, *, after: tuple[Micros, str] | None = None) -> list[ApiKey]:
        return self._read(lambda uow: api_keys.page(uow.session, tenant, limit, after))

    def revoke_api_key(
        self, key_id: str, *, at: Micros, successor: ApiKey | None = None, note: AuditEntry | None = None
    ) -> ApiKey | None:
        key = self.find_api_key(key_id)
        if key is None:
            return None

        def revoke(uow: UnitOfWork) -> ApiKey | None:
            return _noted(uow, key.acts_for, api_keys.revoke(uow.session, key_id, at=at, successor=successor), note)

        return self._write_locked({key.tenant, key.acts_for}, revoke)

    def use_api_keys(self, used: Mapping[str, Micros]) -> None:
        self._write_unlocked(lambda uow: api_keys.use(uow.session, used))

    def add_bundle_chunk(
        self, tenant: str, content_id: str, number: int, data: bytes, *, limits: Sequence[Quota] = ()
    ) -> None:
        self._write_locked(
            {tenant}, lambda uow: bundles.add_chunk(uow.session, tenant, content_id, number, data, limits)
        )

    def bundle_chunk(self, tenant: str, content_id: str, number: int) -> bytes | None:
        return self._autocommit(lambda uow: bundles.chunk(uow.session, tenant, content_id, number))

    def keep_bundle(self, bundle: Bundle, *, note: AuditEntry | None = None) -> Bundle | None:
        def keep(uow: UnitOfWork) -> Bundle | None:
            return _noted(uow, bundle.tenant, bundles.keep(uow.session, bundle), note)

        return self._write_locked({bundle.tenant}, keep)

    def drop_bundle_push(self, tenant: str, content_id: str) -> None:
        self._write_locked({tenant}, lambda uow: bundles.drop(uow.session, tenant, content_id))

    def find_bundle(self, tenant: str, bundle_id: str | None = None, *, digest: str | None = None) -> Bundle | None:
        return self._autocommit(lambda uow: bundles.find(uow.session, tenant, bundle_id, digest))

    def bundles(self, tenant: str, limit: int, *, after: str | None = None) -> list[Bundle]:
        return self._read(lambda uow: bundles.page(uow.session, tenant, limit, after))

    def bundle_versions(self, tenant: str, bundle_id: str, limit: int) -> list[Bundle]:
        return self._read(lambda uow: bundles.versions(uow.session, tenant, bundle_id, limit))

    def delete_bundle(self, tenant: str, bundle_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        def delete(uow: UnitOfWork) -> list[str] | None:
            used = bundles.delete(uow.session, tenant, bundle_id, partial(bundle_users, uow))
            return _noted(uow, tenant, used, note) if used == [] else used

        return self._write_locked({tenant}, delete)

    def bundle_bytes(self, tenant: str) -> int:
        return self._autocommit(lambda uow: bundles.stored_bytes(uow.session, tenant))

    def prune_bundles(self, *, before: Micros, unfinished_before: Micros, limit: int) -> int:
        old = {"before": before, "unfinished_before": unfinished_before}
        tenants = self._autocommit(lambda uow: bundles.prunable_tenants(uow.session, **old))
        if not tenants:
            return 0
        # Under their locks, as starts: no archive is deleted that a start has just taken for the newest.
        return self._write_locked(
            tenants, lambda uow: bundles.prune(uow.session, tenants, partial(bundle_users, uow), **old, limit=limit)
        )

    def put_workflow(
        self,
        version: WorkflowVersion,
        *,
        version_number: int | None = None,
        most: int | None = None,
        note: AuditEntry | None = None,
    ) -> WorkflowVersion | None:
        def put(uow: UnitOfWork) -> WorkflowVersion | None:
            return _noted(uow, version.tenant, workflow_rules.put_version(uow, version, version_number, most), note)

        return self._write_locked({version.tenant}, put)

    def workflow(
        self, tenant: str, workflow_id: str, version: int | None = None, *, deleted: bool = False
    ) -> WorkflowVersion | None:
        return self._autocommit(
            lambda uow: stored_workflows.version(uow.session, tenant, workflow_id, version, deleted=deleted)
        )

    def workflows(self, tenant: str, limit: int, *, after: str | None = None) -> list[WorkflowVersion]:
        return self._read(lambda uow: workflows.newest(uow, tenant, limit, after))

    def workflow_versions(
        self, tenant: str, workflow_id: str, limit: int, *, before: int | None = None
    ) -> list[WorkflowVersion]:
        return self._read(lambda uow: workflows.versions(uow, tenant, workflow_id, limit, before))

    def delete_workflow(self, tenant: str, workflow_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        def delete(uow: UnitOfWork) -> list[str] | None:
            users = workflow_rules.delete(uow, tenant, workflow_id)
            return users or _noted(uow, tenant, users, note)

        return self._write_locked({tenant}, delete)

    def schedules_using(self, tenant: str, kind: UsedKind, name: str, limit: int) -> list[str]:
        return self._autocommit(lambda uow: stored_workflows.users(uow.session, tenant, kind, name, limit))

    def commit_steps(self, writes: Sequence[StepWrites]) -> list[bool]:
        done = self._write_unlocked(lambda uow: stored_workflows.write_plain(uow.session, writes, uow.report))
        others = [one for place, one in enumerate(writes) if place not in done]
        if not others:
            return [True] * len(writes)
        tenants = self._tenants(_TENANTS_OF_ROWS, (one.occurrence_id for one in others))
        notify = any(one.children for one in others)
        return self._write_locked(tenants, lambda uow: workflow_rules.commit_steps(uow, writes, done), notify=notify)

    def workflow_run(self, occurrence_id: str) -> tuple[WorkflowRun, list[StepRecord]] | None:
        return self._read(lambda uow: workflows.run(uow, occurrence_id))

    def open_steps(self, occurrence_ids: Collection[str]) -> dict[str, list[StepRecord]]:
        return self._autocommit(lambda uow: workflows.ended_elsewhere(uow, occurrence_ids))

    def workflow_runs(
        self,
        tenant: str,
        limit: int,
        *,
        workflow_id: str | None = None,
        phases: Collection[Phase] = (),
        before: PageKey | None = None,
    ) -> list[tuple[WorkflowRun, Occurrence]]:
        return self._read(
            lambda uow: workflows.runs(
                uow,
                tenant,
                limit,
                workflow_id=workflow_id,
                phases=phases,
                before=before,
            )
        )

    def approvals(
        self, tenant: str, limit: int, *, state: ApprovalState | None = None, before: PageKey | None = None
    ) -> list[Approval]:
        return self._read(lambda uow: workflows.approvals(uow, tenant, limit, state=state, before=before))

    def approval(self, tenant: str, approval_id: str) -> Approval | None:
        return self._autocommit(lambda uow: uow.workflows.approval(tenant, approval_id))

    def decide_approval(
        self, tenant: str, approval_id: str, *, approved: bool, by: str, comment: str | None = None
    ) -> Approval | None:
        def decide(uow: UnitOfWork) -> Approval | None:
            return workflow_rules.decide_approval(uow, tenant, approval_id, approved=approved, by=by, comment=comment)

        return self._write_locked({tenant}, decide)

    def put_session(
        self, session: AgentSession, *, most: int | None = None, note: AuditEntry | None = None
    ) -> bool | None:
        def put(uow: UnitOfWork) -> bool | None:
            is_new = session_rules.put(uow, session, most)
            return _noted(uow, session.tenant, is_new or None, note) or is_new

        return self._write_locked({session.tenant}, put)

    def session(self, tenant: str, session_id: str) -> AgentSession | None:
        return self._read(lambda uow: session_rules.get(uow, tenant, session_id))

    def sessions(  # noqa: PLR0913 - as the port has it
        self,
        tenant: str,
        limit: int,
        *,
        user: str | None = None,
        state: SessionState | None = None,
        labels: Mapping[str, str] | None = None,
        mob_id: str | None = None,
        before: PageKey | None = None,
    ) -> list[AgentSession]:
        return self._read(
            lambda uow: stored_sessions.page(
                uow.session,
                uow.report,
                tenant,
                limit,
                user=user,
                state=state,
                labels=labels,
                mob_id=mob_id,
                before=before,
            )
        )

    def begin_turn(self, turn: Turn, messages: Sequence[Message] = ()) -> AgentSession | None:
        return self._write_locked({turn.tenant}, lambda uow: session_rules.begin_turn(uow, turn, messages))

    def append_messages(
        self, turn: Turn, messages: Sequence[Message], *, settles: Sequence[Settled] = ()
    ) -> list[Message] | None:
        return self._write_locked({turn.tenant}, lambda uow: session_rules.append(uow, turn, messages, settles))

    def messages(  # noqa: PLR0913 - as the port has it
        self,
        tenant: str,
        session_id: str,
        limit: int,
        *,
        after: int = 0,
        before: int | None = None,
        occurrence_id: str | None = None,
        newest_first: bool = False,
    ) -> list[Message]:
        return self._autocommit(
            lambda uow: stored_sessions.messages(
                uow.session,
                uow.report,
                tenant,
                session_id,
                limit,
                after=after,
                before=before,
                occurrence_id=occurrence_id,
                newest_first=newest_first,
            )
        )

    def set_session_state(
        self, tenant: str, session_id: str, state: SessionState, *, note: AuditEntry | None = None
    ) -> AgentSession | None:
        def change(uow: UnitOfWork) -> AgentSession | None:
            return _noted(uow, tenant, session_rules.set_state(uow, tenant, session_id, state), note)

        return self._write_locked({tenant}, change)

    def delete_session(self, tenant: str, session_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        def delete(uow: UnitOfWork) -> list[str] | None:
            users = session_rules.delete(uow, tenant, session_id)
            return users or _noted(uow, tenant, users, note)

        return self._write_locked({tenant}, delete)

    def prune_sessions(self, *, before: Micros, max_bytes: int, limit: int) -> int:
        return self._write_unlocked(
            lambda uow: stored_sessions.prune(uow.session, before=before, max_bytes=max_bytes, limit=limit)
        )

    def put_mob(self, mob: Mob, sessions: Sequence[AgentSession], *, note: AuditEntry | None = None) -> bool:
        def put(uow: UnitOfWork) -> bool:
            return _noted(uow, mob.tenant, session_rules.put_mob(uow, mob, sessions) or None, note) is not None

        return self._write_locked({mob.tenant}, put)

    def mob(self, tenant: str, mob_id: str) -> Mob | None:
        return self._autocommit(lambda uow: uow.sessions.find_mob(tenant, mob_id))

    def mobs(self, tenant: str, limit: int, *, after: str | None = None) -> list[Mob]:
        return self._read(lambda uow: stored_sessions.mobs(uow.session, uow.report, tenant, limit, after))

    def delete_mob(self, tenant: str, mob_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        def delete(uow: UnitOfWork) -> list[str] | None:
            users = session_rules.delete_mob(uow, tenant, mob_id)
            return users or _noted(uow, tenant, users, note)

        return self._write_locked({tenant}, delete)

    def set_halt(self, halt: Halt, *, most: int, note: AuditEntry | None = None) -> int | None:
        def put(uow: UnitOfWork) -> int | None:
            return _noted(uow, halt.tenant, halt_rules.set_halt(uow, halt, most), note)

        return self._write_locked({halt.tenant}, put, notify=True, stops_starts=True)

    def lift_halt(self, tenant: str, halt_id: str, *, note: AuditEntry | None = None) -> Halt | None:
        return self._write_locked({tenant}, lambda uow: _noted(uow, tenant, uow.delete_halt(tenant, halt_id), note))

    def add_page_session(self, session: PageSession, *, most: int, used_since: Micros, created_since: Micros) -> None:
        self._write_unlocked(
            lambda uow: page_sessions.add(
                uow.session, session, most=most, used_since=used_since, created_since=created_since
            )
        )

    def find_page_session(self, digest: str) -> PageSession | None:
        return self._autocommit(lambda uow: page_sessions.find(uow.session, digest))

    def use_page_session(self, digest: str, used: Micros) -> None:
        self._write_unlocked(lambda uow: page_sessions.use(uow.session, digest, used))

    def delete_page_session(self, digest: str) -> None:
        self._write_unlocked(lambda uow: page_sessions.delete(uow.session, digest))

    def delete_page_sessions(self, key_id: str) -> int:
        return self._write_unlocked(lambda uow: page_sessions.delete_all(uow.session, key_id))

    def halts(self, tenant: str | None = None) -> list[Halt]:
        return self._autocommit(lambda uow: stored_halts.read(uow.session, uow.report, tenant))

    def put_proposal(self, proposal: Proposal, *, most: int, note: AuditEntry) -> bool:
        def put(uow: UnitOfWork) -> bool:
            return proposal_rules.put(uow, proposal, most=most, note=note)

        return self._write_locked({proposal.owner.tenant}, put, notify=True)

    def proposal(self, tenant: str, schedule_id: str) -> Proposal | None:
        return self._autocommit(lambda uow: uow.proposals.find(tenant, schedule_id))

    def proposals(
        self, tenant: str, limit: int, *, after: tuple[Micros, str] | None = None, user: str | None = None
    ) -> list[Proposal]:
        return self._autocommit(lambda uow: uow.proposals.page(tenant, limit, after=after, user=user))

    def deny_change(self, tenant: str, schedule_id: str, proposal_id: str, *, note: AuditEntry) -> bool:
        def deny(uow: UnitOfWork) -> bool:
            return proposal_rules.deny_change(uow, tenant, schedule_id, proposal_id, note)

        return self._write_locked({tenant}, deny, notify=True)

    def expire_proposals(self, *, now: Micros, limit: int) -> int:
        expired = self._autocommit(lambda uow: uow.proposals.expired(now, limit))
        if expired:
            tenants = {one.owner.tenant for one in expired}
            self._write_locked(tenants, lambda uow: plan_writes.expire_proposals(uow, expired, now=now), notify=True)
        return len(expired)

    def put_budget(self, budget: Budget, *, note: AuditEntry | None = None) -> Standing:
        def put(uow: UnitOfWork) -> Standing:
            standing = budget_rules.put(uow, budget)
            _noted(uow, budget.tenant, standing, note)
            return standing

        return self._write_locked({budget.tenant}, put)

    def delete_budget(
        self, tenant: str, scope: BudgetScope, scope_id: str, period: Period, *, note: AuditEntry | None = None
    ) -> bool:
        def delete(uow: UnitOfWork) -> bool:
            is_deleted = budget_rules.delete(uow, (tenant, scope, scope_id, period))
            return _noted(uow, tenant, is_deleted or None, note) is not None

        return self._write_locked({tenant}, delete)

    def budgets(
        self,
        tenant: str,
        limit: int,
        *,
        scope: BudgetScope | None = None,
        scope_id: str | None = None,
        after: tuple[str, str, str] | None = None,
    ) -> list[Standing]:
        return self._read(lambda uow: uow.budgets.page(tenant, limit, scope, scope_id, after))

    def reserve(self, reservations: Sequence[Reservation]) -> list[Reserved | Refused]:
        tenants = {one.tenant for one in reservations}
        return self._write_locked(tenants, lambda uow: budget_rules.reserve_all(uow, reservations))

    def settle_calls(self, settled: Sequence[Settled]) -> list[bool]:
        tenants = {one.tenant for one in settled}
        return self._write_locked(tenants, lambda uow: budget_rules.settle_all(uow, settled))

    def give_back(self, tenant: str, call_ids: Sequence[str]) -> None:
        self._write_locked({tenant}, lambda uow: budget_rules.give_back(uow, tenant, call_ids))

    def provider_failed(self, tenant: str, user: str) -> None:
        self._write_locked({tenant}, lambda uow: budget_rules.provider_failed(uow, tenant, user))

    def record_usage(self, records: Sequence[UsageRecord]) -> list[bool]:
        tenants = {one.tenant for one in records}
        return self._write_locked(tenants, lambda uow: budget_rules.record_all(uow, records))

    def run_usage(self, occurrence_id: str) -> Usage | None:
        return self._autocommit(lambda uow: budgets.run_usage(uow.session, occurrence_id))

    def usage(  # noqa: PLR0913 - as the port has it
        self,
        tenant: str,
        by: UsageBy,
        *,
        since: Micros,
        until: Micros,
        limit: int,
        user: str | None = None,
        schedule_id: str | None = None,
    ) -> list[UsageGroup]:
        return self._autocommit(
            lambda uow: budgets.usage(
                uow.session,
                tenant,
                by,
                since=since,
                until=until,
                limit=limit,
                user=user,
                schedule_id=schedule_id,
            )
        )

    def costs_of_runs(self, uid: str, limit: int) -> list[int | None]:
        return self._autocommit(lambda uow: budgets.costs_of_runs(uow.session, uid, limit))

    def spenders(self, *, since: Micros, above: int, limit: int) -> list[tuple[str, str]]:
        return self._autocommit(lambda uow: budgets.spenders(uow.session, since=since, above=above, limit=limit))

    def spend_by_hour(self, tenant: str, schedule_id: str, *, since: Micros, until: Micros) -> list[int]:
        return self._autocommit(
            lambda uow: budgets.spend_by_hour(uow.session, tenant, schedule_id, since=since, until=until)
        )

    def prune_usage(self, *, before: Micros, limit: int) -> int:
        return self._write_unlocked(lambda uow: budgets.prune(uow.session, before=before, limit=limit))

    def take_tokens(self, name: str, limit: RateLimit, wanted: int) -> Taken:
        return self._write_locked({f"bucket {name}"}, lambda uow: uow.take_tokens(name, limit, wanted))

    def set_aside(self, uid: str, problem: str) -> None:
        self._write_unlocked(lambda uow: uow.session.execute(_SET_ASIDE, problem, uid))
        self._schedule_cache.damage.note("schedule_states", uid, problem)

    def inspect(self, after: Position | None = None, *, limit: int) -> Inspected:
        page = self._read(lambda uow: inspection.inspect(uow, after, limit))
        for cell in page.damaged:
            if cell.column != "fault":  # that was reported when it was set
                self._schedule_cache.damage.note(cell.table, cell.key, f"{cell.column} {cell.problem}")
        return page

    def damage(self) -> Mapping[str, int]:
        return self._schedule_cache.damage.counts()

    def own_key(self) -> bytes:
        key = self._read(lambda uow: secret_store.find_own_key(uow.session))
        if key is None:
            return self._write_locked({secret_store.NOBODY}, lambda uow: secret_store.draw_own_key(uow.session))
        return key


def _end_alone(uow: UnitOfWork, keys: Sequence[int]) -> None:
    claims.end_orphan_rows(uow.session, keys)


def _noted(uow: UnitOfWork, tenant: str, changed: T | None, note: AuditEntry | None) -> T | None:
    """Add an audit entry, if a secret or a key was changed."""
    if changed is not None and note is not None:
        uow.add_audit_entry(tenant, note)
    return changed


def _note_fault(uow: UnitOfWork, *, fault: tuple[int, str]) -> None:
    uow.session.update("schedule_states", ("schedule", "fault"), [fault])
