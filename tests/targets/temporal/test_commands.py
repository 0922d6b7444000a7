"""`noonmark engine check`, and what `serve` and `temporal-worker` refuse."""

import json

import pytest

from noonmark import extras
from noonmark.core.lifecycle import Phase
from noonmark.targets.temporal.client import EngineClient
from noonmark.targets.temporal.documents import Order
from tests.cli.runner import call
from tests.targets.temporal.rig import FUNCTION, Rig, function, until

URL = "temporal://127.0.0.1:1"


def check(rig, *arguments):
    address = rig.engine.address
    url = f"temporal://{address.server}/{address.namespace}?task_queue={address.task_queue}"
    return call("engine", "check", "--engine", url, "--store", rig.url, *arguments)


def test_a_check_lists_orphans_and_ends_them_on_command(server, tmp_path):
    rig = Rig(server, tmp_path)
    problems = check(rig)
    assert (problems.code, problems.err) == (0, "")
    assert problems.out.splitlines()[1:] == [
        "Workers: 0. Running workflows: 0. Occurrences that await their end: 0.",
        "No orphans.",
    ]
    address = rig.engine.address
    order = Order("occ_unknown", 1, 1, FUNCTION, address.task_queue, address.heartbeat)
    server.run(EngineClient(address).start(order))
    until(lambda: check(rig, "--json").json["orphan_workflows"] == ["occ_unknown/1"])
    problems = check(rig)
    assert (problems.code, problems.out.splitlines()[2]) == (
        1,
        "workflow occ_unknown/1: an orphan, no occurrence in this store",
    )
    ended = check(rig, "--end-orphans", "--json")
    assert (ended.code, ended.json["orphans_ended"], ended.json["orphans_left"]) == (0, 1, 0)
    assert rig.closed("occ_unknown") == "TERMINATED"


def test_a_check_names_the_routes_that_no_worker_delivers(server, tmp_path):
    rig = Rig(server, tmp_path)
    with rig.node():
        occurrence_id = rig.run(function("add"))
        rig.in_phase(occurrence_id, Phase.AWAITING_COMPLETION)
        until(lambda: check(rig, "--json").json["running_workflows"] == 1)
        problems = check(rig)
        assert (problems.code, problems.out.splitlines()[1:3]) == (
            1,
            [
                "Workers: 0. Running workflows: 1. Occurrences that await their end: 1.",
                f"route {FUNCTION}: no worker delivers it; occurrences that wait for one: 1",
            ],
        )
        with rig.worker():
            rig.ended(occurrence_id)
            assert rig.server.run(EngineClient(rig.engine.address).workers(FUNCTION)) == 1
        assert check(rig, "--json").json["unserved_routes"] == {}


def test_a_check_names_the_namespace_that_is_missing(server, tmp_path):
    store = f"sqlite:///{tmp_path}/ledger.db"
    call("migrate", "--store", store)
    answer = call("engine", "check", "--engine", f"temporal://{server.address}/lunch", "--store", store)
    words = f"the engine at {server.address} refused a call in the namespace 'lunch': NOT_FOUND"
    assert (answer.code, answer.out.splitlines()[1]) == (1, f"{words}: Namespace lunch is not found.")


def test_a_check_says_that_the_engine_does_not_answer(tmp_path):
    store = f"sqlite:///{tmp_path}/ledger.db"
    call("migrate", "--store", store)
    answer = call("engine", "check", "--engine", URL, "--store", store, "--json")
    assert answer.code == 1
    problem = json.loads(answer.out)["problem"]
    assert problem.startswith("the engine at 127.0.0.1:1 did not answer: UNAVAILABLE: ")
    assert "Connection refused" in problem
    assert "did not answer" in call("engine", "check", "--engine", URL, "--store", store).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("engine", "check"), "engine: is required"),
        (("engine", "check", "--engine", "http://x"), "engine: must be the URL of a Temporal namespace"),
        (("serve", "--engine", URL, "--engine-routes", "lunch"), "engine_routes: must be routes of targets"),
        (("serve", "--engine", URL, "--engine-routes", "ping"), "engine_routes: must be routes of targets"),
        (("temporal-worker", "--engine", URL, "--routes", "lunch"), "routes: must be routes of targets"),
        (("temporal-worker", "--engine", URL), "routes: is required"),
        (("temporal-worker", "--engine", URL, "--routes", "function"), "routes: has 'function', and this worker"),
        (("temporal-worker", "--routes", "http"), "engine: is required"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = call(*arguments)
    assert (refused.code, refused.errors[0][: len(words)]) == (2, words)
    assert "(from default)" not in refused.err, "that is no place where it could be set"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--port", "0", "--engine", URL), "engine: requires --engine-routes"),
        (("serve", "--port", "0", "--engine-routes", "http"), "engine_routes: requires --engine"),
        (
            ("serve", "--port", "0", "--engine", URL, "--engine-routes", "http", "--store", "memory://"),
            "store: must be one that nodes and workers of the engine share, not memory://",
        ),
        (
            ("temporal-worker", "--engine", URL, "--routes", "http", "--store", "memory://"),
            "store: must be one that nodes and workers of the engine share, not memory://",
        ),
        (
            ("temporal-worker", "--engine", URL, "--routes", "bundle"),
            "routes: has 'bundle', which this worker cannot deliver; set --allow-bundles",
        ),
        (
            ("temporal-worker", "--engine", URL, "--routes", "function:missing"),
            "routes: has 'function:missing', which this worker cannot deliver; set --function NAME=MODULE:FUNCTION",
        ),
    ],
)
def test_settings_that_miss_something_are_refused(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = call(*arguments)
    assert refused.code == 2
    assert refused.err.splitlines()[-1].startswith(f"noonmark: {words}")


def test_a_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(extras.EXTRAS, "temporal", ("no_such_package",))
    refused = call("temporal-worker", "--engine", URL, "--routes", "http")
    assert refused.code == 1
    assert "pip install 'noonmark[temporal]'" in refused.err
