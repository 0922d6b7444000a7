"""The memory store."""

from __future__ import annotations

from functools import wraps
from heapq import nlargest
from threading import RLock
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from noonmark.core.instants import MIN_INSTANT
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.pipeline_ownership import PREFIX
from noonmark.ports.records import Condition, Graph, Inspected, KeyRecord, Renewal, StoreTraits
from noonmark.stores import fork_safety
from noonmark.stores.grouped_creates import create_one_by_one
from noonmark.stores.memory import claims, clock_repair, history, marks, schedule_lists, workload
from noonmark.stores.memory.due_index import take
from noonmark.stores.memory.unit_of_work import UnitOfWork
from noonmark.stores.rules import admission, backfills, dependencies, leases, plan_writes, snapshots, system_events
from noonmark.stores.rules import budgets as budget_rules
from noonmark.stores.rules import events as event_rules
from noonmark.stores.rules import halts as halt_rules
from noonmark.stores.rules import proposals as proposal_rules
from noonmark.stores.rules import sessions as session_rules
from noonmark.stores.rules import workflows as workflow_rules
from noonmark.stores.rules.records import REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import ExitStack

    from noonmark.core.admission import Admission, Busy, Claim
    from noonmark.core.agents.session import Message, Mob, Session, SessionState
    from noonmark.core.api_key import ApiKey
    from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Refused, Reservation, Reserved, Standing
    from noonmark.core.budgets.spend import Usage
    from noonmark.core.causation import Reaction, UnmatchedEvent
    from noonmark.core.event import Event
    from noonmark.core.halt import Halt
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
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
        Heartbeat,
        Horizons,
        Leadership,
        Lease,
        LeaseLost,
        MarkCount,
        MarkScope,
        NodeRecord,
        OccurrenceFilter,
        PageKey,
        Position,
        ScheduleFilter,
        Shares,
        Span,
        StoredSchedule,
        TrendPoint,
        Workload,
    )
    from noonmark.ports.sessions import Turn
    from noonmark.ports.workflows import Approval, ApprovalState, StepWrites, UsedKind, WorkflowVersion
    from noonmark.stores.memory.due_index import DueIndex, WaitQueues

P = ParamSpec("P")
T = TypeVar("T")


