"""Pings: what a call means, which occurrence it counts for, and what becomes of that one."""

from dataclasses import replace

import pytest

from noonmark.core.errors import InvalidSchedule, NotFound
from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros
from noonmark.core.interruption import is_alert, real_deadline
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.pings import (
    MAX_KEPT,
    Ping,
    Signal,
    begun,
    delivered,
    expecting,
    is_delivering,
    opened,
    parse_ping,
    ping_fields,
    restore_ping,
)
from noonmark.core.planner import occurrence
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.reasons import Reason
from noonmark.core.redaction import redact_ping
from noonmark.core.run import Outcome
from noonmark.core.schedule import declare_again, parse_schedule
from noonmark.core.settlement import begin, expire, settle
from noonmark.core.signatures import is_ping_token, ping_token, pinged_uid
from noonmark.core.system_events import SystemEvent, early_ping_id, of_occurrence, of_ping, unexpected_ping_id
from noonmark.core.targets import parse_target
from noonmark.core.targets.ping import Moment, PingTarget
from noonmark.core.targets.work import FunctionTarget
from tests.core.scheduled import NOON, at, moment, scheduled

TARGET = PingTarget(grace=60 * SECOND, early=10 * SECOND)
SCHEDULE = scheduled(target=TARGET)


def planned(seconds, phase=Phase.PENDING, schedule=SCHEDULE, **fields):
    row = occurrence(schedule, at(seconds), at(seconds))
    return replace(row, phase=phase, attempt=0 if phase is Phase.PENDING else 1, **fields)


@pytest.mark.parametrize(
    ("action", "signal", "status"),
    [
        ("", Signal.SUCCESS, None),
        ("start", Signal.START, None),
        ("fail", Signal.FAIL, None),
        ("0", Signal.SUCCESS, 0),
        ("1", Signal.FAIL, 1),
        ("255", Signal.FAIL, 255),
    ],
)
def test_the_end_of_the_url_says_what_happened(action, signal, status):
    ping = parse_ping(action, b"all\n")
    assert (ping.signal, ping.exit_status, ping.body) == (signal, status, "all\n")
    assert restore_ping(ping_fields(ping, None, now=NOON)) == ping


@pytest.mark.parametrize("action", ["256", "-1", "stop", "1000", "٣", "success"])
def test_any_other_end_is_unknown(action):
    with pytest.raises(NotFound, match="exit status from 0 to 255"):
        parse_ping(action, b"")


@pytest.mark.parametrize(
    ("body", "kept"),
    [(b"x" * MAX_KEPT + b"the end", "x" * (MAX_KEPT - 7) + "the end"), (b"a\0\xff", "a\\0\N{REPLACEMENT CHARACTER}")],
)
def test_the_end_of_a_body_is_kept_as_text(body, kept):
    assert parse_ping("", body).body == kept


@pytest.mark.parametrize("payload", [None, [], {}, {"signal": "stop"}, {"signal": ["start"]}])
def test_an_event_that_is_not_a_ping_is_ignored(payload):
    assert restore_ping(payload) is None


@pytest.mark.parametrize(
    ("ping", "result", "error"),
    [
        (Ping(signal=Signal.SUCCESS), {"ping": "success"}, None),
        (Ping(signal=Signal.SUCCESS, exit_status=0), {"ping": "success", "exit_status": 0}, None),
        (Ping(signal=Signal.FAIL), {"ping": "fail"}, "the job reported a failure"),
        (
            Ping(signal=Signal.FAIL, exit_status=3, body="disk full\n"),
            {"ping": "fail", "exit_status": 3, "output": "disk full\n"},
            "disk full\nthe job exited with status 3",
        ),
    ],
)
def test_what_is_stored_of_a_ping(ping, result, error):
    assert (ping.result, ping.error) == (result, error)


