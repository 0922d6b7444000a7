"""The checker: matches what ran, and what the store says of it, to the nominal fires of each schedule."""

from collections import Counter
from dataclasses import dataclass, field

from noonmark.core.ids import TRIGGER
from noonmark.core.instants import MAX_INSTANT, SECOND
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.run import Outcome
from noonmark.driver.drive import drive


@dataclass
class Verdict:
    """Counts over all the schedules that were checked."""

    fires: int = 0
    outcomes: Counter = field(default_factory=Counter)
    """Nominal fires by the phase in which they ended."""
    lost: int = 0
    """Nominal fires without an outcome, and completed ones that left no mark."""
    twice: int = 0
    """Nominal fires with more than one outcome."""
    strays: int = 0
    """Rows of the trigger for times that it does not name, and gaps that miscount."""
    stuck: int = 0
    """Rows that are still live."""
    early: int = 0
    """Runs that began before they were due."""
    repeated: int = 0
    """Runs beyond the first of an occurrence."""
    accepted: int = 0
    """The most results that were accepted for one occurrence."""
    lateness: list = field(default_factory=list)
    """Of the first run of each occurrence, in seconds."""

    @property
    def ended(self):
        return sum(self.outcomes.values())

    @property
    def is_sound(self):
        return self.ended == self.fires and not (self.lost or self.twice or self.strays or self.stuck or self.early)

    def __str__(self):
        shown = ", ".join(f"{phase} {count}" for phase, count in sorted(self.outcomes.items()))
        return (
            f"{self.fires} fires ({shown}), lost {self.lost}, twice {self.twice}, stuck {self.stuck}, "
            f"early {self.early}, repeated runs {self.repeated}, accepted per occurrence {self.accepted}"
        )


def check(fleet, ids):
    """Judge schedules whose triggers have come to their end."""
    verdict = Verdict()
    accepted = fleet.journal.accepted()
    for schedule_id in ids:
        schedule = fleet.kept(schedule_id).schedule
        times = nominal_times(schedule)
        verdict.fires += len(times)
        rows = drive(fleet.scheduler.runtime.store.occurrences(schedule.uid))
        _match(verdict, times, rows)
        _runs(verdict, fleet, schedule, rows, accepted)
    return verdict


def nominal_times(schedule):
    """Every time that the trigger names, by counting as well as by walking."""
    trigger = schedule.declaration.trigger
    times, time = [], schedule.created - SECOND
    while (time := trigger.next_micros(time)) is not None:
        times.append(time)
    assert trigger.count_micros(schedule.created - SECOND, MAX_INSTANT) == len(times)
    return times


def outcomes(times, rows):
    """In which phases each nominal time ended, one for each row that accounts for it; and how many rows do not fit."""
    found, strays = {time: [] for time in times}, 0
    for row in rows:
        if row.origin != TRIGGER or row.phase not in FINAL or row.phase is Phase.SUPERSEDED:
            continue
        first = row.nominal if row.missed_first is None else row.missed_first
        last = row.nominal if row.missed_last is None else row.missed_last
        covered = [time for time in times if first <= time <= last]
        strays += len(covered) != max(1, row.missed_count)
        for time in covered:
            found[time].append(row.phase)
    return found, strays


def percentile(values, percent):
    """In seconds; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0


def _match(verdict, times, rows):
    found, strays = outcomes(times, rows)
    verdict.strays += strays
    verdict.stuck += sum(row.phase not in FINAL for row in rows)
    for phases in found.values():
        verdict.lost += not phases
        verdict.twice += len(phases) > 1
        verdict.outcomes.update(map(str, phases))


def _runs(verdict, fleet, schedule, rows, accepted):
    """Compare the marks that runs left with what the store says of them."""
    begins = {}
    for line in fleet.journal.begins(schedule.schedule_id):
        begins.setdefault(line["occurrence"], []).append(line)
    completed = Counter(
        run.occurrence_id
        for run in drive(fleet.scheduler.runtime.store.runs(schedule.uid))
        if run.outcome is Outcome.COMPLETED
    )
    for row in rows:
        marks = begins.pop(row.id, [])
        verdict.repeated += max(0, len(marks) - 1)
        verdict.early += sum(line["at"] < line["nominal"] for line in marks)
        verdict.accepted = max(verdict.accepted, completed[row.id], accepted[row.id])
        if row.phase is Phase.COMPLETED:
            verdict.lost += not marks
            verdict.strays += completed[row.id] != 1
        if marks:
            verdict.lateness.append((marks[0]["at"] - row.first_due) / SECOND)
    verdict.strays += len(begins)
