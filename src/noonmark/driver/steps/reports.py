"""What each duty of the driver did, so that a loop knows whether to go on and a test knows what happened."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """Schedules planned, and those whose plan came too late because somebody else was faster."""

    planned: int = 0
    outrun: int = 0
    more: bool = False
    """As many were due as fit in one transaction; there may be more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchReport:
    """Events that were matched, or a page of their listeners, and those for which somebody else was faster."""

    matched: int = 0
    occurrences: int = 0
    """What they set off."""
    outrun: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReport:
    """Occurrences that this node holds from now on."""

    claimed: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitReport:
    """What became of the occurrences that were due."""

    started: int = 0
    ended: int = 0
    waiting: int = 0
    replanned: int = 0
    lost: int = 0
    postponed: int = 0
    """A place was taken, but the due time has not come yet: they are decided then."""
    late: int = 0
    """Of those that started, so many did so late, which somebody may want to hear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleReport:
    """Deliveries whose end was written, and those that no longer counted."""

    settled: int = 0
    lost: int = 0
    frees_others: bool = False
    """Another occurrence may have got its turn, or a retry its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """Deliveries of which something new was written, and those of which it could not be."""

    written: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewReport:
    """Leases that were extended, those that were lost, and runs that were asked to stop."""

    renewed: int = 0
    lost: int = 0
    stopped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadReport:
    """Whether this node leads, since just now or not, and the term of whoever does."""

    leads: bool = False
    gained: bool = False
    term: int = 0
    lost: int = 0
    """So many nodes were told to be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapReport:
    """Deliveries that had overstayed their deadline, and occurrences that nobody could serve."""

    overdue: int = 0
    orphans: int = 0
    adopted: bool = False
    """This node serves more than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindReport:
    """Schedules that a clock which was ahead had planned, and times that it had left behind."""

    rewound: int = 0
    mended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """Occurrences, events, notes of what callers did, and keys they used, that were forgotten."""

    forgotten: int = 0
    events: int = 0
    notes: int = 0
    keys: int = 0
    more: bool = False
