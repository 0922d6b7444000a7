"""The checker: compares the journal and the store with the nominal fires of each schedule.

It reads the tables themselves, each at once, so that ten thousand occurrences take it a moment, and nothing depends on
how the store tells of them.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from noonmark.core.ids import TRIGGER
from noonmark.core.instants import MAX_INSTANT, SECOND
from noonmark.core.lifecycle import FINAL, Phase


class Row(NamedTuple):
    """What the checker wants to know of an occurrence."""

    schedule_id: str
    id: str
    origin: str
    phase: Phase
    nominal: int
    first_due: int
    missed_count: int
    missed_first: int | None
    missed_last: int | None
    completions: int
    """Runs of it that completed."""


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
    duplicates: int = 0
    """Those of them that came to their end, as the first did: an effect that was had twice."""
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

    def _late(self, percent):
        return f"{1_000 * percentile(self.lateness, percent):.0f} ms"

    def __str__(self):
        shown = ", ".join(f"{phase} {count}" for phase, count in sorted(self.outcomes.items()))
        return (
            f"{self.fires} fires ({shown}), lost {self.lost}, twice {self.twice}, stray {self.strays}, "
            f"stuck {self.stuck}, early {self.early}, late p50 {self._late(50)} p99 {self._late(99)} "
            f"max {self._late(100)}, repeated runs {self.repeated}, duplicate effects {self.duplicates}, "
            f"accepted per occurrence {self.accepted}"
        )


def check(fleet, ids):
    """Judge schedules whose triggers have come to their end."""
    verdict = Verdict()
    schedules, rows = fleet.schedules(), _rows(fleet)
    begins, ends = _marks(fleet.journal.of("begin")), _marks(fleet.journal.of("end", stopped=False))
    accepted = fleet.journal.accepted()
    for schedule_id in ids:
        schedule, own = schedules[schedule_id], rows.get(schedule_id, [])
        times = nominal_times(schedule)
        verdict.fires += len(times)
        _match(verdict, times, own)
        begun = begins.pop(schedule_id, {})
        for row in own:
            _judge(verdict, row, begun.pop(row.id, []), accepted[row.id])
        verdict.duplicates += sum(len(marks) - 1 for marks in ends.get(schedule_id, {}).values())
        verdict.strays += len(begun)
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
        covered = times[bisect_left(times, first) : bisect_right(times, last)]
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


def _judge(verdict, row, marks, accepted):
    """Compare the marks that the runs of an occurrence left with what the store says of it."""
    verdict.repeated += max(0, len(marks) - 1)
    verdict.early += sum(line["at"] < line["nominal"] for line in marks)
    verdict.accepted = max(verdict.accepted, row.completions, accepted)
    if row.phase is Phase.COMPLETED:
        verdict.lost += not marks
        verdict.strays += row.completions != 1
    if marks:
        verdict.lateness.append((marks[0]["at"] - row.first_due) / SECOND)


def _rows(fleet):
    """All occurrences, by schedule."""
    collected = {}
    for schedule_id, one, origin, phase, *others in fleet.occurrences():
        collected.setdefault(schedule_id, []).append(Row(schedule_id, one, origin, Phase(phase), *others))
    return collected


def _marks(lines):
    """Lines of the journal by schedule and occurrence, in the order of their times."""
    collected = {}
    for line in sorted(lines, key=lambda line: line["at"]):
        collected.setdefault(line["schedule"], {}).setdefault(line["occurrence"], []).append(line)
    return collected
