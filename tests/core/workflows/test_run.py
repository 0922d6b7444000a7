"""The record of a step."""

import pytest

from noonmark.core.workflows.run import Compensation, StepPhase, StepRecord

COMPLETED, RUNNING = StepPhase.COMPLETED, StepPhase.RUNNING


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"phase": RUNNING}, False),
        ({"phase": RUNNING, "is_external": True}, True),
        ({"phase": COMPLETED, "is_external": True}, False),
        ({"phase": COMPLETED, "compensation": Compensation.ELSEWHERE}, True),
        ({"phase": COMPLETED, "compensation": Compensation.RUNNING}, False),
    ],
)
def test_a_step_awaits_others_until_they_have_ended_or_undone_it(fields, expected):
    assert StepRecord(step_id="a", **fields).awaits_others is expected
