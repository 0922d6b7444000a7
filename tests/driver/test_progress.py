"""What goes on is told of: of all deliveries together, under their fences, and not too often."""

import asyncio

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.core.settlement import RunInProgress
from noonmark.driver import loop
from noonmark.driver import loop as loop_module
from noonmark.driver.steps.reports import ProgressReport
from noonmark.testing.factories import NOW
from tests.driver.rig import Rig
from tests.driver.test_loop import HOUR, Place, turns
from tests.driver.test_steps import QUIET

SAID, MORE = {"output": "one"}, {"output": "one two"}


def say(rig, assignment, result=SAID):
    rig.target.report(assignment, RunInProgress(started=NOW, result=result))


def two(rig):
    schedules = [rig.create(uid, **QUIET) for uid in ("uid-1", "uid-2")]
    return schedules, [rig.started(one) for one in schedules]


def results(rig, made):
    return [[run.result for run in rig.runs(one)] for one in made]


class TestTheDuty:
    def test_all_are_reported_in_one_call(self):
        rig = Rig()
        made, given = two(rig)
        say(rig, given[0], MORE)
        say(rig, given[0])
        say(rig, given[1])
        assert rig.progress_once() == ProgressReport(written=2)
        assert results(rig, made) == [[SAID], [SAID]]
        assert rig.progress_once() == ProgressReport()
        assert rig.store.calls["progress"] == 1
        assert [run.node for run in rig.runs(made[0])] == ["node-a"]

    def test_what_could_not_be_written_is_kept_unless_there_is_something_newer(self):
        rig = Rig()
        made, given = two(rig)
        say(rig, given[0])
        say(rig, given[1])

        def newer():
            say(rig, given[1], MORE)

        rig.store.fail("progress")
        try:
            rig.progress_once()
        except StoreUnavailable:
            pass
        else:
            raise AssertionError("it was written")
        rig.store.meanwhile("progress", newer)
        assert rig.progress_once() == ProgressReport(written=2)
        assert results(rig, made) == [[SAID], [SAID]]
        assert rig.progress_once() == ProgressReport(written=1)
        assert results(rig, made) == [[SAID], [MORE]]

    def test_nothing_is_reported_about_ended_or_foreign_runs(self):
        rig = Rig(lease=SECOND)
        made, given = two(rig)
        say(rig, given[0])
        rig.target.end(given[0])
        say(rig, given[1])
        assert rig.settle_once().settled == 1
        other = Rig(rig, node="node-b")
        rig.advance(SECOND)
        assert other.claim_once().claimed == 1
        assert rig.progress_once() == ProgressReport(left=1)
        assert results(rig, made) == [[None], [None]]
        assert rig.renew_once().lost == 1
        assert rig.progress_once() == ProgressReport()
        assert rig.node.underway == {}

    def test_what_is_handed_back_leaves_what_it_had_put_out(self):
        rig = Rig()
        made, given = two(rig)
        say(rig, given[0])
        assert rig.progress_once() == ProgressReport(written=1)
        rig.driver.hand_back()
        assert rig.settle_once().settled == 2
        assert [(run.outcome, run.result) for run in rig.runs(made[0])] == [(Outcome.LEASE_LOST, SAID)]


def test_many_that_write_without_end_cost_one_call_at_a_time(monkeypatch):
    monkeypatch.setattr(loop_module, "PROGRESS_INTERVAL", SECOND // 20)

    async def story():
        place = Place()
        schedules = [place.create(f"uid-{number}") for number in range(10)]
        ones = [place.add(one, "one") for one in schedules]
        async with place.running():
            given = [await place.started(one) for one in ones]
            began, count = place.system.monotonic(), 0
            while place.store.calls["progress"] < 4:
                count += 1
                for assignment in given:
                    place.target.report(assignment, RunInProgress(started=NOW, result={"output": str(count)}))
                await asyncio.sleep(0)  # noqa: TID251 - no waiting
            calls, took = place.store.calls["progress"], place.system.monotonic() - began
            assert calls <= 1 + took // (SECOND // 20)
            last = [{"output": str(count)}]
            await turns(lambda: all([run.result for run in _runs(place, one)] == last for one in schedules))
            assert count > calls

    asyncio.run(story())


def test_a_loop_with_nothing_to_tell_asks_nothing():
    async def story():
        place = Place()
        occurrence = place.add(place.create(), "one")
        async with place.running():
            given = await place.started(occurrence)
            place.target.end(given)
            await turns(lambda: place.row(occurrence).ended is not None)
        assert place.store.calls["progress"] == 0

    asyncio.run(story())


def test_while_the_store_is_away_the_newest_waits_for_it(monkeypatch):
    monkeypatch.setattr(loop, "FIRST_RETRY", SECOND // 1_000)

    async def story():
        place = Place(lease=HOUR)
        schedule = place.create()
        occurrence = place.add(schedule, "one")
        async with place.running():
            given = await place.started(occurrence)
            place.store.fail("progress", times=3)
            place.target.report(given, RunInProgress(started=NOW, result=SAID))
            await turns(lambda: [run.result for run in _runs(place, schedule)] == [SAID])
            assert place.store.calls["progress"] == 4

    asyncio.run(story())


def _runs(place, made):
    return place.store.store.runs(made.uid)
