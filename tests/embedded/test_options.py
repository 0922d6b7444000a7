"""Options as documents and as typed values, and the rare ones: they reach the schedule and take effect."""

import re
import threading
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import (
    Allow,
    CatchUpAll,
    Concurrency,
    Conflict,
    CronTrigger,
    Delivery,
    Dependency,
    IntervalTrigger,
    InvalidSchedule,
    InvalidTrigger,
    Queue,
    QueueOne,
    Retry,
    Scheduler,
    Skip,
    SkipMissed,
    Window,
)
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.waiting import NEVER, SOON, ended, eventually, phases

START = datetime(2030, 5, 1, tzinfo=UTC)


class Kit:
    """A scheduler with a clock that stands still."""

    def __init__(self):
        self.clock = FakeClock(START)
        self.scheduler = Scheduler(clock=self.clock)
        self.driver = ManualDriver(self.scheduler)

    def run_for(self, seconds):
        return self.driver.run_until(START + timedelta(seconds=seconds))


@pytest.fixture
def kit():
    return Kit()


def fail():
    raise ValueError("on purpose")


def test_retries_may_have_a_backoff(kit):
    retries = {"max_attempts": 3, "backoff_seconds": 10, "multiplier": 3}
    job = kit.scheduler.schedule(fail, retries=retries)
    starts = [(run.started_at - START).total_seconds() for run in kit.run_for(300)]
    assert len(starts) == 3
    assert starts[0] == 0
    assert 5 <= starts[1] <= 15
    assert starts[2] - starts[1] > starts[1]
    assert phases(kit.scheduler, job) == ["failed"]


def test_a_job_that_fails_again_and_again_is_paused(kit, caplog):
    job = kit.scheduler.schedule(fail, trigger=IntervalTrigger(10), pause_on_failure=3)
    kit.run_for(100)
    assert str(kit.scheduler.get_job(job).status) == "paused"
    assert phases(kit.scheduler, job) == ["failed"] * 3
    [line] = [record for record in caplog.records if " is paused: " in record.getMessage()]
    reason = "pause_on_failure is 3, and 3 in a row did not complete"
    assert line.getMessage().endswith(f' is paused: {reason}; `scheduler.resume("{job}")` resumes it')
    assert line.levelname == "WARNING"


def test_jobs_that_share_a_key_take_turns():
    scheduler, gate, running, most = Scheduler(), threading.Event(), [], []

    def work():
        running.append(1)
        most.append(len(running))
        gate.wait(SOON)
        running.pop()

    jobs = [scheduler.schedule(work, name=f"job {n}", concurrency_key="printer", concurrency_limit=2) for n in range(5)]
    with scheduler:
        eventually(lambda: len(running) == 2)
        gate.set()
        for job in jobs:
            assert ended(scheduler, job) == ["completed"]
    assert max(most) == 2


def test_nothing_is_tried_again_after_the_window(kit):
    retries = {"max_attempts": 9, "backoff_seconds": 40}
    job = kit.scheduler.schedule(fail, retries=retries, window={"duration_seconds": 60})
    starts = [(run.started_at - START).total_seconds() for run in kit.run_for(3_600)]
    assert 1 <= len(starts) < 9
    assert max(starts) < 60
    assert phases(kit.scheduler, job) == ["failed"]


def test_one_upstream_needs_no_list(kit):
    first = kit.scheduler.schedule(lambda: "first", trigger=IntervalTrigger(10))
    kit.scheduler.schedule(lambda: "second", depends_on=first)
    assert [run.result for run in kit.run_for(20)] == ["first", "second"] * 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("description", "Tidies up."),
        ("pause_on_failure", 3),
        ("accepts_payload", True),
        ("window", {"duration_seconds": 60, "end_action": "none"}),
    ],
)
def test_an_option_is_kept_changed_and_taken_back(kit, option, value):
    job = kit.scheduler.schedule(fail, trigger=NEVER, **{option: value})

    def kept():
        return kit.scheduler._find(job).schedule.declaration.to_document().get(option)

    assert kept() == value
    kit.scheduler.update(job, labels={"a": "b"})
    assert kept() == value
    kit.scheduler.update(job, **{option: None})
    assert kept() is None


