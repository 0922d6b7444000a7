"""Explanations of occurrences: what every rule has to say, and the facts behind it."""

from dataclasses import replace

import pytest

from noonmark.core import ids
from noonmark.core.explain import Rule, explain_occurrence
from noonmark.core.explain.deciding_rule import DECIDED_BY
from noonmark.core.frozen import evolve
from noonmark.core.instants import SECOND, parse_instant, to_text
from noonmark.core.lifecycle import ENDINGS, LIVE, Phase, SchedulePhase
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.runaway import RunawayPolicy
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, progress_result
from noonmark.core.targets import TaskTarget
from noonmark.core.targets.http import HttpTarget
from noonmark.core.triggers import CronTrigger, EventTrigger
from tests.core.explained import ERROR, GAP, NOW, check, decisions, explained, row, run, step
from tests.core.scheduled import at, every, scheduled

ALL = misfire.CatchUpAll(limit=3)
TRIES = {"retry_policy": RetryPolicy(max_attempts=3)}
UPSTREAM = {"depends_on": (Dependency(schedule_id="extract"),)}


@pytest.mark.parametrize(
    ("phase", "reason"), [(phase, reason) for phase, reasons in ENDINGS.items() for reason in sorted(reasons)]
)
@pytest.mark.parametrize("began", [False, True])
def test_the_rule_that_ended_it_says_so_and_the_ones_after_it_were_not_asked(phase, reason, began):
    explanation = explained(reason, {}, {"phase": phase, "attempt": int(began)}, [])
    decided_by = Rule.RUNS if began else DECIDED_BY[reason]
    assert step(explanation, decided_by).decision == reason
    later = decisions(explanation)
    after = [str(rule) for rule in list(Rule)[list(Rule).index(decided_by) + 1 :]]
    assert {later[rule] for rule in after if rule in later} <= {"not_reached"}


PASSED = {"trigger": "named", "bounds": "within", "pause": "not_paused"}
AHEAD = dict.fromkeys(("misfire", "overlap"), "not_yet")
OVER = dict.fromkeys(("misfire", "overlap", "claim", "runs"), "not_reached")
FREE = {"misfire": "in_time", "overlap": "free"}


@pytest.mark.parametrize(
    ("fields", "decided"),
    [
        pytest.param({"nominal": 400}, PASSED | AHEAD | {"claim": "not_yet", "runs": "not_yet"}, id="to come"),
        pytest.param({"nominal": 300}, PASSED | AHEAD | {"claim": "due", "runs": "not_yet"}, id="due"),
        pytest.param(
            {"nominal": 0},
            PASSED | {"misfire": "late", "overlap": "not_yet", "claim": "not_yet", "runs": "not_yet"},
            id="overdue",
        ),
        pytest.param(
            {"phase": Phase.CLAIMED, "node": "n1"},
            PASSED | AHEAD | {"claim": "claimed", "runs": "not_yet"},
            id="claimed",
        ),
        pytest.param(
            {"waiting_for": Reason.QUEUED},
            PASSED | {"misfire": "in_time", "overlap": "queued", "claim": "not_yet", "runs": "not_yet"},
            id="waiting",
        ),
        pytest.param(
            {"phase": Phase.DISPATCHING, "attempt": 1, "started": 1},
            PASSED | {"misfire": "within_grace", "overlap": "free", "claim": "started", "runs": "running"},
            id="running",
        ),
        pytest.param(
            {"phase": Phase.DISPATCHING, "attempt": 1, "started": 100},
            PASSED | FREE | {"claim": "started", "runs": "running"},
            id="waited, and running",
        ),
        pytest.param(
            {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED, "attempt": 1, "caught_up": 250},
            PASSED | {"misfire": "caught_up", "overlap": "free", "claim": "started", "runs": "succeeded"},
            id="caught up",
        ),
        pytest.param(
            {"phase": Phase.SKIPPED, "reason": Reason.OVERLAP},
            PASSED | {"misfire": "in_time", "overlap": "overlap", "claim": "not_reached", "runs": "not_reached"},
            id="skipped",
        ),
        pytest.param(
            {"phase": Phase.CANCELLED, "reason": Reason.CANCELLED},
            PASSED | OVER | {"claim": "cancelled"},
            id="cancelled ahead",
        ),
        pytest.param(
            {"phase": Phase.SUPERSEDED, "reason": Reason.EDITED, "nominal": 50},
            {"trigger": "edited", "bounds": "not_reached", "pause": "not_reached"} | OVER,
            id="superseded",
        ),
        pytest.param(
            {"phase": Phase.SKIPPED, "reason": Reason.PAUSED},
            PASSED | {"pause": "paused"} | OVER,
            id="paused",
        ),
        pytest.param(
            {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED, "attempt": 1, "nominal": 50},
            PASSED | FREE | {"trigger": "named_before", "claim": "started", "runs": "succeeded"},
            id="named by the rule before an edit",
        ),
    ],
)
def test_every_rule_that_applies_says_what_it_decided(fields, decided):
    schedule = scheduled()
    explanation = explain_occurrence(schedule, row(schedule, **fields), now=NOW)
    check(explanation)
    assert decisions(explanation) == decided


