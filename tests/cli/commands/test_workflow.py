"""`noonmark workflow` and `approval`, and workflows in files, on a store with a node."""

import json
import subprocess

import pytest

from noonmark.cli.render.workflow_graph import draw
from noonmark.core.workflows.definition import parse_definition
from tests.cli.runner import call
from tests.cli.terminal import NOONMARK, in_terminal
from tests.embedded.waiting import eventually

FILE = """
workflow_id: numbers
description: Adds numbers
inputs:
  n: {type: integer, default: 1}
  text: {type: string, default: none}
steps:
  - {id: first, target: {target_kind: function, function: add}, input: {n: "{{ inputs.n }}", text: "{{ inputs.text }}"}}
  - id: second
    depends_on: [first]
    target: {target_kind: function, function: add}
    input: {n: "{{ steps.first.result.n }}"}
"""
ASKS = {"workflow_id": "asks", "steps": [{"id": "ask", "approval": {"message": "Go on?"}}]}
STUCK = {
    "workflow_id": "stuck",
    "steps": [
        {"id": "ask", "approval": {}},
        {"id": "lost", "depends_on": ["ask"], "target": {"target_kind": "function", "function": "nowhere"}},
    ],
}
BREAKS = {"workflow_id": "breaks", "steps": [{"id": "boom", "target": {"target_kind": "function", "function": "fail"}}]}
ALL = """
workflows:
  - workflow_id: tidy
    steps:
      - {id: a, target: {target_kind: function, function: add, kwargs: {n: 1}}}
schedules:
  - name: nightly
    trigger: {type: cron, expression: 0 2 * * *, timezone: UTC}
    target: {target_kind: workflow, workflow_id: tidy}
"""


def add(n, text=""):
    return {"n": n + 1, "text": text}


def fail():
    raise ValueError("no rows today")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def flows(cli, node, files):
    """The commands, with a node and three workflows."""
    node.register_function("add", add)
    node.register_function("fail", fail)
    (files / "numbers.yaml").write_text(FILE)
    (files / "both.json").write_text(json.dumps({"workflows": [ASKS, BREAKS]}))
    assert cli("workflow", "create", files / "numbers.yaml") == "Workflow numbers has version 1.\n"
    assert cli("workflow", "create", files / "both.json").count("has version 1.") == 2
    return cli


def test_a_file_is_a_version_and_again_the_same(flows, files):
    assert flows.json("workflow", "create", files / "numbers.yaml")["version"] == 1
    assert "numbers" in flows("workflow", "list")
    assert [one["version"] for one in flows.json("workflow", "versions", "numbers")["versions"]] == [1]
    shown = flows("workflow", "show", "numbers")
    assert "numbers, version 1" in shown
    assert "n: integer = 1, text: string" in shown
    assert "●  first   function add\n●  second  function add  after first\n" in shown
    assert "flowchart" in flows("workflow", "show", "numbers", "--mermaid")


def test_a_mistake_is_named_with_its_line(flows, files):
    (files / "wrong.yaml").write_text(FILE.replace("[first]", "[third]").replace("function: add", "function: 7"))
    errors = flows.refused(2, "workflow", "create", files / "wrong.yaml")
    assert [line.partition(": ")[0].rpartition("/")[2] for line in errors] == [
        "wrong.yaml:8",
        "wrong.yaml:11",
        "wrong.yaml:10",
        "wrong.yaml:12",
    ]
    assert flows.refused(3, "workflow", "create", files / "nowhere.yaml")
    assert flows.refused(3, "workflow", "show", "nowhere")


def test_a_run_is_waited_for(flows):
    done = flows("workflow", "run", "numbers", "--input", "n=41", "--input", "text=7", "--wait")
    assert 'completed: {"first": {"n": 42, "text": "7"}, "second": {"n": 43, "text": ""}}' in done
    run = flows.json("workflow", "run", "numbers", "--inputs-json", '{"n": 1}', "--key", "once")
    assert (
        flows.json("workflow", "run", "numbers", "--inputs-json", '{"n": 1}', "--key", "once")["workflow_run_id"]
        == run["workflow_run_id"]
    )
    failed = call("workflow", "run", "breaks", "--wait", *flows.connection)
    assert failed.code == 1
    assert failed.out.endswith(" failed: step boom failed: ValueError: no rows today\n"), failed
    assert flows.problem(2, "workflow", "run", "numbers", "--input", "n=x")["field"] == "inputs.n"
    assert flows.refused(3, "workflow", "run", "nowhere")
    runs = " ".join(flows("workflow", "runs", "--phase", "failed").split())
    assert "step 'boom' failed: ValueError: no rows today" in runs


