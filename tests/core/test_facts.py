"""What Noonmark tells of itself: which facts there are, what each says, and where a chain of them ends."""

from dataclasses import replace

import pytest

from noonmark.core import facts
from noonmark.core.audit import Note
from noonmark.core.chains import MAX_DEPTH, Place, chain_of, concerns, place_of_emitted, place_of_fact
from noonmark.core.errors import InvalidSchedule
from noonmark.core.events import NOONMARK, Event, parse_event
from noonmark.core.facts import ENDS, Fact, of_lost_node, of_occurrence, of_schedule
from noonmark.core.ids import TRIGGER, event, manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.reactions import match
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from noonmark.core.triggers import EventTrigger
from noonmark.testing import factories
from noonmark.testing.factories import MINUTE, NOW

JOB = factories.schedule("job", name="nightly", labels={"team": "data"})


def ended(phase=Phase.FAILED, reason=Reason.ATTEMPTS_EXHAUSTED, *, origin=TRIGGER, **changes):
    return factories.occurrence(JOB, origin, phase=phase, reason=reason, **{"attempt": 3, **changes})


def run(error="Traceback (most recent call last):\n  ..\nValueError: no such table\n"):
    return Run(
        id="r", occurrence_id="o", attempt=3, node="n1", started=NOW, ended=NOW, outcome=Outcome.FAILED, error=error
    )


def caused_by(event_id, source=NOONMARK, payload=None):
    """An occurrence that an event has set off."""
    cause = Event(event_type="x", emitted=NOW, event_id=event_id, source=source, payload=payload or {})
    return ended(origin=event(event_id), payload=cause.to_envelope())


def test_every_end_but_that_of_an_edit_is_told():
    assert set(ENDS) == FINAL - {Phase.SUPERSEDED}
    assert all(fact == f"occurrence.{phase}" for phase, fact in ENDS.items())


def test_a_failure_says_what_an_alert_needs():
    told = of_occurrence(Fact.FAILED, JOB, ended(detail='{"attempt": 3, "max_attempts": 3}'), run=run())
    assert (told.event_type, told.source) == ("occurrence.failed", "noonmark")
    assert told.payload == {
        "occurrence_id": ended().id,
        "schedule_id": "schedule-of-job",
        "schedule_name": "nightly",
        "labels": {"team": "data"},
        "user": "ada",
        "target_kind": "function",
        "origin": "trigger",
        "phase": "failed",
        "reason": "attempts_exhausted",
        "summary": "The attempt failed, and it was the last one allowed.",
        "detail": {"attempt": 3, "max_attempts": 3},
        "nominal_at": "2030-03-17T17:47:00Z",
        "due_at": "2030-03-17T17:47:00Z",
        "attempt": 3,
        "retry_at": None,
        "late_seconds": None,
        "waited_for": None,
        "missed_count": 0,
        "missed_from": None,
        "missed_to": None,
        "error": "ValueError: no such table",
        "error_text": "Traceback (most recent call last):\n  ..\nValueError: no such table",
        "depth": 1,
        "chain": ["schedule-of-job"],
    }


