"""The embedded host: turns against a real server that speaks OpenAI's protocol."""

import logging
import subprocess
import sys
import threading

import pytest

from noonmark.core.agents.session import Session
from noonmark.core.budgets import reservation
from noonmark.core.budgets.budget import Budget, BudgetScope, Period
from noonmark.core.instants import SECOND
from noonmark.core.targets.mob import ToolAccess, ToolAccessPolicy
from noonmark.core.targets.session import SessionSpec
from noonmark.embedded.declarations import OWNER
from noonmark.operations.table import perform
from noonmark.secret_cipher import fresh_key
from noonmark.targets.agent.settings import ProviderLimit
from tests.embedded.waiting import NEVER, eventually
from tests.operations.harness import LOCAL
from tests.servers.openai_server import KEY, OpenAIServer, Reply
from tests.targets.agent.agent_rig import INPUT, OUTPUT, AgentRig

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def shout(word: str) -> str:
    """Say it louder."""
    return word.upper()


def broken() -> None:
    """Fail."""
    raise OSError("no disk")


def asking(name, arguments=None):
    return Reply(tool_calls=[(name, arguments or {})])


@pytest.fixture
def make_rig(monkeypatch):
    """Make a scheduler with a scripted server."""
    collected = []

    def make(*script, respond=None, **settings):
        server = OpenAIServer(*script, respond=respond)
        collected.append(server.__enter__())
        collected.append(AgentRig(server, monkeypatch, **settings).__enter__())
        return collected[-1]

    yield make
    for one in reversed(collected):
        one.__exit__(None, None, None)


def test_a_turn_is_recorded_step_by_step_and_the_next_one_goes_on_from_there(make_rig, tmp_path):
    skill = tmp_path / "polite" / "SKILL.md"
    skill.parent.mkdir()
    skill.write_text("Say please.")
    calls = [("add", {"a": 1, "b": 2}), ("shout", {"word": "hi"})]
    both = Reply(tool_calls=calls, tokens=(1_000, 20), cached_tokens=400)
    agent = make_rig(both, Reply("3, HI"), Reply("welcome"), tools=[add, shout], skills=tmp_path)
    action = {
        "type": "prompt",
        "prompt": "Of {{schedule_name}}: {{ user }}?",
        "skill_refs": ["polite"],
        "additional_instructions": ["Today is {{payload.day}}."],
    }
    job = agent.schedule(create={"system_prompt": "Be brief.", "max_tokens": 77}, action=action)
    agent.scheduler.run_now(job, payload={"day": "Monday"})
    assert agent.said(job) == [
        ("user", ["Of agent-0: {{ user }}?"]),
        ("assistant", ["add({'a': 1, 'b': 2})", "shout({'word': 'hi'})"]),
        ("tool", ["3"]),
        ("tool", ["HI"]),
        ("assistant", ["3, HI"]),
    ]
    run = agent.scheduler.runs(job)[0]
    assert run.result == {"session_id": agent.session_id(job), "text": "3, HI"}
    cost = 600 * INPUT + 400 * INPUT // 2 + 20 * OUTPUT + 100 * INPUT + 10 * OUTPUT
    figures = (run.usage.input_tokens, run.usage.cache_read_tokens, run.usage.output_tokens, run.usage.cost)
    assert figures == (700, 400, 30, cost)
    assert (run.usage.model_calls, run.usage.tool_calls, run.usage.model) == (2, 2, "openai:gpt-4o-mini")
    assert agent.session(job).usage == run.usage
    first, second = agent.server.requests
    assert first["path"] == "/v1/chat/completions"
    assert first["messages"][0] == {
        "role": "system",
        "content": "Be brief.\n\n# Skill: polite\n\nSay please.\n\nToday is Monday.",
    }
    assert first["max_completion_tokens"] == 77
    assert [tool["function"]["name"] for tool in first["tools"]] == ["add", "shout"]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    agent.scheduler.run_now(job, payload={"day": "Tuesday"})
    sent = agent.server.requests[2]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert agent.server.keys == [f"Bearer {KEY}"] * 3


def test_a_provider_that_is_busy_is_waited_for_and_that_is_no_attempt(make_rig):
    agent = make_rig(
        Reply(status=429, retry_after=0), Reply(status=503, retry_after=0), Reply(status=500), Reply("at last")
    )
    job = agent.schedule()
    phase, _, run = agent.run(job)
    assert (phase, run.attempt, len(agent.server.requests)) == ("completed", 1, 4)
    assert run.usage.model_calls == 1
    [standing] = standings(agent)
    assert (standing.settled.tokens, standing.reserved.tokens) == (110, 0)


