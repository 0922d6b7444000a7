"""Pings: each call of the URL counts for one occurrence, or for none, by a stated rule."""

from dataclasses import replace

import pytest

from noonmark.core.errors import Conflict, InvalidSchedule, NotFound, RevisionConflict
from noonmark.core.pings import parse_ping
from noonmark.core.policies.runaway import RunawayRule
from noonmark.core.targets.egress import Guard, egress_policy
from noonmark.core.targets.ping import Moment
from noonmark.driver.driver import Driver
from noonmark.operations import pings
from noonmark.ports.events import RanAway
from noonmark.targets.store_targets import PingReceiver
from noonmark.testing.manual import run_inline
from tests.operations.harness import FOREIGN, Harness

GRACE, EARLY = 30, 5
PING = {"target_kind": "ping", "grace_seconds": GRACE, "early_seconds": EARLY}


class InlineReceiver(PingReceiver):
    """Opens occurrences at once, instead of in threads."""

    def open(self, report, now):
        super().open(report, now)
        self.report = report

    def deliver(self, assignments):
        for assignment in assignments:
            self.report(assignment, self._run(assignment))


class Watch(Harness):
    """A schedule that fires every minute and expects pings."""

    def __init__(self, **document):
        super().__init__()
        runtime = self.scheduler._runtime
        timing = replace(runtime.timing, lookahead=0, early=0)
        target = InlineReceiver(self.service.store)
        self._driver = Driver(replace(runtime, target=target, timing=timing))
        target.open(self._driver.report, self._driver.node.store_clock.now)
        run_inline(self._driver.node.confirm_time())
        self.seconds = 0
        created = self.create(schedule_id="job", **{"target": PING, **document})
        self.url = created["ping_url"]

    def wait_until(self, seconds):
        """So many seconds after its creation; the fires come 60 seconds apart."""
        while self.seconds < seconds:
            self.clock.advance(1)
            self.seconds += 1
            self.drive()

    def drive(self):
        driver = self._driver
        while any(
            (
                run_inline(driver.reap_once()).overdue,
                run_inline(driver.match_once()).matched,
                run_inline(driver.plan_once()).planned,
                run_inline(driver.claim_once()).claimed,
                run_inline(driver.admit_once()).started,
                run_inline(driver.settle_once()).settled,
            )
        ):
            pass

    def ping(self, action="", body=b"", url=None):
        token = (url or self.url).removeprefix("/ping/")
        return pings.receive(self.service, token, parse_ping(action, body))["verdict"]

    def outcomes(self):
        """What has become of each fire, oldest first."""
        found = self("schedule/occurrences", schedule_id="job")["occurrences"]
        return [(one["phase"], one["reason"]) for one in reversed(found) if one["phase"] != "pending"]

    def runs(self):
        return list(reversed(self("schedule/runs", schedule_id="job")["runs"]))

    def events(self):
        return [one["event_type"] for one in reversed(self("event/list")["events"])]


SUCCEEDED, FAILED = ("completed", "succeeded"), ("failed", "failed")
MISSED, TOO_LONG = ("timed_out", "completion_timed_out"), ("timed_out", "timed_out")
WAITS = ("awaiting_completion", "accepted")


def test_a_ping_that_does_not_come_is_told_as_such(caplog):
    watch = Watch(name="backup")

    def told():
        lines = watch("schedule/occurrences", schedule_id="job", phase=["awaiting_completion", "timed_out"])
        summary = watch("schedule/explain", schedule_id="job")["summary"]
        return lines["occurrences"][0]["why"], summary

    watch.wait_until(61)
    why, summary = told()
    assert why == "It waits for a ping of its job."
    assert "it has not reported: no ping has come yet, and one is expected by 2026-03-01 12:01:30 UTC" in summary
    watch.wait_until(90)
    why, summary = told()
    assert why == "No ping came in time."
    assert "it was missed: no ping came by 2026-03-01T12:01:30Z" in summary
    assert "attempt 1 of 1: no ping came in time (completion_timed_out)" in caplog.text


