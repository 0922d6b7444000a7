"""Occurrences across schedules: search and redrive."""

import pytest

from noonmark.core.errors import Conflict, InvalidRequest, NotFound
from noonmark.operations.models.fields import read_cursor, write_cursor
from tests.operations.harness import FOREIGN, LOCAL, REPORT, Harness

ONCE = {"type": "once", "delay_seconds": 60}
SEEN = {"type": "event", "event_type": "seen"}


@pytest.fixture
def harness():
    return Harness()


@pytest.fixture
def three(harness):
    """Three runs of two schedules: the first two failed."""
    harness.create(schedule_id="a", labels={"team": "a"})
    harness.create(schedule_id="b", trigger=ONCE)
    harness.answers = [ValueError("a broke"), ValueError("b broke")]
    harness.pass_by(60)
    harness.pass_by(60)
    return harness


def found(harness, **arguments):
    page = harness("occurrence/list", **arguments)
    return [(one["schedule_id"], one["phase"]) for one in page["occurrences"]]


def test_failures_are_found_across_schedules(three):
    failed = [("b", "failed"), ("a", "failed")]
    assert sorted(found(three, phase="failed")) == sorted(failed)
    assert found(three, phase=["failed", "misfired"], label="team=a") == [("a", "failed")]
    assert found(three, reason="succeeded") == [("a", "completed")]
    assert found(three, schedule_id="b") == [("b", "failed")]
    assert found(three, since="2026-03-01T12:02:00Z", until="2026-03-01T12:02:00Z") == [("a", "completed")]
    assert three("occurrence/list", FOREIGN, phase="failed")["occurrences"] == []
    [failure] = three("occurrence/list", phase="failed", schedule_id="b")["occurrences"]
    assert failure["failure_detail"].endswith("broke")


