"""Failures of occurrences in a few stable classes: what was at fault, whatever the reason said of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run

REJECTED, MOB_REJECTED, TRANSPORT = "runtime_rejected", "mob_rejected", "transport_error"
CLASSES: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.TARGET_MISSING: "target_missing",
        Reason.OVERLAP: "target_busy",
        Reason.QUEUE_FULL: "target_busy",
        Reason.FAILED: REJECTED,
        Reason.TIMED_OUT: REJECTED,
        Reason.UNDELIVERABLE: TRANSPORT,
        Reason.COMPLETION_TIMED_OUT: TRANSPORT,
        Reason.LEASE_LOST: "lease_lost",
        Reason.POISON: "lease_lost",
        Reason.OUTCOME_UNKNOWN: "lease_lost",
        Reason.UNREADABLE: "internal_error",
    }
)
"""By the reason. What somebody wanted is no failure: a pause, an edit, a cancellation, a policy that drops what is
late."""
TRIED = frozenset({Reason.RETRY_SCHEDULED, Reason.ATTEMPTS_EXHAUSTED})
"""What an attempt came to; its outcome tells of what kind it was."""


def failure_class(one: Occurrence, run: Run | None) -> str | None:
    """What was at fault with an occurrence, or with its last attempt; None when nothing failed."""
    if one.reason is None:
        return None
    found = CLASSES.get(one.reason)
    if one.reason in TRIED:
        was_refused = one.phase is Phase.DELIVERY_FAILED or (run is not None and run.outcome is Outcome.DELIVERY_FAILED)
        found = TRANSPORT if was_refused else REJECTED
    return MOB_REJECTED if found == REJECTED and one.route == "mob" else found


def failure_detail(one: Occurrence, run: Run | None) -> str | None:
    """What its last run said of the failure, on one line, or else the sentence of its reason."""
    if one.reason is None or failure_class(one, run) is None:
        return None
    said = None if run is None or run.outcome is Outcome.COMPLETED else run.summary
    return said or one.reason.sentence