def test_policies_that_are_declared_have_their_say():
    full = {
        "window": Window(duration=3_600 * SECOND),
        "concurrency": Concurrency(key="disk", limit=2),
        "max_runs": 7,
        "overlap_policy": overlap.Allow(),
        **UPSTREAM,
    }
    explanation = explained(Reason.SUCCEEDED, full, {"phase": Phase.COMPLETED, "attempt": 1}, [Outcome.COMPLETED])
    assert decisions(explanation) == PASSED | {
        "window": "window_open",
        "misfire": "within_grace",
        "dependencies": "met",
        "overlap": "allowed",
        "limits": "within",
        "claim": "started",
        "runs": "succeeded",
    }
    assert step(explanation, "window").facts == {
        "duration_seconds": 3_600,
        "end_action": "cancel",
        "closes_at": "2026-11-15T13:00:00Z",
    }
    assert step(explanation, "misfire").facts == {
        "policy": {"type": "skip", "grace_seconds": 60},
        "late_by_seconds": 1,
        "grace_seconds": 60,
    }
    assert step(explanation, "dependencies").facts == {
        "depends_on": [{"schedule_id": "extract", "require_success": True}]
    }
    assert step(explanation, "limits").facts == {"concurrency_key": "disk", "concurrency_limit": 2, "max_runs": 7}


def test_a_window_that_closes_while_it_waits_is_reported():
    waiting = {"waiting_for": Reason.QUEUED}
    declared = {"window": Window(duration=60 * SECOND)}
    assert decisions(explained(Reason.QUEUED, declared, waiting, []))["window"] == "window_closed"
    assert decisions(explained(Reason.QUEUED, declared, waiting, [], now=at(30)))["window"] == "window_open"


def test_the_step_that_decided_has_the_numbers():
    late = explained(Reason.LATE, {}, {"phase": Phase.MISFIRED, **GAP, "facts": {"late_by_seconds": 1_200}}, [])
    assert step(late, "misfire").facts == {
        "policy": {"type": "skip", "grace_seconds": 60},
        "missed_count": 12,
        "missed_from": "2026-11-15T12:00:00Z",
        "missed_to": "2026-11-15T12:18:20Z",
        "late_by_seconds": 1_200,
    }
    claimed = {"phase": Phase.MISFIRED, "facts": {"route": "function:tidy"}, "fence": 4, "losses": 2}
    missing = explained(Reason.TARGET_MISSING, {}, claimed | {"losses": 0}, [])
    assert step(missing, "claim").facts == {"route": "function:tidy", "claims": 4}


