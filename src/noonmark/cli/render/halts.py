"""Halts in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def halt_sentence(halt: Mapping[str, Any]) -> str:
    """What is halted, by whom, and why."""
    labels = " ".join(f"{name}={value}" for name, value in halt["labels"].items())
    what = f"Everything with {labels}" if labels else "Everything"
    why = "" if halt["reason"] is None else f" ({halt['reason']})"
    return f"{what} is halted since {halt['halted_at_utc']} by {halt['halted_by']}{why}: {halt['halt_id']}."
