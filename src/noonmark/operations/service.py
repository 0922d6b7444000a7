"""The context of an operation: the service that performs it, and the caller."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.api_key import ALL_SCOPES, DEFAULT_TENANT, DEFAULT_USER, SESSION_SCOPES, Scope, session_scopes
from noonmark.core.causation import (
    chain_of_emitted,
    chain_of_reported,
    chain_of_requested,
    why_not_emitted,
    why_not_requested,
)
from noonmark.core.changes import schedule_changes
from noonmark.core.errors import Conflict, InvalidRequest, NoonmarkError, NotAllowed, NotFound, StoreUnavailable
from noonmark.core.frozen import fast_frozen, frozen
from noonmark.core.ids import is_hidden, new_uid
from noonmark.core.instants import to_text
from noonmark.core.interruption import failure_line, pause_line, rate_line
from noonmark.core.lineage import AgentLimits
from noonmark.core.policies.runaway import RunawayRule
from noonmark.core.quotas import UNLIMITED, Resource, check_declaration
from noonmark.core.run import Outcome
from noonmark.core.schedule import AuditEntry, Owner
from noonmark.core.signatures import KeySettings, chain_key, hide_text, proven_occurrence, reveal_text
from noonmark.core.targets.ping import MOMENTS
from noonmark.core.triggers import EventTrigger
from noonmark.operations.models.fields import NOT_A_CURSOR, write_cursor
from noonmark.operations.serializers import audit_document
from noonmark.ports.events import RanAway, RateExceeded, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noonmark.core.agents.tasks import Instructions
    from noonmark.core.event import Chain, Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.expected_rate import RateAlert
    from noonmark.core.quotas import Limits, Quota
    from noonmark.core.rate_limit import RateLimit
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.settlement import Settlement
    from noonmark.core.targets.command import CommandRules
    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.core.targets.mob import ToolAccessPolicy
    from noonmark.core.targets.permissions import TargetPermissions
    from noonmark.core.targets.session import Provider
    from noonmark.operations.diagnosis import Conflict as SettingConflict
    from noonmark.operations.diagnosis import Disk, EngineState
    from noonmark.operations.key_cache import KeyCache
    from noonmark.operations.models.arguments import AuditQuery, RevisionQuery
    from noonmark.ports.changes import Change
    from noonmark.ports.events import DriverEvent
    from noonmark.ports.runtime import Pinger, Seal
    from noonmark.ports.store import Store
    from noonmark.ports.traces import Traces
    from noonmark.ports.uploads import Uploads


logger = logging.getLogger("noonmark.jobs")


class Worker(Protocol):
    """The worker of this node."""

    def start(self) -> None:
        """Start; a running worker goes on."""

    def stop(self) -> None:
        """Start nothing more, release what has not begun, and wait a limited time for what runs.

        A second caller does not wait: `status` says that it is stopping.
        """

    def confirm_time(self) -> None:
        """Confirm that the store's time is right although it leapt ahead."""

    @property
    def clock_ahead(self) -> Micros | None:
        """How far the store's time leapt ahead, until that is confirmed."""

    def status(self) -> dict[str, Any]:
        """Its state and its settings."""


class AuditEntryMaker(Protocol):
    """Makes the audit entry of a change."""

    def __call__(self, before: Schedule | None, after: Schedule | None, *, now: Micros) -> AuditEntry:
        """Make the entry of a change, or of a request that changes nothing."""


@frozen(kw_only=True)
class BundleLimits:
    """How large bundles may be."""

    max_bytes: int = 67_108_864
    """One archive."""
    quota_bytes: int = 1_073_741_824
    """All archives of a tenant."""


