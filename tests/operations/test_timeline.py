"""Timelines and the overview, as callers get them."""

from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.admission import admit
from noonmark.core.errors import InvalidRequest, NotAllowed, NotFound
from noonmark.core.instants import SECOND, parse_instant, to_text
from noonmark.core.schedule import BY_ITSELF, Owner, Pause
from noonmark.operations.service import Caller
from noonmark.ports.records import Heartbeat
from tests.operations.harness import LOCAL, REPORT, Harness

HOURLY = {"type": "interval", "every_seconds": 3_600}
MINUTELY = {"type": "interval", "every_seconds": 60}
HOUR = 3_600 * SECOND
ANN, BEN = (replace(LOCAL, owner=Owner(tenant="default", user=user)) for user in ("ann", "ben"))
OWN = replace(ANN, sees_own_only=True)
STRANGER = replace(LOCAL, owner=Owner(tenant="elsewhere", user="ann"))


def create(harness: Harness, schedule_id: str, caller: Caller = LOCAL, **fields: object) -> None:
    harness("schedule/create", caller, schedule_id=schedule_id, **{"trigger": HOURLY, "target": REPORT, **fields})


def states(row: dict) -> list[str]:
    return [mark["state"] for mark in row["marks"]]


def test_past_and_future_are_on_one_axis():
    harness = Harness()
    create(harness, "hourly", name="Report")
    harness("schedule/run", schedule_id="hourly", key="k")
    answer = harness("timeline")
    [row] = answer["rows"]
    assert (row["schedule_id"], row["name"], row["phase"], row["buckets"]) == ("hourly", "Report", "active", None)
    assert states(row) == ["queued", *["planned"] * 5]
    assert [mark["occurrence_id"] is None for mark in row["marks"]] == [False, False, *[True] * 4]
    assert row["marks"][0]["origin"] == "manual:k"
    assert (answer["planned_until_utc"], answer["next_cursor"]) == (None, None)
    # The projected times are those at which the schedule fires.
    now = parse_instant(answer["now_utc"])
    fires = harness("schedule/preview", schedule_id="hourly", count=5)["fires"]
    assert [mark["at_utc"] for mark in row["marks"][1:]] == fires
    assert (parse_instant(answer["from_utc"]), parse_instant(answer["to_utc"])) == (now - 6 * HOUR, now + 6 * HOUR)


def test_many_marks_become_buckets():
    harness = Harness()
    create(harness, "minutely", trigger=MINUTELY)
    create(harness, "hourly")
    answer = harness("timeline", max_marks=100, buckets=12)
    rows = {row["schedule_id"]: row for row in answer["rows"]}
    assert answer["bucket_seconds"] == 3_600
    assert rows["minutely"]["marks"] is None
    assert [bucket["planned"] for bucket in rows["minutely"]["buckets"]] == [59, *[60] * 5]
    assert len(rows["hourly"]["marks"]) == 5
    [row] = harness("timeline", by="all", max_marks=100, buckets=12)["rows"]
    assert (row["schedule_id"], row["marks"]) == (None, None)
    assert [bucket["planned"] for bucket in row["buckets"]] == [59, *[61] * 5]
    [row] = harness("timeline", by="all", max_marks=1_000)["rows"]
    assert len(row["marks"]) == 59 + 5 * 61
    assert {mark["schedule_name"] for mark in row["marks"]} == {"minutely", "hourly"}
    [row] = harness("timeline", by="all", schedule_id="hourly")["rows"]
    assert len(row["marks"]) == 5


