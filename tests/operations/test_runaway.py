"""A schedule that runs away: what its owner is told, and what an agent may not do about it."""

from dataclasses import replace

import pytest

from noonmark.core.errors import InvalidSchedule, NotAllowed
from tests.operations.harness import LOCAL, Harness

AGENT = replace(LOCAL, is_agent=True)
QUIET = {"type": "event", "event_type": "order.placed"}
TASK = {"target_kind": "task", "query": "look"}


@pytest.fixture
def harness():
    return Harness()


def run_away(harness, **fields):
    harness.create(schedule_id="s", trigger=QUIET, runaway={"max_fires_per_hour": 2} | fields)
    for _ in range(4):
        harness("event/emit", event_type="order.placed")
        harness.pass_by(1)


def test_its_owner_is_told(harness):
    harness.create(schedule_id="on-runaway", trigger={"type": "event", "event_type": "schedule.runaway"})
    run_away(harness)
    harness.pass_by(1)
    told = [call.event["payload"] for call in harness.calls if call.schedule_id == "on-runaway"]
    reason = "3 starts in the hour from 2026-03-01T12:00:00Z on; at most 2 are allowed, and its trigger plans 0"
    assert [(one["schedule_id"], one["rule"], one["summary"]) for one in told] == [("s", "fires_per_hour", reason)]
    stored = harness("schedule/get", schedule_id="s")
    assert (stored["phase"], stored["runaway"]) == ("paused", {"max_fires_per_hour": 2})
    assert (stored["paused"]["by"], stored["paused"]["reason"]) == ("noonmark", reason)
    rows = harness("schedule/occurrences", schedule_id="s")["occurrences"]
    assert sorted((one["phase"], one["reason"]) for one in rows) == [
        ("completed", "succeeded"),
        ("completed", "succeeded"),
        ("skipped", "paused"),
        ("skipped", "paused"),
    ]
    assert f"by `noonmark` ({reason})" in harness("schedule/explain", schedule_id="s")["summary"]
    [entry] = [one for one in harness("audit/list", schedule_id="s")["entries"] if one["caller"] == "noonmark"]
    assert (entry["operation"], entry["reason"]) == ("schedule/pause", reason)
    answer = harness("schedule/run", schedule_id="s")
    harness.pass_by(1)
    assert harness("occurrence/get", occurrence_id=answer["occurrence_id"])["phase"] == "skipped"
    harness("schedule/resume", schedule_id="s")
    harness("schedule/run", schedule_id="s", key="again")
    harness.pass_by(1)
    assert harness("schedule/get", schedule_id="s")["phase"] == "active"


def test_an_agent_does_not_let_it_go_on(harness):
    run_away(harness)
    for operation, fields in (
        ("schedule/resume", {}),
        ("schedule/update", {"enabled": True}),
        ("schedule/update", {"runaway": None}),
        ("schedule/pause", {"until": "2026-03-01T12:30:00Z"}),
    ):
        with pytest.raises(NotAllowed, match=r"runaway guard.* a person|a person .*runaway guard"):
            harness(operation, AGENT, schedule_id="s", **fields)
    harness("schedule/pause", AGENT, schedule_id="s", reason="so it should")
    assert harness("schedule/get", schedule_id="s")["phase"] == "paused"


def test_an_agent_gives_agents_no_more_room_than_they_have(harness):
    def create(caller, schedule_id, **rules):
        fields = {"schedule_id": schedule_id, "trigger": QUIET, "target": TASK, "runaway": rules}
        return harness("schedule/create", caller, **fields)

    for rules in ({"max_fires_per_hour": 61}, {"max_spend_factor": 0}):
        with pytest.raises(NotAllowed, match="at most 60 starts in an hour") as refusal:
            create(AGENT, "s", **rules)
        assert refusal.value.field == "runaway"
    create(AGENT, "strict", max_fires_per_hour=3, max_identical_results=2)
    assert create(LOCAL, "free", max_fires_per_hour=0)["runaway"] == {"max_fires_per_hour": 0}
    with pytest.raises(InvalidSchedule, match="must be 0, or from 1 to 1,000"):
        create(LOCAL, "wrong", max_spend_factor=0.1)


def test_results_that_stay_the_same_pause_it(harness):
    harness.answers = ["a", "b", "b", "b", "b"]
    harness.create(schedule_id="s", runaway={"max_identical_results": 2})
    harness.pass_by(1)
    for _ in range(6):
        harness.pass_by(60)
    stored = harness("schedule/get", schedule_id="s")
    assert stored["paused"]["reason"] == "its last 3 results were the same; at most 2 in a row are allowed"
    assert harness.answers == ["b"]
