"""Edits of a schedule that two nodes plan all the time: each edit succeeds without retries by the caller."""

import os

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.triggers import IntervalTrigger
from tests.processes import work

COUNT = 50 if "NOONMARK_SOAK" in os.environ else 1
BAR = SECOND
"""So long one change takes at most, where `make soak` measures it."""
CLOCK = SystemClock()


class Changes:
    """Makes changes by the scheduler of the test, and keeps how long each took and how often it was decided."""

    def __init__(self, fleet, monkeypatch):
        self.fleet, self.took, self.decided = fleet, {}, []
        store = fleet.scheduler._store
        change = store.change

        def counted(uid, decide):
            def decide_once_more(snapshot, now):
                self.decided[-1] += 1
                return decide(snapshot, now)

            return change(uid, decide_once_more)

        monkeypatch.setattr(store, "change", counted)

    def make(self, what, schedule_id, **options):
        self.decided.append(0)
        began = CLOCK.monotonic()
        getattr(self.fleet.scheduler, what)(schedule_id, **options)
        self.took.setdefault(what, []).append(CLOCK.monotonic() - began)

    def longest(self):
        return {what: max(times) for what, times in self.took.items()}


@pytest.mark.parametrize("fleet", ["sqlite", "postgres"], indirect=True)
def test_a_schedule_that_fires_every_millisecond_can_be_changed_at_once(fleet, figure, monkeypatch):
    for _ in range(2):
        fleet.node(15.0, is_quiet=True)
    changes = Changes(fleet, monkeypatch)
    for number in range(COUNT):
        rapid = fleet.scheduler.schedule(work.nothing, trigger=IntervalTrigger(0.001), overlap="allow")
        fleet.until(lambda one=rapid: fleet.kept(one).counters.total > 0)
        changes.make("pause", rapid)
        assert fleet.phase(rapid) is SchedulePhase.PAUSED
        changes.make("resume", rapid)
        changes.make("update", rapid, labels={"number": str(number)}, timeout=number + 1)
        changes.make("delete", rapid)
        assert fleet.kept(rapid) is None
    longest = changes.longest()
    told = ", ".join(f"{what} {micros / 1_000:.0f} ms" for what, micros in longest.items())
    figure(f"every millisecond: {len(changes.decided)} changes, none refused; the longest of each: {told}")
    assert set(changes.decided) == {1}, "each was read, decided and written in one transaction"
    assert COUNT < 50 or max(longest.values()) < BAR
