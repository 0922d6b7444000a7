"""The checker itself: it accepts a correct history, and reports each kind of error in a wrong one."""

import json
from datetime import timedelta

import pytest

from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase
from noonmark.core.triggers import IntervalTrigger
from noonmark.testing import factories
from noonmark.testing.factories import NOW
from tests.processes.checker import Row, check
from tests.processes.fleet import PostgresFleet
from tests.processes.journal import Journal

START = NOW + SECOND


class History:
    """A fleet that has come to its end: three fires of one schedule, the last two missed together."""

    def __init__(self, folder):
        start = from_micros(START)
        trigger = IntervalTrigger(1, start_at=start, end_at=start + timedelta(seconds=2))
        self.schedule = factories.schedule(trigger=trigger, created=NOW)
        ran = Row(self.schedule.schedule_id, "a", "trigger", Phase.COMPLETED, START, START, 0, None, None, 1)
        gap = (2, START + SECOND, START + 2 * SECOND)
        missed = ran._replace(id="b", phase=Phase.MISFIRED, nominal=START + SECOND, completions=0)
        missed = missed._replace(missed_count=gap[0], missed_first=gap[1], missed_last=gap[2])
        self.rows = {"a": ran, "b": missed}
        self.journal = Journal(folder / "journal.jsonl")
        self.note("begin", at=START + 2_000, nominal=START)
        self.note("end", at=START + 3_000, stopped=False)
        self.note("settled", phase="completed")

    def note(self, what, occurrence="a", **facts):
        line = {"what": what, "occurrence": occurrence, "schedule": self.schedule.schedule_id, **facts}
        with self.journal.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def change(self, one, **changes):
        self.rows[one] = self.rows[one]._replace(**changes)

    def schedules(self):
        return {self.schedule.schedule_id: self.schedule}

    def occurrences(self):
        return list(self.rows.values())


@pytest.fixture
def history(tmp_path):
    return History(tmp_path)


def judged(history):
    return check(history, [history.schedule.schedule_id])


def test_a_sound_history_is_sound(history):
    verdict = judged(history)
    assert verdict.is_sound
    assert verdict.lateness == [0.002]
    assert str(verdict) == (
        "3 fires (completed 1, misfired 2), lost 0, twice 0, stray 0, stuck 0, early 0, "
        "late p50 2 ms p99 2 ms max 2 ms, repeated runs 0, duplicate effects 0, accepted per occurrence 1"
    )


@pytest.mark.parametrize(
    ("spoil", "counts"),
    [
        (lambda history: history.rows.pop("b"), {"lost": 2}),
        (lambda history: history.rows.pop("a"), {"lost": 1, "strays": 1, "accepted": 0}),
        (lambda history: history.journal.path.write_text(""), {"lost": 1}),
        (lambda history: history.change("b", missed_first=START, missed_count=3), {"twice": 1}),
        (lambda history: history.change("b", missed_count=3), {"strays": 1}),
        (lambda history: history.change("b", missed_first=START + 2 * SECOND), {"lost": 1, "strays": 1}),
        (lambda history: history.change("a", phase=Phase.DISPATCHING), {"lost": 1, "stuck": 1}),
        (lambda history: history.change("a", completions=0), {"strays": 1}),
        (lambda history: history.change("a", completions=2), {"strays": 1, "accepted": 2}),
        (lambda history: history.note("begin", at=START - 1, nominal=START), {"early": 1, "repeated": 1}),
        (lambda history: history.note("begin", "c", at=START, nominal=START), {"strays": 1}),
        (lambda history: history.note("end", at=START, stopped=False), {"duplicates": 1}),
        (lambda history: history.note("end", at=START, stopped=True), {}),
        (lambda history: history.note("settled", phase="failed"), {"accepted": 2}),
    ],
)
def test_what_is_wrong_is_counted(history, spoil, counts):
    spoil(history)
    verdict = judged(history)
    names = ("lost", "twice", "strays", "stuck", "early", "repeated", "duplicates")
    expected = dict.fromkeys(names, 0) | {"accepted": 1} | counts
    assert {name: getattr(verdict, name) for name in expected} == expected
    assert verdict.is_sound == (not counts.keys() & {"lost", "twice", "strays", "stuck", "early"})


def test_a_fleet_on_postgres_reads_beside_noonmark(tmp_path, database):
    fleet = PostgresFleet(tmp_path, database)
    fleet.sql("CREATE TABLE marks (id int, note text)")
    assert fleet.sql("INSERT INTO marks VALUES ($1, $2), (2, NULL) RETURNING id", 1, "one") == [(1,), (2,)]
    assert fleet.sql("SELECT id, note FROM marks ORDER BY id") == [(1, "one"), (2, None)]
    assert fleet.url == database.url
