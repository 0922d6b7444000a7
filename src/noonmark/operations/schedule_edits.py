"""Edits of stored schedules: create, declare, pause, resume, delete, cancel; and runs that are requested by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core import edits
from noonmark.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound, RevisionConflict
from noonmark.core.frozen import evolve
from noonmark.core.ids import manual
from noonmark.core.instants import to_text
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import first_plan, occurrence
from noonmark.core.policies.dependencies import check_order, find_cycle
from noonmark.core.schedule import Pause, Schedule
from noonmark.operations.creations import create_alone
from noonmark.operations.secrets import check_secrets, secret_names
from noonmark.ports.records import Counters, ScheduleFilter, StoredSchedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.api_key import Scope
    from noonmark.core.instants import Micros
    from noonmark.core.lineage import AgentLimits, Lineage
    from noonmark.core.occurrence import Occurrence, Overrides
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.policies.limits import Dependency
    from noonmark.core.quotas import Quota
    from noonmark.core.schedule import Declaration, Owner
    from noonmark.core.targets import Target
    from noonmark.operations.creations import Creation
    from noonmark.operations.service import AuditEntryMaker, Caller
    from noonmark.ports.store import Store

    Decide = Callable[[Snapshot, Micros], Plan | None]

MAX_NAMESAKES = 10
"""How many schedules with the same name an error lists."""
MAX_TRIES = 100
"""How often the dependencies of a schedule are looked up again because another change was written first."""


_NOTHING_RAN = Counters()


class Expected(NamedTuple):
    """The state of a schedule as the caller has read it; None expects nothing."""

    revision: int | None = None
    updated: Micros | None = None
    """When it was last changed; changes of its name or description keep the revision, but not this."""

    def check(self, schedule: Schedule) -> None:
        """Raise RevisionConflict if it has changed since."""
        if self.revision is not None and schedule.revision != self.revision:
            raise RevisionConflict(
                f"the schedule has revision {schedule.revision}, not {self.revision}", field="expected_revision"
            )
        if self.updated is not None and schedule.updated != self.updated:
            raise RevisionConflict(
                f"the schedule was changed at {to_text(schedule.updated)}", field="expected_updated_at_utc"
            )


ANY_STATE = Expected()


def find(store: Store, tenant: str, schedule_id: str, *, deleted: bool = False) -> StoredSchedule:
    """Find a schedule by its id, perhaps a deleted one; NotFound if there is none."""
    stored = store.find(tenant, schedule_id, deleted=deleted)
    if stored is None:
        raise _unknown(schedule_id)
    return stored


def find_for(caller: Caller, store: Store, schedule_id: str, *, deleted: bool = False) -> StoredSchedule:
    """Find a schedule that the caller sees; NotFound if there is none."""
    stored = store.find(caller.owner.tenant, schedule_id, deleted=deleted)
    if stored is None or not caller.sees(stored.schedule):
        proposal = store.proposal(caller.owner.tenant, schedule_id)
        if proposal is not None and caller.sees_owner(proposal.owner):
            message = f"the schedule {schedule_id!r} is proposed, and waits for somebody to approve or deny it"
            raise NotFound(message, field="schedule_id")
        raise _unknown(schedule_id)
    return stored


def _unknown(schedule_id: str) -> NotFound:
    return NotFound(f"there is no schedule {schedule_id!r}", field="schedule_id")


def find_by_name(store: Store, tenant: str, name: str, *, field: str = "schedule_id") -> StoredSchedule | None:
    """The only schedule with a name that is not deleted; Conflict names the ids if there are several."""
    schedules = store.schedules(tenant, limit=MAX_NAMESAKES + 1, wanted=ScheduleFilter(name=name))
    if len(schedules) > 1:
        ids = ", ".join(one.schedule.schedule_id for one in schedules[:MAX_NAMESAKES])
        more = " and more" if len(schedules) > MAX_NAMESAKES else ""
        raise Conflict(f"several schedules have the name {name!r}; give the id of one: {ids}{more}", field=field)
    return schedules[0] if schedules else None


def create(  # noqa: PLR0913 - each is a part of the request
    store: Store,
    schedule: Schedule,
    *,
    lookahead: Micros,
    audit: AuditEntryMaker | None = None,
    quotas: tuple[Quota, ...] = (),
    agent_limits: AgentLimits | None = None,
    proposal: str | None = None,
) -> Plan | None:
    """Store a new schedule with its first plan; None if its id is taken, QuotaExceeded if the owner has too many.

    With `agent_limits`, an agent makes it. With a proposal, None also if that is not pending.
    """
    return create_alone(
        store,
        creation(
            store,
            schedule,
            lookahead=lookahead,
            audit=audit,
            quotas=quotas,
            agent_limits=agent_limits,
            proposal=proposal,
        ),
    )


def creation(  # noqa: PLR0913 - each is a part of the request
    store: Store,
    schedule: Schedule,
    *,
    lookahead: Micros,
    audit: AuditEntryMaker | None = None,
    quotas: tuple[Quota, ...] = (),
    agent_limits: AgentLimits | None = None,
    proposal: str | None = None,
    may_exist: bool = False,
) -> Creation[Plan | None]:
    """The same as an operation that yields what it stores; with `may_exist`, a copy of it may have come first."""
    check_secrets(store, schedule.owner.tenant, schedule.declaration.target)
    note = None if audit is None else audit(None, schedule, now=schedule.created)
    plan = first_plan(schedule, lookahead=lookahead)
    if note or quotas or agent_limits or proposal or may_exist:
        plan = evolve(plan, note=note, quotas=quotas, agent_limits=agent_limits, proposal=proposal, may_exist=may_exist)
    for _ in range(MAX_TRIES):
        graph = _check_order(store, schedule)
        created = yield plan if graph is None else replace(plan, graph=graph)
        if created:
            return plan
        is_taken = store.find(schedule.owner.tenant, schedule.schedule_id) is not None
        is_taken = is_taken or (may_exist and store.find_uid(schedule.uid) is not None)
        if is_taken or (proposal is not None and not _is_pending(store, schedule, proposal)):
            return None
    raise Conflict("other schedules kept changing; try again")


def as_created(plan: Plan) -> StoredSchedule | None:
    """A schedule as it is right after it was created with a plan; None if only the store knows.

    The store completes one without fires, holds those of one that is paused, and lets others wait for upstreams.
    """
    schedule = plan.snapshot.schedule
    if plan.exhausted or plan.closed or schedule.phase is not SchedulePhase.ACTIVE or schedule.declaration.depends_on:
        return None
    due = min((one.due for one in plan.planned), default=None)
    return StoredSchedule(schedule=schedule, counters=_NOTHING_RAN, next_due=due, next_own=due)


def _is_pending(store: Store, schedule: Schedule, proposal_id: str) -> bool:
    proposal = store.proposal(schedule.owner.tenant, schedule.schedule_id)
    return proposal is not None and proposal.proposal_id == proposal_id


def create_many(store: Store, schedules: Sequence[Schedule], *, lookahead: Micros) -> list[bool]:
    """Store new schedules, those without dependencies in one transaction; False where an id is taken."""
    for schedule in schedules:
        check_secrets(store, schedule.owner.tenant, schedule.declaration.target)
    alone = [schedule for schedule in schedules if not schedule.declaration.depends_on]
    plans = [first_plan(schedule, lookahead=lookahead) for schedule in alone]
    created = dict(zip((schedule.uid for schedule in alone), store.create(plans), strict=True))
    return [
        created[schedule.uid] if schedule.uid in created else create(store, schedule, lookahead=lookahead) is not None
        for schedule in schedules
    ]


def new_schedule(  # noqa: PLR0913 - each is a part of the schedule
    declaration: Declaration,
    *,
    uid: str,
    schedule_id: str,
    owner: Owner,
    source: str,
    now: Micros,
    lineage: Lineage | None = None,
) -> Schedule:
    """The first revision of a declaration."""
    return Schedule(
        uid=uid,
        schedule_id=schedule_id,
        owner=owner,
        declaration=declaration,
        revision=1,
        phase=SchedulePhase.ACTIVE if declaration.enabled else SchedulePhase.PAUSED,
        source=source,
        created=now,
        updated=now,
        pause=None
        if declaration.enabled
        else Pause(at=now, by=owner.user, reason="it was declared with enabled: false"),
        lineage=lineage,
    )


def change(
    store: Store,
    uid: str,
    decide: Decide,
    audit: AuditEntryMaker | None = None,
    expected: Expected = ANY_STATE,
    proposal: str | None = None,
) -> Schedule:
    """Decide on a locked schedule and write the plan; None changes nothing. Returns the schedule as it is then.

    RevisionConflict if it is not as expected. Conflict if it decides a proposal that is not pending.
    """
    checked = _Checked()
    for _ in range(MAX_TRIES):
        decision = _Decision(decide, audit, expected, checked, proposal)
        written = store.change(uid, decision)
        if decision.before is None:
            raise NotFound("the schedule was deleted", field="schedule_id")
        after = decision.before if decision.plan is None else decision.plan.schedule or decision.before
        if written or decision.plan is None:
            return after
        if proposal is not None and not _is_pending(store, decision.before, proposal):
            raise Conflict("the proposal was decided by somebody else", field="schedule_id")
        checked = _checked(store, after, decision.before.declaration)
    raise Conflict("the schedules it depends on kept changing; try again")


class _Checked(NamedTuple):
    """Parts of a declaration that were checked against the rest of the store; None was not checked."""

    target: Target | None = None
    upstreams: tuple[Dependency, ...] | None = None
    graph: int | None = None
    """The version of the dependency graph in which the upstreams make no cycle."""

    def covers(self, before: Declaration, after: Declaration) -> bool:
        """Whether everything new in a declaration that must be checked was checked."""
        has_secrets = after.target in (before.target, self.target) or not secret_names(after.target)
        return has_secrets and after.depends_on in ((), before.depends_on, self.upstreams)


class _Decision:
    """Decides on a schedule that the store has locked, and remembers the schedule and the plan.

    Secrets and other schedules cannot be read under the lock. If the decision depends on them, the first call writes
    nothing; they are looked up, and the next call decides again.
    """

    def __init__(
        self,
        decide: Decide,
        audit: AuditEntryMaker | None,
        expected: Expected,
        checked: _Checked,
        proposal: str | None = None,
    ) -> None:
        self._decide, self._audit, self._expected, self._checked = decide, audit, expected, checked
        self._proposal = proposal
        self.before: Schedule | None = None
        """The schedule as found; None if it does not exist or is deleted."""
        self.plan: Plan | None = None

    def __call__(self, snapshot: Snapshot, now: Micros) -> Plan | None:
        """Decide; None writes nothing."""
        self.before = self.plan = None
        before = snapshot.schedule
        if before.phase is SchedulePhase.DELETED:
            return None
        self.before = before
        self._expected.check(before)
        plan = self._decide(snapshot, now)
        if plan is None:
            return None
        after = plan.schedule or before
        if self._proposal is not None:
            plan = replace(plan, proposal=self._proposal)
        if self._audit is not None:
            plan = replace(plan, note=self._audit(before, after, now=now))
        if after.declaration.depends_on != before.declaration.depends_on:
            plan = replace(plan, graph=self._checked.graph)
        self.plan = plan
        return plan if self._checked.covers(before.declaration, after.declaration) else None


def edit(store: Store, uid: str, declaration: Declaration, *, lookahead: Micros) -> Schedule:
    """Replace the declaration; the same one again changes nothing."""
    return declare(store, uid, lambda _, __: declaration, lookahead=lookahead)


def declare(  # noqa: PLR0913 - each is a part of the request
    store: Store,
    uid: str,
    read: Callable[[Schedule, Micros], Declaration],
    *,
    lookahead: Micros,
    audit: AuditEntryMaker | None = None,
    source: str | None = None,
    quotas: tuple[Quota, ...] = (),
    proposal: str | None = None,
    agent_limits: AgentLimits | None = None,
    scopes: frozenset[Scope] | None = None,
) -> Schedule:
    """Replace the declaration by what `read` makes of the schedule; the same declaration again changes nothing.

    `read` gets the exact time of the edit: a trigger relative to now is anchored at the time that is stored, so that it
    is recognised when it is declared again. With a source, the whole declaration comes from there. With `agent_limits`,
    an agent makes the change; sessions of a new target may do no more than `scopes`.
    """

    def decide(snapshot: Snapshot, now: Micros) -> Plan | None:
        declaration = read(snapshot.schedule, now)
        if snapshot.schedule.declaration == declaration and source in {None, snapshot.schedule.source}:
            return None
        plan = edits.edit(snapshot, declaration, now=now, lookahead=lookahead, source=source, scopes=scopes)
        return replace(plan, quotas=quotas, agent_limits=agent_limits)

    return change(store, uid, decide, audit, proposal=proposal)


def pause(  # noqa: PLR0913 - each is a part of the request
    store: Store,
    uid: str,
    audit: AuditEntryMaker | None = None,
    *,
    expected: Expected = ANY_STATE,
    by: str | None = None,
    reason: str | None = None,
    until: Micros | None = None,
    is_agent: bool = False,
) -> Schedule:
    """Pause a schedule: its trigger starts nothing until it is resumed, or until a time.

    A paused schedule gets a new reason and end if one of them is given; without a reason it keeps the one it has. If
    neither is given, nothing changes.
    """

    def decide(snapshot: Snapshot, now: Micros) -> Plan | None:
        _check_goes_on(snapshot.schedule, "pause")
        if until is not None and until <= now:
            raise InvalidRequest(f"must be later than now, {to_text(now)}", field="until")
        if until is not None and is_agent:
            _check_guard(snapshot)
        if snapshot.schedule.phase is SchedulePhase.PAUSED and reason is None and until is None:
            return None
        return edits.pause(snapshot, now=now, why=Pause(at=now, by=by, reason=reason, until=until))

    return change(store, uid, decide, audit, expected)


def resume(  # noqa: PLR0913 - likewise
    store: Store,
    uid: str,
    *,
    lookahead: Micros,
    audit: AuditEntryMaker | None = None,
    expected: Expected = ANY_STATE,
    proposal: str | None = None,
    is_agent: bool = False,
) -> Schedule:
    """Resume a schedule: plan from now on."""

    def decide(snapshot: Snapshot, now: Micros) -> Plan | None:
        _check_goes_on(snapshot.schedule, "resume")
        if is_agent:
            _check_guard(snapshot)
        if snapshot.schedule.phase is SchedulePhase.ACTIVE:
            return None
        return edits.resume(snapshot, now=now, lookahead=lookahead)

    return change(store, uid, decide, audit, expected, proposal)


def _check_guard(snapshot: Snapshot) -> None:
    """Refuse to let an agent resume what the runaway guard has stopped, now or at a time."""
    if snapshot.runaway is not None and snapshot.runaway.stopped is not None:
        why = f"the runaway guard has paused it ({snapshot.runaway.stopped})"
        raise NotAllowed(f"{why}; a person resumes it, an agent cannot")


def _check_goes_on(schedule: Schedule, verb: str) -> None:
    if schedule.phase is SchedulePhase.COMPLETED:
        raise Conflict(f"it has completed, so there is nothing to {verb}; give it another trigger to start again")


def delete(
    store: Store,
    uid: str,
    audit: AuditEntryMaker | None = None,
    *,
    expected: Expected = ANY_STATE,
    proposal: str | None = None,
) -> Schedule:
    """Delete a schedule: nothing of it starts from now on; its history is kept."""
    return change(store, uid, lambda snapshot, now: edits.delete(snapshot, now=now), audit, expected, proposal)


def cancel(store: Store, stored: StoredSchedule) -> int:
    """Delete a schedule and ask its running deliveries to stop; returns how many. NotFound if it has completed."""
    schedule = stored.schedule
    [activity] = store.activities([schedule.uid])
    # A completed schedule may have another requested run, which is due at a time or waits for a running one.
    if schedule.phase is SchedulePhase.COMPLETED and not activity.delivering and stored.next_due is None:
        raise NotFound("the schedule has completed: there is nothing to cancel", field="schedule_id")
    delete(store, schedule.uid)
    return stop_runs(store, schedule.uid)


def stop_runs(store: Store, uid: str) -> int:
    """Ask the running deliveries of a schedule to stop; returns how many."""
    [activity] = store.activities([uid])
    return sum([store.request_stop(one) for one in activity.delivering])


def _checked(store: Store, after: Schedule, before: Declaration) -> _Checked:
    """Check the new parts of a declaration against the rest of the store."""
    target = upstreams = graph = None
    if after.declaration.target != before.target:
        target = after.declaration.target
        check_secrets(store, after.owner.tenant, target)
    if after.declaration.depends_on != before.depends_on:
        upstreams = after.declaration.depends_on
        graph = _check_order(store, after)
    return _Checked(target, upstreams, graph)


def _check_order(store: Store, schedule: Schedule) -> int | None:
    """Refuse a dependency cycle; returns the version of the graph that was checked, None without upstreams."""
    upstreams = schedule.declaration.depends_on
    if not upstreams:
        return None
    graph = store.graph(schedule.owner.tenant, [one.schedule_id for one in upstreams])
    cycle = find_cycle(schedule.schedule_id, upstreams, graph.upstreams)
    names = _names(store, schedule.owner.tenant, cycle)
    check_order(schedule.schedule_id, upstreams, graph.upstreams, names)
    return graph.version


def _names(store: Store, tenant: str, schedule_ids: Sequence[str]) -> dict[str, str]:
    """The names of schedules, by id; those that have none are left out."""
    stored = [store.find(tenant, one) for one in schedule_ids]
    declared = {one.schedule.schedule_id: one.schedule.declaration.name for one in stored if one is not None}
    return {schedule_id: name for schedule_id, name in declared.items() if name is not None}


def run_now(
    schedule: Schedule,
    *,
    key: str,
    payload: Any,
    now: Micros,
    overrides: Overrides | None = None,
) -> Occurrence:
    """An occurrence that is requested by hand, due now; it does not move the next fire."""
    return occurrence(schedule, now, now, origin=manual(key), payload=payload, overrides=overrides)
