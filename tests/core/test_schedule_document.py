"""The schedule document as a whole: what it may say, how it is refused, and that it reads back the same."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core import schedule
from noonmark.core.documents import MAX_FINGERPRINT, MAX_REMEMBERED
from noonmark.core.errors import InvalidSchedule, InvalidTrigger, NoonmarkError, TriggerNeverFires
from noonmark.core.instants import SECOND, to_micros, to_text
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.policies.delivery import Delivery, MissingTargetPolicy
from noonmark.core.policies.limits import Concurrency, Dependency, Horizon
from noonmark.core.policies.misfire import CatchUpOne
from noonmark.core.policies.misfire import Skip as SkipMisfire
from noonmark.core.policies.overlap import Queue
from noonmark.core.policies.overlap import Skip as SkipOverlap
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.schedule import Owner, Schedule, declare_again, parse_schedule, restore_schedule
from noonmark.core.triggers import CronTrigger, EventTrigger, OnceTrigger
from noonmark.core.triggers import parse as parse_module
from tests.core.declared import (
    FULL_SCHEDULE,
    FULL_TARGETS,
    HOSTILE,
    MINIMAL_SCHEDULE,
    NOW,
    assert_fit_for_a_log,
    changed,
    entangled,
    hostile_pairs,
    junk,
    places,
    target_documents,
)


def parse(document, *, now=NOW, key=""):
    return parse_schedule(document, now=now, key=key)


def minimal(**fields):
    return {**MINIMAL_SCHEDULE, **fields}


def once(due, **fields):
    return minimal(trigger={"type": "once", "due_at_utc": due}, **fields)


def refused(document, **arguments):
    with pytest.raises(InvalidSchedule) as caught:
        parse(document, **arguments)
    return caught.value


# Documents for agent sessions and mobs, as people write them.
HEALTH_CHECK = {
    "name": "hourly-health-check",
    "trigger": {"type": "interval", "start_at_utc": "2027-04-21T09:00:00Z", "every_seconds": 3600},
    "target": {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": {"model": "claude-sonnet-4-6", "system_prompt": "You are a health-check assistant."},
        "action": {"type": "prompt", "prompt": "Check system health and report anomalies."},
    },
    "misfire_policy": {"type": "skip"},
    "overlap_policy": "skip_if_running",
    "missing_target_policy": "mark_misfired",
}
TRIGGERS = {
    "once": {"type": "once", "due_at_utc": "2027-04-21T15:00:00Z"},
    "interval": {"type": "interval", "start_at_utc": "2027-04-21T09:00:00Z", "every_seconds": 3600},
    "interval with an end": {
        "type": "interval",
        "start_at_utc": "2027-04-21T09:00:00Z",
        "every_seconds": 3600,
        "end_at_utc": "2027-04-22T09:00:00Z",
    },
    "calendar": {
        "type": "calendar",
        "timezone": "Europe/Stockholm",
        "minute": {"kind": "values", "values": [0]},
        "hour": {"kind": "values", "values": [9]},
        "day_of_week": {"kind": "values", "values": [1, 2, 3, 4, 5]},
    },
    "event": {"type": "event", "event_type": "file_uploaded", "filters": {"path": {"prefix": "in/"}}},
    "cron": {"type": "cron", "expression": "H 3 * * *", "timezone": "America/New_York"},
    "crons": {"type": "cron", "crons": ["0 9 * * MON-FRI", "0 12 * * SAT"], "jitter_seconds": 2.5},
}


def test_the_health_check_reads_as_it_is_meant():
    declared = parse(HEALTH_CHECK)
    assert declared.name == "hourly-health-check"
    assert declared.trigger.next_after(NOW) == datetime(2027, 4, 21, 9, tzinfo=UTC)
    assert declared.target.action.prompt == "Check system health and report anomalies."
    assert declared.target.create.model == "claude-sonnet-4-6"
    assert declared.misfire_policy == SkipMisfire(grace=60 * SECOND)
    assert declared.overlap_policy == SkipOverlap()
    assert declared.missing_target_policy is MissingTargetPolicy.MARK_MISFIRED


@pytest.mark.parametrize("trigger", TRIGGERS.values(), ids=TRIGGERS)
@pytest.mark.parametrize("target", FULL_TARGETS.values(), ids=FULL_TARGETS)
def test_every_trigger_goes_with_every_target(trigger, target):
    stored = parse({"trigger": trigger, "target": target}).to_document()
    assert stored["target"] == target
    assert stored["trigger"].items() >= {"type": trigger["type"]}.items()


def test_a_full_document_keeps_every_field():
    assert parse(FULL_SCHEDULE).to_document() == FULL_SCHEDULE


def test_every_policy_is_written_out_and_nothing_else():
    assert parse(MINIMAL_SCHEDULE).to_document() == {
        "trigger": {"type": "cron", "expression": "@daily", "timezone": "UTC"},
        "target": {"target_kind": "function", "function": "tidy", "args": [], "kwargs": {}},
        "overlap_policy": "skip",
        "misfire_policy": {"type": "skip", "grace_seconds": 60},
        "missing_target_policy": "mark_misfired",
        "retry_policy": {"max_attempts": 1, "backoff_seconds": 1, "multiplier": 2, "max_backoff_seconds": 300},
        "delivery": "at_least_once",
        "planning_horizon_days": 30,
        "planning_horizon_occurrences": 1,
        "enabled": True,
    }


def test_an_omitted_field_has_the_documented_default():
    declared = parse(MINIMAL_SCHEDULE)
    assert declared.overlap_policy == SkipOverlap()
    assert declared.misfire_policy == SkipMisfire(grace=60 * SECOND)
    assert declared.missing_target_policy is MissingTargetPolicy.MARK_MISFIRED
    assert declared.retry_policy == RetryPolicy(max_attempts=1)
    assert declared.delivery is Delivery.AT_LEAST_ONCE
    assert declared.horizon == Horizon(days=30, occurrences=1)
    assert declared.enabled is True
    assert (declared.name, declared.schedule_id, declared.description, declared.labels) == (None, None, "", {})
    assert (declared.timeout, declared.window, declared.concurrency, declared.budget) == (None, None, None, None)
    assert (declared.pause_on_failure, declared.max_runs, declared.depends_on) == (None, None, ())


def test_events_queue_and_a_missed_once_is_caught_up():
    assert parse(minimal(trigger=TRIGGERS["event"])).overlap_policy == Queue(queue_limit=10_000)
    assert parse(minimal(trigger=TRIGGERS["once"])).misfire_policy == CatchUpOne()


def test_a_null_field_reads_as_an_absent_one():
    nothing = dict.fromkeys(set(FULL_SCHEDULE) - {"trigger", "target"})
    assert parse(minimal(**nothing)) == parse(MINIMAL_SCHEDULE)


@pytest.mark.parametrize("field", sorted({*schedule._READ_FIELDS, "concurrency_limit", "planning_horizon_occurrences"}))
def test_a_field_that_is_skipped_where_it_is_absent_is_read_where_it_is_not(field):
    assert parse(minimal(**{field: None})) == parse(MINIMAL_SCHEDULE)
    problems = refused(minimal(**{field: [-1]})).problems
    assert {one.field.partition(".")[0] for one in problems} == {field}
    assert not any(one.message.startswith("unknown field") for one in problems)


def test_a_schedule_may_follow_others_instead_of_a_clock():
    declared = parse({"target": MINIMAL_SCHEDULE["target"], "depends_on": [{"schedule_id": "load"}]})
    assert declared.trigger is None
    assert declared.depends_on == (Dependency(schedule_id="load", require_success=True),)
    assert "trigger" not in declared.to_document()
    assert restore_schedule(declared.to_document()) == declared


def test_a_concurrency_key_alone_is_a_mutex():
    assert parse(minimal(concurrency_key="db")).concurrency == Concurrency(key="db", limit=1)


def test_only_commands_and_workflows_can_be_suspended():
    window = {"duration_seconds": 60, "end_action": "pause"}
    for kind in ("command", "workflow"):
        assert parse(minimal(target=FULL_TARGETS[kind], window=window)).window.to_document() == window
    error = refused(minimal(window=window))
    assert error.field == "window.end_action"
    assert "command" in error.message


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        pytest.param(None, "", "must be an object", id="null"),
        pytest.param([MINIMAL_SCHEDULE], "", "must be an object", id="array"),
        pytest.param({"trigger": MINIMAL_SCHEDULE["trigger"]}, "target", "required", id="no target"),
        pytest.param(minimal(target={"target_kind": "smtp"}), "target.target_kind", "function, http", id="target kind"),
        pytest.param(minimal(name=""), "name", "1 to 200", id="empty name"),
        pytest.param(minimal(name="n" * 201), "name", "1 to 200", id="long name"),
        pytest.param(minimal(name="a\x1b[31m"), "name", "control character", id="escape in name"),
        pytest.param(minimal(name="a\nb"), "name", "control character", id="line break in name"),
        pytest.param(minimal(name="\udcff"), "name", "surrogate", id="surrogate in name"),
        pytest.param(minimal(name=5), "name", "must be text", id="number as name"),
        pytest.param(minimal(description="d" * 10_001), "description", "10,000", id="long description"),
        pytest.param(minimal(description="\0"), "description", "NUL", id="NUL in description"),
        pytest.param(minimal(schedule_id="a b"), "schedule_id", "1 to 128 letters", id="schedule id"),
        pytest.param(minimal(schedule_id=""), "schedule_id", "1 to 128 letters", id="empty schedule id"),
        pytest.param(minimal(schedule_id="é"), "schedule_id", "1 to 128 letters", id="accent in schedule id"),
        pytest.param(minimal(labels=["a"]), "labels", "object", id="labels an array"),
        pytest.param(minimal(labels={"": "v"}), "labels.", "the name must have 1 to 63", id="empty label"),
        pytest.param(minimal(labels={"k" * 64: "v"}), f"labels.{'k' * 60}", "the name must have 1 to 63", id="label"),
        pytest.param(minimal(labels={"a\tb": "v"}), 'labels."a\\tb"', "control character", id="tab in label"),
        pytest.param(minimal(labels={"a": "v" * 257}), "labels.a", "0 to 256", id="label value"),
        pytest.param(minimal(labels={"a": None}), "labels.a", "must be text", id="null label"),
        pytest.param(minimal(labels={str(n): "" for n in range(65)}), "labels", "at most 64", id="labels"),
        pytest.param(minimal(timeout_seconds=0), "timeout_seconds", "from 0.001", id="no time at all"),
        pytest.param(minimal(timeout_seconds="10s"), "timeout_seconds", "a number", id="timeout in words"),
        pytest.param(minimal(pause_on_failure=0), "pause_on_failure", "from 1", id="pause on failure"),
        pytest.param(minimal(pause_on_failure=True), "pause_on_failure", "an integer", id="pause on true"),
        pytest.param(minimal(max_runs=0), "max_runs", "from 1", id="no run at all"),
        pytest.param(minimal(max_runs=1.5), "max_runs", "an integer", id="max runs"),
        pytest.param(minimal(enabled="yes"), "enabled", "true or false", id="enabled"),
        pytest.param(minimal(concurrency_limit=2), "concurrency_limit", "concurrency_key", id="limit without key"),
        pytest.param(minimal(delivery="exactly_once"), "delivery", "at_least_once, at_most_once", id="delivery"),
        pytest.param(
            minimal(missing_target_policy="fail"), "missing_target_policy", "mark_misfired, skip", id="missing target"
        ),
        pytest.param(minimal(overlap_policy="never"), "overlap_policy", "skip, queue, queue_one", id="overlap"),
        pytest.param(minimal(misfire_policy={"type": "x"}), "misfire_policy.type", "skip, catch_up_one", id="misfire"),
        pytest.param(
            minimal(target={"target_kind": "event", "event_type": "a"}, retry_policy={"on": ["OSError"]}),
            "retry_policy.on",
            "is for functions alone, and the target is of kind event: it raises no exceptions",
            id="exceptions of no function",
        ),
        pytest.param(minimal(retry_policy={"max_attempts": 0}), "retry_policy.max_attempts", "from 1", id="retry"),
        pytest.param(minimal(budget={"max_usd": 1}), "budget.max_usd", "max_cost_usd", id="budget"),
        pytest.param(minimal(planning_horizon_days=0), "planning_horizon_days", "from 1", id="horizon"),
        pytest.param(
            minimal(planning_horizon_occurrences=65), "planning_horizon_occurrences", "to 64", id="horizon occurrences"
        ),
        pytest.param(
            minimal(depends_on=[{"schedule_id": "a"}, {"schedule_id": "a", "require_success": False}]),
            "depends_on[1].schedule_id",
            "twice",
            id="twice the same upstream",
        ),
        pytest.param(
            minimal(schedule_id="a", depends_on=[{"schedule_id": "a"}]), "depends_on", "itself", id="after itself"
        ),
        pytest.param(minimal(max_run=1), "max_run", "max_runs", id="typo"),
        pytest.param(minimal(phase="active"), "phase", "unknown field", id="phase"),
        pytest.param(minimal(revision=1), "revision", "unknown field", id="revision"),
        pytest.param(minimal(owner="me"), "owner", "unknown field", id="owner"),
        pytest.param(minimal(next_run_at=None), "next_run_at", "unknown field", id="next run"),
        pytest.param(minimal(created_at_utc="2026-01-01T00:00:00Z"), "created_at_utc", "unknown", id="created"),
        pytest.param({**MINIMAL_SCHEDULE, 7: 1}, "7", "unknown field", id="a key that is no text"),
    ],
)
def test_a_wrong_document_is_refused_where_it_is_wrong(document, field, words):
    error = refused(document)
    assert type(error) is InvalidSchedule
    assert error.code == "invalid_schedule"
    assert [problem.field for problem in error.problems] == [field]
    assert error.field == field
    assert words in error.message


def test_a_dozen_mistakes_are_a_dozen_problems():
    error = refused(
        {
            "schedule_id": "not an id",
            "name": "",
            "labels": {"a": 1, "b\n": ""},
            "trigger": {"type": "cron", "expression": "61 * * * *", "timezone": "Mars/Olympus"},
            "target": {"target_kind": "http", "method": "FETCH", "url": "example.com"},
            "overlap_policy": "sometimes",
            "misfire_policy": {"type": "skip", "grace_seconds": 0},
            "timeout_seconds": -1,
            "enabled": "no",
            "colour": "blue",
        }
    )
    assert [problem.field for problem in error.problems] == [
        "schedule_id",
        "name",
        "labels.a",
        'labels."b\\n"',
        "trigger.expression",
        "trigger.timezone",
        "target.method",
        "target.url",
        "overlap_policy",
        "misfire_policy.grace_seconds",
        "timeout_seconds",
        "enabled",
        "colour",
    ]
    assert type(error) is InvalidSchedule
    assert error.field == "schedule_id"
    assert "12 more" in error.message
    assert {problem.code for problem in error.problems if problem.field.startswith("trigger.")} == {"invalid_trigger"}


@pytest.mark.parametrize("trigger", [None, {}, "daily", {"type": "cron"}, {"type": "cron", "expression": "x y"}])
def test_when_only_the_trigger_is_wrong_the_error_says_so(trigger):
    error = refused(minimal(trigger=trigger))
    assert type(error) is InvalidTrigger
    assert error.field.split(".")[0] == "trigger"


@pytest.mark.parametrize("upstreams", [[], (), 5, None])
def test_a_schedule_needs_a_trigger_or_someone_to_follow(upstreams):
    error = refused({"target": MINIMAL_SCHEDULE["target"], "depends_on": upstreams})
    (problem,) = [problem for problem in error.problems if problem.field == "trigger"]
    assert "depends_on" in problem.message


def test_a_trigger_that_can_never_fire_is_told_apart():
    error = refused(minimal(trigger={"type": "cron", "expression": "0 0 30 2 *"}))
    assert type(error) is TriggerNeverFires
    assert error.code == "trigger_never_fires"


@pytest.mark.parametrize(
    ("due", "grace", "accepted"),
    [
        ("2026-11-15T12:00:01Z", None, True),
        ("2026-11-15T12:00:00Z", None, True),
        ("2026-11-15T11:59:00Z", None, True),
        ("2026-11-15T11:58:59.999999Z", None, False),
        ("2026-11-15T12:59:00+01:00", None, True),
        ("2026-11-15T11:50:00Z", 600, True),
        ("2026-11-15T11:49:59Z", 600, False),
        ("2026-11-15T11:59:58Z", 1, False),
    ],
)
def test_a_once_may_be_late_by_its_grace_and_no_more(due, grace, accepted):
    policy = None if grace is None else {"type": "catch_up_one", "grace_seconds": grace}
    document = once(due, misfire_policy=policy)
    if accepted:
        assert parse(document).trigger.next_after(NOW - timedelta(hours=1)) is not None
    else:
        error = refused(document)
        assert type(error) is TriggerNeverFires
        assert error.field == "trigger.due_at_utc"


@pytest.mark.parametrize(
    ("trigger", "field"),
    [
        ({"type": "cron", "expression": "@daily", "end_at_utc": "2026-11-14T00:00:00Z"}, "trigger"),
        (
            {
                "type": "interval",
                "every_seconds": 60,
                "start_at_utc": "2026-01-01T00:00:00Z",
                "end_at_utc": "2026-01-02T00:00:00Z",
            },
            "trigger",
        ),
        ({"type": "calendar", "year": {"kind": "values", "values": [2020]}}, "trigger"),
        ({"type": "event", "event_type": "x", "end_at_utc": "2026-11-15T11:59:59Z"}, "trigger.end_at_utc"),
    ],
)
def test_a_trigger_whose_times_are_all_past_is_refused(trigger, field):
    error = refused(minimal(trigger=trigger))
    assert type(error) is TriggerNeverFires
    assert error.field == field
    assert "in the past" in error.message


@pytest.mark.parametrize(
    "trigger",
    [
        {"type": "cron", "expression": "* * * * *", "end_at_utc": "2026-11-15T12:00:00Z"},
        {"type": "interval", "every_seconds": 60, "start_at_utc": "2020-01-01T00:00:00Z"},
        {"type": "event", "event_type": "x", "end_at_utc": "2026-11-15T12:00:00Z"},
        {"type": "event", "event_type": "x"},
    ],
)
def test_a_trigger_with_anything_left_is_accepted(trigger):
    assert parse(minimal(trigger=trigger)).trigger.to_document().items() >= trigger.items()


def test_a_past_trigger_is_one_problem_among_others():
    error = refused(once("2020-01-01T00:00:00Z", name="", target=None))
    assert type(error) is InvalidSchedule
    assert [(problem.field, problem.code) for problem in error.problems] == [
        ("name", "invalid_schedule"),
        ("target", "invalid_schedule"),
        ("trigger.due_at_utc", "trigger_never_fires"),
    ]


def test_now_and_the_key_fill_only_what_is_relative():
    delayed = parse(minimal(trigger={"type": "once", "delay_seconds": 90}))
    assert delayed.trigger.next_after(NOW) == NOW + timedelta(seconds=90)
    hashed = minimal(trigger={"type": "cron", "expression": "H H * * *"})
    assert parse(hashed, key="a") != parse(hashed, key="b")
    assert parse(hashed, key="a") == parse(hashed, key="a", now=NOW + timedelta(days=1))


def test_without_a_key_the_id_spreads_hashed_times_or_else_the_name():
    def trigger(key="", **fields):
        return parse(minimal(trigger={"type": "cron", "expression": "H H * * *"}, **fields), key=key).trigger

    assert trigger(name="a") == trigger(key="a")
    assert trigger(name="a", schedule_id="b") == trigger(key="b")
    assert trigger(name="a", schedule_id="b", key="c") == trigger(key="c")


@pytest.mark.parametrize("now", [datetime(2026, 11, 15), "2026-11-15T12:00:00Z", None])  # noqa: DTZ001 - that is the point
def test_now_must_be_an_aware_datetime(now):
    error = refused(MINIMAL_SCHEDULE, now=now)
    assert error.field == "now"


@pytest.mark.parametrize(
    "now", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC, month=1), NOW.astimezone(timezone.max)]
)
def test_any_moment_will_do(now):
    assert parse(MINIMAL_SCHEDULE, now=now).trigger.type == "cron"


def test_a_declaration_can_be_a_key():
    assert {parse(FULL_SCHEDULE): "full"}[parse(FULL_SCHEDULE)] == "full"


def test_later_changes_to_the_callers_document_do_not_reach_the_declaration():
    document = json.loads(json.dumps(FULL_SCHEDULE))
    declared = parse(document)
    document["labels"]["team"] = "other"
    document["target"]["env"]["LANG"] = "sv"
    assert declared == parse(FULL_SCHEDULE)


_moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
_instants = _moments.map(lambda moment: moment.isoformat().replace("+00:00", "Z"))
_seconds = st.integers(1, 10**6) | st.floats(0.001, 10**6)
_names = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=20)
_triggers = st.one_of(
    st.fixed_dictionaries({"type": st.just("once"), "due_at_utc": _instants}),
    st.fixed_dictionaries({"type": st.just("once"), "delay_seconds": _seconds}),
    st.fixed_dictionaries(
        {"type": st.just("interval"), "every_seconds": _seconds},
        optional={"start_at_utc": _instants, "jitter_seconds": _seconds},
    ),
    st.fixed_dictionaries(
        {"type": st.just("cron"), "expression": st.sampled_from(["*/5 * * * *", "H 3 L * *", "0 0 9 ? * MON#2"])},
        optional={"timezone": st.sampled_from(["UTC", "Europe/Stockholm"]), "dst": st.just({"gap": "skip"})},
    ),
    st.sampled_from([TRIGGERS["calendar"], TRIGGERS["crons"], TRIGGERS["event"]]),
)
_policies = {
    "schedule_id": st.text("abcXYZ019-_.:", min_size=1, max_size=128),
    "name": _names,
    "description": st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    "labels": st.dictionaries(_names, _names | st.just(""), max_size=4),
    "overlap_policy": st.sampled_from(["skip_if_running", "queue", {"type": "queue", "queue_limit": 3}, "allow"])
    | st.fixed_dictionaries({"type": st.just("cancel_running"), "cancel_grace_seconds": st.floats(0.001, 86_400)}),
    "misfire_policy": st.sampled_from(["none", "fire_immediately", "catchup_all"])
    | st.fixed_dictionaries({"type": st.just("catch_up_within"), "window_seconds": st.floats(1, 10**6)}),
    "missing_target_policy": st.sampled_from(["mark_misfired", "skip"]),
    "retry_policy": st.fixed_dictionaries(
        {}, optional={"max_attempts": st.integers(1, 100), "backoff_seconds": st.floats(0, 3_600)}
    ),
    "timeout_seconds": _seconds,
    "window": st.fixed_dictionaries(
        {"duration_seconds": _seconds}, optional={"end_action": st.sampled_from(["cancel", "none"])}
    ),
    "delivery": st.sampled_from(["at_least_once", "at_most_once"]),
    "pause_on_failure": st.integers(1, 1_000),
    "runaway": st.fixed_dictionaries(
        {}, optional={"max_fires_per_hour": st.integers(0, 9), "max_spend_factor": st.floats(1, 9)}
    ),
    "concurrency_key": _names,
    "depends_on": st.lists(_names, unique=True, max_size=3).map(
        lambda names: [{"schedule_id": f"upstream-{len(name)}-{name.encode().hex()[:64]}"} for name in names]
    ),
    "budget": st.fixed_dictionaries(
        {}, optional={"max_cost_usd": st.floats(0, 10**6), "max_tokens": st.integers(0, 9)}
    ),
    "max_runs": st.integers(1, 10**6),
    "accepts_payload": st.booleans(),
    "planning_horizon_days": st.integers(1, 366),
    "planning_horizon_occurrences": st.integers(1, 64),
    "enabled": st.booleans(),
}
schedule_documents = st.fixed_dictionaries({"trigger": _triggers, "target": target_documents}, optional=_policies)


@given(schedule_documents, _moments, st.text("ab", max_size=3))
def test_a_declaration_survives_being_stored(document, later, key):
    # Everything generated is due after this moment.
    declared = parse(document, now=datetime(1999, 12, 31, tzinfo=UTC), key=key)
    stored = json.loads(json.dumps(declared.to_document()))
    assert restore_schedule(stored) == declared
    assert hash(restore_schedule(stored)) == hash(declared)
    try:
        again = parse(stored, now=later, key=key)
    except TriggerNeverFires:
        assert declared.trigger.next_after(later) is None
    else:
        assert again == declared
        assert again.to_document() == stored


def test_what_is_stored_may_be_past():
    declared = parse(once("2026-11-15T13:00:00Z"))
    with pytest.raises(TriggerNeverFires):
        parse(declared.to_document(), now=NOW + timedelta(days=1))
    assert restore_schedule(declared.to_document()) == declared


@pytest.mark.parametrize("document", [None, {}, {"target": 5}, minimal(name=5), minimal(trigger="x")])
def test_a_stored_document_that_was_damaged_is_refused(document):
    with pytest.raises(InvalidSchedule):
        restore_schedule(document)


@pytest.mark.no_cover  # it takes long, and what it comes by is shown by tables
@pytest.mark.parametrize("changes", [{}, {"trigger": TRIGGERS["event"]}], ids=["by time", "by events"])
def test_hostile_values_anywhere_end_in_our_error_or_in_a_declaration(changes):
    document = {**FULL_SCHEDULE, **changes}
    for path, kind in hostile_pairs(document):
        try:
            try:
                parse(changed(document, path, HOSTILE[kind])).to_document()
            except InvalidSchedule as error:
                assert_fit_for_a_log(error)
        except Exception as error:
            error.add_note(f"{kind} at {path}")
            raise


@pytest.mark.parametrize("field", FULL_SCHEDULE)
def test_entangled_lists_end_in_our_error(field):
    assert_fit_for_a_log(refused({**FULL_SCHEDULE, field: entangled()}))


@given(junk)
def test_junk_is_refused_and_nothing_else_happens(document):
    with pytest.raises(NoonmarkError) as caught:
        parse(document)
    assert_fit_for_a_log(caught.value)


@given(st.data(), junk)
def test_junk_in_a_good_document_ends_in_our_error_or_in_a_declaration(data, value):
    path = data.draw(st.sampled_from(list(places(FULL_SCHEDULE))))
    try:
        parse(changed(FULL_SCHEDULE, path, value)).to_document()
    except NoonmarkError as error:
        assert_fit_for_a_log(error)


def test_a_schedule_is_a_declaration_that_is_kept():
    schedule = Schedule(
        uid="u1",
        schedule_id="nightly-report",
        owner=Owner(tenant="acme", user="ada"),
        declaration=parse(FULL_SCHEDULE),
        revision=1,
        phase=SchedulePhase.PAUSED,
        source="rest",
        created=0,
        updated=SECOND,
    )
    assert schedule.deleted is None
    assert to_text(schedule.updated) == "1970-01-01T00:00:01Z"
    with pytest.raises(AttributeError):
        schedule.revision = 2


def stored(document, *, created, **fields):
    declaration = parse_schedule(document, now=created, key="s1")
    return Schedule(
        uid="u1",
        schedule_id="s1",
        owner=Owner(tenant="t", user="u"),
        declaration=declaration,
        revision=1,
        phase=SchedulePhase.ACTIVE,
        source="test",
        created=to_micros(created),
        updated=to_micros(created),
        **fields,
    )


@pytest.mark.parametrize(
    "trigger",
    [
        {"type": "interval", "every_seconds": 10},
        {"type": "once", "delay_seconds": 3600},
        {"type": "cron", "expression": "H H * * *"},
        {"type": "cron", "expression": "@daily"},
    ],
)
def test_the_same_declaration_again_keeps_its_anchor(trigger):
    document = {"trigger": trigger, "target": {"target_kind": "function", "function": "f"}}
    created = datetime(2026, 11, 15, tzinfo=UTC)
    kept = stored(document, created=created)
    later = created + timedelta(days=3, seconds=7)
    assert declare_again(document, kept, now=later) == kept.declaration
    # Another policy does not move the anchor; another trigger is anchored now.
    patient = declare_again(document | {"retry_policy": {"max_attempts": 3}}, kept, now=later)
    assert patient.trigger == kept.declaration.trigger
    assert patient != kept.declaration
    other = document | {"trigger": {"type": "interval", "every_seconds": 20}}
    assert declare_again(other, kept, now=later) == parse_schedule(other, now=later, key="s1")


@pytest.mark.parametrize(
    ("change", "keeps"),
    [
        ({"start_at_utc": "2026-11-15T00:00:09Z"}, True),
        ({"start_at_utc": "2026-11-15T00:00:11Z"}, True),  # by a clock that is a little ahead
        ({"start_at_utc": "2026-11-15T00:00:12Z"}, False),
        ({"start_at_utc": "2026-11-15T00:00:09Z", "every_seconds": 20}, False),
        ({"start_at_utc": "2026-11-15T00:00:09Z", "jitter_seconds": 1}, False),
        ({"type": "cron", "expression": "* * * * *", "every_seconds": None, "start_at_utc": None}, False),
    ],
)
def test_an_interval_that_is_declared_again_with_only_another_past_start_is_unchanged_where_that_is_asked_for(
    change, keeps
):
    trigger = {"type": "interval", "every_seconds": 10, "start_at_utc": "2026-11-15T00:00:00Z"}
    document = {"trigger": trigger, "target": {"target_kind": "function", "function": "f"}}
    kept = stored(document, created=datetime(2026, 11, 15, tzinfo=UTC))
    again = document | {"trigger": {name: one for name, one in (trigger | change).items() if one is not None}}
    now = datetime(2026, 11, 15, 0, 0, 10, tzinfo=UTC)
    assert (declare_again(again, kept, now=now, keeps_past_start=True) == kept.declaration) is keeps
    assert declare_again(again, kept, now=now) != kept.declaration


def test_an_anchor_set_by_an_edit_is_kept_too():
    document = {
        "trigger": {"type": "interval", "every_seconds": 10},
        "target": {"target_kind": "function", "function": "f"},
    }
    created, edited = datetime(2026, 11, 15, tzinfo=UTC), datetime(2026, 11, 16, 0, 0, 3, tzinfo=UTC)
    kept = stored(document, created=edited, anchored=to_micros(edited))
    kept = replace(kept, created=to_micros(created))
    assert declare_again(document, kept, now=datetime(2026, 12, 1, tzinfo=UTC)) == kept.declaration


EVENT = {"type": "event", "event_type": "file_uploaded"}


def http(trigger=EVENT, **fields):
    target = {"target_kind": "http", "url": "https://example.com/", **fields}
    return minimal(trigger=trigger, target=target)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"body": {"a": ["{{payload}"]}}, "body", "has {{ without its }}"),
        ({"body": "{{ payload.x"}, "body", "has {{ without its }}"),
        ({"body": "{{payload}} {{ {{payload}}"}, "body", "has {{ without its }}"),
        ({"headers": {"X-A": "{{attempt} }"}}, "headers.X-A", "has {{ without its }}"),
        ({"url": "https://example.com/{{payload.a"}, "url", "has {{ without its }}"),
        (
            {"trigger": MINIMAL_SCHEDULE["trigger"], "body": "{{event}}"},
            "body",
            "only a schedule with an event trigger",
        ),
        ({"trigger": MINIMAL_SCHEDULE["trigger"], "body": "{{event.payload.x}}"}, "body", "with an event trigger"),
    ],
)
def test_a_placeholder_that_can_never_be_filled_in_is_refused(fields, field, message):
    (problem,) = refused(http(**fields)).problems
    assert problem.field == f"target.{field}"
    assert message in problem.message


@pytest.mark.parametrize(
    "body",
    [
        '{"a":{"b":{{payload.x}}}}',
        "{{{payload}}} }} {",
        ["{{event}}", "{{ event.payload.a.0 }}", "{{event.emitted_at}}{{event.event_id}}", {"{{": "{{event.source}}"}],
        ["{{event.type}}", "{{ event.path.name }}", "{{schedule.id}}{{ nominal_time }}"],
    ],
)
def test_one_that_can_be_is_not(body):
    assert parse(http(body=body)).target.body == body


def test_a_trigger_that_cannot_be_read_says_nothing_about_events():
    (problem,) = refused(http(trigger={"type": "event"}, body="{{event}}")).problems
    assert problem.field == "trigger.event_type"


def test_what_was_kept_before_can_be_read_and_declared_again_until_its_target_changes():
    old = http(MINIMAL_SCHEDULE["trigger"], body="{{payload")
    created = restore_schedule(old)
    schedule = replace(stored(MINIMAL_SCHEDULE, created=NOW), declaration=created)
    assert declare_again(old, schedule, now=NOW) == created
    with pytest.raises(InvalidSchedule, match=r"target\.body"):
        declare_again(http(MINIMAL_SCHEDULE["trigger"], body="{{payload.a"), schedule, now=NOW)


@pytest.mark.parametrize(
    ("target", "given", "after"),
    [
        (HEALTH_CHECK["target"], {}, 5),
        (HEALTH_CHECK["target"], {"pause_on_failure": None}, 5),
        (HEALTH_CHECK["target"], {"pause_on_failure": 0}, 0),
        (HEALTH_CHECK["target"], {"pause_on_failure": 3}, 3),
        ({"target_kind": "task", "query": "Why?"}, {}, 5),
        ({"target_kind": "event", "event_type": "due"}, {}, None),
    ],
)
def test_a_schedule_of_an_agent_is_paused_after_five_failures_unless_it_says_otherwise(target, given, after):
    declared = parse(minimal(target=target, **given))
    assert declared.pause_on_failure == after
    assert restore_schedule(declared.to_document()) == declared
    assert restore_schedule(declared.to_document() | {"pause_on_failure": None}).pause_on_failure is None


# What was read before is remembered.


def forget():
    schedule._policies_read.clear()
    schedule._targets_read.clear()
    parse_module._triggers_read.clear()


def without_memory(document):
    forget()
    return parse(document)


@pytest.mark.parametrize("target", FULL_TARGETS.values(), ids=FULL_TARGETS)
@pytest.mark.parametrize("trigger", [{"type": "event", "event_type": "upload"}, {"type": "once", "delay_seconds": 9}])
def test_what_is_read_a_second_time_is_the_same_under_other_names_and_times(target, trigger):
    document = minimal(target=target, timeout_seconds=30, overlap_policy="queue")
    others = document | {"trigger": trigger, "name": "other", "labels": {"team": "a"}, "description": "another one"}
    fresh = without_memory(others)
    without_memory(document)
    parse({**document, "trigger": trigger})
    again = parse(others)
    assert again == fresh
    assert again.to_document() == fresh.to_document()
    assert (again.name, again.labels, again.description) == ("other", {"team": "a"}, "another one")


def test_defaults_follow_the_kind_of_trigger_whatever_was_read_before():
    parse(minimal(trigger={"type": "once", "delay_seconds": 1}))
    assert isinstance(parse(minimal(trigger={"type": "event", "event_type": "e"})).overlap_policy, Queue)
    assert isinstance(parse(minimal(trigger={"type": "once", "delay_seconds": 2})).overlap_policy, SkipOverlap)
    assert isinstance(parse(minimal(trigger={"type": "once", "delay_seconds": 3})).misfire_policy, CatchUpOne)


def test_values_that_are_only_equal_are_not_taken_for_each_other():
    targets = [{"target_kind": "function", "function": "f", "args": [one]} for one in (1, True, 1.0, "1", None)]
    for target in targets * 2:
        assert [type(one) for one in parse(minimal(target=target)).target.args] == [type(target["args"][0])]


def test_what_is_wrong_beside_what_is_remembered_is_listed_in_full():
    parse(once("2030-01-01T00:00:00Z", name="good"))
    error = refused(once("2020-01-01T00:00:00Z", name=7, labels={"": "x"}))
    assert [problem.field for problem in error.problems] == ["name", "labels.", "trigger.due_at_utc"]
    with pytest.raises(TriggerNeverFires):
        parse(once("2020-01-01T00:00:00Z"))
    error = refused({**once("2030-01-01T00:00:00Z"), "nonsense": 1})
    assert [problem.field for problem in error.problems] == ["nonsense"]


def test_upstreams_are_compared_with_the_id_each_time():
    document = minimal(depends_on=[{"schedule_id": "a"}])
    parse({**document, "schedule_id": "b"})
    assert refused({**document, "schedule_id": "a"}).field == "depends_on"


def test_policies_depend_on_the_kind_of_the_target():
    agent, function = FULL_TARGETS["resumable session"], FULL_TARGETS["function"]
    assert parse(minimal(target=agent)).pause_on_failure == 5
    assert parse(minimal(target=function)).pause_on_failure is None
    assert parse(minimal(target=agent)).pause_on_failure == 5


def test_a_request_that_names_an_event_needs_one_each_time():
    target = {"target_kind": "http", "method": "POST", "url": "https://example.org", "body": "{{ event.payload.x }}"}
    event = {"type": "event", "event_type": "upload"}
    assert parse(minimal(target=target, trigger=event)).target == parse(minimal(target=target, trigger=event)).target
    parse(minimal())  # the policies alone are known for this trigger and another request, too
    parse(minimal(target={**target, "body": "none"}))
    assert refused(minimal(target=target)).field == "target.body"


def test_memory_is_bounded():
    forget()
    for number in range(MAX_REMEMBERED + 5):
        target = {"target_kind": "function", "function": "f", "args": [number]}
        parse(minimal(target=target, timeout_seconds=1 + number))
    large = {"target_kind": "function", "function": "f", "payload": "x" * MAX_FINGERPRINT}
    parse(minimal(target=large, timeout_seconds=1))
    assert (len(schedule._policies_read), len(schedule._targets_read)) == (6, 5)


def test_what_json_does_not_have_is_read_each_time():
    class Name(str):
        __slots__ = ()

    forget()
    target = {"target_kind": "function", "function": Name("f")}
    assert parse(minimal(overlap_policy=Name("queue"), target=target)).overlap_policy == Queue()
    assert (len(schedule._policies_read), len(schedule._targets_read)) == (0, 0)


@pytest.mark.parametrize(
    "trigger",
    [OnceTrigger(delay_seconds=90), CronTrigger("H * * * *", timezone="Europe/Stockholm"), EventTrigger("upload")],
)
def test_a_document_of_a_program_may_have_a_trigger_itself(trigger):
    document = parse(minimal(trigger=trigger.to_document()), key="daily")
    assert parse(minimal(trigger=trigger), key="daily") == document


def test_a_trigger_in_a_document_is_refused_as_its_document_would_be():
    trigger = OnceTrigger(delay_seconds=3_000_000_000)
    late = datetime(9990, 1, 1, tzinfo=UTC)
    errors = [refused(minimal(trigger=one), now=late) for one in (trigger, trigger.to_document())]
    assert {(error.field, error.message, error.code) for error in errors} == {
        ("trigger.delay_seconds", "ends after the year 9999", "invalid_trigger")
    }