@pytest.mark.parametrize(
    ("calls", "until", "verdicts", "outcomes", "events"),
    [
        pytest.param([(61, "")], 61, ["counted"], [SUCCEEDED], [], id="in time"),
        pytest.param([(89, "0")], 89, ["counted"], [SUCCEEDED], [], id="at the end of the grace"),
        pytest.param([(61, "fail")], 61, ["counted"], [FAILED], [], id="failed"),
        pytest.param([(61, "3")], 61, ["counted"], [FAILED], [], id="exit status"),
        pytest.param([], 89, [], [WAITS], [], id="not missed yet"),
        pytest.param([], 90, [], [MISSED], [], id="missed"),
        pytest.param([(95, "")], 96, ["unexpected"], [MISSED], ["ping.unexpected"], id="after it was missed"),
        pytest.param([(61, "start")], 100, ["counted"], [WAITS], [], id="started: the grace is over, the job is not"),
        pytest.param([(61, "start"), (100, "")], 100, ["counted"] * 2, [SUCCEEDED], [], id="started and ended"),
        pytest.param([(61, "start")], 111, ["counted"], [TOO_LONG], [], id="took too long"),
        pytest.param([(61, "start"), (100, "start")], 119, ["counted"] * 2, [WAITS], [], id="a second start"),
        pytest.param([(54, "")], 61, ["unexpected"], [WAITS], ["ping.unexpected"], id="too early"),
        pytest.param([(55, "")], 61, ["early"], [SUCCEEDED], ["ping.early"], id="early"),
        pytest.param([(55, "2")], 61, ["early"], [FAILED], ["ping.early"], id="failed early"),
        pytest.param([(55, "start")], 105, ["early"], [WAITS], ["ping.early"], id="started early"),
        pytest.param(
            [(56, "start"), (57, "")], 61, ["early"] * 2, [SUCCEEDED], ["ping.early"] * 2, id="began and ended early"
        ),
        pytest.param([(56, ""), (57, "1")], 61, ["early", "repeated"], [SUCCEEDED], ["ping.early"], id="twice early"),
        pytest.param([(56, ""), (61, "fail")], 61, ["early", "unexpected"], [SUCCEEDED],
                     ["ping.early", "ping.unexpected"], id="early and once more"),
        pytest.param([(61, ""), (62, "")], 62, ["counted", "unexpected"], [SUCCEEDED], ["ping.unexpected"], id="twice"),
        pytest.param([(61, ""), (116, "")], 121, ["counted", "early"], [SUCCEEDED] * 2, ["ping.early"],
                     id="the second counts for the next"),
        pytest.param([(61, ""), (121, "1")], 121, ["counted"] * 2, [SUCCEEDED, FAILED], [], id="each fire has its own"),
    ],
)  # fmt: skip
def test_what_a_ping_counts_for(calls, until, verdicts, outcomes, events):
    watch = Watch(timeout_seconds=50)
    collected = []
    for seconds, action in calls:
        watch.wait_until(seconds)
        collected.append(watch.ping(action))
    watch.wait_until(until)
    assert (collected, watch.outcomes()) == (verdicts, outcomes)
    assert watch.events() == events


def test_the_body_is_the_output_of_the_run():
    watch = Watch()
    watch.wait_until(61)
    watch.ping("1", b"3 rows\ndisk full\n")
    [run] = watch.runs()
    assert run["result"] == {"ping": "fail", "exit_status": 1, "output": "3 rows\ndisk full\n"}
    assert run["error"] == "3 rows\ndisk full\nthe job exited with status 1"


def test_outputs_that_stay_the_same_pause_it_and_are_told(caplog):
    watch, counted = Watch(runaway={"max_identical_results": 1}), []
    watch.service = replace(watch.service, report=counted.extend)
    for seconds in (61, 121):
        watch.wait_until(seconds)
        watch.ping("0", b"no rows")
    assert watch("schedule/get", schedule_id="job")["phase"] == "paused"
    assert "is paused: its last 2 results were the same" in caplog.text
    assert counted == [RanAway("job", RunawayRule.RESULTS)]


def test_a_start_is_the_start_of_the_run():
    watch = Watch()
    watch.wait_until(65)
    watch.ping("start")
    watch.wait_until(70)
    watch.ping()
    [run] = watch.runs()
    assert (run["started_at_utc"], run["duration_seconds"]) == ("2026-03-01T12:01:05Z", 5)


