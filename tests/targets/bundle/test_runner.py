"""The bundle runner, with real programs."""

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from noonmark.core.ids import event
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.occurrence import Overrides, PinnedBundle
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.reasons import Reason
from noonmark.core.settlement import Suspended
from noonmark.core.targets import FunctionTarget
from noonmark.core.triggers import IntervalTrigger
from tests.embedded.waiting import eventually
from tests.server.packed import SMALLEST
from tests.targets.assignments import SOON, now
from tests.targets.bundle.harness import bundle_runner
from tests.targets.command.harness import is_alive, is_stopped

TELL = """
import json, os, sys
told = {name: value for name, value in os.environ.items() if name.startswith("NOONMARK_") or name == "MODE"}
dispatch = json.load(open(os.environ["NOONMARK_DISPATCH_FILE"]))
open("scratch.txt", "w").write("mine")
print(json.dumps({"stdin": sys.stdin.read(), "env": told, "dispatch": dispatch, "files": sorted(os.listdir("."))}))
"""


@pytest.fixture
def runner(tmp_path):
    with bundle_runner(tmp_path, slots=1) as made:
        yield made


def told_by(delivered):
    assert delivered.outcome == "completed", delivered.error
    return json.loads(delivered.result["output"])


def test_a_command_runs_in_a_copy_of_the_files_and_is_told_of_its_run(runner):
    bundle = runner.push({**SMALLEST, "inputs": {"n": 1, "m": 2}, "env": {"MODE": "fast"}}, {"job.py": TELL})
    target = {"bundle_id": "eval", "inputs": {"n": 3}}
    assignment = runner.start(target, name="nightly")
    delivered = runner.end_of(assignment)
    told = told_by(delivered)
    assert json.loads(told["stdin"]) == {"n": 3, "m": 2}
    assert told["files"] == ["job.py", "manifest.json", "scratch.txt"]
    env, dispatch, occurrence = told["env"], told["dispatch"], assignment.occurrence
    assert (env["MODE"], env["NOONMARK_BUNDLE_ID"], env["NOONMARK_BUNDLE_DIGEST"]) == ("fast", "eval", bundle.digest)
    assert (env["NOONMARK_OCCURRENCE_ID"], env["NOONMARK_REASON"]) == (occurrence.id, "manual")
    assert dispatch["inputs"] == {"n": 3, "m": 2}
    assert (dispatch["schedule_id"], dispatch["schedule_name"]) == (occurrence.schedule_id, "nightly")
    assert (dispatch["attempt"], dispatch["event"], dispatch["reason"]) == (1, None, "manual")
    assert delivered.result["bundle"] == {"bundle_id": "eval", "digest": bundle.digest}
    assert not Path(env["NOONMARK_DISPATCH_FILE"]).exists(), "nothing is left of a run"
    again = told_by(runner.run(target))
    assert again["files"] == told["files"], "each run has its own copy"


def test_the_payload_of_an_event_or_of_the_caller_is_read_instead_of_the_inputs(runner):
    runner.push({**SMALLEST, "inputs": {"n": 1}}, {"job.py": TELL})
    told = told_by(runner.run(payload={"manual": True}))
    assert (json.loads(told["stdin"]), told["dispatch"]["inputs"]) == ({"manual": True}, {"n": 1})
    seen = {"event_id": "e1", "event_type": "file_uploaded", "source": "api", "payload": {"path": "/datasets/a"}}
    told = told_by(runner.run(payload=seen, origin=event("e1")))
    assert json.loads(told["stdin"]) == {"path": "/datasets/a"}
    assert (told["dispatch"]["event"], told["env"]["NOONMARK_EVENT_ID"]) == (seen, "e1")
    assert told["env"]["NOONMARK_REASON"] == "event"


def test_the_standard_input_is_json_also_without_payload_and_inputs(runner):
    runner.push(SMALLEST, {"job.py": TELL})
    told = told_by(runner.run())
    assert (json.loads(told["stdin"]), told["dispatch"]["payload"]) == ({}, {})


def test_the_newest_push_runs_unless_a_digest_pins_another(runner):
    first = runner.push(files={"job.py": "print(1)"})
    runner.push(files={"job.py": "print(2)"})
    assert runner.run().result["output"] == "2\n"
    assert runner.run({"digest": first.digest}).result["output"] == "1\n"


