"""Filtered lists in pages, single resources by id, previews, explanations, workers and the audit log."""

from dataclasses import replace

import pytest

from noonmark.core.errors import Conflict, InvalidRequest, InvalidSchedule, NotFound, StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.operations import schedule_edits
from noonmark.operations.models import fields
from noonmark.operations.models.fields import read_cursor, write_cursor
from noonmark.operations.table import OPERATIONS, perform
from noonmark.stores.sqlite import SqliteStore
from tests.operations.harness import EVERY_MINUTE, FOREIGN, LOCAL, REPORT, Harness


@pytest.fixture
def harness():
    return Harness()


def ids(page):
    return [one["schedule_id"] for one in page["schedules"]]


class TestLists:
    @pytest.fixture
    def five(self, harness):
        harness.create(schedule_id="a", labels={"team": "x"}, name="Alpha 100%")
        harness.create(schedule_id="b", trigger={"type": "once", "delay_seconds": 60}, description="second")
        harness.create(schedule_id="c", trigger={"type": "event", "event_type": "seen"}, user_id="ann")
        harness.create(schedule_id="d", labels={"team": "x", "level": "2"}, target=WORKFLOW)
        harness.create(schedule_id="e", trigger=None, depends_on=[{"schedule_id": "a"}])
        harness("schedule/pause", schedule_id="b")
        return harness

    def test_pages_follow_each_other_until_there_is_none(self, five):
        found, cursor = [], None
        while True:
            page = five("schedule/list", limit=2, cursor=cursor)
            found += ids(page)
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert found == ["a", "b", "c", "d", "e"]

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({"phase": "paused"}, ["b"]),
            ({"phase": "active,paused"}, ["a", "b", "c", "d", "e"]),
            ({"phase": ["paused"]}, ["b"]),
            ({"kind": "periodic"}, ["a", "d"]),
            ({"kind": "delayed"}, ["b"]),
            ({"kind": "event"}, ["c"]),
            ({"kind": "dependent"}, ["e"]),
            ({"kind": "interval,once"}, ["a", "b", "d"]),
            ({"label": "team=x"}, ["a", "d"]),
            ({"labels": {"team": "x", "level": "2"}}, ["d"]),
            ({"owner": "ann"}, ["c"]),
            ({"text": "ALPHA 100%"}, ["a"]),
            ({"text": "100_"}, []),
            ({"text": "secon"}, ["b"]),
            ({"name": "Alpha 100%"}, ["a"]),
            ({"route": "function:report"}, ["a", "b", "c", "e"]),
            ({"workflow_id": "wf_1"}, ["d"]),
            ({"workflow_id": "wf_2"}, []),
            ({"newest_first": True, "limit": 2}, ["e", "d"]),
            ({"limit": 2, "offset": 1}, ["b", "c"]),
            ({"include_deleted": True}, []),
        ],
    )
    def test_filters(self, five, filters, expected):
        assert ids(five("schedule/list", **filters)) == expected
        if not filters.keys() & {"workflow_id", "newest_first", "limit", "offset"}:
            assert five("schedule/count", **filters) == {"count": len(expected)}

    @pytest.mark.parametrize(
        ("arguments", "field"),
        [
            ({"phase": "sleeping"}, "phase"),
            ({"phase": 5}, "phase"),
            ({"kind": "weekly"}, "kind"),
            ({"limit": 0}, "limit"),
            ({"limit": "ten"}, "limit"),
            ({"offset": 10**9}, "offset"),
            ({"cursor": "forged"}, "cursor"),
            ({"cursor": write_cursor(1)}, "cursor"),
            ({"cursor": 7}, "cursor"),
            ({"surprise": 1}, "surprise"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, harness, arguments, field):
        with pytest.raises(InvalidRequest) as refused:
            harness("schedule/list", **arguments)
        assert refused.value.field == field

    def test_a_huge_limit_is_brought_down(self, harness, monkeypatch):
        monkeypatch.setattr(fields, "MAX_PAGE", 3)
        for number in range(4):
            harness.create(schedule_id=f"n{number:05}")
        assert len(harness("schedule/list", limit=10**6)["schedules"]) == 3

    def test_the_cursor_of_another_tenant_leads_nowhere(self, harness):
        harness.create(schedule_id="a")
        harness.create(schedule_id="b")
        cursor = harness("schedule/list", limit=1)["next_cursor"]
        harness.create(schedule_id="theirs", caller=FOREIGN)
        assert harness("schedule/list", cursor=cursor, caller=FOREIGN)["schedules"] == []


WORKFLOW = {"target_kind": "workflow", "workflow_id": "wf_1", "version": 1}


@pytest.mark.parametrize("values", [("uid",), (1_900_000_000_000_000, "occ_1"), (-5,)])
def test_a_cursor_is_read_as_it_was_written(values):
    assert read_cursor(write_cursor(*values), *map(type, values)) == values


@pytest.mark.parametrize("text", ["", "=", "W10", "x" * 2_000, write_cursor(2**70), write_cursor("\n"), "é", None])
def test_an_invalid_cursor_is_refused(text):
    with pytest.raises(ValueError, match="not a cursor"):
        read_cursor(text, int)


class TestHistory:
    def test_occurrences_and_runs_in_pages_newest_first(self, harness):
        schedule = harness.create()
        harness.answers = [1, RuntimeError("broken"), 3]
        for _ in range(3):
            harness.pass_by(60)
        of = {"schedule_id": schedule["schedule_id"]}
        rows, runs = (
            walk(harness, "schedule/occurrences", "occurrences", **of),
            walk(harness, "schedule/runs", "runs", **of),
        )
        assert [one["nominal_at_utc"][14:16] for one in rows] == ["04", "03", "02", "01"]
        assert [one["phase"] for one in rows] == ["pending", "completed", "failed", "completed"]
        assert [(one["outcome"], one["result"]) for one in runs] == [
            ("completed", 3),
            ("failed", None),
            ("completed", 1),
        ]
        live = harness("schedule/occurrences", include_terminal=False, **of)["occurrences"]
        assert [one["phase"] for one in live] == ["pending"]
        failed = harness("schedule/occurrences", phase="failed", **of)["occurrences"]
        assert failed == [rows[2]]
        assert harness("occurrence/get", occurrence_id=rows[2]["occurrence_id"]) == rows[2]
        [run] = harness("occurrence/runs", occurrence_id=rows[2]["occurrence_id"])["runs"]
        assert "broken" in run["error"]
        counters = harness("schedule/get", **of)["counters"]
        assert counters == {"total": 3, "successful": 2, "failed": 1, "missed": 0, "skipped": 0}

    def test_events_newest_first_and_by_type(self, harness):
        for number in range(3):
            harness("event/emit", event_type=f"kind{number % 2}", payload={"n": number}, event_id=f"e{number}")
        assert [one["event_id"] for one in walk(harness, "event/list", "events")] == ["e2", "e1", "e0"]
        assert [one["event_id"] for one in harness("event/list", event_type="kind0")["events"]] == ["e2", "e0"]
        assert harness("event/list", caller=FOREIGN)["events"] == []

    def test_an_event_triggers_what_listens_for_it_once(self, harness):
        harness.create(trigger={"type": "event", "event_type": "seen"})
        for _ in range(2):
            assert harness("event/emit", event_type="seen", payload={"n": 1}, event_id="one") == {"event_id": "one"}
        harness.driver.run_due()
        assert [context.event["payload"] for context in harness.calls] == [{"n": 1}]

    @pytest.mark.parametrize(("name", "field"), [("occurrence/get", "occurrence_id"), ("run/get", "run_id")])
    def test_what_is_not_there(self, harness, name, field):
        with pytest.raises(NotFound):
            harness(name, **{field: "nothing"})
        with pytest.raises(InvalidRequest):
            harness(name, **{field: "no/id"})


def walk(harness, name, member, **arguments):
    """All pages of a list, one entry at a time."""
    found, cursor = [], None
    while True:
        page = harness(name, limit=1, cursor=cursor, **arguments)
        assert len(page[member]) <= 1
        found += page[member]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


class TestPreviews:
    def test_a_stored_schedule(self, harness):
        schedule = harness.create(max_runs=2)
        answer = harness("schedule/preview", schedule_id=schedule["schedule_id"], count=5)
        assert answer["fires"] == ["2026-03-01T12:01:00Z", "2026-03-01T12:02:00Z"]
        assert answer["description"]

    def test_a_bare_trigger(self, harness):
        trigger = {"type": "cron", "expression": "0 9 */2 * 1", "timezone": "Europe/Berlin"}
        answer = harness("schedule/preview", trigger=trigger, count=1, after="2026-03-20T00:00:00Z")
        assert answer["fires"] == ["2026-03-23T08:00:00Z"]
        assert answer["warnings"]

    def test_clock_changes_are_those_after_the_instant_that_is_asked_about(self, harness):
        trigger = {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin"}
        for arguments, year in ({}, "2026"), ({"after": "2031-01-01T00:00:00Z"}, "2031"):
            warnings = harness("schedule/preview", trigger=trigger, **arguments)["warnings"]
            assert year in warnings[0]

    def test_what_follows_others_has_no_times(self, harness):
        harness.create(schedule_id="a")
        harness.create(schedule_id="b", trigger=None, depends_on=[{"schedule_id": "a"}])
        assert harness("schedule/preview", schedule_id="b")["fires"] == []

    def test_changes_of_a_schedule_with_what_they_do_to_its_fires(self, harness):
        daily = {"type": "cron", "expression": "0 13 * * *", "timezone": "Europe/Berlin"}
        schedule = harness.create(schedule_id="a", trigger=daily | {"expression": "0 14 * * *"}, max_runs=5)
        answer = harness("schedule/preview", schedule_id="a", changes={"trigger": daily, "max_runs": 4}, count=2)
        assert answer["fires"] == ["2026-03-02T12:00:00Z", "2026-03-03T12:00:00Z"]
        impact = answer["impact"]
        assert impact["before"] == ["2026-03-01T13:00:00Z", "2026-03-02T13:00:00Z"]
        assert (impact["kept"], impact["moved"], impact["added"], impact["removed"]) == (0, 4, 0, 1)
        assert impact["fires"][:2] == [
            {"before_utc": "2026-03-01T13:00:00Z", "after_utc": None},
            {"before_utc": "2026-03-02T13:00:00Z", "after_utc": "2026-03-02T12:00:00Z"},
        ]
        assert [one["field"] for one in impact["changes"]] == ["trigger.expression", "max_runs"]
        assert (impact["revision_before"], impact["revision_after"]) == (1, 2)
        # Nothing was changed, and the change does what was said.
        assert harness("schedule/get", schedule_id="a") == schedule
        harness("schedule/update", schedule_id="a", trigger=daily, max_runs=4)
        assert harness("schedule/preview", schedule_id="a", count=2)["fires"] == answer["fires"]

    def test_an_interval_whose_start_has_just_passed_fires_at_once(self, harness):
        harness.create(schedule_id="a", trigger={"type": "cron", "expression": "0 0 1 1 *"})
        hourly = {"type": "interval", "every_seconds": 3600, "start_at_utc": "2026-03-01T11:59:30Z"}
        answer = harness("schedule/preview", schedule_id="a", changes={"trigger": hourly}, count=2)
        assert answer["fires"] == ["2026-03-01T11:59:30Z", "2026-03-01T12:59:30Z"]
        later = harness(
            "schedule/preview", schedule_id="a", changes={"trigger": hourly}, after="2026-03-02T00:00:00Z", count=1
        )
        assert later["fires"] == ["2026-03-02T00:59:30Z"]

    @pytest.mark.parametrize(
        ("is_paused", "changes", "expected"),
        [
            (False, {"enabled": False}, (0, 0, 12)),
            (True, {"enabled": True}, (0, 12, 0)),
            (True, {"description": "x"}, (12, 0, 0)),
            (False, {"description": "x"}, (12, 0, 0)),
        ],
    )
    def test_what_is_paused_or_resumed(self, harness, is_paused, changes, expected):
        harness.create(schedule_id="a", enabled=not is_paused)
        impact = harness("schedule/preview", schedule_id="a", changes=changes)["impact"]
        assert (impact["kept"], impact["added"], impact["removed"]) == expected

    def test_a_change_that_would_be_refused_is_refused(self, harness):
        harness.create(schedule_id="a")
        with pytest.raises(InvalidSchedule) as refused:
            harness("schedule/preview", schedule_id="a", changes={"revision": 3})
        assert refused.value.field == "revision"

    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"schedule_id": "a", "trigger": EVERY_MINUTE},
            {"trigger": EVERY_MINUTE, "count": 1_001},
            {"trigger": EVERY_MINUTE, "changes": {}},
        ],
    )
    def test_what_makes_no_sense_is_refused(self, harness, arguments):
        with pytest.raises(InvalidRequest):
            harness("schedule/preview", **arguments)

    def test_a_bad_trigger_is_refused_as_one(self, harness):
        with pytest.raises(InvalidSchedule) as refused:
            harness("schedule/preview", trigger={"type": "cron", "expression": "99 * * * *"})
        assert refused.value.code == "invalid_trigger"