def limit_tokens(one, scope, scope_id, most):
    one.store.put_budget(
        Budget(tenant=OWNER.tenant, scope=scope, scope_id=scope_id, period=Period.TOTAL, max_tokens=most)
    )


def standings(one):
    """What is spent of the tenant's budget, which has no limit that matters."""
    limit_tokens(one, BudgetScope.TENANT, OWNER.tenant, 10**9)
    return one.store.budgets(OWNER.tenant, 10)


@pytest.mark.parametrize("lost", [Reply(hangs_up=True), Reply(body=b'{"choices": "none"}')])
def test_a_lost_answer_stays_reserved_and_the_next_call_is_another(make_rig, lost):
    agent = make_rig(lost, Reply("here"))
    standings(agent)
    job = agent.schedule()
    phase, _, run = agent.run(job)
    assert (phase, run.attempt, len(agent.server.requests)) == ("completed", 1, 2)
    [standing] = agent.store.budgets(OWNER.tenant, 10)
    assert standing.settled.tokens == 110
    assert standing.reserved.tokens > 4_096


def test_answers_that_are_lost_again_and_again_fail_the_attempt(make_rig):
    agent = make_rig(respond=lambda _: Reply(body=b"[]"))
    phase, reason, run = agent.run(agent.schedule(retries=0))
    assert (phase, reason, len(agent.server.requests)) == ("failed", "failed", 3)
    assert "could not be read" in run.error


def test_a_refused_key_fails_without_retry_and_is_shown_nowhere(make_rig, caplog):
    caplog.set_level(logging.DEBUG)
    refused = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": "invalid_request_error"}}
    agent = make_rig(Reply(status=401, body=str(refused).replace("'", '"').encode()))
    standings(agent)
    phase, _, run = agent.run(agent.schedule("my secret question", retries=3))
    assert (phase, run.attempt, len(agent.server.requests)) == ("failed", 1, 1)
    assert "refused the key in OPENAI_API_KEY" in run.error
    assert KEY not in run.error
    [standing] = agent.store.budgets(OWNER.tenant, 10)
    assert standing.reserved.tokens == 0


def test_logs_have_no_prompt_no_answer_and_no_key(make_rig, caplog):
    caplog.set_level(logging.DEBUG)
    agent = make_rig(Reply("my secret answer"), Reply(status=400), Reply("another"))
    job = agent.schedule("my secret question")
    agent.run(job)
    agent.run(job)
    assert len(agent.server.requests) == 2
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "agent-0" in logged
    assert not {word for word in ("my secret", KEY, "Bearer") if word in logged}


def test_the_same_call_again_and_again_ends_the_run(make_rig):
    agent = make_rig(respond=lambda _: asking("add", {"a": 1, "b": 1}), tools=[add])
    phase, reason, run = agent.run(agent.schedule(retries=3))
    assert (phase, reason, run.attempt, len(agent.server.requests)) == ("failed", "tool_loop", 1, 5)
    assert "add 5 times in a row with the same arguments" in run.error


def test_the_same_error_again_and_again_ends_the_run(make_rig):
    agent = make_rig(respond=lambda _: asking("broken"), tools=[broken])
    job = agent.schedule()
    phase, reason, _ = agent.run(job)
    assert (phase, reason, len(agent.server.requests)) == ("failed", "tool_loop", 3)
    assert agent.said(job)[2] == ("tool", ["!OSError: no disk"])
    assert str(agent.session(job).state) == "suspended"


def counting():
    """Ask for another sum each time."""
    numbers = iter(range(1_000_000))
    return lambda _: asking("add", {"a": next(numbers), "b": 1})


def test_model_calls_of_a_run_are_bounded(make_rig):
    agent = make_rig(respond=counting(), tools=[add], max_model_calls=3)
    phase, reason, run = agent.run(agent.schedule(retries=3))
    assert (phase, reason, run.attempt, len(agent.server.requests)) == ("failed", "budget_exceeded", 1, 3)
    assert "the budget of the run is 3 model calls; used 3" in run.error
    assert run.usage.model_calls == 3


def test_tool_calls_of_a_run_are_bounded(make_rig):
    agent = make_rig(respond=counting(), tools=[add], max_tool_calls=2)
    phase, reason, run = agent.run(agent.schedule())
    assert (phase, reason, len(agent.server.requests)) == ("failed", "budget_exceeded", 3)
    assert "may call 2 tools, and asked for 3" in run.error


