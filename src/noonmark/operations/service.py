"""The context of an operation: the service that performs it, and the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.audit import AuditEntry
from noonmark.core.schedule import Owner
from noonmark.core.signatures import MAIN_TENANT, KeySettings
from noonmark.core.targets.ping import MOMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Settlement
    from noonmark.core.targets.command import CommandRules
    from noonmark.core.targets.egress import EgressPolicy
    from noonmark.ports.pinger import Pinger
    from noonmark.ports.seal import Seal
    from noonmark.ports.store import Store
    from noonmark.ports.uploads import Uploads


class Worker(Protocol):
    """The worker of this node."""

    def start(self) -> None:
        """Start; a running worker goes on."""

    def stop(self) -> None:
        """Start nothing more, release what has not begun, and wait a limited time for what runs.

        A second caller does not wait: `status` says that it is stopping.
        """

    def confirm_time(self) -> None:
        """Confirm that the store's time is right although it leapt ahead."""

    @property
    def clock_ahead(self) -> Micros | None:
        """How far the store's time leapt ahead, until that is confirmed."""

    def status(self) -> dict[str, Any]:
        """Its state and its settings."""


class AuditEntryMaker(Protocol):
    """Makes the audit entry of a change."""

    def __call__(self, before: Schedule | None, after: Schedule | None, *, now: Micros) -> AuditEntry:
        """Make the entry of a change, or of a request that changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a caller who is not an admin; None is no limit."""

    max_per_user: int | None = None
    min_interval: Micros | None = None
    max_budget_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts of a process that performs operations."""

    store: Store
    lookahead: Micros
    fresh_id: Callable[[], str]
    """Makes a unique id."""
    node: str = ""
    wake: Callable[[Micros | None], None] = field(default=lambda _: None)
    """Wakes the driver of this process, at a time or at once."""
    attend: Callable[[], None] = field(default=lambda: None)
    """Tells the driver of this process that a run was asked to stop."""
    machine_clock: Callable[[], Micros] | None = None
    """The clock of the machine, to compare with the store's; None if there is no other."""
    worker: Worker | None = None
    limits: Limits = field(default_factory=Limits)
    keys: KeySettings = field(default_factory=KeySettings)
    """The settings of the keys for signatures and tokens."""
    seal: Seal | None = field(default=None, repr=False)
    """Seals secrets; None without a key."""
    egress: EgressPolicy | None = None
    """Where nodes may send requests, as far as this process knows."""
    commands: CommandRules | None = None
    """Which commands callers may declare, as far as this process knows."""
    offered: frozenset[str] = frozenset()
    """Functions that callers may have called with any arguments, by their registered names."""
    base_url: str = ""
    """Where clients reach this service; empty if that is unknown."""
    pinger: Pinger | None = None
    """Calls the URLs that schedules name for their starts and ends."""
    uploads: Uploads | None = None
    """The storage of uploads; None if they are off."""

    def ping(self, schedule: Schedule, settlement: Settlement) -> None:
        """Call the URL that a schedule names for the end of a run, if this is one."""
        if self.pinger is not None and schedule.declaration.ping_urls is not None:
            moment = MOMENTS.get(settlement.phase)
            if moment is not None:
                self.pinger.ping(schedule, settlement.occurrence, moment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who makes a request, on whose behalf, and through what."""

    owner: Owner
    name: str
    source: str
    """The surface: `rest`, `jsonrpc`, `cli` or `client`."""
    request_id: str = ""
    is_admin: bool = True
    operation: str = ""
    """The operation requested."""
    chain: str = field(default="", repr=False)
    """A proof of the occurrence whose work makes the request, if there is one."""

    def audit(self, reason: str | None = None) -> AuditEntryMaker:
        """Make the audit entries of changes by this caller."""
        return partial(_audit_entry, self, reason)


def _audit_entry(
    caller: Caller, reason: str | None, before: Schedule | None, after: Schedule | None, *, now: Micros
) -> AuditEntry:
    schedule = after or before
    return AuditEntry(
        at=now,
        caller=caller.name,
        operation=caller.operation,
        schedule_id=None if schedule is None else schedule.schedule_id,
        uid=None if schedule is None else schedule.uid,
        revision_before=None if before is None else before.revision,
        revision_after=None if after is None else after.revision,
        reason=reason,
        request_id=caller.request_id or None,
    )


LOCAL = Caller(owner=Owner(tenant=MAIN_TENANT, user="local"), name="local", source="local")
"""The caller on the loopback interface of a server without keys."""