class TestExplaining:
    def test_a_time_for_which_no_run_is_left(self, harness):
        schedule_id = harness.create(max_runs=2)["schedule_id"]
        summaries = [
            harness("schedule/explain", schedule_id=schedule_id, at=f"2026-03-01T12:0{n}:00Z")["summary"]
            for n in (2, 3)
        ]
        assert summaries[0].startswith("It has not run yet")
        assert summaries[1].endswith("the schedule may run 2 times, and does so before that time.")

    def test_runs_that_are_forgotten_count_for_the_runs_that_are_left(self, harness):
        schedule_id = harness.create(max_runs=5)["schedule_id"]
        for _ in range(4):
            harness.pass_by(60)
        harness.service.store.prune(before=0, keep=1, limit=100)
        fifth, sixth = (
            harness("schedule/explain", schedule_id=schedule_id, at=f"2026-03-01T12:0{minute}:00Z") for minute in (5, 6)
        )
        assert fifth["summary"].startswith("It has not run yet")
        assert sixth["summary"].endswith("the schedule may run 5 times, and does so before that time.")
        assert [step["facts"]["runs_so_far"] for step in sixth["steps"] if "runs_so_far" in step["facts"]] == [4]

    def test_what_ran(self, harness):
        schedule = harness.create()
        harness.pass_by(60)
        [_, one] = harness("schedule/occurrences", schedule_id=schedule["schedule_id"])["occurrences"]
        answer = harness("occurrence/explain", occurrence_id=one["occurrence_id"])
        assert (answer["occurrence_id"], answer["phase"]) == (one["occurrence_id"], "completed")
        assert {"rule", "decision", "facts"} == set(answer["steps"][0])
        assert answer["summary"].endswith(".")

    def test_why_nothing_ran_at_an_instant(self, harness):
        schedule = harness.create()
        answer = harness("schedule/explain", schedule_id=schedule["schedule_id"], at="2026-03-01T12:00:30Z")
        assert answer["at"] == "2026-03-01T12:00:30Z"
        assert "12:01" in answer["summary"] or "12:01" in str(answer["steps"])

    def test_what_a_long_outage_has_skipped(self, harness):
        schedule = harness.create()
        harness.pass_by(3_600)
        answer = harness("schedule/explain", schedule_id=schedule["schedule_id"], at="2026-03-01T12:10:00Z")
        assert "misfire" in str(answer)

    def test_what_was_made_up_for_within_an_outage(self, harness):
        schedule_id = harness.create()["schedule_id"]
        harness.pass_by(3_600)
        [again] = harness(
            "schedule/backfill", schedule_id=schedule_id, **dict.fromkeys(("from", "to"), "2026-03-01T12:10:00Z")
        )["occurrences"]

        def at(minute):
            answer = harness("schedule/explain", schedule_id=schedule_id, at=f"2026-03-01T12:{minute:02}:00Z")
            return answer["occurrence_id"], answer["phase"]

        gap = at(1)
        assert gap[1] == "misfired"
        assert at(9) == at(11) == gap
        assert at(10) == (again["occurrence_id"], "pending")

    def test_a_gap_is_found_beyond_many_rows_of_later_times(self, harness):
        schedule_id = harness.create(overlap_policy="allow")["schedule_id"]
        uid = harness.service.store.find("default", schedule_id).schedule.uid
        harness.pass_by(7_200)
        schedule = harness.service.store.find_uid(uid).schedule
        start = harness.service.store.clock() - 7_200 * SECOND
        others = [
            schedule_edits.run_now(schedule, key=f"k{n}", payload=None, now=start + 3_000 * SECOND + n)
            for n in range(60)
        ]
        assert all(harness.service.store.add(others))
        answer = harness("schedule/explain", schedule_id=schedule_id, at="2026-03-01T13:00:00Z")
        assert (answer["phase"], answer["steps"][5]["decision"]) == ("misfired", "late")

    def test_what_was_running_then(self, harness):
        harness.scheduler.register_function("slow", lambda: harness.clock.advance(10))
        schedule = harness.create(target={"target_kind": "function", "function": "slow"})
        harness.pass_by(60)
        at_work, idle = (
            harness("schedule/explain", schedule_id=schedule["schedule_id"], at=f"2026-03-01T12:01:{second}Z")
            for second in ("05", "15")
        )
        assert at_work["summary"].startswith("About the occurrence of 2026-03-01 12:01:00 UTC: it ran: ")
        assert idle["summary"].startswith("Nothing will run at 2026-03-01 12:01:15 UTC: ")

    def test_what_is_forgotten(self, harness):
        schedule = harness.create()
        for _ in range(4):
            harness.pass_by(60)
        harness.service.store.prune(before=0, keep=2, limit=100)
        first, third = (
            harness("schedule/explain", schedule_id=schedule["schedule_id"], at=f"2026-03-01T12:0{minute}:00Z")
            for minute in (1, 3)
        )
        forgotten, kept = (next(step for step in one["steps"] if step["rule"] == "runs") for one in (first, third))
        assert (forgotten["decision"], first["phase"]) == ("forgotten", None)
        assert (kept["decision"], third["phase"]) == ("succeeded", "completed")
        assert kept["facts"]["runs"][0]["outcome"] == "completed"


