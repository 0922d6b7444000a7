"""Plan writes: what the planner and the edits decided, on condition that nothing has happened since."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from noonmark.core import edits
from noonmark.core.errors import QuotaExceeded
from noonmark.core.filters.index import discriminator
from noonmark.core.ids import is_hidden, is_own_id
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.lineage import check_children, check_depth, fingerprint
from noonmark.core.policies.delivery import patience
from noonmark.core.reasons import Reason
from noonmark.core.schedule import BY_ITSELF, Pause, automatic_entry
from noonmark.core.system_events import SystemEvent, change
from noonmark.core.targets import BundleTarget, TargetKind, WorkflowTarget
from noonmark.core.triggers import EventTrigger
from noonmark.core.workflows.run import NOT_BEGUN, WorkflowRun
from noonmark.ports.workflows import UsedKind
from noonmark.stores.rules import (
    completion,
    dependencies,
    proposals,
    quotas,
    rate_windows,
    runaway,
    slots,
    snapshots,
    step_ends,
)
from noonmark.stores.rules.records import (
    AWAITED_BY_RUNS,
    UNSTARTED,
    ScheduleState,
    Unreadable,
)
from noonmark.stores.rules.unit_of_work import Fact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan, Projection, Rewound, Snapshot
    from noonmark.core.policies.runaway import Breach
    from noonmark.core.proposals import Proposal
    from noonmark.core.quotas import Quota
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets.mob import MobTarget
    from noonmark.stores.rules.records import Row
    from noonmark.stores.rules.unit_of_work import Identity, Subscription, UnitOfWork
    from noonmark.stores.rules.workflow_records import TargetUse

    Creations = Sequence[tuple[Plan, Schedule]]
    WritePlain = Callable[[Creations, set[Identity]], Creations]
    """Writes the plain creations that nobody listens for, given the ids that others depend on; returns the rest."""


def apply(uow: UnitOfWork, state: ScheduleState, before: Schedule, after: Schedule) -> None:
    """Bring the live rows, the subscriptions and the dependencies in line with a changed schedule."""
    old, new = before.declaration, after.declaration
    if after.phase is not before.phase:
        _change_phase(uow, state, before.phase, after.phase)
    if old.target.route != new.target.route:
        _change_route(uow, state, new.target.route)
    if (old.overlap_policy, old.concurrency) != (new.overlap_policy, new.concurrency):
        for row in sorted(uow.live_rows(state), key=lambda row: row.turn):
            if row.ready is None and row.waiting_for not in (None, *AWAITED_BY_RUNS):
                slots.wake(uow, row)
    if after.revision != before.revision and old.depends_on:
        dependencies.wake_waiting(uow, state)
    if old.trigger is not new.trigger or subscriptions_of(before) != subscriptions_of(after):
        uow.replace_subscriptions(state, after.owner.tenant, subscriptions_of(after))
    if (uses := target_uses(after)) != target_uses(before):
        uow.workflows.put_uses(state.schedule, after.owner.tenant, uses, is_new=False)
    dependencies.bind(uow, state, before, after)


def subscriptions_of(schedule: Schedule) -> list[Subscription]:
    """The event types that a schedule subscribes to."""
    trigger = schedule.declaration.trigger
    if schedule.phase is SchedulePhase.DELETED or not isinstance(trigger, EventTrigger):
        return []
    own = discriminator(trigger.filters)
    return [(event_type, own) for event_type in trigger.event_types]


def target_uses(schedule: Schedule) -> list[TargetUse]:
    """What the target of a schedule names, as long as it counts."""
    target = schedule.declaration.target
    if schedule.phase is SchedulePhase.DELETED or is_hidden(schedule.schedule_id):
        return []
    if isinstance(target, WorkflowTarget):
        return [(UsedKind.WORKFLOW, target.workflow_id)]
    if isinstance(target, BundleTarget):
        return [(UsedKind.BUNDLE, name) for name in (target.bundle_id, target.digest) if name is not None]
    # By its kind: the classes of agents' targets are not loaded where there are none.
    if target.kind == TargetKind.SESSION:
        session_id = getattr(target, "session_id", None) or getattr(target, "bound_session_id", None)
        return [] if session_id is None else [(UsedKind.SESSION, session_id)]
    if target.kind == TargetKind.MOB:
        return [(UsedKind.MOB, cast("MobTarget", target).mob_id)]
    return []


def _change_route(uow: UnitOfWork, state: ScheduleState, route: str) -> None:
    for row in uow.live_rows(state):
        if not _has_own_target(uow, row):
            row.route = route
            uow.changed(row)


def _has_own_target(uow: UnitOfWork, row: Row) -> bool:
    """Whether a row has another target than its schedule; a damaged one ends, whatever its route."""
    own = uow.overrides(row)
    return own is not None and own.target is not None


def _change_phase(uow: UnitOfWork, state: ScheduleState, before: SchedulePhase, after: SchedulePhase) -> None:
    match after:
        case SchedulePhase.DELETED:
            _cancel_rows(uow, state)
        case SchedulePhase.PAUSED:
            _hold_rows(uow, state)
        case _:
            if before is SchedulePhase.PAUSED:
                state.failures_in_row = 0
                runaway.begin_anew(uow, state)
                uow.changed_state(state)
            _release_rows(uow, state)


def _cancel_rows(uow: UnitOfWork, state: ScheduleState) -> None:
    """Cancel every row that is not delivered."""
    for row in uow.live_rows(state):
        # Ending one may hand its slot to the next, which ends in its turn.
        row.held = 0
        uow.changed(row)
        if uow.ends_itself(row) and not row.is_suspended:
            step_ends.stop_suspended(uow, row, Reason.DELETED)
        elif row.phase in UNSTARTED and not row.is_suspended:
            completion.cancel(uow, row, Reason.DELETED)


def _hold_rows(uow: UnitOfWork, state: ScheduleState) -> None:
    """Hold the rows of the schedule's own trigger: they are not claimed, nor started by a node that claimed them."""
    rows = [row for row in uow.live_rows(state) if row.is_own and not row.is_suspended]
    slots.hold(uow, rows)
    for row in rows:  # once all of them are held: none may get what another one gives back
        slots.free_keys_if_held(uow, row)


