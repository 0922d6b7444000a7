"""Mobs and tasks with the host of this process: who is told what, and what is left of it."""

import json

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from noonmark import AgentSettings, Scheduler
from noonmark.core.agents.session import Mob, Session, SessionState, member_session
from noonmark.core.targets.mob import ToolAccess, ToolAccessPolicy
from noonmark.core.targets.session import SessionSpec
from noonmark.ports.budgets import UsageBy
from tests.embedded.waiting import ended

FLOW = {
    "steps": [
        {"id": "look", "member_id": "lead", "prompt": "A {{ inputs.severity }} incident."},
        {
            "id": "write",
            "member_id": "scribe",
            "prompt": "Report: {{ steps.look.result.text }}",
            "depends_on": ["look"],
        },
    ]
}
MEMBERS = {"lead": SessionSpec(model="echo"), "scribe": SessionSpec(model="echo", system_prompt="Write.")}
ONLY_READ = ToolAccessPolicy(type=ToolAccess.ALLOW_LIST, tools=("read",))


class Agents:
    """A scheduler with a mob, whose model repeats what it is told last."""

    def __init__(self, scheduler, asked):
        self.scheduler, self.asked, self.store = scheduler, asked, scheduler._store

    def run(self, kind, name, budget=None, **fields):
        """Run a target once, to its end; gives its occurrence and its last run."""
        job = self.scheduler.schedule({"target_kind": kind, **fields}, name=name, budget=budget)
        ended(self.scheduler, job)
        return self.scheduler.occurrences(job)[0], next(iter(self.scheduler.runs(job)), None)

    def mob(self, kind, name="one", **fields):
        """Run a target of the mob."""
        return self.run("mob", name, type=kind, mob_id="triage", **fields)

    def said(self, session_id):
        """What was said in a session: who, and what."""
        messages = self.store.messages("default", session_id, 100)
        return [(str(one.role), one.parts[0]["text"]) for one in messages]


@pytest.fixture
def url(request):
    """The store: in memory, or what a test asks for."""
    return request.getfixturevalue("database").url if hasattr(request, "param") else "memory://"


@pytest.fixture
def agents(url):
    collected = []

    def answer(messages, info):
        collected.append((info.instructions, len(messages)))
        return ModelResponse(parts=[TextPart(f"heard: {messages[-1].parts[0].content}")])

    settings = AgentSettings(models={"echo": FunctionModel(answer)}, model="echo")
    with Scheduler(url, agents=settings) as scheduler:
        members = [
            {"member_id": "lead", "model": "echo"},
            {"member_id": "scribe", "model": "echo", "role": "writer", "system_prompt": "Write."},
        ]
        mob = Mob(
            tenant="default", mob_id="triage", user="local", document={"members": members, "flows": {"main": FLOW}}
        )
        sessions = [
            Session(
                tenant="default",
                session_id=member_session("triage", name),
                user="local",
                spec=spec,
                tool_access_policy=ONLY_READ,
                mob_id="triage",
                member_id=name,
            )
            for name, spec in MEMBERS.items()
        ]
        scheduler._store.put_mob(mob, sessions)
        yield Agents(scheduler, collected)
    scheduler.close()


def test_a_member_is_sent_content_in_its_session(agents):
    for name in ("one", "two"):
        occurrence, run = agents.mob(
            "member", name, member_id="scribe", action={"type": "send", "content": f"Do {name}."}
        )
        assert (occurrence.phase, run.result["text"]) == ("completed", f"heard: Do {name}.")
    assert agents.said("mob:triage:scribe") == [
        ("user", "Do one."),
        ("assistant", "heard: Do one."),
        ("user", "Do two."),
        ("assistant", "heard: Do two."),
    ]
    assert agents.asked == [("Write.", 1), ("Write.", 3)]


def test_a_helper_has_one_turn_and_is_archived(agents):
    ids = set()
    for name in ("one", "two"):
        options = {"role_name": "writer", "runtime_mode": "turn_driven", "tool_access_policy": {"type": "inherit"}}
        occurrence, run = agents.mob("spawn_helper", name, member_id="temp", prompt="Help.", options=options)
        session = agents.store.session("default", run.result["session_id"])
        assert session.session_id == f"mob:triage:temp:{occurrence.id}"
        assert (session.state, session.role, session.tool_access_policy) == (SessionState.ARCHIVED, "writer", ONLY_READ)
        assert agents.said(session.session_id) == [("user", "Help."), ("assistant", "heard: Help.")]
        ids.add(session.session_id)
    assert len(ids) == 2
    assert agents.asked == [("Write.", 1), ("Write.", 1)]


