"""Cells of tables."""

import pytest

from noonmark.cli.render.console import Table, fold
from noonmark.cli.render.tables import run_state


@pytest.mark.parametrize(
    ("run", "state"),
    [
        ({"outcome": "completed", "progress": None}, "completed"),
        ({"outcome": None, "node": "n1"}, "running"),
        ({"outcome": None, "node": "n1", "progress": {"fraction": 0.4, "message": ""}}, "running, 40%"),
        ({"outcome": None, "node": "n2", "progress": {"fraction": 0.4, "message": ""}}, "unknown, node gone"),
        ({"outcome": "completed", "node": "n2", "progress": None}, "completed"),
        ({"outcome": "timed_out", "progress": {"fraction": 1, "message": "rows\n"}}, "timed_out, 100% (rows)"),
    ],
)
def test_a_run_says_how_far_it_has_come(run, state):
    assert run_state(run, {"n2": "gone"}) == state


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("short", 10, ["short"]),
        ("several words here", 10, ["several", "words here"]),
        ("one-very-long-word then", 8, ["one-very", "-long-wo", "rd then"]),
        ("日本語の名前", 6, ["日本語", "の名前"]),
    ],
)
def test_text_is_folded_between_words_or_within_a_long_one(text, width, lines):
    assert fold(text, width) == lines


def test_the_widest_columns_are_narrowed_and_a_rigid_one_never():
    table = Table(["Id", "Why"], gap=2, rigid=0)
    table.add_row("0123456789", "because it was late")
    shown = ["".join(cell.plain for cell in line).rstrip() for line in table.lines(24)]
    assert shown == ["Id          Why", "0123456789  because it", "            was late"]
