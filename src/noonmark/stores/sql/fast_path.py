"""The fast path: the usual creations, admissions and settlements of a call in a few statements.

A start is plain if it takes nothing but the slot and no halt may cover it, an end if no row waits for what it gives
back, and both if nothing else in the call is about the same schedule and no schedule listens for it as a system event.
A plain one changes only its own row and schedule, so it does not matter that it is written before the others. The rules
in `stores.rules.admission` do one by one whatever a statement here leaves out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from noonmark.core.admission import Start
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.settlement import ENDS, FAILURES
from noonmark.core.system_events import ENDS as ENDED_AS
from noonmark.core.system_events import SystemEvent, is_late
from noonmark.core.targets import AGENT_ROUTES, WorkflowTarget
from noonmark.stores.rules.admission import after_start
from noonmark.stores.rules.completion import to_detail
from noonmark.stores.rules.plain_starts import takes_only_slot
from noonmark.stores.rules.plan_writes import is_plain, new_state, subscriptions_of
from noonmark.stores.rules.records import OWN, new_values
from noonmark.stores.sql import subscriptions, workflows
from noonmark.stores.sql.records import ROW_COLUMNS, STATE_COLUMNS, run_values, state_values, to_json
from noonmark.stores.sql.row_checks import NARROW
from noonmark.stores.sql.runs import put_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.admission import Admission
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Settlement
    from noonmark.stores.rules.plan_writes import Creations
    from noonmark.stores.rules.unit_of_work import Identity, Topic
    from noonmark.stores.sql.session import Session, Values
    from noonmark.stores.sql.unit_of_work import UnitOfWork

_ENDS = frozenset(phase for phase, _ in ENDS.values())
# Rows are found and locked first, and then changed. What their schedules must be like is a column, not a condition:
# PostgreSQL would take such a condition for rare, and read every schedule.
STARTABLE = f"""
    SELECT one.id, one.key, s.revision = ?
        AND (CAST(? AS integer) = 0 OR s.holder IS NULL OR s.holder = one.key)
        AND s.admitted BETWEEN 0 AND {NARROW} AS is_plain,
        EXISTS (SELECT 1 FROM halts WHERE halts.tenant IN EACH(text)) AS has_halts
    FROM occurrences AS one CROSS JOIN schedule_states AS s USING (schedule)
    WHERE one.id IN EACH(text) AND one.phase = 'claimed' AND fence = ? AND place IS NULL /* quick: one, s */
"""
_START = """
    UPDATE occurrences SET phase = 'dispatching', attempt = attempt + 1, revision = ?, waiting_for = NULL,
        started = ?, late = coalesce(late, CAST(? AS bigint) - first_due), lease_end = ?{takes_slot}
    WHERE key IN EACH(bigint)
"""
START = {False: _START.format(takes_slot=""), True: _START.format(takes_slot=", holds_slot = 1")}
"""By whether it takes the slot."""
STARTED = """
    WITH one AS MATERIALIZED (
        SELECT key, schedule, nominal, due FROM occurrences WHERE key IN EACH(bigint)
    )
    UPDATE schedule_states SET last_started = CASE WHEN due > ? THEN due ELSE ? END, admitted = admitted + ?,
        newest = CASE WHEN CAST(? AS integer) = 1 AND (newest IS NULL OR newest < nominal) THEN nominal ELSE newest END,
        holder = CASE WHEN CAST(? AS integer) = 1 THEN one.key ELSE holder END
    FROM one WHERE schedule_states.schedule = one.schedule
"""
# A damaged or too large count is not in these ranges.
ENDABLE = f"""
    SELECT one.id, one.key, one.schedule, exhausted = 1 AND live = 1 AND s.phase = 'active' AS is_last,
        one.own IS NULL AND s.queued = 0 AND s.followed = 0 AND s.rate_window IS NULL
        AND s.live BETWEEN 1 AND {NARROW} AND s.history BETWEEN 0 AND {NARROW}
        AND s.total BETWEEN 0 AND {NARROW} AND s.successful BETWEEN 0 AND {NARROW}
        AND s.failed BETWEEN 0 AND {NARROW} AND s.failures_in_row BETWEEN 0 AND {NARROW} AS is_plain
    FROM occurrences AS one CROSS JOIN schedule_states AS s USING (schedule)
    WHERE one.id IN EACH(text) AND one.phase IN ('dispatching', 'awaiting_completion') AND fence = ? AND place IS NULL
        AND holds_slot + 0 = ? /* quick: one, s */
"""
"""The sum keeps the query on the index of ids, away from that of slot holders."""
END = """
    UPDATE occurrences SET phase = ?, reason = ?, detail = ?, attempt = ?, ended = ?,
        ready = NULL, lease_end = NULL, node = NULL, started = NULL, stop = NULL, deadline = NULL, waiting_for = NULL,
        holds_slot = 0, held = 0
    WHERE key IN EACH(bigint)
