"""Occurrences that callers request, backfill, complete, fail and cancel."""

import pytest

from noonmark.core.admission import admit
from noonmark.core.errors import (
    Conflict,
    InvalidRequest,
    InvalidSchedule,
    KeyReused,
    NotFound,
    OverlapConflict,
)
from noonmark.core.instants import SECOND
from noonmark.core.settlement import Accepted, settle
from tests.operations.harness import FOREIGN, Harness


@pytest.fixture
def harness():
    return Harness()


def phases(harness, made):
    answer = harness("schedule/occurrences", schedule_id=made["schedule_id"])["occurrences"]
    return [(one["phase"], one["reason"]) for one in answer]


class TestRunningNow:
    def test_it_runs_with_its_payload_and_does_not_move_the_next_fire(self, harness):
        schedule = harness.create()
        answer = harness("schedule/run", schedule_id=schedule["schedule_id"], payload={"n": 1}, key="k")
        assert (answer["phase"], answer["origin"], answer["payload"]) == ("pending", "manual:k", {"n": 1})
        assert harness("schedule/get", schedule_id=schedule["schedule_id"])["next_run_at"] == schedule["next_run_at"]
        harness.driver.run_due()
        assert [context.payload for context in harness.calls] == [{"n": 1}]
        assert harness("schedule/get", schedule_id=schedule["schedule_id"])["next_run_at"] == schedule["next_run_at"]
        assert harness("occurrence/get", occurrence_id=answer["occurrence_id"])["phase"] == "completed"

    @pytest.mark.parametrize(
        "trigger", [{"type": "event", "event_type": "uploaded"}, {"type": "once", "due_at_utc": "2026-03-01T12:00:00Z"}]
    )
    def test_what_has_no_next_fire_does_not_get_one(self, harness, trigger):
        schedule_id = harness.create(trigger=trigger)["schedule_id"]
        harness.driver.run_due()
        harness("schedule/run", schedule_id=schedule_id)
        assert harness("schedule/get", schedule_id=schedule_id)["next_run_at"] is None

    def test_it_is_no_next_fire_of_what_is_paused(self, harness):
        schedule_id = harness.create()["schedule_id"]
        harness("schedule/run", schedule_id=schedule_id)
        assert harness("schedule/pause", schedule_id=schedule_id)["next_run_at"] is None
        assert harness("schedule/resume", schedule_id=schedule_id)["next_run_at"] == "2026-03-01T12:01:00Z"

    def test_the_next_run_is_shown_with_its_jitter_also_before_it_is_planned(self, harness):
        schedule_id = harness.create(trigger={"type": "interval", "every_seconds": 3600, "jitter_seconds": 600})[
            "schedule_id"
        ]
        planned = harness("schedule/get", schedule_id=schedule_id)
        [row] = harness("schedule/occurrences", schedule_id=schedule_id)["occurrences"]
        assert planned["next_run_at"] == row["due_at_utc"] > planned["next_fire_times"][0]
        harness.clock.advance(3600 + 600)
        store, now = harness.service.store, harness.clock.micros()
        [claim] = store.claim("n", ["function:report"], now=now, until=now, limit=1, lease=60 * SECOND)
        store.admit([admit(claim, now=now, lease=60 * SECOND)], now=now, lease=60 * SECOND)
        unplanned = harness("schedule/get", schedule_id=schedule_id)
        harness.driver.run_due()
        [row] = harness("schedule/occurrences", schedule_id=schedule_id, phase="pending")["occurrences"]
        assert unplanned["next_run_at"] == row["due_at_utc"] > unplanned["next_fire_times"][0]

    def test_the_same_key_again_is_the_same_occurrence(self, harness):
        schedule = harness.create()
        ids = {harness("schedule/run", schedule_id=schedule["schedule_id"], key="k")["occurrence_id"] for _ in range(2)}
        assert len(ids) == 1

    @pytest.mark.parametrize("other", [{"payload": 2}, {"payload": 1, "overlap": "allow"}])
    def test_another_request_under_the_key_is_refused(self, harness, other):
        schedule = harness.create()
        harness("schedule/run", schedule_id=schedule["schedule_id"], key="k", payload=1)
        with pytest.raises(KeyReused):
            harness("schedule/run", schedule_id=schedule["schedule_id"], key="k", **other)

    def test_what_would_be_skipped_is_refused_by_default(self, harness):
        schedule = harness.create()
        running = accepted(harness, schedule)
        with pytest.raises(OverlapConflict) as refused:
            harness("schedule/run", schedule_id=schedule["schedule_id"])
        assert running in refused.value.message
        beside = harness("schedule/run", schedule_id=schedule["schedule_id"], overlap="allow")
        harness.driver.run_due()
        assert harness("occurrence/get", occurrence_id=beside["occurrence_id"])["phase"] == "completed"

    def test_a_bad_overlap_policy_is_refused(self, harness):
        schedule = harness.create()
        with pytest.raises(InvalidSchedule) as refused:
            harness("schedule/run", schedule_id=schedule["schedule_id"], overlap="perhaps")
        assert refused.value.field == "overlap"


