"""Agents whose nodes are killed, and two nodes that take turns in one session."""

import threading

import pytest

from noonmark import EventTrigger, OnceTrigger, Queue
from noonmark.core.agents.session import Role, schedule_session
from noonmark.core.budgets.budget import Budget, BudgetScope, Period
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.embedded.declarations import OWNER
from tests.processes.fleet import CLOCK, STORES
from tests.servers.openai_server import KEY, OpenAIServer, Reply
from tests.soak import SCALE

MODEL = "openai:gpt-4o-mini"
LEASE = 2.0
FIRES = 20 * SCALE
on_each_store = pytest.mark.parametrize("fleet", STORES, indirect=True)


@pytest.fixture
def server(monkeypatch):
    with OpenAIServer() as one:
        monkeypatch.setenv("OPENAI_BASE_URL", one.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield one


def talking(prompt="Go.", model=MODEL):
    return {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": {"model": model, "max_tokens": 100},
        "action": {"type": "prompt", "prompt": prompt},
    }


def transcript(fleet, job):
    session_id = schedule_session(fleet.kept(job).schedule.uid)
    return fleet.scheduler._store.messages(OWNER.tenant, session_id, 1_000)


def limited(fleet):
    """A budget that counts what is settled and what is reserved."""
    whole = Budget(
        tenant=OWNER.tenant, scope=BudgetScope.TENANT, scope_id=OWNER.tenant, period=Period.TOTAL, max_tokens=10**6
    )
    fleet.scheduler._store.put_budget(whole)


def standing(fleet):
    [found] = fleet.scheduler._store.budgets(OWNER.tenant, 10)
    return found.settled.tokens, found.reserved.tokens


def ended(fleet, job):
    [found] = fleet.until(lambda: [one for one in fleet.scheduler.occurrences(job) if one.phase in FINAL], pause=0.1)
    return found


@pytest.mark.parametrize("dies", ["before_answer", "before_record", "after_record"])
def test_a_turn_whose_node_was_killed_goes_on_elsewhere(fleet, server, tmp_path, dies):
    limited(fleet)
    release = threading.Event()
    if dies == "before_answer":
        server.script.append(Reply(waits_for=release))
    settings = {"lease": LEASE, "dies": dies, "died": str(tmp_path / "died")}
    node = fleet.start("agent_node", **settings)
    target = talking(model="mortal" if dies == "before_record" else MODEL)
    job = fleet.scheduler.schedule(target, "turn", OnceTrigger(from_micros(CLOCK.micros())))
    server.wait_for(1)
    if dies == "before_answer":
        fleet.kill(node)
        release.set()
    else:
        node.wait()
    told, *answers = transcript(fleet, job)
    assert (told.role, told.parts[0]["text"], len(answers)) == (Role.USER, "Go.", dies == "after_record")
    fleet.start("agent_node", **settings)
    occurrence = ended(fleet, job)
    assert (occurrence.phase, occurrence.attempt, occurrence.losses) == (Phase.COMPLETED, 1, 1)
    assert fleet.scheduler.runs(job)[0].result["text"] == "done"
    assert [one.role for one in transcript(fleet, job)] == [Role.USER, Role.ASSISTANT]
    settled, reserved = standing(fleet)
    assert settled == 110
    if dies == "after_record":
        assert (len(server.requests), reserved) == (1, 0)
    else:  # the lost answer stays reserved in full
        assert (len(server.requests), reserved > 100) == (2, True)


@on_each_store
def test_turns_of_a_session_on_two_nodes_come_one_after_another(fleet, server, figure):
    nodes = [fleet.node(agents="embedded", is_quiet=True) for _ in range(2)]
    trigger = EventTrigger("number")
    job = fleet.scheduler.schedule(
        talking("Number {{payload.n}}."), "queue", trigger, overlap=Queue(limit=FIRES), max_runs=FIRES
    )
    began = CLOCK.monotonic()
    for number in range(FIRES):
        fleet.scheduler.emit("number", {"n": number})
    fleet.completed([job])
    seconds = (CLOCK.monotonic() - began) / 1_000_000
    messages = transcript(fleet, job)
    assert [one.role for one in messages] == [Role.USER, Role.ASSISTANT] * FIRES
    assert all(
        told.occurrence_id == said.occurrence_id for told, said in zip(messages[::2], messages[1::2], strict=True)
    )
    assert sorted(one.parts[0]["text"] for one in messages[::2]) == sorted(f"Number {n}." for n in range(FIRES))
    assert (len(server.requests), server.most_busy) == (FIRES, 1)
    talked = {run.node for run in fleet.scheduler.runs(job, limit=FIRES)}
    figure(f"{FIRES} turns of one session on {len(talked)} of {len(nodes)} nodes in {seconds:.1f} s")
