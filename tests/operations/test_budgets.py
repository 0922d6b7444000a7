"""Budgets and usage: who may set and see what, what is refused, and what runs report."""

from dataclasses import replace

import pytest

from noonmark.core.api_key import Scope, expand_scopes
from noonmark.core.errors import InvalidRequest, MissingScope, NotAllowed, NotFound
from noonmark.core.schedule import Owner
from tests.embedded.waiting import eventually
from tests.operations.harness import EVERY_MINUTE, FOREIGN, REPORT, Harness

ADA, BOB = (
    replace(
        FOREIGN,
        owner=Owner(tenant="default", user=user),
        name=user,
        is_root=False,
        sees_own_only=True,
        scopes=expand_scopes([Scope.READ, Scope.WRITE, Scope.RUN]),
    )
    for user in ("ada", "bob")
)
AGENT = replace(ADA, is_agent=True)
MONTHLY = {"period": "month", "max_cost_usd": 1}


class Spender:
    """A function that reports what the test says."""

    def __init__(self):
        self.reports = []

    def __call__(self, context):
        for report in self.reports:
            context.report_usage(**report)


@pytest.fixture
def harness():
    harness = Harness()
    harness.spender = Spender()
    harness.scheduler.register_function("spend", harness.spender)
    return harness


def spending(harness, *reports, **fields):
    """A schedule that has run once and reported usage."""
    harness.spender.reports = list(reports)
    target = {"target_kind": "function", "function": "spend"}
    schedule = harness.create(**{"schedule_id": "s", "target": target, "name": "digest", **fields})
    harness.pass_by(60)
    return schedule["schedule_id"]


SMALL = {"model": "small", "provider": "acme", "input_tokens": 100, "output_tokens": 20, "cost_usd": 0.25}


def test_what_a_run_reports_is_in_the_run_the_report_and_the_budget(harness):
    schedule_id = spending(harness, SMALL, SMALL, {"model": "large", "cost_usd": None})
    harness("budget/set", scope="schedule", id=schedule_id, **MONTHLY)
    [run] = harness("schedule/runs", schedule_id=schedule_id)["runs"]
    assert (run["usage"]["total_tokens"], run["usage"]["model_calls"], run["usage"]["cost_usd"]) == (240, 3, None)
    report = harness("usage/report", by="model")
    assert [(one["key"], one["cost_usd"], one["unpriced_calls"]) for one in report["groups"]] == [
        ("small", 0.5, 0),
        ("large", None, 1),
    ]
    assert (report["total"]["cost_usd"], report["total"]["unpriced_calls"]) == (0.5, 1)
    [group] = harness("usage/report", by="schedule")["groups"]
    assert (group["key"], group["name"], group["cost_usd"]) == (schedule_id, "digest", 0.5)
    [budget] = harness("budget/list")["budgets"]
    assert (budget["spent_usd"], budget["spent_tokens"], budget["period_end_utc"]) == (
        0.5,
        240,
        "2026-04-01T00:00:00Z",
    )
    harness.spender.reports = [SMALL]
    harness.pass_by(60)
    assert harness("budget/list")["budgets"][0]["spent_usd"] == 0.75


def test_the_forecast_follows_from_the_runs_and_the_fires_that_are_left(harness):
    schedule_id = spending(harness, SMALL, max_runs=10, budget={"max_cost_usd": 2})
    for cost in (0.25, 0.25, 0.5, 1):
        harness.spender.reports = [{**SMALL, "cost_usd": cost}]
        harness.pass_by(60)
    [found] = harness("usage/forecast")["schedules"]
    assert (found["runs"], found["fires_left"], found["is_rough"]) == (5, 5, False)
    assert (found["run_p50_usd"], found["run_p90_usd"], found["spent_usd"]) == (0.25, 1, 2.25)
    assert (found["p50_usd"], found["p90_usd"], found["at_most_usd"]) == (3.5, 7.25, 12.25)
    preview = harness("schedule/preview", schedule_id=schedule_id)["forecast"]
    assert preview == {name: value for name, value in found.items() if name not in ("schedule_id", "name")}
    harness("schedule/pause", schedule_id=schedule_id)
    assert harness("usage/forecast", schedule_id=schedule_id)["p50_usd"] == 2.25
    harness("schedule/pause", schedule_id=schedule_id, until="2026-03-31T23:57:30Z")
    [found] = harness("usage/forecast", schedule_id=schedule_id)["schedules"]
    assert found["fires_left"] == 2


