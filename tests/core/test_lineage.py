"""What made a schedule: how deep a chain is, what agents may make, and which schedules are the same."""

from dataclasses import asdict, replace
from datetime import datetime

import pytest

from noonmark.core.api_key import Scope
from noonmark.core.errors import Conflict, QuotaExceeded
from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.core.lineage import (
    AgentLimits,
    Lineage,
    Parent,
    check_children,
    check_depth,
    descend,
    fingerprint,
    narrowed,
    read_lineage,
    refuse_clone,
    stamp,
    with_end,
)
from noonmark.core.schedule import parse_schedule
from noonmark.testing.factories import NOW

LIMITS = AgentLimits()
AT = datetime.fromisoformat("2030-03-17T17:47:00+00:00")
CALL = {"target_kind": "task", "query": "Check the build."}
HOURLY = {"type": "interval", "every_seconds": 3600}


def test_a_chain_grows_by_the_schedule_and_the_session_of_its_run():
    first = descend(None, session_id="s1", tool_call_id="c1")
    assert first == Lineage(depth=1, session_id="s1", tool_call_id="c1", chain=("session:s1",))
    second = descend(Parent(uid="u1", schedule_id="a", lineage=first), session_id="s2")
    assert second == Lineage(
        depth=2, session_id="s2", schedule_id="a", parent="u1", chain=("session:s1", "schedule:a", "session:s2")
    )
    assert descend(Parent(uid="u0", schedule_id="plain", lineage=None)).chain == ("schedule:plain",)
    assert descend(None) == Lineage(depth=1)


def test_its_document_has_no_internal_ids():
    lineage = Lineage(depth=2, session_id="s", schedule_id="a", parent="u1", chain=("x",), fingerprint="f", agent="k")
    assert lineage.to_document() == {
        "session_id": "s", "schedule_id": "a", "tool_call_id": None, "depth": 2, "chain": ["x"], "scopes": None,
    }  # fmt: skip
    assert read_lineage({**lineage.to_record(), "chain": ["x"]}) == lineage
    narrow = replace(lineage, scopes=(Scope.PROPOSE, Scope.READ))
    assert narrow.to_document()["scopes"] == ["propose", "read"]
    assert read_lineage({**narrow.to_record(), "chain": ["x"], "scopes": ["propose", "read"]}) == narrow
    assert narrow.granted == {Scope.PROPOSE, Scope.READ}


def test_who_changes_a_target_passes_on_no_more_than_it_may_do():
    proposer = frozenset({Scope.READ, Scope.PROPOSE, Scope.ADMIN})
    assert narrowed(None, proposer) == Lineage(depth=0, scopes=(Scope.PROPOSE, Scope.READ))
    made = Lineage(depth=2, scopes=(Scope.READ, Scope.WRITE))
    assert narrowed(made, proposer).scopes == (Scope.PROPOSE, Scope.READ)
    assert narrowed(made, frozenset({Scope.RUN, Scope.WRITE})).scopes == (Scope.WRITE,)


@pytest.mark.parametrize(
    "damage", [{"depth": "2"}, {"session_id": 7}, {"chain": [7]}, {"depth": True}, {"agent": 1}, {"scopes": ["all"]}]
)
def test_a_damaged_record_is_refused(damage):
    with pytest.raises(ValueError, match=r"its lineage is invalid|is not a valid Scope"):
        read_lineage({**asdict(Lineage(depth=1)), **damage})


def test_depth_is_limited():
    check_depth(Lineage(depth=3), LIMITS)
    with pytest.raises(Conflict, match="may be 3 deep, and this one would be 4: session:s -> schedule:a"):
        check_depth(Lineage(depth=4, chain=("session:s", "schedule:a")), LIMITS)


def test_children_are_limited():
    check_children(Lineage(depth=2, schedule_id="a"), 20, 19)
    with pytest.raises(QuotaExceeded, match="runs of a have made 20 schedules"):
        check_children(Lineage(depth=2, schedule_id="a"), 20, 20)


def test_the_hourly_limit_is_a_bucket_that_is_full_after_an_hour():
    rate = LIMITS.rate
    assert rate.take(None, 31, now=NOW).granted == 30
    assert rate.take(NOW + 3600 * SECOND, 1, now=NOW).granted == 0
    assert replace(LIMITS, per_hour=0).rate.take(None, 1, now=NOW).granted == 0


@pytest.mark.parametrize(
    ("trigger", "end"),
    [
        (HOURLY, "2030-03-18T17:47:00Z"),
        ({"type": "cron", "expression": "0 9 * * *"}, "2030-03-18T17:47:00Z"),
        ({"type": "event", "event_type": "seen"}, "2030-03-18T17:47:00Z"),
        ({"type": "cron", "expression": "0 0 1 5 *"}, "2030-05-02T00:00:00Z"),
        ({"type": "event", "event_type": "seen", "start_at_utc": "2030-05-01T00:00:00Z"}, "2030-05-02T00:00:00Z"),
    ],
)
def test_a_trigger_without_an_end_gets_one(trigger, end):
    assert with_end(trigger, AgentLimits(lifetime=DAY_SECONDS * SECOND), now=NOW) == {**trigger, "end_at_utc": end}


