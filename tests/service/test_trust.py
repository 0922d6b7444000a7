"""What clients of a real server can do with functions that a program declared in its own process."""

import json
import subprocess
from contextlib import suppress
from importlib import import_module

import pytest

from noonmark import EventTrigger, NotFound, Scheduler
from tests.cli.terminal import NOONMARK, in_pipe
from tests.embedded.waiting import FINAL, NEVER, eventually
from tests.service.server import serving

JOBS = """
import pathlib

HERE = pathlib.Path(__file__).parent

def note(where, *words, context=None):
    with (HERE / where).open("a") as file:
        file.write(repr((words, context and context.payload)) + "\\n")
"""
SHELL = ["sh", "-c", "touch pwned"]
YEARLY = {"type": "cron", "expression": "0 0 1 1 *"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("trust")
    (made / "wire_jobs.py").write_text(JOBS)
    return made


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder, "--function", "note=wire_jobs:note") as made:
        yield made


@pytest.fixture
def program(server, folder):
    """One of its own for each test: a program knows a function by the first name that it was given."""
    scheduler = Scheduler(f"sqlite:///{folder / 'noonmark.db'}")
    yield scheduler
    scheduler.close()


@pytest.fixture
def jobs(monkeypatch, folder):
    monkeypatch.syspath_prepend(folder)
    return import_module("wire_jobs")


@pytest.fixture
def job(program):
    schedule = program.schedule(subprocess.run, args=[["true"]], trigger=NEVER)
    yield schedule
    with suppress(NotFound):
        program.delete(schedule)


def refusal(answer):
    return answer.status, answer.json.get("code"), answer.json.get("field")


def run(server, schedule_id, **body):
    answer = server.ask("POST", f"/schedules/{schedule_id}/run", body)
    assert answer.status == 202, answer.text
    occurrence_id = answer.json["occurrence_id"]
    return eventually(lambda: (told := server.get(f"/occurrences/{occurrence_id}").json)["phase"] in FINAL and told)


def test_the_function_of_a_program_cannot_be_changed_over_any_transport(server, folder, job):
    stored = server.get(f"/schedules/{job}").json
    target = stored["target"]
    assert (target["function"], stored["source"]) == ("subprocess:run", "embedded")
    evil = [
        {**target, "args": [SHELL]},
        {**target, "args": [], "kwargs": {"args": SHELL}},
        {**target, "kwargs": {"shell": True}},
        {**target, "payload": {"x": 1}},
        {**target, "executor": "process"},
        {**target, "function": "os:system"},
        {"target_kind": "function", "function": "note", "args": ["stolen"]},
        {"target_kind": "command", "argv": SHELL},
        {"target_kind": "http", "url": f"{server.url}/signing-key"},
    ]
    refused = (403, "not_allowed", "target")
    for one in evil:
        assert refusal(server.ask("PATCH", f"/schedules/{job}", {"target": one})) == refused, one
        document = {"schedule_id": job, "trigger": YEARLY, "target": one}
        assert refusal(server.ask("POST", "/schedules/upsert", document)) == refused, one
    for method, params in (
        ("schedule/update", {"schedule_id": job, "target": evil[0]}),
        ("schedule/upsert", {"schedule_id": job, "trigger": YEARLY, "target": evil[0]}),
        ("schedule/run", {"schedule_id": job, "payload": 1}),
    ):
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        assert server.ask("POST", "/rpc", asked).json["error"]["data"]["code"] == "not_allowed", method
    words = ("schedule", "update", job, "--schedule-json", json.dumps({"target": evil[0]}))
    typed = in_pipe(*NOONMARK, *words, NOONMARK_SERVER=server.url)
    assert (typed.returncode, "only a program can change what it calls" in typed.stderr) == (5, True)
    stored_here = in_pipe(*NOONMARK, *words, "--store", f"sqlite:///{folder / 'noonmark.db'}")
    assert stored_here.returncode == 5
    # A copy of what is told makes no schedule of its own, by no name.
    for fields in ({}, {"schedule_id": "copy"}, {"name": "copy"}):
        answer = server.ask("POST", "/schedules", {"trigger": YEARLY, "target": target, **fields})
        assert refusal(answer) == (400, "invalid_schedule", "target.function")
    assert server.get(f"/schedules/{job}").json["target"] == target
    assert not (folder / "pwned").exists()


