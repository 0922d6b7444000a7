"""A node's reckoning of the store's time is never ahead of it, whatever the clock of its machine does."""

import pytest

from noonmark.core.instants import SECOND
from noonmark.driver.store_clock import CERTAIN, OUTDATED, StoreClock

START = 1_800_000_000 * SECOND


class World:
    """A store and a node, whose clocks run as they like; `true` is the store's time."""

    def __init__(self, *, rate=1.0, offset=0):
        self.true = START
        self.rate, self.offset = rate, offset
        self._monotonic = 5 * SECOND

    def micros(self):
        return self.true + self.offset

    def monotonic(self):
        return int(self._monotonic)

    def pass_(self, micros):
        self.true += micros
        self._monotonic += micros * self.rate

    def read(self, store_clock, there=0, back=0):
        """Ask the store, with so long a way there and back."""
        asked = store_clock.monotonic()
        self.pass_(there)
        time = self.true
        self.pass_(back)
        store_clock.note(time, asked)


@pytest.mark.parametrize("offset", [-90 * SECOND, 90 * SECOND, 3_600 * SECOND])
def test_the_clock_of_the_machine_does_not_matter(offset):
    world = World(offset=offset)
    store_clock = StoreClock(world)
    world.read(store_clock)
    world.pass_(3 * SECOND)
    world.offset = -offset
    assert store_clock.now() == world.true


@pytest.mark.parametrize("rate", [0.95, 1.0, 1.0005, 1.05, 1.1])
@pytest.mark.parametrize("way", [(0, 0), (2_000, 9_000), (40_000, 1_000)])
def test_it_is_never_ahead_once_two_times_are_known(rate, way):
    world = World(rate=rate)
    store_clock = StoreClock(world)
    world.read(store_clock, *way)
    world.pass_(SECOND)
    for step in range(200):
        world.read(store_clock, *(way if step % 2 else way[::-1]))
        for _ in range(5):
            world.pass_(SECOND)
            slack = 0 if rate in (0.95, 1.0) or world.rate * SECOND > SECOND + 60_000 else 60_000
            assert store_clock.now() <= world.true + slack
    assert world.true - store_clock.now() < (400_000 if rate < 1 else 100_000), "and hardly behind"


SLOW, QUICK = (20_000, 180_000), (300, 300)


def test_a_fast_clock_is_proven_by_the_sharpest_readings():
    """The first one comes while the machine is busy with the start of the program."""
    world = World(rate=1.05)
    store_clock = StoreClock(world)
    world.read(store_clock, *SLOW)
    for pause in (SECOND // 8, SECOND // 4):
        world.pass_(pause)
        world.read(store_clock, *QUICK)
    world.pass_(SECOND // 2)
    assert store_clock.now() <= world.true
    world.read(store_clock, *SLOW[::-1])
    world.pass_(5 * SECOND)
    assert store_clock.now() <= world.true, "what was proven is not forgotten for a slow answer"
    assert world.true - store_clock.now() < SLOW[0] + 50_000


@pytest.mark.parametrize("rate", [0.9, 1.0, 1.0005, 1.05, 1.2])
@pytest.mark.parametrize("seed", range(5))
def test_the_earliest_time_is_never_ahead_whatever_is_proven(rate, seed):
    world = World(rate=rate)
    store_clock = StoreClock(world)
    for n in range(200):
        world.read(store_clock, (n * n * 7_919 + seed * 1_299_709) % 90_000, (n * 104_729 + seed * 15_485_863) % 90_000)
        for step in range(3):
            assert store_clock.earliest() <= world.true
            assert store_clock.earliest() <= store_clock.now()
            world.pass_((n * n + step) * 611_953 % (3 * SECOND))
    assert store_clock.earliest() <= world.true
    world.read(store_clock)
    assert world.true - store_clock.earliest() <= 1
    world.pass_(5 * SECOND)
    assert world.true - store_clock.earliest() < 5 * SECOND * max(0.002, 1.002 - rate), "and hardly behind by then"


def test_it_is_certain_only_for_as_long_as_nothing_can_be_early():
    world = World()
    store_clock = StoreClock(world)
    world.read(store_clock, *SLOW)
    assert store_clock.is_certain
    world.pass_(SECOND)
    assert not store_clock.is_certain
    world.read(store_clock, *QUICK)
    assert store_clock.is_certain, "one reading is enough for the moment"
    world.pass_(SECOND)
    assert not store_clock.is_certain
    for _ in range(10):
        world.pass_(5 * SECOND)
        world.read(store_clock, *QUICK)
    world.pass_(2 * SECOND)
    assert store_clock.is_certain, "nothing has to be read any more"
    assert world.true - store_clock.earliest() <= QUICK[1] + CERTAIN


def test_a_clock_that_begins_to_run_fast_is_noticed_at_the_next_readings():
    world = World()
    store_clock = StoreClock(world)
    for _ in range(60):
        world.read(store_clock, *QUICK)
        world.pass_(5 * SECOND)
    world.rate = 1.05
    for _ in range(3):
        world.read(store_clock, *QUICK)
        world.pass_(5 * SECOND)
    assert store_clock.now() <= world.true


def test_a_store_whose_clock_was_set_back_a_little_is_not_slow_for_long():
    world = World()
    store_clock = StoreClock(world)
    for _ in range(10):
        world.read(store_clock, *QUICK)
        world.pass_(5 * SECOND)
    world.true -= SECOND // 2
    for _ in range(2):
        world.read(store_clock, *QUICK)
        world.pass_(5 * SECOND)
    assert 0 <= world.true - store_clock.now() <= QUICK[1]


def test_readings_that_follow_fast_do_not_push_out_older_ones():
    world = World(rate=1.0002)
    store_clock = StoreClock(world)
    world.read(store_clock, *QUICK)
    for _ in range(3_000):
        world.pass_(SECOND // 100)
        world.read(store_clock, *QUICK)
    world.pass_(5 * SECOND)
    assert store_clock.now() <= world.true
    assert world.true - store_clock.now() < 1_500


def test_a_slow_answer_does_not_slow_it_down():
    world = World()
    store_clock = StoreClock(world)
    world.read(store_clock)
    world.pass_(SECOND)
    world.read(store_clock, 0, SECOND)
    world.pass_(5 * SECOND)
    assert world.true - store_clock.now() == SECOND, "as late as the answer, and no later"


@pytest.mark.parametrize("jump", [-3_600 * SECOND, 3_600 * SECOND])
def test_it_follows_a_store_whose_clock_was_set(jump):
    world = World()
    store_clock = StoreClock(world)
    world.read(store_clock)
    world.pass_(5 * SECOND)
    world.true += jump
    for _ in range(3):
        world.read(store_clock)
        world.pass_(5 * SECOND)
        assert store_clock.now() == world.true


def test_time_that_passes_evenly_again_is_trusted_again():
    world = World(rate=1.05)
    store_clock = StoreClock(world)
    for _ in range(2):
        world.read(store_clock)
        world.pass_(5 * SECOND)
    world.rate = 1.0
    for _ in range(3):
        world.pass_(OUTDATED)
        world.read(store_clock)
    world.pass_(100 * SECOND)
    assert store_clock.now() == world.true
