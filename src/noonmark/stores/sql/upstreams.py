"""Reading the schedules that others depend on, all of a call in a few statements. Nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.planner import timed_trigger
from noonmark.core.policies.dependencies import Standing, Standings
from noonmark.stores.sql.records import PHASES, Unreadable, trail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.policies.limits import Dependency
    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.records import ScheduleState
    from noonmark.stores.sql.unit_of_work import UnitOfWork

    Times = tuple[Micros, Micros]
    Question = tuple[ScheduleState | None, Schedule, Times | None]
    """The state of a schedule, if it is still there, the schedule, and the times in question."""
    Newest = dict[int, tuple[Micros, Phase]]

_KEYS = """
    SELECT tenant, schedule_id, schedules.key FROM ROWS(text, text) AS j CROSS JOIN schedules
    ON tenant = j.c0 AND schedule_id = j.c1 AND is_listed = 1
"""
# Of each question (number, schedule, after, until): the newest row with its nominal time in between, the newest gap
# that ends there, and the one that reaches beyond: where a pause left one within another, that is the inner one.
# Each is the first of an index.
NEWEST = """
    SELECT j.c0, coalesce(missed_last, nominal), j.c3, nominal, phase
    FROM ROWS(bigint, bigint, bigint, bigint) AS j CROSS JOIN occurrences ON occurrences.key IN (
        (SELECT o.key FROM occurrences AS o WHERE o.schedule = j.c1
            AND o.nominal > j.c2 AND o.nominal <= j.c3
            AND o.origin = 'trigger' AND o.phase <> 'superseded' ORDER BY o.nominal DESC LIMIT 1),
        (SELECT o.key FROM occurrences AS o WHERE o.schedule = j.c1 AND o.missed_last IS NOT NULL
            AND o.missed_last > j.c2 AND o.missed_last < j.c3
            AND o.origin = 'trigger' AND o.phase <> 'superseded' ORDER BY o.missed_last DESC LIMIT 1),
        (SELECT o.key FROM occurrences AS o WHERE o.schedule = j.c1 AND o.missed_last IS NOT NULL
            AND o.missed_last >= j.c3 AND o.nominal <= j.c3
            AND o.origin = 'trigger' AND o.phase <> 'superseded' ORDER BY o.missed_last LIMIT 1)
    )
"""


def read(uow: UnitOfWork, questions: Sequence[Question]) -> list[Standings]:
    """The upstreams of each schedule, with their newest rows in the times in question, if there are any."""
    upstreams = _Upstreams(uow, questions)
    numbered = iter(range(sum(len(of.declaration.depends_on) for _, of, _ in questions)))
    asked = [
        (next(numbered), one, of.owner.tenant, times) for _, of, times in questions for one in of.declaration.depends_on
    ]
    newest = _newest(
        uow,
        [
            (number, state.schedule, *times)
            for number, one, tenant, times in asked
            if times is not None and (state := upstreams.state(tenant, one)) is not None
        ],
    )
    standings = iter(
        [upstreams.standing(tenant, one, newest.get(number)) for number, one, tenant, _ in asked],
    )
    return [
        Standings(
            each=tuple(next(standings) for _ in of.declaration.depends_on), news=0 if state is None else state.news
        )
        for state, of, _ in questions
    ]


class _Upstreams:
    """The schedules that are depended on."""

    def __init__(self, uow: UnitOfWork, questions: Sequence[Question]) -> None:
        named = {(of.owner.tenant, one.schedule_id) for _, of, _ in questions for one in of.declaration.depends_on}
        found = uow.session.query(_KEYS, sorted(named)) if named else []
        states = uow.states_of([key for _, _, key in found])
        by_key = {state.schedule: state for state in states}
        self._states = {(tenant, schedule_id): by_key[key] for tenant, schedule_id, key in found if key in by_key}
        self._schedules = uow.schedule_cache.read(uow.session, {one.schedule: one.version for one in states})

    def state(self, tenant: str, one: Dependency) -> ScheduleState | None:
        """The state of an upstream, if there is one."""
        return self._states.get((tenant, one.schedule_id))

    def standing(self, tenant: str, one: Dependency, newest: tuple[Micros, Phase] | None) -> Standing:
        """An upstream as it stands; one whose record cannot be read runs no more, and is as good as deleted."""
        state = self.state(tenant, one)
        schedule = None if state is None else self._schedules[state.schedule]
        if state is None or schedule is None or isinstance(schedule, Unreadable):
            return Standing(dependency=one)
        return Standing(
            dependency=one,
            phase=schedule.phase,
            fires=timed_trigger(schedule),
            watermark=state.watermark,
            exhausted=state.exhausted == 1,
            newest=newest,
            last_phase=None if state.last_phase is None else PHASES[state.last_phase],
            ended=state.ended_at,
            completed=state.completed_at,
            leads=trail(state.leads, "leads"),
        )


def _newest(uow: UnitOfWork, asked: Sequence[tuple[int, int, Micros, Micros]]) -> Newest:
    best: dict[int, tuple[Micros, Micros, str]] = {}
    for number, last, until, nominal, phase in uow.session.query(NEWEST, asked) if asked else ():
        if not (type(last) is type(nominal) is int and phase in PHASES):
            continue  # a damaged row says nothing
        one = (min(last, until), nominal, phase)
        best[number] = max(best.get(number, one), one)
    return {number: (last, PHASES[phase]) for number, (last, _, phase) in best.items()}