@pytest.mark.parametrize("trigger", [EVERY_MINUTE, {"type": "event", "event_type": "seen"}])
def test_what_a_new_agent_will_cost_is_unknown(harness, trigger):
    task = {"target_kind": "task", "query": "what is new"}
    schedule = harness.create(target=task, trigger=trigger, budget={"max_cost_usd": 0.001})
    why = "it has not run yet" if trigger is EVERY_MINUTE else "no trigger says how often it fires"
    assert (schedule["forecast"]["p50_usd"], schedule["forecast"]["unknown"]) == (None, why)
    assert (schedule["forecast"]["at_most_usd"] is not None) is (trigger is EVERY_MINUTE)
    assert harness("schedule/preview", trigger=trigger, target=task)["forecast"]["unknown"] == why
    assert harness("schedule/preview", trigger=trigger, target=REPORT)["forecast"] is None
    assert "forecast" not in harness.create()
    assert harness("usage/forecast")["schedules"] == []


def test_usage_is_recorded_once(harness):
    harness("budget/set", scope="user", id="local", period="day", max_tokens=1_000)
    first = harness("usage/record", idempotency_key="k", tokens=400, cost_usd=0.1)
    assert (first["recorded"], first["user"], first["usage"]["input_tokens"]) == (True, "local", 400)
    assert harness("usage/record", idempotency_key="k", tokens=400)["recorded"] is False
    assert harness("budget/list")["budgets"][0]["spent_tokens"] == 400
    assert harness("usage/record", FOREIGN, idempotency_key="k", tokens=1)["recorded"] is True
    [day] = harness("usage/report", by="day")["groups"]
    assert (day["key"], day["cost_usd"]) == ("2026-03-01", 0.1)
    late = {"idempotency_key": "late", "tokens": 1, "at": "2026-02-28T23:00:00Z"}
    assert harness("usage/record", **late)["recorded"] is True
    assert harness("usage/report", **{"from": "2026-02-01T00:00:00Z"})["total"]["total_tokens"] == 401
    assert harness("usage/report")["total"]["total_tokens"] == 400


def test_usage_belongs_to_the_owner_of_what_it_is_for(harness):
    schedule_id = harness("schedule/create", ADA, trigger=EVERY_MINUTE, target=REPORT)["schedule_id"]
    run = harness("schedule/run", ADA, schedule_id=schedule_id)["occurrence_id"]
    recorded = harness("usage/record", idempotency_key="a", occurrence_id=run, tokens=1)
    assert (recorded["user"], recorded["schedule_id"], recorded["occurrence_id"]) == ("ada", schedule_id, run)
    assert harness("usage/record", idempotency_key="b", schedule_id=schedule_id, tokens=1, user="bob")["user"] == "bob"
    for caller, arguments, error, field in (
        (ADA, {"schedule_id": schedule_id, "user": "bob"}, NotAllowed, "user"),
        (BOB, {"schedule_id": schedule_id}, NotFound, "schedule_id"),
        (BOB, {"occurrence_id": run}, NotFound, "occurrence_id"),
        (ADA, {"session_id": "nowhere"}, NotFound, "session_id"),
        (ADA, {"occurrence_id": run, "schedule_id": "other"}, InvalidRequest, "schedule_id"),
        (ADA, {"at": "2026-03-01T12:00:01Z"}, InvalidRequest, "at"),
    ):
        with pytest.raises(error) as refused:
            harness("usage/record", caller, idempotency_key="c", **arguments)
        assert refused.value.field == field
    assert [one["key"] for one in harness("usage/report", ADA)["groups"]] == ["ada"]
    with pytest.raises(NotAllowed, match="your own usage"):
        harness("usage/report", ADA, user="bob")
    with pytest.raises(InvalidRequest, match="must be later than"):
        harness("usage/report", to="2020-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("scope", "caller", "error"),
    [
        ("tenant", ADA, MissingScope),
        ("user", ADA, MissingScope),
        ("schedule", AGENT, NotAllowed),
        ("schedule", BOB, NotFound),
        ("session", ADA, NotFound),
        ("schedule", ADA, None),
    ],
)
def test_no_user_raises_their_own_limit(harness, scope, caller, error):
    schedule_id = harness("schedule/create", ADA, trigger=EVERY_MINUTE, target=REPORT)["schedule_id"]
    owner = {"scope": scope, "id": {"tenant": "default", "user": "ada"}.get(scope, schedule_id)}
    if error is None:
        assert harness("budget/set", caller, **owner, **MONTHLY)["hard"] is True
        assert len(harness("budget/delete", caller, **owner)["deleted"]) == 1
        return
    with pytest.raises(error):
        harness("budget/set", caller, **owner, **MONTHLY)
    with pytest.raises(error):
        harness("budget/delete", caller, **owner)


