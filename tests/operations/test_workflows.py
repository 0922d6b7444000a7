"""Workflows: versions, runs without a schedule, and what callers may do with them."""

import json
from dataclasses import replace

import pytest

from noonmark.core.errors import Conflict, InvalidRequest, InvalidWorkflow, KeyReused, NotAllowed, NotFound
from noonmark.core.schedule import TRUSTED, Owner
from noonmark.core.targets.egress import EgressPolicy
from noonmark.core.targets.permissions import TargetPermissions
from noonmark.operations.service import Caller
from noonmark.operations.table import OPERATIONS
from tests.operations.harness import LOCAL, REPORT, Harness

PROGRAM = replace(LOCAL, source=TRUSTED)
ADA, BOB = (
    Caller(owner=Owner(tenant="default", user=user), name=user, source="rest", sees_own_only=True, is_root=False)
    for user in ("ada", "bob")
)
STEPS = [{"id": "fetch", "target": REPORT}, {"id": "load", "target": REPORT, "depends_on": ["fetch"]}]
OTHER = [{"id": "fetch", "target": REPORT}]
NAMES_ETL = {"target_kind": "workflow", "workflow_id": "etl"}


@pytest.fixture
def harness():
    return Harness()


def create(harness, caller=LOCAL, **fields):
    return harness("workflow/create", caller=caller, **{"workflow_id": "etl", "steps": STEPS, **fields})


def test_a_definition_that_differs_is_the_next_version(harness):
    assert create(harness) == {"workflow_id": "etl", "version": 1, "warnings": []}
    assert create(harness)["version"] == 1
    assert create(harness, steps=OTHER)["version"] == 2
    assert create(harness)["version"] == 3
    assert create(harness, version=7, description="the seventh")["version"] == 7
    with pytest.raises(Conflict) as refused:
        create(harness, version=7)
    assert refused.value.field == "version"
    assert harness("workflow/get", workflow_id="etl", version=2)["steps"][0]["id"] == "fetch"
    versions = harness("workflow/versions", workflow_id="etl", limit=3)
    assert [one["version"] for one in versions["versions"]] == [7, 3, 2]
    rest = harness("workflow/versions", workflow_id="etl", cursor=versions["next_cursor"])
    assert [one["version"] for one in rest["versions"]] == [1]


def test_all_that_is_wrong_with_targets_is_reported_at_once_with_its_path(harness):
    harness.service = replace(
        harness.service,
        egress=EgressPolicy(),
        permissions=TargetPermissions(functions={"default": frozenset({"report"})}),
    )
    by_module = {**REPORT, "function": "os:getcwd"}
    inside = {"target_kind": "http", "url": "http://169.254.169.254/latest"}
    secret = {"target_kind": "http", "url": "https://example.com", "secret_headers": {"Authorization": "nothing"}}
    harness.service = replace(harness.service, permissions=None)
    steps = [
        {"id": "a", "target": by_module},
        {"id": "b", "target": REPORT, "compensate": inside},
        {"id": "c", "target": secret},
    ]
    with pytest.raises(InvalidWorkflow) as refused:
        create(harness, steps=steps)
    assert [one.field for one in refused.value.problems] == [
        "steps[0].target.function",
        "steps[1].compensate.url",
        "steps[2].target.secret_headers.Authorization",
    ]
    permissions = TargetPermissions(functions={"default": frozenset({"other"})})
    harness.service = replace(harness.service, permissions=permissions)
    with pytest.raises(NotAllowed) as not_allowed:
        create(harness)
    assert not_allowed.value.field == "steps[0].target.function"


def test_what_may_surprise_about_a_workflow_is_a_warning(harness):
    harness.driver.run_due()  # a node is alive
    steps = [{"id": "a", "target": {**REPORT, "function": "repart"}}, {"id": "b", "target": NAMES_ETL}]
    [unserved, unknown] = create(harness, workflow_id="outer", steps=steps)["warnings"]
    assert unserved.startswith("steps[0].target: no live node serves `function:repart`; did you mean")
    assert unknown == "steps[1].target: there is no workflow `etl`; it must be created before this is due"
    create(harness)
    assert len(harness("workflow/get", workflow_id="outer")["warnings"]) == 1


