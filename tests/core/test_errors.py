"""Errors that carry more than their text."""

import pytest

from noonmark.core.errors import PipelineError, RunFailed


def test_a_failed_run_keeps_what_it_left():
    error = RunFailed("it answered 500", result={"status": 500})
    assert (error.code, str(error), error.result) == ("run_failed", "it answered 500", {"status": 500})


@pytest.mark.parametrize(
    ("stage", "errors", "said"),
    [
        ("load", [KeyError("id")], "stage 'load' failed (KeyError: 'id')"),
        (1, [OSError("full"), ValueError("odd"), EOFError()], "stage 1 failed (OSError: full, and 2 more)"),
    ],
)
def test_a_failed_stage_says_what_went_wrong_first(stage, errors, said):
    error = PipelineError(stage, errors)
    assert (error.code, str(error), error.stage, error.errors) == ("pipeline_failed", said, stage, errors)