def _release_rows(uow: UnitOfWork, state: ScheduleState) -> None:
    """Release held rows: they can be claimed at their time, and take what became free. A paused backfill stays held."""
    rows = [row for row in uow.live_rows(state) if row.is_own]
    for row in rows:
        row.held = 0
        uow.changed(row)
    slots.hand_over_slot(uow, state)
    slots.hand_over_keys(uow, [row.wanted for row in rows])


def create_all(uow: UnitOfWork, plans: Sequence[Plan], write_plain: WritePlain | None = None) -> list[bool]:
    """Create schedules with their first plans; False where the id is taken. None is created if one is refused.

    `write_plain` is how the store writes the usual ones.
    """
    answers: list[bool] = []
    for answer in (judged := _judge(uow, plans)).answers:
        if isinstance(answer, QuotaExceeded):
            raise answer
        answers.append(answer)
    _create(uow, judged, write_plain)
    return answers


def create_each(
    uow: UnitOfWork, plans: Sequence[Plan], write_plain: WritePlain | None = None
) -> list[bool | QuotaExceeded]:
    """The same for independent plans of several callers: one that is refused has its error as the answer."""
    judged = _judge(uow, plans)
    _create(uow, judged, write_plain)
    return judged.answers


def is_independent(plan: Plan) -> bool:
    """Whether others may be created in the same transaction: what they write does not decide about this one.

    Quotas do not matter: they count what is created before in the same transaction.
    """
    return plan.graph is None and plan.proposal is None and plan.agent_limits is None


