"""Why nothing ran at an instant, or what did."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from noonmark.core.describe.words import instant_words, words
from noonmark.core.explain.clauses import listed, pause_words, times
from noonmark.core.explain.clock_changes import at_silence
from noonmark.core.explain.deciding_rule import OWN, Case, Standing, standing
from noonmark.core.explain.explanation import NOT_KNOWN, NOT_REACHED, Explanation, Rule, Step
from noonmark.core.explain.occurrence import explain_occurrence, sentence
from noonmark.core.explain.steps import chain, instant, known
from noonmark.core.frozen import frozen
from noonmark.core.ids import TRIGGER, kind_of
from noonmark.core.lifecycle import LIVE, Phase, SchedulePhase
from noonmark.core.planner import in_force_after, is_used_up, occurrence, timed_trigger
from noonmark.core.policies.jitter import due_at
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.explain.explanation import Facts
    from noonmark.core.instants import Micros
    from noonmark.core.interruption import LostNode
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.expected_rate import RateWindow
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.core.triggers import Trigger

NOTHING_MORE: Mapping[Rule, Facts] = MappingProxyType({})
NO_NODES: Mapping[str, LostNode] = MappingProxyType({})


@frozen(kw_only=True)
class _Moment:
    """An instant, and the records around it."""

    schedule: Schedule
    at: Micros
    now: Micros
    rows: tuple[Occurrence, ...]
    runs: tuple[Run, ...]
    admitted: int
    """How many of its `max_runs` the schedule has had."""
    unserved: str | None = None
    """That no live node serves its target, in words, if that is so."""
    rate_window: RateWindow | None = None
    """What is counted for its expected rate."""
    lost_nodes: Mapping[str, LostNode]
    """The nodes that are not alive, by name."""

    @property
    def own(self) -> list[Occurrence]:
        """The rows of times that the trigger named, and that no edit has moved."""
        return [row for row in self.rows if row.origin == TRIGGER and row.phase is not Phase.SUPERSEDED]

    @property
    def trigger(self) -> Trigger | None:
        """The trigger, if it names times."""
        return timed_trigger(self.schedule)

    @property
    def is_named(self) -> bool:
        """Whether the trigger names the instant."""
        return self.trigger is not None and self.trigger.next_micros(self.at - 1) == self.at

    @property
    def in_force(self) -> Micros:
        """The present trigger applies after this instant."""
        created, anchored = self.schedule.created, self.schedule.anchored
        return in_force_after(self.schedule, created - 1 if anchored is None else anchored)

    @property
    def due(self) -> Micros:
        """When a fire of the instant is due."""
        return self.at if self.trigger is None else due_at(self.trigger, self.schedule.uid, self.at)


def explain_instant(  # noqa: PLR0913 - each is what was read about it
    schedule: Schedule,
    at: Micros,
    *,
    now: Micros,
    rows: Sequence[Occurrence] = (),
    runs: Sequence[Run] = (),
    admitted: int = 0,
    unserved: str | None = None,
    rate_window: RateWindow | None = None,
    lost_nodes: Mapping[str, LostNode] = NO_NODES,
) -> Explanation:
    """Explain what became of an instant.

    `rows` are occurrences of the schedule around it: those of that very time, those that stand for many fires from
    before it to after it, and the nearest before and after it. A row that stands for many fires has the nominal time of
    the first. `runs` are theirs. `admitted` is how many of its `max_runs` the schedule has had, of which the rows may
    not tell any more. `unserved` says that no live node serves its target. `rate_window` is what is counted for its
    expected rate. `lost_nodes` are the nodes that are not alive, by name.
    """
    begun = sum(row.has_begun for row in rows if kind_of(row.origin) in OWN)
    moment = _Moment(
        schedule=schedule,
        at=at,
        now=now,
        rows=tuple(rows),
        runs=tuple(runs),
        admitted=max(admitted, begun),
        unserved=unserved,
        rate_window=rate_window,
        lost_nodes=lost_nodes,
    )
    return (
        _recorded(moment)
        or _under_way(moment)
        or _superseded(moment)
        or _outside_life(moment)
        or _not_named(moment)
        or _unrecorded(moment)
    )


def _recorded(moment: _Moment) -> Explanation | None:
    """The row of that very time alone, or else the row that counts it among many."""
    exact = [row for row in moment.rows if row.nominal == moment.at == _last(row)]
    exact = [row for row in exact if row.phase is not Phase.SUPERSEDED]
    if exact:
        # What the trigger named comes first, then what was asked for last.
        return _of(moment, max(exact, key=lambda row: (row.origin == TRIGGER, row.due, row.id)))
    row = _counting(moment)
    if row is not None and row.nominal != moment.at:
        row = replace(row, nominal=moment.at, due=moment.due, first_due=moment.due)
    return None if row is None else _of(moment, row)


def _counting(moment: _Moment) -> Occurrence | None:
    """The row that counts the instant among the fires that it stands for.

    A row counts what the trigger names between its first and its last, and leaves out what others had accounted for
    by then: so of several that reach over an instant, the innermost counts it. What an earlier rule named is not known.
    """
    first = [row for row in moment.own if row.nominal == moment.at]
    if first:
        return first[0]
    if moment.at > moment.in_force and not moment.is_named:
        return None
    reaching = (row for row in moment.own if row.nominal < moment.at <= _last(row))
    return max(reaching, key=lambda row: row.nominal, default=None)


def _of(moment: _Moment, row: Occurrence) -> Explanation:
    gap = None if row.caught_up is None else _gap_before(moment, row)
    return explain_occurrence(
        moment.schedule,
        row,
        moment.runs,
        now=moment.now,
        gap=gap,
        unserved=moment.unserved,
        rate_window=moment.rate_window,
        lost_node=moment.lost_nodes.get(row.node or ""),
    )


def _gap_before(moment: _Moment, row: Occurrence) -> Occurrence | None:
    """What was missed just before a row that was caught up: at most others that were caught up with it lie between."""
    before = [one for one in moment.own if one.nominal < row.nominal and one.caught_up != row.caught_up]
    newest = max(before, key=_last, default=None)
    return newest if newest is not None and newest.missed_count and _last(newest) < row.nominal else None


def _under_way(moment: _Moment) -> Explanation | None:
    """What ran at that instant, or was due then, though the trigger names another time for it."""
    if moment.is_named:
        return None
    at = moment.at
    running = {
        run.occurrence_id
        for run in moment.runs
        if run.started <= at <= (moment.now if run.ended is None else run.ended)
    }
    for row in moment.rows:
        if row.id in running or (at in (row.due, row.first_due) and row.phase is not Phase.SUPERSEDED):
            explanation = _of(moment, row)
            summary = explanation.summary[0].lower() + explanation.summary[1:]
            return replace(explanation, summary=f"About the occurrence of {instant_words(row.nominal)}: {summary}")
    return None


def _superseded(moment: _Moment) -> Explanation | None:
    """What an edit moved away from that instant."""
    moved = [row for row in moment.rows if row.nominal == moment.at and row.phase is Phase.SUPERSEDED]
    return _of(moment, moved[0]) if moved and not moment.is_named else None


def _outside_life(moment: _Moment) -> Explanation | None:
    """An instant that the schedule, or its present trigger, does not cover."""
    schedule, at, trigger = moment.schedule, moment.at, moment.schedule.declaration.trigger
    if at < schedule.created and at <= moment.in_force:
        return _outside(moment, "before_creation", f"the schedule was created at {instant_words(schedule.created)}")
    if schedule.deleted is not None and at > schedule.deleted:
        return _outside(moment, "deleted", f"the schedule was deleted at {instant_words(schedule.deleted)}")
    if at <= moment.in_force:
        since = instant_words(moment.in_force)
        clause = (
            f"nothing is recorded, and another rule was in force then; the present one speaks of times after {since}"
        )
        return _tell(moment, Standing(rule=Rule.TRIGGER, decision="edited", ahead=NOT_REACHED), clause)
    if trigger is not None and trigger.start is not None and at < trigger.start:
        return _outside(moment, "before_start", f"the trigger starts at {instant_words(trigger.start)}")
    if trigger is not None and trigger.end is not None and at > trigger.end:
        return _outside(moment, "after_end", f"the trigger ended at {instant_words(trigger.end)}")
    if schedule.phase is SchedulePhase.COMPLETED and at > schedule.updated:
        return _completed(moment)
    return None


def _outside(moment: _Moment, decision: str, clause: str) -> Explanation:
    return _tell(moment, Standing(rule=Rule.BOUNDS, decision=decision, ahead=NOT_REACHED), clause)


def _completed(moment: _Moment) -> Explanation:
    limit = moment.schedule.declaration.max_runs
    why = "nothing more was to come" if limit is None else f"it may run {times(limit)}"
    return _outside(
        moment, "completed", f"the schedule was completed by {instant_words(moment.schedule.updated)}: {why}"
    )


def _not_named(moment: _Moment) -> Explanation | None:
    """An instant that the trigger does not name, with the times next to it that it does."""
    if moment.is_named:
        return None
    at, trigger = moment.at, moment.trigger
    here = Standing(rule=Rule.TRIGGER, decision="not_named", ahead=NOT_REACHED)
    if trigger is None:
        return _tell(moment, here, _without_times(moment.schedule))
    previous, following = trigger.previous_micros(at), trigger.next_micros(at)
    previous = previous if previous is not None and previous > moment.in_force else None
    facts = known(previous_at=instant(previous), next_at=instant(following))
    hint = at_silence(trigger, at)
    if hint is not None:
        moved = [row for row in moment.own if row.nominal == hint.moved_to]
        clause = hint.words + (f", and that occurrence is `{moved[0].phase}`" if moved else "")
        at_change = Standing(rule=Rule.DST, decision=hint.step.decision, ahead=NOT_REACHED)
        return _tell(moment, at_change, clause, {Rule.TRIGGER: facts, Rule.DST: hint.step.facts})
    before = "none before it" if previous is None else f"the one before it is {instant_words(previous)}"
    after = "none after it" if following is None else f"the next one is {instant_words(following)}"
    clause = f"the trigger does not name that time ({words(trigger)}); {before}, {after}"
    pause = moment.schedule.pause
    if pause is not None and pause.at <= at and (pause.until is None or at <= pause.until):
        clause += f". Besides, {pause_words(moment.schedule)}"
    return _tell(moment, here, clause, {Rule.TRIGGER: facts})


def _without_times(schedule: Schedule) -> str:
    trigger, upstreams = schedule.declaration.trigger, schedule.declaration.depends_on
    if isinstance(trigger, EventTrigger):
        return f"the schedule waits for events ({words(trigger)}), and no event triggered it then"
    names = listed([one.schedule_id for one in upstreams])
    return f"the schedule has no times of its own; it fires when all of {names} have ended, which was not then"


def _unrecorded(moment: _Moment) -> Explanation:
    """An instant of the trigger without a record, or without one yet."""
    schedule, at, now = moment.schedule, moment.at, moment.now
    if at <= now and not _is_open(moment):
        return _forgotten(moment)
    if schedule.phase is SchedulePhase.PAUSED:
        here = Standing(rule=Rule.PAUSE, decision="paused", ahead=NOT_REACHED)
        ends = None if schedule.pause is None else schedule.pause.until
        if ends is None or at <= ends:
            clause = f"{pause_words(schedule)}; what it names meanwhile is counted as skipped when it is resumed"
            return _tell(moment, here, clause)
    if schedule.phase is SchedulePhase.COMPLETED:
        return _completed(moment)
    if (used_up := _used_up(moment)) is not None:
        here = Standing(rule=Rule.LIMITS, decision=str(Reason.MAX_RUNS_REACHED), reached=Rule.WINDOW, ahead=NOT_REACHED)
        clause = f"the schedule may run {times(schedule.declaration.max_runs)}, and {used_up}"
        return _tell(moment, here, clause, {Rule.LIMITS: {"runs_so_far": moment.admitted}})
    case = _case(moment)
    here = standing(case)
    return Explanation(summary=sentence(case, here), steps=chain(case, here))


def _used_up(moment: _Moment) -> str | None:
    """Why none of its `max_runs` is left for the instant; what comes before it is taken to run."""
    schedule, trigger = moment.schedule, moment.trigger
    if is_used_up(schedule, moment.admitted):
        return "has done so"
    if trigger is None or schedule.declaration.max_runs is None:
        return None
    since = max([moment.now, *(row.nominal for row in moment.own if row.has_begun)])
    waiting = [row for row in moment.rows if row.phase in LIVE and not row.has_begun and kind_of(row.origin) in OWN]
    before = sum(row.nominal <= since for row in waiting) + trigger.count_micros(since, moment.at - 1)
    return "does so before that time" if is_used_up(schedule, moment.admitted + before) else None


def _is_open(moment: _Moment) -> bool:
    """Whether no plan covers the instant yet; a deletion covers everything.

    Times are covered in their order, except for one that a caller cancelled ahead. The oldest ended occurrence is
    pruned first: if an older one is stored, this one would be stored too.
    """
    at, schedule = moment.at, moment.schedule
    if schedule.phase is SchedulePhase.DELETED:
        return False
    if schedule.phase is SchedulePhase.PAUSED and at >= schedule.updated:
        return True
    in_order = [row for row in moment.own if row.has_begun or row.phase is not Phase.CANCELLED]
    return all(_last(row) < at for row in in_order) and any(row.nominal < at for row in moment.own)


def _forgotten(moment: _Moment) -> Explanation:
    oldest = min((row.nominal for row in moment.own), default=None)
    clause = (
        "no record of it is kept any more; ended occurrences are kept for some time, and only so many of a schedule"
    )
    if moment.schedule.revision > 1:
        clause += ", or its declaration of then, which an edit has changed since, named nothing"
    here = Standing(rule=Rule.RUNS, decision="forgotten", reached=Rule.PAUSE, ahead=NOT_KNOWN)
    steps = _chain(moment, here, {Rule.RUNS: known(oldest_kept=instant(oldest))})
    return Explanation(summary=f"What became of {instant_words(moment.at)} is not known: {clause}.", steps=steps)


def _last(row: Occurrence) -> Micros:
    """The last nominal time that a row stands for."""
    return row.nominal if row.missed_last is None else row.missed_last


def _case(moment: _Moment) -> Case:
    """The occurrence that would be planned for the instant."""
    planned = occurrence(moment.schedule, moment.at, moment.due)
    return Case(
        schedule=moment.schedule,
        occurrence=planned,
        now=moment.now,
        is_recorded=False,
        unserved=moment.unserved,
        rate_window=moment.rate_window,
    )


def _chain(moment: _Moment, here: Standing, more: Mapping[Rule, Facts]) -> tuple[Step, ...]:
    """All steps, some of them with more facts."""
    return tuple(replace(one, facts=one.facts | more.get(one.rule, {})) for one in chain(_case(moment), here))


def _tell(moment: _Moment, here: Standing, clause: str, more: Mapping[Rule, Facts] = NOTHING_MORE) -> Explanation:
    """Why nothing ran, or will run."""
    lead = "Nothing ran" if moment.at <= moment.now else "Nothing will run"
    return Explanation(summary=f"{lead} at {instant_words(moment.at)}: {clause}.", steps=_chain(moment, here, more))
