"""A pause says who paused the schedule, when, why and until when; and it ends by itself at that time."""

import pytest

from noonmark.core.errors import InvalidRequest
from tests.operations.harness import Harness

UNTIL = "2026-03-01T12:10:00Z"
PAUSED = {"reason": "maintenance", "by": "local", "at_utc": "2026-03-01T12:00:00Z", "until_utc": UNTIL}


@pytest.fixture
def harness():
    harness = Harness()
    harness.create(schedule_id="tick")
    return harness


def pause(harness, **arguments):
    return harness("schedule/pause", schedule_id="tick", **arguments)


def get(harness):
    return harness("schedule/get", schedule_id="tick")


def test_the_document_has_it_while_the_schedule_is_paused(harness):
    assert get(harness)["paused"] is None
    assert pause(harness, reason="maintenance", until=UNTIL)["paused"] == PAUSED
    assert get(harness)["paused"] == PAUSED
    assert harness("schedule/resume", schedule_id="tick")["paused"] is None


def test_a_second_pause_replaces_the_end_and_the_reason_if_it_has_one_and_the_audit_log_has_both(harness):
    pause(harness, reason="maintenance", until=UNTIL)
    harness.clock.advance(1)
    assert pause(harness)["paused"] == PAUSED
    later = "2026-03-01T12:20:00Z"
    assert pause(harness, until=later)["paused"] == PAUSED | {"until_utc": later}
    assert pause(harness, reason="incident")["paused"] == PAUSED | {"reason": "incident", "until_utc": None}
    harness.pass_by(3600)
    assert get(harness)["phase"] == "paused"
    entries = harness("audit/list", schedule_id="tick")["entries"]
    reasons = [entry["reason"] for entry in entries if entry["operation"] == "schedule/pause"]
    assert [one for one in reasons if one] == ["incident", "maintenance"]


def test_it_must_end_later_than_now(harness):
    with pytest.raises(InvalidRequest, match="must be later than now, 2026-03-01T12:00:00Z") as refused:
        pause(harness, until="2026-03-01T12:00:00Z")
    assert refused.value.field == "until"
    assert get(harness)["phase"] == "active"


def test_it_ends_by_itself_and_the_audit_log_says_so(harness):
    pause(harness, reason="maintenance", until=UNTIL)
    harness.pass_by(9 * 60)
    assert (get(harness)["phase"], harness.calls) == ("paused", [])
    harness.pass_by(60)
    assert (get(harness)["phase"], get(harness)["paused"]) == ("active", None)
    harness.pass_by(60)
    assert len(harness.calls) == 1
    resumed, paused, _ = harness("audit/list")["entries"]
    assert (paused["operation"], paused["caller"], paused["reason"]) == ("schedule/pause", "local", "maintenance")
    assert (resumed["operation"], resumed["caller"]) == ("schedule/resume", "noonmark")
    assert resumed["reason"] == f"it was paused until {UNTIL}"


def test_what_fell_due_after_its_end_is_late_and_not_skipped(harness):
    pause(harness, until=UNTIL)
    harness.pass_by(20 * 60)
    rows = harness("schedule/occurrences", schedule_id="tick")["occurrences"]
    ended = [(row["reason"], row["missed_count"], row["missed_to"]) for row in rows if row["missed_count"]]
    assert ("paused", 10, UNTIL) in ended
    assert {reason for reason, _, _ in ended} == {"paused", "late"}


def test_an_edit_keeps_the_end(harness):
    pause(harness, until=UNTIL)
    harness("schedule/update", schedule_id="tick", max_runs=5)
    harness.pass_by(11 * 60)
    assert get(harness)["phase"] == "active"


def test_explain_says_who_paused_it_and_why(harness):
    pause(harness, reason="maintenance", until=UNTIL)
    words = "paused since 2026-03-01 12:00:00 UTC by `local` (maintenance), until 2026-03-01 12:10"
    answer = harness("schedule/explain", schedule_id="tick", at="2026-03-01T12:05:00Z")
    assert words in answer["summary"]
    assert {step["rule"]: step["facts"] for step in answer["steps"]}["pause"]["paused"] == PAUSED
    harness.pass_by(10 * 60)
    answer = harness("schedule/explain", schedule_id="tick", at="2026-03-01T12:05:00Z")
    assert "skipped by a pause of the schedule by `local` (maintenance)" in answer["summary"]


def test_a_schedule_that_is_declared_or_set_disabled_says_so():
    harness = Harness()
    schedule = harness.create(schedule_id="off", enabled=False)
    assert schedule["paused"]["reason"] == "it was declared with enabled: false"
    harness("schedule/update", schedule_id="off", enabled=True)
    off = harness("schedule/update", schedule_id="off", enabled=False)
    assert (off["paused"]["by"], off["paused"]["reason"]) == ("local", "enabled was set to false")


def test_a_skip_for_overlap_names_the_occurrence_in_the_way(harness):
    harness("schedule/delete", schedule_id="tick")
    retry = {"max_attempts": 2, "backoff_seconds": 90}
    harness.create(schedule_id="slow", retry_policy=retry)
    harness.answers.append(ValueError("busy"))
    harness.pass_by(60)
    harness.pass_by(60)
    rows = harness("schedule/occurrences", schedule_id="slow", phase=["pending", "skipped"])["occurrences"]
    skipped, first = rows[-2:]
    assert skipped["detail"] == {"in_flight": first["occurrence_id"]}
    answer = harness("occurrence/explain", occurrence_id=skipped["occurrence_id"])
    assert f"`{first['occurrence_id']}` was still in flight" in answer["summary"]


def test_a_skip_for_overlap_says_what_has_become_of_the_occurrence_in_the_way(harness):
    harness("schedule/delete", schedule_id="tick")
    harness.create(schedule_id="slow", retry_policy={"max_attempts": 2, "backoff_seconds": 90})
    harness.answers.append(ValueError("busy"))
    harness.pass_by(60)
    harness.pass_by(60)
    rows = harness("schedule/occurrences", schedule_id="slow", phase=["pending", "skipped"])["occurrences"]
    skipped, first = rows[-2:]
    waits = f"`{first['occurrence_id']}` has still not ended: it "
    advice = f"; `noonmark run cancel {first['occurrence_id']}` asks it to stop."
    for name, arguments in (
        ("occurrence/explain", {"occurrence_id": skipped["occurrence_id"]}),
        ("schedule/explain", {"schedule_id": "slow"}),
    ):
        summary = harness(name, **arguments)["summary"]
        assert waits in summary
        assert summary.endswith(advice)
    harness("occurrence/cancel", occurrence_id=first["occurrence_id"])
    assert "has still" not in harness("occurrence/explain", occurrence_id=skipped["occurrence_id"])["summary"]
