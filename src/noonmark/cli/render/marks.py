"""The marks of outcomes in a terminal: the same shapes as on the web page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MARKS = {
    "failed": ("✕", "bold red"),
    "running": ("▶", "blue"),
    "late": ("▲", "yellow"),
    "queued": ("◌", "yellow"),
    "completed": ("■", "green"),
    "skipped": ("\N{EN DASH}", "dim"),
    "planned": ("○", "dim"),
}
"""The mark of each state. What comes first is shown where a cell has several."""


def outcome_bar(counts: Mapping[str, int]) -> str:
    """The marks of what was counted, at most ten of them; each state that occurred has one."""
    total = sum(counts.values())
    return "".join(
        MARKS[state][0] * max(1, round(10 * count / max(10, total))) for state, count in counts.items() if count
    )


def outcome_marks(outcomes: Sequence[Mapping[str, Any]]) -> str:
    """The last outcomes of a schedule as marks, oldest first."""
    return "".join(
        MARKS["late" if one["late_seconds"] and one["state"] == "completed" else one["state"]][0] for one in outcomes
    )