def test_a_late_start_is_reported_and_a_late_end_alone_is_not():
    watch = Watch()
    target = {"target_kind": "event", "event_type": "told"}
    watch.create(schedule_id="alert", trigger={"type": "event", "event_type": "occurrence.late"}, target=target)
    watch.wait_until(80)
    watch.ping()
    watch.wait_until(140)
    watch.ping("start")
    watch.ping("start")
    [late] = [one for one in watch("event/list")["events"] if one["event_type"] == "occurrence.late"]
    assert late["payload"]["late_seconds"] == 20


def test_an_alert_listens_for_unexpected_pings():
    watch = Watch()
    target = {"target_kind": "function", "function": "report"}
    watch.create(schedule_id="alert", trigger={"type": "event", "event_type": "ping.unexpected"}, target=target)
    watch.ping("fail", b"why")
    watch.driver.run_due()
    [call] = watch.calls
    assert (call.event["payload"]["schedule_id"], call.event["payload"]["output"]) == ("job", "why")


def test_a_paused_schedule_takes_note_of_nothing():
    watch = Watch()
    watch("schedule/pause", schedule_id="job")
    watch.wait_until(61)
    assert (watch.ping(), watch.events()) == ("paused", [])


def test_a_run_by_hand_expects_a_ping_now():
    watch = Watch()
    watch("schedule/run", schedule_id="job", key="now")
    watch.drive()
    assert (watch.ping(), watch.outcomes()) == ("counted", [SUCCEEDED])


@pytest.mark.parametrize("verb", ["occurrences", "emit"])
def test_a_ping_that_comes_while_a_node_opens_the_occurrence_counts(verb):
    watch = Watch()
    watch.clock.advance(60)
    store, was_called = watch.service.store, []
    original = getattr(store, verb)

    def opened_meanwhile(*args, **kwargs):
        answer = original(*args, **kwargs)
        if not was_called:
            was_called.append(verb)
            watch.drive()
        return answer

    setattr(store, verb, opened_meanwhile)
    assert watch.ping() in ("counted", "early")
    setattr(store, verb, original)
    watch.drive()
    assert watch.outcomes() == [SUCCEEDED]


def test_the_url_is_shown_at_creation_and_on_request_only():
    watch = Watch()
    token = watch.url.removeprefix("/ping/")
    shown = [watch("schedule/get", schedule_id="job"), watch("schedule/list"), watch("audit/list")]
    watch.wait_until(61)
    shown += [watch("schedule/occurrences", schedule_id="job"), watch("event/list")]
    assert token not in repr(shown)
    assert token.rpartition("-")[2] not in repr(shown)
    assert watch("ping/url", schedule_id="job")["ping_url"] == watch.url


def test_a_rotation_replaces_the_url():
    watch = Watch()
    rotated = watch("ping/rotate", schedule_id="job", reason="it leaked")["ping_url"]
    watch("schedule/upsert", schedule_id="job", trigger={"type": "interval", "every_seconds": 60}, target=PING)
    watch.wait_until(61)
    with pytest.raises(NotFound) as unknown:
        watch.ping()
    assert watch.url not in str(unknown.value)
    assert watch.ping(url=rotated) == "counted"
    [entry] = [one for one in watch("audit/list")["entries"] if one["operation"] == "ping/rotate"]
    assert entry["reason"] == "it leaked"
    with pytest.raises(RevisionConflict):
        watch("ping/rotate", schedule_id="job", expected_revision=1)


@pytest.mark.parametrize("token", ["", "x", "-", "fresh0001-0", "fresh0001", "\N{SNOWMAN}-1", "a/b"])
def test_an_unknown_token_is_not_found(token):
    watch = Watch()
    with pytest.raises(NotFound):
        pings.receive(watch.service, token, parse_ping("", b""))


def test_a_deleted_schedule_has_no_url():
    watch = Watch()
    watch("schedule/delete", schedule_id="job")
    with pytest.raises(NotFound):
        watch.ping()