@pytest.mark.parametrize(
    "trigger", [None, "daily", {"type": "once"}, {"type": "cron", "end_at_utc": "2031-01-01"}, {"type": "cron"}]
)
def test_other_triggers_stay_as_they_are(trigger):
    assert with_end(trigger, LIMITS, now=NOW) == trigger
    assert with_end(HOURLY, AgentLimits(lifetime=None), now=NOW) == HOURLY


def digest(**changes):
    document = {"trigger": HOURLY, "target": CALL, **changes}
    return fingerprint(parse_schedule(document, now=AT).to_document())


@pytest.mark.parametrize(
    "changes",
    [
        {"target": {**CALL, "query": "  check   the BUILD. "}},
        {"trigger": {**HOURLY, "start_at_utc": "2030-05-01T00:00:00Z"}},
        {"trigger": {**HOURLY, "end_at_utc": "2030-05-01T00:00:00Z", "jitter_seconds": 5}},
        {"name": "another", "description": "words", "labels": {"a": "b"}},
        {"target": {**CALL, "query": "Check\u200b the\u00a0\ufeffbuild\uff0e"}},
    ],
)
def test_clones_have_the_same_fingerprint(changes):
    assert digest(**changes) == digest()


def cron(expression, zone="Europe/Stockholm", **more):
    return {"type": "cron", "expression": expression, "timezone": zone, **more}


def calendar(**more):
    return {"type": "calendar", "timezone": "Europe/Stockholm", **more}


def values(*numbers):
    return {"kind": "values", "values": list(numbers)}


NINE = {"hour": values(9), "minute": values(0)}
FILTERED = {"type": "event", "event_type": ["a", "b"], "filters": {"name": ["x", "y"], "size": {"gt": 1}}}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (cron("0 9 * * 1-5"), cron("0  9 * * MON-FRI")),
        (cron("0 9 * * 1-5"), cron("0 0 9 * * 5,4,3,2,1")),
        (cron("0 9 * * 1-5"), cron("0 9 * * 1-5", "Europe/Berlin")),
        (cron("@daily", "UTC"), cron("0 0 * * *", "Etc/Zulu")),
        (cron("0 0 * * 0"), cron("0 0 * * 7", end_at_utc="2040-01-01T00:00:00Z")),
        (calendar(**NINE, day_of_week=values(1, 2)), calendar(**NINE, day_of_week=values(2, 1))),
        (calendar(**NINE), cron("0 9 * * *")),
        (
            {"type": "cron", "crons": ["0 9 * * *", "0 18 * * *"], "timezone": "UTC"},
            {"type": "cron", "crons": ["0 18 * * *", "0 9 * * *", "00 09 * * *"], "timezone": "UTC"},
        ),
        (FILTERED, {**FILTERED, "event_type": ["b", "a"], "filters": {"size": {"gt": 1}, "name": ["y", "x"]}}),
    ],
)
def test_the_spelling_of_a_trigger_makes_no_difference(first, second):
    assert digest(trigger=first) == digest(trigger=second)


@pytest.mark.parametrize(
    "changes",
    [
        {"target": {**CALL, "query": "Check the tests."}},
        {"target": {**CALL, "context": {"role": ["a"]}}},
        {"trigger": {**HOURLY, "every_seconds": 60}},
        {"trigger": None, "depends_on": [{"schedule_id": "up"}]},
    ],
)
def test_others_have_not(changes):
    assert digest(**changes) != digest()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (cron("0 9 * * 1-5"), cron("0 9 * * 1-4")),
        (cron("0 9 * * 1-5"), cron("0 9 * * 1-5", "Europe/London")),
        (cron("0 9 * * *", "Europe/Stockholm"), cron("0 9 * * *", "Africa/Lagos")),
        (cron("* * * * *"), cron("* * * 1,3,7,10 *")),
        (cron("30 2 * * *"), cron("30 2 * * *", dst={"gap": "skip"})),
        (calendar(**NINE, year=values(2031)), calendar(**NINE, year=values(2032))),
        (FILTERED, {**FILTERED, "filters": {"name": ["x", "z"], "size": {"gt": 1}}}),
    ],
)
def test_other_times_do(first, second):
    assert digest(trigger=first) != digest(trigger=second)


def test_a_refused_clone_names_the_first():
    assert "'first' has the same target and trigger already" in refuse_clone("first").message


def test_a_lineage_is_stamped_with_what_it_made():
    document = parse_schedule({"trigger": HOURLY, "target": CALL}, now=AT).to_document()
    assert stamp(Lineage(depth=1), document) == Lineage(depth=1, fingerprint=digest())
