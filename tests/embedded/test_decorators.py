"""Decorators: functions with their schedules, found again when the program starts again."""

import functools
import subprocess
import textwrap
from datetime import UTC, datetime, time, timedelta

import pytest

from noonmark import (
    CronTrigger,
    EventTrigger,
    IntervalTrigger,
    InvalidSchedule,
    InvalidTrigger,
    JobStatus,
    OnceTrigger,
    Scheduler,
    TriggerNeverFires,
)
from tests.embedded.conftest import START, ByHand
from tests.embedded.waiting import SOON, ended
from tests.servers import forked


def tick():
    return "tick"


async def tock():
    return "tock"


class Clockwork:
    def __init__(self, name="one"):
        self.name = name

    def wind(self):
        return self.name

    @classmethod
    def make(cls):
        return "made"

    @staticmethod
    def stop():
        return "stopped"


@pytest.fixture
def memory():
    scheduler = Scheduler()
    yield scheduler
    scheduler.stop(wait=False)


class TestTriggers:
    @pytest.mark.parametrize(
        ("decorate", "trigger"),
        [
            (lambda s: s.cron("0 9 * * MON"), CronTrigger("0 9 * * MON")),
            (lambda s: s.cron(["0 9 * * *", "0 17 * * *"], "Europe/Paris"), None),
            (lambda s: s.cron("0 2 * * *", dst={"gap": "skip"}), CronTrigger("0 2 * * *", dst={"gap": "skip"})),
            (lambda s: s.every(90), 90),
            (lambda s: s.every(seconds=0.5), 0.5),
            (lambda s: s.every(minutes=5), 300),
            (lambda s: s.every(hours=2), 7_200),
            (lambda s: s.every(days=1), 86_400),
            (lambda s: s.every(seconds=1, minutes=1, hours=1, days=1), 90_061),
            (lambda s: s.once(START + timedelta(hours=1)), OnceTrigger(START + timedelta(hours=1))),
            (lambda s: s.daily("09:00"), CronTrigger("0 9 * * *")),
            (lambda s: s.daily("9:00"), CronTrigger("0 9 * * *")),
            (lambda s: s.daily("00:00"), CronTrigger("0 0 * * *")),
            (lambda s: s.daily("23:59:58", "Asia/Tokyo"), CronTrigger("58 59 23 * * *", "Asia/Tokyo")),
            (lambda s: s.daily(time(9, 30)), CronTrigger("30 9 * * *")),
            (lambda s: s.on_event("uploaded"), EventTrigger("uploaded")),
            (lambda s: s.on_event(["a", "b"], {"size": {"gt": 3}}), EventTrigger(["a", "b"], {"size": {"gt": 3}})),
        ],
    )
    def test_each_declares_what_it_says(self, by_hand, decorate, trigger):
        decorate(by_hand.scheduler)(tick)
        kept = by_hand.job(tick.job_id).trigger
        if isinstance(trigger, int | float):
            assert kept == IntervalTrigger(trigger, start_at=START + timedelta(seconds=trigger))
        else:
            assert kept == (trigger or CronTrigger(["0 9 * * *", "0 17 * * *"], "Europe/Paris"))

    @pytest.mark.parametrize(
        "at", ["24:00", "9", "9:5", "09:60", "09:00:60", " 09:00", "09:00Z", "９:00", "", 900, None]
    )
    def test_a_time_of_day_that_is_none_is_refused_at_once(self, memory, at):
        with pytest.raises(InvalidTrigger, match=r"09:00") as refused:
            memory.daily(at)
        assert refused.value.field == "at"

    @pytest.mark.parametrize(
        "decorate",
        [
            lambda s: s.every(0),
            lambda s: s.every(-1),
            lambda s: s.every(),
            lambda s: s.every("5"),
            lambda s: s.every(hours=True),
            lambda s: s.every(float("nan")),
            lambda s: s.every(days=10**400),
            lambda s: s.every(tick),
            lambda s: s.every(5, minutes=5),
            lambda s: s.every(5, seconds=5),
            lambda s: s.every(0, minutes=5),
            lambda s: s.cron("99 * * * *"),
            lambda s: s.cron(tick),
            lambda s: s.daily("09:00", "Mars/Olympus"),
            lambda s: s.once(datetime(2030, 1, 1)),  # noqa: DTZ001 - on purpose
            lambda s: s.once("2030-01-01"),
            lambda s: s.on_event(""),
            lambda s: s.on_event("a", {"size": {"about": 3}}),
        ],
    )
    def test_what_makes_no_sense_is_refused_before_there_is_a_function(self, memory, decorate):
        with pytest.raises(InvalidTrigger):
            decorate(memory)

    def test_a_forgotten_call_is_told_what_to_write(self, memory):
        with pytest.raises(InvalidTrigger, match=r"@scheduler\.every\(minutes=5\)"):
            memory.every(tick)

    def test_an_interval_beside_units_is_told_that_only_units_add_up(self, memory):
        with pytest.raises(InvalidTrigger, match=r"which are added up, but not both") as refused:
            memory.every(5, minutes=5)
        assert refused.value.field == "interval"

    def test_an_instant_in_the_past_is_named_as_the_argument(self, memory):
        past = datetime(2020, 1, 1, tzinfo=UTC)
        with pytest.raises(TriggerNeverFires, match="is in the past") as refused:
            memory.schedule(tick, trigger=OnceTrigger(past))
        assert refused.value.field == "trigger.at"
        with pytest.raises(TriggerNeverFires) as refused:
            memory.schedule(tick, trigger=IntervalTrigger(60, end_at=past))
        assert refused.value.field == "trigger.end_at"

    def test_a_second_trigger_is_refused(self, memory):
        with pytest.raises(InvalidSchedule) as refused:
            memory.every(5, trigger=CronTrigger("0 9 * * *"))
        assert refused.value.field == "trigger"

    def test_an_invalid_option_is_refused_before_there_is_a_function(self, memory):
        with pytest.raises(TypeError, match="'retry'"):
            memory.every(5, retry=1)

    def test_a_time_that_is_past_is_refused(self, by_hand):
        with pytest.raises(TriggerNeverFires):
            by_hand.scheduler.once(START - timedelta(days=1))(tick)

    def test_a_program_whose_time_has_passed_can_be_started_again(self, tmp_path):
        by_hand, ran = ByHand(f"sqlite:///{tmp_path / 'jobs.db'}"), []
        at = START + timedelta(hours=1)
        first = by_hand.scheduler.once(at, function_name="work")(lambda: ran.append(1)).job_id
        by_hand.driver.run_until(at + timedelta(days=2))
        by_hand.scheduler.close()
        by_hand.open()
        again = by_hand.scheduler.once(at, function_name="work")(lambda: ran.append(2)).job_id
        by_hand.pass_time(86_400)
        assert (again, ran, by_hand.job(again).status) == (first, [1], JobStatus.COMPLETED)
        by_hand.scheduler.close()


