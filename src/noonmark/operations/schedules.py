"""Operations on schedules: create, declare, pause, resume, delete, cancel, run now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from noonmark.core import edits
from noonmark.core.errors import Conflict, NotFound, RevisionConflict
from noonmark.core.ids import manual
from noonmark.core.instants import to_text
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import first_plan
from noonmark.core.plans import occurrence
from noonmark.core.policies.dependencies import check_order, find_cycle
from noonmark.core.schedule import Schedule
from noonmark.operations.carrying import check_secrets, secret_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.audit import AuditEntry
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan, Snapshot
    from noonmark.core.policies.limits import Dependency
    from noonmark.core.policies.overrides import Overrides
    from noonmark.core.schedule import Declaration, Owner
    from noonmark.core.targets import Target
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store

    Decide = Callable[[Snapshot, Micros], Plan | None]

MAX_TRIES = 100
"""So often what a schedule depends on is looked up again, because somebody else's change of that was written first."""


class Expected(NamedTuple):
    """The schedule as a caller who changes it has read it; None is not said."""

    revision: int | None = None
    updated: Micros | None = None
    """When it was last changed; also what people read of it, which keeps the revision."""

    def check(self, schedule: Schedule) -> None:
        """Refuse to change what somebody else has changed meanwhile."""
        if self.revision is not None and schedule.revision != self.revision:
            raise RevisionConflict(
                f"the schedule has revision {schedule.revision}, not {self.revision}", field="expected_revision"
            )
        if self.updated is not None and schedule.updated != self.updated:
            raise RevisionConflict(
                f"the schedule was changed at {to_text(schedule.updated)}", field="expected_updated_at_utc"
            )


ANYHOW = Expected()


class Sign(Protocol):
    """Writes down who made a change."""

    def __call__(self, before: Schedule | None, after: Schedule | None, *, now: Micros) -> AuditEntry:
        """The note of a change, or of something that was asked of a schedule."""


def find(store: Store, tenant: str, schedule_id: str, *, deleted: bool = False) -> StoredSchedule:
    """The schedule of that id, perhaps a deleted one; NotFound when there is none."""
    kept = store.find(tenant, schedule_id, deleted=deleted)
    if kept is None:
        raise NotFound(f"there is no schedule {schedule_id!r}", field="schedule_id")
    return kept


def create(store: Store, schedule: Schedule, *, lookahead: Micros, sign: Sign | None = None) -> bool:
    """Keep a new schedule with its first plan; False when its id is taken."""
    check_secrets(store, schedule.owner.tenant, schedule.declaration.target)
    plan = first_plan(schedule, lookahead=lookahead)
    if sign is not None:
        plan = replace(plan, note=sign(None, schedule, now=schedule.created))
    for _ in range(MAX_TRIES):
        [created] = store.create([replace(plan, graph=_check_order(store, schedule))])
        if created or store.find(schedule.owner.tenant, schedule.schedule_id) is not None:
            return created
    raise Conflict("other schedules were changed all the while; try again")


def create_many(store: Store, made: Sequence[Schedule], *, lookahead: Micros) -> list[bool]:
    """Keep new schedules, those that depend on no other in one transaction; False where an id is taken."""
    for one in made:
        check_secrets(store, one.owner.tenant, one.declaration.target)
    alone = [one for one in made if not one.declaration.depends_on]
    plans = [first_plan(one, lookahead=lookahead) for one in alone]
    kept = dict(zip((one.uid for one in alone), store.create(plans), strict=True))
    return [kept[one.uid] if one.uid in kept else create(store, one, lookahead=lookahead) for one in made]


def new_schedule(
    declaration: Declaration, *, uid: str, schedule_id: str, owner: Owner, source: str, now: Micros
) -> Schedule:
    """The first revision of what somebody declared."""
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
    )


def change(
    store: Store,
    uid: str,
    decide: Decide,
    sign: Sign | None = None,
    expected: Expected = ANYHOW,
) -> Schedule:
    """Decide on what is stored while nobody else changes it; None leaves it as it is. The schedule as it is then.

    Another revision than the expected one is a RevisionConflict; None expects nothing.
    """
    checked = _Checked()
    for _ in range(MAX_TRIES):
        decision = _Decision(decide, sign, expected, checked)
        written = store.change(uid, decision)
        if decision.before is None:
            raise NotFound("the schedule was deleted", field="schedule_id")
        after = decision.before if decision.plan is None else decision.plan.schedule or decision.before
        if written or decision.plan is None:
            return after
        checked = _checked(store, after, decision.before.declaration)
    raise Conflict("what it depends on was changed by others all the while; try again")


class _Checked(NamedTuple):
    """Parts of a declaration that agree with what else is stored; None was not looked at."""

    target: Target | None = None
    upstreams: tuple[Dependency, ...] | None = None
    graph: int | None = None
    """The version of what depends on what, as of which the upstreams make no cycle."""

    def covers(self, before: Declaration, after: Declaration) -> bool:
        """Whether nothing else is new in a declaration that has to be looked up before it is stored."""
        has_secrets = after.target in (before.target, self.target) or not secret_names(after.target)
        return has_secrets and after.depends_on in ((), before.depends_on, self.upstreams)