def test_programs_of_the_bundle_and_the_exit_code(runner):
    runner.push({"name": "eval", "command": ["./bin/run.sh", "a b"]}, {"bin/run.sh": '#!/bin/sh\necho "$1"; exit 3'})
    delivered = runner.run()
    assert (delivered.outcome, delivered.result["exit_code"], delivered.result["output"]) == ("failed", 3, "a b\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [(["../sh"], "has no file"), (["./missing"], "has no file"), (["no-such-program"], "was not found")],
)
def test_a_missing_program_is_a_failed_delivery(runner, command, words):
    runner.push({"name": "eval", "command": command})
    delivered = runner.run()
    assert (delivered.outcome, words in delivered.error) == ("delivery_failed", True), delivered.error


def test_what_is_gone_or_damaged_is_a_failed_delivery(runner):
    assert "there is no bundle 'eval'" in runner.run().error
    bundle = runner.push()
    runner.store._uow.bundles._contents["acme", bundle.content_id].chunks[0] += b"!"
    delivered = runner.run()
    assert (delivered.outcome, "does not have its digest" in delivered.error) == ("delivery_failed", True)


def test_the_terms_of_the_manifest_hold_where_the_schedule_has_none(runner):
    manifest = {**SMALLEST, "timeout_seconds": 0.3, "retry": {"max_attempts": 3}}
    runner.push(manifest, {"job.py": "import time; print('begun', flush=True); time.sleep(600)"})
    assignment = runner.start()
    assert runner.end_of(assignment).outcome == "timed_out"
    assert assignment.schedule.declaration.retry_policy.max_attempts == 3
    own = runner.start(timeout=SECOND // 10, retry_policy=RetryPolicy(max_attempts=2))
    assert runner.end_of(own).outcome == "timed_out"
    assert own.schedule.declaration.retry_policy.max_attempts == 2
    assert own.schedule.declaration.timeout == SECOND // 10


def test_a_run_that_is_cancelled_is_killed_with_its_children(runner, tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"
    runner.push({"name": "eval", "command": ["sh", "-c", script]})
    assignment = runner.start()
    eventually(pids.exists)
    assignment.stop(Reason.CANCELLED)
    assert runner.end_of(assignment).outcome == "cancelled"
    assert not any(is_alive(pid) for pid in pids.read_text().split())


def test_secrets_reach_the_bundles_that_they_are_bound_to_and_are_masked(runner):
    job = "import os; print(os.environ['TOKEN'] + '!'); print('done'); raise SystemExit(os.environ['TOKEN'])"
    runner.push({**SMALLEST, "secret_env": {"TOKEN": "hub"}}, {"job.py": job})
    assert "does not exist" in runner.run().error
    runner.secret("hub", "s3cr3t-value", "bundle:other", "python")
    refused = runner.run()
    assert (refused.outcome, "--program bundle:eval" in refused.error) == ("delivery_failed", True)
    runner.secret("hub", "s3cr3t-value", "bundle:eval")
    delivered = runner.run()
    assert delivered.result["output"] == "***\ndone\n***\n"
    assert "s3cr3t" not in f"{delivered.error}{delivered.result}"


def test_a_service_that_does_not_answer_delays_the_start(runner):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        runner.push({**SMALLEST, "services": [{"tcp": f"127.0.0.1:{port}", "timeout_seconds": 5}]})
        assert runner.run().outcome == "completed"
    waits = runner.run({"bundle_id": "eval", "resource_wait": {"retry_seconds": 5}})
    assert isinstance(waits, Suspended)
    assert (waits.waiting_for, waits.until - waits.ended) == (Reason.SERVICE_UNAVAILABLE, 5 * SECOND)
    assert f"the service 127.0.0.1:{port} does not answer" in waits.error
    late = runner.run({"bundle_id": "eval", "resource_wait": {"max_wait_seconds": 0.001}}, after=-SECOND)
    assert (late.outcome, "waited as long as it may" in late.error) == ("delivery_failed", True)


def test_a_service_that_answers_with_an_error_delays_the_start(runner):
    def answer(server):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                path = connection.recv(1_000).split()[1].decode()
                connection.sendall(f"HTTP/1.1 {path[1:]} x\r\nContent-Length: 0\r\n\r\n".encode())

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        for status, is_there in (("204", True), ("404", True), ("503", False)):
            runner.push({**SMALLEST, "services": [{"http": f"{url}/{status}"}]})
            ended = runner.run()
            assert isinstance(ended, Suspended) is not is_there, status
        assert ended.error == f"the service {url} answered with status 503"
        server.shutdown(socket.SHUT_RDWR)


def test_a_run_waits_while_its_resources_are_taken(runner):
    wait = "import pathlib, time\nwhile not pathlib.Path('{}').exists(): time.sleep(0.01)"
    go = runner.cache._folder.parent / "go"
    runner.push({**SMALLEST, "resources": {"slots": 1}}, {"job.py": wait.format(go)})
    first = runner.start()
    eventually(lambda: runner.resources._slots == 1)
    second = runner.run({"bundle_id": "eval", "resource_wait": {"retry_seconds": 0.5}})
    assert isinstance(second, Suspended)
    assert second.error == "0 of 1 slots are free, 1 are needed"
    go.touch()
    assert runner.end_of(first).outcome == "completed"
    assert runner.run().outcome == "completed"
    runner.push({**SMALLEST, "resources": {"cpus": 4_000, "memory_mb": 1_000_000}})
    assert "processors are free, 4,000 are needed; " in runner.run().error


def test_a_node_serves_every_set_of_its_labels(tmp_path):
    with bundle_runner(tmp_path, labels={"gpu": "a100", "zone": "b"}) as runner:
        assert runner.runner.routes() == ("bundle", "bundle:gpu=a100", "bundle:zone=b", "bundle:gpu=a100,zone=b")
        assert runner.runner.adopt(["bundle:other=x"]) is False


def test_other_work_is_passed_on_to_its_target(runner):
    runner.push({"name": "eval", "function": "evaluate", "inputs": {"n": 1}})
    assignment = runner.start({"bundle_id": "eval", "inputs": {"m": 2}})
    assert runner.other.has_come.wait(SOON)
    assert runner.other.given == [assignment]
    target = FunctionTarget(function="evaluate", kwargs={"n": 1, "m": 2})
    assert assignment.schedule.declaration.target == target
    runner.push({"name": "eval", "http": {"url": "https://example.com"}})
    assert "does not run bundles of kind http" in runner.run().error


@pytest.mark.parametrize("action", EndAction)
def test_the_end_of_a_window_is_that_of_commands(runner, action):
    """The job works for longer than its window is open, unless it is suspended or stopped."""
    job = "import time\nends = time.monotonic() + 1\nwhile time.monotonic() < ends: time.sleep(0.01)\nprint('done')"
    if action is not EndAction.NONE:
        job = "import time\nwhile True: time.sleep(0.01)"
    runner.push(files={"job.py": job})
    trigger = IntervalTrigger(3_600, start_at=from_micros(now()))
    assignment = runner.start(window=Window(duration=SECOND // 2, end_action=action), trigger=trigger)

    def is_suspended():
        return any(one._pid is not None and is_stopped(one._pid) for one in list(runner.runner._running))

    if action is EndAction.PAUSE:
        eventually(is_suspended)
        assignment.stop(Reason.CANCELLED)
    end = runner.end_of(assignment)
    assert (end.outcome, end.reason) == {
        EndAction.CANCEL: ("cancelled", Reason.WINDOW_CLOSED),
        EndAction.PAUSE: ("cancelled", Reason.CANCELLED),
        EndAction.NONE: ("completed", None),
    }[action]
    assert end.result["output"] == ("done\n" if action is EndAction.NONE else "")


def test_a_run_has_the_archive_that_its_occurrence_began_with(runner):
    first = runner.push(files={"job.py": "print('first')"})
    second = runner.push(files={"job.py": "print('second')"})
    pinned = Overrides(bundle=PinnedBundle(bundle_id="eval", digest=first.digest))
    again = runner.run(overrides=pinned)
    assert (again.result["output"], again.result["bundle"]["digest"]) == ("first\n", first.digest)
    assert runner.run().result["bundle"]["digest"] == second.digest
    elsewhere = replace(pinned, bundle=replace(pinned.bundle, bundle_id="other"))
    assert runner.run(overrides=elsewhere).result["output"] == "second\n", "its schedule names another bundle by now"


def test_a_workflow_that_is_to_stop_waits_for_no_resources(runner):
    runner.push({"name": "eval", "workflow": {"steps": []}, "resources": {"slots": 100}})
    assert isinstance(runner.run(), Suspended)
    stopped = runner.run(stop=Reason.CANCELLED)
    assert "does not run bundles of kind workflow" in stopped.error
