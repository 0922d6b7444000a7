"""Explain: why a schedule ran, or did not, as a server answers."""

from datetime import timedelta

import pytest

from noonmark import Conflict, IntervalTrigger, InvalidSchedule, NotFound, OnceTrigger, OverlapConflict, Scheduler
from noonmark.core.explain import Rule
from noonmark.operations.service import LOCAL, Service
from noonmark.operations.table import perform
from tests.embedded.conftest import START
from tests.embedded.waiting import NEVER, keep

MINUTE = timedelta(minutes=1)
MINUTELY = IntervalTrigger(60)


def nothing():
    pass


def decisions(told):
    """What each rule decided."""
    return {step["rule"]: step["decision"] for step in told["steps"]}


def told_by_a_server(by_hand, job_id, **at):
    """The answer of the operation, on the same store."""
    service = Service(store=by_hand.scheduler._store, lookahead=0, fresh_id=str)
    return perform(service, LOCAL, "schedule/explain", {"schedule_id": job_id, **at})


class TestAnswers:
    def test_of_one_that_ran_and_of_a_time_that_it_does_not_name(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=MINUTELY)
        by_hand.pass_time(60)
        explanation, then = by_hand.scheduler.explain(job_id), by_hand.scheduler.explain(job_id, START + MINUTE)
        [ran] = [one for one in by_hand.scheduler.occurrences(job_id) if str(one.phase) == "completed"]
        for one in (explanation, then):
            assert (one["schedule_id"], one["occurrence_id"], one["phase"]) == (job_id, ran.id, "completed")
            assert list(decisions(one)) == [*Rule]
            assert decisions(one)["runs"] == "succeeded"
        assert "12:02:00 UTC" in explanation["summary"]  # when it is next due
        between = by_hand.scheduler.explain(job_id, START + MINUTE / 2)
        assert (between["occurrence_id"], decisions(between)["trigger"]) == (None, "not_named")
        assert between["summary"].startswith("Nothing ran at 2030-03-17 12:00:30 UTC: ")

    def test_of_one_that_has_not_been_due_yet(self, by_hand):
        explanation = by_hand.scheduler.explain(keep(by_hand.scheduler, nothing, trigger=MINUTELY))
        assert (explanation["at"], explanation["phase"]) == ("2030-03-17T12:01:00Z", "pending")
        assert explanation["summary"] == "It has not run yet: it is due at 2030-03-17 12:01:00 UTC."

    def test_of_one_that_was_too_late(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=OnceTrigger(START + MINUTE), misfire="skip")
        assert by_hand.pass_time(3_600) == []
        explanation = by_hand.scheduler.explain(job_id)
        assert (explanation["phase"], decisions(explanation)["misfire"]) == ("misfired", "late")
        assert "`skip`" in explanation["summary"]

    def test_of_one_that_another_was_in_the_way_of(self, keeper):
        def once_more():
            with pytest.raises(OverlapConflict):
                keeper.run_now(job_id)

        job_id = keep(keeper, once_more, trigger=NEVER)
        keeper.run_now(job_id)
        [skipped] = [one for one in keeper.occurrences(job_id) if str(one.phase) == "skipped"]
        explanation = keeper.explain(job_id, skipped.nominal_at)
        assert (explanation["occurrence_id"], explanation["phase"], decisions(explanation)["overlap"]) == (
            skipped.id,
            "skipped",
            "overlap",
        )

    def test_of_a_paused_one(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=MINUTELY)
        by_hand.scheduler.pause(job_id)
        by_hand.pass_time(90)
        explanation = by_hand.scheduler.explain(job_id, at=START + MINUTE)
        assert decisions(explanation)["pause"] == "paused"
        assert "paused" in explanation["summary"]
        by_hand.scheduler.resume(job_id)
        explanation = by_hand.scheduler.explain(job_id, at=START + MINUTE)
        assert (explanation["phase"], decisions(explanation)["pause"]) == ("skipped", "paused")

    @pytest.mark.parametrize("how", ["cancel", "delete"])
    def test_of_one_that_is_gone(self, by_hand, how):
        job_id = keep(by_hand.scheduler, nothing, trigger=MINUTELY)
        by_hand.pass_time(60)
        getattr(by_hand.scheduler, how)(job_id)
        assert by_hand.scheduler.explain(job_id, START + MINUTE)["phase"] == "completed"
        assert decisions(by_hand.scheduler.explain(job_id, START + 3 * MINUTE))["bounds"] == "deleted"


def test_it_is_the_answer_of_a_server_whichever_way_the_instant_is_written(by_hand):
    job_id = keep(by_hand.scheduler, nothing, trigger=MINUTELY)
    by_hand.pass_time(60)
    assert by_hand.scheduler.explain(job_id).to_document() == told_by_a_server(by_hand, job_id)
    for at in (START + MINUTE, "2030-03-17T12:01:00Z", "2030-03-17T13:01:00+01:00"):
        explanation = by_hand.scheduler.explain(job_id, at)
        assert explanation.to_document() == told_by_a_server(by_hand, job_id, at="2030-03-17T12:01:00Z")
        assert (explanation.schedule_id, explanation.at, explanation.phase) == (job_id, START + MINUTE, "completed")
        assert [step.rule for step in explanation.steps] == [*Rule]
        assert explanation["summary"] == explanation.summary


def test_it_changes_nothing_and_what_is_done_to_the_answer_reaches_no_record(by_hand):
    job_id = keep(by_hand.scheduler, nothing, trigger=MINUTELY)
    by_hand.clock.advance(3_600)
    before = by_hand.scheduler.occurrences(job_id)
    explanation = by_hand.scheduler.explain(job_id)
    for step in explanation.steps:
        for fact in step.facts.values():
            if isinstance(fact, dict | list):
                fact.clear()
    assert by_hand.scheduler.occurrences(job_id) == before
    assert by_hand.scheduler.explain(job_id) != explanation


class TestRefusals:
    def test_an_unknown_id_is_not_found(self, by_hand):
        with pytest.raises(NotFound, match="unknown schedule 'job_unknown'") as refused:
            by_hand.scheduler.explain("job_unknown", START)
        assert refused.value.field == "job_id"

    @pytest.mark.parametrize("bad", [5, None, "", nothing])
    def test_an_invalid_id_is_refused(self, by_hand, bad):
        with pytest.raises(InvalidSchedule) as refused:
            by_hand.scheduler.explain(bad)
        assert refused.value.field == "job_id"

    def test_an_instant_has_a_time_zone(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=MINUTELY)
        for bad in (START.replace(tzinfo=None), "2030-03-17T12:01:00", "noon", "", 5, False, START.date()):
            with pytest.raises(InvalidSchedule) as refused:
                by_hand.scheduler.explain(job_id, bad)
            assert refused.value.field == "at"

    def test_a_closed_scheduler_answers_nothing(self):
        scheduler = Scheduler()
        job_id = scheduler.schedule(nothing, trigger=MINUTELY)
        scheduler.close()
        with pytest.raises(Conflict):
            scheduler.explain(job_id)
