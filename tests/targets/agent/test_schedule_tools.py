"""Sessions that schedule for themselves: a real agent loop, as whom it acts, and what its policy keeps from it."""

import json
import re
from dataclasses import replace

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from noonmark import AgentSettings, Scheduler
from noonmark.core.agents.session import Mob, Session, member_session
from noonmark.core.api_key import Scope
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.schedule import Owner
from noonmark.core.targets.mob import ToolAccess, ToolAccessPolicy
from noonmark.core.targets.session import SessionSpec
from noonmark.operations.service import LOCAL
from noonmark.operations.table import perform
from tests.embedded.waiting import NEVER, eventually

SOME = ToolAccessPolicy(
    type=ToolAccess.ALLOW_LIST, tools=("noonmark_schedule_create", "noonmark_schedule_update", "noonmark_schedule_list")
)
DAILY = {"type": "cron", "expression": "0 9 * * *", "timezone": "Europe/Stockholm"}
WAKE = {"target_kind": "session", "type": "current_session", "action": {"type": "prompt", "prompt": "Go on."}}
SPAWN = {"target_kind": "mob", "type": "spawn_helper", "mob_id": "crew", "member_id": "h", "prompt": "Help."}


class Agent:
    """A session whose model follows a script: each step sees the texts that the tools have answered so far."""

    def __init__(self, policy=None, *, enabled=True, scopes=None):
        self.steps, self.offered, self.answers = [], [], []
        settings = AgentSettings(models={"scripted": FunctionModel(self._answer)}, model="scripted")
        self.scheduler = Scheduler(agents=settings)
        self.scheduler.start()
        self.store = self.scheduler._store
        spec = SessionSpec(model="scripted", enable_schedule=enabled)
        session = Session(
            tenant="default", session_id="s1", user="ada", spec=spec, tool_access_policy=policy, scopes=scopes
        )
        self.store.put_session(session)
        lead = replace(session, session_id=member_session("crew", "lead"), mob_id="crew", member_id="lead")
        members = {"members": [{"member_id": "lead", "model": "scripted"}]}
        crew = Mob(tenant="default", mob_id="crew", user="ada", document=members)
        self.store.put_mob(crew, [replace(lead, tool_access_policy=None)])

    def _answer(self, messages, info):
        self.offered.append({tool.name for tool in info.function_tools})
        self.answers = [part.content for one in messages for part in one.parts if part.part_kind == "tool-return"]
        if not self.steps:
            return ModelResponse(parts=[TextPart("done")])
        name, arguments = self.steps.pop(0)(self.answers)
        return ModelResponse(parts=[ToolCallPart(f"noonmark_{name}", arguments)])

    def take(self, *steps):
        """Let the agent take these steps in one turn; the texts of the answers."""
        before = len(self.answers)
        self.steps = [step if callable(step) else lambda _, step=step: step for step in steps]
        wake = {**WAKE, "type": "exact_session", "session_id": "s1"}
        job = self.scheduler.schedule(wake, f"turn-{len(self.offered)}", NEVER)
        self.scheduler.run_now(job)
        self.scheduler.delete(job)
        return self.answers[before:]

    def schedules(self):
        """What the session has made."""
        stored = [one.schedule for one in self.store.schedules("default", limit=100)]
        return [one for one in stored if one.source == "session:s1"]


@pytest.fixture
def agent():
    collected = []

    def make(*arguments, **options):
        collected.append(Agent(*arguments, **options))
        return collected[-1]

    yield make
    for one in collected:
        one.scheduler.stop(wait=False)
        one.scheduler.close()


def created_id(answers):
    return re.search(r"Created (\S+):", answers[-1] if "Created" in answers[-1] else answers[0])[1]