def test_numbers_of_an_earlier_attempt_are_not_told_of_this_one():
    schedule = scheduled(**TRIES)
    earlier = {"reason": Reason.RETRY_SCHEDULED, "facts": {"attempt": 1, "max_attempts": 3}}
    occurrence = row(schedule, phase=Phase.DISPATCHING, attempt=2, started=20, node="n2", **earlier)
    explanation = explain_occurrence(schedule, occurrence, [run(occurrence, outcome=Outcome.FAILED)], now=at(99))
    assert explanation.summary == "It is running: node `n2` started attempt 2 of 3 at 2026-11-15 12:00:20 UTC."
    assert step(explanation, "runs").facts["attempt"] == 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "It is running: a node started attempt 1 of 1."),
        (
            {"node": "n1", "started": 1, "stop": Reason.REPLACED},
            (
                "It is running: node `n1` started attempt 1 of 1 at 2026-11-15 12:00:01 UTC; it was asked to stop: a "
                "newer occurrence took its place."
            ),
        ),
        (
            {"stop": Reason.HALTED, "facts": {"halted_by": "ada", "halted_at": "03:00", "halt_reason": "a loop"}},
            (
                "It is running: a node started attempt 1 of 1; it was asked to stop: it was halted by `ada` at 03:00"
                " (a loop)."
            ),
        ),
    ],
)
def test_what_runs_is_shown_with_who_runs_it(fields, said):
    schedule = scheduled()
    occurrence = row(schedule, phase=Phase.DISPATCHING, attempt=1, **fields)
    explanation = explain_occurrence(schedule, occurrence, now=at(99))
    assert explanation.summary == said
    assert step(explanation, "runs").facts.get("asked_to_stop") == fields.get("stop")


def test_what_is_claimed_is_shown_with_who_claimed_it():
    schedule = scheduled()
    claimed = row(schedule, 400, phase=Phase.CLAIMED, node="n1", fence=1)
    said = "It has not run yet: node `n1` has claimed it, and starts it at 2026-11-15 12:06:40 UTC."
    assert explain_occurrence(schedule, claimed, now=NOW).summary == said


@pytest.mark.parametrize(
    ("policy", "caught_up", "fate"),
    [
        (misfire.Skip(), 0, "skip` drops it"),
        (misfire.CatchUpOne(), 0, "catch_up_one` decides whether it still runs"),
        (misfire.CatchUpAll(limit=9), 0, "catch_up_all` decides whether it still runs"),
        (misfire.CatchUpWithin(window=299 * SECOND), 0, "catch_up_within` drops it"),
        (misfire.Skip(), 1, "skip` drops it"),
    ],
)
def test_of_one_that_is_overdue_it_is_told_what_can_become_of_it(policy, caught_up, fate):
    schedule = scheduled(misfire_policy=policy)
    fields = {"caught_up": caught_up} if caught_up else {}
    explanation = explain_occurrence(schedule, row(schedule, **fields), now=NOW)
    check(explanation)
    late = "It has not run yet: it has been due since 2026-11-15 12:00:00 UTC, and no node took it up within 1 minute"
    assert explanation.summary == f"{late}; the misfire policy `{fate} as soon as a node plans the schedule again."


def test_a_pause_holds_what_the_schedule_asked_for_and_nothing_else():
    schedule = scheduled(phase=SchedulePhase.PAUSED)
    retry = row(schedule, attempt=1, reason=Reason.RETRY_SCHEDULED, due=400)
    held = explain_occurrence(schedule, retry, [run(retry, outcome=Outcome.FAILED)], now=NOW)
    check(held)
    assert held.summary == "It has not ended yet: the schedule is paused, and holds it until it is resumed."
    assert decisions(held) == PASSED | AHEAD | {"pause": "held", "claim": "not_yet", "runs": "failed"}
    by_hand = explain_occurrence(schedule, row(schedule, 400, origin=ids.manual("m1")), now=NOW)
    assert by_hand.summary == "It has not run yet: it is due at 2026-11-15 12:06:40 UTC."


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({}, None),
        ({"target": TaskTarget(query="look")}, {"max_fires_per_hour": 60, "max_spend_factor": 5}),
        ({"runaway": RunawayPolicy(max_identical_results=3)}, {"max_identical_results": 3}),
    ],
)
def test_the_rules_of_the_runaway_guard_are_shown_with_their_defaults(fields, rules):
    schedule = scheduled(**fields)
    assert step(explain_occurrence(schedule, row(schedule), now=NOW), Rule.PAUSE).facts.get("runaway") == rules


