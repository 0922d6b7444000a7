"""Explanations on a terminal: the sentence, each rule that had its say, and each attempt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.text import Text

from noonmark.cli.output import one_line
from noonmark.cli.show import page
from noonmark.cli.tables import WIDE, make_table

if TYPE_CHECKING:
    from collections.abc import Sequence


def show_explanation(summary: str, steps: Sequence[dict[str, Any]]) -> None:
    """The sentence, each rule with its decision and the facts behind it, then the attempts in words; nothing is cut."""
    rows = [[one["rule"], one["decision"].replace("_", " "), _told(one["facts"])] for one in steps]
    # An older server does not tell them in words.
    attempts = [run["told"] for one in steps for run in one["facts"].get("runs", []) if "told" in run]
    lines = [summary, *attempts, *("".join(row) for row in rows)]
    with page(WIDE + 2 * max(map(len, lines))) as out:  # a character may take two columns
        out.print(Text(summary, style="bold"))
        out.print()
        out.print(make_table(["Rule", "Decision", "Facts"], rows, width=out.width, most=None))
        if attempts:
            out.print()
        for told in attempts:
            out.print(Text(one_line(told)))


def _told(facts: dict[str, Any]) -> str:
    told = {name: value for name, value in facts.items() if name != "runs" and value not in (None, [], {})}
    return ", ".join(f"{name} {_short(value)}" for name, value in told.items())


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