def test_a_fork_begins_with_what_its_source_has_said(agents):
    for name in ("one", "two"):
        agents.mob("member", name, member_id="lead", action={"type": "send", "content": f"Do {name}."})
    contexts = {"all": {}, "last": {"fork_context": {"type": "last_messages", "count": 2}}}
    for name, context in contexts.items():
        _, run = agents.mob("fork_helper", name, source_member_id="lead", member_id="temp", prompt="Check.", **context)
        begins = ["Do one.", "heard: Do one."] if name == "all" else []
        said = [text for _, text in agents.said(run.result["session_id"])]
        assert said == [*begins, "Do two.", "heard: Do two.", "Check.", "heard: Check."]
    assert [count for _, count in agents.asked[2:]] == [5, 3]
    assert len(agents.said("mob:triage:lead")) == 4


def test_a_flow_is_a_workflow_of_prompts(agents):
    occurrence, run = agents.mob("flow", flow_id="main", params={"severity": "high"})
    assert occurrence.phase == "completed"
    assert run.result["write"]["text"] == "heard: Report: heard: A high incident."
    assert agents.said("mob:triage:lead")[0] == ("user", "A high incident.")
    assert (run.usage.model_calls, run.usage.cost) == (2, 0)
    by_schedule = agents.store.usage("default", UsageBy.SCHEDULE, since=0, until=2**62, limit=10)
    assert [(one.key, one.usage.model_calls) for one in by_schedule] == [(occurrence.schedule_id, 2)]
    record = agents.scheduler.workflow_run(occurrence.id)
    assert (record.workflow_id, [str(step.phase) for step in record.steps]) == ("mob:triage:main", ["completed"] * 2)


def test_the_steps_of_a_flow_together_spend_what_its_run_may_spend(agents):
    limits = {"max_model_calls": 1}
    occurrence, run = agents.mob("flow", flow_id="main", params={"severity": "high"}, budget=limits)
    assert (occurrence.phase, len(agents.asked), run.usage.model_calls) == ("failed", 1, 1)
    assert "used 1 model calls" in run.error
    occurrence, _ = agents.mob("flow", "two", flow_id="main", params={"severity": "low"}, budget={"max_model_calls": 2})
    assert (occurrence.phase, len(agents.asked)) == ("completed", 3)
    uid = agents.store.find("default", occurrence.schedule_id).schedule.uid
    assert agents.store.run_usage(occurrence.id).model_calls == 2
    assert agents.store.costs_of_runs(uid, 9) == [0]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_members_helpers_and_flows_on_postgresql(agents):
    _, run = agents.mob("member", "one", member_id="lead", action={"type": "send", "content": "Do one."})
    assert run.result["text"] == "heard: Do one."
    _, run = agents.mob("fork_helper", "two", source_member_id="lead", member_id="temp", prompt="Check.")
    assert [text for _, text in agents.said(run.result["session_id"])] == [
        "Do one.", "heard: Do one.", "Check.", "heard: Check.",
    ]  # fmt: skip
    assert agents.store.session("default", run.result["session_id"]).state is SessionState.ARCHIVED
    for number in (1, 2):
        flow = {"flow_id": "main", "params": {"severity": "high"}, "budget": {"max_model_calls": number}}
        occurrence, run = agents.mob("flow", f"flow-{number}", **flow)
        assert (str(occurrence.phase), run.usage.model_calls) == (["failed", "completed"][number - 1], number)
    assert run.result["write"]["text"] == "heard: Report: heard: A high incident."
    assert [role for role, _ in agents.said("mob:triage:lead")] == ["user", "assistant"] * 3


def test_what_a_mob_lacks_is_a_missing_target(agents):
    occurrence, _ = agents.run("mob", "x", type="spawn_helper", mob_id="other", member_id="temp", prompt="Help.")
    assert (str(occurrence.phase), str(occurrence.reason)) == ("misfired", "target_missing")
    occurrence, _ = agents.mob("spawn_helper", member_id="temp", prompt="Help.", options={"backend": "external"})
    assert (str(occurrence.phase), str(occurrence.reason)) == ("misfired", "target_missing")
    assert json.loads(occurrence.detail) == {"host": "remote"}


def test_a_task_is_a_session_of_its_own(agents):
    context = {"role": "writer", "template": "simple_analysis", "team": "ops"}
    occurrence, run = agents.run("task", "news", query="Why {{ schedule_name }}?", context=context)
    session_id = f"schedule:{occurrence.schedule_id}:{occurrence.id}"
    assert (occurrence.phase, run.result["session_id"]) == ("completed", session_id)
    prompt = agents.said(session_id)[0][1]
    assert prompt.startswith("Analyse the following")
    assert "Why news?" in prompt
    assert '"team": "ops"' in prompt
    assert "You are a writer." in agents.asked[0][0]
    assert run.usage.model == "echo"
    occurrence, run = agents.run("task", "bad", query="Why?", context={"role": "king"})
    assert (occurrence.phase, "context.role must be one of" in run.error) == ("delivery_failed", True)