def test_a_budget_that_is_used_up_in_the_middle_ends_the_run(make_rig):
    agent = make_rig(respond=counting(), tools=[add])
    limit_tokens(agent, BudgetScope.USER, OWNER.user, 500)
    phase, reason, run = agent.run(agent.schedule(create={"max_tokens": 20}, retries=3))
    assert (phase, reason, run.attempt) == ("failed", "budget_exceeded", 1)
    assert f"the budget of user {OWNER.user} is 500 tokens" in run.error
    [standing] = agent.store.budgets(OWNER.tenant, 10)
    assert 0 < standing.settled.tokens == 110 * len(agent.server.requests) <= 500
    assert standing.reserved.tokens == 0


def test_a_run_without_room_in_its_budget_does_not_start(make_rig):
    agent = make_rig()
    unknown = agent.schedule(create={"model": "openai:nobody"}, budget={"max_cost_usd": 1.0})
    assert agent.run(unknown)[:2] == ("skipped", "budget_exceeded")
    limit_tokens(agent, BudgetScope.USER, OWNER.user, 100)
    assert agent.run(agent.schedule())[:2] == ("skipped", "budget_exceeded")
    assert agent.server.requests == []
    [standing] = agent.store.budgets(OWNER.tenant, 10)
    assert (standing.settled.tokens, standing.reserved.tokens) == (0, 0)


def test_an_unknown_price_counts_by_tokens_and_is_shown_as_unknown(make_rig):
    agent = make_rig()
    phase, _, run = agent.run(agent.schedule(create={"model": "openai:nobody"}))
    assert (phase, run.usage.total_tokens, run.usage.cost) == ("completed", 110, None)


@pytest.mark.parametrize(
    ("replies", "retries", "phase", "calls"),
    [
        ([asking("final_result", {"city": "Rome"})], 0, "completed", 1),
        ([asking("final_result", {"city": 1}), asking("final_result", {"city": "Rome"})], 1, "completed", 2),
        ([Reply("Rome"), asking("final_result", {"city": "Rome"})], 1, "completed", 2),
        ([asking("final_result", {"city": 1}), asking("final_result", {"town": 1})], 1, "failed", 2),
        ([Reply("Rome")], 0, "failed", 1),
    ],
)
def test_structured_output_is_checked_and_asked_for_again(make_rig, replies, retries, phase, calls):
    agent = make_rig(*replies)
    job = agent.schedule(create={"output_schema": SCHEMA, "structured_output_retries": retries})
    ended, _, run = agent.run(job)
    assert (ended, len(agent.server.requests)) == (phase, calls)
    if phase == "completed":
        assert run.result == {"session_id": agent.session_id(job), "output": {"city": "Rome"}}
        assert str(agent.session(job).state) == "idle"
    else:
        assert "does not match output_schema" in run.error


def test_a_schema_that_is_none_is_refused_without_a_call(make_rig):
    agent = make_rig()
    for schema in ({"type": "nonsense"}, {"type": "object", "$ref": "http://127.0.0.1:1/x"}):
        phase, _, run = agent.run(agent.schedule(create={"output_schema": schema}))
        assert (phase, "output_schema is not a JSON schema" in run.error) == ("failed", True)
    assert agent.server.requests == []


def test_a_run_that_is_stopped_calls_no_model_afterwards(make_rig):
    release, began, go_on = threading.Event(), threading.Event(), threading.Event()

    def slow() -> str:
        """Take a while."""
        began.set()
        go_on.wait(60)
        return "done"

    agent = make_rig(Reply("ready"), Reply(waits_for=release), Reply(waits_for=release), asking("slow"), tools=[slow])
    assert agent.run(agent.schedule())[0] == "completed"  # the libraries are loaded
    late, waiting, in_tool = agent.schedule(timeout=1), agent.schedule(), agent.schedule()
    assert agent.run(late)[:2] == ("timed_out", "timed_out")
    occurrence = agent.begin(waiting)
    agent.server.wait_for(3)
    assert agent.stop(occurrence) == "cancelled"
    occurrence = agent.begin(in_tool)
    assert began.wait(60)
    assert agent.stop(occurrence) == "cancelled"
    release.set()
    go_on.set()
    assert {str(agent.session(job).state) for job in (late, waiting, in_tool)} == {"suspended"}
    assert agent.scheduler.runs(in_tool)[0].usage.model_calls == 1
    assert agent.run(agent.schedule())[0] == "completed"  # the loop goes on, and nothing of the others does
    assert len(agent.server.requests) == 5
    assert agent.said(waiting) == [("user", ["Go."])]