class _Judged(NamedTuple):
    answers: list[bool | QuotaExceeded]
    accepted: list[tuple[Plan, Schedule]]
    followed: set[Identity]


def _judge(uow: UnitOfWork, plans: Sequence[Plan]) -> _Judged:
    """Which schedules can be created. Nothing is written."""
    schedules = [plan.schedule or plan.snapshot.schedule for plan in plans]
    identities = {
        (one.owner.tenant, one.schedule_id)
        for plan, one in zip(plans, schedules, strict=True)
        if plan.may_exist or not is_own_id(one.schedule_id, one.uid)
    }
    taken, followed = uow.known_ids(identities) if identities else (set(), set())
    answers: list[bool | QuotaExceeded] = []
    accepted: list[tuple[Plan, Schedule]] = []
    for plan, schedule in zip(plans, schedules, strict=True):
        identity = (schedule.owner.tenant, schedule.schedule_id)
        is_free = identity not in taken or schedule.phase is SchedulePhase.DELETED
        fits = is_free and dependencies.is_graph_current(uow, schedule.owner.tenant, plan.graph)
        fits = fits and proposals.is_pending(uow, plan)
        if fits:
            try:
                quotas.check(uow, plan, schedule, [one for _, one in accepted])
            except QuotaExceeded as error:
                answers.append(error)
                continue
            _check_lineage(uow, plan, schedule)
            accepted.append((plan, schedule))
            if schedule.phase is not SchedulePhase.DELETED:
                taken.add(identity)
        answers.append(fits)
    return _Judged(answers, accepted, followed)


def _create(uow: UnitOfWork, judged: _Judged, write_plain: WritePlain | None) -> None:
    followed = judged.followed
    # Schedules are numbered in the order of their first occurrences, as those are: see `UnitOfWork.reserve`.
    accepted: Creations = sorted(judged.accepted, key=lambda one: one[0].planned[0].id if one[0].planned else "")
    if write_plain is not None:
        accepted = write_plain(accepted, followed)
    if not accepted:
        return
    uow.reserve({row.id for plan, _ in accepted for row in plan.planned})
    created = []
    for plan, schedule in accepted:
        state = new_state(uow.next_schedule_key(len(accepted)), schedule, plan)
        state.followed = int((schedule.owner.tenant, schedule.schedule_id) in followed)
        uow.add_schedule(state, schedule)
        created.append((state, schedule))
        if state.followed or schedule.declaration.depends_on:
            dependencies.bind(uow, state, None, schedule)
            followed |= {(schedule.owner.tenant, one.schedule_id) for one in schedule.declaration.depends_on}
        if uses := target_uses(schedule):
            uow.workflows.put_uses(state.schedule, schedule.owner.tenant, uses, is_new=True)
        uow.tenants[state.schedule] = schedule.owner.tenant
        _write(uow, state, plan, schedule, schedule)
        is_denied = schedule.phase is SchedulePhase.DELETED
        if not is_denied:
            uow.facts.append(Fact(event=SystemEvent.SCHEDULE_CREATED, state=state, schedule=schedule, note=plan.note))
        _audit(uow, plan)
        proposals.finish(uow, plan, approved=not is_denied)
    uow.add_subscriptions(
        [(state, schedule.owner.tenant, one) for state, schedule in created for one in subscriptions_of(schedule)]
    )


def is_plain(plan: Plan, schedule: Schedule) -> bool:
    """Whether a creation only adds a schedule and its next fires, if nobody depends on it or listens for it."""
    declared = schedule.declaration
    return (
        is_independent(plan)
        and plan.schedule is None
        and schedule.phase is SchedulePhase.ACTIVE
        and not plan.closed
        and (bool(plan.planned) or not plan.exhausted)  # else it is completed at once
        and not declared.depends_on
        and declared.expected_rate is None
        and not isinstance(declared.trigger, EventTrigger)
        and not target_uses(schedule)
    )


