"""Bundles on a real server: every example that MirrorNeuron documents for schedules, with `noonmark` for `mn`."""

import json
import shlex
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from noonmark.client import Client
from noonmark.core.errors import NotAllowed
from tests.cli.runner import Cli, call, contains
from tests.embedded.waiting import FINAL, eventually
from tests.server.packed import SMALLEST, packed
from tests.service.server import serving

LOST = {"name": "lost", "command": ["./lost"]}
JOB = """
import json, os, sys
dispatch = json.load(open(os.environ["NOONMARK_DISPATCH_FILE"]))
print(json.dumps({"payload": json.load(sys.stdin), "reason": dispatch["reason"]}))
"""
# Shell examples as they are written there; the time lies in the future again.
EXAMPLES = r"""
mn schedule create /path/to/bundle \
  --cron "0 2 * * *" \
  --timezone America/New_York \
  --name nightly-eval
mn schedule create /path/to/bundle --cron "*/15 * * * *" --allow-overlap
mn schedule create /path/to/bundle --cron "0 1 * * *" --window 2h
mn schedule delay /path/to/bundle --at "2036-05-25T02:00:00Z"
mn schedule delay /path/to/bundle --in 30m --name delayed-cleanup
mn trigger create /path/to/bundle \
  --event file_uploaded \
  --filter-json '{"path":{"prefix":"/datasets/"}}'
mn event emit file_uploaded \
  --payload-json '{"path":"/datasets/eval.jsonl","bucket":"local"}'
mn schedule list
mn schedule list --kind periodic
mn schedule list --status active
mn schedule status <schedule-id>
mn schedule pause <schedule-id> --reason "hold during maintenance"
mn schedule resume <schedule-id> --reason "maintenance complete"
mn schedule run-now <schedule-id>
mn schedule run-now <schedule-id> --payload-json '{"manual":true}'
mn schedule delete <schedule-id> --reason "retired"
mn event list --limit 50
"""
PERIODIC = """
{
  "schedule": {
    "enabled": true,
    "kind": "periodic",
    "crons": ["0 2 * * *"],
    "timezone": "America/New_York",
    "prohibit_overlap": true,
    "missed_policy": "skip",
    "catchup_limit": 10,
    "window": {
      "duration_ms": 3600000,
      "end_action": "cancel"
    }
  }
}
"""
AT = '{"schedule": {"kind": "delayed", "run_at": "2036-05-25T02:00:00Z"}}'
IN = '{"schedule": {"kind": "delayed", "delay_ms": 1800000}}'
TRIGGERS = """
{
  "triggers": [
    {
      "name": "dataset-uploaded",
      "enabled": true,
      "event_type": "file_uploaded",
      "filters": {
        "path": {
          "prefix": "/datasets/"
        }
      }
    }
  ]
}
"""
FILTERED = """
{
  "triggers": [
    {
      "event_type": "file_uploaded",
      "filters": {"source": "otterdesk", "path": {"contains": ".jsonl"}, "kind": ["dataset", "eval"]}
    }
  ]
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    cache = ("--bundle-cache", str(folder / "cache"))
    with serving(folder, "--allow-bundles", *cache, "--labels", "gpu=a100", "--slots", "1") as made:
        yield made


@pytest.fixture(scope="module")
def cli(server):
    return Cli("--server", server.url)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return folder_with(tmp_path_factory.mktemp("bundle"), SMALLEST, JOB)


def folder_with(folder: Path, manifest, job=JOB) -> Path:
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "job.py").write_text(job)
    return folder


def commands():
    text = EXAMPLES.replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in text.strip().splitlines()]


def output_of(server, occurrence_id):
    """What the run of an occurrence put out, once it has completed."""

    def ended():
        told = server.get(f"/occurrences/{occurrence_id}").json
        return told["phase"] in FINAL and told

    told = eventually(ended)
    [run] = server.get(f"/occurrences/{occurrence_id}/runs").json["runs"]
    assert told["phase"] == "completed", run
    return json.loads(run["result"]["output"])


def test_every_documented_command(server, cli, bundle):
    answers, outputs, schedule_id = [], [], None
    for words in commands():
        given = [str(bundle) if word == "/path/to/bundle" else word for word in words]
        given = [schedule_id if word == "<schedule-id>" else word for word in given]
        answer = cli.json(*given)
        answers.append(answer)
        schedule_id = schedule_id or answer["schedule_id"]
        if "run-now" in words:
            outputs.append(output_of(server, answer["occurrence_id"]))
    [nightly, overlapping, window, at, delayed, trigger, event, *rest] = answers
    target = {"target_kind": "bundle", "bundle_id": "eval"}
    cron = {"expression": "0 2 * * *", "timezone": "America/New_York"}
    assert contains(nightly, {"name": "nightly-eval", "trigger": cron, "target": target, "overlap_policy": "skip"})
    assert contains(overlapping, {"name": "eval", "overlap_policy": "allow", "target": target})
    assert contains(window, {"window": {"duration_seconds": 7200, "end_action": "cancel"}})
    assert at["next_run_at"] == "2036-05-25T02:00:00Z"
    assert (delayed["name"], delayed["trigger"]["type"]) == ("delayed-cleanup", "once")
    assert contains(trigger, {"trigger": {"type": "event", "filters": {"path": {"prefix": "/datasets/"}}}})
    everything, periodic, active, status, paused, resumed, _, _, deleted, events = rest
    listed = [{one["schedule_id"] for one in page["schedules"]} for page in (everything, periodic, active)]
    ids = [one["schedule_id"] for one in (nightly, overlapping, window, at, delayed, trigger)]
    assert set(ids) <= listed[0] & listed[2]
    assert set(ids) & listed[1] == set(ids[:3])
    assert (status["schedule_id"], paused["phase"], resumed["phase"]) == (schedule_id, "paused", "active")
    assert outputs == [{"payload": {}, "reason": "manual"}, {"payload": {"manual": True}, "reason": "manual"}]
    assert deleted["phase"] == "deleted"
    assert event["event_id"] in {one["event_id"] for one in events["events"]}
    [started] = eventually(lambda: server.get(f"/schedules/{trigger['schedule_id']}/occurrences").json["occurrences"])
    uploaded = {"path": "/datasets/eval.jsonl", "bucket": "local"}
    assert output_of(server, started["occurrence_id"]) == {"payload": uploaded, "reason": "event"}


@pytest.mark.parametrize(
    ("shape", "schedule_id", "declared"),
    [
        (
            PERIODIC,
            "schedule",
            {
                "phase": "active",
                "trigger": {"expression": "0 2 * * *", "timezone": "America/New_York"},
                "overlap_policy": "skip",
                "misfire_policy": {"type": "skip"},
                "window": {"duration_seconds": 3600, "end_action": "cancel"},
            },
        ),
        (AT, "schedule", {"trigger": {"type": "once", "due_at_utc": "2036-05-25T02:00:00Z"}}),
        (IN, "schedule", {"trigger": {"type": "once"}}),
        (
            TRIGGERS,
            "trigger.dataset-uploaded",
            {"name": "dataset-uploaded", "trigger": {"event_type": "file_uploaded"}, "phase": "active"},
        ),
        (FILTERED, "trigger.1", {"trigger": {"filters": {"kind": ["dataset", "eval"]}}}),
    ],
)
def test_every_documented_manifest(cli, tmp_path, shape, schedule_id, declared):
    manifest = {**SMALLEST, "name": f"shaped-{abs(hash(shape))}", **json.loads(shape)}
    folder = folder_with(tmp_path, manifest)
    pushed = cli.json("bundle", "push", folder)
    [done] = [*pushed["schedules"], *pushed["triggers"]]
    assert done == {
        "schedule_id": f"{manifest['name']}.{schedule_id}",
        "name": declared.get("name", f"{manifest['name']}.{schedule_id}"),
        "action": "created",
    }
    again = cli("bundle", "push", folder)
    assert f"unchanged {done['schedule_id']}" in again
    assert contains(cli.json("schedule", "status", done["schedule_id"]), declared)
    kind = "schedule" if pushed["schedules"] else "trigger"
    by_manifest = cli.json(kind, "create", folder)
    assert by_manifest["schedule_id"] == done["schedule_id"], "without a trigger, that of the manifest"
    cli.json("schedule", "delete", done["schedule_id"])
    assert cli.json("bundle", "delete", manifest["name"])["bundle_id"] == manifest["name"]


def test_a_push_emits_an_event_that_starts_another_bundle(server, cli, bundle, tmp_path):
    trigger = cli.json("trigger", "create", bundle, "--event", "bundle_uploaded", "--filter-json", '{"name": "later"}')
    pushed = cli.json("bundle", "push", folder_with(tmp_path, {**SMALLEST, "name": "later"}))
    [one] = eventually(lambda: server.get(f"/schedules/{trigger['schedule_id']}/occurrences").json["occurrences"])
    assert output_of(server, one["occurrence_id"])["payload"]["digest"] == pushed["digest"]


def test_a_bundle_runs_at_once_with_its_output_and_its_exit_code(server, tmp_path):
    job = "import sys; print('first', flush=True); print('second'); sys.exit(int(sys.stdin.read()))"
    folder = folder_with(tmp_path, {**SMALLEST, "name": "coded"}, job)
    done = call("bundle", "run", folder, "--server", server.url, "--payload-json", "3")
    assert (done.code, done.out) == (3, "first\nsecond\n")
    assert done.err.startswith("noonmark: occ_")
    again = call("bundle", "run", "coded", "--server", server.url, "--payload-json", "0", "--json")
    assert (again.code, again.json["run"]["result"]["bundle"]["bundle_id"]) == (0, "coded")
    store = f"sqlite:///{tmp_path / 'local.db'}"
    alone = call("bundle", "run", folder, "--store", store, "--payload-json", "4")
    assert (alone.code, alone.out) == (4, "first\nsecond\n"), "a command on a file starts a node itself"
    lost = call("bundle", "run", folder_with(tmp_path, LOST), "--server", server.url)
    [line] = lost.errors
    assert (lost.code, lost.out) == (1, ""), "an error is not output too"
    assert line.endswith("delivery_failed: the bundle has no file './lost'")
    [line] = call("bundle", "run", tmp_path / "missing", "--server", server.url).errors
    assert line.endswith("missing: no such file or folder, and no bundle with that id")


def test_a_bundle_is_pushed_as_a_form_and_by_the_client(server):
    data = packed({**SMALLEST, "name": "form"})
    head = '--x\r\nContent-Disposition: form-data; name="file"; filename="form.zip"\r\n\r\n'
    body = head.encode() + data + b"\r\n--x--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = httpx2.post(f"{server.url}/bundles", content=body, headers=kind)
    assert (answer.status_code, answer.headers["Location"]) == (201, "/bundles/form")
    archive = server.folder / "form.zip"
    archive.write_bytes(data)
    with Client(server.url) as client:
        pushed = client.push_bundle(archive, bundle_id="named")
        assert (pushed.bundle_id, pushed.name, pushed.digest) == ("named", "form", client.bundle("form").digest)
        assert pushed.pushed_at_utc.utcoffset() == timedelta(0)
        assert [one.bundle_id for one in client.bundles() if one.name == "form"] == ["form", "named"]
        client.delete_bundle("named")


def test_a_bundle_may_be_a_workflow(server, cli, tmp_path):
    steps = [
        {
            "id": "emit",
            "target": {"target_kind": "event", "event_type": "from-bundle"},
            "input": {"n": "{{ inputs.n }}"},
        }
    ]
    manifest = {"name": "flow", "workflow": "flow.json", "inputs": {"n": 1}}
    folder = folder_with(tmp_path, manifest)
    (folder / "flow.json").write_text(json.dumps({"steps": [{"id": "broken"}]}))
    [line, *_] = cli.refused(2, "bundle", "push", folder)
    assert line.startswith("workflow.steps[0]")
    (folder / "flow.json").write_text(json.dumps({"steps": steps}))
    answer = cli.json("schedule", "create", folder, "--cron", "0 0 1 1 *")
    run = cli.json("schedule", "run-now", answer["schedule_id"])
    eventually(lambda: server.get(f"/occurrences/{run['occurrence_id']}").json["phase"] == "completed")
    [event] = server.get("/events?event_type=from-bundle").json["events"]
    assert event["payload"] == {"n": 1}
    assert server.get("/workflows/flow").json["version"] == 1


def test_a_workflow_of_a_bundle_is_compensated_when_it_is_cancelled_while_it_waits(server, cli, tmp_path):
    made, undone = ({"target_kind": "event", "event_type": f"bundle-{one}"} for one in ("made", "undone"))
    steps = [
        {"id": "make", "target": made, "compensate": undone},
        {"id": "ask", "depends_on": ["make"], "approval": {"message": "Go on?"}},
    ]
    pushed = cli.json("bundle", "push", folder_with(tmp_path, {"name": "asks", "workflow": {"steps": steps}}))
    occurrence_id = server.ask("POST", "/bundles/asks/run", {}).json["occurrence_id"]
    eventually(lambda: server.get(f"/occurrences/{occurrence_id}").json["waiting_for"] == "approval")
    assert server.ask("POST", f"/occurrences/{occurrence_id}/cancel", {}).status in (200, 202)
    ended = eventually(lambda: (told := server.get(f"/occurrences/{occurrence_id}").json)["phase"] in FINAL and told)
    assert (ended["phase"], ended["reason"]) == ("cancelled", "cancelled")
    archive = {"bundle_id": "asks", "digest": pushed["digest"]}
    runs = server.get(f"/occurrences/{occurrence_id}/runs").json["runs"]
    assert [run["outcome"] for run in runs] == ["cancelled", "suspended"]
    assert [run["bundle"] for run in runs] == [archive] * 2
    assert server.get(f"/runs/{runs[0]['run_id']}").json["bundle"] == ended["bundle"] == archive
    phases = {step["step_id"]: step["phase"] for step in server.get(f"/workflow-runs/{occurrence_id}").json["steps"]}
    assert phases == {"make": "compensated", "ask": "cancelled"}
    assert server.get("/approvals?state=pending").json["approvals"] == []
    cli.json("bundle", "push", folder_with(tmp_path, {"name": "asks", "workflow": {"steps": steps[:1]}}))
    again = server.ask("POST", f"/occurrences/{occurrence_id}/redrive", {}).json["occurrence_id"]
    eventually(lambda: server.get(f"/occurrences/{again}").json["waiting_for"] == "approval")
    assert server.get(f"/occurrences/{again}").json["bundle"] == archive, "it goes on with the definition that it had"
    server.ask("POST", f"/occurrences/{again}/cancel", {})


def test_a_bundle_may_be_a_step_of_a_workflow(server, cli, bundle):
    pushed = cli.json("bundle", "push", bundle)
    target = {"target_kind": "bundle", "bundle_id": "eval", "inputs": {"n": 7}}
    definition = {"workflow_id": "of-bundles", "steps": [{"id": "work", "target": target}]}
    assert server.ask("POST", "/workflows", definition).status == 201
    run = server.ask("POST", "/workflows/of-bundles/runs", {}).json["workflow_run_id"]
    eventually(lambda: server.get(f"/workflow-runs/{run}").json["phase"] == "completed")
    [step] = server.get(f"/workflow-runs/{run}").json["steps"]
    assert json.loads(step["result"]["output"])["payload"] == {"n": 7}
    child = server.get(f"/occurrences/{step['occurrence_id']}").json
    assert child["bundle"]["digest"] == step["result"]["bundle"]["digest"] == pushed["digest"]


def test_labels_lead_a_bundle_to_a_node_that_has_them(server, cli, tmp_path):
    manifest = {**SMALLEST, "name": "labelled", "resources": {"labels": {"gpu": "a100"}, "slots": 1}}
    folder = folder_with(tmp_path, manifest)
    answer = cli.json("schedule", "create", folder, "--cron", "0 0 1 1 *")
    assert (answer["target"]["labels"], answer["target"]["slots"]) == ({"gpu": "a100"}, 1)
    run = cli.json("schedule", "run-now", answer["schedule_id"])
    assert output_of(server, run["occurrence_id"])["reason"] == "manual"
    folder_with(folder, {**manifest, "resources": {"labels": {"gpu": "h100"}}})
    other = cli.json("schedule", "create", folder, "--cron", "0 0 1 1 *")
    assert "no live node serves `bundle:gpu=h100`" in other["warnings"][0]
    folder_with(folder, {**manifest, "resources": {"slots": 2}})
    larger = cli.json("schedule", "create", folder, "--cron", "0 0 1 1 *")
    assert "no live node serves `bundle:slots:2`" in larger["warnings"][0], "the node has one slot in all"


def test_without_the_flag_bundles_are_refused(tmp_path):
    with serving(tmp_path) as closed:
        refused = call("bundle", "push", folder_with(tmp_path, SMALLEST), "--server", closed.url, "--json")
        assert (refused.code, refused.problem["code"]) == (5, "not_allowed")
        assert "--allow-bundles" in refused.problem["detail"]
        with Client(closed.url) as client, pytest.raises(NotAllowed, match="--allow-bundles"):
            client.push_bundle(tmp_path)
        target = {"target_kind": "bundle", "bundle_id": "eval"}
        made = closed.ask("POST", "/schedules", {"trigger": {"type": "cron", "expression": "@daily"}, "target": target})
        assert "a server runs bundles with --allow-bundles" in made.json["warnings"][0]