RANGE = {"from": "2026-03-01T11:00:00Z", "to": "2026-03-01T11:05:00Z"}
MINUTES = {"type": "cron", "expression": "* 11 * * *"}


class TestBackfilling:
    def test_past_times_run_in_order(self, harness):
        schedule = harness.create(trigger=MINUTES)
        answer = harness("schedule/backfill", schedule_id=schedule["schedule_id"], **RANGE)
        assert answer["count"] == 6
        for _ in range(6):
            harness.pass_by(1)
        assert [context.nominal_at.minute for context in harness.calls] == [0, 1, 2, 3, 4, 5]
        assert {one["origin"] for one in answer["occurrences"]} == {f"backfill:{answer['backfill_id']}"}

    def test_a_dry_run_tells_and_does_nothing(self, harness):
        schedule = harness.create(trigger=MINUTES)
        answer = harness("schedule/backfill", schedule_id=schedule["schedule_id"], dry_run=True, **RANGE)
        assert (answer["backfill_id"], answer["count"]) == (None, 6)
        assert answer["occurrences"][0]["nominal_at_utc"] == "2026-03-01T11:00:00Z"
        harness.pass_by(1)
        assert harness.calls == []

    def test_its_concurrency_is_limited_under_any_overlap_policy(self, harness):
        schedule = harness.create(trigger=MINUTES)
        answer = harness("schedule/backfill", schedule_id=schedule["schedule_id"], concurrency=2, **RANGE)
        claims = harness.service.store.claim(
            "n",
            ["function:report"],
            now=harness.clock.micros(),
            until=harness.clock.micros() + SECOND,
            limit=10,
            lease=SECOND,
        )
        assert len(claims) == answer["count"]
        assert {one.occurrence.overrides.concurrency.limit for one in claims} == {2}

    def test_it_may_begin_with_the_first_of_all_times(self, harness):
        schedule = harness.create(
            trigger={"type": "cron", "expression": "0 0 1 1 *", "start_at_utc": "2025-06-01T00:00:00Z"}
        )
        answer = harness(
            "schedule/backfill",
            schedule_id=schedule["schedule_id"],
            dry_run=True,
            **{"from": "0001-01-01T00:00:00Z", "to": "2026-03-01T00:00:00Z"},
        )
        assert [one["nominal_at_utc"] for one in answer["occurrences"]] == ["2026-01-01T00:00:00Z"]

    def test_the_same_key_again_adds_nothing(self, harness):
        schedule = harness.create(trigger=MINUTES)
        for _ in range(2):
            harness("schedule/backfill", schedule_id=schedule["schedule_id"], key="again", **RANGE)
        rows = harness("schedule/occurrences", schedule_id=schedule["schedule_id"])["occurrences"]
        assert len([one for one in rows if one["origin"] == "backfill:again"]) == 6

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"to": "2026-03-01T12:30:00Z"}, "to"),
            ({"to": "2026-03-01T10:00:00Z"}, "to"),
            ({"limit": 5}, "limit"),
            ({"limit": 0}, "limit"),
            ({"concurrency": 0}, "concurrency"),
            ({"from": None}, "from"),
            ({"from": "yesterday"}, "from"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, harness, change, field):
        schedule = harness.create(trigger=MINUTES)
        with pytest.raises(InvalidRequest) as refused:
            harness("schedule/backfill", schedule_id=schedule["schedule_id"], **(RANGE | change))
        assert refused.value.field == field

    def test_what_names_no_times_has_none_to_run_again(self, harness):
        schedule = harness.create(trigger={"type": "event", "event_type": "seen"})
        with pytest.raises(Conflict):
            harness("schedule/backfill", schedule_id=schedule["schedule_id"], **RANGE)