TYPED = [
    ("overlap", Queue(limit=5), "overlap_policy", {"type": "queue", "queue_limit": 5}),
    ("overlap", QueueOne(), "overlap_policy", "queue_one"),
    ("misfire", CatchUpAll(limit=10), "misfire_policy", {"type": "catch_up_all", "grace_seconds": 60, "limit": 10}),
    ("misfire", SkipMissed(grace=timedelta(minutes=2)), "misfire_policy", {"type": "skip", "grace_seconds": 120}),
    (
        "retries",
        Retry(3, backoff=timedelta(seconds=30)),
        "retry_policy",
        {"max_attempts": 4, "backoff_seconds": 30, "multiplier": 2, "max_backoff_seconds": 300},
    ),
    ("window", Window(60, end_action="none"), "window", {"duration_seconds": 60, "end_action": "none"}),
    ("delivery", Delivery.AT_MOST_ONCE, "delivery", "at_most_once"),
    ("timeout", timedelta(minutes=1), "timeout_seconds", 60),
    ("concurrency", Concurrency("printer", limit=2), "concurrency_limit", 2),
]


@pytest.mark.parametrize(("option", "value", "field", "document"), TYPED)
def test_a_typed_value_is_as_good_as_a_document(kit, option, value, field, document):
    def kept(job):
        return kit.scheduler._find(job).schedule.declaration.to_document().get(field)

    assert kept(kit.scheduler.schedule(fail, trigger=NEVER, **{option: value})) == document
    assert kept(kit.scheduler.schedule_event("done", trigger=NEVER, **{option: value})) == document
    assert kept(kit.scheduler.create_many([{"func": fail, option: value}])[0]) == document
    assert kept(kit.scheduler.every(5, **{option: value})(lambda: None).job_id) == document
    job = kit.scheduler.schedule(fail, trigger=NEVER)
    kit.scheduler.update(job, **{option: value})
    assert kept(job) == document


def test_a_typed_overlap_policy_holds_for_one_call(kit):
    job = kit.scheduler.schedule(fail, trigger=NEVER)
    kit.scheduler.run_now(job, wait=False, overlap=Allow())
    [manual, _] = sorted(kit.scheduler.occurrences(job), key=lambda one: one.origin)
    assert manual.overrides.to_document() == {"overlap_policy": "allow"}


def test_a_concurrency_limit_is_changed_and_taken_back(kit):
    job = kit.scheduler.schedule(fail, trigger=NEVER, concurrency=Concurrency("printer", limit=2))
    kit.scheduler.update(job, concurrency=Concurrency("scanner"))
    assert kit.scheduler._find(job).schedule.declaration.concurrency == Concurrency("scanner", limit=1)
    kit.scheduler.update(job, concurrency=None)
    assert kit.scheduler._find(job).schedule.declaration.concurrency is None


@pytest.mark.parametrize(
    "options", [{"concurrency": "printer"}, {"concurrency": Concurrency("a"), "concurrency_key": "a"}]
)
def test_a_concurrency_limit_is_said_once_and_typed(kit, options):
    with pytest.raises(InvalidSchedule) as refused:
        kit.scheduler.schedule(fail, **options)
    assert refused.value.field == "concurrency"


def test_a_dependency_may_be_a_typed_value(kit):
    first = kit.scheduler.schedule(fail, trigger=NEVER)
    for written in (Dependency(first, require_success=False), [Dependency(first, require_success=False)]):
        job = kit.scheduler.schedule(fail, depends_on=written)
        assert kit.scheduler._find(job).schedule.declaration.depends_on == (Dependency(first, require_success=False),)
    kit.scheduler.add_dependency(job, [Dependency(first)])
    assert kit.scheduler._find(job).schedule.declaration.depends_on == (Dependency(first),)


def test_a_policy_of_another_option_is_refused(kit):
    with pytest.raises(InvalidSchedule, match="misfire: must be a misfire policy"):
        kit.scheduler.schedule(fail, misfire=Skip())
    job = kit.scheduler.schedule(fail, trigger=NEVER)
    with pytest.raises(InvalidSchedule, match="overlap: must be an overlap policy"):
        kit.scheduler.update(job, overlap=SkipMissed())
    with pytest.raises(InvalidSchedule, match="overlap: is the class Queue"):
        kit.scheduler.run_now(job, overlap=Queue)