def test_an_open_run_of_one_that_was_taken_over_is_shown_as_running():
    schedule = scheduled()
    taken = row(schedule, phase=Phase.CLAIMED, losses=1)
    assert step(explain_occurrence(schedule, taken, [run(taken, ended=None)], now=NOW), "runs").decision == "running"


@pytest.mark.parametrize(
    ("origin", "decided"),
    [
        (ids.manual("m1"), {"trigger": "asked_for"}),
        (ids.backfill("b1"), {"trigger": "backfilled"}),
        (ids.event("e1"), {"trigger": "event_matched", "bounds": "within", "pause": "not_paused"}),
    ],
)
def test_what_else_asked_for_it_is_told_and_rules_of_the_trigger_do_not_apply(origin, decided):
    schedule = scheduled(**UPSTREAM, max_runs=2)
    finished = row(schedule, 50, origin=origin, phase=Phase.COMPLETED, reason=Reason.SUCCEEDED, attempt=1)
    explanation = explain_occurrence(schedule, finished, now=NOW)
    check(explanation)
    limited = {"limits": "within"} if "bounds" in decided else {}
    expected = decided | {"overlap": "free", "claim": "started", "runs": "succeeded"} | limited
    assert decisions(explanation) == expected


@pytest.mark.parametrize(("payload", "event_type"), [({"event_type": "uploaded"}, "uploaded"), (None, None)])
def test_an_event_is_shown_by_its_type(payload, event_type):
    schedule = scheduled(EventTrigger("uploaded"))
    explanation = explain_occurrence(schedule, row(schedule, origin=ids.event("e1"), payload=payload), now=NOW)
    facts = step(explanation, "trigger").facts
    assert (facts["origin"], facts.get("event_type")) == ("event:e1", event_type)
    assert facts["trigger"] == "When uploaded is emitted"


def test_a_schedule_without_a_trigger_was_triggered_by_its_upstreams():
    one = scheduled(**UPSTREAM)
    one = evolve(one, declaration=replace(one.declaration, trigger=None))
    occurrence = row(one, waiting_for=Reason.DEPENDENCY_PENDING)
    explanation = explain_occurrence(one, occurrence, now=NOW)
    assert step(explanation, "trigger").decision == "upstreams_ended"
    assert step(explanation, "misfire").decision == "does_not_apply"


@pytest.mark.parametrize(
    ("expression", "nominal", "decision", "told"),
    [
        ("0 12 * * *", "2026-11-15T11:00:00Z", "ordinary", {"local_time": "2026-11-15T12:00"}),
        (
            "30 2 * * *",
            "2026-03-29T01:00:00Z",
            "moved",
            {"swallowed": ["2026-03-29T02:30"], "clock_jumps_from": "2026-03-29T02:00"},
        ),
        (["30 2 * * *", "0 3 * * *"], "2026-03-29T01:00:00Z", "merged", {"swallowed": ["2026-03-29T02:30"]}),
        ("*/30 * * * *", "2026-03-29T01:00:00Z", "ordinary", {"dst": [{"gap": "skip", "fold": "both"}]}),
        ("0,15,30,45 2 * * *", "2026-03-29T01:00:00Z", "moved", {"clock_jumps_to": "2026-03-29T03:00"}),
        ("30 2 * * *", "2026-10-25T00:30:00Z", "first_pass", {"utc_offset_seconds": 7_200}),
        ("30 * * * *", "2026-10-25T01:30:00Z", "second_pass", {"utc_offset_seconds": 3_600}),
    ],
)
def test_what_a_change_of_the_clock_did_to_a_fire_is_reported(expression, nominal, decision, told):
    schedule = scheduled(CronTrigger(expression, "Europe/Berlin"))
    time = parse_instant(nominal)
    explanation = explain_occurrence(schedule, evolve(row(schedule), nominal=time, due=time, first_due=time), now=NOW)
    check(explanation)
    assert step(explanation, "dst").decision == decision
    assert {"timezone": "Europe/Berlin", **told}.items() <= step(explanation, "dst").facts.items()