class _Decision:
    """Decides for a store that has locked the schedule, and keeps what it was given and what it made of that.

    Secrets and other schedules cannot be read under the lock. Where the decision rests on them, the first call writes
    nothing; they are looked up, and the next call decides anew.
    """

    def __init__(self, decide: Decide, sign: Sign | None, expected: Expected, checked: _Checked) -> None:
        """With what was looked up before."""
        self._decide, self._sign, self._expected, self._checked = decide, sign, expected, checked
        self.before: Schedule | None = None
        """As it was found; None where there is none, or it is deleted."""
        self.plan: Plan | None = None

    def __call__(self, snapshot: Snapshot, now: Micros) -> Plan | None:
        """The plan to write now, if any."""
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
        if self._sign is not None:
            plan = replace(plan, note=self._sign(before, after, now=now))
        if after.declaration.depends_on != before.declaration.depends_on:
            plan = replace(plan, graph=self._checked.graph)
        self.plan = plan
        return plan if self._checked.covers(before.declaration, after.declaration) else None


def edit(store: Store, uid: str, declaration: Declaration, *, lookahead: Micros) -> Schedule:
    """Put another declaration in force; the same one again changes nothing."""
    return declare(store, uid, lambda _, __: declaration, lookahead=lookahead)


def declare(
    store: Store,
    uid: str,
    read: Callable[[Schedule, Micros], Declaration],
    *,
    lookahead: Micros,
    sign: Sign | None = None,
    source: str | None = None,
) -> Schedule:
    """Put in force what `read` makes of the schedule as it stands; the same as before changes nothing.

    `read` is given the very time of the edit: what is declared relative to now counts from the moment that is stored as
    its anchor, so that it is recognised when it is declared again. With a source, everything it says comes from there.
    """

    def decide(snapshot: Snapshot, now: Micros) -> Plan | None:
        declaration = read(snapshot.schedule, now)
        if snapshot.schedule.declaration == declaration and source in {None, snapshot.schedule.source}:
            return None
        return edits.edit(snapshot, declaration, now=now, lookahead=lookahead, source=source)

    return change(store, uid, decide, sign)


def pause(store: Store, uid: str, sign: Sign | None = None, *, expected: Expected = ANYHOW) -> Schedule:
    """Nothing of its trigger starts until it is resumed; one that is paused stays so."""

    def decide(snapshot: Snapshot, now: Micros) -> Plan | None:
        _check_goes_on(snapshot.schedule, "pause")
        return None if snapshot.schedule.phase is SchedulePhase.PAUSED else edits.pause(snapshot, now=now)

    return change(store, uid, decide, sign, expected)


def resume(
    store: Store, uid: str, *, lookahead: Micros, sign: Sign | None = None, expected: Expected = ANYHOW
) -> Schedule:
    """Plan from now on; one that is active stays so."""

    def decide(snapshot: Snapshot, now: Micros) -> Plan | None:
        _check_goes_on(snapshot.schedule, "resume")
        if snapshot.schedule.phase is SchedulePhase.ACTIVE:
            return None
        return edits.resume(snapshot, now=now, lookahead=lookahead)

    return change(store, uid, decide, sign, expected)


def _check_goes_on(schedule: Schedule, verb: str) -> None:
    if schedule.phase is SchedulePhase.COMPLETED:
        raise Conflict(f"it has completed, so there is nothing to {verb}; give it another trigger to begin anew")


def delete(store: Store, uid: str, sign: Sign | None = None, *, expected: Expected = ANYHOW) -> Schedule:
    """Nothing of it starts from now on; its history stays."""
    return change(store, uid, lambda snapshot, now: edits.delete(snapshot, now=now), sign, expected)


def cancel(store: Store, kept: StoredSchedule) -> int:
    """Delete it, and ask what is being delivered to stop; says how many were asked. NotFound when it has completed."""
    schedule = kept.schedule
    [activity] = store.activities([schedule.uid])
    # One that has completed may have been asked for once more; what waits then has a time, or waits for what runs.
    if schedule.phase is SchedulePhase.COMPLETED and not activity.delivering and kept.next_due is None:
        raise NotFound("the schedule has completed: there is nothing to cancel", field="schedule_id")
    delete(store, schedule.uid)
    [activity] = store.activities([schedule.uid])
    return sum([store.request_stop(one) for one in activity.delivering])


def _checked(store: Store, after: Schedule, before: Declaration) -> _Checked:
    """Look up what a schedule says that it did not say before; an error where it cannot be so."""
    target = upstreams = graph = None
    if after.declaration.target != before.target:
        target = after.declaration.target
        check_secrets(store, after.owner.tenant, target)
    if after.declaration.depends_on != before.depends_on:
        upstreams = after.declaration.depends_on
        graph = _check_order(store, after)
    return _Checked(target, upstreams, graph)


def _check_order(store: Store, schedule: Schedule) -> int | None:
    """Refuse what makes a cycle; the version of what depends on what, which must stay so. None without upstreams."""
    upstreams = schedule.declaration.depends_on
    if not upstreams:
        return None
    graph = store.graph(schedule.owner.tenant, [one.schedule_id for one in upstreams])
    cycle = find_cycle(schedule.schedule_id, upstreams, graph.upstreams)
    names = _names(store, schedule.owner.tenant, cycle)
    check_order(schedule.schedule_id, upstreams, graph.upstreams, names)
    return graph.version


def _names(store: Store, tenant: str, schedule_ids: Sequence[str]) -> dict[str, str]:
    """The names of those schedules that have one."""
    found = [store.find(tenant, one) for one in schedule_ids]
    declared = {one.schedule.schedule_id: one.schedule.declaration.name for one in found if one is not None}
    return {schedule_id: name for schedule_id, name in declared.items() if name is not None}


def run_now(
    schedule: Schedule,
    *,
    key: str,
    payload: Any,  # noqa: ANN401 - JSON
    now: Micros,
    overrides: Overrides | None = None,
) -> Occurrence:
    """An occurrence that was asked for by hand, due now; it does not move the next fire."""
    return occurrence(schedule, now, now, origin=manual(key), payload=payload, overrides=overrides)
