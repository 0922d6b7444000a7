"""Proposals as tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.cli.render.tables import show_table
from noonmark.cli.render.times import local_times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def show_proposals(proposals: Sequence[Mapping[str, Any]], more: str) -> None:
    """Show what waits for a decision."""
    times = local_times()
    rows = [
        [
            one["schedule_id"],
            one["schedule_name"] or "-",
            one["action"],
            _author(one),
            times.relative(one["expires_at_utc"]),
            "; ".join(one["conflicts"]) or "-",
        ]
        for one in proposals
    ]
    titles = ["Schedule", "Name", "Proposed", "By", "Expires", "Conflicts"]
    show_table(titles, rows, f"{len(rows):,} proposal{'s' * (len(rows) != 1)}{more}")


def show_proposal(proposal: Mapping[str, Any]) -> None:
    """Show one proposal, and what would change."""
    rows = [[one["field"], _value(one["before"]), _value(one["after"])] for one in proposal["changes"]]
    revision = "" if proposal["base_revision"] is None else f", based on revision {proposal['base_revision']}"
    about = f"{proposal['action']} {proposal['schedule_id']}{revision}, proposed by {_author(proposal)}"
    show_table(["Field", "Now", "Proposed"], rows, "; ".join([about, *proposal["conflicts"]]))


def _author(proposal: Mapping[str, Any]) -> str:
    return f"an agent of {proposal['by']}" if proposal["agent"] else str(proposal["by"])


def _value(value: object) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