def test_a_dependency_takes_a_job(kit):
    first = kit.scheduler.get_job(kit.scheduler.schedule(fail, trigger=NEVER))
    job = kit.scheduler.schedule(fail, depends_on=Dependency(first))
    assert kit.scheduler._find(job).schedule.declaration.depends_on == (Dependency(first.id),)


@pytest.mark.parametrize(
    ("option", "value", "field"),
    [
        ("retries", {"max_attempts": 0}, "retries.max_attempts"),
        ("retries", {"backoff": 3}, "retries.backoff"),
        ("pause_on_failure", 0, "pause_on_failure"),
        ("window", {"duration_seconds": -1}, "window.duration_seconds"),
        ("concurrency_limit", 0, "concurrency_limit"),
        ("description", 7, "description"),
    ],
)
def test_a_wrong_value_is_refused_by_name(kit, option, value, field):
    further = {"concurrency_key": "a"} if option == "concurrency_limit" else {}
    with pytest.raises(InvalidSchedule) as refused:
        kit.scheduler.schedule(fail, **{option: value}, **further)
    assert refused.value.field == field


def test_a_trigger_as_text_is_refused_with_what_to_write(kit):
    with pytest.raises(InvalidTrigger, match=r"write CronTrigger\('0 9 \* \* \*'\)"):
        kit.scheduler.schedule(fail, trigger="0 9 * * *")
    assert kit.scheduler.schedule(fail, trigger=CronTrigger("0 9 * * *"))


@pytest.mark.parametrize(
    ("trigger", "hint"),
    [
        (30, r"not a length of time; write IntervalTrigger\(30\)"),
        (timedelta(minutes=1), r"not a length of time; write IntervalTrigger\(60\)"),
        (datetime(2030, 1, 1, tzinfo=UTC), r"not an instant; write OnceTrigger\(\.\.\)"),
    ],
)
def test_a_time_in_place_of_a_trigger_is_refused_with_what_to_write(kit, trigger, hint):
    with pytest.raises(InvalidTrigger, match=hint) as refused:
        kit.scheduler.schedule(fail, trigger=trigger)
    assert refused.value.field == "trigger"


def test_an_invalid_option_is_a_mistake_of_the_programmer(kit):
    with pytest.raises(TypeError, match="unknown option 'colour' of a schedule"):
        kit.scheduler.schedule(fail, colour="red")


@pytest.mark.parametrize(
    ("options", "trigger"),
    [
        ({"seconds": 5}, "IntervalTrigger(seconds=..)"),
        ({"hour": 9, "minute": 0}, 'CronTrigger("0 9 * * *")'),
        ({"timezone": "Europe/Stockholm"}, 'timezone="Europe/Stockholm"'),
        ({"run_date": START}, "OnceTrigger(at)"),
    ],
)
def test_an_option_that_belongs_to_a_trigger_is_refused_with_the_trigger(kit, options, trigger):
    with pytest.raises(TypeError, match=f"it belongs to a trigger: trigger=.*{re.escape(trigger)}"):
        kit.scheduler.schedule(fail, "interval", **options)


def test_a_retry_that_a_clock_which_stands_still_never_reaches_is_not_waited_for(kit):
    job = kit.scheduler.schedule(fail, trigger=NEVER, retries=1)
    with pytest.raises(Conflict, match=r"tried again at 2030-05-01T00:00:01.*let ManualDriver run it"):
        kit.scheduler.run_now(job)
    assert [str(run.outcome) for run in kit.run_for(10)] == ["failed"]


def test_what_is_expected_of_a_schedule_and_whom_it_pings_are_options(kit):
    rate = {"at_least": 1, "at_most": 5, "per_seconds": timedelta(hours=1)}
    urls = {"start": "https://e.com/start", "failure": "https://e.com/fail"}
    job = kit.scheduler.schedule(
        fail, trigger=NEVER, expected_seconds=timedelta(minutes=2), expected_rate=rate, ping_urls=urls
    )
    declared = kit.scheduler._find(job).schedule.declaration.to_document()
    assert declared["expected_seconds"] == 120
    assert declared["expected_rate"] == {"at_least": 1, "at_most": 5, "per_seconds": 3600}
    assert declared["ping_urls"] == urls
    with pytest.raises(InvalidSchedule, match="at_most: must not be less than at_least, 2"):
        kit.scheduler.update(job, expected_rate={**rate, "at_most": 1, "at_least": 2})


