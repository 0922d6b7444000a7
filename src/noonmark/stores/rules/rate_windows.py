"""Rate windows: what a store counts of a schedule that has an expected rate, and the facts that follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies import expected_rate
from noonmark.core.system_events import RATE_PROBLEMS
from noonmark.core.targets.ping import PingTarget
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.rules.unit_of_work import Fact

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.planner import Plan
    from noonmark.core.policies.expected_rate import RateAlert, RateWindow
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def window_of(uow: UnitOfWork, state: ScheduleState) -> RateWindow | None:
    """The window of a schedule; None if it has none, or its record is damaged."""
    try:
        return expected_rate.read_window(uow.unpack(state.rate_window, "rate_window"))
    except Unreadable:
        return None


def is_as_read(uow: UnitOfWork, state: ScheduleState, plan: Plan) -> bool:
    """Whether the window that a plan judges was not judged since."""
    return plan.rate_window is None or _decided(uow, state, plan) is not None


def put_planned(uow: UnitOfWork, state: ScheduleState, plan: Plan, before: Schedule, after: Schedule) -> None:
    """Store the window of a schedule after a plan: as it was decided, a new one, none, or the same.

    The schedule is planned again when the window ends.
    """
    rate, now = after.declaration.expected_rate, uow.now()
    window = window_of(uow, state)
    if rate is None or after.phase is not SchedulePhase.ACTIVE:
        window = None
    elif plan.rate_window is not None:
        window = _decided(uow, state, plan)
    elif (
        window is None
        or before.phase is not SchedulePhase.ACTIVE
        or before.declaration.expected_rate != rate
        or window.ends > now + rate.per  # the clock was ahead
    ):
        window = expected_rate.open_window(rate, now=now)
    _put(uow, state, window)
    if window is not None:
        state.plan_at = window.ends if state.plan_at is None else min(state.plan_at, window.ends)
    if plan.rate_alert is not None:
        _report(uow, state, plan.rate_alert, after)


def count_start(uow: UnitOfWork, state: ScheduleState, schedule: Schedule, *, at: Micros) -> RateAlert | None:
    """Count the first start of an occurrence; returns an alert if it is one too many. Ping schedules count pings."""
    rate = schedule.declaration.expected_rate
    window = None if rate is None else window_of(uow, state)
    if rate is None or window is None or isinstance(schedule.declaration.target, PingTarget):
        return None
    counted = expected_rate.count_start(rate, window, now=at)
    _put(uow, state, counted.window)
    if counted.alert is not None:
        _report(uow, state, counted.alert, schedule)
    return counted.alert


def count_end(uow: UnitOfWork, state: ScheduleState, row: Row) -> None:
    """Count the end of an occurrence, if it is a success. Of a ping schedule, pings count."""
    is_counted = row.phase == Phase.COMPLETED and row.route != PingTarget.route
    window = window_of(uow, state) if is_counted and state.rate_window is not None else None
    if window is not None:
        _put(uow, state, expected_rate.count_success(window, now=uow.now()))


def _decided(uow: UnitOfWork, state: ScheduleState, plan: Plan) -> RateWindow | None:
    read, stored = plan.snapshot.rate_window, window_of(uow, state)
    if plan.rate_window is None or read is None or stored is None:
        return None
    return expected_rate.since(plan.rate_window, read, stored)


def _put(uow: UnitOfWork, state: ScheduleState, window: RateWindow | None) -> None:
    state.rate_window = None if window is None else uow.pack(window.to_document())
    uow.changed_state(state)


def _report(uow: UnitOfWork, state: ScheduleState, alert: RateAlert, schedule: Schedule) -> None:
    uow.facts.append(Fact(event=RATE_PROBLEMS[alert.problem], state=state, schedule=schedule, alert=alert))