class TestDaily:
    def test_it_runs_once_a_day_at_that_time(self, by_hand):
        ran = []
        by_hand.scheduler.daily("09:00", function_name="tick")(lambda: ran.append(by_hand.clock.now()))
        by_hand.driver.run_until(START + timedelta(days=3))
        assert ran == [datetime(2030, 3, day, 9, tzinfo=UTC) for day in (18, 19, 20)]

    def test_it_stays_at_the_time_of_the_wall_when_the_clocks_change(self, by_hand):
        """On 31 March 2030 at two o'clock it is three in Berlin."""
        ran = []
        for at in ("09:00", "02:30"):
            name = f"at {at}"
            by_hand.scheduler.daily(at, "Europe/Berlin", function_name=name)(
                lambda at=at: ran.append((at, by_hand.clock.now()))
            )
        by_hand.driver.run_until(datetime(2030, 3, 30, tzinfo=UTC))
        ran.clear()
        by_hand.driver.run_until(datetime(2030, 4, 1, 23, tzinfo=UTC))
        nine = [moment for at, moment in ran if at == "09:00"]
        assert [moment.hour for moment in nine] == [8, 7, 7]
        half_past_two = [moment for at, moment in ran if at == "02:30"]
        assert half_past_two == [
            datetime(2030, 3, 30, 1, 30, tzinfo=UTC),
            datetime(2030, 3, 31, 1, 0, tzinfo=UTC),  # the first instant after the gap
            datetime(2030, 4, 1, 0, 30, tzinfo=UTC),
        ]


