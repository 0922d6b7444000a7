"""Events as they are emitted."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.errors import InvalidSchedule, NoonmarkError
from noonmark.core.event import parse_event
from tests.core.declared import HOSTILE, NOW, assert_fit_for_a_log, changed, json_values, junk, places

UPLOAD = {
    "event_id": "upload-7",
    "event_type": "file_uploaded",
    "source": "api",
    "payload": {"path": "in/a.csv", "tags": ["x"]},
}


def refused(document, now=NOW):
    with pytest.raises(InvalidSchedule) as caught:
        parse_event(document, now=now)
    return caught.value


def test_an_event_is_what_was_sent_and_when():
    event = parse_event(UPLOAD, now=NOW + timedelta(microseconds=7))
    assert (event.event_id, event.event_type, event.source) == ("upload-7", "file_uploaded", "api")
    assert event.payload == UPLOAD["payload"]
    assert event.emitted_at == NOW + timedelta(microseconds=7)


def test_an_event_can_be_a_key():
    assert {parse_event(UPLOAD, now=NOW): "upload"}[parse_event(UPLOAD, now=NOW)] == "upload"


def test_only_the_type_is_needed():
    event = parse_event({"event_type": "tick"}, now=NOW)
    assert (event.event_id, event.source, event.payload) == (None, "", {})
    assert parse_event({"event_type": "tick", "payload": None, "source": None, "event_id": None}, now=NOW) == event


def test_a_payload_may_fill_its_256_kib_to_the_last_byte():
    payload = "x" * (262_144 - len('""'))
    assert parse_event({"event_type": "tick", "payload": payload}, now=NOW).payload == payload


@given(json_values.filter(lambda value: value is not None))
def test_any_json_may_be_the_payload(payload):
    assert parse_event({"event_type": "tick", "payload": payload}, now=NOW).payload == payload


def test_later_changes_to_the_senders_payload_do_not_reach_the_event():
    tags = ["a"]
    event = parse_event({"event_type": "tick", "payload": {"tags": tags}}, now=NOW)
    tags.append("b")
    assert event.payload == {"tags": ["a"]}


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ("tick", "", "must be an object"),
        ({}, "event_type", "required"),
        ({"event_type": ""}, "event_type", "1 to 160 letters"),
        ({"event_type": "a/b"}, "event_type", "1 to 160 letters"),
        ({"event_type": "a" * 161}, "event_type", "1 to 160 letters"),
        ({"event_type": ["a"]}, "event_type", "1 to 160 letters"),
        ({"event_type": "a", "event_id": "x y"}, "event_id", "1 to 128 letters"),
        ({"event_type": "a", "source": "s" * 201}, "source", "0 to 200"),
        ({"event_type": "a", "source": "a\r\nb"}, "source", "control character"),
        ({"event_type": "a", "source": "noonmark"}, "source", "the source of system events"),
        ({"event_type": "a", "payload": {"x": 2**64}}, "payload", "64 bits"),
        ({"event_type": "a", "payload": "x" * 262_144}, "payload", "256 KiB"),
        ({"event_type": "a", "payload": "é" * 140_000}, "payload", "256 KiB"),
        ({"event_type": "a", "emitted": 0}, "emitted", "event_id, event_type, payload, source"),
    ],
)
def test_a_wrong_event_is_refused_where_it_is_wrong(document, field, words):
    error = refused(document)
    assert [problem.field for problem in error.problems] == [field]
    assert words in error.message


def test_all_problems_are_reported_at_once():
    error = refused({"event_type": "a b", "event_id": "", "source": 5, "payload": {1}, "when": "now"})
    assert {problem.field for problem in error.problems} == {"event_type", "event_id", "source", "payload", "when"}


def test_now_must_be_an_aware_datetime():
    assert refused(UPLOAD, now=datetime(2026, 1, 1)).field == "now"  # noqa: DTZ001 - that is the point


def test_the_moment_is_kept_in_utc():
    elsewhere = NOW.astimezone(tz=None)
    assert parse_event(UPLOAD, now=elsewhere).emitted_at.tzinfo is UTC


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_hostile_values_anywhere_end_in_our_error_or_in_an_event(value):
    for path in places(UPLOAD):
        try:
            parse_event(changed(UPLOAD, path, value), now=NOW)
        except InvalidSchedule as error:
            assert_fit_for_a_log(error)


@given(junk | st.fixed_dictionaries({"event_type": junk, "payload": junk, "source": junk, "event_id": junk}))
def test_junk_is_refused_and_nothing_else_happens(document):
    with pytest.raises(NoonmarkError) as caught:
        parse_event(document, now=NOW)
    assert_fit_for_a_log(caught.value)
