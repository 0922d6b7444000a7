"""Other routes than functions: commands, requests that are answered later, agents and bundles."""

import hashlib

import pytest

from noonmark import AgentSettings
from noonmark.core.agents.session import Mob, Role, Session, member_session, schedule_session
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.options import Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.core.targets.session import SessionSpec
from noonmark.operations.serializers import run_document
from noonmark.ports.bundles import Bundle
from noonmark.server.dialects.tasks import run_document as task_run
from noonmark.targets.bundle.settings import BundleSettings
from tests.server.packed import SMALLEST, packed
from tests.servers.openai_server import KEY, OpenAIServer
from tests.targets.http.receiver import http_receiver
from tests.targets.temporal.rig import Rig, function, until

pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")


@pytest.fixture(scope="module")
def model():
    with OpenAIServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("OPENAI_API_KEY", KEY)
        yield server


@pytest.fixture(scope="module")
def rig(server, model, tmp_path_factory):
    routes, folder = (
        ("command", "http", "session", "mob", "task", "event", "bundle", "workflow"),
        tmp_path_factory.mktemp("routes"),
    )
    rig = Rig(
        server,
        folder,
        routes=routes,
        public_url="https://schedules.example.com",
        agents=AgentSettings(model="openai:gpt-4o-mini"),
        bundles=BundleSettings(cache=folder / "bundles"),
    )
    with rig.running():
        yield rig


def test_a_command_runs_on_the_worker(rig):
    occurrence_id = rig.run({"target_kind": "command", "argv": ["echo", "hello"]})
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    [run] = rig.runs(occurrence_id)
    assert (run.result["output"], run.node) == ("hello\n", "temporal:worker")


def test_an_event_is_emitted_once(rig):
    occurrence_id = rig.run({"target_kind": "event", "event_type": "shipped", "payload": {"n": 1}})
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    assert [one.payload for one in rig.store.events("default", 9, event_type="shipped")] == [{"n": 1}]


def test_a_task_talks_to_a_model_and_its_usage_is_in_the_ledger(rig, model):
    occurrence_id = rig.run({"target_kind": "task", "query": "What is new?"})
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    [run] = rig.runs(occurrence_id)
    assert (run.result["text"], run.usage.model_calls) == ("done", 1)
    assert run.usage.total_tokens == 110
    shown = task_run(run_document(run, rig.occurrence(occurrence_id).schedule_id), "What is new?")
    assert (shown["workflow_id"], shown["status"]) == (f"{occurrence_id}/1", "COMPLETED")
    assert len([one for one in model.requests if one["messages"][-1]["content"] == "What is new?"]) == 1


def test_a_turn_is_in_the_transcript_of_its_session(rig):
    target = {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": {"model": "openai:gpt-4o-mini", "max_tokens": 100},
        "action": {"type": "prompt", "prompt": "Go."},
    }
    occurrence_id = rig.run(target)
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    session_id = schedule_session(rig.occurrence(occurrence_id).uid)
    roles = [one.role for one in rig.store.messages("default", session_id, 9)]
    assert roles == [Role.USER, Role.ASSISTANT]


def test_members_of_a_mob_take_their_turns(rig):
    spec, session_id = SessionSpec(model="openai:gpt-4o-mini"), member_session("crew", "lead")
    flow = {"steps": [{"id": name, "member_id": "lead", "prompt": f"Now {name}."} for name in ("look", "write")]}
    document = {"members": [{"member_id": "lead"}], "flows": {"main": flow}}
    mob = Mob(tenant="default", mob_id="crew", user="local", document=document)
    member = Session(tenant="default", session_id=session_id, user="local", spec=spec, mob_id="crew", member_id="lead")
    rig.store.put_mob(mob, [member])
    action = {"type": "send", "content": "Report."}
    occurrence_id = rig.run(
        {"target_kind": "mob", "type": "member", "mob_id": "crew", "member_id": "lead", "action": action}
    )
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    [run] = rig.runs(occurrence_id)
    assert (run.result["text"], run.usage.model_calls, run.node) == ("done", 1, "temporal:worker")
    assert [one.role for one in rig.store.messages("default", session_id, 9)] == [Role.USER, Role.ASSISTANT]
    assert ("deliver", rig.engine.address.queue("mob")) in rig.activities(occurrence_id)
    flow_id = rig.run({"target_kind": "mob", "type": "flow", "mob_id": "crew", "flow_id": "main"})
    assert rig.ended(flow_id).phase is Phase.COMPLETED
    [run] = rig.runs(flow_id)
    assert ([run.result[name]["text"] for name in ("look", "write")], run.usage.model_calls) == (["done", "done"], 2)


def test_a_bundle_runs_where_its_worker_has_unpacked_it(rig):
    data = packed()
    rig.store.add_bundle_chunk("default", "content", 0, data)
    digest = hashlib.sha256(data).hexdigest()
    pushed = {"size": len(data), "files": 2, "user": "local", "source": "rest", "created": 0, "pushed": 0}
    rig.store.keep_bundle(
        Bundle(tenant="default", bundle_id="eval", digest=digest, manifest=SMALLEST, content_id="content", **pushed)
    )
    occurrence_id = rig.run({"target_kind": "bundle", "bundle_id": "eval"})
    assert rig.ended(occurrence_id).phase is Phase.COMPLETED
    [run] = rig.runs(occurrence_id)
    assert (run.result["output"], run.node) == ("hello\n", "temporal:worker")
    assert ("deliver", rig.engine.address.queue("bundle")) in rig.activities(occurrence_id)


def test_a_receiver_that_accepts_the_work_reports_its_end_itself(rig):
    with http_receiver() as receiver:
        receiver.answers.append((202, b"", {"Noonmark_Callback": "accepted"}))
        target = {"target_kind": "http", "url": f"{receiver.url}/next", "completion_timeout_seconds": 600}
        occurrence_id = rig.run(target)
        # The deadline is that of the receiver, not that of the engine.
        until(lambda: (one := rig.occurrence(occurrence_id)).deadline and one.deadline < one.due + 700_000_000)
    waiting = rig.occurrence(occurrence_id)
    assert waiting.phase is Phase.AWAITING_COMPLETION
    assert rig.status(occurrence_id) == "RUNNING"
    stored, now = rig.store.find_uid(waiting.uid), rig.store.clock()
    end = Delivered(outcome=Outcome.COMPLETED, started=now, ended=now, result="later")
    assert rig.store.settle([settle(waiting, stored.schedule, end, node="callback")]) == [True]
    assert rig.closed(occurrence_id) == "COMPLETED"
    assert rig.runs(occurrence_id)[0].result == "later"


def test_a_window_ends_what_has_begun(server, tmp_path):
    rig = Rig(server, tmp_path)
    with rig.running():
        occurrence_id = rig.run(function("hold", "window"), window=Window(1.5, end_action="cancel"))
        ended = rig.ended(occurrence_id)
        assert (ended.phase, ended.reason) == (Phase.CANCELLED, Reason.WINDOW_CLOSED)
        rig.closed(occurrence_id)