def test_pages_follow_each_other(three):
    everything = three("occurrence/list")["occurrences"]
    pages, cursor = [], None
    while True:
        page = three("occurrence/list", limit=1, **({} if cursor is None else {"cursor": cursor}))
        pages += page["occurrences"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert pages == everything
    assert len(everything) == 4  # the next fire of the interval among them


def test_a_cursor_says_nothing_of_what_the_caller_does_not_see(tmp_path, monkeypatch):
    """A search ends at an occurrence of anyone when it has read enough."""
    monkeypatch.setattr("noonmark.stores.sql.reads.search.MAX_READ", 2)
    harness = Harness(f"sqlite:///{tmp_path / 'store.db'}")
    report = {"trigger": {"type": "once", "delay_seconds": 3_600}, "target": REPORT}
    harness("schedule/create", FOREIGN, schedule_id="theirs", **report)
    harness.create(schedule_id="ours", **report)
    callers = [FOREIGN, LOCAL, LOCAL, LOCAL, LOCAL, FOREIGN]
    for caller in callers:
        harness.clock.advance(1)
        schedule_id = "theirs" if caller is FOREIGN else "ours"
        started = harness("schedule/run", caller, schedule_id=schedule_id, overlap="allow")
        harness("occurrence/cancel", caller, occurrence_id=started["occurrence_id"])
    ours = harness("occurrence/list", phase="cancelled", limit=1_000)
    found, cursor, cursors = [], None, []
    while True:
        page = harness("occurrence/list", FOREIGN, phase="cancelled", limit=2, cursor=cursor)
        found += page["occurrences"]
        if (cursor := page["next_cursor"]) is None:
            break
        cursors.append(read_cursor(cursor, int, str))
    assert [one["schedule_id"] for one in found] == ["theirs"] * 2
    assert len(cursors) > 1
    known = {one["occurrence_id"] for one in ours["occurrences"]}
    for time, position in cursors:
        assert time == 0
        assert not any(one in position or one.encode().hex() in position for one in known)
    for wrong in ("~", "~xyz", position[:-1], position[:-2] + ("00" if position[-2:] != "00" else "11")):
        with pytest.raises(InvalidRequest, match="is not a cursor of this list"):
            harness("occurrence/list", FOREIGN, cursor=write_cursor(0, wrong))
    with pytest.raises(InvalidRequest, match="is not a cursor of this list"):
        harness("occurrence/list", LOCAL, cursor=write_cursor(0, position))


def test_one_failure_runs_again_once(three):
    [failure] = three("occurrence/list", phase="failed", schedule_id="b")["occurrences"]
    dry = three("occurrence/redrive", occurrence_id=failure["occurrence_id"], dry_run=True)
    assert three("occurrence/list", schedule_id="b")["occurrences"] == [failure]
    again = three("occurrence/redrive", occurrence_id=failure["occurrence_id"])
    assert again["occurrence_id"] == dry["occurrence_id"]
    assert three("occurrence/redrive", occurrence_id=failure["occurrence_id"]) == again
    three.pass_by(1)
    [ran] = three("occurrence/list", phase="completed", schedule_id="b")["occurrences"]
    assert (ran["occurrence_id"], ran["nominal_at_utc"]) == (again["occurrence_id"], failure["nominal_at_utc"])
    with pytest.raises(Conflict, match="it is completed"):
        three("occurrence/redrive", occurrence_id=ran["occurrence_id"])
    with pytest.raises(NotFound):
        three("occurrence/redrive", FOREIGN, occurrence_id=failure["occurrence_id"])


def test_a_selection_runs_again(three):
    assert three("occurrence/redrive", since="2026-03-01T12:00:00Z", dry_run=True)["count"] == 2
    with pytest.raises(InvalidRequest, match="more than 1 occurrences match"):
        three("occurrence/redrive", since="2026-03-01T12:00:00Z", limit=1)
    with pytest.raises(InvalidRequest, match="say which"):
        three("occurrence/redrive")
    with pytest.raises(InvalidRequest, match="pending cannot run again"):
        three("occurrence/redrive", phase="pending")
    assert three("occurrence/redrive", since="2026-03-01T12:00:00Z", comment="fixed")["count"] == 2
    second = three("occurrence/redrive", since="2026-03-01T12:00:00Z")
    assert (second["count"], len(second["refused"])) == (0, 2)
    assert "it ran again before" in second["refused"][0]["problem"]
    three.pass_by(1)
    assert found(three, schedule_id="b", phase="completed") == [("b", "completed")]
    assert three("audit/list", schedule_id="b")["entries"][0]["reason"] == "fixed"


def test_failures_of_one_schedule_run_again_one_after_another(harness):
    harness.create(schedule_id="a")
    harness.answers = [ValueError("broke")] * 5
    for _ in range(5):
        harness.pass_by(60)
    assert harness("occurrence/redrive", schedule_id="a")["count"] == 5
    harness.pass_by(1)
    again = [one for one in harness("occurrence/list", phase="completed")["occurrences"] if "redrive" in one["origin"]]
    nominal = [one["nominal_at_utc"] for one in reversed(again)]
    assert len(nominal) == 5
    assert [one.nominal_at.isoformat().replace("+00:00", "Z") for one in harness.calls[5:]] == sorted(nominal)


def test_an_event_runs_again_as_an_event(harness):
    harness.create(schedule_id="e", trigger=SEEN)
    harness.answers = [ValueError("broke")]
    harness("event/emit", event_type="seen", payload={"n": 1}, event_id="e1")
    harness.pass_by(1)
    [failure] = harness("occurrence/list", phase="failed")["occurrences"]
    harness("occurrence/redrive", occurrence_id=failure["occurrence_id"])
    harness.pass_by(1)
    first, second = harness.calls
    assert first.event == second.event
    assert second.event["payload"] == {"n": 1}


def test_what_cannot_run_again_says_why(harness):
    harness.create(schedule_id="gone", trigger=ONCE, target=REPORT)
    harness.answers = [ValueError("broke")]
    harness.pass_by(60)
    harness("schedule/delete", schedule_id="gone")
    [refused] = harness("occurrence/redrive", phase="failed")["refused"]
    assert refused["problem"] == "its schedule is deleted"
    harness.create(schedule_id="gap")
    harness.clock.advance(600)
    harness.driver.run_due()
    [gap] = harness("occurrence/list", phase="misfired")["occurrences"]
    with pytest.raises(Conflict, match=r"stands for 9 missed fires; backfill its schedule from 2026"):
        harness("occurrence/redrive", occurrence_id=gap["occurrence_id"])