def test_a_run_that_is_stopped_while_it_is_slowed_down_has_used_nothing(make_rig, monkeypatch):
    monkeypatch.setattr(reservation, "BACKPRESSURE", ((0, 600 * SECOND),))
    agent = make_rig()
    limit_tokens(agent, BudgetScope.USER, OWNER.user, 100_000)
    occurrence = agent.begin(agent.schedule())
    calls = agent.store._uow.budgets
    eventually(lambda: (call := calls.call(OWNER.tenant, f"{occurrence}/first")) is not None and call.is_made)
    assert agent.stop(occurrence) == "cancelled"
    [standing] = agent.store.budgets(OWNER.tenant, 10)
    assert (standing.settled.tokens, standing.reserved.tokens, agent.server.requests) == (0, 0, [])


def test_a_pause_stops_a_turn_at_its_next_step(make_rig):
    agent = make_rig(respond=counting(), tools=[add])

    def pause() -> None:
        """Pause the schedule."""
        agent.scheduler.pause(job)

    agent.scheduler.agent_tool(pause)
    agent.server.script.append(asking("pause"))
    job = agent.schedule()
    phase, reason, run = agent.run(job)
    assert (phase, reason, len(agent.server.requests)) == ("cancelled", "paused", 1)
    assert (run.usage.model_calls, str(agent.session(job).state)) == (1, "suspended")
    agent.server.script.append(Reply("by hand"))
    assert agent.run(job)[0] == "completed"


@pytest.mark.parametrize("cause", ["soft budget", "provider"])
def test_a_run_says_what_its_call_waits_for(make_rig, cause):
    waits = {
        "soft budget": "calls are slowed down near the limit of a budget, and beyond a soft one",
        "provider": "openai could not answer, and is asked again",
    }
    agent = make_rig(Reply(status=429, retry_after=2), Reply("fine"))
    if cause == "soft budget":
        user = {"tenant": OWNER.tenant, "scope": BudgetScope.USER, "scope_id": OWNER.user, "period": Period.DAY}
        agent.store.put_budget(Budget(**user, max_tokens=1, hard=False))
    job = agent.schedule()
    occurrence, service = agent.begin(job), agent.scheduler._service()

    def words():
        return perform(service, LOCAL, "occurrence/get", {"occurrence_id": occurrence})["why"] or ""

    eventually(lambda: words().startswith("It is running: it waits until "))
    assert words().endswith(f"Z: {waits[cause]}.")
    assert f"; it waits until {words().partition(' until ')[2].rstrip('.')}" in agent.scheduler.explain(job).summary
    [run] = agent.scheduler.runs(job)
    assert run.progress.message.endswith(waits[cause])
    if cause == "soft budget":
        assert agent.stop(occurrence) == "cancelled"
        return
    assert str(agent.ended(occurrence).phase) == "completed"
    assert "waits" not in agent.scheduler.explain(job).summary


def test_a_provider_that_fails_again_and_again_is_left_alone_for_a_while(make_rig):
    agent = make_rig(respond=lambda _: Reply(status=500, retry_after=0), time_limit=30 * SECOND)
    phase, _, run = agent.run(agent.schedule())
    assert (phase, len(agent.server.requests)) == ("failed", 5)
    assert "failed too often in a row" in run.error


def test_an_interrupted_session_goes_on_with_the_next_turn(make_rig):
    agent = make_rig(asking("broken"), Reply(status=400), Reply("fine"), tools=[broken])
    job = agent.schedule()
    assert agent.run(job)[0] == "failed"
    assert str(agent.session(job).state) == "suspended"
    assert agent.run(job)[0] == "completed"
    sent = agent.server.requests[2]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]


def test_a_second_attempt_goes_on_from_what_is_recorded(make_rig):
    agent = make_rig(asking("add", {"a": 1, "b": 1}), *[Reply(hangs_up=True)] * 3, Reply("two"), tools=[add])
    job = agent.schedule(retries=1)
    phase, _, run = agent.run(job)
    assert (phase, run.attempt, len(agent.server.requests)) == ("completed", 2, 5)
    assert [who for who, _ in agent.said(job)] == ["user", "assistant", "tool", "assistant"]
    assert run.usage.model_calls == 2


