"""Overlap policies on two nodes: never more at once than the policy says, in order, and every fire accounted for."""

from collections import Counter

from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import every
from tests.soak import SCALE

FIRES = 8 * SCALE
POLICIES = ("skip", "queue", "queue_one", "allow", "cancel_running")


def test_each_overlap_policy_holds_across_nodes(fleet, figure):
    for _ in range(2):
        fleet.node(15.0)
    ids = {
        name: fleet.scheduler.schedule(
            work.obey, trigger=every(0.3, count=FIRES), args=[0.7], overlap=name, misfire="catch_up_all"
        )
        for name in POLICIES
    }
    fleet.completed(ids.values())
    verdict = check(fleet, ids.values())
    at_once = {name: fleet.journal.most_at_once(one) for name, one in ids.items()}
    ended = {name: Counter(row.phase for row in fleet.scheduler.occurrences(one)) for name, one in ids.items()}
    ran = {name: fleet.journal.begun_nominals(one) for name, one in ids.items()}
    counts = {name: len(times) for name, times in ran.items()}
    figure(f"overlap: at once {at_once}, runs {counts} of {FIRES} each, {verdict}")
    assert verdict.is_sound
    assert verdict.repeated == 0
    assert at_once["allow"] >= 2
    assert all(at_once[name] == 1 for name in POLICIES if name != "allow")
    assert all(times == sorted(times) for name, times in ran.items() if name != "allow")
    for name in ("skip", "queue_one"):
        assert ended[name] == {Phase.COMPLETED: counts[name], Phase.SKIPPED: FIRES - counts[name]}
    for name in ("queue", "allow"):
        assert ended[name] == {Phase.COMPLETED: FIRES}
    assert 1 <= counts["skip"] < FIRES
    reasons = {row.reason for row in fleet.scheduler.occurrences(ids["queue_one"]) if row.phase is Phase.SKIPPED}
    assert reasons == {Reason.REPLACED}
    [newest, *older] = fleet.scheduler.occurrences(ids["cancel_running"])
    assert newest.phase is Phase.COMPLETED, "nothing came after it, so nothing asked it to stop"
    assert {row.reason for row in older} <= {Reason.REPLACED, Reason.SUCCEEDED}
