"""The answer to a creation is what a reader gets right after it, and mostly takes no second look at the store."""

from dataclasses import replace

import pytest

from noonmark.core.instants import to_micros
from tests.driver.rig import Wrapped
from tests.operations.harness import EVERY_MINUTE, START, Harness

UNREAD = {
    "interval": {"trigger": EVERY_MINUTE},
    "cron, near": {"trigger": {"type": "cron", "expression": "* * * * * *", "timezone": "Europe/Berlin"}},
    "cron, far": {"trigger": {"type": "cron", "expression": "0 0 29 2 *"}},
    "jitter": {"trigger": {**EVERY_MINUTE, "jitter_seconds": 50}},
    "event": {"trigger": {"type": "event", "event_type": "paid"}},
    "runs left": {"trigger": EVERY_MINUTE, "max_runs": 3},
    "one run left": {"trigger": EVERY_MINUTE, "max_runs": 1},
    "horizon": {"trigger": EVERY_MINUTE, "planning_horizon_occurrences": 4},
    "warnings": {"trigger": EVERY_MINUTE, "target": {"target_kind": "workflow", "workflow_id": "nightly"}},
}
READ = {
    "once": {"trigger": {"type": "once", "delay_seconds": 60}},
    "paused": {"trigger": EVERY_MINUTE, "enabled": False},
    "follower": {"trigger": None, "depends_on": [{"schedule_id": "up"}]},
    "late": {"trigger": {"type": "once", "due_at_utc": "2026-03-01T11:59:30Z"}},
}


@pytest.mark.parametrize("store", ["memory://", "sqlite"])
@pytest.mark.parametrize("name", [*UNREAD, *READ])
def test_the_answer_to_a_creation_is_what_is_read_after_it(name, store, tmp_path):
    harness = Harness(store if "memory" in store else f"sqlite:///{tmp_path}/noonmark.db")
    harness.create(schedule_id="up")
    wrapped = Wrapped(harness.service.store)
    woken = []
    harness.service = replace(harness.service, store=wrapped, wake=woken.append)
    document = UNREAD.get(name) or READ[name]
    created = harness.create(schedule_id="report", labels={"team": "a"}, **document)
    assert wrapped.calls["find_uid"] == (name in READ)
    assert created == harness("schedule/get", schedule_id="report")
    assert woken == [wrapped.store.find("default", "report").next_due]


def test_the_next_fires_are_those_after_now_however_often_they_are_read():
    harness = Harness()
    harness.create(schedule_id="a")
    harness.create(schedule_id="b", max_runs=2)

    def shown(schedule_id):
        return harness("schedule/get", schedule_id=schedule_id)["next_fire_times"]

    first = shown("a")
    assert (len(first), shown("b")) == (5, first[:2])
    harness.clock.advance(59)
    assert shown("a") == first
    harness.clock.advance(1)
    assert shown("a")[:4] == first[1:]
    harness.clock._micros = to_micros(START)
    assert shown("a") == first, "a clock may be set back"


def test_a_change_of_a_name_is_shown_at_once():
    harness = Harness()
    before = harness.create(schedule_id="a", name="before")
    harness("schedule/update", schedule_id="a", name="after")
    after = harness("schedule/get", schedule_id="a")
    assert (before["name"], after["name"], after["revision"]) == ("before", "after", before["revision"])
    [listed] = harness("schedule/list")["schedules"]
    assert listed == {name: value for name, value in after.items() if name != "warnings"}
