"""Targets that hang do not slow down the others."""

from noonmark.core.lifecycle import Phase
from tests.processes import work
from tests.processes.checker import check, percentile
from tests.processes.fleet import every

QUICK = 100


def test_a_hundred_hanging_targets_do_not_starve_others(fleet, figure):
    fleet.node(15.0)
    alone = quick_ones(fleet)
    fleet.completed(alone)
    hanging = [fleet.scheduler.schedule(work.record, args=[8], timeout=1.5) for _ in range(100)]
    fleet.until(lambda: sum(len(fleet.journal.begins(one)) for one in hanging) == 100)
    beside = quick_ones(fleet)
    fleet.completed([*beside, *hanging])
    before, after = check(fleet, alone), check(fleet, beside)
    phases = {row.phase for one in hanging for row in fleet.scheduler.occurrences(one)}
    figure(
        f"100 hanging targets: {after}, p99 lateness {1_000 * percentile(after.lateness, 99):.0f} ms, "
        f"without them {1_000 * percentile(before.lateness, 99):.0f} ms"
    )
    for verdict in (before, after):
        assert verdict.is_sound
        assert verdict.outcomes == {"completed": verdict.fires}
        assert verdict.repeated == 0
    assert phases == {Phase.TIMED_OUT}


def quick_ones(fleet):
    every_one = {"misfire": "catch_up_all", "overlap": "queue"}
    return [
        fleet.scheduler.schedule(work.record, trigger=every(0.5, count=2, offset=n * 5_000), **every_one)
        for n in range(QUICK)
    ]