def atomic(verb: Callable[Concatenate[MemoryStore, P], T]) -> Callable[Concatenate[MemoryStore, P], T]:
    """Hold the lock during a method, then update the indexes and publish the system events."""

    @wraps(verb)
    def locked(self: MemoryStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            answer = verb(self, *args, **kwargs)
            self._uow.write()
            if self._uow.facts or self._uow.crossed or self._uow.system_events:
                system_events.publish(self._uow)
            return answer

    return locked


class MemoryStore:
    """Loses everything when the process ends. Any thread may call a method; a lock makes each one atomic."""

    def __init__(self, clock: Callable[[], Micros]) -> None:
        """Leases end by this clock."""
        self._uow = UnitOfWork(clock)
        self._lock = RLock()
        fork_safety.watch(self)

    @property
    def traits(self) -> StoreTraits:
        return StoreTraits(is_durable=False, blocks=False, is_in_process=True)

    def before_fork(self, until: ExitStack) -> None:
        """Wait until no method is running, so that the copy of the child is consistent."""
        self._lock.acquire()
        until.callback(self._lock.release)

    def after_fork(self) -> None:
        """Use a new lock in the child."""
        self._lock = RLock()

    def open(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - there are no others
        return _do_nothing

    @atomic
    def clock(self) -> Micros:
        return self._uow.now()

    def wants_timed_uids(self) -> bool:
        return False

    @atomic
    def create(self, plans: Sequence[Plan]) -> list[bool]:
        return plan_writes.create_all(self._uow, plans)

    def create_each(self, plans: Sequence[Plan]) -> list[bool | Exception]:
        return create_one_by_one(plans, self.create)

    @atomic
    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        uow = self._uow
        graph: dict[str, tuple[str, ...]] = {}
        unread = list(schedule_ids)
        while unread:
            uid = uow.ids.get((tenant, schedule_id := unread.pop()))
            if uid is not None and schedule_id not in graph:
                graph[schedule_id] = uow.entries[uid].upstreams
                unread += graph[schedule_id]
        return Graph(version=uow.graph_version(tenant), upstreams=graph)

    @atomic
    def snapshot(self, uid: str) -> Snapshot | None:
        return snapshots.by_uid(self._uow, uid)

    @atomic
    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        uow = self._uow
        entries = [uow.entries[uid] for uid in take([(uow.plans, now)], limit)]
        for entry in entries:
            uow.file_plan(entry)  # `take` removes, and reading must change nothing
        return snapshots.snapshots(uow, [(entry.state, entry.schedule) for entry in entries])

    @atomic
    def take_tokens(self, name: str, limit: RateLimit, wanted: int) -> Taken:
        return self._uow.take_tokens(name, limit, wanted)

    @atomic
    def set_aside(self, uid: str, problem: str) -> None:
        if (entry := self._uow.entries.get(uid)) is not None:
            entry.state.fault = problem
            self._uow.changed_state(entry.state)

    def inspect(self, after: Position | None = None, *, limit: int) -> Inspected:  # noqa: ARG002 - as the port has it
        return Inspected()

    def condition(self) -> Condition:
        return Condition(kind="memory")

    def damage(self) -> Mapping[str, int]:
        return {}

    @atomic
    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        return plan_writes.commit_all(self._uow, plans)

    @atomic
    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        return plan_writes.commit_change(self._uow, uid, decide)

    @atomic
    def add(self, occurrences: Sequence[Occurrence], *, limits: Sequence[Quota] = ()) -> list[bool]:
        return plan_writes.add_all(self._uow, occurrences, limits)

    @atomic
    def emit(self, tenant: str, events: Sequence[Event], *, user: str = "", limits: Sequence[Quota] = ()) -> list[bool]:
        return event_rules.emit(self._uow, tenant, events, user=user, limits=limits)

    @atomic
    def unmatched(self, limit: int) -> list[UnmatchedEvent]:
        return event_rules.unmatched(self._uow, limit)

    @atomic
    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        return event_rules.commit(self._uow, reactions)

    @atomic
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
        uow, route_set = self._uow, set(routes)
        now = min(now, uow.now())
        if only is not None:
            rows = claims.only_due(uow, only, route_set, now=now, until=until)[:limit]
        elif shares is not None:
            rows = claims.due_in_turn(uow, route_set, shares, now=now, until=until, limit=limit)
        else:
            rows = claims.due(uow, route_set, now=now, until=until, limit=limit)
        end = uow.lease_end(now, lease)
        return [claims.lease(uow, row, node, now=now, until=end) for row in rows]

    @atomic
    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        with self._uow.fixed_subscriptions():
            return admission.admit_all(self._uow, admissions, now=now, lease=lease)

    @atomic
    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        return dependencies.of_claims(self._uow, claims)

    @atomic
    def renew(self, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
        held = admission.held_rows(self._uow, holds)
        for row in held.values():
            row.lease_end = self._uow.lease_end(now, lease)
            self._uow.changed(row)
        stop = {one: reason for one, row in held.items() if (reason := REASONS[row.stop]) is not None}
        return Renewal(lost=frozenset(hold.occurrence_id for hold in holds) - held.keys(), stop=stop)

    @atomic
    def release(self, holds: Sequence[Lease]) -> None:
        admission.release(self._uow, holds)

    @atomic
    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        with self._uow.fixed_subscriptions():
            return admission.settle_all(self._uow, settlements)

    @atomic
    def progress(self, interims: Sequence[Interim]) -> list[bool]:
        return history.store_progress(self._uow, interims)

    @atomic
    def request_stop(self, occurrence_id: str) -> bool:
        return admission.request_stop(self._uow, occurrence_id)

    @atomic
    def backfills(self, uid: str) -> list[BackfillProgress]:
        return backfills.progress(history.backfill_counts(self._uow, uid))

    @atomic
    def change_backfill(self, uid: str, backfill_id: str, change: BackfillChange, why: Pause | None = None) -> int:
        return backfills.change(self._uow, uid, backfill_id, change, why)

    @atomic
    def cancel(self, occurrence_id: str) -> bool:
        return admission.cancel(self._uow, occurrence_id)

    @atomic
    def routes(self, source: str) -> list[str]:
        stored = [entry.schedule for entry in self._uow.entries.values()]
        here = [one for one in stored if one.source == source and one.phase is not SchedulePhase.DELETED]
        return sorted({one.declaration.target.route for one in here})

    @atomic
    def pipeline_schedules(self, tenant: str, limit: int) -> list[Schedule]:
        schedules = [self._uow.entries[uid].schedule for _, _, uid in self._uow.listed.get(tenant, [])]
        here = [one for one in schedules if one.schedule_id.startswith(PREFIX)]
        return sorted(here, key=lambda schedule: schedule.schedule_id)[:limit]

    @atomic
    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        self._uow.nodes.beat(beat, now=now)

    @atomic
    def leave(self, node: str) -> None:
        self._uow.nodes.leave(node, now=self._uow.now())

    @atomic
    def nodes(self) -> list[NodeRecord]:
        return self._uow.nodes.records(now=self._uow.now())

    @atomic
    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        tenants = self._uow.subscribed_tenants(event.event_type)
        return system_events.publish_lost_node(self._uow, node, seen, event, tenants)

    @atomic
    def expire_leases(self, node: str, process_lock: str) -> int:
        return leases.expire(self._uow, node, process_lock)

    @atomic
    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        return self._uow.nodes.lead(node, now=now, lease=lease)

    @atomic
    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        uow = self._uow
        rows = claims.unserved(uow, now=min(now, uow.now()), limit=limit)
        return [claims.lease(uow, row, node, now=now, until=uow.lease_end(now, lease)) for row in rows]

    @atomic
    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        uow = self._uow
        rows = [uow.rows[one] for one in take([(uow.deadlines, now)], limit)]
        for row in rows:
            uow.file(row)  # `take` removes, and reading must change nothing
        return [uow.occurrence_of(row) for row in rows]

    @atomic
    def changed_by_others(self, reader: str = "") -> bool:  # noqa: ARG002 - there are no others
        return False

    @atomic
    def recent_changes(self, since: Micros, limit: int) -> list[StoredChange]:  # noqa: ARG002 - likewise
        return []

    @atomic
    def next_time(self, routes: Collection[str], *, lookahead: Micros = 0) -> Micros | None:
        uow, route_set = self._uow, set(routes)
        ready = self._first_time([uow.ready[route] for route in route_set & uow.ready.keys()])
        leases = [uow.leases[route] for route in route_set & uow.leases.keys()]
        times = [
            None if ready is None else ready - lookahead,
            self._first_time([uow.plans, uow.deadlines, *leases]),
            None if uow.events.behind.first() is None else MIN_INSTANT,
        ]
        return min((time for time in times if time is not None), default=None)

    @atomic
    def backlog(self, now: Micros, limit: int) -> Backlog:
        return claims.backlog(self._uow, now=now, limit=limit)

    @atomic
    def workload(self, *, now: Micros, limit: int, tenant: str | None = None) -> Workload:
        return workload.workload(self._uow, now=now, limit=limit, tenant=tenant)

    @atomic
    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        return history.prune(self._uow, before=before, keep=keep, limit=limit)

    @atomic
    def newest_time(self, before: Micros | None = None) -> Micros | None:
        return clock_repair.newest_time(self._uow, before)

    @atomic
    def due_since(self, routes: Collection[str]) -> Micros | None:
        return self._first_time(self._indexes(routes))

    @atomic
    def planned_ahead(self, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
        return clock_repair.planned_ahead(self._uow, now=now, until=until, after=after, limit=limit)

    @atomic
    def repair(self, *, now: Micros, after: Micros, lease: Micros) -> int:
        return clock_repair.repair(self._uow, now=now, after=after, lease=lease)

    @atomic
    def find(self, tenant: str, schedule_id: str, *, deleted: bool = False) -> StoredSchedule | None:
        uid = self._uow.ids.get((tenant, schedule_id))
        if uid is None and deleted:
            uid = self._uow.last_deleted.get((tenant, schedule_id))
        return None if uid is None else self.find_uid(uid)

    @atomic
    def find_uid(self, uid: str) -> StoredSchedule | None:
        entry = self._uow.entries.get(uid)
        return None if entry is None else entry.to_stored(self._uow.now())

    @atomic
    def find_uids(self, uids: Collection[str]) -> dict[str, StoredSchedule]:
        entries, now = self._uow.entries, self._uow.now()
        return {uid: entries[uid].to_stored(now) for uid in uids if uid in entries}

    @atomic
    def find_named(self, tenant: str, user: str, name: str) -> StoredSchedule | None:
        same_name = self._uow.names.get((tenant, user, name))
        return self.find_uid(same_name[0][1]) if same_name else None

    @atomic
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
        wanted = wanted or schedule_lists.ANY
        return schedule_lists.page(
            self._uow, tenant, wanted, after=after, limit=limit, deleted=deleted, newest_first=newest_first
        )

    @atomic
    def count_schedules(self, tenant: str, wanted: ScheduleFilter | None = None, *, deleted: bool = False) -> int:
        return schedule_lists.count(self._uow, tenant, wanted or schedule_lists.ANY, deleted=deleted)

    @atomic
    def count_phases(self, tenant: str, user: str | None = None) -> dict[SchedulePhase, int]:
        return marks.count_phases(self._uow, tenant, user)

    @atomic
    def tenants(self, limit: int) -> list[str]:
        return sorted(tenant for tenant, listed in self._uow.listed.items() if listed)[:limit]

    @atomic
    def count_waiting(self, tenant: str, user: str | None = None) -> int:
        return self._uow.count_waiting(tenant, user)

    def count_places(self, tenant: str, key: str) -> int:
        concurrency_key = self._uow.keys.get((tenant, key))
        return 0 if concurrency_key is None else concurrency_key.taken

    @atomic
    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        row = self._uow.rows.get(occurrence_id)
        return None if row is None else self._uow.occurrence_of(row)

    @atomic
    def occurrences(
        self, uid: str, limit: int | None = None, *, before: PageKey | None = None, phases: Collection[Phase] = ()
    ) -> list[Occurrence]:
        return history.occurrences(self._uow, uid, limit, before, phases)

    @atomic
    def search(
        self, tenant: str, wanted: OccurrenceFilter, limit: int, *, before: PageKey | None = None
    ) -> FoundOccurrences:
        return history.search(self._uow, tenant, wanted, limit, before)

    @atomic
    def marks(self, scope: MarkScope, span: Span, limit: int) -> list[Mark]:
        return marks.marks(self._uow, scope, span, limit)

    @atomic
    def count_marks(self, scope: MarkScope, span: Span, width: Micros) -> list[MarkCount]:
        return marks.count(self._uow, scope, span, width)

    @atomic
    def last_marks(self, uids: Sequence[str], limit: int, *, now: Micros) -> dict[str, list[Mark]]:
        return marks.last(self._uow, uids, limit, now=now)

    @atomic
    def trend(self, uid: str, edges: Sequence[Micros], *, now: Micros) -> list[TrendPoint]:
        return marks.trend(self._uow, uid, edges, now=now)

    @atomic
    def lateness(self, scope: MarkScope, span: Span, percent: int) -> Micros | None:
        return marks.lateness(self._uow, scope, span, percent)

    @atomic
    def horizons(self, scope: MarkScope, *, until: Micros, limit: int) -> Horizons:
        return marks.horizons(self._uow, scope, until=until, limit=limit)

    @atomic
    def known(self, occurrence_ids: Collection[str]) -> set[str]:
        return {occurrence_id for occurrence_id in occurrence_ids if occurrence_id in self._uow.rows}

    @atomic
    def occurrences_at(self, uid: str, time: Micros, limit: int) -> list[Occurrence]:
        return history.occurrences_at(self._uow, uid, time, limit)

    @atomic
    def runs(self, uid: str, limit: int | None = None, *, before: PageKey | None = None) -> list[Run]:
        return history.runs(self._uow, uid, limit, before)

    @atomic
    def occurrence_runs(self, occurrence_id: str) -> list[Run]:
        row = self._uow.rows.get(occurrence_id)
        runs = [] if row is None else history.runs_of(self._uow, row)
        return sorted(runs, key=lambda run: (run.started, run.id), reverse=True)

    @atomic
    def last_runs(self, occurrence_ids: Sequence[str]) -> dict[str, Run]:
        rows = [row for one in occurrence_ids if (row := self._uow.rows.get(one)) is not None]
        return {row.id: run for row in rows if (run := history.last_run(self._uow, row)) is not None}

    @atomic
    def run(self, run_id: str) -> tuple[str, Run] | None:
        row = self._uow.rows.get(run_id.rpartition("-")[0])
        if row is None:
            return None
        uid = self._uow.state_of(row).uid
        return next(((uid, run) for run in history.runs_of(self._uow, row) if run.id == run_id), None)

    @atomic
    def activities(self, uids: Sequence[str]) -> list[Activity]:
        return [history.activity(self._uow, uid) for uid in uids]

    @atomic
    def events(
        self, tenant: str, limit: int, *, before: Micros | None = None, event_type: str | None = None
    ) -> list[Event]:
        return self._uow.events.newest(tenant, limit, before, event_type)

    @atomic
    def event(self, tenant: str, event_id: str) -> Event | None:
        return self._uow.events.find(tenant, event_id)

    @atomic
    def prune_events(self, *, before: Micros, keep: int, limit: int) -> int:
        return self._uow.events.prune(before=before, keep=keep, limit=limit)

    @atomic
    def add_audit_entries(self, tenant: str, entries: Sequence[AuditEntry]) -> None:
        for entry in entries:
            self._uow.audit_log.add(tenant, entry)

    @atomic
    def audit_entries(
        self,
        tenant: str,
        limit: int,
        *,
        before: int | None = None,
        schedule_id: str | None = None,
        changes: bool = False,
    ) -> list[AuditEntry]:
        return self._uow.audit_log.newest(tenant, limit, before, schedule_id, changes=changes)

    @atomic
    def prune_audit_entries(self, *, before: Micros, limit: int) -> int:
        return self._uow.audit_log.prune_audit_entries(before, limit)

    @atomic
    def claim_key(self, tenant: str, key: str, fingerprint: str, *, now: Micros, lifetime: Micros) -> KeyRecord:
        fresh = KeyRecord(fingerprint=fingerprint, created=now)
        return self._uow.audit_log.claim_key(tenant, key, fresh, now - lifetime)

    @atomic
    def prune_keys(self, *, before: Micros, limit: int) -> int:
        return self._uow.audit_log.prune_keys(before, limit)

    @atomic
    def put_secret(self, tenant: str, secret: Secret, *, most: int, note: AuditEntry | None = None) -> Secret | None:
        return self._noted(tenant, self._uow.secrets.put(tenant, secret, most), note)

    @atomic
    def secrets(self, tenant: str) -> list[Secret]:
        return self._uow.secrets.every(tenant)

    @atomic
    def find_secrets(self, tenant: str, names: Collection[str]) -> list[Secret]:
        return [secret for secret in self._uow.secrets.every(tenant) if secret.name in names]

    @atomic
    def forget_secret(self, tenant: str, name: str, *, note: AuditEntry | None = None) -> Secret | None:
        return self._noted(tenant, self._uow.secrets.delete(tenant, name), note)

    @atomic
    def own_key(self) -> bytes:
        return self._uow.secrets.own_key

    @atomic
    def has_api_keys(self) -> bool:
        return bool(self._uow.api_keys)

    @atomic
    def keep_api_key(self, key: ApiKey, *, most: int, note: AuditEntry | None = None) -> bool:
        return self._noted(key.acts_for, self._uow.api_keys.add(key, most) or None, note) is not None

    @atomic
    def find_api_key(self, key_id: str) -> ApiKey | None:
        return self._uow.api_keys.find(key_id)

    @atomic
    def api_keys(self, tenant: str | None, limit: int, *, after: tuple[Micros, str] | None = None) -> list[ApiKey]:
        return self._uow.api_keys.page(tenant, limit, after)

    @atomic
    def revoke_api_key(
        self, key_id: str, *, at: Micros, successor: ApiKey | None = None, note: AuditEntry | None = None
    ) -> ApiKey | None:
        revoked = self._uow.api_keys.revoke(key_id, at, successor)
        return None if revoked is None else self._noted(revoked.acts_for, revoked, note)

    @atomic
    def use_api_keys(self, used: Mapping[str, Micros]) -> None:
        self._uow.api_keys.use(used)

    @atomic
    def add_bundle_chunk(
        self, tenant: str, content_id: str, number: int, data: bytes, *, limits: Sequence[Quota] = ()
    ) -> None:
        self._uow.bundles.add_chunk(tenant, content_id, number, data, limits, self._uow.now())

    @atomic
    def bundle_chunk(self, tenant: str, content_id: str, number: int) -> bytes | None:
        return self._uow.bundles.chunk(tenant, content_id, number)

    @atomic
    def keep_bundle(self, bundle: Bundle, *, note: AuditEntry | None = None) -> Bundle | None:
        return self._noted(bundle.tenant, self._uow.bundles.keep(bundle, self._uow.now()), note)

    @atomic
    def drop_bundle_push(self, tenant: str, content_id: str) -> None:
        self._uow.bundles.drop(tenant, content_id)

    @atomic
    def find_bundle(self, tenant: str, bundle_id: str | None = None, *, digest: str | None = None) -> Bundle | None:
        return self._uow.bundles.find(tenant, bundle_id, digest)

    @atomic
    def bundles(self, tenant: str, limit: int, *, after: str | None = None) -> list[Bundle]:
        return self._uow.bundles.page(tenant, limit, after)

    @atomic
    def bundle_versions(self, tenant: str, bundle_id: str, limit: int) -> list[Bundle]:
        return self._uow.bundles.versions(tenant, bundle_id)[:limit]

    @atomic
    def delete_bundle(self, tenant: str, bundle_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        used = self._uow.bundles.delete(tenant, bundle_id)
        return self._noted(tenant, used, note) if used == [] else used

    @atomic
    def bundle_bytes(self, tenant: str) -> int:
        return self._uow.bundles.bytes(tenant)

    @atomic
    def prune_bundles(self, *, before: Micros, unfinished_before: Micros, limit: int) -> int:
        return self._uow.bundles.prune(before=before, unfinished_before=unfinished_before, limit=limit)

    @atomic
    def put_workflow(
        self,
        version: WorkflowVersion,
        *,
        version_number: int | None = None,
        most: int | None = None,
        note: AuditEntry | None = None,
    ) -> WorkflowVersion | None:
        stored = workflow_rules.put_version(self._uow, version, version_number, most)
        return self._noted(version.tenant, stored, note)

    @atomic
    def workflow(
        self, tenant: str, workflow_id: str, version: int | None = None, *, deleted: bool = False
    ) -> WorkflowVersion | None:
        return self._uow.workflows.version(tenant, workflow_id, version, deleted=deleted)

    @atomic
    def workflows(self, tenant: str, limit: int, *, after: str | None = None) -> list[WorkflowVersion]:
        return self._uow.workflows.newest(tenant, limit, after)

    @atomic
    def workflow_versions(
        self, tenant: str, workflow_id: str, limit: int, *, before: int | None = None
    ) -> list[WorkflowVersion]:
        return self._uow.workflows.versions(tenant, workflow_id, limit, before)

    @atomic
    def delete_workflow(self, tenant: str, workflow_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        users = workflow_rules.delete(self._uow, tenant, workflow_id)
        return users or self._noted(tenant, users, note)

    @atomic
    def schedules_using(self, tenant: str, kind: UsedKind, name: str, limit: int) -> list[str]:
        return self._uow.workflows.schedules_using(tenant, kind, name, limit)

    @atomic
    def commit_steps(self, writes: Sequence[StepWrites]) -> list[bool]:
        return workflow_rules.commit_steps(self._uow, writes)

    @atomic
    def workflow_run(self, occurrence_id: str) -> tuple[WorkflowRun, list[StepRecord]] | None:
        row = self._uow.rows.get(occurrence_id)
        return None if row is None else self._uow.workflows.run(row)

    @atomic
    def open_steps(self, occurrence_ids: Collection[str]) -> dict[str, list[StepRecord]]:
        rows = [row for one in occurrence_ids if (row := self._uow.rows.get(one)) is not None]
        return {row.id: ended for row in rows if (ended := self._uow.workflows.ended_elsewhere(row))}

    @atomic
    def workflow_runs(
        self,
        tenant: str,
        limit: int,
        *,
        workflow_id: str | None = None,
        phases: Collection[Phase] = (),
        before: PageKey | None = None,
    ) -> list[tuple[WorkflowRun, Occurrence]]:
        runs = self._uow.workflows.runs(tenant, limit, workflow_id, phases, before)
        return [(run, self._uow.occurrence_of(row)) for run, row in runs]

    @atomic
    def approvals(
        self, tenant: str, limit: int, *, state: ApprovalState | None = None, before: PageKey | None = None
    ) -> list[Approval]:
        return self._uow.workflows.approvals(tenant, limit, state, before)

    @atomic
    def approval(self, tenant: str, approval_id: str) -> Approval | None:
        return self._uow.workflows.approval(tenant, approval_id)

    @atomic
    def decide_approval(
        self, tenant: str, approval_id: str, *, approved: bool, by: str, comment: str | None = None
    ) -> Approval | None:
        return workflow_rules.decide_approval(self._uow, tenant, approval_id, approved=approved, by=by, comment=comment)

    @atomic
    def put_session(self, session: Session, *, most: int | None = None, note: AuditEntry | None = None) -> bool | None:
        is_new = session_rules.put(self._uow, session, most)
        return self._noted(session.tenant, is_new or None, note) or is_new

    @atomic
    def session(self, tenant: str, session_id: str) -> Session | None:
        return session_rules.get(self._uow, tenant, session_id)

    @atomic
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
    ) -> list[Session]:
        return self._uow.sessions.page(
            tenant, limit, user=user, state=state, labels=labels, mob_id=mob_id, before=before
        )

    @atomic
    def begin_turn(self, turn: Turn, messages: Sequence[Message] = ()) -> Session | None:
        return session_rules.begin_turn(self._uow, turn, messages)

    @atomic
    def append_messages(
        self, turn: Turn, messages: Sequence[Message], *, settles: Sequence[Settled] = ()
    ) -> list[Message] | None:
        return session_rules.append(self._uow, turn, messages, settles)

    @atomic
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
        return self._uow.sessions.messages(
            tenant,
            session_id,
            limit,
            after=after,
            before=before,
            occurrence_id=occurrence_id,
            newest_first=newest_first,
        )

    @atomic
    def set_session_state(
        self, tenant: str, session_id: str, state: SessionState, *, note: AuditEntry | None = None
    ) -> Session | None:
        return self._noted(tenant, session_rules.set_state(self._uow, tenant, session_id, state), note)

    @atomic
    def delete_session(self, tenant: str, session_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        users = session_rules.delete(self._uow, tenant, session_id)
        return users or self._noted(tenant, users, note)

    @atomic
    def prune_sessions(self, *, before: Micros, max_bytes: int, limit: int) -> int:
        return self._uow.sessions.prune(before=before, max_bytes=max_bytes, limit=limit)

    @atomic
    def put_mob(self, mob: Mob, sessions: Sequence[Session], *, note: AuditEntry | None = None) -> bool:
        is_new = session_rules.put_mob(self._uow, mob, sessions)
        return self._noted(mob.tenant, is_new or None, note) is not None

    @atomic
    def mob(self, tenant: str, mob_id: str) -> Mob | None:
        return self._uow.sessions.find_mob(tenant, mob_id)

    @atomic
    def mobs(self, tenant: str, limit: int, *, after: str | None = None) -> list[Mob]:
        return self._uow.sessions.mobs(tenant, limit, after)

    @atomic
    def delete_mob(self, tenant: str, mob_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        users = session_rules.delete_mob(self._uow, tenant, mob_id)
        return users or self._noted(tenant, users, note)

    def _noted(self, tenant: str, changed: T | None, note: AuditEntry | None) -> T | None:
        """Add an audit entry, if a secret or a key was changed."""
        if changed is not None and note is not None:
            self._uow.audit_log.add(tenant, note)
        return changed

    def _indexes(self, routes: Collection[str]) -> list[DueIndex[str] | WaitQueues]:
        """The due indexes of the rows that can be claimed for some routes."""
        uow, route_set = self._uow, set(routes)
        indexes: list[DueIndex[str] | WaitQueues] = [uow.ready[route] for route in route_set & uow.ready.keys()]
        return [*indexes, *(uow.leases[route] for route in route_set & uow.leases.keys())]

    def _first_time(self, indexes: Sequence[DueIndex[str] | WaitQueues]) -> Micros | None:
        return min((first[0] for one in indexes if (first := one.first()) is not None), default=None)

    @atomic
    def set_halt(self, halt: Halt, *, most: int, note: AuditEntry | None = None) -> int | None:
        return self._noted(halt.tenant, halt_rules.set_halt(self._uow, halt, most), note)

    @atomic
    def lift_halt(self, tenant: str, halt_id: str, *, note: AuditEntry | None = None) -> Halt | None:
        return self._noted(tenant, self._uow.delete_halt(tenant, halt_id), note)

    @atomic
    def add_page_session(self, session: PageSession, *, most: int, used_since: Micros, created_since: Micros) -> None:
        self._uow.page_sessions.add(session, most=most, used_since=used_since, created_since=created_since)

    @atomic
    def find_page_session(self, digest: str) -> PageSession | None:
        return self._uow.page_sessions.find(digest)

    @atomic
    def use_page_session(self, digest: str, used: Micros) -> None:
        self._uow.page_sessions.use(digest, used)

    @atomic
    def delete_page_session(self, digest: str) -> None:
        self._uow.page_sessions.delete(digest)

    @atomic
    def delete_page_sessions(self, key_id: str) -> int:
        return self._uow.page_sessions.delete_all(key_id)

    @atomic
    def halts(self, tenant: str | None = None) -> list[Halt]:
        return list(self._uow.all_halts) if tenant is None else self._uow.halts(tenant)

    @atomic
    def put_proposal(self, proposal: Proposal, *, most: int, note: AuditEntry) -> bool:
        return proposal_rules.put(self._uow, proposal, most=most, note=note)

    @atomic
    def proposal(self, tenant: str, schedule_id: str) -> Proposal | None:
        return self._uow.proposals.find(tenant, schedule_id)

    @atomic
    def proposals(
        self, tenant: str, limit: int, *, after: tuple[Micros, str] | None = None, user: str | None = None
    ) -> list[Proposal]:
        return self._uow.proposals.page(tenant, limit, after=after, user=user)

    @atomic
    def deny_change(self, tenant: str, schedule_id: str, proposal_id: str, *, note: AuditEntry) -> bool:
        return proposal_rules.deny_change(self._uow, tenant, schedule_id, proposal_id, note)

    @atomic
    def expire_proposals(self, *, now: Micros, limit: int) -> int:
        expired = self._uow.proposals.expired(now, limit)
        plan_writes.expire_proposals(self._uow, expired, now=now)
        return len(expired)

    @atomic
    def put_budget(self, budget: Budget, *, note: AuditEntry | None = None) -> Standing:
        standing = budget_rules.put(self._uow, budget)
        if note is not None:
            self._uow.add_audit_entry(budget.tenant, note)
        return standing

    @atomic
    def delete_budget(
        self, tenant: str, scope: BudgetScope, scope_id: str, period: Period, *, note: AuditEntry | None = None
    ) -> bool:
        is_deleted = budget_rules.delete(self._uow, (tenant, scope, scope_id, period))
        if is_deleted and note is not None:
            self._uow.add_audit_entry(tenant, note)
        return is_deleted

    @atomic
    def budgets(
        self,
        tenant: str,
        limit: int,
        *,
        scope: BudgetScope | None = None,
        scope_id: str | None = None,
        after: tuple[str, str, str] | None = None,
    ) -> list[Standing]:
        return self._uow.budgets.page(tenant, limit, scope, scope_id, after)

    @atomic
    def reserve(self, reservations: Sequence[Reservation]) -> list[Reserved | Refused]:
        return budget_rules.reserve_all(self._uow, reservations)

    @atomic
    def settle_calls(self, settled: Sequence[Settled]) -> list[bool]:
        return budget_rules.settle_all(self._uow, settled)

    @atomic
    def give_back(self, tenant: str, call_ids: Sequence[str]) -> None:
        budget_rules.give_back(self._uow, tenant, call_ids)

    @atomic
    def provider_failed(self, tenant: str, user: str) -> None:
        budget_rules.provider_failed(self._uow, tenant, user)

    @atomic
    def record_usage(self, records: Sequence[UsageRecord]) -> list[bool]:
        return budget_rules.record_all(self._uow, records)

    @atomic
    def run_usage(self, occurrence_id: str) -> Usage | None:
        return self._uow.budgets.run_usage(occurrence_id)

    @atomic
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
        return self._uow.budgets.usage(
            tenant, by, since=since, until=until, limit=limit, user=user, schedule_id=schedule_id
        )

    @atomic
    def costs_of_runs(self, uid: str, limit: int) -> list[int | None]:
        ended = [] if (entry := self._uow.entries.get(uid)) is None else entry.ended.values()
        ran = nlargest(limit, (row for row in ended if row.attempt), key=lambda row: (row.nominal, row.id))
        return [self._uow.budgets.cost_of(row.id) for row in ran]

    @atomic
    def spenders(self, *, since: Micros, above: int, limit: int) -> list[tuple[str, str]]:
        return self._uow.budgets.spenders(since=since, above=above, limit=limit)

    @atomic
    def spend_by_hour(self, tenant: str, schedule_id: str, *, since: Micros, until: Micros) -> list[int]:
        return self._uow.budgets.spend_by_hour(tenant, schedule_id, since=since, until=until)

    @atomic
    def prune_usage(self, *, before: Micros, limit: int) -> int:
        return self._uow.budgets.prune(before=before, limit=limit)


def _do_nothing() -> None:
    """There is no listener to remove."""
