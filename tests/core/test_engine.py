"""How an attempt that an engine carries out stands, and the ids of its workflows."""

import json
from dataclasses import replace

import pytest

from noonmark.core.engine import Standing, parse_workflow_id, standing, workflow_id, workflow_of_run
from noonmark.core.ids import TRIGGER
from noonmark.core.interruption import STOP_GRACE, engine_of, stop_deadline
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, Delivered, settle
from noonmark.core.targets import WorkflowTarget
from noonmark.testing import factories
from noonmark.testing.factories import MINUTE, NOW

HELD, TAKEN_OVER, OVER = Standing.HELD, Standing.TAKEN_OVER, Standing.OVER


def occurrence(phase=Phase.DISPATCHING, attempt=2, fence=7, **fields):
    schedule = factories.schedule(**fields)
    return replace(
        factories.occurrence(schedule, TRIGGER, nominal=NOW), phase=phase, attempt=attempt, fence=fence, started=NOW
    )


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, OVER),
        (occurrence(), HELD),
        (occurrence(Phase.AWAITING_COMPLETION), HELD),
        (occurrence(fence=8), TAKEN_OVER),
        (occurrence(Phase.AWAITING_COMPLETION, fence=8), TAKEN_OVER),
        (occurrence(attempt=3, fence=9), OVER),
        # The lease was lost, so the attempt is taken back: a node starts it again.
        (occurrence(Phase.CLAIMED, attempt=1, fence=8), TAKEN_OVER),
        (occurrence(Phase.PENDING, attempt=1), TAKEN_OVER),
        # It has ended, and the next attempt comes.
        (occurrence(Phase.PENDING), OVER),
        (occurrence(Phase.CLAIMED, fence=8), OVER),
        (occurrence(Phase.COMPLETED), OVER),
        (occurrence(Phase.CANCELLED), OVER),
    ],
)
def test_an_attempt_is_held_taken_over_or_over(stored, expected):
    assert standing(stored, attempt=2, fence=7) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("occ_1/2", ("occ_1", 2)), ("a/b/3", ("a/b", 3)), ("occ_1", None), ("/1", None), ("occ_1/x", None), ("a/٣", None)],
)
def test_the_id_of_a_workflow_names_the_occurrence_and_the_attempt(text, expected):
    assert parse_workflow_id(text) == expected
    assert expected is None or workflow_id(*expected) == text


@pytest.mark.parametrize(("engine", "node"), [(None, "node"), ("temporal", "temporal:node")])
def test_the_record_and_the_run_name_the_engine(engine, node):
    stored, schedule = occurrence(), factories.schedule()
    waiting = settle(stored, schedule, Accepted(started=NOW, accepted=NOW, engine=engine), node="node")
    assert (waiting.facts.get("engine"), waiting.run.node) == (engine, node)
    detail = json.dumps(dict(waiting.facts))
    accepted = replace(stored, phase=Phase.AWAITING_COMPLETION, detail=detail)
    assert engine_of(accepted) == engine
    assert engine_of(replace(stored, detail=detail)) is None
    assert engine_of(replace(accepted, detail='{"engine": 1}')) is None
    ended = Delivered(outcome=Outcome.COMPLETED, started=NOW, ended=NOW)
    assert settle(accepted, schedule, ended, node="node").run.node == node
    assert settle(accepted, schedule, ended, node="temporal:worker").run.node == "temporal:worker"


@pytest.mark.parametrize(("node", "expected"), [("node", None), ("temporal:worker", "occ_1/2"), ("temporal", None)])
def test_a_run_has_a_workflow_if_an_engine_has_carried_it_out(node, expected):
    assert workflow_of_run("occ_1", 2, node) == expected


def test_a_workflow_run_ends_with_its_window_by_itself():
    window = Window(duration=MINUTE, end_action=EndAction.CANCEL)
    accepted = Accepted(started=NOW, accepted=NOW, deadline=NOW + 10 * MINUTE)
    schedule = factories.schedule(window=window)
    plain = settle(occurrence(window=window), schedule, accepted, node="node")
    assert plain.deadline == NOW + MINUTE
    workflow = factories.schedule(window=window, target=WorkflowTarget(workflow_id="w"))
    run = occurrence(window=window, target=WorkflowTarget(workflow_id="w"))
    assert settle(run, workflow, accepted, node="node").deadline == NOW + 10 * MINUTE


ENGINE_DETAIL = '{"engine": "temporal", "deadline": "2030-03-17T18:47:00Z"}'


@pytest.mark.parametrize(
    ("phase", "detail", "stop", "deadline", "is_workflow_run", "expected"),
    [
        (Phase.DISPATCHING, "", None, None, False, None),
        (Phase.DISPATCHING, "", "replaced", NOW + 5, False, NOW + 5),
        (Phase.AWAITING_COMPLETION, '{"deadline": "2030-03-17T18:47:00Z"}', None, None, False, NOW),
        (Phase.AWAITING_COMPLETION, "", None, None, False, NOW),
        (Phase.AWAITING_COMPLETION, ENGINE_DETAIL, None, None, False, NOW + STOP_GRACE),
        (Phase.AWAITING_COMPLETION, ENGINE_DETAIL, "cancelled", NOW + 5, False, NOW + 5),
        (Phase.AWAITING_COMPLETION, ENGINE_DETAIL, None, None, True, NOW + 60 * MINUTE),
    ],
)
def test_what_is_asked_to_stop_has_until_then(phase, detail, stop, deadline, is_workflow_run, expected):
    asked = replace(occurrence(phase), detail=detail, stop=stop, deadline=deadline)
    assert stop_deadline(asked, now=NOW, is_workflow_run=is_workflow_run) == expected