def test_an_agent_creates_inspects_edits_and_deletes_its_schedule(agent):
    agent_run = agent()
    texts = agent_run.take(
        ("schedule_preview", {"trigger": DAILY}),
        ("schedule_create", {"name": "mornings", "trigger": DAILY, "target": WAKE}),
        lambda answers: ("schedule_get", {"schedule_id": created_id(answers[1:])}),
        lambda answers: (
            "schedule_update",
            {"schedule_id": created_id(answers[1:]), "trigger": {**DAILY, "expression": "0 10 * * *"}},
        ),
    )
    assert "09:00 Europe/Stockholm" in texts[0]
    assert texts[1].startswith("Created ")
    assert "10:00 Europe/Stockholm" in texts[3]
    [schedule] = agent_run.schedules()
    assert schedule.owner == Owner(tenant="default", user="ada")
    # The shortcut is resolved before it is stored.
    assert (str(schedule.declaration.target.type), schedule.declaration.target.session_id) == (
        "resumable_session",
        "s1",
    )
    agent_run.scheduler.run_now(schedule.schedule_id)
    said = [part["text"] for message in agent_run.store.messages("default", "s1", 100) for part in message.parts
            if part["type"] == "text"]  # fmt: skip
    assert said[-2:] == ["Go on.", "done"]
    listed, deleted, left = agent_run.take(
        ("schedule_list", {}),
        ("schedule_delete", {"schedule_id": schedule.schedule_id}),
        ("schedule_list", {}),
    )
    assert f"- {schedule.schedule_id}: active" in listed
    assert deleted.startswith(f"Deleted {schedule.schedule_id}")
    assert left == "0 schedules."
    entries = perform(agent_run.scheduler._service(), LOCAL, "audit/list", {"schedule_id": schedule.schedule_id})[
        "entries"
    ]
    assert {entry["session_id"] for entry in entries} == {"s1"}
    assert all(entry["parent_schedule_id"].startswith("job_") for entry in entries)  # those of its two turns
    assert all(entry["tool_call_id"] for entry in entries)
    assert len({entry["tool_call_id"] for entry in entries}) == len(entries)
    assert [entry["operation"] for entry in entries][:1] == ["schedule/delete"]
    assert {entry["caller"] for entry in entries if entry["operation"] != "schedule/run"} == {"ada"}


def test_an_agent_has_the_tools_only_where_its_session_and_its_policy_say_so(agent):
    without = agent(enabled=False)
    [text] = without.take(("schedule_list", {}))
    assert "there is no tool" in text
    assert without.offered[0] == set()
    some = agent(SOME)
    some.take()
    assert some.offered[0] == set(SOME.tools)


def test_a_restricted_session_schedules_itself_and_helpers_with_its_own_policy(agent):
    agent_run = agent(SOME)
    wider = {"type": "allow_list", "value": [*SOME.tools, "shell"]}
    on_demand = {**WAKE, "type": "materialize_on_demand_session", "create": {"model": "scripted"}}
    targets = [
        WAKE,
        SPAWN,
        {**SPAWN, "options": {"tool_access_policy": {"type": "inherit"}}},
        {**SPAWN, "options": {"tool_access_policy": wider}},
        on_demand,
        {"target_kind": "http", "url": "https://example.com"},
        {"target_kind": "command", "argv": ["true"]},
        {**WAKE, "type": "exact_session", "session_id": member_session("crew", "lead")},
    ]
    hours = [{**DAILY, "expression": f"0 {hour} * * *"} for hour in range(len(targets))]
    pairs = zip(hours, targets, strict=True)
    texts = agent_run.take(*(("schedule_create", {"trigger": trigger, "target": target}) for trigger, target in pairs))
    assert [text.split()[0] for text in texts] == ["Created"] * 3 + ["Error"] * 5
    assert all("not_allowed" in text for text in texts[3:])
    helpers = [made for made in agent_run.schedules() if made.declaration.target.kind == "mob"]
    assert [made.declaration.target.options.tool_access_policy for made in helpers] == [SOME, SOME]
    [refused] = agent_run.take(
        ("schedule_update", {"schedule_id": helpers[0].schedule_id, "target": targets[4]}),
    )
    assert "not_allowed" in refused
    agent_run.scheduler.run_now(helpers[0].schedule_id)
    assert agent_run.offered[-1] == set(SOME.tools)