def test_future_fires_are_bounded():
    harness = Harness()
    for n in range(30):
        create(harness, f"s{n:02}", trigger=MINUTELY)
    now = parse_instant(harness("timeline")["now_utc"])
    answer = harness("timeline", buckets=1_000, to=to_text(now + 300 * 24 * HOUR), limit=100, **{"from": to_text(now)})
    until = parse_instant(answer["planned_until_utc"])
    assert now < until < now + 300 * 24 * HOUR
    width = answer["bucket_seconds"]
    for row in answer["rows"]:  # each has all of its fires up to there
        buckets = [one for one in row["buckets"] if parse_instant(one["from_utc"]) + width * SECOND <= until]
        assert len(buckets) > 30
        assert {bucket["planned"] for bucket in buckets[1:]} == {width // 60}


def test_rows_come_in_pages_those_with_activity_first():
    harness = Harness()
    for n in range(5):
        create(harness, f"quiet{n}", trigger={"type": "event", "event_type": "seen"})
    create(harness, "busy")
    harness("schedule/run", schedule_id="quiet3")
    seen, cursor = [], None
    while True:
        answer = harness("timeline", limit=2, cursor=cursor)
        seen += [row["schedule_id"] for row in answer["rows"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == ["quiet3", "busy", "quiet0", "quiet1", "quiet2", "quiet4"]
    assert [row["schedule_id"] for row in harness("timeline", text="busy")["rows"]] == ["busy"]
    assert harness("timeline", kind="cron")["rows"] == []


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"from": "2030-01-02T00:00:00Z", "to": "2030-01-01T00:00:00Z"}, "to"),
        ({"from": "2030-01-01T00:00:00Z", "to": "2032-01-01T00:00:00Z"}, "to"),
        ({"buckets": 1_001}, "buckets"),
        ({"max_marks": 2_001}, "max_marks"),
        ({"limit": 101}, "limit"),
        ({"by": "node"}, "by"),
        ({"cursor": "x"}, "cursor"),
    ],
)
def test_bad_input_is_refused(arguments, field):
    with pytest.raises(InvalidRequest) as error:
        Harness()("timeline", **arguments)
    assert error.value.field == field


def test_a_caller_sees_its_own_and_no_other_tenant():
    harness = Harness()
    create(harness, "of-ann", ANN)
    create(harness, "of-ben", BEN)
    for schedule_id, caller in (("of-ann", ANN), ("of-ben", BEN)):
        harness("schedule/run", caller, schedule_id=schedule_id)

    def rows(caller: Caller, **arguments: object) -> set[str]:
        return {row["schedule_id"] for row in harness("timeline", caller, **arguments)["rows"]}

    def marks(caller: Caller) -> set[str]:
        [row] = harness("timeline", caller, by="all")["rows"]
        return {mark["schedule_id"] for mark in row["marks"]}

    def buckets(caller: Caller) -> int:
        [row] = harness("timeline", caller, by="all", max_marks=0)["rows"]
        return sum(bucket["planned"] + bucket["queued"] for bucket in row["buckets"] or ())

    assert rows(ANN) == marks(ANN) == {"of-ann", "of-ben"}
    assert rows(OWN) == marks(OWN) == {"of-ann"}
    assert rows(STRANGER) == marks(STRANGER) == set()
    assert (buckets(ANN), buckets(OWN), buckets(STRANGER)) == (12, 6, 0)
    with pytest.raises(NotFound):
        harness("timeline", OWN, schedule_id="of-ben")
    with pytest.raises(NotFound):
        harness("timeline", OWN, schedule_id="of-ben", by="all")
    with pytest.raises(NotAllowed):
        harness("timeline", OWN, owner="ben")
    assert [harness("overview", caller)["queued"] for caller in (ANN, OWN, STRANGER)] == [2, 1, 0]
    assert harness("overview", OWN)["schedules"]["total"] == 1