@pytest.mark.parametrize(
    ("live", "now", "counts_for"),
    [
        pytest.param([], 0, None, id="nothing is planned"),
        pytest.param([100], 0, None, id="too early"),
        pytest.param([100], 89, None, id="still too early"),
        pytest.param([100], 90, 100, id="early"),
        pytest.param([100], 100, 100, id="due, and not open yet"),
        pytest.param([(0, Phase.CLAIMED), 100], 0, 0, id="claimed"),
        pytest.param([(0, Phase.DISPATCHING), 100], 1, 0, id="about to be open"),
        pytest.param([(0, Phase.AWAITING_COMPLETION), 100], 30, 0, id="in its window"),
        pytest.param([(0, Phase.AWAITING_COMPLETION), 100], 95, 0, id="an open one comes before the next"),
        pytest.param([(100, Phase.AWAITING_COMPLETION), (0, Phase.AWAITING_COMPLETION)], 110, 0, id="the oldest"),
        pytest.param([200, 100], 100, 100, id="the next"),
    ],
)
def test_the_occurrence_that_a_ping_counts_for(live, now, counts_for):
    rows = [planned(one) if isinstance(one, int) else planned(*one) for one in live]
    found = expecting(rows, SCHEDULE, now=at(now))
    assert (None if found is None else found.nominal) == (None if counts_for is None else at(counts_for))


def test_a_paused_schedule_expects_only_what_is_open():
    paused = replace(SCHEDULE, phase=SchedulePhase.PAUSED)
    assert expecting([planned(0)], paused, now=at(0)) is None
    assert expecting([planned(0, Phase.AWAITING_COMPLETION)], paused, now=at(0)) is not None


def test_a_schedule_of_another_kind_expects_nothing_early():
    assert expecting([planned(1)], scheduled(), now=at(0)) is None
    assert opened(scheduled(), now=at(0)).deadline == at(0)


def test_an_occurrence_waits_for_its_first_ping_as_long_as_its_grace():
    waits = settle(planned(0, Phase.DISPATCHING), SCHEDULE, opened(SCHEDULE, now=at(1)), node="n")
    assert (waits.phase, waits.deadline) == (Phase.AWAITING_COMPLETION, at(61))


@pytest.mark.parametrize(
    ("timeout", "window", "deadline", "set_by"),
    [
        (None, None, 20 + DAY_SECONDS, "start"),
        (300 * SECOND, None, 320, "start"),
        (300 * SECOND, Window(duration=100 * SECOND, end_action=EndAction.CANCEL), 100, "window"),
    ],
)
def test_a_start_begins_the_timeout(timeout, window, deadline, set_by):
    schedule = scheduled(target=TARGET, timeout=timeout, window=window)
    for phase in (Phase.DISPATCHING, Phase.AWAITING_COMPLETION):
        occurrence = planned(0, phase, schedule, started=at(0), deadline=at(60))
        begins = begin(occurrence, schedule, begun(schedule, now=at(20)), node="n")
        assert (begins.begins, begins.phase, begins.run.started) == (True, Phase.AWAITING_COMPLETION, at(20))
        assert (begins.deadline, begins.facts["deadline_set_by"]) == (at(deadline), set_by)
        assert begins.occurrence is occurrence


@pytest.mark.parametrize(
    ("detail", "reason", "error"),
    [
        ('{"deadline_set_by": "target"}', Reason.COMPLETION_TIMED_OUT, "no ping came by 2026-11-15T12:01:00Z"),
        ('{"deadline_set_by": "start"}', Reason.TIMED_OUT, "no end within 40 s"),
        ("", Reason.COMPLETION_TIMED_OUT, "no ping came by 2026-11-15T12:01:00Z"),
    ],
)
def test_a_deadline_says_whether_a_ping_was_missed_or_the_job_took_too_long(detail, reason, error):
    schedule = scheduled(target=TARGET, timeout=40 * SECOND)
    occurrence = planned(0, Phase.AWAITING_COMPLETION, schedule, deadline=at(60), detail=detail)
    ended = expire(occurrence, schedule, now=at(61))
    assert (ended.phase, ended.reason, ended.run.error) == (Phase.TIMED_OUT, reason, error)


@pytest.mark.parametrize(
    ("started", "now", "run"),
    [(0, 30, (0, 30)), (None, 30, (30, 30)), (-1, -1, (0, 0)), (20, 30, (20, 30))],
    ids=["since it was open", "in passing", "early", "since it has begun"],
)
def test_a_run_never_starts_before_it_is_due(started, now, run):
    occurrence = planned(0, Phase.DISPATCHING, started=None if started is None else at(started))
    for signal, outcome in ((Signal.SUCCESS, Outcome.COMPLETED), (Signal.FAIL, Outcome.FAILED)):
        end = delivered(Ping(signal=signal), occurrence, now=at(now))
        assert (end.outcome, end.started, end.ended) == (outcome, at(run[0]), at(run[1]))


