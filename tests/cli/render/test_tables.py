"""Cells of tables."""

import pytest

from noonmark.cli.render.tables import run_state


@pytest.mark.parametrize(
    ("run", "state"),
    [
        ({"outcome": "completed", "progress": None}, "completed"),
        ({"outcome": None}, "running"),
        ({"outcome": None, "progress": {"fraction": 0.4, "message": ""}}, "running, 40%"),
        ({"outcome": "timed_out", "progress": {"fraction": 1, "message": "rows\n"}}, "timed_out, 100% (rows)"),
    ],
)
def test_a_run_says_how_far_it_has_come(run, state):
    assert run_state(run) == state
