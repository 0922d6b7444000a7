"""Sessions, mobs, budgets and usage through the scheduler of a program."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from pydantic_ai.models.test import TestModel

from noonmark import (
    AgentSettings,
    AsyncScheduler,
    Budget,
    Conflict,
    IntervalTrigger,
    InvalidSchedule,
    Message,
    NotFound,
    RunFailed,
    Scheduler,
    Session,
    UsageSummary,
)
from noonmark.core.errors import InvalidRequest
from noonmark.operations.table import perform
from tests.cli.runner import call
from tests.embedded.waiting import eventually
from tests.operations.harness import LOCAL

ANSWER = "success (no tool calls)"


@pytest.fixture
def scheduler(tmp_path):
    with Scheduler(tmp_path / "agents.db", agents="embedded", agent_model="test") as opened:
        opened.stop()
        yield opened


def test_a_session_is_created_spoken_to_archived_and_deleted(scheduler):
    made = scheduler.create_session(session_id="desk", system_prompt="Be short.", labels={"team": "a"})
    assert isinstance(made, Session)
    assert (made.model, made.state, made.usage.model_calls) == ("test", "idle", 0)
    waiting = scheduler.send_message("desk", "First?", wait=False, key="first")
    assert scheduler.send_message("desk", "Second?") == {"session_id": "desk", "text": ANSWER}
    assert scheduler.send_message("desk", "First?", key="first")["text"] == ANSWER
    assert scheduler.send_message("desk", "First?", key="first")["text"] == ANSWER  # it has ended before
    said = scheduler.session_messages("desk")
    assert all(isinstance(one, Message) for one in said)
    assert [one.role for one in said] == ["user", "assistant"] * 2
    assert [one.text for one in scheduler.session_messages("desk", occurrence_id=waiting)] == ["First?", ANSWER]
    assert [one.number for one in scheduler.session_messages("desk", after=1, limit=2)] == [2, 3]
    assert [one.number for one in scheduler.session_messages("desk", newest_first=True, limit=1)] == [4]
    scheduler.create_session()
    assert [one.session_id for one in scheduler.sessions(labels={"team": "a"})] == ["desk"]
    assert len(scheduler.sessions(limit=None)) == 2
    assert len(scheduler.sessions(limit=1)) == 1
    assert scheduler.archive_session("desk").state == "archived"
    with pytest.raises(Conflict, match="archived"):
        scheduler.send_message("desk", "Still there?")
    assert scheduler.session("desk").usage.model_calls == 2
    scheduler.delete_session("desk")
    with pytest.raises(NotFound, match="session_id: there is no session 'desk'"):
        scheduler.session("desk")


def prompting(text, **target):
    """The target of a step: a prompt to a session that is created for it."""
    action = {"type": "prompt", "prompt": text}
    target = {"type": "materialize_on_demand_session", "create": {"model": "test", "system_prompt": text}, **target}
    return {"target_kind": "session", **target, "action": action}


def test_each_step_of_each_run_of_a_workflow_has_a_session_of_its_own(scheduler):
    chosen = prompting("Keep.", bound_session_id="journal")
    steps = [{"id": "one", "target": prompting("One.")}, {"id": "two", "target": prompting("Two.")}]
    flow = scheduler.workflow("flow", steps=[*steps, {"id": "kept", "target": chosen}])
    for _ in range(2):
        assert flow.run()["two"]["text"] == ANSWER
    sessions = {one.session_id: one for one in scheduler.sessions()}
    assert len(scheduler.session_messages("journal")) == 4, "a step may name a session that goes on"
    del sessions["journal"]
    assert {one.schedule_id for one in sessions.values()} == {None}
    assert sorted(one.system_prompt for one in sessions.values()) == ["One.", "One.", "Two.", "Two."]
    for session_id, session in sessions.items():
        said = scheduler.session_messages(session_id)
        assert [one.text for one in said] == [session.system_prompt, ANSWER]
        scheduler.delete_session(session_id)


@pytest.mark.parametrize(
    ("agents", "is_known"),
    [
        (AgentSettings(models={"mine": TestModel()}), False),
        (AgentSettings(models={"tset": TestModel()}), True),
        (AgentSettings(host="http://127.0.0.1:9"), True),
        (AgentSettings(remote="http://127.0.0.1:9"), True),
    ],
)
def test_a_model_that_is_unknown_is_refused_or_warned_of(agents, is_known):
    action = {"type": "prompt", "prompt": "Go."}
    session = {"target_kind": "session", "type": "materialize_on_demand_session", "action": action}
    targets = [
        session | {"create": {"model": "tset"}},
        {"target_kind": "task", "query": "Go.", "context": {"model": "tset"}},
    ]
    unknown = {"target_kind": "task", "query": "Go.", "context": {"model": "opnai:gpt-9"}}
    members = [{"member_id": "one", "model": "test"}, {"member_id": "two", "model": "tset"}]
    with Scheduler("memory://", agents=agents) as scheduler:
        scheduler.stop()
        service, trigger = scheduler._service(), {"type": "interval", "every_seconds": 3_600}
        for target in targets:
            document = {"trigger": trigger, "target": target}
            response = perform(service, LOCAL, "schedule/create", document)
            [checked] = perform(service, LOCAL, "schedule/check", {"schedules": [document]})["checks"]
            for answer in (response, checked):
                assert any("'tset' has no provider" in one for one in answer["warnings"]) is not is_known
        fine = {"trigger": trigger, "target": session | {"create": {"model": "claude-sonnet-4-5"}}}
        assert not any("provider" in one for one in perform(service, LOCAL, "schedule/create", fine)["warnings"])
        scheduler.create_session(model="gpt-9", session_id="fine")
        if is_known:
            scheduler.create_session(model="tset")
            scheduler.create_mob("crew", members)
            return
        scheduler.create_session(model="mine")
        scheduler.create_session(model="tset", provider="openai")
        with pytest.raises(InvalidRequest, match="model: the model 'tset' has no provider"):
            scheduler.create_session(model="tset")
        with pytest.raises(InvalidRequest, match=r"members\[1\].model: the model 'tset' has no provider"):
            scheduler.create_mob("crew", members)
        warned = perform(service, LOCAL, "schedule/create", {"trigger": trigger, "target": unknown})["warnings"]
        assert any('the provider "opnai" of the model "opnai:gpt-9" is unknown' in one for one in warned)
        with pytest.raises(InvalidRequest, match='model: the provider "opnai" of the model "opnai:gpt-9" is unknown'):
            scheduler.create_session(model="opnai:gpt-9")
        scheduler.create_session(model="groq:llama", session_id="package-of-another-node")
        assert len(scheduler.sessions()) == 4


def test_a_schedule_with_an_unknown_model_is_warned_of_in_the_log(scheduler, caplog):
    target = {"target_kind": "task", "query": "Go.", "context": {"model": "opnai:gpt-9"}}
    scheduler.schedule(target, name="typo", trigger=IntervalTrigger(3_600))
    assert 'schedule typo: the provider "opnai" of the model "opnai:gpt-9" is unknown' in caplog.text
    caplog.clear()
    scheduler.schedule(target | {"context": {"model": "test"}}, name="fine", trigger=IntervalTrigger(3_600))
    assert not caplog.text


@pytest.mark.parametrize(
    ("model", "problem"), [("tset", "'tset' has no provider"), ("opnai:gpt-9", '"opnai" of the model')]
)
def test_a_default_model_that_is_unknown_is_refused(model, problem):
    with pytest.raises(InvalidSchedule, match=f"agent_model: the .*{problem}"):
        Scheduler(agents="embedded", agent_model=model)
    done = call("serve", "--store", "memory://", "--agents", "embedded", "--agent-model", model)
    assert (done.code, problem in done.err) == (2, True)
    Scheduler(agents="https://agents.example.org", agent_model=model).close()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"target_kind": "task", "query": "Go."}, 'task cannot be run here: .* agents="embedded"'),
        ({"target_kind": "bundle", "bundle_id": "b"}, "bundle cannot be run here: .* allow_bundles=True"),
    ],
)
def test_a_scheduler_without_agents_or_bundles_says_so(target, words):
    plain = Scheduler()
    job = plain.schedule(target, name="job", trigger=IntervalTrigger(3_600))
    with pytest.raises(Conflict, match=words):
        plain.run_now(job)
    plain.close()


def test_an_approval_of_a_message_names_its_session(scheduler, tmp_path):
    scheduler.create_session(session_id="desk")
    scheduler.set_budget("session", "desk", period="day", max_tokens=1, hard=False, require_approval=True)
    occurrence = scheduler.send_message("desk", "Hello?", wait=False)
    scheduler.start()
    listed = ("approval", "list", "--store", f"sqlite:///{tmp_path / 'agents.db'}", "--json")
    [approval] = eventually(lambda: call(*listed).json["approvals"])
    assert (approval["schedule_id"], approval["schedule_name"]) == (None, "session desk")
    decided = call("approval", "deny", approval["approval_id"], *listed[2:4])
    assert decided.out == f"Denied occurrence {occurrence} of session desk.\n"


def test_a_tool_must_be_callable(scheduler):
    with pytest.raises(InvalidSchedule, match="func: must be callable, not int"):
        scheduler.agent_tool(5)


def test_a_budget_keeps_a_session_from_spending_and_usage_is_reported(scheduler):
    scheduler.create_session(session_id="desk")
    scheduler.send_message("desk", "Hello?")
    budget = scheduler.set_budget("session", "desk", period="day", max_tokens=100)
    assert isinstance(budget, Budget)
    assert (budget.hard, budget.spent_tokens > 0) == (True, True)
    with pytest.raises(RunFailed, match="budget"):
        scheduler.send_message("desk", "More?")
    job = scheduler.get_job(scheduler.schedule({"target_kind": "task", "query": "What is new?"}, name="news"))
    scheduler.run_now(job)
    scheduler.set_budget("schedule", job, period="month", max_cost_usd=0.5, hard=False)
    assert [(one.scope, one.id) for one in scheduler.budgets()] == [("schedule", job.id), ("session", "desk")]
    assert [one.max_cost_usd for one in scheduler.budgets("schedule", "news")] == [0.5]
    report = scheduler.usage(since=timedelta(days=1))
    assert isinstance(report, UsageSummary)
    assert (report.by, report.total.model_calls) == ("schedule", 2)
    assert [one.name for one in scheduler.usage(job_id="news").groups] == ["news"]
    assert [one.key for one in scheduler.usage("session").groups if one.key == "desk"] == ["desk"]
    assert [one.max_tokens for one in scheduler.delete_budget("session", "desk")] == [100]
    with pytest.raises(NotFound, match="scope_id: there is no budget of session 'desk'"):
        scheduler.delete_budget("session", "desk")
    assert scheduler.send_message("desk", "And now?")["text"] == ANSWER


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda one: one.create_session(modell="test"), InvalidSchedule, "^modell: "),
        (lambda one: one.sessions(state="busy"), InvalidSchedule, "^state: .*idle.*archived"),
        (lambda one: one.sessions(limit=0), InvalidSchedule, "^limit: must be an integer from 1 on"),
        (lambda one: one.send_message("desk", "Hi"), NotFound, "^session_id: there is no session 'desk'"),
        (lambda one: one.set_budget("team", "a", period="day", max_tokens=1), InvalidSchedule, "^scope: .*tenant"),
        (lambda one: one.set_budget("user", "a", period="week", max_tokens=1), InvalidSchedule, "^period: .*month"),
        (lambda one: one.set_budget("user", "a", period="day"), InvalidSchedule, "^max_cost_usd: is required, or"),
        (lambda one: one.set_budget("user", 7, period="day", max_tokens=1), InvalidSchedule, "^scope_id: "),
        (lambda one: one.set_budget("schedule", "a", period="day", max_tokens=1), NotFound, "^scope_id: "),
        (lambda one: one.set_budget("session", "a", period="day", max_tokens=1), NotFound, "^scope_id: .*'a'"),
        (lambda one: one.usage("week"), InvalidSchedule, "^by: .*schedule"),
        (lambda one: one.usage(until=datetime(2000, 1, 1, tzinfo=UTC)), InvalidSchedule, "^until: must be later"),
        (lambda one: one.create_mob("m", []), InvalidSchedule, "^members: "),
        (lambda one: one.delete_mob("m"), NotFound, "^mob_id: there is no mob 'm'"),
    ],
)
def test_errors_name_the_argument_and_what_is_allowed(call, error, words):
    with Scheduler(agents="embedded", agent_model="test") as scheduler, pytest.raises(error, match=words):
        call(scheduler)


def test_without_agents_a_message_can_be_sent_but_not_waited_for():
    scheduler = Scheduler()
    with pytest.raises(InvalidSchedule, match=r"^model: "):
        scheduler.create_session()
    scheduler.create_session(session_id="desk", model="test")
    with pytest.raises(Conflict, match='agents="embedded"'):
        scheduler.send_message("desk", "Hello?")
    assert scheduler.session_messages("desk") == []
    assert scheduler.send_message("desk", "Hello?", wait=False).startswith("occ_")
    scheduler.close()


def test_the_members_of_a_mob_are_sessions():
    async def main():
        async with AsyncScheduler(agents="embedded", agent_model="test") as scheduler:
            mob = await scheduler.create_mob("triage", [{"member_id": "lead", "model": "test"}])
            assert [one.mob_id for one in await scheduler.mobs()] == ["triage"] == [mob.mob_id]
            [member] = await scheduler.sessions(mob_id="triage")
            assert (await scheduler.send_message(member.session_id, "Who are you?"))["text"] == ANSWER
            assert (await scheduler.usage("model")).groups[0].key == "test"
            await scheduler.delete_mob("triage")
            assert (await scheduler.session(member.session_id)).state == "archived"
            assert await scheduler.mobs() == []

    asyncio.run(main())