def test_the_same_fact_is_the_same_event_and_another_one_is_another():
    ids = [
        of_occurrence(fact, JOB, one).event_id
        for fact, one in [
            (Fact.FAILED, ended()),
            (Fact.FAILED, ended(detail='{"x": 1}')),
            (Fact.RETRYING, ended()),
            (Fact.RETRYING, ended(attempt=2)),
            (Fact.FAILED, ended(origin=manual("k"))),
        ]
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4


def test_a_schedule_without_a_name_is_called_by_its_id():
    assert of_occurrence(Fact.FAILED, factories.schedule("x"), ended()).payload["schedule_name"] == "schedule-of-x"


@pytest.mark.parametrize(
    ("told", "line", "text"),
    [
        (None, "", ""),
        (run(error=None), "", ""),
        (run(error="  \n "), "", ""),
        (run(error="x" * 301), "x" * 299 + "…", "x" * 301),
        (run(error="a" * 1_000 + "\n" + "b" * 1_500), "b" * 299 + "…", "a" * 499 + "\n" + "b" * 1_500),
        (run(error="a\0\ud800"), "a\\0\\ud800", "a\\0\\ud800"),
    ],
)
def test_what_went_wrong_is_told_as_far_as_there_is_room(told, line, text):
    payload = of_occurrence(Fact.FAILED, JOB, ended(), run=told).payload
    assert (payload["error"], payload["error_text"]) == (line, text)


def test_a_damaged_detail_is_none():
    assert of_occurrence(Fact.FAILED, JOB, ended(detail="{")).payload["detail"] == {}


def test_a_gap_is_told_with_its_count():
    gap = ended(Phase.MISFIRED, Reason.LATE, missed_count=7, missed_first=NOW, missed_last=NOW + MINUTE)
    payload = of_occurrence(Fact.MISFIRED, JOB, gap).payload
    assert (payload["missed_count"], payload["missed_from"], payload["missed_to"]) == (
        7,
        "2030-03-17T17:47:00Z",
        "2030-03-17T17:48:00Z",
    )


def test_another_attempt_is_told_with_its_time():
    one = ended(Phase.PENDING, Reason.RETRY_SCHEDULED, due=NOW + MINUTE, first_due=NOW)
    payload = of_occurrence(Fact.RETRYING, JOB, one, run=run()).payload
    assert (payload["retry_at"], payload["due_at"]) == ("2030-03-17T17:48:00Z", "2030-03-17T17:47:00Z")


@pytest.mark.parametrize(("after", "late"), [(-5, False), (SECOND, False), (SECOND + 1, True)])
def test_late_is_more_than_a_second(after, late):
    assert facts.is_late(NOW, NOW + after) is late


@pytest.mark.parametrize(
    ("started", "waited_for", "seconds"), [(NOW + MINUTE, Reason.QUEUED, 60), (NOW + MINUTE, None, 60), (None, None, 0)]
)
def test_a_late_start_says_by_how_much(started, waited_for, seconds):
    one = ended(Phase.DISPATCHING, None, started=started, attempt=1)
    payload = of_occurrence(Fact.STARTED_LATE, JOB, one, waited_for=waited_for).payload
    assert (payload["late_seconds"], payload["waited_for"]) == (seconds, waited_for)
    assert (payload["reason"], payload["summary"]) == (None, Fact.STARTED_LATE.sentence)


def test_a_schedule_is_told_with_whoever_changed_it():
    note = Note(at=NOW, caller="key:ops", operation="schedule/pause", reason="maintenance")
    paused = replace(JOB, phase=SchedulePhase.PAUSED)
    told = of_schedule(Fact.SCHEDULE_PAUSED, paused, note=note)
    assert told.event_type == "schedule.paused"
    assert told.payload == {
        "schedule_id": "schedule-of-job",
        "schedule_name": "nightly",
        "labels": {"team": "data"},
        "user": "ada",
        "target_kind": "function",
        "trigger_type": "interval",
        "phase": "paused",
        "revision": 1,
        "at": "2030-03-17T17:47:00Z",
        "by": "key:ops",
        "reason": "maintenance",
        "failures_in_row": 0,
        "depth": 1,
        "chain": ["schedule-of-job"],
    }
    by_itself = of_schedule(Fact.SCHEDULE_PAUSED, paused, failures=3).payload
    assert (by_itself["by"], by_itself["reason"], by_itself["failures_in_row"]) == (None, "pause_on_failure", 3)
    without = of_schedule(Fact.SCHEDULE_CREATED, factories.schedule("x", trigger=None)).payload
    assert (without["trigger_type"], without["by"], without["reason"]) == (None, None, None)


@pytest.mark.parametrize(
    ("before", "after", "fact"),
    [
        ("active", "active", "updated"),
        ("paused", "paused", "updated"),
        ("active", "paused", "paused"),
        ("paused", "active", "resumed"),
        ("completed", "active", "updated"),
        ("paused", "deleted", "deleted"),
    ],
)
def test_a_change_has_its_name(before, after, fact):
    one, other = (replace(JOB, phase=SchedulePhase(phase)) for phase in (before, after))
    assert facts.change(one, other) == f"schedule.{fact}"


def test_a_lost_node_is_told_by_what_it_said_last():
    told = of_lost_node("n1", seen=NOW, started=NOW - MINUTE, version="1.0", load=2, routes=("http",))
    assert told.payload == {
        "node": "n1",
        "seen_at": "2030-03-17T17:47:00Z",
        "started_at": "2030-03-17T17:46:00Z",
        "version": "1.0",
        "load": 2,
        "routes": ["http"],
        "depth": 1,
    }
    again = of_lost_node("n1", seen=NOW + 1, started=NOW - MINUTE, version="1.0", load=2, routes=("http",))
    assert told.event_id != again.event_id


@pytest.mark.parametrize(
    ("one", "depth", "facts", "chain"),
    [
        (ended(), 1, 1, []),
        (caused_by("order-7", "shop"), 1, 1, []),
        (caused_by("evt3_occ_1", "shop"), 1, 1, []),
        (caused_by("evt3.1_occ_1", "shop"), 1, 1, []),
        (caused_by("evt3_occ_1", "schedule:first", {"chain": ["no fact"]}), 4, 1, []),
        (caused_by("evt3.1_occ_1", "schedule:first"), 4, 2, []),
        (caused_by("evt3.1_fact_1", payload={"chain": ["a"]}), 4, 2, ["a"]),
        (caused_by("evt3.1_fact_1", payload={"chain": "damaged"}), 4, 2, []),
        (caused_by("strange"), 1, 1, []),
        (ended(origin=event("evt3.1_x"), payload=None), 1, 1, []),
    ],
)
def test_a_fact_goes_on_with_the_chain_that_led_to_it(one, depth, facts, chain):
    assert place_of_fact(one) == Place(depth, facts)
    assert place_of_emitted(one) == Place(depth, facts - 1)
    told = of_occurrence(Fact.FAILED, JOB, one)
    assert told.event_id.startswith(f"evt{depth}.{facts}_fact_")
    assert (told.payload["depth"], told.payload["chain"]) == (depth, [*chain, "schedule-of-job"])


def test_an_event_says_where_it_stands_in_its_chain():
    assert [Place(3, 0).event_id("occ_1"), Place(3, 2).event_id("occ_1")] == ["evt3_occ_1", "evt3.2_occ_1"]
    emitted = place_of_emitted(caused_by("evt1.1_fact_1"))
    assert emitted == Place(2, 1)
    assert place_of_fact(caused_by(emitted.event_id("occ_1"), "schedule:first")) == Place(3, 2)


@pytest.mark.parametrize(
    ("place", "is_told"),
    [
        (Place(1, 1), True),
        (Place(MAX_DEPTH - 1, 1), True),
        (Place(MAX_DEPTH, 1), False),
        (Place(MAX_DEPTH, 0), False),
        (Place(2, 2), False),
        (Place(3, 2), False),
    ],
)
@pytest.mark.parametrize("source", [NOONMARK, "schedule:first"])
def test_no_chain_is_without_end_and_none_has_more_than_two_facts(place, is_told, source):
    told = of_occurrence(Fact.FAILED, JOB, caused_by(place.event_id("x"), source))
    assert (told is not None) is is_told


@pytest.mark.parametrize(
    ("source", "chain", "is_set_off"),
    [
        (NOONMARK, ["other"], True),
        (NOONMARK, ["schedule-of-alert"], False),
        (NOONMARK, ["schedule-of-alert", "other"], False),
        (NOONMARK, None, True),
        ("shop", ["schedule-of-alert"], True),
    ],
)
def test_no_schedule_is_set_off_by_what_its_own_runs_led_to(source, chain, is_set_off):
    alert = factories.schedule("alert", trigger=EventTrigger("occurrence.failed"))
    payload = {} if chain is None else {"chain": chain}
    told = Event(event_type="occurrence.failed", emitted=NOW, event_id="e", source=source, payload=payload)
    assert concerns(told, alert) is not is_set_off
    assert (match(told, alert, now=NOW) is not None) is is_set_off


@pytest.mark.parametrize(
    ("source", "event_id", "is_set_off"),
    [
        ("schedule:schedule-of-turn", "evt1_occ_1", False),
        ("schedule:schedule-of-turn", "evt5.2_occ_1", False),
        ("schedule:schedule-of-other", "evt1_occ_1", True),
        ("schedule:schedule-of-turn", "by-hand", True),
        ("shop", "evt1_occ_1", True),
    ],
)
def test_no_schedule_is_set_off_by_what_its_own_run_emitted(source, event_id, is_set_off):
    turn = factories.schedule("turn", trigger=EventTrigger("turned"))
    emitted = Event(event_type="turned", emitted=NOW, event_id=event_id, source=source)
    assert concerns(emitted, turn) is not is_set_off
    assert (match(emitted, turn, now=NOW) is not None) is is_set_off
    assert not concerns(replace(emitted, event_id=None), turn)


def test_a_payload_of_any_kind_has_no_chain():
    assert [chain_of(NOONMARK, one) for one in (None, 7, ["x"], {"chain": {}})] == [[]] * 4


def test_nobody_else_speaks_for_noonmark():
    now = from_micros(NOW)
    with pytest.raises(InvalidSchedule) as refused:
        parse_event({"event_type": "occurrence.failed", "source": "noonmark"}, now=now)
    [problem] = refused.value.problems
    assert problem.field == "source"
    assert "give any other" in problem.message
    tried = parse_event({"event_type": "occurrence.failed", "source": "me"}, now=now)
    assert (tried.event_type, tried.source) == ("occurrence.failed", "me")