def test_a_run_that_waits_says_what_for_once_and_when_that_changes(flows, files):
    (files / "stuck.json").write_text(json.dumps(STUCK))
    assert call("workflow", "create", files / "stuck.json", *flows.connection).code == 0
    words = [*NOONMARK, "workflow", "run", "stuck", "--key", "stuck", "--wait", *flows.connection]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert "waits: Step `ask` waits for an approval until " in waiting.stderr.readline()
        run_id = flows.json("workflow", "run", "stuck", "--key", "stuck")["workflow_run_id"]
        flows("approval", "approve", f"{run_id}:ask")
        said = waiting.stderr.readline()
        assert f"{run_id} waits: Step `lost` waits for the occurrence `occ_" in said
        assert "`: no live node serves `function:nowhere`; they serve `function:" in said
        flows("workflow", "cancel", run_id)
        assert (waiting.wait(), waiting.stderr.read()) == (1, "")
        assert f"{run_id} cancelled" in waiting.stdout.read()


def test_the_status_shows_steps_and_is_watched_to_the_end(flows):
    run_id = flows.json("workflow", "run", "numbers", "--key", "watched")["workflow_run_id"]
    watched = call("workflow", "status", run_id, "--watch", *flows.connection)
    assert watched.code == 0, watched
    assert watched.out.splitlines()[-1].startswith(f"{run_id} completed: ")
    assert "second completed" in watched.out
    shown = flows("workflow", "status", run_id)
    assert "2 of 2 steps" in shown
    assert "✓ second  completed" in shown
    code, live = in_terminal(*NOONMARK, "workflow", "status", run_id, "--watch", *flows.connection)
    assert (code, "2 of 2 steps" in live) == (0, True), live


def test_a_decision_and_a_cancellation(flows):
    run_id = flows.json("workflow", "run", "asks", "--key", "first")["workflow_run_id"]

    def asked():
        found = flows.json("approval", "list")["approvals"]
        return next((one["approval_id"] for one in found if one["workflow_run_id"] == run_id), None)

    approval_id = eventually(asked)
    assert "Go on?" in flows("approval", "list")
    shown = flows("workflow", "status", run_id)
    assert "waits for approval" in shown
    assert f"noonmark approval approve {approval_id}\n" in shown, "whole, to be copied"
    flows("approval", "approve", approval_id, "--comment", "fine")
    assert flows.refused(4, "approval", "deny", approval_id)
    assert call("workflow", "status", run_id, "--watch", *flows.connection).code == 0
    other = flows.json("workflow", "run", "asks", "--key", "second")["workflow_run_id"]
    assert other in flows("workflow", "cancel", other)
    assert call("workflow", "status", other, "--watch", *flows.connection).code == 1
    assert flows.refused(4, "workflow", "cancel", other)


def test_files_declare_workflows_and_schedules(flows, files):
    (files / "all.yaml").write_text(ALL)
    file = ("-f", files / "all.yaml", *flows.connection)
    assert call("diff", "--exit-code", *file).code == 1
    planned = call("diff", *file)
    assert "+ workflow tidy" in planned.out
    assert "there is no workflow" not in planned.err
    applied = call("apply", *file)
    assert applied.out.splitlines()[-2:] == ["Created version 1 of workflow tidy.", "Created nightly."], applied
    assert call("apply", *file).out == "No changes: 2 unchanged.\n"
    refused = flows.refused(4, "workflow", "delete", "tidy")
    assert "nightly" in refused[0]
    (files / "exported.yaml").write_text(call("export", *flows.connection).out)
    assert call("diff", "--exit-code", "-f", files / "exported.yaml", *flows.connection).code == 0
    (files / "all.yaml").write_text(ALL.replace("n: 1", "n: 2"))
    changed = call("apply", "--prune", *file)
    assert "~ workflow tidy: version 1 -> a new version" in changed.out
    assert flows.json("workflow", "show", "tidy")["version"] == 2
    (files / "all.yaml").write_text("workflows: [{workflow_id: tidy, steps: []}]\nschedules: []\n")
    assert call("apply", *file).code == 2
    (files / "all.yaml").write_text("schedules: []\n")
    assert call("apply", "--prune", *file).code == 0
    assert flows.json("workflow", "show", "tidy")["version"] == 2
    assert flows("workflow", "delete", "tidy") == "Deleted workflow tidy.\n"


def test_the_graph_leads_from_each_step_to_those_that_follow():
    def step(name, *after):
        return {"id": name, "depends_on": list(after), "target": {"target_kind": "event", "event_type": name}}

    steps = [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"), step("e"), step("f", "a", "e", "d")]
    definition, _ = parse_definition({"workflow_id": "w", "steps": steps})
    assert draw(definition) == [
        "●        a  event a",
        "│ ●      e  event e",
        "├─┼─●    b  event b  after a",
        "├─┼─┼─●  c  event c  after a",
        "│ │ ●─┘  d  event d  after b, c",
        "●─┴─┘    f  event f  after a, e, d",
    ]
    wide, _ = parse_definition(
        {"workflow_id": "w", "steps": [*(step(f"s{n}") for n in range(40)), step("end", *(f"s{n}" for n in range(40)))]}
    )
    assert all(line.startswith("●  ") for line in draw(wide))