def test_a_jump_of_a_day_moves_nothing():
    # Apia had no 30 December 2011; the day after it begins as usual.
    schedule = scheduled(CronTrigger("0 0 * * *", "Pacific/Apia"))
    time = parse_instant("2011-12-30T10:00:00Z")
    explanation = explain_occurrence(schedule, evolve(row(schedule), nominal=time), now=NOW)
    assert step(explanation, "dst").decision == "ordinary"


def test_the_missed_before_a_caught_up_one_are_reported():
    schedule = scheduled(misfire_policy=ALL)
    gap = row(schedule, phase=Phase.MISFIRED, reason=Reason.CATCH_UP_LIMIT, **GAP)
    explanation = explain_occurrence(schedule, row(schedule, 1_200, caught_up=1_230), now=at(1_231), gap=gap)
    check(explanation)
    explanation = explain_occurrence(
        schedule, row(schedule, 1_200, caught_up=1_230, waiting_for=Reason.QUEUED), now=NOW, gap=gap
    )
    facts = step(explanation, "misfire").facts
    assert facts["caught_up_at"] == "2026-11-15T12:20:30Z"
    assert facts["missed_before"] == {
        "missed_count": 12,
        "missed_from": "2026-11-15T12:00:00Z",
        "missed_to": "2026-11-15T12:18:20Z",
    }


def test_only_the_newest_runs_are_listed_and_those_of_others_never():
    schedule = scheduled(retry_policy=RetryPolicy(max_attempts=20))
    occurrence = row(schedule, phase=Phase.FAILED, reason=Reason.ATTEMPTS_EXHAUSTED, attempt=20)
    runs = [run(occurrence, 10 * n, 10 * n + 1, outcome=Outcome.FAILED, attempt=n, error=ERROR) for n in range(1, 21)]
    other = row(schedule, 100)
    explanation = explain_occurrence(schedule, occurrence, [*runs, run(other)], now=NOW)
    facts = step(explanation, "runs").facts
    assert [one["attempt"] for one in facts["runs"]] == list(range(11, 21))
    assert facts["earlier_runs"] == 10
    assert facts["runs"][-1] == {
        "run_id": f"{occurrence.id}-20",
        "attempt": 20,
        "node": "n1",
        "started_at": "2026-11-15T12:03:20Z",
        "ended_at": "2026-11-15T12:03:21Z",
        "outcome": "failed",
        "error": "ValueError: no disk",
        "told": (
            "Attempt 20 on node n1 began at 2026-11-15 12:03:20 UTC, and failed after 1 second: ValueError: no disk"
        ),
    }


def test_an_edit_since_then_is_reported():
    schedule = scheduled(revision=3)
    facts = step(explain_occurrence(schedule, row(schedule, revision=1), now=NOW), "trigger").facts
    assert (facts["revision"], facts["revision_now"]) == (1, 3)


def test_a_due_time_that_was_moved_is_shown_beside_the_first():
    schedule = scheduled()
    facts = step(explain_occurrence(schedule, row(schedule, due=400, first_due=5), now=NOW), "trigger").facts
    assert (facts["due_at"], facts["first_due_at"]) == ("2026-11-15T12:06:40Z", "2026-11-15T12:00:05Z")


