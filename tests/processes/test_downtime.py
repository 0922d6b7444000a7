"""All nodes down for a while: each misfire policy runs exactly what it should, and every fire is accounted for."""

import tracemalloc
from datetime import UTC, datetime

import pytest

from noonmark import Scheduler
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.triggers import IntervalTrigger
from noonmark.testing import FakeClock, ManualDriver
from tests.processes import work
from tests.processes.checker import check, nominal_times, outcomes
from tests.processes.fleet import CLOCK, every
from tests.soak import SCALE

GRACE = 3
LEASE = 2.0
WITHIN = 8
POLICIES = {
    "skip": {},
    "catch_up_one": {},
    "catch_up_all": {"limit": 3},
    "catch_up_within": {"window_seconds": WITHIN},
    "spread": {"window_seconds": 2, "limit": 4},
}
DOWN = 8 + 4 * SCALE
"""So many fires fall into the time in which nothing runs."""


def test_after_a_downtime_each_policy_runs_exactly_what_it_should(fleet, figure):
    nodes = [fleet.node(LEASE) for _ in range(2)]
    ids = {
        name: fleet.scheduler.schedule(
            work.record,
            trigger=every(0.5, count=3 + DOWN),
            misfire={"type": name, "grace_seconds": GRACE, **settings},
        )
        for name, settings in POLICIES.items()
    }
    fleet.until(lambda: len(fleet.journal.of("settled")) >= 3 * len(ids))
    for node in nodes:
        fleet.kill(node)
    last = max(nominal_times(fleet.kept(one).schedule)[-1] for one in ids.values())
    # What a lost node had claimed is late only after two leases.
    all_late = last + int(max(GRACE, 2 * LEASE) * SECOND) + SECOND // 2
    fleet.until(lambda: CLOCK.micros() > all_late)
    before = len(fleet.journal.lines)
    settled = {name: fleet.scheduler.occurrences(one) for name, one in ids.items()}
    fleet.node(LEASE)
    fleet.completed(ids.values())
    verdict = check(fleet, ids.values())
    late = [line for line in fleet.journal.lines[before:] if line["what"] == "begin"]
    caught_up = {name: judge_policy(fleet, name, one, settled[name], late) for name, one in ids.items()}
    figure(f"downtime of {DOWN} fires: {verdict}, caught up {caught_up}")
    assert verdict.is_sound
    assert verdict.accepted == 1


def judge_policy(fleet, name, schedule_id, settled, late):
    """Compare what ran after the downtime with what the policy names; says how many were caught up."""
    rows = fleet.scheduler.occurrences(schedule_id)
    known, _ = outcomes(nominal_times(fleet.kept(schedule_id).schedule), settled)
    # What had begun is delivered again, whatever the policy says about lateness.
    begun = {row.nominal for row in settled if row.phase is Phase.DISPATCHING}
    missed = [time for time, phases in known.items() if not phases and time not in begun]
    ran = [line["nominal"] for line in late if line["schedule"] == schedule_id and line["nominal"] not in begun]
    assert ran == named_by(name, missed, rows)
    final = {row.id for row in settled if row.phase in FINAL}
    gaps = [row for row in rows if row.phase is Phase.MISFIRED and row.id not in final]
    assert sum(row.missed_count for row in gaps) == len(missed) - len(ran)
    assert len(gaps) <= 1, "one stretch of missed fires is one row"
    return len(ran)


def named_by(policy, missed, rows):
    """The missed fires that a policy runs, oldest first."""
    now = max((row.caught_up for row in rows if row.caught_up is not None), default=0)
    match policy:
        case "skip":
            return []
        case "catch_up_one":
            return missed[-1:]
        case "catch_up_all":
            return missed[-3:]
        case "catch_up_within":
            return [time for time in missed if now and now - time <= WITHIN * SECOND]
        case "spread":
            spread = sorted((row.due, row.nominal) for row in rows if row.caught_up is not None)
            assert [due for due, _ in spread] == [now + n * SECOND // 2 for n in range(4)]
            return missed[-4:]


@pytest.mark.parametrize(
    ("misfire", "runs"),
    [
        ({"type": "skip"}, 1),
        ({"type": "catch_up_one"}, 1),
        ({"type": "catch_up_all", "limit": 10, "grace_seconds": 1}, 12),
        ({"type": "catch_up_within", "window_seconds": 86_400, "limit": 20, "grace_seconds": 1}, 22),
        ({"type": "spread", "window_seconds": 60, "limit": 1_000, "grace_seconds": 1}, 1_002),
    ],
)
def test_a_week_of_downtime_is_one_row_and_no_flood(tmp_path, figure, misfire, runs):
    down = 7 * 86_400
    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    scheduler = Scheduler(f"sqlite:///{tmp_path}/week.db", clock=clock)
    job = scheduler.schedule(work.nothing, trigger=IntervalTrigger(1), misfire=misfire)
    driver = ManualDriver(scheduler)
    clock.advance(1)
    assert len(driver.run_due()) == 1
    clock.advance(down)
    tracemalloc.start()
    begun = CLOCK.monotonic()
    driver.run_due()
    seconds = (CLOCK.monotonic() - begun) / SECOND
    growth = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    past = [row for row in scheduler.occurrences(job) if row.nominal <= clock.micros()]
    [gap] = [row for row in past if row.missed_count]
    figure(
        f"a week of an every-second schedule, {misfire['type']}: {len(past)} rows, one of them for {gap.missed_count} "
        f"fires, {seconds:.2f} s, {growth:.1f} MB"
    )
    assert len(past) == 1 + 1 + runs, "the run before, the gap, and what is caught up"
    assert gap.missed_count == down - runs
    assert growth < 50
    scheduler._runtime.store.close()
