"""Bundles that wait: for slots that others have, for nodes that have labels, and for services."""

import pytest

from tests.cli.runner import Cli
from tests.embedded.waiting import FINAL, eventually
from tests.server.packed import SMALLEST, packed
from tests.service.server import serving

GATED = "import pathlib, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.02)\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waits")
    with serving(folder, "--allow-bundles", "--bundle-cache", str(folder / "cache"), "--slots", "1") as made:
        yield made


def push(server, name, job, **manifest):
    path = server.folder / f"{name}.zip"
    path.write_bytes(packed({**SMALLEST, "name": name, **manifest}, {"job.py": job}))
    return Cli("--server", server.url).json("bundle", "push", path)


def start(server, name, **target):
    body = {
        "trigger": {"type": "cron", "expression": "0 0 1 1 *"},
        "target": {"target_kind": "bundle", "bundle_id": name, **target},
        "overlap_policy": "allow",
    }
    answer = server.ask("POST", "/schedules", body)
    assert answer.status == 201, answer.text
    run = server.ask("POST", f"/schedules/{answer.json['schedule_id']}/run", {})
    assert run.status == 202, run.text
    return run.json["occurrence_id"]


def state(server, occurrence_id):
    return server.get(f"/occurrences/{occurrence_id}").json


def ended(server, occurrence_id):
    def found():
        told = state(server, occurrence_id)
        return told["phase"] in FINAL and told

    return eventually(found)


def runs(server, occurrence_id):
    return server.get(f"/occurrences/{occurrence_id}/runs").json["runs"]


def test_a_run_waits_for_a_slot_and_says_so(server):
    go = server.folder / "go"
    pushed = push(server, "gated", GATED.format(str(go)), resources={"slots": 1})
    waits = {"retry_seconds": 0.2}
    first = start(server, "gated", resource_wait=waits)
    eventually(lambda: state(server, first)["phase"] == "dispatching" and runs(server, first))
    second = start(server, "gated", resource_wait=waits)

    def is_waiting():
        told = state(server, second)
        return (told["phase"], told["waiting_for"]) == ("pending", "resources_short") and told

    told = eventually(is_waiting)
    assert (told["reason"], told["detail"]) == ("resources_short", {"problem": "0 of 1 slots are free, 1 are needed"})
    assert told["bundle"] == {"bundle_id": "gated", "digest": pushed["digest"]}
    impatient = start(server, "gated", resource_wait={"retry_seconds": 0.1, "max_wait_seconds": 0.3})
    failed = ended(server, impatient)
    assert failed["phase"] == "delivery_failed"
    assert "it waited as long as it may: 0 of 1 slots" in runs(server, impatient)[0]["error"]
    go.touch()
    for one in (first, second):
        told = ended(server, one)
        assert (told["phase"], told["attempt"]) == ("completed", 1)
        assert [run["outcome"] for run in runs(server, one)] == ["completed"], "there is no run while it waits"


def test_a_resource_wait_schedule_of_a_manifest_runs_once_a_slot_is_free(server):
    schedule = {"kind": "resource_wait", "retry_interval_ms": 200, "max_wait_ms": 60_000}
    pushed = push(server, "queued", "print('ran')", resources={"slots": 1}, schedule=schedule)
    [made] = pushed["schedules"]

    def done():
        page = server.get(f"/schedules/{made['schedule_id']}/occurrences").json["occurrences"]
        return [one for one in page if one["phase"] == "completed"]

    [one] = eventually(done)
    assert runs(server, one["occurrence_id"])[0]["result"]["output"] == "ran\n"
    document = server.get(f"/schedules/{made['schedule_id']}").json
    assert document["target"]["resource_wait"] == {"retry_seconds": 0.2, "max_wait_seconds": 60}
    assert document["phase"] == "completed"


def test_a_push_leads_the_schedules_of_a_bundle_to_other_nodes(server):
    push(server, "moving", "print('ran')")
    occurrence_id = start(server, "moving")
    assert ended(server, occurrence_id)["phase"] == "completed"
    push(server, "moving", "print('ran')", resources={"labels": {"gpu": "a100"}})
    schedule_id = state(server, occurrence_id)["schedule_id"]
    assert server.get(f"/schedules/{schedule_id}").json["target"]["labels"] == {"gpu": "a100"}
    run = server.ask("POST", f"/schedules/{schedule_id}/run", {}).json
    assert run["waiting_for"] == "target_missing"
    assert "No live node serves `bundle:gpu=a100`" in run["why"]
    push(server, "moving", "print('ran')")
    assert ended(server, run["occurrence_id"])["phase"] == "completed"
