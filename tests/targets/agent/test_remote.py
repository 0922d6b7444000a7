"""Turns at a remote host: what it is sent, what its answers mean, and what they cost."""

import asyncio
import json
from dataclasses import replace

import pytest

from noonmark import Scheduler
from noonmark.client import verify
from noonmark.core.agents.session import Message, Role, SessionState
from noonmark.core.budgets.budget import Budget, BudgetScope, Period
from noonmark.core.budgets.spend import to_nanos
from noonmark.core.schedule import Owner
from noonmark.core.targets import parse_target
from noonmark.core.targets.session import PromptAction
from noonmark.operations.service import Service
from noonmark.operations.table import perform
from noonmark.ports.agent_host import AgentTurn, Readiness
from noonmark.targets.agent.remote import RemoteHost
from noonmark.targets.http.settings import HttpTargetSettings
from tests.embedded.waiting import CLOCK, ended, eventually
from tests.operations.harness import LOCAL
from tests.targets.agent.scripted_host import ANSWER, hosting

CREATE = {"model": "house-1", "system_prompt": "Be brief.", "max_tokens": 50}
TARGET = {
    "target_kind": "session",
    "type": "materialize_on_demand_session",
    "create": CREATE,
    "action": {"type": "prompt", "prompt": "Check {{ schedule_name }}."},
}
TASK = {
    "target_kind": "task",
    "query": "Why?",
    "context": {"execution_target": "daemon", "agent_name": "ops", "role": "writer"},
}


@pytest.fixture
def host():
    with hosting() as running:
        yield running


@pytest.fixture
def scheduler(host):
    with Scheduler("memory://", agents=host.url) as running:
        yield running


def run(scheduler, target=TARGET, name="health", **options):
    """Run a target once, to its end; gives its occurrence and its run."""
    job = scheduler.schedule(target, name=name, **options)
    ended(scheduler, job)
    return scheduler.occurrences(job)[0], next(iter(scheduler.runs(job)), None)


def standing(scheduler, max_tokens, **limits):
    """Set a budget for the user, of so many tokens in all, or look at it again."""
    budget = Budget(
        tenant="default", scope=BudgetScope.USER, scope_id="local", period=Period.TOTAL, max_tokens=max_tokens, **limits
    )
    return scheduler._store.put_budget(budget)


def test_a_turn_is_sent_answered_and_recorded(scheduler, host):
    standing(scheduler, 2_000_000)
    occurrence, made = run(scheduler, budget={"max_cost_usd": 0.5, "max_tokens": 5_000}, timeout=30)
    assert occurrence.phase == "completed"
    assert made.result["text"] == "Done."
    usage = made.usage.to_document()
    assert {name: usage[name] for name in ANSWER["usage"]} == ANSWER["usage"]
    [(path, headers, body)] = host.asked
    [sent] = host.requests("deliver")
    assert path == "/agents/deliver"
    key = f"schedule:{occurrence.schedule_id}:occurrence:{occurrence.id}"
    assert verify(headers, body, scheduler.signing_key()) == key == sent["idempotency_key"]
    assert sent["action"] == {"type": "prompt", "prompt": "Check health."}
    assert sent["create"] == CREATE
    assert sent["target"] == TARGET
    limits = sent["limits"]
    assert (limits["max_cost_usd"], limits["max_tokens"], limits["max_model_calls"]) == (0.5, 5_000, 50)
    assert limits["deadline_utc"] is not None
    session = scheduler._store.session("default", sent["session_id"])
    assert session.usage.total_tokens == 100
    messages = scheduler._store.messages("default", sent["session_id"], 10)
    assert [(one.role, one.parts[0]["text"]) for one in messages] == [
        (Role.USER, "Check health."),
        (Role.ASSISTANT, "Done."),
    ]
    now = standing(scheduler, 2_000_000)
    assert (now.settled.tokens, now.settled.cost) == (100, to_nanos("0.001"))
    assert (now.reserved.tokens, now.reserved.cost) == (0, 0)