class TestBackfills:
    def test_one_is_listed_paused_resumed_and_cancelled(self, harness):
        schedule_id = harness.create(trigger=MINUTES)["schedule_id"]
        assert harness("backfill/list", schedule_id=schedule_id) == {"backfills": []}
        response = harness("schedule/backfill", schedule_id=schedule_id, **RANGE)
        one = {"schedule_id": schedule_id, "backfill_id": response["backfill_id"]}
        answer = harness("backfill/get", **one)
        assert (answer["phase"], answer["count"], answer["ended"]) == ("active", response["count"], 0)
        assert answer["phases"] == {"pending": response["count"]}
        assert harness("backfill/list", schedule_id=schedule_id) == {"backfills": [answer]}
        assert harness("backfill/pause", **one, reason="load")["phase"] == "paused"
        harness.pass_by(1)
        assert harness.calls == []
        paused = harness("schedule/occurrences", schedule_id=schedule_id)["occurrences"][-1]
        words = "its backfill has been paused since "
        resume = f"noonmark backfill resume {schedule_id} {one['backfill_id']}"
        explained = harness("occurrence/explain", occurrence_id=paused["occurrence_id"])["summary"]
        for said in (paused["why"].lower(), explained.lower()):
            assert words.lower() in said
            assert "by `local` (load)" in said
            assert resume.lower() in said
        assert paused["waiting_for"] == "paused"
        assert harness("backfill/resume", **one)["phase"] == "active"
        harness.pass_by(1)
        answer = harness("backfill/get", **one)
        assert (answer["phase"], answer["ended"], answer["phases"]) == (
            "completed",
            answer["count"],
            {"completed": answer["count"]},
        )
        with pytest.raises(Conflict):
            harness("backfill/pause", **one)

    def test_what_is_cancelled_never_runs(self, harness):
        schedule_id = harness.create(trigger=MINUTES)["schedule_id"]
        one = {
            "schedule_id": schedule_id,
            "backfill_id": harness("schedule/backfill", schedule_id=schedule_id, **RANGE)["backfill_id"],
        }
        store, now = harness.service.store, harness.clock.micros()
        [claim] = store.claim("n", ["function:report"], now=now, until=now, limit=1, lease=60 * SECOND)
        [admitted] = store.admit([admit(claim, now=now, lease=60 * SECOND)], now=now, lease=60 * SECOND)
        taken = settle(admitted.occurrence, claim.schedule, Accepted(started=now, accepted=now), node="n")
        assert store.settle([taken]) == [True]
        answer = harness("backfill/cancel", **one, reason="enough")
        assert (answer["phase"], answer["phases"]) == ("completed", {"cancelled": answer["count"]})
        harness.driver.run_due()
        assert harness.calls == []
        assert harness("backfill/cancel", **one) == answer

    def test_an_unknown_one_is_not_found(self, harness):
        schedule_id = harness.create()["schedule_id"]
        for verb in ("get", "pause", "resume", "cancel"):
            with pytest.raises(NotFound) as refused:
                harness(f"backfill/{verb}", schedule_id=schedule_id, backfill_id="other")
            assert refused.value.field == "backfill_id"


def accepted(harness, made):
    """An occurrence that its target took over; its id."""
    answer = harness("schedule/run", schedule_id=made["schedule_id"])
    store, now = harness.service.store, harness.clock.micros()
    [claim] = store.claim("n", ["function:report"], now=now, until=now, limit=1, lease=60 * SECOND)
    [admitted] = store.admit([admit(claim, now=now, lease=60 * SECOND)], now=now, lease=60 * SECOND)
    taken = settle(admitted.occurrence, claim.schedule, Accepted(started=now, accepted=now), node="n")
    assert store.settle([taken]) == [True]
    return answer["occurrence_id"]