def test_a_deadline_and_a_timeout_are_reported():
    schedule = scheduled(timeout=90 * SECOND)
    facts = step(
        explain_occurrence(schedule, row(schedule, deadline=60, phase=Phase.AWAITING_COMPLETION), now=NOW), "runs"
    ).facts
    assert (facts["timeout_seconds"], facts["deadline"]) == (90, "2026-11-15T12:01:00Z")


def test_a_deletion_is_shown_with_its_time():
    schedule = evolve(scheduled(phase=SchedulePhase.DELETED), deleted=at(200))
    gone = row(schedule, 400, phase=Phase.CANCELLED, reason=Reason.DELETED)
    explanation = explain_occurrence(schedule, gone, now=NOW)
    assert explanation.summary == "It did not run: the schedule was deleted at 2026-11-15 12:03:20 UTC."
    assert step(explanation, "bounds").decision == "deleted"
    assert step(explanation, "bounds").facts["deleted_at"] == "2026-11-15T12:03:20Z"


@pytest.mark.parametrize("phase", sorted(set(Phase) - LIVE))
def test_a_record_without_a_reason_is_shown_as_such(phase):
    schedule = scheduled()
    explanation = explain_occurrence(schedule, row(schedule, phase=phase), now=NOW)
    check(explanation)
    assert explanation.summary.endswith(": the record does not say why.")


@pytest.mark.parametrize("detail", ["not JSON", "[1]", '"text"'])
def test_a_detail_that_is_not_an_object_is_shown_as_it_is(detail):
    schedule = scheduled()
    damaged = evolve(row(schedule, phase=Phase.SKIPPED, reason=Reason.OVERLAP), detail=detail)
    assert step(explain_occurrence(schedule, damaged, now=NOW), "overlap").facts["detail"] == detail


WINDOWS = {"window": Window(duration=30 * SECOND, end_action=EndAction.PAUSE)}
GOING = {"phase": Phase.DISPATCHING, "attempt": 1, "node": "n1", "started": 1}
BEGUN = "node `n1` started attempt 1 of 1 at 2026-11-15 12:00:01 UTC"


@pytest.mark.parametrize(
    ("now", "lead"),
    [
        (29, "It is running"),
        (
            30,
            (
                "It has been suspended since 2026-11-15 12:00:30 UTC, when its window closed; it goes on at "
                "2026-11-15 12:01:40 UTC"
            ),
        ),
        (100, "It is running"),
        (
            140,
            (
                "It has been suspended since 2026-11-15 12:02:10 UTC, when its window closed; it goes on at "
                "2026-11-15 12:03:20 UTC"
            ),
        ),
        (240, "It is running"),  # no other opens, so it is being cancelled
    ],
)
def test_what_is_suspended_between_two_windows_is_shown_with_when_it_goes_on(now, lead):
    schedule = scheduled(every(100, end=200), **WINDOWS)
    explanation = explain_occurrence(schedule, row(schedule, **GOING), now=at(now))
    check(explanation)
    assert explanation.summary == f"{lead}: {BEGUN}."
    is_still = lead != "It is running"
    assert step(explanation, "runs").decision == ("suspended" if is_still else "running")
    assert step(explanation, "window").decision == ("window_closed" if is_still else "window_open")
    assert ("suspended_since" in step(explanation, "window").facts) is is_still
    assert ("goes_on_at" in step(explanation, "window").facts) is ("goes on" in lead)


@pytest.mark.parametrize(
    ("trigger", "fields", "now", "closes", "at_close", "opens"),
    [
        pytest.param(every(100), GOING, 7, 30, "suspended", 100, id="in its first window"),
        pytest.param(every(100), GOING, 107, 130, "suspended", 200, id="in the next one"),
        pytest.param(every(100), GOING, 150, 130, "suspended", 200, id="between two"),
        pytest.param(every(100, end=150), GOING, 107, 130, "cancelled", None, id="in the last one"),
        pytest.param(every(30), GOING, 47, 60, "goes_on", None, id="without a gap"),
        pytest.param(every(100), {}, 7, 30, "suspended", 100, id="not started"),
        pytest.param(
            every(100), GOING | {"phase": Phase.COMPLETED, "ended": at(115)}, 300, 130, "suspended", 200, id="ended"
        ),
    ],
)
def test_a_window_that_suspends_says_when_it_closes_and_what_then(trigger, fields, now, closes, at_close, opens):
    schedule = scheduled(trigger, **WINDOWS)
    facts = step(explain_occurrence(schedule, row(schedule, **fields), now=at(now)), "window").facts
    told = {"closes_at": to_text(at(closes)), "at_close": at_close}
    told |= {} if opens is None else {"next_opens_at": to_text(at(opens))}
    assert {name: facts[name] for name in ("closes_at", "at_close", "next_opens_at") if name in facts} == told


