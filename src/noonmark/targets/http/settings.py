"""HTTP settings of a node, separate from the modules that load the HTTP libraries."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.signatures import KeySettings
from noonmark.core.targets.egress import EgressPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    Resolve = Callable[[str, int], list[str]]
    """Returns the addresses of a host for a port. Called in a thread, where it may block."""


@frozen(kw_only=True)
class HttpTargetSettings:
    """How a node sends requests."""

    egress: EgressPolicy = field(default_factory=EgressPolicy)
    """Where requests of schedules from the network may go."""
    resolve: Resolve | None = None
    """Looks host names up; None uses the system's resolver."""
    keys: KeySettings = field(default_factory=KeySettings)
    """The configured keys for signatures and callback tokens."""
    public_url: str | None = None
    """Where receivers reach the service to report the end of work that they accepted."""
    is_offered: bool = True
    """Whether requests are served before a program has declared one."""