class TestAudit:
    def test_who_did_what_newest_first(self, harness):
        schedule = harness.create(schedule_id="s")
        harness("schedule/update", schedule_id="s", max_runs=5)
        harness("schedule/pause", schedule_id="s", reason="holiday")
        harness("schedule/pause", schedule_id="s", reason="once more")
        harness("schedule/pause", schedule_id="s")  # changes nothing
        harness("schedule/run", schedule_id="s")
        harness("schedule/delete", schedule_id="s")
        entries = walk(harness, "audit/list", "entries")
        assert [
            (one["operation"], one["revision_before"], one["revision_after"], one["reason"]) for one in entries
        ] == [
            ("schedule/delete", 2, 2, None),
            ("schedule/run", 2, 2, None),
            ("schedule/pause", 2, 2, "once more"),
            ("schedule/pause", 2, 2, "holiday"),
            ("schedule/update", 1, 2, None),
            ("schedule/create", None, 1, None),
        ]
        assert {(one["caller"], one["schedule_id"], one["request_id"]) for one in entries} == {("local", "s", "req-1")}
        assert schedule["revision"] == 1

    def test_of_one_schedule_and_of_one_tenant(self, harness):
        harness.create(schedule_id="a")
        harness.create(schedule_id="b")
        assert [one["schedule_id"] for one in harness("audit/list", schedule_id="a")["entries"]] == ["a"]
        assert harness("audit/list", caller=FOREIGN)["entries"] == []


