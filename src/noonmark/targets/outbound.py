"""Outbound: what a node goes by when it sends requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonmark.core.signatures import KeySettings
from noonmark.core.targets.egress import EgressPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    Resolve = Callable[[str, int], list[str]]
    """The addresses of a host, for a port; called in a thread of its own, where it may block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """The rules, who is asked for addresses, and what receivers are told about us."""

    reach: EgressPolicy = field(default_factory=EgressPolicy)
    """Where requests may go that were asked for over the network."""
    resolve: Resolve | None = None
    """Looks names up; None leaves it to the system."""
    keys: KeySettings = field(default_factory=KeySettings)
    """What is said of the keys that requests are signed with, and that tokens are made with."""
    public_url: str | None = None
    """Where receivers reach the service, to tell how work has ended that they took over."""
    is_offered: bool = True
    """Whether requests are served before a program has declared one."""