class TestFunctions:
    def test_the_function_stays_what_it_is(self, memory):
        decorated = memory.every(60)(tick)
        assert decorated is tick
        assert decorated() == "tick"
        assert memory.get_job(tick.job_id).name == f"{__name__}:tick"
        assert memory.run_now(tick.job_id) == "tick"

    def test_async_functions_too(self, memory):
        memory.every(60)(tock)
        assert memory.run_now(tock.job_id) == "tock"

    def test_options_are_those_of_schedule(self, memory):
        @memory.every(60, name="named", args=[1], kwargs={"second": 2}, retries=2, labels={"team": "a"}, max_runs=5)
        def add(first, second):
            return first + second

        job = memory.get_job(add.job_id)
        assert (job.name, job.labels, memory.run_now(job.id)) == ("named", {"team": "a"}, 3)

    def test_several_decorators_need_several_names(self, memory):
        @memory.every(60, name="often")
        @memory.daily("09:00", name="each day")
        def work():
            return "worked"

        assert [job.name for job in memory.list_jobs()] == ["each day", "often"]
        assert memory.get_job(work.job_id).name == "often"

    def test_the_same_name_twice_is_refused_with_what_to_do(self, memory):
        memory.every(60)(tick)
        with pytest.raises(InvalidSchedule, match=r"declared twice.*name=\.\.\.") as refused:
            memory.daily("09:00")(tick)
        assert refused.value.field == "name"
        assert memory.get_job(tick.job_id).trigger.every_seconds == 60

    def test_in_memory_anything_callable_will_do(self, memory):
        one, other = Clockwork("one"), Clockwork("other")

        def inner():
            return "inner"

        methods = (one.wind, other.wind, functools.partial(tick), Clockwork.make, Clockwork.stop)
        for function in (inner, lambda: "lambda", *methods, dict, print):
            assert memory.every(60)(function) is function
        jobs = memory.list_jobs()
        assert len(jobs) == 9
        results = [memory.run_now(job.id) for job in jobs]
        assert results == ["inner", "lambda", "one", "other", "tick", "made", "stopped", {}, None]

    def test_a_method_that_has_no_object_yet_is_refused(self, memory):
        with pytest.raises(InvalidSchedule, match="'self'"):
            memory.every(60)(Clockwork.wind)

    @pytest.mark.parametrize("what", ["inner function", "lambda", "method", "partial"])
    def test_on_a_file_what_cannot_be_found_again_is_refused_with_what_to_do(self, open_on_file, what):
        def inner():
            pass

        function = {
            "inner function": inner,
            "lambda": lambda: 1,
            "method": Clockwork().wind,
            "partial": functools.partial(tick),
        }[what]
        scheduler = open_on_file()
        with pytest.raises(InvalidSchedule, match=r"function_name=\.\.\. or register_function"):
            scheduler.every(60)(function)
        scheduler.every(60, function_name="work")(function)
        assert [job.name for job in scheduler.list_jobs()] == ["work"]

    def test_a_method_of_a_class_is_found_on_a_file(self, open_on_file):
        scheduler = open_on_file()
        scheduler.every(60, name="made")(Clockwork.make)
        assert open_on_file().run_now(scheduler.list_jobs()[0].id) == "made"

    def test_it_may_be_used_while_the_scheduler_runs(self, keeper):
        with keeper:
            decorated = keeper.every(0.05, function_name="tick")(lambda: "tick")
            assert ended(keeper, decorated.job_id)


PROGRAM = """
    import sys
    from noonmark import Scheduler

    scheduler = Scheduler("sqlite:///jobs.db")

    @scheduler.every({seconds})
    def beat():
        return "beat"

    {extra}

    for job in scheduler.list_jobs():
        print(job.id, job.name, scheduler._find(job.id).schedule.revision, job.next_run.isoformat())
"""
NIGHTLY = """@scheduler.daily("03:00", name="nightly")
    def backup():
        pass"""


class TestRestarts:
    @pytest.fixture
    def run(self, tmp_path):
        def start(seconds, extra=""):
            program = textwrap.dedent(PROGRAM.format(seconds=seconds, extra=extra))
            (tmp_path / "program.py").write_text(program, encoding="utf-8")
            done = subprocess.run(
                forked.script("program.py"), cwd=tmp_path, capture_output=True, text=True, timeout=SOON, check=False
            )
            assert (done.returncode, done.stderr) == (0, "")
            return [line.split() for line in done.stdout.splitlines()]

        return start

    def test_a_program_that_is_started_again_has_the_same_jobs(self, run):
        first = run(600, NIGHTLY)
        assert [name for _, name, _, _ in first] == ["__main__:beat", "nightly"]
        assert run(600, NIGHTLY) == first

    def test_another_trigger_is_a_new_revision_of_the_same_job(self, run):
        [[job, _, _, _]] = run(600)
        [[same, _, revision, _]] = run(1_200)
        assert (same, revision) == (job, "2")

    def test_a_job_whose_decorator_is_gone_stays_until_it_is_cancelled(self, run, tmp_path):
        before = run(600, NIGHTLY)
        assert run(600) == before
        scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}")
        [[beat, *_], [nightly, *_]] = before
        assert scheduler.cancel(nightly)
        assert [job.id for job in scheduler.list_jobs()] == [beat]
        assert scheduler.get_job(nightly).status is JobStatus.CANCELLED
        scheduler.close()


class TestTwins:
    PROGRAM = """
        from noonmark import Scheduler

        scheduler = Scheduler("sqlite:///jobs.db")

        @scheduler.every(hours=1)
        def tick(): pass

        scheduler.list_jobs()
    """

    def test_a_script_that_is_also_imported_is_told_that_it_has_two_jobs(self, tmp_path):
        (tmp_path / "app.py").write_text(textwrap.dedent(self.PROGRAM), encoding="utf-8")

        (tmp_path / "importer.py").write_text("import app", encoding="utf-8")

        def run(name):
            return subprocess.run(
                forked.script(name), cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
            ).stderr

        assert run("app.py") == run("app.py") == ""
        assert "app:tick and __main__:tick are two schedules of one function" in run("importer.py")
        assert "__main__:tick and app:tick are two schedules of one function" in run("app.py")
