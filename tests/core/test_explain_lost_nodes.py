"""Explanations of what a node holds that is not alive."""

from dataclasses import replace

import pytest

from noonmark.core.admission import MAX_LOSSES
from noonmark.core.explain import Rule, explain_instant, explain_latest, explain_occurrence
from noonmark.core.instants import SECOND
from noonmark.core.interruption import LostNode
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.reasons import Reason
from noonmark.core.targets import TaskTarget
from tests.core.explained import NOW, check, row, run, step
from tests.core.scheduled import at, every, scheduled

SILENT = LostNode(seen=at(250))
GONE = LostNode(seen=at(250), gone=at(251))
LEFT = LostNode(seen=at(250), left=at(252))
RUNNING = {"phase": Phase.DISPATCHING, "attempt": 1, "started": 1, "node": "n1"}
BEGAN = "It has not ended: node `n1` started attempt 1 of 1 at 2026-11-15 12:00:01 UTC, and "
SINCE = "has sent no heartbeat since 2026-11-15 12:04:10 UTC; it "
SERVES = "when a node that serves `function:tidy` is alive"
ONCE = {"delivery": Delivery.AT_MOST_ONCE}
CLOSED = {"window": Window(duration=60 * SECOND)}
SUSPENDS = {"window": Window(duration=60 * SECOND, end_action=EndAction.PAUSE), "trigger": every(600)}


@pytest.mark.parametrize(
    ("declared", "fields", "lost", "told"),
    [
        pytest.param({}, {}, SILENT, f"{SINCE}begins again {SERVES}.", id="silent"),
        pytest.param(
            {},
            {},
            GONE,
            f"was found gone at 2026-11-15 12:04:11 UTC (its process had ended); it begins again {SERVES}.",
            id="gone",
        ),
        pytest.param({}, {}, LEFT, f"stopped at 2026-11-15 12:04:12 UTC; it begins again {SERVES}.", id="left"),
        pytest.param(
            {},
            {},
            LostNode(seen=None),
            f"has sent no heartbeat for more than a day; it begins again {SERVES}.",
            id="not listed any more",
        ),
        pytest.param(
            ONCE,
            {},
            SILENT,
            f"{SINCE}ends as `outcome_unknown` {SERVES}, as `at_most_once` forbids another delivery.",
            id="at most once",
        ),
        pytest.param({}, {"losses": MAX_LOSSES}, SILENT, f"{SINCE}ends as `poison` {SERVES}.", id="lost too often"),
        pytest.param(
            {}, {"losses": MAX_LOSSES - 1}, SILENT, f"{SINCE}begins again {SERVES}.", id="not yet lost too often"
        ),
        pytest.param({}, {"stop": Reason.CANCELLED}, SILENT, f"{SINCE}ends as `cancelled` {SERVES}.", id="stopped"),
        pytest.param(CLOSED, {}, SILENT, f"{SINCE}ends as `window_closed` {SERVES}.", id="window closed"),
        pytest.param({"trigger": every(60)}, {}, SILENT, f"{SINCE}begins again {SERVES}.", id="perhaps an overrun"),
    ],
)
def test_what_a_lost_node_was_running_is_not_said_to_be_running(declared, fields, lost, told):
    schedule = scheduled(**declared)
    occurrence = row(schedule, **RUNNING, **fields)
    explanation = explain_occurrence(schedule, occurrence, [run(occurrence, ended=None)], now=NOW, lost_node=lost)
    check(explanation)
    assert explanation.summary == BEGAN + told
    runs = step(explanation, Rule.RUNS)
    assert runs.decision == "node_lost"
    assert [one["told"].rpartition(", and ")[2] for one in runs.facts["runs"]] == ["its node is not alive"]


def test_a_run_that_its_window_suspends_is_lost_with_its_node():
    schedule = scheduled(**SUSPENDS)
    occurrence = row(schedule, **RUNNING)
    suspended, lost = (explain_occurrence(schedule, occurrence, now=NOW, lost_node=one) for one in (None, SILENT))
    assert suspended.summary.startswith("It has been suspended")
    assert lost.summary.startswith(BEGAN)


def test_what_a_lost_node_has_claimed_is_claimed_again():
    schedule = scheduled()
    explanation = explain_occurrence(schedule, row(schedule, phase=Phase.CLAIMED, node="n1"), now=NOW, lost_node=SILENT)
    check(explanation)
    claimed = f"It has not run yet: node `n1` had claimed it, and {SINCE}is claimed again {SERVES}."
    assert explanation.summary == claimed
    claim = step(explanation, Rule.CLAIM)
    assert (claim.decision, claim.facts["node_seen_at"]) == ("node_lost", "2026-11-15T12:04:10Z")


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.AWAITING_COMPLETION, Phase.COMPLETED])
def test_what_no_node_holds_is_explained_as_before(phase):
    schedule = scheduled()
    occurrence = row(schedule, phase=phase, attempt=1, node="n1", started=1)
    explanations = [explain_occurrence(schedule, occurrence, now=NOW, lost_node=lost) for lost in (None, GONE)]
    assert explanations[0] == explanations[1]


def test_an_agent_on_a_lost_node_waits_for_nothing():
    schedule = scheduled(target=TaskTarget(query="news"))
    occurrence = row(schedule, **RUNNING)
    summary = explain_occurrence(schedule, occurrence, now=NOW, lost_node=SILENT).summary
    assert summary.endswith("; it begins again when a node that serves `task` is alive.")


def test_the_last_occurrence_and_an_instant_say_so_too():
    schedule = scheduled(retry_policy=RetryPolicy(max_attempts=3))
    occurrence = row(schedule, **RUNNING)
    latest = explain_latest(schedule, occurrence, [], now=NOW, next_run=at(600), lost_node=SILENT)
    instants = {
        name: explain_instant(schedule, at(0), now=NOW, rows=[occurrence], lost_nodes={name: SILENT}).summary
        for name in ("n1", "n2")
    }
    assert "it has not ended: node `n1` started attempt 1 of 3" in latest.summary
    assert instants["n1"].startswith("It has not ended")
    assert instants["n2"].startswith("It is running")


def test_an_attempt_has_one_beginning():
    schedule = scheduled()
    occurrence = row(schedule, **RUNNING)
    began = replace(run(occurrence, ended=None), started=at(1) + 33_244)
    explanation = explain_occurrence(schedule, occurrence, [began], now=NOW)
    assert explanation.summary.endswith(
        "started attempt 1 of 1 at 2026-11-15 12:00:01.033244 UTC; it has run for 4"
        " minutes 59 seconds, longer than its interval of 1 minute 40 seconds."
    )
    assert "began at 2026-11-15 12:00:01.033244 UTC" in step(explanation, Rule.RUNS).facts["runs"][0]["told"]
