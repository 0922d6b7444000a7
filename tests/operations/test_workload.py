"""The workload that a caller sees."""

from dataclasses import replace

from noonmark.core.schedule import Owner
from tests.operations.harness import LOCAL, REPORT, Harness


def test_a_caller_who_sees_its_own_schedules_has_their_workload_only():
    harness = Harness()
    ann, ben = (replace(LOCAL, owner=Owner(tenant="default", user=user)) for user in ("ann", "ben"))
    for caller in (ann, ben):
        harness("schedule/create", caller, trigger={"type": "interval", "every_seconds": 60}, target=REPORT)
    whole = harness("workload", ann)["upcoming"]
    own = harness("workload", replace(ann, sees_own_only=True))["upcoming"]
    assert (whole["count"], own["count"]) == (2, 1)
    assert len(own["occurrences"]) == 1
