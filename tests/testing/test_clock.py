"""The clock for tests: it moves when it is moved, and never back."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from noonmark.testing import FakeClock

START = datetime(2030, 5, 1, 12, tzinfo=UTC)


def test_it_stands_still():
    clock = FakeClock(START)
    assert clock.now() == clock.now() == START
    assert clock.micros() == clock.monotonic() == int(START.timestamp()) * 1_000_000


def test_it_shows_utc_for_any_input():
    clock = FakeClock(datetime(2030, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == START
    assert clock.now().tzinfo is UTC


@pytest.mark.parametrize("seconds", [1, 0.25, 0, 86_400, 0.000001])
def test_it_advances(seconds):
    clock = FakeClock(START)
    clock.advance(seconds)
    assert clock.now() == START + timedelta(seconds=seconds)


def test_it_does_not_run_backwards():
    clock = FakeClock(START)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    clock.move_to(START - timedelta(days=1))
    assert clock.now() == START


def test_it_moves_to_an_instant():
    clock = FakeClock(START)
    clock.move_to(START + timedelta(days=1))
    assert clock.now() == START + timedelta(days=1)


def test_a_naive_start_is_refused():
    with pytest.raises(ValueError, match="time zone"):
        FakeClock(datetime(2030, 5, 1))  # noqa: DTZ001 - that is the point