def test_the_policy_is_checked_again_at_delivery(agent):
    agent_run = agent()
    [text] = agent_run.take(("schedule_create", {"trigger": DAILY, "target": SPAWN}))
    made = created_id([text])
    session = agent_run.store.session("default", "s1")
    assert agent_run.store.delete_session("default", "s1") == []
    assert agent_run.store.put_session(replace(session, tool_access_policy=SOME))
    asked = len(agent_run.offered)
    asked_for = agent_run.scheduler.run_now(made, wait=False)
    eventually(lambda: agent_run.store.occurrence(asked_for).ended is not None)
    assert str(agent_run.store.occurrence(asked_for).phase) == "delivery_failed"
    assert "exactly its own tool_access_policy" in agent_run.scheduler.runs(made)[0].error
    assert len(agent_run.offered) == asked


READS = {f"noonmark_{name}" for name in ("schedule_get", "schedule_list", "schedule_occurrences", "schedule_preview",
                                         "schedule_explain", "usage")}  # fmt: skip
PROPOSES = {f"noonmark_schedule_{name}" for name in ("propose", "update", "pause", "resume", "delete")}
PROPOSER = replace(
    LOCAL,
    owner=Owner(tenant="default", user="ada"),
    name="ada",
    key_id="nm_live_agent1",
    scopes=frozenset({Scope.READ, Scope.PROPOSE}),
    is_agent=True,
    is_root=False,
)
ON_DEMAND = {"target_kind": "session", "type": "materialize_on_demand_session",
             "create": {"model": "scripted", "enable_schedule": True},
             "action": {"type": "prompt", "prompt": "Work."}}  # fmt: skip


def approved(one, schedule_id, target):
    """A schedule that a key with the scope `propose` asked for, and a person approved."""
    fields = {"schedule_id": schedule_id, "trigger": {**DAILY, "expression": "0 0 1 1 *"}, "target": target}
    perform(one.scheduler._service(), PROPOSER, "schedule/create", fields)
    answer = perform(one.scheduler._service(), LOCAL, "schedule/approve", {"schedule_id": schedule_id})
    assert answer["phase"] == "active"


def attempts(target):
    """Every way to change something, and what comes of it for a proposer."""
    created = {"schedule_id": "child", "trigger": DAILY, "target": target}
    return {
        ("schedule_create", None): "there is no tool",
        ("schedule_propose", json.dumps(created)): "Proposed to create child",
        ("schedule_update", '{"schedule_id": "job", "description": "x"}'): "Proposed to update job",
        ("schedule_pause", '{"schedule_id": "job"}'): "Paused job",
        ("schedule_run_now", '{"schedule_id": "job"}'): "there is no tool",
        ("emit_event", '{"event_type": "e"}'): "there is no tool",
    }


@pytest.mark.parametrize("way", ["its own session", "the session of a person", "a session that is narrowed"])
def test_a_session_may_do_no_more_than_who_made_it_or_has_it_talk(agent, way):
    """A person has approved the schedule of a proposer, not what its sessions make."""
    agent_run = agent(scopes=PROPOSER.scopes if way == "a session that is narrowed" else None)
    service = agent_run.scheduler._service()
    ada = replace(LOCAL, owner=PROPOSER.owner, name="ada")
    perform(service, ada, "schedule/create", {"schedule_id": "job", "trigger": DAILY, "target": SPAWN})
    wake = {**WAKE, "type": "exact_session", "session_id": "s1"}
    if way == "a session that is narrowed":
        perform(service, ada, "schedule/create", {"schedule_id": "asked", "trigger": DAILY, "target": wake})
    else:
        approved(agent_run, "asked", ON_DEMAND if way == "its own session" else wake)
    calls = attempts(WAKE)
    agent_run.steps = [
        lambda _, name=name, arguments=arguments: (name, json.loads(arguments or "{}")) for name, arguments in calls
    ]
    agent_run.scheduler.run_now("asked")
    assert agent_run.offered[-1] == READS | PROPOSES
    assert [words in answer for words, answer in zip(calls.values(), agent_run.answers, strict=True)] == [True] * len(
        calls
    )
    if way == "its own session":
        sessions = agent_run.store.sessions("default", 9)
        [session] = [one for one in sessions if one.session_id.startswith("schedule:")]
        assert session.scopes == PROPOSER.scopes
    # What it proposes is narrowed in turn, however far that goes.
    response = perform(service, LOCAL, "schedule/approve", {"schedule_id": "child"})
    assert response["lineage"]["scopes"] == ["propose", "read"]
    if way == "the session of a person":  # it does everything where that person has it talk
        agent_run.take()
        assert "noonmark_schedule_create" in agent_run.offered[-1]