@pytest.mark.parametrize(
    ("answers", "end", "words", "tries"),
    [
        ([(200, {"error": "locked"})], "failed/attempts_exhausted", "locked", 2),
        ([(200, {"error": "locked", "retry": False})], "failed/failed", "locked", 1),
        ([(200, {"error": "again", "reason": "tool_loop"})], "failed/tool_loop", "again", 1),
        ([(200, {})], "failed/attempts_exhausted", "neither a text", 2),
        ([(200, b"<html>")], "failed/attempts_exhausted", "it is not JSON", 2),
        ([(200, [])], "failed/attempts_exhausted", "must be an object", 2),
        ([(200, {"text": 5})], "failed/attempts_exhausted", "text must be a text", 2),
        ([(200, {"text": "x", "usage": {"tokens": -1}})], "failed/attempts_exhausted", "usage: tokens", 2),
        ([(200, b'{"text": "' + b"x" * 70_000 + b'"}')], "failed/attempts_exhausted", "longer than 64 KiB", 2),
        ([(404, {})], "delivery_failed/target_missing", "does not know", 1),
        ([(400, {})], "failed/failed", "400 Bad Request", 1),
        ([(500, {})], "failed/attempts_exhausted", "500 Internal", 2),
        ([(503, {}, {"Retry-After": "0"}), (200, ANSWER)], "completed/succeeded", None, 2),
        ([(409, {}), (200, ANSWER)], "completed/succeeded", None, 2),
        ([(None, {})], "failed/attempts_exhausted", "connection lost", 2),
        ([(202, {})], "failed/attempts_exhausted", "neither a text", 2),
        ([(200, {"output": {"healthy": True}})], "completed/succeeded", None, 1),
    ],
)
def test_an_answer_means_what_it_means_for_requests(scheduler, host, answers, end, words, tries):
    host.answer(*answers)
    occurrence, made = run(scheduler, retries={"max_attempts": 2, "backoff_seconds": 0.001})
    assert f"{occurrence.phase}/{occurrence.reason}" == end
    assert words is None or words in made.error
    sent = host.requests("deliver")
    assert len(sent) == tries
    assert len({one["idempotency_key"] for one in sent}) == 1
    assert [one["attempt"] for one in sent] == [1, 2][:tries]


def test_what_is_not_reported_counts_in_full(scheduler, host):
    standing(scheduler, 1_500)
    budget = {"max_tokens": 1_000}
    host.answer((404, {}), (200, {"text": "Done."}), (200, ANSWER))
    refused = run(scheduler, name="refused", budget=budget)[0]
    assert refused.reason == "target_missing"
    explained = perform(scheduler._service(), LOCAL, "occurrence/explain", {"occurrence_id": refused.id})
    assert explained["summary"].startswith("It could not be delivered: the remote host does not know this agent")
    assert standing(scheduler, 1_500).reserved.tokens == 0
    occurrence, made = run(scheduler, name="unreported", budget=budget)
    assert (occurrence.phase, made.usage) == ("completed", None)
    assert standing(scheduler, 1_500).reserved.tokens == 1_000
    occurrence, made = run(scheduler, name="beyond", budget=budget)
    assert (str(occurrence.phase), str(occurrence.reason), made) == ("skipped", "budget_exceeded", None)
    assert len(host.requests("deliver")) == 2


def test_another_attempt_has_what_the_first_has_left(scheduler, host):
    standing(scheduler, 10_000)
    host.answer((200, {"error": "no", "usage": {"input_tokens": 600, "cost_usd": 0}}), (200, ANSWER))
    occurrence, made = run(
        scheduler, budget={"max_tokens": 1_000}, retries={"max_attempts": 2, "backoff_seconds": 0.001}
    )
    assert (occurrence.phase, made.usage.total_tokens) == ("completed", 700)
    now = standing(scheduler, 10_000)
    assert (now.settled.tokens, now.reserved.tokens) == (700, 0)


def test_an_attempt_with_nothing_left_is_not_sent(scheduler, host):
    host.answer((200, {"error": "no", "usage": {"input_tokens": 1_000, "cost_usd": 0}}), (200, ANSWER))
    occurrence, made = run(
        scheduler, budget={"max_tokens": 1_000}, retries={"max_attempts": 2, "backoff_seconds": 0.001}
    )
    assert (str(occurrence.phase), str(occurrence.reason)) == ("failed", "budget_exceeded")
    assert "the budget of the run is 1,000 tokens; used 1,000 tokens" in made.error
    assert len(host.requests("deliver")) == 1


def test_a_hard_budget_on_cost_alone_needs_a_limit_on_cost(scheduler, host):
    standing(scheduler, None, max_cost=to_nanos(5))
    occurrence, _ = run(scheduler)
    assert (str(occurrence.phase), str(occurrence.reason)) == ("skipped", "budget_exceeded")
    assert json.loads(occurrence.detail)["what"] == "price"
    assert run(scheduler, name="limited", budget={"max_cost_usd": 1})[0].phase == "completed"


def test_a_turn_that_is_cancelled_or_too_slow_is_cancelled_there(scheduler, host):
    host.released.clear()
    slow = scheduler.schedule(TARGET, name="slow", timeout=0.2)
    ended(scheduler, slow)
    assert scheduler.occurrences(slow)[0].phase == "timed_out"
    [cancelled] = eventually(lambda: host.requests("cancel"))
    assert cancelled["occurrence_id"] == scheduler.occurrences(slow)[0].id
    assert scheduler._store.session("default", cancelled["session_id"]).state is SessionState.SUSPENDED


