"""Pause, resume, delete, label and run all schedules that match."""

import pytest

from noonmark.core.admission import admit
from noonmark.core.errors import InvalidRequest, NotFound
from noonmark.core.instants import SECOND
from tests.operations.harness import FOREIGN, Harness


@pytest.fixture
def harness():
    """Two schedules of team a, one of team b."""
    harness = Harness()
    for name, team in (("one", "a"), ("two", "a"), ("three", "b")):
        harness.create(schedule_id=name, labels={"team": team})
    return harness


def touched(answer):
    return [one["schedule_id"] for one in answer["schedules"] if one["problem"] is None]


def phases(harness):
    return {one["schedule_id"]: one["phase"] for one in harness("schedule/list")["schedules"]}


def test_pause_and_resume(harness):
    assert touched(harness("selection/pause", label="team=a", dry_run=True)) == ["one", "two"]
    assert set(phases(harness).values()) == {"active"}
    answer = harness("selection/pause", label="team=a", reason="holiday")
    assert (answer["count"], answer["schedules"][0]["phase"]) == (2, "paused")
    assert phases(harness) == {"one": "paused", "two": "paused", "three": "active"}
    assert harness("audit/list", schedule_id="two")["entries"][0]["reason"] == "holiday"
    assert harness("selection/pause", labels={"team": "a"})["count"] == 0
    assert harness("selection/pause", label="team=a", phase="paused")["count"] == 0
    assert touched(harness("selection/resume", kind="interval")) == ["one", "two"]
    assert harness("selection/pause", FOREIGN, label="team=a")["count"] == 0


def test_named_schedules(harness):
    assert touched(harness("selection/pause", schedule_ids=["three", "one", "one"])) == ["three", "one"]
    assert phases(harness) == {"one": "paused", "two": "active", "three": "paused"}
    assert touched(harness("selection/resume", schedule_ids=["two", "three"])) == ["three"]  # two is not paused
    for refused in ({"schedule_ids": []}, {"schedule_ids": ["one"], "text": "one"}, {"schedule_ids": ["no such id"]}):
        with pytest.raises(InvalidRequest) as raised:
            harness("selection/delete", **refused)
        assert raised.value.field.startswith("schedule_ids")
    with pytest.raises(NotFound):
        harness("selection/delete", schedule_ids=["one", "missing"])
    with pytest.raises(NotFound):
        harness("selection/delete", FOREIGN, schedule_ids=["one"])
    assert len(phases(harness)) == 3  # nothing is deleted if one of them is unknown


def test_delete_counts_the_runs_of_each(harness):
    harness("schedule/run", schedule_id="one")
    store, now = harness.service.store, harness.service.store.clock()
    [claim] = store.claim("n1", ["function:report"], now=now, until=now, limit=9, lease=60 * SECOND)
    store.admit([admit(claim, now=now, lease=60 * SECOND)], now=now, lease=60 * SECOND)

    def runs(answer):
        return [(one["stopped_runs"], one["unfinished_runs"]) for one in answer["schedules"]]

    assert runs(harness("selection/delete", text="one", dry_run=True)) == [(None, None)]
    assert runs(harness("selection/delete", text="one")) == [(0, 1)]
    assert runs(harness("selection/delete", text="two", stop_running=True)) == [(0, 0)]


def test_delete(harness):
    assert touched(harness("selection/delete", label="team=a")) == ["one", "two"]
    assert phases(harness) == {"three": "active"}


def test_label(harness):
    harness("selection/label", label="team=a", set_labels={"tier": "1", "team": ""})
    labels = {one["schedule_id"]: one["labels"] for one in harness("schedule/list")["schedules"]}
    assert labels == {"one": {"tier": "1"}, "two": {"tier": "1"}, "three": {"team": "b"}}
    with pytest.raises(InvalidRequest, match="at least one label"):
        harness("selection/label", label="team=b", set_labels={})


def test_run(harness):
    answer = harness("selection/run", label="team=a", payload=7, key="once")
    assert harness("selection/run", label="team=a", payload=7, key="once") == answer
    harness.pass_by(1)
    assert sorted((one.schedule_id, one.payload) for one in harness.calls) == [("one", 7), ("two", 7)]
    assert harness("occurrence/get", occurrence_id=answer["schedules"][0]["occurrence_id"])["phase"] == "completed"
    again = harness("selection/run", label="team=a", payload=8, key="once")
    assert again["count"] == 0
    assert again["schedules"][0]["problem"].startswith("this key came with another payload")


def test_a_selection_must_be_one(harness):
    with pytest.raises(InvalidRequest, match="select schedules"):
        harness("selection/delete")
    with pytest.raises(InvalidRequest, match="more than 1 schedules match"):
        harness("selection/delete", label="team=a", limit=1)
    with pytest.raises(InvalidRequest, match="must not be deleted"):
        harness("selection/delete", phase="deleted")
    assert len(phases(harness)) == 3
