"""Traces: what records requests, operations and the lives of occurrences for a tracing backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Outcome
    from noonmark.ports.events import Settled


class Traces(Protocol):
    """Records spans. From any thread; it never raises, and changes nothing."""

    def request(
        self, method: str, route: str, headers: Mapping[str, str]
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Record a request while the context lasts, as a child of its caller's span; the value takes its status."""

    def operation(self, name: str) -> AbstractContextManager[Callable[[Mapping[str, Any]], None]]:
        """Record an operation while the context lasts; the value takes its answer."""

    def run(self, occurrence: Occurrence) -> AbstractContextManager[None]:
        """Make the run of an occurrence the parent of spans that begin in this context."""

    def step(self, occurrence: Occurrence, outcome: Outcome, *, started: Micros, ended: Micros) -> None:
        """Record an attempt of a step of a workflow run that has ended, below that run."""

    def is_recorded(self, occurrence_id: str) -> bool:
        """Whether the trace of an occurrence is recorded; some may be left out by sampling."""

    def settled(self, event: Settled) -> None:
        """Record an end that was reported over the network."""