@pytest.mark.parametrize(
    ("declared", "fields"),
    [
        ({"window": Window(duration=30 * SECOND, end_action=EndAction.NONE)}, GOING),
        (WINDOWS, GOING | {"stop": Reason.CANCELLED}),
        (WINDOWS, GOING | {"revision": 7}),
        (WINDOWS, {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED, "attempt": 1}),
    ],
)
def test_what_goes_on_or_has_ended_is_not_suspended(declared, fields):
    schedule = scheduled(every(100), **declared)
    explanation = explain_occurrence(schedule, row(schedule, **fields), now=at(50))
    assert "suspended" not in explanation.summary
    assert step(explanation, "window").decision == "window_open"


def test_a_start_that_was_committed_early_is_shown_as_of_its_due_time():
    schedule = scheduled()
    early = row(schedule, phase=Phase.DISPATCHING, attempt=1, node="n1", started=-0.015)
    explanation = explain_occurrence(schedule, early, now=at(99))
    assert explanation.summary == "It is running: node `n1` started attempt 1 of 1 at 2026-11-15 12:00:00 UTC."
    assert step(explanation, "misfire").facts["late_by_seconds"] == 0


GONE = "the process of node n1 was gone before it had ended"


@pytest.mark.parametrize(
    ("errors", "how"),
    [
        ([GONE], "the process of its node was gone once"),
        ([GONE, GONE], "the process of its node was gone 2 times"),
        ([GONE, None], "its node stopped, or was lost, 2 times"),
    ],
)
def test_what_was_delivered_again_says_that_the_process_of_its_node_was_gone(errors, how):
    schedule = scheduled()
    done = row(schedule, phase=Phase.COMPLETED, reason=Reason.SUCCEEDED, attempt=1, losses=len(errors))
    runs = [
        run(done, 10 * n, 10 * n + 5, outcome=Outcome.LEASE_LOST, attempt=n + 2, error=error)
        for n, error in enumerate(errors)
    ]
    explanation = explain_occurrence(schedule, done, [*runs, run(done, 40, 42)], now=NOW)
    assert explanation.summary.startswith(f"It ran: {how} before it had ended, and it was delivered again; ")


def test_what_must_not_begin_twice_says_that_the_process_of_its_node_was_gone():
    schedule = scheduled()
    ended = row(schedule, phase=Phase.DELIVERY_FAILED, reason=Reason.OUTCOME_UNKNOWN, attempt=1, losses=1)
    lost = run(ended, 0, 5, outcome=Outcome.LEASE_LOST, error=GONE)
    assert explain_occurrence(schedule, ended, [lost], now=NOW).summary == (
        "It could not be delivered: delivery had begun when the process of its node was gone, and it must not begin "
        "twice (attempt 1 of 1)."
    )


