"""Outbound: what a node goes by when it sends requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonmark.core.targets.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Resolve = Callable[[str, int], Awaitable[list[str]]]
    """The addresses of a host, for a port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """The rules, and who is asked for addresses."""

    reach: Reach = field(default_factory=Reach)
    """Where requests may go that were asked for over the network."""
    resolve: Resolve | None = None
    """Looks names up; None leaves it to the system."""
