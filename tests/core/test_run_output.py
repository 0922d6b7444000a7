"""What a run left, as plain text, and how far it has come."""

import pytest

from noonmark.core.run import Outcome, Run, RunProgress, output_text, progress_result


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        ({"output": "a\nb\n", "exit_code": 0}, None, "a\nb\n"),
        ({"output": 1}, None, '{\n  "output": 1\n}\n'),
        ("said", None, "said"),
        ([1, "é"], None, '[\n  1,\n  "é"\n]\n'),
        ({"fetch": 1}, "step 'load' failed: busy", "{\n  \"fetch\": 1\n}\nstep 'load' failed: busy\n"),
        (None, "broke\n", "broke\n"),
        (None, None, ""),
    ],
)
def test_output_text(result, error, text):
    assert output_text(result, error) == text


@pytest.mark.parametrize(
    ("result", "outcome", "progress"),
    [
        (progress_result({"fraction": 0.4, "message": "rows"}), None, RunProgress(fraction=0.4, message="rows")),
        ({"output": "a", "progress": {"fraction": 1}}, Outcome.TIMED_OUT, RunProgress(fraction=1)),
        ({"progress": {"fraction": 1}}, Outcome.COMPLETED, None),
        ({"progress": "half"}, None, None),
        ({"output": "a"}, None, None),
        (None, None, None),
    ],
)
def test_progress(result, outcome, progress):
    run = Run(id="r", occurrence_id="o", attempt=1, node="n", started=0, result=result, outcome=outcome)
    assert run.progress == progress
