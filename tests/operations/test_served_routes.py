"""Warnings about targets that no live node serves, and what their occurrences wait for."""

import json
from dataclasses import replace

import pytest

from noonmark.core.errors import InvalidRequest
from noonmark.core.instants import SECOND
from noonmark.core.schedule import TRUSTED
from noonmark.core.targets.command import CommandRules
from noonmark.core.targets.permissions import TargetPermissions
from noonmark.operations.table import perform
from noonmark.ports.records import Heartbeat
from tests.operations.harness import EVERY_MINUTE, LOCAL, Harness

TYPO = {"target_kind": "function", "function": "repotr"}
WARNING = "no live node serves `function:repotr`; did you mean `function:report`?"
IN_A_SENTENCE = "no live node serves `function:repotr` (did you mean `function:report`?)."


@pytest.fixture
def harness():
    harness = Harness()
    beat(harness)
    return harness


def beat(harness, *routes):
    store = harness.service.store
    said = Heartbeat(node="here", routes=routes or ("function:report", "command"), lease=15 * SECOND)
    store.beat(said, now=store.clock())


def test_create_update_get_and_preview_warn_of_a_target_that_no_live_node_serves(harness):
    created = harness.create(schedule_id="typo", target=TYPO)
    assert created["warnings"] == [WARNING]
    assert harness("schedule/get", schedule_id="typo")["warnings"] == [WARNING]
    assert harness("schedule/preview", schedule_id="typo")["warnings"] == [WARNING]
    assert harness("schedule/preview", trigger=EVERY_MINUTE, target=TYPO)["warnings"] == [WARNING]
    target = {"target_kind": "function", "function": "report"}
    assert harness("schedule/update", schedule_id="typo", target=target)["warnings"] == []


def test_a_preview_of_a_schedule_takes_no_target(harness):
    harness.create(schedule_id="typo", target=TYPO)
    with pytest.raises(InvalidRequest, match="a schedule has its own"):
        harness("schedule/preview", schedule_id="typo", target=TYPO)


def test_nothing_is_known_while_no_node_is_alive(harness):
    harness.clock.advance(3600)
    assert harness.create(target=TYPO)["warnings"] == []


def test_traps_of_the_trigger_come_first(harness):
    trigger = {"type": "cron", "expression": "30 2 * * *", "timezone": "America/New_York"}
    first, last = harness.create(trigger=trigger, target=TYPO)["warnings"]
    assert "02:30" in first or "2:30" in first
    assert last == WARNING


def test_a_program_that_the_server_does_not_run_is_warned_of():
    harness = Harness()
    beat(harness)
    object.__setattr__(harness.service, "commands", CommandRules(programs=frozenset({"echo"})))
    echo, curl = ({"target_kind": "command", "argv": [name]} for name in ("echo", "curl"))
    assert harness.create(target=echo)["warnings"] == []
    warning = "this server does not run `curl`: it is not among its --allow-commands"
    assert harness.create(target=curl)["warnings"] == [warning]


def test_a_pending_occurrence_says_that_it_waits_for_a_node(harness):
    harness.create(schedule_id="typo", target=TYPO)
    harness.clock.advance(1)
    beat(harness)
    requested = harness("schedule/run", schedule_id="typo")
    why = WARNING[0].upper() + WARNING[1:]
    assert (requested["waiting_for"], requested["why"]) == ("target_missing", why)
    answer = harness("occurrence/get", occurrence_id=requested["occurrence_id"])
    assert (answer["waiting_for"], answer["why"]) == ("target_missing", why)
    listed = harness("schedule/occurrences", schedule_id="typo")["occurrences"]
    assert {one["why"] for one in listed} == {why}
    across = harness("occurrence/list", phase="pending")["occurrences"]
    at_work = harness("workload")
    queued = [*at_work["due"]["occurrences"], *at_work["upcoming"]["occurrences"]]
    for rows in (across, queued):
        assert {(one["waiting_for"], one["why"]) for one in rows} == {("target_missing", why)}
    explained = harness("occurrence/explain", occurrence_id=requested["occurrence_id"])
    assert explained["summary"].endswith(f", and {IN_A_SENTENCE}")
    assert {step["rule"]: step["decision"] for step in explained["steps"]}["claim"] == "target_missing"
    assert f"and {IN_A_SENTENCE[:-1]}; " in harness("schedule/explain", schedule_id="typo")["summary"]


def test_a_fire_ahead_says_that_nothing_serves_it_at_present(harness):
    harness.create(schedule_id="typo", target=TYPO)
    harness.clock.advance(1)
    beat(harness)
    assert f"at present, {IN_A_SENTENCE[:-1]}" in harness("schedule/explain", schedule_id="typo")["summary"]


def test_a_program_may_have_registered_the_function_since_the_last_heartbeat(harness):
    program = replace(LOCAL, source=TRUSTED)
    harness("schedule/create", caller=program, schedule_id="typo", trigger=EVERY_MINUTE, target=TYPO)
    assert harness("schedule/run", schedule_id="typo")["waiting_for"] is None
    harness.clock.advance(1)
    beat(harness)
    assert harness("schedule/run", schedule_id="typo")["waiting_for"] == "target_missing"


def test_a_tenant_does_not_learn_the_names_of_functions_that_it_may_not_use(harness):
    beat(harness, "function:report", "function:payroll")
    allowed = TargetPermissions(functions={"default": frozenset({"reports"})})
    service = replace(harness.service, permissions=allowed)
    target = {"target_kind": "function", "function": "reports"}
    created = perform(service, LOCAL, "schedule/create", {"trigger": EVERY_MINUTE, "target": target})
    schedule_id = created["schedule_id"]
    told = [
        created,
        *(perform(service, LOCAL, name, {"schedule_id": schedule_id}) for name in ("schedule/run", "schedule/explain")),
        *(
            perform(
                service, LOCAL, "schedule/preview", {"trigger": EVERY_MINUTE, "target": {**target, "function": one}}
            )
            for one in ("pay", "payroll")
        ),
    ]
    assert "no live node serves `function:payroll`" in told[-1]["warnings"][0]
    assert "no live node serves `function:reports`" in created["warnings"][0]
    for answer in told[:-1]:
        assert "payroll" not in json.dumps(answer)
        assert "`function:report`" not in json.dumps(answer)