def test_a_user_sees_the_own_budgets(harness):
    own = harness("schedule/create", ADA, trigger=EVERY_MINUTE, target=REPORT)["schedule_id"]
    other = harness("schedule/create", BOB, trigger=EVERY_MINUTE, target=REPORT)["schedule_id"]
    harness("budget/set", scope="tenant", id="default", **MONTHLY)
    for scope, name in (("user", "ada"), ("user", "bob"), ("user", "zoë"), ("schedule", own), ("schedule", other)):
        harness("budget/set", scope=scope, id=name, **MONTHLY)
        harness("budget/set", scope=scope, id=name, period="day", max_tokens=5)
    seen = [(one["scope"], one["id"], one["period"]) for one in harness("budget/list", ADA)["budgets"]]
    assert seen == [
        ("schedule", own, "day"),
        ("schedule", own, "month"),
        ("user", "ada", "day"),
        ("user", "ada", "month"),
    ]
    assert harness("budget/list", FOREIGN)["budgets"] == []
    everything = harness("budget/list")["budgets"]
    assert len(everything) == 11
    paged, cursor = [], None
    while (page := harness("budget/list", limit=3, cursor=cursor))["budgets"]:
        paged += page["budgets"]
        if (cursor := page["next_cursor"]) is None:
            break
    assert paged == everything
    assert len(harness("budget/list", scope="user", id="zoë")["budgets"]) == 2
    assert [one["period"] for one in harness("budget/delete", scope="user", id="zoë")["deleted"]] == ["day", "month"]


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({}, "max_cost_usd", "is required, or max_tokens, or both"),
        ({"max_cost_usd": -1}, "max_cost_usd", "must be a number from 0 to 1,000,000, not -1"),
        ({"max_tokens": 1.5}, "max_tokens", "must be an integer from 0 to 1,000,000,000,000, not 1.5"),
        ({"max_tokens": 1, "warning_threshold": 80}, "warning_threshold", "must be a number from 0.01 to 1, not 80"),
        ({"max_tokens": 1, "hard": True, "require_approval": True}, "require_approval", "belongs to a soft limit"),
        ({"max_tokens": 1, "when_exhausted": "stop"}, "when_exhausted", "must be one of skip, pause, "),
        ({"max_tokens": 1, "period": "total", "when_exhausted": "pause_until_next_period"}, "when_exhausted",
         "needs a period of day or month"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_budget_is_said(harness, fields, field, message):
    with pytest.raises(InvalidRequest) as refused:
        harness("budget/set", **{"scope": "user", "id": "ada", "period": "day", **fields})
    assert refused.value.field == field
    assert refused.value.message.startswith(message)


def test_an_approval_makes_a_limit_soft(harness):
    budget = harness("budget/set", scope="user", id="ada", period="day", max_tokens=1, require_approval=True)
    assert (budget["hard"], budget["require_approval"]) == (False, True)


def test_the_steps_of_a_workflow_report_for_their_run(harness):
    harness.spender.reports = [SMALL]
    spend = {"target_kind": "function", "function": "spend"}
    harness("workflow/create", workflow_id="w", steps=[{"id": one, "target": spend} for one in ("a", "b")])
    run = harness("workflow/run", workflow_id="w")["workflow_run_id"]

    def is_over():
        harness.pass_by(1)
        return harness("workflow_run/get", workflow_run_id=run)["phase"] == "completed"

    eventually(is_over)
    [found] = harness("occurrence/runs", occurrence_id=run)["runs"]
    assert (found["usage"]["model_calls"], found["usage"]["cost_usd"]) == (2, 0.5)
    assert harness("usage/report")["total"]["cost_usd"] == 0.5


def test_the_budget_of_a_session_belongs_to_its_user_and_outlives_it(harness):
    answer = harness("session/create", ADA, model="test")["session_id"]
    harness("budget/set", ADA, scope="session", id=answer, **MONTHLY)
    for error, caller in ((NotFound, BOB), (NotAllowed, AGENT)):
        with pytest.raises(error):
            harness("budget/set", caller, scope="session", id=answer, **MONTHLY)
    recorded = harness("usage/record", idempotency_key="k", session_id=answer, tokens=7, cost_usd=0.5)
    assert recorded["user"] == "ada"
    [budget] = harness("budget/list", ADA)["budgets"]
    assert (budget["id"], budget["spent_usd"]) == (answer, 0.5)
    assert harness("budget/list", BOB)["budgets"] == []
    [group] = harness("usage/report", ADA, by="session")["groups"]
    assert (group["key"], group["total_tokens"]) == (answer, 7)
    harness("session/delete", ADA, session_id=answer)
    assert [one["id"] for one in harness("budget/list")["budgets"]] == [answer]
    assert len(harness("budget/delete", scope="session", id=answer)["deleted"]) == 1


def test_the_budget_of_a_deleted_schedule_can_be_deleted(harness):
    schedule_id = harness("schedule/create", ADA, trigger=EVERY_MINUTE, target=REPORT)["schedule_id"]
    harness("budget/set", ADA, scope="schedule", id=schedule_id, **MONTHLY)
    harness("schedule/delete", ADA, schedule_id=schedule_id)
    with pytest.raises(NotFound, match="there is no schedule"):
        harness("budget/set", ADA, scope="schedule", id=schedule_id, **MONTHLY)
    with pytest.raises(NotFound, match="there is no budget"):
        harness("budget/delete", BOB, scope="schedule", id=schedule_id)
    assert len(harness("budget/delete", ADA, scope="schedule", id=schedule_id)["deleted"]) == 1