def test_what_needs_a_look_comes_in_the_order_of_its_cost():
    harness = Harness()
    store = harness.service.store
    create(harness, "broken")
    create(harness, "lost", target={"target_kind": "function", "function": "gone"})
    harness("schedule/run", schedule_id="broken")
    harness("schedule/run", schedule_id="lost")
    assert [one["kind"] for one in harness("overview")["needs_look"]] == ["no_node"]
    now = store.clock()
    store.beat(Heartbeat(node="n", routes=("function:report",), capacity=4, lease=600 * SECOND), now=now)
    harness("halt/set", labels={"team": "x"}, reason="too much")
    harness("schedule/propose", schedule_id="wish", trigger=HOURLY, target=REPORT)
    answer = harness("overview")
    assert [one["kind"] for one in answer["needs_look"]] == ["halt", "not_served", "proposal"]
    halt, lost, _ = answer["needs_look"]
    assert (
        halt["text"]
        == "Everything with team=x is halted by `local` (too much): nothing of it starts until that is lifted."
    )
    assert (lost["schedule_id"], lost["action"]) == ("lost", "schedule/update")
    assert "no live node serves `function:gone`" in lost["text"]
    assert (answer["nodes"]["live"], answer["proposals_waiting"], len(answer["halts"])) == (1, 1, 1)
    assert answer["now_utc"] == to_text(now)
    assert harness("overview", timezone="Asia/Tokyo")["day_from_utc"].endswith("T15:00:00Z")
    with pytest.raises(InvalidRequest):
        harness("overview", timezone="Nowhere/City")


def test_missed_fires_are_not_on_time():
    harness = Harness()
    create(harness, "served", trigger=MINUTELY)
    assert harness("overview")["on_time_share"] is None
    for _ in range(3):
        harness.pass_by(60)
    assert (harness("overview")["fires_today"], harness("overview")["on_time_share"]) == (3, 1)
    harness("schedule/delete", schedule_id="served")
    create(harness, "lost", trigger=MINUTELY, target={"target_kind": "function", "function": "gone"})
    for _ in range(6):
        harness.pass_by(60)
    page = harness("occurrence/list", phase="misfired")["occurrences"]
    answer = harness("overview")
    assert (answer["failed_last_day"], answer["on_time_share"]) == (len(page), 3 / (3 + len(page)))
    assert page


def test_a_list_has_the_last_outcomes_and_filters_by_them():
    harness = Harness()
    harness.answers = ["done", ValueError("no"), "done"]
    for schedule_id in ("good", "quiet"):
        create(harness, schedule_id, trigger={"type": "event", "event_type": "seen"})
    create(harness, "later")
    for _ in range(3):
        harness("schedule/run", schedule_id="good")
        harness.pass_by(1)
    harness.answers = [ValueError("no")]
    harness("schedule/run", schedule_id="quiet")
    harness.pass_by(1)
    listed = {one["schedule_id"]: one["outcomes"] for one in harness("schedule/list", outcomes=30)["schedules"]}
    assert {name: [one["state"] for one in outcomes] for name, outcomes in listed.items()} == {
        "good": ["completed", "failed", "completed"],
        "quiet": ["failed"],
        "later": [],
    }
    [last] = harness("schedule/list", outcomes=1, text="good")["schedules"][0]["outcomes"]
    assert last == listed["good"][-1]
    assert set(last) == {"occurrence_id", "state", "late_seconds", "at_utc"}
    assert "outcomes" not in harness("schedule/list")["schedules"][0]

    def found(**filters: object) -> list[str]:
        names = [one["schedule_id"] for one in harness("schedule/list", **filters)["schedules"]]
        assert harness("schedule/count", **filters) == {"count": len(names)}
        assert {row["schedule_id"] for row in harness("timeline", **filters)["rows"]} == set(names)
        return names

    now = harness.service.store.clock()
    assert found(last_state="completed") == ["good"]
    assert found(last_state="failed,completed") == ["good", "quiet"]
    assert found(last_phase="failed") == ["quiet"]
    assert found(next_before=to_text(now + 2 * HOUR)) == ["later"]
    assert found(next_after=to_text(now + 2 * HOUR)) == []
    for wrong in ({"outcomes": 31}, {"last_state": "planned"}, {"next_before": "soon"}):
        with pytest.raises(InvalidRequest):
            harness("schedule/list", **wrong)


