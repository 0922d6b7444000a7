"""Snapshots: schedules as planning and edits read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.core.frozen import maker
from noonmark.core.planner import Gap, Snapshot
from noonmark.core.policies.delivery import MIN_PATIENCE
from noonmark.ports.records import Counters
from noonmark.stores.rules import dependencies, rate_windows, runaway
from noonmark.stores.rules.records import PHASES, Unreadable, to_projection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Projection
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.records import Row, ScheduleState
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def by_uid(uow: UnitOfWork, uid: str) -> Snapshot | None:
    """A schedule as an edit reads it."""
    state = uow.load_states([uid]).get(uid)
    return None if state is None else snapshots(uow, [(state, readable(uow, state))])[0]


def readable(uow: UnitOfWork, state: ScheduleState) -> Schedule:
    """The schedule of a state; the error names it if its record is damaged."""
    try:
        return uow.schedule_of(state)
    except Unreadable as error:
        raise StoreUnavailable(f"the stored record of schedule {state.uid} is damaged: {error}") from None


def of_sound(
    uow: UnitOfWork, states: Sequence[ScheduleState], *, since: Micros | None = None
) -> tuple[list[Snapshot], dict[int, str]]:
    """Snapshots of the schedules that can be read, and what is wrong with the others."""
    schedules = uow.schedules_of(states)
    faults = {key: str(one) for key, one in schedules.items() if isinstance(one, Unreadable)}
    faults |= {state.schedule: state.fault for state in states if state.fault is not None}
    sound = [
        (state, schedule)
        for state in states
        if state.schedule not in faults and not isinstance(schedule := schedules[state.schedule], Unreadable)
    ]
    return snapshots(uow, sound, since=since), faults


def snapshots(
    uow: UnitOfWork, known: Sequence[tuple[ScheduleState, Schedule]], *, since: Micros | None = None
) -> list[Snapshot]:
    """Schedules as planning reads them, or with what has an outcome after a time, as a rewind does."""
    beyond = {state.schedule: _rows_beyond(uow, state, since) for state, _ in known}
    projections: dict[int, list[Projection]] = {}
    for row in uow.projections([state for state, _ in known]):
        if row.is_projection:
            projections.setdefault(row.schedule, []).append(to_projection(row))
    followers = [(state, schedule) for state, schedule in known if schedule.declaration.trigger is None]
    read = dependencies.standings(uow, [(*one, None) for one in followers]) if followers else []
    standings = {state.schedule: one for (state, _), one in zip(followers, read, strict=True)}
    now, (newest, served) = uow.now(), uow.last_heartbeats({one.declaration.target.route for _, one in known})

    def is_unserved(route: str, patience: Micros) -> bool:
        """Nodes are alive, but none of them has served a route for so long."""
        seen, alive_since = served.get(route), now - patience
        return newest is not None and newest > alive_since and (seen is None or seen <= alive_since)

    return [
        Snapshot(
            schedule=schedule,
            watermark=state.watermark,
            projections=tuple(projections.get(state.schedule, ())),
            admitted=state.newest,
            runs=state.admitted,
            beyond=tuple(sorted((row.nominal, row.last_nominal) for row in beyond[state.schedule])),
            gaps=() if since is None else tuple(_gaps(beyond[state.schedule])),
            exhausted=state.exhausted == 1,
            unserved=is_unserved(schedule.declaration.target.route, state.patience),
            lacks_node=is_unserved(schedule.declaration.target.route, MIN_PATIENCE),
            upstreams=standings.get(state.schedule),
            rate_window=rate_windows.window_of(uow, state),
            runaway=runaway.counted_of(uow, state),
        )
        for state, schedule in known
    ]


_make_counters = maker(Counters)


def counters(state: ScheduleState) -> Counters:
    """What a schedule has counted."""
    return _make_counters(
        total=state.total,
        successful=state.successful,
        failed=state.failed,
        missed=state.missed,
        skipped=state.skipped,
        admitted=state.admitted,
        failures_in_row=state.failures_in_row,
        last_started=state.last_started,
        last_phase=None if state.last_phase is None else PHASES[state.last_phase],
    )


def _rows_beyond(uow: UnitOfWork, state: ScheduleState, since: Micros | None) -> list[Row]:
    """What was admitted or has ended after the watermark, or after that time; there is hardly ever anything."""
    after = state.watermark if since is None else min(since, state.watermark)
    if state.newest is None or state.newest <= after:
        return []
    return [row for row in uow.rows_beyond(state, after) if not row.is_projection]


def _gaps(rows: Iterable[Row]) -> Iterator[Gap]:
    for row in rows:
        if row.missed_last is not None:
            yield Gap(id=row.id, first=row.nominal, last=row.missed_last, count=row.missed_count)