def test_a_tool_access_policy_limits_the_tools(make_rig):
    agent = make_rig(asking("shout", {"word": "a"}), Reply("ok"), tools=[add, shout])
    job = agent.schedule()
    agent.store.put_session(
        Session(
            tenant=OWNER.tenant,
            session_id=agent.session_id(job),
            user=OWNER.user,
            spec=SessionSpec(model="openai:gpt-4o-mini"),
            tool_access_policy=ToolAccessPolicy(type=ToolAccess.ALLOW_LIST, tools=("add",)),
        )
    )
    assert agent.run(job)[0] == "completed"
    assert [tool["function"]["name"] for tool in agent.server.requests[0]["tools"]] == ["add"]
    assert agent.said(job)[2] == ("tool", ["!there is no tool 'shout'; available: add"])


def test_a_tenants_own_key_is_used_where_it_is_bound_to(make_rig):
    agent = make_rig(secret_key=fresh_key(), key=None)
    host = agent.server.url.removesuffix("/v1")
    agent.scheduler.set_secret("OPENAI_API_KEY", "sk-of-the-tenant", hosts=[host])
    job = agent.schedule()
    assert agent.run(job)[0] == "completed"
    assert agent.server.keys == ["Bearer sk-of-the-tenant"]
    agent.scheduler.set_secret("OPENAI_API_KEY", "sk-of-the-tenant", hosts=["api.openai.com"])
    phase, _, run = agent.run(job)
    assert (phase, len(agent.server.requests), "is bound to api.openai.com" in run.error) == ("failed", 1, True)


def test_limits_of_a_provider_hold_across_turns(make_rig):
    limits = {"openai": ProviderLimit(requests=1)}
    agent = make_rig(provider_limits=limits, time_limit=2 * SECOND)
    standings(agent)
    assert agent.run(agent.schedule())[0] == "completed"
    phase, _, run = agent.run(agent.schedule())
    assert (phase, len(agent.server.requests)) == ("timed_out", 1)
    assert "longer than the 2 s that agents have" in run.error
    [standing] = agent.store.budgets(OWNER.tenant, 10)
    assert (standing.settled.tokens, standing.reserved.tokens) == (110, 0)  # what was not asked is given back


@pytest.mark.parametrize(
    ("create", "why"),
    [
        ({"model": "mystery"}, "has no provider"),
        ({"model": "mystery:one"}, "cannot be used"),
        ({"model": "anthropic:claude-sonnet-4-5"}, "set ANTHROPIC_API_KEY in the environment of this node"),
        ({"provider_params": {"extra_headers": {}}}, "provider_params.extra_headers cannot be set"),
        ({"preload_skills": ["../../etc"]}, "a skill is named by"),
        ({"preload_skills": ["polite"]}, "this node has no folder of skills"),
    ],
)
def test_what_a_session_asks_for_in_vain_fails_without_a_call(make_rig, create, why, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    agent = make_rig()
    phase, _, run = agent.run(agent.schedule(create=create, retries=2))
    assert (phase, run.attempt, agent.server.requests) == ("failed", 1, [])
    assert why in run.error


def test_an_exact_session_that_is_unknown_is_missing(make_rig):
    agent = make_rig()
    action = {"type": "prompt", "prompt": "Hi"}
    target = {"target_kind": "session", "type": "exact_session", "session_id": "nobody", "action": action}
    job = agent.scheduler.schedule(target, "exact", NEVER)
    phase, reason, _ = agent.run(job)
    assert (phase, reason) == ("misfired", "target_missing")


def test_the_test_model_needs_no_key(make_rig):
    agent = make_rig(tools=[add], key=None)
    job = agent.schedule(create={"model": "test"})
    phase, _, run = agent.run(job)
    assert (phase, run.result["text"], run.usage.cost) == ("completed", '{"add":0}', 0)
    assert agent.server.requests == []


def test_a_program_without_agents_loads_none_of_their_libraries():
    program = (
        "import sys, noonmark.cli.app, noonmark.server.host\n"
        "from noonmark import Scheduler\n"
        "scheduler = Scheduler(agents='embedded', agent_model='test')\n"
        "scheduler.every(seconds=3600)(print)\n"
        "scheduler.start(); scheduler.stop()\n"
        "print(sorted({'pydantic_ai', 'openai', 'anthropic', 'genai_prices', 'jsonschema_rs'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
