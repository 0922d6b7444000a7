"""Histories of workflows that an earlier state of the code has written: this one goes on with them.

A change that fails here breaks the workflows that run while Noonmark is upgraded: keep the old order behind
`workflow.patched`, or record the histories again and let the changelog ask for another task queue.
"""

import asyncio
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from noonmark.targets.temporal.worker import sandbox
from noonmark.targets.temporal.workflow import OccurrenceWorkflow

FOLDER = Path(__file__).parent / "histories"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_recorded_history_is_replayed(path):
    history = WorkflowHistory.from_json("occ_recorded/1", path.read_text())
    replayer = Replayer(workflows=[OccurrenceWorkflow], workflow_runner=sandbox())
    asyncio.run(replayer.replay_workflow(history))


def test_histories_are_recorded():
    kinds = {path.stem for path in FOLDER.glob("*.json")}
    assert kinds >= {"delivery", "cancelled", "lost_worker", "lost_at_most_once", "steps", "undone_steps"}