@frozen(kw_only=True)
class Service:
    """The parts of a process that performs operations."""

    store: Store
    lookahead: Micros
    fresh_id: Callable[[], str]
    """Makes a unique id."""
    node: str = ""
    wake: Callable[[Micros | None], None] = field(default=lambda _: None)
    """Wakes the driver of this process, at a time or at once."""
    check_stop_requests: Callable[[], None] = field(default=lambda: None)
    """Notifies the driver of this process that a run was asked to stop."""
    machine_clock: Callable[[], Micros] | None = None
    """The clock of the machine, to compare with the store's; None if there is no other."""
    zone_data: str = ""
    """The version of the time zone data of this process."""
    disks: Callable[[], Sequence[Disk]] = field(default=lambda: ())
    """Reads the space on the file systems that the store and the uploads use."""
    conflicts: Sequence[SettingConflict] | None = None
    """Settings of this server that contradict each other; None outside a server."""
    worker: Worker | None = None
    serves: Callable[[str], bool] = field(default=lambda _: False)
    """Whether the worker of this process runs, and serves a route; then no other node need be asked."""
    limits: Limits = UNLIMITED
    """The limits of callers, but for administrators of all tenants."""
    task_limits: Limits = UNLIMITED
    """The limits of all callers under `/api/v1`."""
    rates: Mapping[str, RateLimit] = field(default_factory=dict)
    """The rate limits of requests: of each `key`, of each `address`."""
    keys: KeySettings = field(default_factory=KeySettings)
    """The settings of the keys for signatures and tokens."""
    seal: Seal | None = field(default=None, repr=False)
    """Seals secrets; None without a key."""
    egress: EgressPolicy | None = None
    """Where nodes may send requests, as far as this process knows."""
    commands: CommandRules | None = None
    """Which commands callers may declare, as far as this process knows."""
    permissions: TargetPermissions | None = None
    """Which functions and commands each tenant may use; None: all of them."""
    offered: frozenset[str] = frozenset()
    """Functions that callers may have called with any arguments, by their registered names."""
    lacks_workers: Callable[[str], bool] = field(default=lambda _route: False)
    """Whether a route is delivered by workers of an engine, and there is none, as far as it is known."""
    engine_problem: Callable[[str], str | None] = field(default=lambda _route: None)
    """Why the engine that carries out a route does not answer; None if it does, or if there is none."""
    engine_state: Callable[[], EngineState | None] = field(default=lambda: None)
    """What this process has last seen of its engine; None if it has none."""
    base_url: str = ""
    """Where clients reach this service; empty if that is unknown."""
    reach: str | None = ""
    """The option by which commands in log lines find this service; as in `Runtime`."""
    pinger: Pinger | None = None
    """Calls the URLs that schedules name for their starts and ends."""
    key_cache: KeyCache | None = None
    """The API keys that this process has read lately."""
    traces: Traces | None = None
    """Records requests and operations; None if that is off."""
    bundle_limits: BundleLimits | None = None
    """How large bundles may be; None if none may be pushed here."""
    has_agent_model: bool = True
    """Whether the agents of this process have a model for tasks that name none, as far as it is known."""
    agent_model: str | None = None
    """The model of sessions that name none."""
    agent_limits: AgentLimits = field(default_factory=AgentLimits)
    """What agents may create, and how long proposals wait."""
    model_problem: Callable[[str, Provider | None], str | None] = field(default=lambda _model, _provider: None)
    """Says what is wrong with the name of a model, as far as this process knows the models of its agents."""
    instructions: Instructions | None = None
    """The instructions that tasks may name, as far as this process knows."""
    uploads: Uploads | None = None
    """The storage of uploads; None if they are off."""
    report: Callable[[Sequence[DriverEvent]], None] = field(default=lambda _: None)
    """Counts driver events that happen in this process outside its driver."""
    changed: Callable[[Change], None] = field(default=lambda _: None)
    """Learns what operations change."""

    def fresh_uid(self) -> str:
        """Make the uid of a new schedule."""
        return new_uid(self.fresh_id(), is_timed=self.store.wants_timed_uids())

    def report_end(self, schedule: Schedule, settlement: Settlement, *, source: str) -> None:
        """Log the failure of a run that ended elsewhere, and call the URL that its schedule names for such an end."""
        occurrence = settlement.occurrence
        run = replace(settlement.run, error=None)  # the words of others stay out of the log
        if run.outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.DELIVERY_FAILED):
            words, retry_at = f"its {source} said so", settlement.retry_at
            line = failure_line(
                schedule,
                occurrence,
                run,
                settlement.reason,
                retry_at=retry_at,
                own_words=words,
                reach=self.reach,
            )
            level = logging.ERROR if settlement.is_failure else logging.WARNING
            ids = {"occurrence_id": occurrence.id, "schedule_id": occurrence.schedule_id, "run_id": run.id}
            logger.log(level, "%s", line, extra=ids)
        self._log_pause(settlement)
        if self.traces is not None:
            self.traces.settled(Settled(occurrence, settlement.phase, settlement.reason, run, settlement.retry_at))
        if self.pinger is not None and schedule.declaration.ping_urls is not None:
            moment = MOMENTS.get(settlement.phase)
            if moment is not None:
                self.pinger.ping(schedule, occurrence, moment)

    def _log_pause(self, settlement: Settlement) -> None:
        """Log that a schedule is paused now because of a run, and count it if it ran away."""
        if not settlement.may_pause:
            return
        with suppress(NoonmarkError):  # the end is written; only a line is missing
            stored = self.store.find_uid(settlement.occurrence.uid)
            line = None if stored is None else pause_line(stored.schedule, settlement.run, self.reach)
            if line is not None:
                schedule_id = settlement.occurrence.schedule_id
                logger.warning("%s", line, extra={"schedule_id": schedule_id})
                if not settlement.is_failure:
                    self.report([RanAway(schedule_id, RunawayRule.RESULTS)])

    def report_rate(self, schedule: Schedule, alert: RateAlert) -> None:
        """Log and count that a job which pings runs too often."""
        logger.warning("%s", rate_line(schedule, alert), extra={"schedule_id": schedule.schedule_id})
        self.report([RateExceeded(schedule.schedule_id, alert)])
        self.wake(None)