def _check_lineage(uow: UnitOfWork, plan: Plan, schedule: Schedule) -> None:
    """Refuse a schedule that an agent makes if it is a clone, at the end of too long a chain, or one of too many."""
    lineage, limits = schedule.lineage, plan.agent_limits
    if lineage is None or limits is None:
        return
    check_depth(lineage, limits)
    proposals.refuse_clones(uow, schedule.owner, schedule.schedule_id, lineage.fingerprint)
    if lineage.parent is not None:
        children = uow.count_children(schedule.owner.tenant, lineage.parent)
        check_children(lineage, limits.max_children, children)


def _check_edit(uow: UnitOfWork, plan: Plan, before: Schedule, after: Schedule) -> None:
    """Refuse a change by which an agent makes a clone. Where the schedule is one already, other changes are allowed."""
    if plan.agent_limits is not None:
        digests = [fingerprint(one.declaration.to_document()) for one in (before, after)]
        changed = None if digests[0] == digests[1] else digests[1]
        proposals.refuse_clones(uow, after.owner, after.schedule_id, changed)


def expire_proposals(uow: UnitOfWork, expired: Sequence[Proposal], *, now: Micros) -> None:
    """Deny proposals that nobody decided in time; proposed schedules are stored as deleted ones."""
    plans = [proposals.expire(uow, one, now=now) for one in expired]
    create_all(uow, [plan for plan in plans if plan is not None])


def commit_all(uow: UnitOfWork, plans: Sequence[Plan]) -> list[bool]:
    """Write each plan; False if the schedule, or a fire that the plan counts, has changed since it was read."""
    states = uow.load_states({plan.snapshot.schedule.uid for plan in plans})
    uow.load_rows(one for plan in plans for one in _named(plan))
    uow.reserve({row.id for plan in plans for row in plan.planned})
    return [_commit(uow, states.get(plan.snapshot.schedule.uid), plan) for plan in plans]


def commit_change(uow: UnitOfWork, uid: str, decide: Callable[[Snapshot, Micros], Plan | None]) -> bool:
    """Decide on the current schedule, and write the decision in the same transaction."""
    snapshot = snapshots.by_uid(uow, uid)
    plan = None if snapshot is None else decide(snapshot, uow.now())
    return plan is not None and commit_all(uow, [plan])[0]


def add_all(uow: UnitOfWork, occurrences: Sequence[Occurrence], limits: Sequence[Quota] = ()) -> list[bool]:
    """Add occurrences; False for one that is known, or whose schedule does not exist.

    QuotaExceeded if the others may not all wait.
    """
    states = uow.load_states({one.uid for one in occurrences})
    uow.load_rows(one.id for one in occurrences)
    if limits:
        new = {one.id: state for one in occurrences if (state := states.get(one.uid)) and _is_new(uow, state, one)}
        quotas.check_added(uow, limits, list(new.values()))
    uow.reserve({one.id for one in occurrences})
    return [add(uow, states.get(one.uid), one) for one in occurrences]


def add(uow: UnitOfWork, state: ScheduleState | None, occurrence: Occurrence) -> bool:
    """Add an occurrence whose row and state are loaded."""
    if state is None or not _is_new(uow, state, occurrence):
        return False
    row = _insert(uow, state, occurrence)
    if (run := _requested_run(occurrence)) is not None:
        tenants = uow.tenants_of({row.schedule})
        uow.workflows.put_run(row, tenants[row.schedule], run)
    return True


def _requested_run(occurrence: Occurrence) -> WorkflowRun | None:
    """The workflow run that somebody has asked for, so that it is listed before it begins."""
    overrides = occurrence.overrides
    target = None if overrides is None or overrides.parent is not None else overrides.target
    if not isinstance(target, WorkflowTarget) or target.version is None:
        return None
    return WorkflowRun(
        occurrence_id=occurrence.id,
        workflow_id=target.workflow_id,
        version=target.version,
        inputs=target.inputs,
        started=occurrence.due,
        attempt=NOT_BEGUN,
    )


