"""Reports of the steps: the loop uses them to decide whether to continue, and tests check them."""

from __future__ import annotations

from noonmark.core.frozen import frozen


@frozen(kw_only=True)
class PlanReport:
    """Planned schedules, and those whose plan came too late because another node was faster."""

    planned: int = 0
    outrun: int = 0
    more: bool = False
    """The batch was full; there may be more."""


@frozen(kw_only=True)
class MatchReport:
    """Matched events, or pages of their listeners, and those for which another node was faster."""

    matched: int = 0
    occurrences: int = 0
    """Occurrences they triggered."""
    outrun: int = 0
    more: bool = False


@frozen(kw_only=True)
class ClaimReport:
    """Occurrences that this node has claimed."""

    claimed: int = 0
    more: bool = False


@frozen(kw_only=True)
class AdmitReport:
    """Outcomes of the claims that were due for a decision."""

    started: int = 0
    ended: int = 0
    waiting: int = 0
    replanned: int = 0
    lost: int = 0
    postponed: int = 0
    """A place was taken, but the due time is still ahead: they are decided then."""
    late: int = 0
    """Late starts, for which an event is emitted."""


@frozen(kw_only=True)
class SettleReport:
    """Deliveries whose end was written, and those whose lease was lost."""

    settled: int = 0
    lost: int = 0
    frees_others: bool = False
    """Another occurrence may have its turn, or a retry its time."""


@frozen(kw_only=True)
class ProgressReport:
    """Deliveries whose output was written, and those whose output was not."""

    written: int = 0
    left: int = 0


@frozen(kw_only=True)
class RenewReport:
    """Extended leases, lost leases, and runs that were asked to stop."""

    renewed: int = 0
    lost: int = 0
    stopped: int = 0


@frozen(kw_only=True)
class LeadReport:
    """Whether this node leads, whether it has just begun to, and the current term."""

    leads: bool = False
    gained: bool = False
    term: int = 0
    lost: int = 0
    """Nodes that were reported lost."""


@frozen(kw_only=True)
class TakeoverReport:
    """Nodes of this machine whose process is gone, and their leases that were ended."""

    gone: int = 0
    expired: int = 0


@frozen(kw_only=True)
class ReapReport:
    """Deliveries past their deadline, and occurrences that no node could serve."""

    overdue: int = 0
    orphans: int = 0
    abandoned: int = 0
    adopted: bool = False
    """This node serves more routes than before."""


@frozen(kw_only=True)
class RewindReport:
    """Schedules that a fast clock had planned too far, and rows with false times that were repaired."""

    rewound: int = 0
    mended: int = 0


@frozen(kw_only=True)
class PruneReport:
    """Deleted occurrences, events, audit entries and idempotency keys."""

    forgotten: int = 0
    events: int = 0
    notes: int = 0
    keys: int = 0
    more: bool = False