def test_such_a_schedule_can_be_paused_run_retimed_and_deleted(server, program, job):
    assert run(server, job)["phase"] == "completed"
    assert server.ask("POST", f"/schedules/{job}/pause", {}).json["phase"] == "paused"
    assert server.ask("POST", f"/schedules/{job}/resume", {}).json["phase"] == "active"
    answer = server.ask("PATCH", f"/schedules/{job}", {"trigger": YEARLY, "timeout_seconds": 5, "labels": {"a": "b"}})
    assert (answer.status, answer.json["timeout_seconds"], answer.json["source"]) == (200, 5, "embedded")
    # The document that was read, sent back with other times, says nothing else.
    again = {name: answer.json[name] for name in ("name", "target", "labels")} | {"trigger": YEARLY}
    assert server.ask("PATCH", f"/schedules/{job}", again).status == 200
    assert server.ask("DELETE", f"/schedules/{job}").status in (200, 204)


def test_payloads_are_accepted_only_where_the_program_or_the_server_allows(server, folder, program, jobs):
    offered = program.schedule(jobs.note, args=["offered"], trigger=NEVER)
    sealed = program.schedule(jobs.note, args=["sealed"], function_name="sealed", trigger=NEVER)
    takes = program.schedule(jobs.note, args=["takes"], function_name="sealed", trigger=NEVER, accepts_payload=True)
    program.start()
    assert refusal(server.ask("POST", f"/schedules/{sealed}/run", {"payload": 1})) == (403, "not_allowed", "payload")
    assert run(server, sealed)["phase"] == "completed"
    assert run(server, takes, payload={"n": 1})["phase"] == "completed"
    assert run(server, offered, payload={"n": 2})["phase"] == "completed"
    program.stop()
    written = {one: (folder / one).read_text() for one in ("sealed", "takes", "offered")}
    assert written == {"sealed": "((), None)\n", "takes": "((), {'n': 1})\n", "offered": "((), {'n': 2})\n"}
    # Nobody lets himself in.
    for body in ({"accepts_payload": True}, {"trigger": {"type": "event", "event_type": "mine"}}, {"name": "theirs"}):
        assert refusal(server.ask("PATCH", f"/schedules/{sealed}", body)) == (403, "not_allowed", next(iter(body)))
    assert server.get(f"/schedules/{takes}").json["accepts_payload"] is True
    # What the server offers may be called with anything, by the name it has or by its module.
    changed = {"target": {"target_kind": "function", "function": "wire_jobs:note", "args": ["changed"]}}
    assert server.ask("PATCH", f"/schedules/{offered}", changed).status == 200
    assert run(server, offered)["phase"] == "completed"
    assert (folder / "changed").exists()


def test_a_program_that_waits_for_events_gets_their_payload(server, folder, program, jobs):
    program.schedule(jobs.note, args=["heard"], trigger=EventTrigger("told"), name="hears")
    assert server.ask("POST", "/events", {"event_type": "told", "payload": {"n": 3}}).status == 202
    assert eventually(lambda: (folder / "heard").exists() and (folder / "heard").read_text()) == "((), {'n': 3})\n"


def test_a_function_that_is_only_registered_is_not_called_for_others(server, folder, program, jobs):
    program.schedule(jobs.note, args=["mine"], function_name="only.mine", trigger=NEVER)
    target = {"target_kind": "function", "function": "only.mine", "args": ["theirs"]}
    schedule_id = server.ask("POST", "/schedules", {"trigger": YEARLY, "target": target}).json["schedule_id"]
    with program:
        occurrence = run(server, schedule_id)
    assert (occurrence["phase"], occurrence["reason"]) == ("delivery_failed", "undeliverable")
    [told] = server.get(f"/schedules/{schedule_id}/runs").json["runs"]
    assert "is not offered to callers on this node" in told["error"]
    assert not (folder / "theirs").exists()


def test_a_declared_name_belongs_to_the_program_even_if_a_client_took_it_first(server, program, jobs):
    squat = {"name": "nightly", "trigger": YEARLY, "target": {"target_kind": "event", "event_type": "x"}}
    schedule_id = server.ask("POST", "/schedules", squat | {"accepts_payload": True}).json["schedule_id"]
    job = program.schedule(jobs.note, args=["night"], function_name="night", name="nightly", trigger=NEVER)
    assert job == schedule_id
    answer = server.get(f"/schedules/{job}").json
    assert (answer["source"], answer.get("accepts_payload")) == ("embedded", None)
    target = {"target": {"target_kind": "function", "function": "night", "args": ["theirs"]}}
    assert refusal(server.ask("PATCH", f"/schedules/{job}", target)) == (403, "not_allowed", "target")
    assert refusal(server.ask("POST", f"/schedules/{job}/run", {"payload": 1})) == (403, "not_allowed", "payload")