class StandingWorker:
    """A driver of another kind: it only knows whether it is to work."""

    is_running = False
    clock_ahead = None

    def confirm_time(self):
        self.clock_ahead = None

    def start(self):
        self.is_running = True

    def stop(self):
        self.is_running = False

    def status(self):
        return {"running": self.is_running}


class TestWorkers:
    def test_without_one_it_is_said_so(self, harness):
        for name in ("start", "stop", "confirm-time", "status"):
            with pytest.raises(Conflict):
                harness(f"worker/{name}")

    def test_who_started_and_stopped_it_is_noted(self, harness):
        worker = StandingWorker()
        harness.service = replace(harness.service, worker=worker)
        assert harness("worker/start")["status"] == "running"
        assert harness("worker/stop")["status"] == "stopped"
        harness("worker/status")
        entries = harness("audit/list")["entries"]
        assert [(one["operation"], one["caller"], one["reason"], one["request_id"]) for one in entries] == [
            ("worker/stop", "local", "node here", "req-1"),
            ("worker/start", "local", "node here", "req-1"),
        ]
        assert [one["schedule_id"] for one in entries] == [None, None]

    def test_nothing_is_changed_while_the_time_is_in_doubt_until_an_operator_confirms_it(self, harness):
        worker = StandingWorker()
        harness.service = replace(harness.service, worker=worker)
        schedule_id = harness.create()["schedule_id"]
        worker.clock_ahead = 7_200 * SECOND
        for name, operation in OPERATIONS.items():
            if operation.is_change and not name.startswith("worker/"):
                pause = {"name": "noonmark_schedule_pause", "arguments": {"schedule_id": schedule_id}}
                with pytest.raises(StoreUnavailable, match=r"leapt ahead by 7200 s"):
                    harness(name, **(pause if name == "schedule/call" else {}))
        assert harness("schedule/get", schedule_id=schedule_id)["schedule_id"] == schedule_id
        assert harness("worker/confirm-time")["status"] == "stopped"
        harness("schedule/pause", schedule_id=schedule_id)

    def test_it_is_stopped_also_while_nobody_can_write_that_down(self, harness, tmp_path, caplog):
        worker = StandingWorker()
        store = SqliteStore(str(tmp_path / "gone" / "x.db"), harness.clock.micros)
        service = replace(harness.service, worker=worker, store=store)
        worker.start()
        answer = perform(service, LOCAL, "worker/stop", {})
        assert (answer["status"], worker.is_running) == ("stopped", False)
        assert "worker/stop by local could not be recorded" in caplog.text

    def test_nodes_that_were_heard_of(self, harness):
        assert harness("node/list") == {"nodes": []}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_operation_says_what_it_does_and_refuses_what_it_does_not_know(harness, name):
    operation = OPERATIONS[name]
    assert operation.summary.endswith(".")
    assert len(set(operation.parameters)) == len(operation.parameters)
    with pytest.raises((InvalidSchedule, Conflict)) as refused:
        harness(name, surprise=1, **({"schedule_id": "s"} if name in ("schedule/upsert", "schedule/update") else {}))
    if isinstance(refused.value, InvalidSchedule):
        if name.startswith("secret/") and name != "secret/list":  # a name that is not known may be the secret itself
            assert "has 1 unknown fields" in str(refused.value.problems[-1])
            assert "surprise" not in str(refused.value)
        else:
            assert "surprise" in {problem.field for problem in refused.value.problems}


@pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/jobs.db"])
def test_a_whole_life_on_each_store(store, tmp_path):
    harness = Harness(store.format(tmp_path))
    schedule = harness.create(schedule_id="s", idempotency_key="k", target=REPORT)
    assert harness.create(schedule_id="s", idempotency_key="k", target=REPORT)["schedule_id"] == schedule["schedule_id"]
    harness.pass_by(60)
    harness("schedule/run", schedule_id="s", overlap="allow")
    harness.driver.run_due()
    assert len(harness.calls) == 2
    assert len(walk(harness, "schedule/runs", "runs", schedule_id="s")) == 2
    assert [one["operation"] for one in walk(harness, "audit/list", "entries")] == ["schedule/run", "schedule/create"]


class TestTheLastOccurrence:
    def test_before_the_first_fire_that_one_is_explained(self, harness):
        schedule = harness.create()
        answer = harness("schedule/explain", schedule_id=schedule["schedule_id"])
        assert (answer["at"], answer["summary"]) == (
            "2026-03-01T12:01:00Z",
            "It has not run yet: it is due at 2026-03-01 12:01:00 UTC.",
        )

    def test_a_failed_run_that_was_asked_for_is_shown_with_its_id_and_what_comes_next(self, harness):
        schedule = harness.create()
        harness.pass_by(60)
        harness.clock.advance(5)
        harness.answers.append(ValueError("no paper"))
        occurrence_id = harness("schedule/run", schedule_id=schedule["schedule_id"])["occurrence_id"]
        harness.driver.run_due()
        harness.clock.advance(1)
        answer = harness("schedule/explain", schedule_id=schedule["schedule_id"])
        assert (answer["at"], answer["occurrence_id"]) == ("2026-03-01T12:01:06Z", occurrence_id)
        assert answer["summary"] == (
            f"About its last occurrence, `{occurrence_id}`, asked for at 2026-03-01 12:01:05 UTC: it ran and failed: "
            "the target reported a failure, with `ValueError: no paper` (attempt 1 of 1); "
            "it is next due at 2026-03-01 12:02:00 UTC."
        )

    def test_a_backfill_may_be_the_last_though_its_time_is_long_past(self, harness):
        schedule = harness.create()
        for _ in range(3):
            harness.pass_by(60)
        span = {"from": "2026-03-01T12:00:30Z", "to": "2026-03-01T12:01:30Z"}
        [one] = harness("schedule/backfill", schedule_id=schedule["schedule_id"], **span)["occurrences"]
        harness.pass_by(5)
        answer = harness("schedule/explain", schedule_id=schedule["schedule_id"])
        assert answer["occurrence_id"] == one["occurrence_id"]
        assert "made up for 2026-03-01 12:01:00 UTC: it ran" in answer["summary"]

    def test_what_waits_for_events_and_never_ran_is_reported(self, harness):
        schedule = harness.create(trigger={"type": "event", "event_type": "up"})
        answer = harness("schedule/explain", schedule_id=schedule["schedule_id"])
        assert "the schedule waits for events" in answer["summary"]
