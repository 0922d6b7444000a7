"""The runtime: everything a driver needs, in one value."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY, SECOND
from noonmark.core.quotas import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.budgets.budget import Reservation
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.quotas import Limits
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets.ping import Moment
    from noonmark.ports.clock import Clock
    from noonmark.ports.events import EventSink
    from noonmark.ports.store import Store
    from noonmark.ports.target import Target
    from noonmark.ports.traces import Traces


class Seal(Protocol):
    """Encrypts with one key and decrypts with any of its keys."""

    def close(self, tenant: str, name: str, value: str) -> str:
        """The encrypted value; it decrypts only for this tenant and name."""

    def open(self, tenant: str, name: str, sealed: str) -> str | None:
        """The decrypted value; None if no key fits."""


MILLISECOND: Micros = SECOND // 1_000


@frozen(kw_only=True)
class Timing:
    """The intervals and batch sizes of a node."""

    lease: Micros = 15 * SECOND
    """How long a claim, and leadership, hold without renewal; they are renewed three times in that time."""
    lookahead: Micros = 2 * SECOND
    """How far ahead of its due time an occurrence is claimed."""
    early: Micros = 20 * MILLISECOND
    """How far ahead of its due time a start is committed; it begins at its due time, never before."""
    batch: int = 1_000
    """The maximum number of occurrences in one transaction."""
    capacity: int = 25_000
    """The maximum number of occurrences a node holds; the last tenth is for owners that hold next to nothing there."""
    keep_for: Micros = 30 * DAY
    """Occurrences that ended longer ago, and older events, are deleted."""
    keep_count: int = 10_000
    """The number of ended occurrences stored per schedule."""
    keep_events: int = 100_000
    """The number of matched events stored per tenant."""
    keep_messages_for: Micros = 90 * DAY
    """Older messages of sessions are deleted."""
    session_bytes: int = 16 * 1024 * 1024
    """The size of the messages stored per session; the oldest ones go first."""
    keep_usage_for: Micros = 400 * DAY
    """Older settled calls of models are deleted; budgets keep what they have counted."""
    prune_every: Micros = 60 * SECOND


class NodeLocks(Protocol):
    """Lock files by which the nodes of one machine see at once that the process of another has ended."""

    def acquire(self, node: str) -> str:
        """Lock the file of a node for as long as this process lives; returns the lock, as heartbeats name it.

        Empty where that is not possible, and leases alone decide. May block. Raises the errors of the store.
        """

    def release(self, node: str) -> None:
        """Remove the file of a node that has left; it was acquired as often."""

    def freshen(self) -> None:
        """Set the times of the files of this process, so that what removes old temporary files leaves them alone."""

    def find_gone(self) -> dict[str, str]:
        """The nodes on this machine whose process has ended without leaving, with their locks."""

    def remove(self, node: str) -> None:
        """Remove the file of a node that was found to be gone, or forget it if that is not possible."""


class Pinger(Protocol):
    """Calls URLs in the background: it returns at once, never raises, and a failed call changes nothing."""

    def ping(self, schedule: Schedule, occurrence: Occurrence, moment: Moment) -> None:
        """Call the URL that the schedule names for that moment, if any. From any thread."""

    @property
    def pending(self) -> int:
        """How many calls have not ended."""


@frozen(kw_only=True)
class Runtime:
    """The adapters and settings of one node."""

    node: str
    store: Store
    clock: Clock
    target: Target
    sink: EventSink | None = None
    pinger: Pinger | None = None
    """Calls the URLs that schedules name for their starts and ends."""
    traces: Traces | None = None
    """Records what happens to occurrences."""
    version: str = ""
    """The version of Noonmark, as shown to other nodes."""
    zone_data: str = ""
    """The version of the time zone data, as shown to other nodes."""
    timing: Timing = field(default_factory=Timing)
    limits: Limits = UNLIMITED
    """How many occurrences of a user and of a tenant are in flight at once, on all nodes."""
    first_call: Callable[[Schedule, Occurrence], Reservation | None] | None = None
    """What admission reserves for the first call of an agent's model; None where nothing is reserved."""
    locks: NodeLocks | None = None
    """How nodes of this machine see that another is gone; without them, leases alone decide."""
    reach: str | None = ""
    """The option by which commands in log lines find the store or a server, for a shell; empty where they need none,
    None if only this program has the store."""
    has_remote_host: bool = True
    """Whether targets that ask for the remote agent host find one; without agents, the node is given none of them."""