def test_trends_by_local_days_of_23_and_25_hours():
    harness = Harness()
    cron = {"type": "cron", "expression": "0 * * * *", "timezone": "Europe/Stockholm"}
    create(harness, "hourly", trigger=cron)
    spring = {"from": "2026-03-28T12:00:00Z", "to": "2026-03-30T12:00:00Z"}
    answer = harness("schedule/trends", schedule_id="hourly", **spring)
    assert answer["timezone"] == "Europe/Stockholm"
    days = {one["local_date"]: (one["from_utc"], one["planned"]) for one in answer["buckets"]}
    assert days == {
        "2026-03-28": ("2026-03-27T23:00:00Z", 24),
        "2026-03-29": ("2026-03-28T23:00:00Z", 23),
        "2026-03-30": ("2026-03-29T22:00:00Z", 24),
    }
    autumn = {"from": "2026-10-24T12:00:00Z", "to": "2026-10-25T12:00:00Z"}
    answer = harness("schedule/trends", schedule_id="hourly", **autumn)
    assert [one["planned"] for one in answer["buckets"]] == [24, 25]
    hours = harness("schedule/trends", schedule_id="hourly", unit="hour", **autumn)["buckets"]
    assert [one["planned"] for one in hours] == [1] * len(hours)
    assert [one["local_date"] for one in hours].count("2026-10-25T02:00") == 2
    utc = harness("schedule/trends", schedule_id="hourly", timezone="UTC", **autumn)["buckets"]
    assert [one["planned"] for one in utc] == [24, 24]


def test_trends_of_what_has_happened():
    harness = Harness()
    create(harness, "minutely", trigger=MINUTELY, overlap_policy="skip")
    for _ in range(5):
        harness.pass_by(60)
    today = harness("schedule/trends", schedule_id="minutely")["buckets"][-1]
    assert (today["local_date"], today["completed"], today["failed"]) == ("2026-03-01", 5, 0)
    assert (today["duration_p50_seconds"], today["cost_usd"], today["input_tokens"]) == (0, 0, 0)
    assert today["planned"] == 12 * 60 - 6
    assert len(harness("schedule/trends", schedule_id="minutely", unit="week")["buckets"]) == 31
    for wrong, field in (
        ({"unit": "hour", "from": "2025-01-01T00:00:00Z"}, "unit"),
        ({"from": "2026-03-02T00:00:00Z"}, "to"),
        ({"timezone": "Mars"}, "timezone"),
    ):
        with pytest.raises(InvalidRequest) as error:
            harness("schedule/trends", schedule_id="minutely", **wrong)
        assert error.value.field == field
    with pytest.raises(NotFound):
        harness("schedule/trends", OWN, schedule_id="minutely")