def _is_new(uow: UnitOfWork, state: ScheduleState, occurrence: Occurrence) -> bool:
    """Whether an occurrence can be added."""
    return state.phase != SchedulePhase.DELETED and uow.loaded_row(occurrence.id) is None


def pause_if_failing(uow: UnitOfWork, state: ScheduleState, limit: int | None) -> None:
    """Pause an active schedule when too many of its occurrences have failed in a row."""
    if limit is not None and state.failures_in_row >= limit and state.phase == SchedulePhase.ACTIVE:
        try:
            schedule = uow.schedule_of(state)
        except Unreadable:
            return  # it is not planned any more
        failures = state.failures_in_row
        reason = f"pause_on_failure is {limit}, and {failures} in a row did not complete"
        _pause(uow, state, schedule, Pause(at=uow.now(), by=BY_ITSELF, reason=reason), failures=failures)


def pause_itself(uow: UnitOfWork, state: ScheduleState, why: Pause) -> None:
    """Pause an active schedule that may not go on for now."""
    if state.phase == SchedulePhase.ACTIVE:
        try:
            schedule = uow.schedule_of(state)
        except Unreadable:
            return  # likewise
        _pause(uow, state, schedule, why)


def stop_runaway(uow: UnitOfWork, state: ScheduleState, breach: Breach) -> None:
    """Pause an active schedule that has broken a rule of the runaway guard; one that is completed is only reported."""
    if state.phase == SchedulePhase.COMPLETED:
        runaway.report(uow, state, breach)
        return
    try:
        schedule = uow.schedule_of(state)
    except Unreadable:
        return  # likewise
    [snapshot] = snapshots.snapshots(uow, [(state, schedule)])
    plan = edits.stop_runaway(snapshot, breach, now=uow.now())
    if plan is not None:
        _write(uow, state, plan, schedule, plan.schedule or schedule)
        _audit(uow, plan)


def _pause(uow: UnitOfWork, state: ScheduleState, schedule: Schedule, why: Pause, *, failures: int = 0) -> None:
    [snapshot] = snapshots.snapshots(uow, [(state, schedule)])
    note = automatic_entry(schedule, SchedulePhase.PAUSED, at=why.at, reason=why.reason)
    plan = replace(edits.pause(snapshot, now=uow.now(), why=why), note=None if failures else note)
    _write(uow, state, plan, schedule, plan.schedule or schedule, failures=failures)
    uow.add_audit_entry(schedule.owner.tenant, note)


def new_state(key: int, schedule: Schedule, plan: Plan) -> ScheduleState:
    """The state of a new schedule, before its fires are added."""
    return ScheduleState(
        schedule=key,
        uid=schedule.uid,
        phase=schedule.phase,
        revision=schedule.revision,
        version=1,
        updated=schedule.updated,
        watermark=plan.watermark,
        plan_at=plan.plan_at,
        exhausted=int(plan.exhausted),
        patience=_patience(schedule),
        owner=schedule.owner.number,
    )


def _named(plan: Plan) -> list[str]:
    """The ids of the rows that a plan names."""
    rows = [row.id for row in (*plan.planned, *plan.closed)]
    gaps = () if plan.rewound is None else (*plan.rewound.undone, *(gap.id for gap in plan.rewound.shortened))
    return [*rows, *plan.removed, *plan.superseded, *plan.cancelled, *gaps]