@frozen(kw_only=True)
class CallingSession:
    """The session whose agent makes a request."""

    session_id: str
    tool_access_policy: ToolAccessPolicy | None = None
    schedule_id: str | None = None
    """The schedule whose fire began its turn."""
    schedule_uid: str | None = None
    tool_call_id: str | None = None
    call_key: str | None = None
    """The same for every copy of the call of the tool: one that is repeated after a crash does nothing twice."""


@fast_frozen
@frozen(kw_only=True)
class Caller:
    """Who makes a request, on whose behalf, and through what."""

    owner: Owner
    name: str
    source: str
    """The surface: `rest`, `jsonrpc`, `mcp`, `cli`, `client`, or `session:` and an id."""
    request_id: str = ""
    scopes: frozenset[Scope] = ALL_SCOPES
    is_root: bool = True
    """Whether it may act for every tenant, and on nodes and workers."""
    opens_store: bool = False
    """Whether it has opened the store itself, and may make the first key."""
    sees_own_only: bool = False
    """Whether it sees its own schedules only, and not all of its tenant."""
    key_id: str | None = None
    expires: Micros | None = None
    """When its key or token expires."""
    is_agent: bool = False
    session: CallingSession | None = None
    """The session that it is, if an agent of this process makes the request."""
    operation: str = ""
    """The operation requested."""
    limits: Limits = UNLIMITED
    """The limits of the routes that it uses."""
    chain: str = field(default="", repr=False)
    """A proof of the occurrence whose work makes the request, if there is one."""

    @property
    def is_admin(self) -> bool:
        """Whether it rules its tenant."""
        return Scope.ADMIN in self.scopes

    @property
    def acts_as_agent(self) -> bool:
        """Whether a program that decides by itself makes the request: with its key, or in a session."""
        return self.is_agent or self.session is not None

    @property
    def call_key(self) -> str | None:
        """A key for a request that names none: the same for every copy of a tool call."""
        return None if self.session is None else self.session.call_key

    @property
    def granted(self) -> frozenset[Scope] | None:
        """What sessions may do at most that it makes, or that its schedules make; None if that is not narrowed.

        The sessions of a person who may write do what they need. An agent or a proposer passes on what it has.
        """
        if not self.acts_as_agent and not self.may_only_propose:
            return None
        scopes = session_scopes(self.scopes)
        return None if scopes == SESSION_SCOPES else scopes

    @property
    def may_only_propose(self) -> bool:
        """Whether its changes of schedules wait for somebody's approval."""
        return Scope.PROPOSE in self.scopes and Scope.WRITE not in self.scopes

    def sees(self, schedule: Schedule) -> bool:
        """Whether a schedule exists for this caller."""
        return self.sees_owner(schedule.owner)

    def sees_owner(self, owner: Owner) -> bool:
        """Whether the schedules of an owner exist for this caller."""
        return owner.tenant == self.owner.tenant and not (self.sees_own_only and owner.user != self.owner.user)

    def audit(self, reason: str | None = None) -> AuditEntryMaker:
        """Make the audit entries of changes by this caller."""
        return partial(_audit_entry, self, reason)


