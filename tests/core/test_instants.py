"""Instants and lengths of time at their edges."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from noonmark.core.instants import (
    MAX_INSTANT,
    MIN_INSTANT,
    from_micros,
    micros_to_seconds,
    parse_instant,
    seconds_to_micros,
    to_micros,
    to_text,
)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.0000019Z", 1),  # digits beyond microseconds are dropped
        ("1970-01-01 01:00:00+01:00", 0),
        ("1969-12-31t23:59:59.999999z", -1),
        ("1970-01-01T00:00:00-00:00", 0),
        ("0001-01-01T00:00:00Z", MIN_INSTANT),
        ("9999-12-31T23:59:59.999999Z", MAX_INSTANT),
    ],
)
def test_text_to_micros(text, micros):
    assert parse_instant(text) == micros


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-01-01", "RFC 3339"),
        ("2026-01-01T00:00:00", "RFC 3339"),
        ("2026-01-01T00:00:00+0100", "RFC 3339"),
        ("٢٠٢٦-01-01T00:00:00Z", "RFC 3339"),
        ("2026-01-01T00:00:00Z\n", "RFC 3339"),
        ("2026-02-30T00:00:00Z", "not a real date"),
        ("2026-01-01T24:00:00Z", "not a real date"),
        ("2026-06-30T23:59:60Z", "not a real date"),
        ("2026-01-01T00:00:00+24:00", "offset"),
        ("2026-01-01T00:00:00+00:60", "offset"),
        ("0001-01-01T00:00:00+01:00", "years 1 to 9999"),
        ("9999-12-31T23:59:59-00:01", "years 1 to 9999"),
        (5, "RFC 3339"),
        (None, "RFC 3339"),
    ],
)
def test_what_names_no_instant(text, words):
    with pytest.raises(ValueError, match=words):
        parse_instant(text)


@pytest.mark.parametrize("micros", [MIN_INSTANT, -1, 0, 1, 1_700_000_000_123_456, MAX_INSTANT])
def test_the_faces_of_an_instant_agree(micros):
    assert to_micros(from_micros(micros)) == micros
    assert parse_instant(to_text(micros)) == micros
    assert from_micros(micros).tzinfo is UTC


def test_any_zone_is_converted_and_a_naive_datetime_refused():
    assert to_micros(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0
    for wrong in (datetime(2026, 1, 1), "2026-01-01T00:00:00Z", None, datetime.max.replace(tzinfo=timezone.min)):  # noqa: DTZ001
        with pytest.raises(ValueError, match="time zone"):
            to_micros(wrong)


@pytest.mark.parametrize(
    ("seconds", "micros"),
    [
        (1, 1_000_000),
        (0.29, 290_000),
        (0.1, 100_000),
        (1e-6, 1),
        (1.9e-6, 1),
        (0.0000009, 0),
        (3_155_760_000, 3_155_760_000_000_000),
    ],
)
def test_seconds_are_cut_at_the_microsecond_by_their_decimals(seconds, micros):
    assert seconds_to_micros(seconds) == micros


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_a_length_of_time_is_finite(wrong):
    with pytest.raises(ValueError, match="finite"):
        seconds_to_micros(wrong)


@pytest.mark.parametrize(("micros", "seconds"), [(2_000_000, 2), (1_500_000, 1.5), (1, 1e-06), (0, 0)])
def test_seconds_for_json(micros, seconds):
    shown = micros_to_seconds(micros)
    assert shown == seconds
    assert type(shown) is type(seconds)