def test_a_schedule_may_name_what_does_not_exist_yet_and_is_warned(harness):
    def warnings(**target):
        schedule = harness.create(target={**NAMES_ETL, **target})
        return [one for one in schedule["warnings"] if "serves" not in one]

    assert warnings() == ["there is no workflow `etl`; it must be created before this is due"]
    create(harness, inputs={"day": {"type": "string"}, "n": {"type": "integer", "default": 1}})
    assert warnings(version=3) == ["the workflow `etl` has no version 3; the newest is 1"]
    assert warnings(inputs={"day": "monday"}) == []
    [missing, unknown, wrong] = sorted(warnings(inputs={"n": "x", "m": 1}))
    assert "target.inputs.day" in missing
    assert "target.inputs.m" in unknown
    assert "target.inputs.n" in wrong


def test_a_workflow_that_schedules_name_is_not_deleted(harness):
    create(harness)
    ids = [harness.create(target=NAMES_ETL)["schedule_id"] for _ in range(2)]
    with pytest.raises(Conflict) as refused:
        harness("workflow/delete", workflow_id="etl")
    assert all(one in refused.value.message for one in ids)
    for one in ids:
        harness("schedule/delete", schedule_id=one)
    assert harness("workflow/delete", workflow_id="etl") == {"workflow_id": "etl", "version": 1}
    for operation in ("get", "delete", "versions", "run"):
        with pytest.raises(NotFound):
            harness(f"workflow/{operation}", workflow_id="etl")
    assert harness("workflow/list")["workflows"] == []
    assert create(harness)["version"] == 2


def test_a_run_is_pinned_to_a_version_and_repeated_by_its_key(harness):
    create(harness)
    run = harness("workflow/run", workflow_id="etl", inputs={"n": 1}, key="k")
    assert (run["version"], run["phase"], run["schedule_id"]) == (1, "pending", None)
    assert [(step["step_id"], step["phase"]) for step in run["steps"]] == [("fetch", "pending"), ("load", "pending")]
    create(harness, steps=OTHER)
    assert harness("workflow/run", workflow_id="etl", inputs={"n": 1}, key="k") == run
    for other in ({"inputs": {"n": 2}}, {"inputs": {"n": 1}, "version": 2}, {"inputs": {"n": 1}, "payload": 1}):
        with pytest.raises(KeyReused):
            harness("workflow/run", workflow_id="etl", key="k", **other)
    assert harness("workflow/run", workflow_id="etl", inputs={"n": 1})["version"] == 2
    entries = [one for one in harness("audit/list")["entries"] if one["operation"] == "workflow/run"]
    assert len(entries) == 2
    assert run["workflow_run_id"] in entries[1]["reason"]


def test_inputs_are_checked_before_anything_runs(harness):
    create(harness, inputs={"day": {"type": "string"}, "n": {"type": "integer", "default": 1}})
    with pytest.raises(InvalidRequest) as refused:
        harness("workflow/run", workflow_id="etl", inputs={"n": "x", "m": 1})
    assert {one.field for one in refused.value.problems} == {"inputs.day", "inputs.n", "inputs.m"}
    assert harness("workflow_run/list")["workflow_runs"] == []


