"""Catch-up: which fires of a gap still run, decided for all of them at once.

Due times keep the order of the nominal ones, so the fires in grace are the newest of a gap, and what runs is always
its newest end. Everything older is one stretch, told by its count and its two ends. So a gap of any length costs a
few questions to the trigger, plus one or two for each fire that runs.

Several fires that a catch-up policy keeps, those in grace among them, form a line: it is fixed here, in the order of
their nominal times, and they run one after another. None of them is decided again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from noonmark.core.frozen import frozen
from noonmark.core.instants import micros_to_seconds, to_text
from noonmark.core.policies.jitter import due_at, newest_due
from noonmark.core.policies.misfire import (
    PUNCTUAL,
    CatchUpAll,
    CatchUpOne,
    CatchUpWithin,
    KeepsSeveral,
    Skip,
    Spread,
    reason_for,
)
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.policies.jitter import Fires
    from noonmark.core.policies.misfire import MisfirePolicy

MAX_IN_GRACE = 1_000
"""The most fires in grace that run: an interval of a millisecond has millions in an hour of grace."""


@frozen(kw_only=True)
class Start:
    """One fire that runs: at its own due time, in grace or caught up, or at the time it was spread to."""

    nominal: Micros
    due: Micros
    reason: Reason


@frozen(kw_only=True)
class Missed:
    """The fires that do not run: all those from `first` to `last`, both nominal times and both included."""

    count: int
    first: Micros
    last: Micros
    reason: Reason


@frozen(kw_only=True)
class CatchUp:
    """What becomes of every fire that was due: `starts`, oldest first, and before them what was `missed`."""

    policy: MisfirePolicy
    now: Micros
    starts: tuple[Start, ...] = ()
    missed: Missed | None = None
    in_grace: int = 0
    late_by: Micros = 0
    """How late the oldest of them is."""

    @property
    def reason(self) -> Reason:
        """What became of the oldest fire, and why."""
        if self.missed is not None:
            return self.missed.reason
        return self.starts[0].reason if self.starts else Reason.NOT_DUE

    @property
    def is_line(self) -> bool:
        """Whether the starts run one after another; overlap policies do not act inside the line."""
        return isinstance(self.policy, KeepsSeveral) and len(self.starts) > 1 and self.late_by >= PUNCTUAL

    def facts(self) -> Mapping[str, int | float | str]:
        """The numbers behind it."""
        missed = self.missed.count if self.missed is not None else 0
        settings = self.policy.to_document()
        return {
            "policy": settings.pop("type"),
            **settings,
            "now": to_text(self.now),
            "due": len(self.starts) + missed,
            "in_grace": self.in_grace,
            "in_grace_limit": MAX_IN_GRACE,
            "runs": len(self.starts),
            "missed": missed,
            "late_by_seconds": micros_to_seconds(self.late_by),
        }


def decide(policy: MisfirePolicy, trigger: Fires, *, uid: str, after: Micros, now: Micros) -> CatchUp:
    """Which fires run, of all those later than `after` that are due at `now` in the schedule `uid`."""

    def newest_late_by_more_than(lateness: Micros) -> Micros:
        return newest_due(trigger, uid, after=after, by=now - lateness - 1)

    oldest = trigger.next_micros(after)
    if oldest is None or oldest > now or (newest := newest_due(trigger, uid, after=after, by=now)) == after:
        return CatchUp(policy=policy, now=now)
    past_grace = newest_late_by_more_than(policy.grace)
    too_old = newest_late_by_more_than(policy.window) if isinstance(policy, CatchUpWithin) else after
    in_grace = trigger.count_micros(past_grace, newest)
    running = _running(policy, in_grace=in_grace, older=trigger.count_micros(too_old, past_grace))
    missed = trigger.count_micros(after, newest) - running
    nominals = _backwards(trigger, newest, running + 1 if missed else running)
    fires = [(nominal, due_at(trigger, uid, nominal)) for nominal in reversed(nominals[:running])]
    late_by = now - due_at(trigger, uid, oldest)
    return CatchUp(
        policy=policy,
        now=now,
        starts=_starts(policy, fires, now),
        missed=Missed(count=missed, first=oldest, last=nominals[running], reason=_why_missed(policy, late_by))
        if missed
        else None,
        in_grace=in_grace,
        late_by=late_by,
    )


def _running(policy: MisfirePolicy, *, in_grace: int, older: int) -> int:
    """How many fires run, counted from the newest; `older` are those past grace that the policy might take."""
    match policy:
        case Skip():
            return min(in_grace, 1)
        case CatchUpOne():
            return 1
        case CatchUpAll() | CatchUpWithin() | Spread():
            # What runs has no holes: when not even the fires in grace all run, no older one does.
            return in_grace + min(older, policy.limit) if in_grace <= MAX_IN_GRACE else MAX_IN_GRACE
    assert_never(policy)


def _why_missed(policy: MisfirePolicy, late_by: Micros) -> Reason:
    """Why the oldest fire of the missed ones, late by so much, does not run."""
    match policy:
        case Skip():
            return Reason.LATE if late_by > policy.grace else Reason.NEWER_FIRE
        case CatchUpOne():
            return Reason.NEWER_FIRE
        case CatchUpWithin():
            return Reason.LATE if late_by > max(policy.grace, policy.window) else Reason.CATCH_UP_LIMIT
        case CatchUpAll() | Spread():
            return Reason.CATCH_UP_LIMIT
    assert_never(policy)


def _backwards(trigger: Fires, newest: Micros, count: int) -> list[Micros]:
    """The newest `count` nominal times, and at least the one given, newest first."""
    nominals = [newest]
    while len(nominals) < count and (earlier := trigger.previous_micros(nominals[-1])) is not None:
        nominals.append(earlier)
    return nominals


def _starts(policy: MisfirePolicy, fires: list[tuple[Micros, Micros]], now: Micros) -> tuple[Start, ...]:
    """The fires that run, as (nominal, due), oldest first; those past grace are the first of them."""
    reasons = [reason_for(now - due, policy.grace) for _, due in fires]
    # What is in grace is spread too when an older fire is: it must not start before that.
    window = policy.window if isinstance(policy, Spread) and Reason.LATE in reasons else None
    starts = []
    for index, ((nominal, due), reason) in enumerate(zip(fires, reasons, strict=True)):
        moved = due if window is None else now + index * window // len(fires)
        starts.append(Start(nominal=nominal, due=moved, reason=Reason.CAUGHT_UP if reason is Reason.LATE else reason))
    return tuple(starts)