def test_only_a_delivery_is_ended_at_once():
    assert [phase for phase in Phase if is_delivering(planned(0, phase))] == [
        Phase.DISPATCHING,
        Phase.AWAITING_COMPLETION,
    ]


def test_the_event_of_an_early_ping_has_one_id_for_its_start_and_one_for_its_end():
    ids = {early_ping_id(one, is_start=is_start) for one in ("a", "b") for is_start in (True, False)}
    assert len(ids) == 4
    occurrence = planned(100)
    fields = ping_fields(Ping(signal=Signal.START), occurrence, now=at(95))
    event = of_ping(SystemEvent.PING_EARLY, SCHEDULE, early_ping_id(occurrence.id, is_start=True), fields)
    assert (event.event_type, event.source) == ("ping.early", "noonmark")
    assert event.payload["occurrence_id"] == occurrence.id
    assert event.payload["schedule_id"] == "s1"


def test_unexpected_pings_of_one_second_are_one_event():
    first, same, later, other = [
        unexpected_ping_id(uid, at(seconds)) for uid, seconds in (("a", 0), ("a", 0.9), ("a", 1), ("b", 0))
    ]
    assert first == same
    assert len({first, later, other}) == 3


def test_a_token_is_for_one_schedule_since_its_last_rotation():
    token = ping_token("key", uid="u-1", rotation=1)
    assert pinged_uid(token) == "u-1"
    assert is_ping_token(token, ("new", "key"), uid="u-1", rotation=1)
    for keys, uid, rotation in (((), "u-1", 1), (("key",), "u-2", 1), (("key",), "u-1", 2), (("other",), "u-1", 1)):
        assert not is_ping_token(token, keys, uid=uid, rotation=rotation)
    assert not is_ping_token("é", ("key",), uid="u-1", rotation=1)


@pytest.mark.parametrize(
    ("path", "logged"),
    [
        ("/ping/abc-123", "/ping/***"),
        ("/ping/abc-123?rid=1", "/ping/***"),
        ("/ping/abc-123/start", "/ping/***/start"),
        ("/ping/abc-123/3?x=/y", "/ping/***/3"),
        ("/ping/abc/123-token", "/ping/***"),
        ("/schedules", "/schedules"),
    ],
)
def test_logs_show_no_token(path, logged):
    assert redact_ping(path) == logged


@pytest.mark.parametrize(
    ("document", "target"),
    [
        ({}, PingTarget(grace=300 * SECOND, early=10 * SECOND)),
        (
            {"grace_seconds": 1.5, "early_seconds": 0, "rotation": 3},
            PingTarget(grace=3 * SECOND // 2, early=0, rotation=3),
        ),
    ],
)
def test_a_target_reads_back(document, target):
    read = parse_target({"target_kind": "ping", **document})
    assert read == target
    assert parse_target(read.to_document()) == target


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"grace_seconds": 0}, "grace_seconds"), ({"early_seconds": -1}, "early_seconds"), ({"token": "x"}, "token")],
)
def test_a_target_with_bad_fields_is_refused(fields, field):
    with pytest.raises(InvalidSchedule) as refused:
        parse_target({"target_kind": "ping", **fields})
    assert refused.value.field == f"target.{field}"


def document(**target):
    trigger = {"type": "interval", "every_seconds": 100, "start_at_utc": "2026-11-15T12:00:00Z"}
    return {"trigger": trigger, "target": {"target_kind": "ping", **target}}


def test_the_job_that_pings_retries_by_itself():
    with pytest.raises(InvalidSchedule) as refused:
        parse_schedule({**document(), "retry_policy": {"max_attempts": 2}}, now=moment(0))
    assert refused.value.field == "retry_policy"


@pytest.mark.parametrize("every", [100, 200], ids=["the same trigger", "another trigger"])
def test_a_declaration_keeps_the_url(every):
    stored = replace(SCHEDULE, declaration=parse_schedule(document(rotation=2), now=moment(0)))
    said = document(grace_seconds=5)
    said["trigger"]["every_seconds"] = every
    again = declare_again(said, stored, now=from_micros(NOON))
    assert (again.target.rotation, again.target.grace) == (2, 5 * SECOND)


def test_a_declaration_of_another_kind_has_no_url():
    stored = replace(SCHEDULE, declaration=parse_schedule(document(rotation=2), now=moment(0)))
    other = {**document(), "target": {"target_kind": "function", "function": "f"}}
    assert declare_again(other, stored, now=moment(0)).target == FunctionTarget(function="f")
    plain = replace(stored, declaration=parse_schedule(other, now=moment(0)))
    assert declare_again(document(), plain, now=moment(0)).target.rotation == 0