@pytest.mark.parametrize("way", ["schedule/run", "workflow/run", "occurrence/redrive"])
def test_a_session_may_do_no_more_in_a_run_than_who_asked_for_it(agent, way):
    """With `run`, a proposer can have the session of a person talk, with words of its own."""
    agent_run = agent()
    service, runner = agent_run.scheduler._service(), replace(PROPOSER, scopes=PROPOSER.scopes | {Scope.RUN})
    ada = replace(LOCAL, owner=PROPOSER.owner, name="ada")
    told = {**ON_DEMAND, "action": {"type": "prompt", "prompt": "Do {{ payload.what }}."}}
    perform(service, ada, "schedule/create", {"schedule_id": "job", "trigger": DAILY, "target": told})
    steps = [{"id": "one", "target": {**ON_DEMAND, "action": {"type": "prompt", "prompt": "Do {{ inputs.what }}."}}}]
    perform(service, ada, "workflow/create", {"workflow_id": "flow", "steps": steps})

    def offered(caller):
        """The tools of the session in a run that a caller asks for."""
        words = {"what": "harm"}
        if way == "workflow/run":
            answer = perform(service, caller, way, {"workflow_id": "flow", "inputs": words})
            run_id = answer["workflow_run_id"]
        else:
            run_id = perform(service, caller, "schedule/run", {"schedule_id": "job", "payload": words})["occurrence_id"]
        eventually(lambda: agent_run.store.occurrence(run_id).phase in FINAL)
        if way == "occurrence/redrive":  # by a person, but the words are still those of the first caller
            assert agent_run.store.occurrence(run_id).phase is Phase.FAILED
            run_id = perform(service, ada, way, {"occurrence_id": run_id})["occurrence_id"]
            eventually(lambda: agent_run.store.occurrence(run_id).phase in FINAL)
        return agent_run.offered[-1]

    if way == "occurrence/redrive":
        agent_run.steps = [lambda _: 1 / 0] * 3
    assert {"noonmark_schedule_create", "noonmark_schedule_propose"} & offered(runner) == {"noonmark_schedule_propose"}
    if way != "occurrence/redrive":
        assert "noonmark_schedule_create" in offered(ada), "the session itself is not narrowed"


def test_a_call_that_is_repeated_creates_nothing_twice(agent):
    """After a crash between the call of a tool and its record, the same call is made again."""
    agent_run = agent()
    tools, session = agent_run.scheduler._agents.schedule_tools, agent_run.store.session("default", "s1")
    turns = []
    deliver = tools.call
    tools.call = lambda turn, *rest: turns.append(turn) or deliver(turn, *rest)
    agent_run.take(("schedule_list", {}))
    arguments = {"trigger": DAILY, "target": WAKE}
    first, again = (deliver(turns[0], session, "noonmark_schedule_create", arguments, "call-1") for _ in range(2))
    clone = deliver(turns[0], session, "noonmark_schedule_create", arguments, "call-2")
    assert first.content == again.content
    assert (clone.is_error, "has the same target and trigger" in clone.content) == (True, True)
    [schedule] = agent_run.schedules()
    assert (schedule.lineage.session_id, schedule.lineage.tool_call_id, schedule.lineage.depth) == ("s1", "call-1", 1)
    event = {"event_type": "seen", "payload": 1}
    emitted = [deliver(turns[0], session, "noonmark_emit_event", event, call).content for call in ("c4", "c4", "c5")]
    assert emitted[0] == emitted[1] != emitted[2]
    run = {"schedule_id": schedule.schedule_id}
    asked = [deliver(turns[0], session, "noonmark_schedule_run_now", run, call).content for call in ("c6", "c6")]
    assert asked[0].startswith("Requested ")
    assert asked[0].split()[1] == asked[1].split()[1]
    assert len(agent_run.scheduler.occurrences(schedule.schedule_id)) == 2  # the next fire of its own, and this one
    wrong = deliver(turns[0], session, "noonmark_schedule_create", json.dumps(arguments), "call-3")
    assert (wrong.is_error, "arguments: must be an object" in wrong.content) == (True, True)