def _audit_entry(
    caller: Caller, reason: str | None, before: Schedule | None, after: Schedule | None, *, now: Micros
) -> AuditEntry:
    if any(schedule is not None and is_hidden(schedule.schedule_id) for schedule in (before, after)):
        before = after = None
    schedule = after or before
    return AuditEntry(
        at=now,
        caller=caller.name,
        operation=caller.operation,
        schedule_id=None if schedule is None else schedule.schedule_id,
        uid=None if schedule is None else schedule.uid,
        revision_before=None if before is None else before.revision,
        revision_after=None if after is None else after.revision,
        reason=reason,
        request_id=caller.request_id or None,
        key_id=caller.key_id,
        session_id=None if caller.session is None else caller.session.session_id,
        tool_call_id=None if caller.session is None else caller.session.tool_call_id,
        parent_schedule_id=None if caller.session is None else caller.session.schedule_id,
        source=caller.source,
        changes=_changes(before, after),
    )


def _changes(before: Schedule | None, after: Schedule | None) -> list[dict[str, Any]] | None:
    """What a request changed of a schedule; None if it left it as it was."""
    if after is None or before is after:
        return None
    return [] if before is None else schedule_changes(before, after) or None


def limits_of(service: Service, caller: Caller) -> tuple[Limits, ...]:
    """The limits of a caller: those of the routes that it uses, and those of the server."""
    return (caller.limits,) if caller.is_root else (caller.limits, service.limits)


def has_key_rate(caller: Caller) -> bool:
    """Whether the rate of requests of a key counts for a caller: it has a key, or the token of a user."""
    return caller.key_id is not None or not caller.is_root


def quotas_of(service: Service, caller: Caller, *resources: Resource) -> tuple[Quota, ...]:
    """How much of some resources the caller may have."""
    groups = (one.quotas(caller.owner.tenant, *resources) for one in limits_of(service, caller))
    return tuple(quota for quotas in groups for quota in quotas)


def schedule_quotas(service: Service, caller: Caller) -> tuple[Quota, ...]:
    """How many schedules the caller may have."""
    return quotas_of(service, caller, Resource.SCHEDULES, Resource.TASKS)


def check_limits(service: Service, caller: Caller, declaration: Declaration, before: Declaration | None) -> None:
    """Refuse a declaration that fires too often, or has too large a budget, for the caller."""
    for limits in limits_of(service, caller):
        check_declaration(limits, declaration, before)


LOCAL = Caller(owner=Owner(tenant=DEFAULT_TENANT, user=DEFAULT_USER), name=DEFAULT_USER, source="local")
"""The caller on the loopback interface of a server without keys."""


def list_audit_entries(service: Service, caller: Caller, arguments: AuditQuery) -> dict[str, Any]:
    """List the entries of the audit log, newest first."""
    if caller.sees_own_only:
        if arguments.schedule_id is None:
            raise NotAllowed("name one of your schedules: you see your own only", field="schedule_id")
        stored = service.store.find(caller.owner.tenant, arguments.schedule_id, deleted=True)
        if stored is None or not caller.sees(stored.schedule):
            return {"entries": [], "next_cursor": None}
    limit = arguments.limit
    before = None if arguments.cursor is None else _audit_position(service, caller, arguments.cursor[0])
    entries = service.store.audit_entries(
        caller.owner.tenant, limit + 1, before=before, schedule_id=arguments.schedule_id
    )
    page = entries[:limit]
    following = None
    if len(entries) > limit:
        following = write_cursor(hide_text(service.store.own_key(), caller.owner.tenant, str(page[-1].key)))
    # Entries of all tenants have one sequence of numbers, which would show how much the others do.
    shown = [audit_document(entry, is_numbered=caller.is_root) for entry in page]
    return {"entries": shown, "next_cursor": following}


def list_revisions(service: Service, caller: Caller, arguments: RevisionQuery) -> dict[str, Any]:
    """List the changes of a schedule, newest first: who made each, and which fields it changed."""
    store, tenant, limit = service.store, caller.owner.tenant, arguments.limit
    stored = store.find(tenant, arguments.schedule_id, deleted=True)
    if stored is None or not caller.sees(stored.schedule):
        raise NotFound(f"there is no schedule {arguments.schedule_id!r}", field="schedule_id")
    before = None if arguments.cursor is None else _audit_position(service, caller, arguments.cursor[0])
    revisions: list[AuditEntry] = []
    while len(revisions) <= limit:
        page = store.audit_entries(tenant, limit + 1, before=before, schedule_id=arguments.schedule_id, changes=True)
        # Another schedule may have had the id before.
        revisions += [entry for entry in page if entry.uid == stored.schedule.uid]
        if len(page) <= limit:
            break
        before = page[-1].key
    following = None
    if len(revisions) > limit:
        following = write_cursor(hide_text(store.own_key(), tenant, str(revisions[limit - 1].key)))
    return {"revisions": [_revision_document(entry) for entry in revisions[:limit]], "next_cursor": following}