def test_urls_that_a_schedule_calls_read_back():
    said = {**document(), "ping_urls": {"start": "https://a.example/x", "failure": "https://a.example/x/fail"}}
    urls = parse_schedule(said, now=moment(0)).ping_urls
    assert [urls.url_for(one) for one in Moment] == ["https://a.example/x", None, "https://a.example/x/fail"]
    again = parse_schedule(parse_schedule(said, now=moment(0)).to_document(), now=moment(0))
    assert again.ping_urls == urls
    assert "a.example" not in repr(urls)


@pytest.mark.parametrize("nothing", [None, {}, {"start": None}])
def test_no_url_at_all_is_none(nothing):
    assert parse_schedule({**document(), "ping_urls": nothing}, now=moment(0)).ping_urls is None


@pytest.mark.parametrize(
    ("urls", "field"),
    [
        ({"start": "ftp://a.example"}, "ping_urls.start"),
        ({"success": 1}, "ping_urls.success"),
        ({"failure": "https://a.example/" + "x" * 5_000}, "ping_urls.failure"),
        ({"end": "https://a.example"}, "ping_urls.end"),
        ([], "ping_urls"),
    ],
)
def test_a_bad_url_is_refused_by_its_field(urls, field):
    with pytest.raises(InvalidSchedule) as refused:
        parse_schedule({**document(), "ping_urls": urls}, now=moment(0))
    assert refused.value.field == field


EXPECTING = scheduled(target=TARGET, expected=20 * SECOND)


@pytest.mark.parametrize(
    ("phase", "detail", "stop", "deadline", "real", "is_told"),
    [
        pytest.param(Phase.DISPATCHING, "", None, 20, None, True, id="runs"),
        pytest.param(Phase.DISPATCHING, "", None, None, None, False, id="runs, and was reported"),
        pytest.param(Phase.DISPATCHING, "", Reason.CANCELLED, 5, 5, False, id="is asked to stop"),
        pytest.param(
            Phase.AWAITING_COMPLETION, '{"deadline": "2026-11-15T12:01:00Z"}', None, 20, 60, True, id="is awaited"
        ),
        pytest.param(
            Phase.AWAITING_COMPLETION, '{"deadline": "2026-11-15T12:01:00Z"}', None, 60, 60, False, id="has to end"
        ),
        pytest.param(Phase.AWAITING_COMPLETION, "", None, 60, 60, False, id="by an earlier release"),
        pytest.param(Phase.AWAITING_COMPLETION, '{"deadline": 1}', None, 60, 60, False, id="damaged"),
        pytest.param(Phase.AWAITING_COMPLETION, "[]", None, 60, 60, False, id="damaged too"),
        pytest.param(Phase.PENDING, "", None, None, None, False, id="waits"),
    ],
)
def test_an_alert_is_not_a_deadline(phase, detail, stop, deadline, real, is_told):
    occurrence = planned(
        0, phase, EXPECTING, detail=detail, stop=stop, deadline=None if deadline is None else at(deadline)
    )
    assert real_deadline(occurrence) == (None if real is None else at(real))
    assert is_alert(occurrence) is is_told


def test_a_run_that_takes_longer_than_expected_goes_on():
    occurrence = planned(0, Phase.DISPATCHING, EXPECTING, started=at(0), deadline=at(20))
    told = expire(occurrence, EXPECTING, now=at(21))
    assert (told.is_overdue, told.phase, told.deadline) == (True, Phase.DISPATCHING, None)
    waits = settle(occurrence, EXPECTING, opened(EXPECTING, now=at(0)), node="n")
    assert (waits.deadline, waits.alert) == (at(60), at(20))
    event = of_occurrence(SystemEvent.OVERDUE, EXPECTING, occurrence)
    assert (event.event_type, event.payload["expected_seconds"]) == ("occurrence.overdue", 20)
    assert of_occurrence(SystemEvent.OVERDUE, SCHEDULE, occurrence).payload["expected_seconds"] is None


def test_what_is_expected_reads_back():
    schedule = parse_schedule({**document(), "expected_seconds": 1.5}, now=moment(0))
    assert (schedule.expected, schedule.to_document()["expected_seconds"]) == (3 * SECOND // 2, 1.5)
