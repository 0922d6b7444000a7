"""The newest events are matched against filters, a trigger or a schedule."""

import pytest

from noonmark.core.errors import InvalidSchedule
from tests.operations.harness import FOREIGN, Harness

DATASETS = {"path": {"prefix": "/datasets/"}}
UPLOADED = {"type": "event", "event_type": "file_uploaded", "filters": DATASETS}


@pytest.fixture(scope="module")
def harness():
    """Six events of three types, a second apart."""
    made = Harness()
    for number, (kind, path) in enumerate(
        [
            ("file_uploaded", "/datasets/a"),
            ("file_deleted", "/datasets/a"),
            ("file_uploaded", "/other/b"),
            ("ping", None),
            ("file_uploaded", "/datasets/c"),
            ("file_deleted", "/other/b"),
        ]
    ):
        made.clock.advance(1)
        made("event/emit", event_type=kind, payload={} if path is None else {"path": path}, event_id=str(number))
    made.create(schedule_id="loader", trigger=UPLOADED)
    return made


def seen(answer):
    return [(one["event_id"], one["matches"]) for one in answer["events"]]


def test_filters_alone_are_held_against_events_of_any_type(harness):
    answer = harness("event/match", filters=DATASETS)
    assert seen(answer) == [("5", False), ("4", True), ("3", False), ("2", False), ("1", True), ("0", True)]
    assert (answer["checked"], answer["matched"]) == (6, 3)
    assert [one["why"] is None for one in answer["events"]] == [one["matches"] for one in answer["events"]]
    assert answer["events"][2]["why"].startswith("path: there is none")
    assert harness("event/match")["matched"] == 6


@pytest.mark.parametrize(
    "asked",
    [{"event_type": "file_uploaded", "filters": DATASETS}, {"trigger": UPLOADED}, {"schedule_id": "loader"}],
    ids=["filters", "trigger", "schedule"],
)
def test_the_last_events_of_the_type_are_looked_at_the_newest_first(harness, asked):
    assert seen(harness("event/match", **asked)) == [("4", True), ("2", False), ("0", True)]
    assert seen(harness("event/match", **asked, limit=2)) == [("4", True), ("2", False)]


def test_several_types_are_put_in_one_order(harness):
    types = ["file_deleted", "file_uploaded", "never"]
    assert seen(harness("event/match", event_type=types, limit=4)) == [(one, True) for one in "5421"]


def test_an_event_can_be_tried_before_it_is_emitted(harness):
    before = harness("event/list")
    asked = {"trigger": UPLOADED, "event": {"payload": {"path": "/datasets/x"}}}
    [tried] = harness("event/match", **asked)["events"]
    assert (tried["event_id"], tried["event_type"], tried["matches"]) == (None, "file_uploaded", True)
    asked["event"]["event_type"] = "ping"
    [tried] = harness("event/match", **asked)["events"]
    assert tried["why"] == "event_type: it is ping, and the trigger wants file_uploaded"
    assert harness("event/list") == before


def test_no_one_sees_the_events_or_schedules_of_others(harness):
    assert harness("event/match", caller=FOREIGN) == {"checked": 0, "matched": 0, "events": []}
    with pytest.raises(LookupError):
        harness("event/match", caller=FOREIGN, schedule_id="loader")


@pytest.mark.parametrize(
    ("asked", "code", "field"),
    [
        ({"filters": {"a": {"near": 1}}}, "invalid_trigger", "filters.a.near"),
        ({"filters": []}, "invalid_trigger", "filters"),
        ({"event_type": []}, "invalid_trigger", "event_type"),
        ({"event_type": 7}, "invalid_trigger", "event_type"),
        ({"trigger": {"type": "event"}}, "invalid_trigger", "event_type"),
        ({"trigger": {"type": "cron", "expression": "@daily"}}, "invalid_request", "trigger"),
        ({"trigger": UPLOADED, "filters": {}}, "invalid_request", "trigger"),
        ({"trigger": UPLOADED, "schedule_id": "loader"}, "invalid_request", "schedule_id"),
        ({"event": []}, "invalid_request", "event"),
        ({"event": {"payload": 1}}, "invalid_request", "event.event_type"),
        ({"event_type": "a", "event": {"when": 1}}, "invalid_request", "event.when"),
        ({"limit": 0}, "invalid_request", "limit"),
        ({"limit": 1_001}, "invalid_request", "limit"),
        ({"surprise": 1}, "invalid_request", "surprise"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_its_field(harness, asked, code, field):
    with pytest.raises(InvalidSchedule) as refused:
        harness("event/match", **asked)
    assert (refused.value.code, refused.value.field) == (code, field)


def test_triggers_are_the_schedules_that_events_trigger():
    harness = Harness()
    harness.create(schedule_id="hourly")
    harness.create(schedule_id="loader", trigger=UPLOADED, labels={"team": "data"})
    harness.create(schedule_id="sorter", trigger={"type": "event", "event_type": ["file_uploaded", "ping"]})

    def ids(**asked):
        return [one["schedule_id"] for one in harness("trigger/list", **asked)["triggers"]]

    assert ids() == ["loader", "sorter"]
    assert ids(event_type="ping") == ["sorter"]
    assert ids(event_type="file_uploaded", label="team=data") == ["loader"]
    page = harness("trigger/list", limit=1, newest_first=True)
    assert [one["schedule_id"] for one in page["triggers"]] == ["sorter"]
    assert ids(cursor=page["next_cursor"], newest_first=True) == ["loader"]
    harness("schedule/delete", schedule_id="sorter")
    assert (ids(), ids(include_deleted=True)) == (["loader"], ["sorter"])
    with pytest.raises(InvalidSchedule) as refused:
        harness("trigger/list", kind="cron")
    assert refused.value.field == "kind"