def _commit(uow: UnitOfWork, state: ScheduleState | None, plan: Plan) -> bool:
    before = plan.snapshot.schedule
    if state is None or not _is_as_read(state, plan.snapshot):
        return False
    is_limited = (plan.schedule or before).declaration.max_runs is not None
    if is_limited and state.admitted != plan.snapshot.runs:
        return False
    if plan.snapshot.upstreams is not None and plan.snapshot.upstreams.news != state.news:
        return False
    if not dependencies.is_graph_current(uow, before.owner.tenant, plan.graph):
        return False
    if not rate_windows.is_as_read(uow, state, plan) or not proposals.is_pending(uow, plan):
        return False
    gone = plan.gone
    if gone and any(one.id in gone and _has_moved_on(uow, one) for one in plan.snapshot.projections):
        return False
    if plan.schedule is not None and snapshots.readable(uow, state) != before:
        return False
    if plan.schedule is not None and before.phase is SchedulePhase.COMPLETED:
        quotas.check(uow, plan, plan.schedule)
    _check_edit(uow, plan, before, plan.schedule or before)
    uow.tenants[state.schedule] = before.owner.tenant
    _write(uow, state, plan, before, plan.schedule or before)
    _audit(uow, plan)
    proposals.finish(uow, plan, approved=True)
    return True


def _is_as_read(state: ScheduleState, snapshot: Snapshot) -> bool:
    """Whether a schedule was neither changed nor planned since it was read."""
    then = (snapshot.schedule.revision, snapshot.schedule.phase, snapshot.watermark)
    return (state.revision, state.phase, state.watermark) == then


def _audit(uow: UnitOfWork, plan: Plan) -> None:
    if plan.note is not None:
        uow.add_audit_entry(plan.snapshot.schedule.owner.tenant, plan.note)


def _patience(schedule: Schedule) -> int:
    return patience(schedule.declaration.misfire_policy.grace)


def _projection(uow: UnitOfWork, occurrence_id: str) -> Row | None:
    row = uow.row(occurrence_id)
    return row if row is not None and row.is_projection else None


def _has_moved_on(uow: UnitOfWork, then: Projection) -> bool:
    """Whether a projection that a plan counts has started or begun to wait since the snapshot."""
    row = _projection(uow, then.id)
    return row is None or (row.waiting_for is not None and then.waiting_for is None)


def _write(
    uow: UnitOfWork, state: ScheduleState, plan: Plan, before: Schedule, after: Schedule, *, failures: int = 0
) -> None:
    _write_rows(uow, state, plan)
    was_exhausted = state.exhausted
    state.watermark, state.plan_at, state.exhausted = plan.watermark, plan.plan_at, int(plan.exhausted)
    if after.declaration.expected_rate is not None or before.declaration.expected_rate is not None:
        rate_windows.put_planned(uow, state, plan, before, after)
    uow.changed_state(state)
    if after is not before:
        state.phase, state.revision, state.updated = after.phase, after.revision, after.updated
        state.patience, state.fault = _patience(after), None
        state.version += 1
        uow.replace_schedule(state, after)
    if state.sent_back:
        _give_times(uow, state)
    if after is not before:
        apply(uow, state, before, after)
        event = change(before, after)
        uow.facts.append(Fact(event=event, state=state, schedule=after, note=plan.note, failures=failures))
    if plan.breach is not None:
        runaway.stop(uow, state, plan.breach)
        runaway.report(uow, state, plan.breach)
    # If nothing follows, removed rows leave neither an end nor a change behind.
    if was_exhausted != state.exhausted or (state.exhausted and plan.removed):
        dependencies.notify_downstream(uow, state)
    completion.complete_if_done(uow, state)


def _rewind(uow: UnitOfWork, state: ScheduleState, rewound: Rewound) -> None:
    """Undo and shorten gaps that were closed while the clock was ahead."""
    for undone in rewound.undone:
        if (row := _gap(uow, undone)) is not None:
            state.fences = max(state.fences, row.fence + 1)
            completion.uncount(state, row, row.missed_count)
            _forget(uow, state, row)
    for gap in rewound.shortened:
        if (row := _gap(uow, gap.id)) is not None:
            completion.uncount(state, row, row.missed_count - gap.count)
            row.missed_last, row.missed_count = gap.last, gap.count
            uow.changed(row)
    state.newest = rewound.newest


