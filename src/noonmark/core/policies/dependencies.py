"""Dependencies: whether the schedules that an occurrence depends on have run before it.

Of each upstream one occurrence counts: the newest that its trigger named after the previous time of the one that
depends on it, and not after its own. Where there is none, the last outcome counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonmark.core.instants import DAY_SECONDS, MIN_INSTANT, SECOND, to_text
from noonmark.core.lifecycle import LIVE, Phase
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.policies.jitter import Fires
    from noonmark.core.policies.limits import Dependency

WAIT_LIMIT: Micros = DAY_SECONDS * SECOND
"""So long after its first due time an occurrence waits for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A schedule that another depends on, as it stands."""

    dependency: Dependency
    phase: Phase | None
    """That of the occurrence that counts; None when it has named no time in question, and nothing of it has ended."""
    is_known: bool = True
    """Whether there is such a schedule, and it is not deleted."""

    @property
    def is_pending(self) -> bool:
        """Whether how it ends is still open."""
        return self.is_known and (self.phase is None or self.phase in LIVE)

    @property
    def has_failed(self) -> bool:
        """Whether what depends on it must not run."""
        if not self.is_known:
            return True
        return self.dependency.require_success and not self.is_pending and self.phase is not Phase.COMPLETED


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What stands in the way: pending, failed or timed out, and whom it is about."""

    reason: Reason
    facts: Mapping[str, int | float | str] = field(default_factory=dict)


def judge(upstreams: Sequence[Upstream], *, first_due: Micros, now: Micros) -> Verdict | None:
    """What stands in the way of an occurrence, if anything does; a failure ends the wait for the others."""
    for one in upstreams:
        if one.has_failed:
            facts = {"upstream": one.dependency.schedule_id, "phase": str(one.phase or "missing")}
            return Verdict(reason=Reason.DEPENDENCY_FAILED, facts=facts)
    limit = first_due + WAIT_LIMIT
    for one in upstreams:
        if one.is_pending:
            facts = {"upstream": one.dependency.schedule_id, "waits_until": to_text(limit)}
            return Verdict(
                reason=Reason.DEPENDENCY_PENDING if now < limit else Reason.DEPENDENCY_TIMED_OUT, facts=facts
            )
    return None


def times_in_question(fires: Fires, nominal: Micros) -> tuple[Micros, Micros]:
    """After which time, and up to which, an upstream's occurrence counts for the one of this nominal time."""
    previous = fires.previous_micros(nominal)
    return (MIN_INSTANT - 1 if previous is None else previous, nominal)
