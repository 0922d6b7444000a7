"""What a run left, as plain text."""

import pytest

from noonmark.core.run import output_text


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        ({"output": "a\nb\n", "exit_code": 0}, None, "a\nb\n"),
        ({"output": 1}, None, '{\n  "output": 1\n}\n'),
        ("said", None, "said"),
        ([1, "é"], "unused", '[\n  1,\n  "é"\n]\n'),
        (None, "broke", "broke"),
        (None, None, ""),
    ],
)
def test_output_text(result, error, text):
    assert output_text(result, error) == text