def _gap(uow: UnitOfWork, occurrence_id: str) -> Row | None:
    row = uow.row(occurrence_id)
    return row if row is not None and row.ended is not None and row.missed_last is not None else None


def _write_rows(uow: UnitOfWork, state: ScheduleState, plan: Plan) -> None:
    if plan.rewound is not None:
        _rewind(uow, state, plan.rewound)
    for removed in plan.removed:
        if (row := _projection(uow, removed)) is not None:
            state.fences = max(state.fences, row.fence + 1)
            _forget(uow, state, row)
    for occurrence in plan.closed:
        _put(uow, state, occurrence)
    for ids, phase, reason in (
        (plan.superseded, Phase.SUPERSEDED, Reason.EDITED),
        (plan.cancelled, Phase.CANCELLED, Reason.DELETED),
    ):
        for moved in ids:
            if (row := _projection(uow, moved)) is not None:
                row.fence += 1
                completion.end(uow, row, phase, reason)
    seen = {one.id for one in plan.snapshot.projections}
    for occurrence in plan.planned:
        # A row that the plan saw and that is gone has ended since, and was pruned.
        if occurrence.id not in seen or uow.loaded_row(occurrence.id) is not None:
            _put(uow, state, occurrence)
    slots.hand_over_slot(uow, state)  # a row that is gone may have kept those behind it in its line waiting


def _give_times(uow: UnitOfWork, state: ScheduleState) -> None:
    """Rows that were sent back to the planner and that the plan left as they are can be claimed again."""
    state.sent_back = 0
    for row in uow.live_rows(state):
        if row.ready is None and row.phase == Phase.PENDING and row.waiting_for is None:
            row.ready = row.due
            uow.changed(row)


def _put(uow: UnitOfWork, state: ScheduleState, occurrence: Occurrence) -> None:
    """Insert a row, in place of a projection or of a row that an edit had moved."""
    row = uow.loaded_row(occurrence.id)
    if row is None:
        _insert(uow, state, occurrence)
    elif row.is_projection and row.waiting_for is not None and occurrence.phase is Phase.PENDING:
        _rebind(uow, row, occurrence)
    elif row.is_projection or row.phase == Phase.SUPERSEDED:
        _forget(uow, state, row)
        _insert(uow, state, replace(occurrence, fence=row.fence + 1))


def _rebind(uow: UnitOfWork, row: Row, occurrence: Occurrence) -> None:
    """Change a row that waits or has just got its turn; it keeps its position or its turn."""
    row.revision, row.origin, row.phase, row.route = (
        occurrence.revision,
        occurrence.origin,
        occurrence.phase,
        occurrence.route,
    )
    row.nominal, row.first_due, row.caught_up = occurrence.nominal, occurrence.first_due, occurrence.caught_up
    row.reason, row.detail, row.payload = occurrence.reason, occurrence.detail, uow.pack(occurrence.payload)
    row.fence += 1
    row.give_back()
    uow.changed(row)


def _insert(uow: UnitOfWork, state: ScheduleState, occurrence: Occurrence) -> Row:
    row = uow.new_row(occurrence, state)
    row.fence = max(row.fence, state.fences)
    row.held = int(state.holds_back(row))
    state.live += 1
    uow.add_row(row)
    uow.changed_state(state)
    if occurrence.phase in FINAL:
        completion.archive(uow, row)
    return row


def _forget(uow: UnitOfWork, state: ScheduleState, row: Row) -> None:
    """Remove a row, live or ended, and hand over what it held."""
    if row.ended is None:
        slots.leave_queue(uow, row)
        state.live = max(0, state.live - 1)
    else:
        state.history = max(0, state.history - 1)
    uow.changed_state(state)
    uow.remove_row(row)
    slots.free_all(uow, state, row)