def test_only_a_ping_target_has_a_url():
    watch = Watch()
    assert "ping_url" not in watch.create(schedule_id="other")
    for operation in ("ping/url", "ping/rotate"):
        with pytest.raises(Conflict, match="kind function"):
            watch(operation, schedule_id="other")
        with pytest.raises(NotFound):
            watch(operation, caller=FOREIGN, schedule_id="job")


def test_the_same_request_again_shows_the_same_url():
    watch = Watch()
    document = {"target": PING, "idempotency_key": "once"}
    assert watch.create(**document)["ping_url"] == watch.create(**document)["ping_url"] != watch.url


class Called:
    """The URLs that would be called."""

    def __init__(self):
        self.urls = []

    def ping(self, schedule, occurrence, moment):
        assert occurrence.schedule_id == schedule.schedule_id
        self.urls.append(schedule.declaration.ping_urls.url_for(moment))

    def drain(self, seconds):
        """Nothing waits."""


URLS = {str(moment): f"https://{moment}.example" for moment in Moment}


@pytest.mark.parametrize(("action", "end"), [("", "success"), ("1", "failure")])
def test_a_schedule_that_is_pinged_can_ping_others(action, end):
    watch = Watch(ping_urls=URLS)
    watch.service = replace(watch.service, pinger=Called())
    watch.wait_until(61)
    watch.ping("start")
    watch.ping(action)
    assert watch.service.pinger.urls == ["https://start.example", f"https://{end}.example"]


@pytest.mark.parametrize(
    ("operation", "urls"),
    [("complete", ["https://success.example"]), ("fail", ["https://failure.example"]), ("cancel", [])],
)
def test_an_end_that_a_caller_reports_is_pinged(operation, urls):
    watch = Watch(ping_urls=URLS)
    watch.service = replace(watch.service, pinger=Called())
    watch.wait_until(61)
    [waits] = watch("schedule/occurrences", schedule_id="job", phase=["awaiting_completion"])["occurrences"]
    watch(f"occurrence/{operation}", occurrence_id=waits["occurrence_id"])
    assert watch.service.pinger.urls == urls


def test_a_url_that_no_node_would_call_is_refused():
    watch = Watch()
    watch.service = replace(watch.service, egress=egress_policy(Guard.STRICT, ()))
    with pytest.raises(InvalidSchedule) as refused:
        watch.create(ping_urls={"success": "http://127.0.0.1/x"})
    assert refused.value.field == "ping_urls.success"
    created = watch.create(schedule_id="other", ping_urls=URLS)
    assert created["ping_urls"] == URLS
    assert watch("schedule/update", schedule_id="other", description="the same")["ping_urls"] == URLS


def test_a_job_that_has_not_ended_as_expected_is_reported_before_its_deadline():
    watch = Watch(expected_seconds=10, timeout_seconds=100)
    target = {"target_kind": "function", "function": "report"}
    watch.create(schedule_id="alert", trigger={"type": "event", "event_type": "occurrence.overdue"}, target=target)
    watch.wait_until(61)
    [waits] = watch("schedule/occurrences", schedule_id="job", phase=["awaiting_completion"])["occurrences"]
    assert waits["deadline_utc"] == "2026-03-01T12:01:30Z"
    watch.wait_until(71)
    assert watch.events() == ["occurrence.overdue"]
    watch.driver.run_due()
    assert [call.event["payload"]["expected_seconds"] for call in watch.calls] == [10]
    watch.ping()
    assert watch.outcomes() == [SUCCEEDED]


def test_pings_count_for_the_expected_rate_whether_they_were_expected_or_not(caplog):
    watch = Watch(expected_rate={"at_least": 2, "at_most": 2, "per_seconds": 3600})
    watch.create(schedule_id="listener", trigger={"type": "event", "event_type": "schedule.too_often"})
    assert [watch.ping("start"), watch.ping()] == ["unexpected", "unexpected"]
    assert watch.ping() == "unexpected"
    assert "too often" not in caplog.text
    assert watch.ping() == "unexpected"
    assert "job (ping) runs too often: 3 starts within 3600 s; at most 2 are expected" in caplog.text
    assert [one["event_type"] for one in watch("event/list", event_type="schedule.too_often")["events"]] == [
        "schedule.too_often"
    ]
