"""The store port on a Redis database."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.errors import NoonmarkError
from noonmark.core.run import Outcome
from noonmark.ports.records import KeyRecord
from noonmark.stores.grouped_creates import GroupedCreates
from noonmark.stores.redis import claims, clock_repair, events, history, nodes, runs, schedules
from noonmark.stores.redis import halts as stored_halts
from noonmark.stores.redis.accounts import api_keys, audit_log, page_sessions, rate_buckets, secret_store
from noonmark.stores.redis.connected_store import ConnectedStore
from noonmark.stores.redis.dependencies import graph
from noonmark.stores.redis.reads import changes, inspection, marks, search, workload
from noonmark.stores.redis.workflows import bundles
from noonmark.stores.rules import admission, backfills, dependencies, leases, plan_writes, system_events
from noonmark.stores.rules import budgets as budget_rules
from noonmark.stores.rules import events as event_rules
from noonmark.stores.rules import halts as halt_rules
from noonmark.stores.rules import proposals as proposal_rules
from noonmark.stores.rules import sessions as session_rules
from noonmark.stores.rules import workflows as workflow_rules
from noonmark.stores.rules.bundles import users as bundle_users
from noonmark.stores.rules.snapshots import by_uid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from noonmark.core.admission import Admission, Busy, Claim
    from noonmark.core.agents.session import Message, Mob, Session, SessionState
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
    from noonmark.stores.redis.unit_of_work import UnitOfWork


T = TypeVar("T")
logger = logging.getLogger("noonmark.store")
_ANY_TENANT = ""
"""Creates of all tenants may share a transaction."""
_REPAIRED = 500
"""How many records one transaction of clock repair sets back."""


class RedisStore(ConnectedStore):
    """Everything in one database of a Redis server. Methods block, and may be called from any thread."""

    def _reset(self) -> None:
        super()._reset()
        self._grouped_creates = GroupedCreates(self._create_each, self._create_all, lambda _: _ANY_TENANT)

    # Schedules, occurrences and events

    def create(self, plans: Sequence[Plan]) -> list[bool]:
        return self._grouped_creates.create(plans)

    def create_each(self, plans: Sequence[Plan]) -> list[bool | Exception]:
        return self._grouped_creates.create_each(plans)

    def _create_all(self, plans: Sequence[Plan]) -> list[bool]:
        return self._write(lambda uow: plan_writes.create_all(uow, plans), notify=True)

    def _create_each(self, _: str, take: Callable[[], Sequence[Plan]]) -> Sequence[bool | NoonmarkError]:
        return self._write(lambda uow: plan_writes.create_each(uow, take()), notify=True)

    def graph(self, tenant: str, schedule_ids: Collection[str]) -> Graph:
        return self._read(lambda uow: graph(uow.transaction, tenant, schedule_ids))

    def snapshot(self, uid: str) -> Snapshot | None:
        return self._read(lambda uow: by_uid(uow, uid))

    def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        while True:
            snapshots, faults = self._read(lambda uow: schedules.plannable(uow, now, limit))
            if not faults:
                return snapshots
            # They would be found again and again, before the others.
            self._write(partial(_note_faults, faults=faults))

    def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        return self._write(lambda uow: plan_writes.commit_all(uow, plans), notify=True)

    def change(self, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
        return self._write(lambda uow: plan_writes.commit_change(uow, uid, decide), notify=True)

    def add(self, occurrences: Sequence[Occurrence], *, limits: Sequence[Quota] = ()) -> list[bool]:
        return self._write(lambda uow: plan_writes.add_all(uow, occurrences, limits), notify=True)

    def emit(self, tenant: str, events: Sequence[Event], *, user: str = "", limits: Sequence[Quota] = ()) -> list[bool]:
        return self._write(lambda uow: event_rules.emit(uow, tenant, events, user=user, limits=limits), notify=True)

    def unmatched(self, limit: int) -> list[UnmatchedEvent]:
        found, damaged = self._read(lambda uow: (event_rules.unmatched(uow, limit), uow.damaged_streams))
        for tenant in damaged:
            self._write(partial(_repair_stream, tenant=tenant))
        return found

    def commit_reactions(self, reactions: Sequence[Reaction]) -> list[bool]:
        return self._write(lambda uow: event_rules.commit(uow, reactions))

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
        named = sorted(set(routes))

        def claim(uow: UnitOfWork) -> tuple[list[Claim], claims.Faults]:
            uow.trusts_states = True
            if only is not None:
                rows = claims.only_due(uow, only, named, now=now, until=until)[:limit]
            elif shares is not None:
                rows = claims.due_in_turn(uow, named, shares, now=now, until=until, limit=limit)
            else:
                rows = claims.due(uow, named, now=now, until=until, limit=limit)
            return claims.take(uow, rows, node, now=min(now, uow.now()), lease=lease)

        leased, faults = self._write(claim)
        self._end_damaged(faults)
        return leased

    def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        def start(uow: UnitOfWork) -> list[Admitted | LeaseLost | Busy]:
            uow.expect_starts(admissions)
            return admission.admit_all(uow, admissions, now=now, lease=lease)

        return self._write(start)

    def upstreams(self, claims: Sequence[Claim]) -> list[Standings]:
        return self._read(lambda uow: dependencies.of_claims(uow, claims))

    def renew(self, holds: Sequence[Lease], *, now: Micros, lease: Micros) -> Renewal:
        def renew(uow: UnitOfWork) -> Renewal:
            uow.trusts_states = True
            return claims.renew(uow, holds, now=now, lease=lease)

        return self._write(renew)

    def release(self, holds: Sequence[Lease]) -> None:
        self._write(lambda uow: admission.release(uow, holds), notify=True)

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        # A node that ends a run looks for what that frees; one that stops and hands its runs back does not.
        notify = any(one.run.outcome is Outcome.LEASE_LOST for one in settlements)

        def end(uow: UnitOfWork) -> list[bool]:
            uow.expect_ends(settlements)
            return admission.settle_all(uow, settlements)

        return self._write(end, notify=notify)

    def progress(self, interims: Sequence[Interim]) -> list[bool]:
        def store(uow: UnitOfWork) -> list[bool]:
            uow.trusts_states = True
            return runs.store_progress(uow, interims)

        return self._write(store)

    def request_stop(self, occurrence_id: str) -> bool:
        return self._write(lambda uow: admission.request_stop(uow, occurrence_id), notify=True)

    def cancel(self, occurrence_id: str) -> bool:
        return self._write(lambda uow: admission.cancel(uow, occurrence_id), notify=True)

    def backfills(self, uid: str) -> list[BackfillProgress]:
        return self._glance(lambda uow: backfills.progress(history.backfill_counts(uow, uid)))

    def change_backfill(self, uid: str, backfill_id: str, change: BackfillChange, why: Pause | None = None) -> int:
        return self._write(lambda uow: backfills.change(uow, uid, backfill_id, change, why), notify=True)

    def set_halt(self, halt: Halt, *, most: int, note: AuditEntry | None = None) -> int | None:
        def put(uow: UnitOfWork) -> int | None:
            return _noted(uow, halt.tenant, halt_rules.set_halt(uow, halt, most), note)

        return self._write(put, notify=True)

    def lift_halt(self, tenant: str, halt_id: str, *, note: AuditEntry | None = None) -> Halt | None:
        return self._write(lambda uow: _noted(uow, tenant, uow.delete_halt(tenant, halt_id), note))

    def halts(self, tenant: str | None = None) -> list[Halt]:
        return self._read(lambda uow: stored_halts.read(uow.transaction, uow.report, tenant))

    # Reads

    def find(self, tenant: str, schedule_id: str, *, deleted: bool = False) -> StoredSchedule | None:
        return self._read(lambda uow: schedules.by_id(uow, tenant, schedule_id, deleted=deleted))

    def find_uid(self, uid: str) -> StoredSchedule | None:
        return self._read(lambda uow: schedules.by_uid(uow, uid))

    def find_uids(self, uids: Collection[str]) -> dict[str, StoredSchedule]:
        return self._read(lambda uow: schedules.by_uids(uow, uids))

    def find_named(self, tenant: str, user: str, name: str) -> StoredSchedule | None:
        return self._read(lambda uow: schedules.by_name(uow, tenant, user, name))

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
        return self._glance(
            lambda uow: schedules.page(
                uow, tenant, wanted, after=after, limit=limit, deleted=deleted, newest_first=newest_first
            )
        )

    def count_schedules(self, tenant: str, wanted: ScheduleFilter | None = None, *, deleted: bool = False) -> int:
        return self._glance(lambda uow: schedules.count(uow, tenant, wanted, deleted=deleted))

    def tenants(self, limit: int) -> list[str]:
        return self._glance(lambda uow: schedules.tenants(uow, limit))

    def routes(self, source: str) -> list[str]:
        return self._glance(lambda uow: schedules.routes(uow, source))

    def pipeline_schedules(self, tenant: str, limit: int) -> list[Schedule]:
        return self._read(lambda uow: schedules.of_pipelines(uow, tenant, limit))

    def count_waiting(self, tenant: str, user: str | None = None) -> int:
        return self._read(lambda uow: uow.count_waiting(tenant, user))

    def count_places(self, tenant: str, key: str) -> int:
        return self._read(lambda uow: uow.places_taken(tenant, key))

    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        return self._read(lambda uow: history.one(uow, occurrence_id))

    def occurrences(
        self, uid: str, limit: int | None = None, *, before: PageKey | None = None, phases: Collection[Phase] = ()
    ) -> list[Occurrence]:
        return self._read(lambda uow: history.of_schedule(uow, uid, limit, before, phases))

    def occurrences_at(self, uid: str, time: Micros, limit: int) -> list[Occurrence]:
        return self._read(lambda uow: history.standing_for(uow, uid, time, limit))

    def known(self, occurrence_ids: Collection[str]) -> set[str]:
        return self._read(lambda uow: history.known(uow, occurrence_ids))

    def runs(self, uid: str, limit: int | None = None, *, before: PageKey | None = None) -> list[Run]:
        return self._glance(lambda uow: runs.of_schedule(uow, uid, limit, before))

    def occurrence_runs(self, occurrence_id: str) -> list[Run]:
        return self._read(lambda uow: runs.of_occurrence(uow, occurrence_id))

    def last_runs(self, occurrence_ids: Sequence[str]) -> dict[str, Run]:
        return self._glance(lambda uow: runs.last_of(uow, occurrence_ids))

    def run(self, run_id: str) -> tuple[str, Run] | None:
        return self._read(lambda uow: runs.one(uow, run_id))

    def activities(self, uids: Sequence[str]) -> list[Activity]:
        return self._glance(lambda uow: runs.activities(uow, uids))

    def events(
        self, tenant: str, limit: int, *, before: Micros | None = None, event_type: str | None = None
    ) -> list[Event]:
        return self._read(lambda uow: events.newest(uow.transaction, tenant, limit, before, event_type))

    def event(self, tenant: str, event_id: str) -> Event | None:
        return self._read(lambda uow: events.one(uow.transaction, tenant, event_id))

    # Nodes and upkeep

    def beat(self, beat: Heartbeat, *, now: Micros) -> None:
        self._write(lambda uow: nodes.beat(uow.transaction, beat, now=now))

    def leave(self, node: str) -> None:
        # Its last ends may have freed a slot, and it does not look for that any more.
        self._write(lambda uow: nodes.leave(uow.transaction, node, now=uow.now()), notify=True)

    def nodes(self) -> list[NodeRecord]:
        return self._read(lambda uow: nodes.records(uow.transaction, now=uow.now()))

    def lose(self, node: str, seen: Micros, event: Event) -> bool:
        def lose(uow: UnitOfWork) -> bool:
            tenants = uow.subscribed_tenants(event.event_type)
            return system_events.publish_lost_node(uow, node, seen, event, tenants)

        return self._write(lose)

    def expire_leases(self, node: str, process_lock: str) -> int:
        # Perhaps only a node elsewhere can serve its rows.
        return self._write(lambda uow: leases.expire(uow, node, process_lock), notify=True)

    def lead(self, node: str, *, now: Micros, lease: Micros) -> Leadership:
        def lead(uow: UnitOfWork) -> Leadership:
            return nodes.lead(uow.transaction, node, now=min(now, uow.now()), lease=lease)

        return self._write(lead)

    def orphans(self, node: str, *, now: Micros, limit: int, lease: Micros) -> list[Claim]:
        def claim(uow: UnitOfWork) -> tuple[list[Claim], claims.Faults]:
            uow.trusts_states = True
            rows = claims.lacking(uow, now=min(now, uow.now()), limit=limit)
            return claims.take(uow, rows, node, now=now, lease=lease)

        leased, faults = self._write(claim)
        self._end_damaged(faults)
        return leased

    def overdue(self, *, now: Micros, limit: int) -> list[Occurrence]:
        occurrences, faults, strays = self._read(lambda uow: history.overdue(uow, now=now, limit=limit))
        self._end_damaged(faults, strays)
        return occurrences

    def next_time(self, routes: Collection[str], *, lookahead: Micros = 0) -> Micros | None:
        return self._glance(lambda uow: history.next_time(uow, sorted(set(routes)), lookahead))

    def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        return self._write(lambda uow: history.prune(uow, before=before, keep=keep, limit=limit))

    def prune_events(self, *, before: Micros, keep: int, limit: int) -> int:
        return self._write(lambda uow: events.prune(uow.transaction, before=before, keep=keep, limit=limit))

    def set_aside(self, uid: str, problem: str) -> None:
        def set_aside(uow: UnitOfWork) -> None:
            state = uow.load_states([uid]).get(uid)
            if state is not None and state.fault is None:
                state.fault = problem
                uow.changed_state(state)

        self._write(set_aside)
        self._schedule_cache.damage.note("schedule_states", uid, problem)

    def newest_time(self, before: Micros | None = None) -> Micros | None:
        return self._glance(lambda uow: clock_repair.newest_time(uow, before))

    def due_since(self, routes: Collection[str]) -> Micros | None:
        return self._glance(lambda uow: history.due_since(uow, sorted(set(routes))))

    def planned_ahead(self, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
        return self._read(lambda uow: clock_repair.planned_ahead(uow, now=now, until=until, after=after, limit=limit))

    def repair(self, *, now: Micros, after: Micros, lease: Micros) -> int:
        rows = self._glance(lambda uow: clock_repair.rows_ahead(uow, now=now, after=after, lease=lease))
        states = self._glance(lambda uow: clock_repair.states_ahead(uow, now=now, after=after))
        count = self._write(lambda uow: clock_repair.repair_others(uow, now=now, after=after, lease=lease))
        for keys in _portions(rows):
            repair_rows = partial(clock_repair.repair_rows, keys=keys, now=now, after=after, lease=lease)
            count += self._write(repair_rows)
        for keys in _portions(states):
            count += self._write(partial(clock_repair.repair_states, keys=keys, now=now, after=after))
        return count

    def _end_damaged(self, faults: Mapping[int, str], strays: Sequence[int] = ()) -> None:
        """End damaged rows, each in its own transaction, and rows that belong to no schedule."""
        for key, problem in faults.items():
            try:
                self._write(partial(claims.end_unreadable, faults={key: problem}))
            except NoonmarkError:
                raise
            except Exception:
                # Its schedule is damaged as well. The row would be found again and again.
                logger.exception("damaged occurrence %s cannot be ended with all that follows, and is ended alone", key)
                self._write(partial(claims.end_alone, keys=[key]))
        if strays:
            self._write(partial(claims.end_alone, keys=strays))

    # Keys, secrets, the audit log, proposals and budgets

    def add_audit_entries(self, tenant: str, entries: Sequence[AuditEntry]) -> None:
        def add(uow: UnitOfWork) -> None:
            for entry in entries:
                uow.add_audit_entry(tenant, entry)

        self._write(add)

    def audit_entries(
        self,
        tenant: str,
        limit: int,
        *,
        before: int | None = None,
        schedule_id: str | None = None,
        changes: bool = False,
    ) -> list[AuditEntry]:
        return self._glance(
            lambda uow: audit_log.newest(uow.transaction, tenant, limit, before, schedule_id, changes=changes)
        )

    def prune_audit_entries(self, *, before: Micros, limit: int) -> int:
        return self._write(lambda uow: audit_log.prune_audit_entries(uow.transaction, before=before, limit=limit))

    def claim_key(self, tenant: str, key: str, fingerprint: str, *, now: Micros, lifetime: Micros) -> KeyRecord:
        fresh = KeyRecord(fingerprint=fingerprint, created=now)
        return self._write(lambda uow: audit_log.claim_key(uow.transaction, tenant, key, fresh, since=now - lifetime))

    def prune_keys(self, *, before: Micros, limit: int) -> int:
        return self._write(lambda uow: audit_log.prune_keys(uow.transaction, before=before, limit=limit))

    def put_secret(self, tenant: str, secret: Secret, *, most: int, note: AuditEntry | None = None) -> Secret | None:
        return self._write(
            lambda uow: _noted(uow, tenant, secret_store.put(uow.transaction, tenant, secret, most=most), note)
        )

    def secrets(self, tenant: str) -> list[Secret]:
        return self._glance(lambda uow: secret_store.every(uow.transaction, tenant))

    def find_secrets(self, tenant: str, names: Collection[str]) -> list[Secret]:
        return self._glance(lambda uow: secret_store.some(uow.transaction, tenant, names))

    def forget_secret(self, tenant: str, name: str, *, note: AuditEntry | None = None) -> Secret | None:
        return self._write(lambda uow: _noted(uow, tenant, secret_store.delete(uow.transaction, tenant, name), note))

    def own_key(self) -> bytes:
        key = self._glance(lambda uow: secret_store.find_own_key(uow.transaction))
        return key or self._write(lambda uow: secret_store.draw_own_key(uow.transaction))

    def has_api_keys(self) -> bool:
        return self._glance(lambda uow: api_keys.are_there(uow.transaction))

    def keep_api_key(self, key: ApiKey, *, most: int, note: AuditEntry | None = None) -> bool:
        def keep(uow: UnitOfWork) -> bool:
            is_kept = api_keys.add(uow.transaction, key, most=most)
            return _noted(uow, key.acts_for, is_kept or None, note) is not None

        return self._write(keep)

    def find_api_key(self, key_id: str) -> ApiKey | None:
        return self._glance(lambda uow: api_keys.find(uow.transaction, key_id))

    def api_keys(self, tenant: str | None, limit: int, *, after: tuple[Micros, str] | None = None) -> list[ApiKey]:
        return self._glance(lambda uow: api_keys.page(uow.transaction, tenant, limit, after))

    def revoke_api_key(
        self, key_id: str, *, at: Micros, successor: ApiKey | None = None, note: AuditEntry | None = None
    ) -> ApiKey | None:
        def revoke(uow: UnitOfWork) -> ApiKey | None:
            revoked = api_keys.revoke(uow.transaction, key_id, at=at, successor=successor)
            return None if revoked is None else _noted(uow, revoked.acts_for, revoked, note)

        return self._write(revoke)

    def use_api_keys(self, used: Mapping[str, Micros]) -> None:
        self._write(lambda uow: api_keys.use(uow.transaction, used))

    def add_page_session(self, session: PageSession, *, most: int, used_since: Micros, created_since: Micros) -> None:
        self._write(
            lambda uow: page_sessions.add(
                uow.transaction, session, most=most, used_since=used_since, created_since=created_since
            )
        )

    def find_page_session(self, digest: str) -> PageSession | None:
        return self._glance(lambda uow: page_sessions.find(uow.transaction, digest))

    def use_page_session(self, digest: str, used: Micros) -> None:
        self._write(lambda uow: page_sessions.use(uow.transaction, digest, used))

    def delete_page_session(self, digest: str) -> None:
        self._write(lambda uow: page_sessions.delete(uow.transaction, digest))

    def delete_page_sessions(self, key_id: str) -> int:
        return self._write(lambda uow: page_sessions.delete_all(uow.transaction, key_id))

    def take_tokens(self, name: str, limit: RateLimit, wanted: int) -> Taken:
        return self._write(lambda uow: rate_buckets.take(uow.transaction, name, limit, wanted))

    # Proposals

    def put_proposal(self, proposal: Proposal, *, most: int, note: AuditEntry) -> bool:
        return self._write(lambda uow: proposal_rules.put(uow, proposal, most=most, note=note), notify=True)

    def proposal(self, tenant: str, schedule_id: str) -> Proposal | None:
        return self._glance(lambda uow: uow.proposals.find(tenant, schedule_id))

    def proposals(
        self, tenant: str, limit: int, *, after: tuple[Micros, str] | None = None, user: str | None = None
    ) -> list[Proposal]:
        return self._glance(lambda uow: uow.proposals.page(tenant, limit, after=after, user=user))

    def deny_change(self, tenant: str, schedule_id: str, proposal_id: str, *, note: AuditEntry) -> bool:
        return self._write(
            lambda uow: proposal_rules.deny_change(uow, tenant, schedule_id, proposal_id, note), notify=True
        )

    def expire_proposals(self, *, now: Micros, limit: int) -> int:
        expired = self._glance(lambda uow: uow.proposals.expired(now, limit))
        if expired:
            self._write(lambda uow: plan_writes.expire_proposals(uow, expired, now=now), notify=True)
        return len(expired)

    # Budgets

    def put_budget(self, budget: Budget, *, note: AuditEntry | None = None) -> Standing:
        def put(uow: UnitOfWork) -> Standing:
            standing = budget_rules.put(uow, budget)
            _noted(uow, budget.tenant, standing, note)
            return standing

        return self._write(put)

    def delete_budget(
        self, tenant: str, scope: BudgetScope, scope_id: str, period: Period, *, note: AuditEntry | None = None
    ) -> bool:
        def delete(uow: UnitOfWork) -> bool:
            is_deleted = budget_rules.delete(uow, (tenant, scope, scope_id, period))
            return _noted(uow, tenant, is_deleted or None, note) is not None

        return self._write(delete)

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
        def reserve(uow: UnitOfWork) -> list[Reserved | Refused]:
            uow.expect_calls(reservations)
            return budget_rules.reserve_all(uow, reservations)

        return self._write(reserve)

    def settle_calls(self, settled: Sequence[Settled]) -> list[bool]:
        def settle(uow: UnitOfWork) -> list[bool]:
            uow.budgets.expect_settled(settled)
            return budget_rules.settle_all(uow, settled)

        return self._write(settle)

    def give_back(self, tenant: str, call_ids: Sequence[str]) -> None:
        self._write(lambda uow: budget_rules.give_back(uow, tenant, call_ids))

    def provider_failed(self, tenant: str, user: str) -> None:
        self._write(lambda uow: budget_rules.provider_failed(uow, tenant, user))

    def record_usage(self, records: Sequence[UsageRecord]) -> list[bool]:
        def record(uow: UnitOfWork) -> list[bool]:
            uow.budgets.expect_recorded(records)
            return budget_rules.record_all(uow, records)

        return self._write(record)

    def run_usage(self, occurrence_id: str) -> Usage | None:
        return self._glance(lambda uow: uow.budgets.run_usage(occurrence_id))

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
        return self._glance(
            lambda uow: uow.budgets.usage(
                tenant, by, since=since, until=until, limit=limit, user=user, schedule_id=schedule_id
            )
        )

    def costs_of_runs(self, uid: str, limit: int) -> list[int | None]:
        return self._glance(lambda uow: uow.budgets.costs_of_runs(uid, limit))

    def spenders(self, *, since: Micros, above: int, limit: int) -> list[tuple[str, str]]:
        return self._glance(lambda uow: uow.budgets.spenders(since=since, above=above, limit=limit))

    def spend_by_hour(self, tenant: str, schedule_id: str, *, since: Micros, until: Micros) -> list[int]:
        return self._glance(lambda uow: uow.budgets.spend_by_hour(tenant, schedule_id, since=since, until=until))

    def prune_usage(self, *, before: Micros, limit: int) -> int:
        return self._write(lambda uow: uow.budgets.prune(before=before, limit=limit))

    # Bundles

    def add_bundle_chunk(
        self, tenant: str, content_id: str, number: int, data: bytes, *, limits: Sequence[Quota] = ()
    ) -> None:
        self._write(lambda uow: bundles.add_chunk(uow.transaction, tenant, content_id, number, data, limits))

    def bundle_chunk(self, tenant: str, content_id: str, number: int) -> bytes | None:
        return self._glance(lambda uow: bundles.chunk(uow.transaction, tenant, content_id, number))

    def keep_bundle(self, bundle: Bundle, *, note: AuditEntry | None = None) -> Bundle | None:
        return self._write(lambda uow: _noted(uow, bundle.tenant, bundles.keep(uow.transaction, bundle), note))

    def drop_bundle_push(self, tenant: str, content_id: str) -> None:
        self._write(lambda uow: bundles.drop(uow.transaction, tenant, content_id))

    def find_bundle(self, tenant: str, bundle_id: str | None = None, *, digest: str | None = None) -> Bundle | None:
        return self._glance(lambda uow: bundles.find(uow.transaction, tenant, bundle_id, digest))

    def bundles(self, tenant: str, limit: int, *, after: str | None = None) -> list[Bundle]:
        return self._glance(lambda uow: bundles.page(uow.transaction, tenant, limit, after))

    def bundle_versions(self, tenant: str, bundle_id: str, limit: int) -> list[Bundle]:
        return self._glance(lambda uow: bundles.versions(uow.transaction, tenant, bundle_id, limit))

    def delete_bundle(self, tenant: str, bundle_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        def delete(uow: UnitOfWork) -> list[str] | None:
            used = bundles.delete(uow.transaction, tenant, bundle_id, partial(bundle_users, uow))
            return _noted(uow, tenant, used, note) if used == [] else used

        return self._write(delete)

    def bundle_bytes(self, tenant: str) -> int:
        return self._glance(lambda uow: bundles.stored_bytes(uow.transaction, tenant))

    def prune_bundles(self, *, before: Micros, unfinished_before: Micros, limit: int) -> int:
        return self._write(
            lambda uow: bundles.prune(
                uow.transaction,
                partial(bundle_users, uow),
                before=before,
                unfinished_before=unfinished_before,
                limit=limit,
            )
        )

    # Workflows

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

        return self._write(put)

    def workflow(
        self, tenant: str, workflow_id: str, version: int | None = None, *, deleted: bool = False
    ) -> WorkflowVersion | None:
        return self._glance(lambda uow: uow.workflows.version(tenant, workflow_id, version, deleted=deleted))

    def workflows(self, tenant: str, limit: int, *, after: str | None = None) -> list[WorkflowVersion]:
        return self._glance(lambda uow: uow.workflows.newest(tenant, limit, after))

    def workflow_versions(
        self, tenant: str, workflow_id: str, limit: int, *, before: int | None = None
    ) -> list[WorkflowVersion]:
        return self._glance(lambda uow: uow.workflows.versions(tenant, workflow_id, limit, before))

    def delete_workflow(self, tenant: str, workflow_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        def delete(uow: UnitOfWork) -> list[str] | None:
            users = workflow_rules.delete(uow, tenant, workflow_id)
            return users or _noted(uow, tenant, users, note)

        return self._write(delete)

    def schedules_using(self, tenant: str, kind: UsedKind, name: str, limit: int) -> list[str]:
        return self._glance(lambda uow: uow.workflows.schedules_using(tenant, kind, name, limit))

    def commit_steps(self, writes: Sequence[StepWrites]) -> list[bool]:
        notify = any(one.children for one in writes)
        return self._write(lambda uow: workflow_rules.commit_steps(uow, writes), notify=notify)

    def workflow_run(self, occurrence_id: str) -> tuple[WorkflowRun, list[StepRecord]] | None:
        return self._read(lambda uow: uow.workflows.run(occurrence_id))

    def open_steps(self, occurrence_ids: Collection[str]) -> dict[str, list[StepRecord]]:
        return self._glance(lambda uow: uow.workflows.ended_elsewhere(occurrence_ids))

    def workflow_runs(
        self,
        tenant: str,
        limit: int,
        *,
        workflow_id: str | None = None,
        phases: Collection[Phase] = (),
        before: PageKey | None = None,
    ) -> list[tuple[WorkflowRun, Occurrence]]:
        return self._glance(lambda uow: uow.workflows.runs(tenant, limit, workflow_id, phases, before))

    def approvals(
        self, tenant: str, limit: int, *, state: ApprovalState | None = None, before: PageKey | None = None
    ) -> list[Approval]:
        return self._glance(lambda uow: uow.workflows.approvals(tenant, limit, state, before))

    def approval(self, tenant: str, approval_id: str) -> Approval | None:
        return self._glance(lambda uow: uow.workflows.approval(tenant, approval_id))

    def decide_approval(
        self, tenant: str, approval_id: str, *, approved: bool, by: str, comment: str | None = None
    ) -> Approval | None:
        return self._write(
            lambda uow: workflow_rules.decide_approval(
                uow, tenant, approval_id, approved=approved, by=by, comment=comment
            )
        )

    # Sessions

    def put_session(self, session: Session, *, most: int | None = None, note: AuditEntry | None = None) -> bool | None:
        def put(uow: UnitOfWork) -> bool | None:
            is_new = session_rules.put(uow, session, most)
            return _noted(uow, session.tenant, is_new or None, note) or is_new

        return self._write(put)

    def session(self, tenant: str, session_id: str) -> Session | None:
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
    ) -> list[Session]:
        return self._glance(
            lambda uow: uow.sessions.page(
                tenant, limit, user=user, state=state, labels=labels, mob_id=mob_id, before=before
            )
        )

    def begin_turn(self, turn: Turn, messages: Sequence[Message] = ()) -> Session | None:
        return self._write(lambda uow: session_rules.begin_turn(uow, turn, messages))

    def append_messages(
        self, turn: Turn, messages: Sequence[Message], *, settles: Sequence[Settled] = ()
    ) -> list[Message] | None:
        return self._write(lambda uow: session_rules.append(uow, turn, messages, settles))

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
        return self._glance(
            lambda uow: uow.sessions.messages(
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
    ) -> Session | None:
        return self._write(
            lambda uow: _noted(uow, tenant, session_rules.set_state(uow, tenant, session_id, state), note)
        )

    def delete_session(self, tenant: str, session_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        def delete(uow: UnitOfWork) -> list[str] | None:
            users = session_rules.delete(uow, tenant, session_id)
            return users or _noted(uow, tenant, users, note)

        return self._write(delete)

    def prune_sessions(self, *, before: Micros, max_bytes: int, limit: int) -> int:
        return self._write(lambda uow: uow.sessions.prune(before=before, max_bytes=max_bytes, limit=limit))

    def put_mob(self, mob: Mob, sessions: Sequence[Session], *, note: AuditEntry | None = None) -> bool:
        def put(uow: UnitOfWork) -> bool:
            return _noted(uow, mob.tenant, session_rules.put_mob(uow, mob, sessions) or None, note) is not None

        return self._write(put)

    def mob(self, tenant: str, mob_id: str) -> Mob | None:
        return self._glance(lambda uow: uow.sessions.find_mob(tenant, mob_id))

    def mobs(self, tenant: str, limit: int, *, after: str | None = None) -> list[Mob]:
        return self._glance(lambda uow: uow.sessions.mobs(tenant, limit, after))

    def delete_mob(self, tenant: str, mob_id: str, *, note: AuditEntry | None = None) -> list[str] | None:
        def delete(uow: UnitOfWork) -> list[str] | None:
            users = session_rules.delete_mob(uow, tenant, mob_id)
            return users or _noted(uow, tenant, users, note)

        return self._write(delete)

    # Reads across schedules

    def search(
        self, tenant: str, wanted: OccurrenceFilter, limit: int, *, before: PageKey | None = None
    ) -> FoundOccurrences:
        return self._glance(lambda uow: search.search(uow, tenant, wanted, limit, before))

    def marks(self, scope: MarkScope, span: Span, limit: int) -> list[Mark]:
        return self._glance(lambda uow: marks.marks(uow, scope, span, limit))

    def count_marks(self, scope: MarkScope, span: Span, width: Micros) -> list[MarkCount]:
        return self._glance(lambda uow: marks.count(uow, scope, span, width))

    def last_marks(self, uids: Sequence[str], limit: int, *, now: Micros) -> dict[str, list[Mark]]:
        return self._glance(lambda uow: marks.last(uow, uids, limit, now=now))

    def trend(self, uid: str, edges: Sequence[Micros], *, now: Micros) -> list[TrendPoint]:
        return self._glance(lambda uow: marks.trend(uow, uid, edges, now=now))

    def lateness(self, scope: MarkScope, span: Span, percent: int) -> Micros | None:
        return self._glance(lambda uow: marks.lateness(uow, scope, span, percent))

    def horizons(self, scope: MarkScope, *, until: Micros, limit: int) -> Horizons:
        return self._glance(lambda uow: marks.horizons(uow, scope, until=until, limit=limit))

    def count_phases(self, tenant: str, user: str | None = None) -> dict[SchedulePhase, int]:
        return self._glance(lambda uow: marks.count_phases(uow, tenant, user))

    def backlog(self, now: Micros, limit: int) -> Backlog:
        return self._glance(lambda uow: workload.backlog(uow, now=now, limit=limit))

    def workload(self, *, now: Micros, limit: int, tenant: str | None = None) -> Workload:
        return self._glance(lambda uow: workload.workload(uow, now=now, limit=limit, tenant=tenant))

    def recent_changes(self, since: Micros, limit: int) -> list[StoredChange]:
        return self._glance(lambda uow: changes.recent(uow, since, limit))

    def inspect(self, after: Position | None = None, *, limit: int) -> Inspected:
        page = self._glance(lambda uow: inspection.inspect(uow, after, limit))
        for cell in page.damaged:
            if cell.column != "fault":  # that was reported when it was set
                self._schedule_cache.damage.note(cell.table, cell.key, f"{cell.column} {cell.problem}")
        return page

    def damage(self) -> Mapping[str, int]:
        return self._schedule_cache.damage.counts()


def _portions(keys: Sequence[int]) -> list[Sequence[int]]:
    return [keys[begin : begin + _REPAIRED] for begin in range(0, len(keys), _REPAIRED)]


def _noted(uow: UnitOfWork, tenant: str, changed: T | None, note: AuditEntry | None) -> T | None:
    """Add an audit entry, if something was changed."""
    if changed is not None and note is not None:
        uow.add_audit_entry(tenant, note)
    return changed


def _note_faults(uow: UnitOfWork, faults: Mapping[int, str]) -> None:
    for state in uow.states_of(faults):
        state.fault = faults[state.schedule]
        uow.changed_state(state)


def _repair_stream(uow: UnitOfWork, tenant: str) -> None:
    events.repair(uow.transaction, tenant, uow.schedule_cache.damage)