def test_an_accepted_turn_is_stopped_there_when_it_is_cancelled_or_too_slow(scheduler, host):
    host.answer((202, {}, {"Noonmark-Callback": "accepted"}))
    # Another process, which has no host, cancels the first one.
    elsewhere = Service(store=scheduler._store, lookahead=0, fresh_id=str)
    jobs = [scheduler.schedule(TARGET, name=name, timeout=seconds) for name, seconds in (("long", 300), ("slow", 0.5))]
    done = scheduler.schedule(TARGET, name="done", timeout=300)
    first, last = (eventually(lambda job=job: awaiting(scheduler, job)) for job in (jobs[0], done))
    perform(elsewhere, LOCAL, "occurrence/complete", {"occurrence_id": last.id, "result": "Done."})
    perform(elsewhere, LOCAL, "occurrence/cancel", {"occurrence_id": first.id})
    ended(scheduler, jobs[1])
    ids = {scheduler.occurrences(job)[0].id for job in jobs}
    eventually(lambda: {one["occurrence_id"] for one in host.requests("cancel")} == ids)
    assert len(host.requests("cancel")) == 2
    for path, headers, body in host.asked:
        assert verify(headers, body, scheduler.signing_key()) == json.loads(body)["idempotency_key"], path
    for one in host.requests("cancel"):
        assert scheduler._store.session("default", one["session_id"]).state is SessionState.SUSPENDED
    assert [str(scheduler.occurrences(job)[0].phase) for job in (*jobs, done)] == [
        "cancelled",
        "timed_out",
        "completed",
    ]


def test_an_accepted_turn_that_was_too_slow_is_stopped_before_the_next_attempt(scheduler, host):
    host.answer((202, {}, {"Noonmark-Callback": "accepted"}), (200, ANSWER))
    occurrence, _ = run(scheduler, timeout=2, retries={"max_attempts": 2, "backoff_seconds": 0.001})
    assert occurrence.phase == "completed"
    assert [path.rpartition("/")[2] for path, _, _ in host.asked] == ["deliver", "cancel", "deliver"]


def awaiting(scheduler, job):
    """The occurrence of a job, once its host has accepted it."""
    occurrences = scheduler.occurrences(job)
    return occurrences[0] if occurrences and occurrences[0].phase == "awaiting_completion" else None


def test_a_connection_that_was_refused_costs_nothing(scheduler, host):
    standing(scheduler, 10_000_000)
    lost = RemoteHost("http://127.0.0.1:9", scheduler._store, HttpTargetSettings(), CLOCK.micros)
    assert lost.probe("default", parse_target(TASK)).readiness is Readiness.UNKNOWN
    with Scheduler("memory://", agents="http://127.0.0.1:9") as other:
        standing(other, 10_000_000)
        occurrence, made = run(other)
        assert (occurrence.phase, "no connection to the remote host" in made.error) == ("failed", True)
        assert standing(other, 10_000_000).reserved.tokens == 0


def test_a_task_names_an_agent_of_the_host(scheduler, host):
    occurrence, _ = run(scheduler, TASK)
    [sent] = host.requests("deliver")
    assert occurrence.phase == "completed"
    assert (sent["agent"], sent["action"]["prompt"]) == ("ops", "Why?")
    assert sent["session_id"] == f"schedule:{occurrence.schedule_id}:{occurrence.id}"
    assert "You are a writer" in sent["create"]["system_prompt"]


def test_without_a_remote_host_such_a_task_is_missing_its_target():
    with Scheduler("memory://", agents="embedded", agent_model="test") as scheduler:
        occurrence, made = run(scheduler, TASK)
        assert (str(occurrence.phase), str(occurrence.reason), made) == ("misfired", "target_missing", None)


def test_a_probe_asks_the_host(scheduler, host):
    remote = RemoteHost(f"{host.url}/", scheduler._store, HttpTargetSettings(), CLOCK.micros)
    assert remote.probe("default", parse_target(TASK)).readiness is Readiness.READY
    [sent] = host.requests("probe")
    assert (sent["tenant"], sent["agent"], sent["target"]["query"]) == ("default", "ops", "Why?")
    _, headers, body = host.asked[-1]
    assert verify(headers, body, scheduler.signing_key()) == "probe"


def test_an_answer_on_record_is_not_asked_for_again(scheduler, host):
    host.released.clear()
    job = scheduler.schedule(TARGET, name="health")
    [sent] = eventually(lambda: host.requests("deliver"))
    store = scheduler._store
    occurrence = store.occurrence(sent["occurrence_id"])
    turn = AgentTurn(
        owner=Owner(tenant="default", user="local"),
        schedule_id=sent["schedule_id"],
        occurrence=occurrence,
        target=parse_target(TARGET),
        session_id=sent["session_id"],
        action=PromptAction(prompt="Check health."),
    )
    said = Message(role=Role.ASSISTANT, parts=({"type": "text", "text": "Before."},), data={"n": 1})
    assert store.append_messages(turn.turn, [said])
    remote = RemoteHost(host.url, store, HttpTargetSettings(), CLOCK.micros)
    result = asyncio.run(remote.deliver(turn))
    assert (str(result.outcome), result.text, result.output) == ("completed", "Before.", {"n": 1})
    lost = replace(turn, occurrence=replace(occurrence, fence=occurrence.fence + 1))
    assert str(asyncio.run(remote.deliver(lost)).outcome) == "lease_lost"
    host.released.set()
    ended(scheduler, job)
    assert len(host.requests("deliver")) == 1
    assert [one.role for one in store.messages("default", sent["session_id"], 9)] == [Role.USER, Role.ASSISTANT]