def test_a_run_that_waits_is_listed_and_can_be_cancelled(harness):
    create(harness)
    run_id = harness("workflow/run", workflow_id="etl")["workflow_run_id"]
    [listed] = harness("workflow_run/list", workflow_id="etl")["workflow_runs"]
    assert (listed["workflow_run_id"], listed["phase"], listed["started_at_utc"]) == (run_id, "pending", None)
    cancelled = harness("workflow_run/cancel", workflow_run_id=run_id, reason="never mind")
    assert cancelled["phase"] == "cancelled"
    assert {step["phase"] for step in cancelled["steps"]} == {"cancelled"}
    entry = harness("audit/list")["entries"][0]
    assert (entry["operation"], entry["schedule_id"]) == ("workflow_run/cancel", None)
    assert entry["reason"] == f"run {run_id}: never mind"
    assert harness("workflow_run/list", phase="pending")["workflow_runs"] == []
    with pytest.raises(Conflict):
        harness("workflow_run/cancel", workflow_run_id=run_id)


NOT_HERE = ("signing/key", "worker/status", "upload/list")
"""What needs a server."""
LISTS = [
    one.name
    for one in OPERATIONS.values()
    if one.route.startswith("GET ") and "{" not in one.route and one.name not in NOT_HERE
]


def test_hidden_schedules_are_in_no_list(harness):
    create(harness)
    harness("workflow/run", workflow_id="etl")
    visible = harness.create(target=NAMES_ETL)["schedule_id"]
    assert len(LISTS) > 15
    for listed in (harness("occurrence/list")["occurrences"], harness("workload")["due"]["occurrences"]):
        names = [(one["schedule_id"], one["schedule_name"], one["trigger_snapshot"]) for one in listed]
        assert (None, "workflow etl", None) in names
    for name in LISTS:
        found = json.dumps(harness(name))
        assert "~workflow" not in found, name
    assert harness("schedule/count") == {"count": 1}
    assert [one["schedule_id"] for one in harness("schedule/list")["schedules"]] == [visible]
    assert harness("selection/run", phase="active", dry_run=True)["count"] == 1
    for operation in ("schedule/get", "schedule/run", "schedule/delete", "schedule/occurrences", "schedule/explain"):
        with pytest.raises(InvalidRequest):
            harness(operation, schedule_id="~workflow:etl")
    with pytest.raises(InvalidRequest):
        harness("occurrence/list", schedule_id="~workflow:etl")
    with pytest.raises(ValueError, match="schedule_id"):
        harness.create(schedule_id="~workflow:etl")


def test_what_a_program_declared_is_not_for_callers_to_change_or_to_feed(harness):
    create(harness, caller=PROGRAM)
    with pytest.raises(NotAllowed, match="program"):
        create(harness, steps=OTHER)
    with pytest.raises(NotAllowed):
        harness("workflow/run", workflow_id="etl", inputs={"n": 1})
    with pytest.raises(NotAllowed):
        harness("workflow/run", workflow_id="etl", payload={"n": 1})
    assert harness("workflow/run", workflow_id="etl")["phase"] == "pending"
    create(harness, caller=PROGRAM, inputs={"n": 1})
    assert harness("workflow/run", workflow_id="etl", inputs={"n": 2})["inputs"] == {"n": 2}
    assert harness("workflow/run", caller=PROGRAM, workflow_id="etl", payload=1)["phase"] == "pending"


def test_a_user_who_sees_the_own_schedules_only_sees_the_own_workflows_only(harness):
    create(harness, caller=ADA)
    run_id = harness("workflow/run", caller=ADA, workflow_id="etl")["workflow_run_id"]
    for caller, sees in ((ADA, True), (BOB, False), (LOCAL, True)):
        assert bool(harness("workflow/list", caller=caller)["workflows"]) is sees
        assert bool(harness("workflow_run/list", caller=caller)["workflow_runs"]) is sees
    for operation, arguments in (
        ("workflow/get", {"workflow_id": "etl"}),
        ("workflow/run", {"workflow_id": "etl"}),
        ("workflow/delete", {"workflow_id": "etl"}),
        ("workflow_run/get", {"workflow_run_id": run_id}),
        ("workflow_run/cancel", {"workflow_run_id": run_id}),
    ):
        with pytest.raises(NotFound):
            harness(operation, caller=BOB, **arguments)
    with pytest.raises(Conflict):
        create(harness, caller=BOB)
