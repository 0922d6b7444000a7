"""The wrong clocks themselves, and nodes that use them."""

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros, to_micros
from noonmark.core.triggers import OnceTrigger
from tests.processes import work
from tests.processes.clocks import WrongClock, set_clock
from tests.processes.fleet import CLOCK

HOUR = 3_600


class StillClock(SystemClock):
    """Where the right time stands still until it is moved on."""

    right = 0

    def micros(self):
        return 1_000 * SECOND + self.right

    def monotonic(self):
        return self.right


class WrongStillClock(WrongClock, StillClock):
    """As wrong as the other, and not in a hurry."""


def test_a_wrong_clock_is_off_gains_and_is_set(tmp_path):
    file = tmp_path / "clock"
    clock = WrongStillClock(offset=-90, gain=0.05, file=file)
    assert (clock.micros(), clock.monotonic()) == (910 * SECOND, 0)
    clock.right = 100 * SECOND
    assert (clock.micros(), clock.monotonic()) == (1_015 * SECOND, 105 * SECOND)
    set_clock(file, 3_600.5)
    assert (clock.micros(), clock.monotonic()) == (int(4_615.5 * SECOND), 105 * SECOND)
    assert to_micros(clock.now()) == clock.micros()
    set_clock(file, -3_600)
    assert clock.micros() == -2_585 * SECOND


@pytest.mark.parametrize(
    ("clock", "ahead"), [({"offset": HOUR}, HOUR), ({"offset": -30}, -30), ({"gain": -0.05}, -0.05)]
)
def test_a_node_on_a_file_goes_by_its_own_clock(fleet, clock, ahead):
    """There the clock of each process is the store's. After a second, it is ahead by at least that much."""
    fleet.node(clock=clock)
    due = CLOCK.micros() + int((ahead + 2) * SECOND)
    job = fleet.scheduler.schedule(work.record, trigger=OnceTrigger(from_micros(due)))
    [begun] = fleet.until(lambda: fleet.journal.begins(job))
    assert begun["at"] >= due - ahead * SECOND
    fleet.completed([job])


def test_a_clock_that_is_set_while_its_node_runs_brings_what_is_due_then(fleet, tmp_path):
    file = tmp_path / "clock"
    fleet.node(clock={"file": str(file)})
    far, near = (
        fleet.scheduler.schedule(work.record, trigger=OnceTrigger(from_micros(CLOCK.micros() + seconds * SECOND)))
        for seconds in (DAY_SECONDS + HOUR, HOUR)
    )
    assert not fleet.journal.begins(near)
    set_clock(file, HOUR)
    fleet.until(lambda: fleet.journal.begins(near))
    assert not fleet.journal.begins(far)
    set_clock(file, DAY_SECONDS + HOUR)
    fleet.until(lambda: fleet.journal.begins(far))
    fleet.completed([near, far])