@pytest.mark.parametrize(("lost", "often"), [(1, "once"), (2, "2 times")])
def test_what_was_delivered_again_says_that_its_node_was_lost(lost, often):
    schedule = scheduled()
    done = row(schedule, phase=Phase.COMPLETED, reason=Reason.SUCCEEDED, attempt=1, losses=lost)
    runs = [run(done, 10 * n, 10 * n + 5, outcome=Outcome.LEASE_LOST, attempt=n + 2) for n in range(lost)]
    explanation = explain_occurrence(schedule, done, [*runs, run(done, 40, 42)], now=NOW)
    assert explanation.summary == (
        f"It ran: its node stopped, or was lost, {often} before it had ended, and it was delivered again; "
        "node `n1` started it at 2026-11-15 12:00:40 UTC, and it took 2 seconds."
    )


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([{"result": {"status": 400}}], "an answer with status 400 is not retried unless `retry_statuses` has it"),
        ([{"result": {"body": ""}}], "a failure of this kind is never retried"),
        ([{"result": "no"}], "a failure of this kind is never retried"),
        ([], "a failure of this kind is never retried"),
    ],
)
def test_a_request_that_is_not_retried_says_why(runs, why):
    schedule = scheduled(**TRIES, target=HttpTarget(url="https://example.com/"))
    failed = row(schedule, phase=Phase.FAILED, reason=Reason.FAILED, attempt=1, facts={"is_final": True})
    tried = [run(failed, outcome=Outcome.FAILED, **fields) for fields in runs]
    assert explain_occurrence(schedule, failed, tried, now=NOW).summary.endswith(f"(attempt 1 of 3); {why}.")


LONG = "longer than its interval of 1 minute 40 seconds."


@pytest.mark.parametrize(
    ("declared", "fields", "times", "now", "said"),
    [
        ({}, {"started": 1}, None, 101, None),
        ({}, {"started": 1}, None, 102, f"; it has run for 1 minute 41 seconds, {LONG}"),
        ({}, {"started": 1, "phase": Phase.AWAITING_COMPLETION}, None, 201, f"for 3 minutes 20 seconds, {LONG}"),
        ({}, {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED}, (1, 101), 900, None),
        ({}, {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED}, (1, 101.5), 900, f"1 minute 40 seconds, {LONG}"),
        ({}, {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED}, None, 900, None),
        ({}, {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED, "route": "ping"}, (1, 300), 900, None),
        ({}, {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED, "revision": 7}, (1, 300), 900, None),
        ({}, {"phase": Phase.COMPLETED, "reason": Reason.SUCCEEDED, "origin": ids.manual("k")}, (1, 300), 900, None),
        ({"trigger": every(100, end=0)}, {"started": 1}, None, 900, None),
        (WINDOWS, {"started": 1}, None, 250, None),
    ],
)  # fmt: skip
def test_a_run_longer_than_its_interval_is_named(declared, fields, times, now, said):
    schedule = scheduled(**declared)
    occurrence = row(schedule, **{"phase": Phase.DISPATCHING, "attempt": 1, "node": "n1", **fields})
    runs = [] if times is None else [run(occurrence, *times)]
    explanation = explain_occurrence(schedule, occurrence, runs, now=at(now))
    assert ("interval" in explanation.summary) is (said is not None)
    assert explanation.summary.endswith(said or ".")
    assert step(explanation, "runs").facts.get("longer_than_interval_seconds") == (100 if said else None)


@pytest.mark.parametrize(
    ("fields", "attempt", "message", "said"),
    [
        ({}, 1, "it waits for a model", "; it waits for a model."),
        ({}, 1, None, "started attempt 1 of 1 at 2026-11-15 12:00:01 UTC."),
        ({}, 2, "it waits for a model", "started attempt 1 of 1 at 2026-11-15 12:00:01 UTC."),
        ({"route": "function:tidy"}, 1, "it copies", "started attempt 1 of 1 at 2026-11-15 12:00:01 UTC."),
    ],
)
def test_what_a_turn_of_an_agent_waits_for_is_said(fields, attempt, message, said):
    schedule = scheduled(target=TaskTarget(query="news"))
    occurrence = row(schedule, **GOING, **fields)
    result = None if message is None else progress_result({"fraction": 0.0, "message": message})
    runs = [run(occurrence, ended=None, attempt=attempt, result=result)]
    assert explain_occurrence(schedule, occurrence, runs, now=at(50)).summary.endswith(said)
