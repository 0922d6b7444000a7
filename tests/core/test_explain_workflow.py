"""Explanations of workflow runs: which steps failed and why, and what the others wait for."""

from dataclasses import replace

import pytest

from noonmark.core.explain import Explanation, Rule, Step, explain_steps, what_steps_wait_for
from noonmark.core.instants import SECOND, parse_instant
from noonmark.core.workflows.definition import parse_definition
from noonmark.core.workflows.run import (
    NOT_BEGUN,
    StepPhase,
    StepRecord,
    WaitingFor,
    WorkflowRun,
    approval_id,
    waits_for,
)

NOON = parse_instant("2026-11-18T12:00:00Z")
TARGET = {"target_kind": "function", "function": "f"}
DEFINITION, _ = parse_definition(
    {
        "workflow_id": "w",
        "steps": [
            *({"id": name, "target": TARGET} for name in "abcde"),
            {"id": "ask", "approval": {}},
            {"id": "event", "wait": {"event_type": ["seen", "heard"]}},
            {"id": "pause", "wait": {"seconds": 60}},
        ],
    }
)
BEFORE = Explanation(
    summary="It is running: node `n` started attempt 1.",
    steps=(Step(rule=Rule.CLAIM, decision="claimed"), Step(rule=Rule.RUNS, decision="running", facts={"runs": 1})),
)


CHILDREN = {"occ_2": "no node serves it"}


def record(step_id, phase, **fields):
    return StepRecord(step_id=step_id, phase=StepPhase(phase), **fields)


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], ""),
        ([record("a", "completed"), record("b", "skipped")], ""),
        ([record("a", "failed")], "; step `a` failed"),
        (
            [record("a", "failed", attempt=3, error="Traceback\n  ValueError: no rows\n")],
            "; step `a` failed in attempt 3 with `ValueError: no rows`",
        ),
        (
            [record(name, "failed", error=name) for name in "abcde"],
            "; step `a` failed with `a`; step `b` failed with `b`; step `c` failed with `c`; and 2 more",
        ),
        (
            [
                record("a", "failed", count=2, error="1 of 2 elements failed"),
                record("a", "completed", index=0),
                record("a", "failed", index=1, error="no rows"),
            ],
            "; step `a` failed with `1 of 2 elements failed` (element 1 with `no rows`)",
        ),
        ([record("a", "running"), record("a", "failed", index=0)], "; step `a` is running"),
        ([record(name, "running") for name in "ab"], "; steps `a`, `b` are running"),
        ([record(name, "running") for name in "abcd"], "; steps `a`, `b`, `c` and 1 more are running"),
        (
            [record("ask", "running", ready=NOON, is_external=True)],
            "; step `ask` waits for an approval until 2026-11-18 12:00:00 UTC",
        ),
        ([record("event", "running", is_external=True)], "; step `event` waits for the event `seen`, `heard`"),
        ([record("pause", "running", ready=NOON)], "; step `pause` waits until 2026-11-18 12:00:00 UTC"),
        ([record("b", "running", child="occ_1")], "; step `b` waits for the occurrence `occ_1`"),
        ([record("b", "running", child="occ_2")], "; step `b` waits for the occurrence `occ_2`: no node serves it"),
        (
            [record("b", "pending", attempt=1, ready=NOON, error="busy")],
            "; step `b` failed with `busy` and is tried again at 2026-11-18 12:00:00 UTC",
        ),
    ],
)
def test_the_summary_says_what_failed_and_what_is_waited_for(records, words):
    explanation = explain_steps(BEFORE, DEFINITION, records, CHILDREN)
    assert explanation.summary == f"{BEFORE.summary.removesuffix('.')}{words}."


def test_what_a_run_waits_for_is_one_sentence():
    asking, running = record("ask", "running", is_external=True), record("b", "running", child="occ_2")
    waited = what_steps_wait_for(DEFINITION, [asking, running, record("a", "running")], CHILDREN)
    assert waited == ("Step `ask` waits for an approval; step `b` waits for the occurrence `occ_2`: no node serves it.")
    assert what_steps_wait_for(DEFINITION, [record("a", "running")], CHILDREN) is None


def test_what_the_error_of_the_run_says_is_not_said_again():
    summary = (
        "It ran and failed: the target reported a failure, with `step 'a' failed (and 1 more of 8 steps): no rows`."
    )
    failed = [record("a", "failed", error="no rows"), record("b", "failed", error="busy")]
    explanation = explain_steps(replace(BEFORE, summary=summary), DEFINITION, failed)
    assert explanation.summary == f"{summary.removesuffix('.')}; step `b` failed with `busy`."


def test_the_facts_have_all_steps():
    failed = record("a", "failed", attempt=2, error="no rows")
    asking = record("ask", "running", ready=NOON + SECOND, is_external=True)
    claim, runs = explain_steps(BEFORE, DEFINITION, [failed, asking, record("b", "completed")]).steps
    assert claim == BEFORE.steps[0]
    assert runs.facts == {
        "runs": 1,
        "steps": {"pending": 5, "running": 1, "completed": 1, "failed": 1},
        "failed_steps": [{"step_id": "a", "attempt": 2, "error": "no rows"}],
        "waiting_steps": [{"step_id": "ask", "waiting_for": "approval", "until": "2026-11-18T12:00:01Z"}],
    }


@pytest.mark.parametrize(
    ("step", "fields", "expected"),
    [
        ("a", {"phase": "pending"}, None),
        ("a", {"phase": "pending", "attempt": 1}, None),
        ("a", {"phase": "pending", "attempt": 1, "ready": NOON}, WaitingFor.RETRY),
        ("a", {"phase": "running"}, None),
        ("a", {"phase": "running", "child": "occ_1"}, WaitingFor.OCCURRENCE),
        ("ask", {"phase": "running"}, WaitingFor.APPROVAL),
        ("ask", {"phase": "completed"}, None),
        ("event", {"phase": "running"}, WaitingFor.EVENT),
        ("pause", {"phase": "running"}, WaitingFor.TIME),
    ],
)
def test_what_a_step_waits_for(step, fields, expected):
    assert waits_for(DEFINITION.step(step), record(step, **fields)) is expected


@pytest.mark.parametrize(("attempt", "has_begun"), [(NOT_BEGUN, False), (1, True)])
def test_a_run_that_was_asked_for_has_not_begun(attempt, has_begun):
    run = WorkflowRun(occurrence_id="occ_1", workflow_id="w", version=1, inputs={}, started=NOON, attempt=attempt)
    assert run.has_begun is has_begun


def test_an_approval_has_the_id_of_its_run_and_step_and_of_a_later_attempt():
    assert approval_id("occ_1", "ask", 1) == "occ_1:ask"
    assert approval_id("occ_1", "ask", 2) == "occ_1:ask:2"
