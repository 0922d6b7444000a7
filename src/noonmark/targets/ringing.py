"""The stop signal of what runs elsewhere, in a process or as a program: it wakes whoever watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Ringing:
    """Set when the run should end; whoever watches it is rung, and sees to that."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """Nobody has seen it yet."""
        self.set = ring
        self.was_seen = False
