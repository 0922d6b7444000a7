"""What operations work with: the service that is asked, and the caller who asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.audit import AuditEntry
from noonmark.core.schedule import Owner
from noonmark.core.signatures import MAIN_TENANT, KeySettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets.command import CommandRules
    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.operations.schedules import Sign
    from noonmark.ports.seal import Seal
    from noonmark.ports.store import Store
    from noonmark.ports.uploads import Uploads


class Worker(Protocol):
    """The driver of this node, which can be stopped while others go on."""

    def start(self) -> None:
        """Begin to work; one that does already goes on."""

    def stop(self) -> None:
        """Begin nothing more, hand back what has not begun, and wait for what runs, but no longer than a while.

        A second caller does not wait: `status` tells that it is stopping.
        """

    def confirm_time(self) -> None:
        """The store's time is right, although it leapt ahead."""

    @property
    def clock_ahead(self) -> Micros | None:
        """By how much the store's time leapt ahead, while that is in doubt."""

    def status(self) -> dict[str, Any]:
        """What it does, and how it is set up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a caller who is not the admin may have; None is no limit."""

    max_per_user: int | None = None
    min_interval: Micros | None = None
    max_budget_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What wiring picked for one process that answers callers."""

    store: Store
    lookahead: Micros
    fresh_id: Callable[[], str]
    """Never the same twice."""
    node: str = ""
    wake: Callable[[Micros | None], None] = field(default=lambda _: None)
    """Tells the driver in this process that there is something to do, at that time or at once."""
    attend: Callable[[], None] = field(default=lambda: None)
    """Tells the driver in this process that something that runs is to stop."""
    machine: Callable[[], Micros] | None = None
    """The clock of the machine, to compare that of the store with; None where there is no other."""
    worker: Worker | None = None
    limits: Limits = field(default_factory=Limits)
    keys: KeySettings = field(default_factory=KeySettings)
    """What is said of the keys that requests are signed with, and that tokens are made with."""
    seal: Seal | None = field(default=None, repr=False)
    """What secrets are sealed with; None where there is no key."""
    reach: EgressPolicy | None = None
    """Where the nodes send requests that are asked for here, as far as this process knows."""
    commands: CommandRules | None = None
    """What callers may say of programs, as far as this process knows."""
    offered: frozenset[str] = frozenset()
    """Functions that callers may have called with anything, by the names under which schedules have them."""
    uploads: Uploads | None = None
    """Where files are kept that callers send; None where none are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, on whose behalf, and how."""

    owner: Owner
    name: str
    source: str
    """The surface: `rest`, `jsonrpc`, `cli` or `client`."""
    request_id: str = ""
    is_admin: bool = True
    operation: str = ""
    """What is asked for."""
    chain: str = field(default="", repr=False)
    """Which occurrence the caller does the work of, if it says so and can prove it."""

    def signed(self, reason: str | None = None) -> Sign:
        """What writes down that this caller made a change."""
        return partial(_note, self, reason)


def _note(
    caller: Caller, reason: str | None, before: Schedule | None, after: Schedule | None, *, now: Micros
) -> AuditEntry:
    either = after or before
    return AuditEntry(
        at=now,
        caller=caller.name,
        operation=caller.operation,
        schedule_id=None if either is None else either.schedule_id,
        uid=None if either is None else either.uid,
        revision_before=None if before is None else before.revision,
        revision_after=None if after is None else after.revision,
        reason=reason,
        request_id=caller.request_id or None,
    )


LOCAL = Caller(owner=Owner(tenant=MAIN_TENANT, user="local"), name="local", source="local")
"""Whoever reaches a server on the loopback interface that has no keys."""
