"""Many processes on one file, and many fires at one instant: no lock error surfaces, nothing is done twice."""

from datetime import timedelta

from noonmark.core.instants import SECOND, from_micros
from noonmark.core.triggers import IntervalTrigger, OnceTrigger
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import CLOCK
from tests.soak import SCALE


def test_eight_processes_on_one_file_see_no_lock_and_lose_no_update(fleet, figure):
    callers = [
        fleet.start("caller", ready=None, does="contend", seconds=1 * SCALE, number=number) for number in range(8)
    ]
    for caller in callers:
        assert caller.wait(120) == 0, fleet.complaints()
    fleet.node(15.0)
    created = [line["id"] for line in fleet.journal.of("created")]
    fleet.completed(created)
    verdict = check(fleet, created)
    edits = len(fleet.journal.of("edited"))
    [(revision,)] = fleet.sql(
        "SELECT revision FROM schedule_states JOIN schedules ON key = schedule WHERE name = 'shared'"
    )
    shown = fleet.journal.of("shown") + fleet.journal.of("refused") + fleet.journal.of("store_failed")
    figure(f"8 processes: {verdict}; {edits} edits made revision {revision}; errors shown {len(shown)}")
    assert not shown
    assert verdict.is_sound
    assert verdict.repeated == 0
    assert verdict.accepted == 1
    assert revision == edits, "every acknowledged edit is a revision"


def test_one_file_and_one_name_declared_by_many_at_once_is_one_schedule(fleet, figure):
    rounds, callers = 10 * SCALE, 4
    for _ in range(callers):
        fleet.start("caller", does="declare_together", rounds=rounds)
    for n in range(rounds):
        fleet.until(lambda n=n: len(fleet.journal.of("ready", round=n)) == callers)
        fleet.path = fleet.folder / f"{n}.db"
        fleet.path.with_suffix(".gate").touch()
        fleet.until(lambda n=n: len(fleet.journal.of("created", round=n)) == callers)
        told = {line["id"] for line in fleet.journal.of("created", round=n)}
        assert len(told) == 1, f"{callers} processes were told of {len(told)} schedules"
        assert fleet.sql("SELECT count(*) FROM schedules") == [(1,)]
    figure(f"declared together: {rounds} new files, {callers} processes each, 1 schedule each")


def test_what_was_created_survives_the_kill_of_its_creator(fleet, figure):
    callers = [fleet.start("caller", ready=None, does="create_and_die") for _ in range(3 * SCALE)]
    for caller in callers:
        assert caller.wait(60) == -9, fleet.complaints()
    ids = [line["id"] for line in fleet.journal.of("created")]
    missing = [one for one in ids if fleet.kept(one) is None]
    figure(f"killed right after create: {len(ids)} created, missing {len(missing)}")
    assert len(ids) == len(callers)
    assert not missing


def test_times_at_the_edge_of_a_microsecond_fire_once_each(fleet, figure):
    for _ in range(2):
        fleet.node(15.0)
    second = CLOCK.micros() // SECOND * SECOND + 5 * SECOND
    edges = (1, 0, 999_999, 500_000, -1)
    triggers = [OnceTrigger(from_micros(second + edge)) for edge in edges for _ in range(2)]
    triggers += [OnceTrigger(from_micros(second + 1)) for _ in range(100)]
    for edge in edges:
        start = from_micros(second + edge)
        triggers.append(IntervalTrigger(0.25, start_at=start, end_at=start + timedelta(seconds=1)))
        triggers.append(IntervalTrigger(0.333333, start_at=start, end_at=start + timedelta(seconds=1, microseconds=-1)))
        triggers.append(IntervalTrigger(0.001, start_at=start, end_at=start + timedelta(microseconds=49_999)))
    options = {"func": work.record, "overlap": "allow", "misfire": {"type": "catch_up_all", "limit": 1_000}}
    # All at once: one that is created after its first time does not have all of them.
    ids = fleet.scheduler.create_many(options | {"trigger": one} for one in triggers)
    fleet.completed(ids)
    verdict = check(fleet, ids)
    figure(f"microseconds: {len(ids)} schedules, {verdict}")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.repeated == 0