"""
_ENDED = """
    UPDATE schedule_states SET {more} live = live - 1, history = history + 1, total = total + 1,
        successful = successful + ?, failed = failed + ?,
        failures_in_row = CASE WHEN CAST(? AS integer) = 1 THEN 0 ELSE failures_in_row + ? END, last_phase = ?,
        holder = CASE WHEN CAST(? AS integer) = 1 THEN NULL ELSE holder END
    WHERE schedule IN EACH(bigint)
"""
ENDED = _ENDED.format(more="")
LAST_ENDED = _ENDED.format(more="phase = 'completed', updated = ?, version = version + 1,")
"""For the last end of a schedule with nothing to come. For others, the phase is not written."""


def create_plain(uow: UnitOfWork, accepted: Creations, followed: set[Identity]) -> Creations:
    """Write the plain creations among those that the rules have accepted; returns the others."""
    if any(schedule.declaration.depends_on for _, schedule in accepted):
        return accepted  # one may follow another
    session = uow.session
    plain: list[tuple[Plan, Schedule]] = []
    others: list[tuple[Plan, Schedule]] = []
    created = str(SystemEvent.SCHEDULE_CREATED)
    subscribed = subscriptions.subscribed(session, {(one.owner.tenant, created) for _, one in accepted})
    # One may listen for those that are created with it.
    subscribed |= {(one.owner.tenant, topic) for _, one in accepted for topic, _ in subscriptions_of(one)}
    for plan, schedule in accepted:
        tenant = schedule.owner.tenant
        is_noticed = (tenant, schedule.schedule_id) in followed or (tenant, created) in subscribed
        (others if is_noticed or not is_plain(plan, schedule) else plain).append((plan, schedule))
    if not plain:
        return others
    keys = session.numbers("schedules", len(plain))
    ids = sorted([row.id for plan, _ in plain for row in plan.planned])
    numbers = dict(zip(ids, session.numbers("occurrences", len(ids)) if ids else (), strict=True))
    rows: list[Values] = []
    states: list[Values] = []
    for key, (plan, schedule) in zip(keys, plain, strict=True):
        state = new_state(key, schedule, plan)
        state.live = len(plan.planned)
        uow.add_document(state, schedule)
        states.append(state_values(state))
        rows += [new_values(one, numbers[one.id], state, uow.pack) for one in plan.planned]
        if plan.note is not None:
            uow.add_audit_entry(schedule.owner.tenant, plan.note)
    uow.write()
    session.insert("schedule_states", STATE_COLUMNS, states)
    if rows:
        session.insert("occurrences", ROW_COLUMNS, rows)
    return others


def start_all(uow: UnitOfWork, admissions: Sequence[Admission], *, now: Micros, lease: Micros) -> dict[str, Occurrence]:
    """Carry out the plain starts; returns the occurrences that have started, by id."""
    session = uow.session
    repeated = _repeated([one.claim.occurrence.uid for one in admissions])
    late = _subscribed_late(session, admissions, now)
    tenants = list({one.claim.schedule.owner.tenant for one in admissions})
    groups: dict[tuple[int, int, bool, bool, bool], dict[str, Start]] = {}
    for admission in admissions:
        if isinstance(admission, Start) and takes_only_slot(admission):
            claimed = admission.claim.occurrence
            if claimed.uid not in repeated and claimed.id not in late:
                is_triggered = claimed.origin == TRIGGER
                is_first = not claimed.has_begun and (is_triggered or claimed.origin.partition(":")[0] in OWN)
                group = (admission.claim.schedule.revision, claimed.fence, admission.takes_slot, is_first, is_triggered)
                groups.setdefault(group, {})[claimed.id] = admission
    occurrences: dict[str, Occurrence] = {}
    with session.pipelined():
        for (revision, fence, takes_slot, is_first, is_triggered), starts in groups.items():
            values = (revision, int(takes_slot), tenants, list(starts), fence)
            locked = session.gather("id, key, is_plain, has_halts", f"({STARTABLE}) AS found", *values)
            rows = [
                (one, key)
                for one, key, is_plain, has_halts in locked
                if is_plain and not (has_halts and _may_be_halted(uow, starts[one]))
            ]
            if not rows:
                continue
            keys = [key for _, key in rows]
            session.execute(START[takes_slot], revision, now, now, uow.lease_end(now, lease), keys)
            session.execute(STARTED, keys, now, now, int(is_first), int(is_triggered), int(takes_slot))
            occurrences.update({one: after_start(starts[one], now) for one, _ in rows})
    return occurrences


def _may_be_halted(uow: UnitOfWork, start: Start) -> bool:
    """Whether a halt covers a start, or the rules have to look at the workflow run that it is a step of."""
    claimed, schedule = start.claim.occurrence, start.claim.schedule
    halts = uow.halts(schedule.owner.tenant)
    return bool(halts) and (claimed.overrides is not None or any(halt.covers(schedule) for halt in halts))


def end_all(uow: UnitOfWork, settlements: Sequence[Settlement]) -> set[str]:
    """Write the plain ends; returns the ids of those that have ended."""
    session, now = uow.session, uow.now()
    repeated = _repeated([one.occurrence.uid for one in settlements])
    subscribed = _subscribed_ends(session, settlements)
    groups: dict[tuple[Any, ...], dict[str, Settlement]] = {}
    for settlement in settlements:
        phase, occurrence = settlement.phase, settlement.occurrence
        if (
            phase not in _ENDS
            or settlement.reason is Reason.HALTED  # its row says who halted it
            or occurrence.route in AGENT_ROUTES
            or (subscribed and (settlement.tenant, ENDED_AS[phase]) in subscribed)
        ):
            continue
        is_alone = occurrence.uid not in repeated and not settlement.reported
        is_uncounted = settlement.pause_after is None and settlement.max_identical is None
        if is_uncounted and not occurrence.missed_count and is_alone:
            detail = to_detail(settlement.facts)
            group = (phase, settlement.reason, detail, settlement.attempt, occurrence.fence, occurrence.holds_slot)
            groups.setdefault(group, {})[occurrence.id] = settlement
    ended: set[str] = set()
    runs: list[tuple[Any, ...]] = []
    closed: list[int] = []
    with session.pipelined():
        for (phase, reason, detail, attempt, fence, holds_slot), ends in groups.items():
            columns = "id, key, schedule, is_last, is_plain"
            locked = session.gather(columns, f"({ENDABLE}) AS found", list(ends), fence, int(holds_slot))
            rows = [
                (row_id, key, schedule, is_last)
                for row_id, key, schedule, is_last, is_plain in locked
                if is_plain
                and not (subscribed and is_last and (ends[row_id].tenant, SystemEvent.SCHEDULE_COMPLETED) in subscribed)
            ]
            if not rows:
                continue
            session.execute(END, str(phase), str(reason), detail, attempt, now, [key for _, key, _, _ in rows])
            _note_ends(session, rows, phase, holds_slot=holds_slot, now=now)
            for row_id, key, schedule, _ in rows:
                run = ends[row_id].run
                ended.add(row_id)
                if ends[row_id].occurrence.route == WorkflowTarget.route:
                    closed.append(key)
                runs.append(run_values(key, schedule, run, to_json(run.result)))
        if runs:
            put_runs(session, runs)
    if closed:
        workflows.close_runs(session, closed, now)
    return ended


def _subscribed_late(session: Session, admissions: Sequence[Admission], now: Micros) -> frozenset[str]:
    """The ids of late starts that a schedule listens for."""
    late = {
        admission.claim.occurrence.id: (admission.claim.schedule.owner.tenant, str(SystemEvent.STARTED_LATE))
        for admission in admissions
        if is_late(admission.claim.occurrence.first_due, now) and not admission.claim.occurrence.has_begun
    }
    subscribed = subscriptions.subscribed(session, set(late.values()))
    return frozenset(one for one, fact in late.items() if fact in subscribed) if subscribed else frozenset()


def _subscribed_ends(session: Session, settlements: Sequence[Settlement]) -> set[Topic]:
    """The system events of these ends that a schedule listens for; each may be the end of its schedule too."""
    ends = {(one.tenant, one.phase) for one in settlements}
    facts = {(tenant, str(ENDED_AS[phase])) for tenant, phase in ends if phase in _ENDS}
    return subscriptions.subscribed(
        session, facts | {(tenant, str(SystemEvent.SCHEDULE_COMPLETED)) for tenant, _ in facts}
    )


def _note_ends(session: Session, rows: list[Values], phase: Phase, *, holds_slot: bool, now: Micros) -> None:
    """Count ends of one kind in their schedules."""
    successful, failed = int(phase is Phase.COMPLETED), int(phase in FAILURES)
    counts = (successful, failed, successful, failed, str(phase), int(holds_slot))
    ongoing = [schedule for _, _, schedule, is_last in rows if not is_last]
    if ongoing:
        session.execute(ENDED, *counts, ongoing)
    over = [schedule for _, _, schedule, is_last in rows if is_last]
    if over:
        session.execute(LAST_ENDED, now, *counts, over)


def _repeated(uids: list[str]) -> frozenset[str]:
    """The uids that occur more than once."""
    if len(set(uids)) == len(uids):
        return frozenset()
    return frozenset(uid for uid, count in Counter(uids).items() if count > 1)