def test_revisions_say_who_changed_what():
    harness = Harness()
    create(harness, "report", ANN, name="Report", labels={"team": "a"})
    harness("schedule/update", BEN, schedule_id="report", name="Weekly", trigger=MINUTELY)
    harness("schedule/run", ANN, schedule_id="report")
    harness("schedule/update", ANN, schedule_id="report", labels={"team": "b"}, description="x" * 9_000)
    harness("schedule/pause", ANN, schedule_id="report", reason="a holiday")
    harness("schedule/pause", ANN, schedule_id="report")
    answer = harness("schedule/revisions", schedule_id="report")["revisions"]
    assert [(one["operation"], one["revision"]) for one in answer] == [
        ("schedule/pause", 2),
        ("schedule/update", 2),
        ("schedule/update", 2),
        ("schedule/create", 1),
    ]
    pause, labels, edit, creation = answer
    assert pause["changes"] == [{"field": "phase", "before": "active", "after": "paused"}]
    assert (pause["reason"], pause["source"], pause["by"]) == ("a holiday", "rest", "local")
    assert {"field": "labels.team", "before": "a", "after": "b"} in labels["changes"]
    [long] = [one for one in labels["changes"] if one["field"] == "description"]
    assert 4_000 < len(long["after"]) < 4_010
    changed = {one["field"]: (one["before"], one["after"]) for one in edit["changes"]}
    assert changed["name"] == ("Report", "Weekly")
    assert changed["trigger.every_seconds"] == (3_600, 60)
    assert creation["changes"] == []
    pages, cursor = [], None
    while True:
        page = harness("schedule/revisions", schedule_id="report", limit=1, cursor=cursor)
        pages += page["revisions"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert pages == answer
    # A deleted schedule has its own; one that has its id later has others.
    harness("schedule/delete", ANN, schedule_id="report")
    assert harness("schedule/revisions", schedule_id="report")["revisions"][0]["operation"] == "schedule/delete"
    create(harness, "report", ANN)
    assert len(harness("schedule/revisions", schedule_id="report")["revisions"]) == 1
    for caller in (STRANGER, replace(BEN, sees_own_only=True)):
        with pytest.raises(NotFound):
            harness("schedule/revisions", caller, schedule_id="report")


def needs_look(harness: Harness) -> list[tuple[str, str]]:
    """What needs attention, as kinds and schedules; a node is alive."""
    now = harness.service.store.clock()
    beat = Heartbeat(node="n", routes=("function:report",), capacity=4, lease=600 * SECOND)
    harness.service.store.beat(beat, now=now)
    return [(one["kind"], one["schedule_id"]) for one in harness("overview")["needs_look"]]


def test_a_schedule_that_was_paused_automatically_needs_a_look_however_long_ago():
    harness = Harness()
    create(harness, "by-hand")
    harness("schedule/pause", schedule_id="by-hand")
    create(harness, "broken", pause_on_failure=1)
    harness.answers = [ValueError("no")]
    harness("schedule/run", schedule_id="broken")
    harness.pass_by(1)
    assert needs_look(harness) == [("paused", "broken"), ("failed", "broken")]
    harness.pass_by(3 * 24 * 3_600)
    assert needs_look(harness) == [("paused", "broken")]
    [entry] = harness("overview")["needs_look"]
    assert entry["text"].startswith("It was paused automatically (pause_on_failure is 1, and 1 ")
    assert entry["text"].endswith("), and does not run until it is resumed.")
    assert entry["action"] == "schedule/resume"
    harness("schedule/resume", schedule_id="broken")
    assert needs_look(harness) == []


def test_a_schedule_that_was_paused_automatically_for_a_time_says_until_when():
    harness = Harness()
    create(harness, "costly")
    store, now = harness.service.store, harness.service.store.clock()
    pause = Pause(at=now, by=BY_ITSELF, reason="its budget is used up", until=now + HOUR)
    snapshot = store.snapshot(store.find("default", "costly").schedule.uid)
    assert store.commit_plans([edits.pause(snapshot, now=now, why=pause)]) == [True]
    [entry] = [one for one in harness("overview")["needs_look"] if one["kind"] == "paused"]
    until = to_text(now + HOUR)
    assert entry["text"] == f"It was paused automatically (its budget is used up), and does not run until {until}."


def test_many_entries_of_one_kind_do_not_hide_others(monkeypatch):
    monkeypatch.setattr("noonmark.operations.overview.MAX_LISTED", 3)
    harness = Harness()
    for number in range(5):
        create(harness, f"broken-{number}", pause_on_failure=1)
        harness.answers = [ValueError("no")]
        harness("schedule/run", schedule_id=f"broken-{number}")
        harness.pass_by(1)
    assert [kind for kind, _ in needs_look(harness)] == ["paused", "paused", "failed"]


def test_a_failure_needs_a_look_until_its_schedule_completes_again_whatever_fails_more_often(monkeypatch):
    harness = Harness()
    create(harness, "rare", trigger={"type": "event", "event_type": "seen"})
    create(harness, "noisy", trigger={"type": "event", "event_type": "seen"})
    harness.answers = [ValueError("no")] * 100
    for name in ("rare", *["noisy"] * 60):
        harness("schedule/run", schedule_id=name)
        harness.pass_by(1)
    both = [("failed", "noisy"), ("failed", "rare")]
    assert needs_look(harness) == both
    harness.pass_by(3 * 24 * 3_600)
    assert sorted(needs_look(harness)) == both
    with monkeypatch.context() as large:
        large.setattr("noonmark.operations.overview.MAX_SCHEDULES", 1)
        assert needs_look(harness) == []
    harness.answers = []
    harness("schedule/run", schedule_id="rare")
    harness.pass_by(1)
    assert needs_look(harness) == both[:1]
    harness("schedule/pause", schedule_id="noisy")
    assert needs_look(harness) == []


def test_a_run_for_which_fires_are_skipped_needs_a_look():
    harness = Harness()
    store, lease = harness.service.store, 600 * SECOND
    create(harness, "stuck", trigger={"type": "interval", "every_seconds": 60})
    run = harness("schedule/run", schedule_id="stuck")
    now = store.clock()
    [claim] = store.claim("n", ["function:report"], now=now, until=now, limit=1, lease=lease)
    store.admit([admit(claim, now=now, lease=lease)], now=now, lease=lease)
    assert needs_look(harness) == []
    harness.pass_by(60)
    assert needs_look(harness) == [("overdue", "stuck")]
    [entry] = harness("overview")["needs_look"]
    assert entry["text"].startswith("It is running: node `n` started attempt 1 of 1 at ")
    assert entry["text"].endswith(". The fires of its schedule are skipped until it has ended.")
    assert (entry["occurrence_id"], entry["action"]) == (run["occurrence_id"], "occurrence/cancel")
    harness("occurrence/cancel", occurrence_id=run["occurrence_id"])
    harness.pass_by(60)
    summary = harness("schedule/explain", schedule_id="stuck")["summary"]
    assert f"`{run['occurrence_id']}` has still not ended: it is running" in summary
    assert summary.endswith("; if it ignores that, restart its node.")


def test_a_run_whose_node_is_not_alive_is_not_said_to_be_running():
    harness = Harness()
    store, lease = harness.service.store, 15 * SECOND
    create(harness, "stuck", trigger={"type": "interval", "every_seconds": 3600})
    run = harness("schedule/run", schedule_id="stuck")
    now = store.clock()
    store.beat(Heartbeat(node="n", routes=("function:report",), capacity=1, lease=lease), now=now)
    [claim] = store.claim("n", ["function:report"], now=now, until=now, limit=1, lease=lease)
    store.admit([admit(claim, now=now, lease=lease)], now=now, lease=lease)
    one = {"occurrence_id": run["occurrence_id"]}

    def whys():
        occurrences = harness("schedule/occurrences", schedule_id="stuck")["occurrences"]
        found = [*occurrences, *harness("workload")["running"]["occurrences"], harness("occurrence/get", **one)]
        return {occurrence["why"] for occurrence in found if occurrence["occurrence_id"] == run["occurrence_id"]}

    def summaries():
        asked = {"schedule_id": "stuck"}
        answers = [
            harness("occurrence/explain", **one),
            harness("schedule/explain", **asked),
            harness("schedule/explain", **asked, at=run["nominal_at_utc"]),
        ]
        return [answer["summary"].lower() for answer in answers]

    assert whys() == {"It is running."}
    assert all("it is running" in summary for summary in summaries())
    harness.clock.advance(29)
    assert whys() == {"It is running."}
    harness.clock.advance(1)
    assert whys() == {"It has not ended: its node has sent no heartbeat since 2026-03-01 12:00:00 UTC."}
    for summary in summaries():
        assert (
            "it has not ended: node `n` started attempt 1 of 1 at 2026-03-01 12:00:00 utc, and has sent no" in summary
        )
        assert "; it begins again when a node that serves `function:report` is alive" in summary
        assert "running" not in summary
    # A node that is silent for so long is not listed.
    harness.clock.advance(40 * 86_400)
    assert harness("node/list") == {"nodes": []}
    assert whys() == {"It has not ended: its node has sent no heartbeat for more than a day."}
    assert "has sent no heartbeat for more than a day; it begins again" in summaries()[0]