def _revision_document(entry: AuditEntry) -> dict[str, Any]:
    return {
        "revision": entry.revision_after,
        "at_utc": to_text(entry.at),
        "by": entry.caller,
        "operation": entry.operation,
        "source": entry.source,
        "key_id": entry.key_id,
        "session_id": entry.session_id,
        "reason": entry.reason,
        "changes": entry.changes,
    }


def _audit_position(service: Service, caller: Caller, cursor: str) -> int:
    text = reveal_text(service.store.own_key(), caller.owner.tenant, cursor)
    if text is None:
        raise InvalidRequest(NOT_A_CURSOR, field="cursor")
    return int(text)


def record_audit_entry(
    service: Service, caller: Caller, reason: str | None = None, *, schedule: Schedule | None = None
) -> None:
    """Record a request that leaves its schedule as it is, or concerns none."""
    entry = caller.audit(reason)(schedule, schedule, now=service.store.clock())
    service.store.add_audit_entries(caller.owner.tenant, [entry])


CIRCLE = "a run of this schedule has led to this request"


def cause_of_event(service: Service, caller: Caller, event: Event) -> Chain | None:
    """The chain that an emitted event continues; Conflict if the chain is full."""
    if (cause := cause_of_request(service, caller)) is None:
        return None
    occurrence, schedule = cause
    trigger = schedule.declaration.trigger
    repeats = isinstance(trigger, EventTrigger) and trigger.matches(
        event.event_type, event.payload, source=event.source
    )
    if (why := why_not_emitted(chain_of_emitted(occurrence), event.event_type, repeats=repeats)) is not None:
        raise Conflict(f"the event is not emitted: {why}")
    return chain_of_reported(occurrence, event.event_type)


def cause_of_run(
    service: Service, caller: Caller, schedule_id: str, key: str | None
) -> tuple[Chain | None, str | None]:
    """The chain that a requested run continues, and the key of the run; Conflict if the chain is full.

    In a circle, each occurrence may request one run of a schedule: two would double with every turn. So the id of the
    occurrence is the key of the run.
    """
    if (cause := cause_of_request(service, caller)) is None:
        return None, key
    occurrence, chain = cause[0], _chain_of_run(cause[0])
    if not chain.leads_through(schedule_id):
        return chain, key
    if key not in {None, occurrence.id}:
        raise Conflict(f"it is not run: {CIRCLE}, and each run of a circle may request one more; leave the key out")
    return chain, occurrence.id


def cause_of_backfill(service: Service, caller: Caller, schedule_id: str) -> Chain | None:
    """The chain that a backfill continues; Conflict in a circle, which it would multiply."""
    if (cause := cause_of_request(service, caller)) is None:
        return None
    chain = _chain_of_run(cause[0])
    if chain.leads_through(schedule_id):
        raise Conflict(f"it is not run: {CIRCLE}, and a run of a circle cannot request several")
    return chain


def _chain_of_run(occurrence: Occurrence) -> Chain:
    chain = chain_of_requested(occurrence)
    if (why := why_not_requested(chain)) is not None:
        raise Conflict(f"it is not run: {why}")
    return chain


def cause_of_request(service: Service, caller: Caller) -> tuple[Occurrence, Schedule] | None:
    """The occurrence whose work sent the request, and its schedule."""
    if not caller.chain:
        return None
    tenant = caller.owner.tenant
    try:
        own = service.store.own_key()
    except StoreUnavailable:  # if the whole store is down, what follows reports it
        return None
    occurrence_id = proven_occurrence(caller.chain, chain_key(own, tenant))
    occurrence = None if occurrence_id is None else service.store.occurrence(occurrence_id)
    snapshot = None if occurrence is None else service.store.snapshot(occurrence.uid)
    if occurrence is None or snapshot is None or snapshot.schedule.owner.tenant != tenant:
        return None
    return occurrence, snapshot.schedule