def test_a_schedule_that_starts_too_often_or_too_rarely_is_reported(kit, caplog):
    collected = []

    @kit.scheduler.on_event(["schedule.too_often", "schedule.too_rare"])
    def tell(context):
        collected.append((context.event["event_type"], context.event["payload"]["count"]))

    def work():
        pass

    rate = {"at_least": 1, "at_most": 2, "per_seconds": 60}
    trigger = IntervalTrigger(10, START + timedelta(seconds=10), START + timedelta(seconds=50))
    kit.scheduler.schedule(work, "busy", trigger, expected_rate=rate, max_runs=100)
    kit.run_for(59)
    assert collected == [("schedule.too_often", 3)]
    assert rate_of(kit.scheduler.explain("busy")) == ("too_often", 5)
    assert "busy runs too often: 3 starts within 60 s; at most 2 are expected" in caplog.text
    quiet = kit.scheduler.on_event("never")(work)
    kit.scheduler.update(quiet.job_id, expected_rate={"at_least": 1, "per_seconds": 30})
    kit.run_for(150)
    assert collected[1:] == [("schedule.too_rare", 0)] * 3
    assert "0 successes within 30 s; at least 1 is expected" in caplog.text
    assert rate_of(kit.scheduler.explain(quiet.job_id)) == ("too_rare", 0)
    kit.scheduler.pause(quiet.job_id)
    kit.run_for(300)
    assert len(collected) == 4
    assert rate_of(kit.scheduler.explain(quiet.job_id)) == ("does_not_apply", None)


def test_a_rate_is_explained_even_if_no_node_judges_it(kit):
    rate = {"at_least": 1, "per_seconds": 60}
    job = kit.scheduler.schedule(fail, trigger=NEVER, expected_rate=rate)
    assert rate_of(kit.scheduler.explain(job)) == ("as_expected", 0)
    kit.clock.advance(150)
    assert rate_of(kit.scheduler.explain(job)) == ("too_rare", 0)


def rate_of(explanation):
    """What an explanation says of the expected rate, and the starts in the window."""
    [step] = [one for one in explanation.steps if one.rule == "rate"]
    return step.decision, step.facts.get("started")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 60}, "window: must be a Window, such as Window(60), or a mapping, not 60"),
        ({"window": timedelta(60)}, "or a mapping, not datetime.timedelta(days=60)"),
        ({"labels": {"team": None}}, "labels.team: must be text, not None"),
        ({"labels": 5}, "labels: must be a mapping, not 5"),
        ({"depends_on": [None]}, "depends_on[0]: must be a mapping, not None"),
        ({"retries": None}, "a Retry or a mapping, not None"),
        ({"accepts_payload": "yes"}, 'accepts_payload: must be True or False, not "yes"'),
        ({"trigger": CronTrigger}, "not the class CronTrigger; call it: CronTrigger(..)"),
        ({"misfire": Skip()}, "misfire: must be a misfire policy such as SkipMissed() or CatchUpAll(), not Skip()"),
        ({"overlap": SkipMissed()}, "overlap: must be an overlap policy such as Skip() or Queue(), not SkipMissed()"),
    ],
)
def test_errors_speak_of_python_values(kit, options, message):
    with pytest.raises(InvalidSchedule) as refused:
        kit.scheduler.schedule(fail, **options)
    assert message in str(refused.value)


def test_documents_of_policies_take_timedeltas(kit):
    job = kit.scheduler.schedule(
        fail,
        trigger=NEVER,
        misfire={
            "type": "catch_up_within",
            "window_seconds": timedelta(hours=2),
            "grace_seconds": timedelta(minutes=1),
        },
        retries={"max_attempts": 3, "backoff_seconds": timedelta(seconds=5)},
    )
    declared = kit.scheduler._find(job).schedule.declaration.to_document()
    assert (declared["misfire_policy"]["window_seconds"], declared["misfire_policy"]["grace_seconds"]) == (7200, 60)
    assert declared["retry_policy"]["backoff_seconds"] == 5