class TestEnding:
    @pytest.mark.parametrize("verb", ["complete", "fail", "cancel"])
    def test_its_run_began_when_it_was_due_although_the_start_was_written_before(self, harness, verb):
        schedule = harness.create()
        store, due = harness.service.store, harness.clock.micros() + 60 * SECOND
        harness.clock.advance(59.99)
        now = harness.clock.micros()
        [claim] = store.claim("n", ["function:report"], now=now, until=due, limit=1, lease=60 * SECOND)
        [admitted] = store.admit([admit(claim, now=due, lease=60 * SECOND)], now=now, lease=60 * SECOND)
        harness.clock.advance(0.5)
        taken = settle(admitted.occurrence, claim.schedule, Accepted(started=due, accepted=due), node="n")
        assert store.settle([taken]) == [True]
        harness(f"occurrence/{verb}", occurrence_id=claim.occurrence.id)
        [run] = harness("schedule/runs", schedule_id=schedule["schedule_id"])["runs"]
        assert run["started_at_utc"] == harness("occurrence/get", occurrence_id=claim.occurrence.id)["due_at_utc"]

    def test_what_was_accepted_is_told_to_be_done(self, harness):
        schedule = harness.create()
        occurrence = accepted(harness, schedule)
        done = harness(
            "occurrence/complete", occurrence_id=occurrence, result={"rows": 3}, usage={"tokens": 5, "cost_usd": 0.5}
        )
        assert (done["phase"], done["reason"]) == ("completed", "succeeded")
        [run] = harness("occurrence/runs", occurrence_id=occurrence)["runs"]
        assert (run["outcome"], run["result"], run["usage"]) == (
            "completed",
            {"rows": 3},
            {
                "model": None,
                "provider": None,
                "input_tokens": 5,
                "output_tokens": 0,
                "cache_read_tokens": 0,
                "cache_write_tokens": 0,
                "total_tokens": 5,
                "model_calls": 1,
                "tool_calls": 0,
                "cost_usd": 0.5,
            },
        )
        assert harness("run/get", run_id=run["run_id"]) == run
        [used] = harness("usage/report", by="schedule")["groups"]
        assert (used["key"], used["total_tokens"], used["cost_usd"]) == (schedule["schedule_id"], 5, 0.5)

    def test_what_a_receiver_reports_is_by_model(self, harness):
        occurrence = accepted(harness, harness.create())
        with pytest.raises(InvalidRequest, match="of unknown kind"):
            harness("occurrence/complete", occurrence_id=occurrence, usage={"tokens": 5, "output_tokens": 1})
        usage = {"model": "small", "provider": "acme", "input_tokens": 5, "output_tokens": 2}
        harness("occurrence/fail", occurrence_id=occurrence, usage=usage)
        [run] = harness("occurrence/runs", occurrence_id=occurrence)["runs"]
        assert (run["usage"]["model"], run["usage"]["provider"], run["usage"]["cost_usd"]) == ("small", "acme", None)
        [used] = harness("usage/report", by="model")["groups"]
        assert (used["key"], used["output_tokens"], used["unpriced_calls"]) == ("small", 2, 1)

    def test_or_to_have_failed(self, harness):
        schedule = harness.create(retry_policy={"max_attempts": 2, "backoff_seconds": 30})
        occurrence = accepted(harness, schedule)
        failed = harness("occurrence/fail", occurrence_id=occurrence, error="no paper")
        assert (failed["phase"], failed["due_at_utc"] > "2026-03-01T12:00:00Z") == ("pending", True)

    def test_a_failure_that_pauses_the_schedule_is_logged(self, harness, caplog):
        schedule = harness.create(name="printer", pause_on_failure=2)
        for paused in (False, True):
            harness("occurrence/fail", occurrence_id=accepted(harness, schedule), error="no paper")
            assert ("printer is paused: pause_on_failure is 2" in caplog.text) is paused

    def test_nothing_else_can_be_told_to_be_done(self, harness):
        schedule = harness.create()
        occurrence_id = harness("schedule/run", schedule_id=schedule["schedule_id"])["occurrence_id"]
        for name in ("complete", "fail"):
            with pytest.raises(Conflict, match="it is pending"):
                harness(f"occurrence/{name}", occurrence_id=occurrence_id)

    def test_what_waits_and_what_was_accepted_can_be_cancelled(self, harness):
        schedule = harness.create()
        waiting = harness("schedule/run", schedule_id=schedule["schedule_id"])["occurrence_id"]
        assert harness("occurrence/cancel", occurrence_id=waiting)["phase"] == "cancelled"
        running = accepted(harness, schedule)
        assert harness("occurrence/cancel", occurrence_id=running)["phase"] == "cancelled"
        with pytest.raises(Conflict, match="ended already"):
            harness("occurrence/cancel", occurrence_id=running)

    @pytest.mark.parametrize("name", ["get", "complete", "fail", "cancel", "explain", "runs"])
    def test_what_belongs_to_another_tenant_is_not_there(self, harness, name):
        occurrence = accepted(harness, harness.create())
        with pytest.raises(NotFound):
            harness(f"occurrence/{name}", occurrence_id=occurrence, caller=FOREIGN)
