"""Dependencies: whether the schedules that an occurrence depends on have run before it.

With a trigger of its own, one occurrence of each upstream counts: the newest that its trigger named after the previous
time of the one that depends on it, and not after its own. Where it named none, its last outcome counts.

Without a trigger, a schedule fires when every upstream has ended since its last fire. One that is over, because
nothing of it is to come, counts as it ended, however long ago that was.
"""

from __future__ import annotations

import json
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from noonmark.core.errors import InvalidSchedule
from noonmark.core.event import Chain, joined
from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY, MIN_INSTANT, to_text
from noonmark.core.lifecycle import LIVE, Phase, SchedulePhase
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.policies.jitter import Fires
    from noonmark.core.policies.limits import Dependency

    Facts = Mapping[str, int | float | str]

WAIT_LIMIT: Micros = DAY
"""So long after its first due time an occurrence waits for the others."""


@frozen(kw_only=True)
class Upstream:
    """An upstream, as seen by one occurrence that depends on it."""

    dependency: Dependency
    phase: Phase | None
    """That of the occurrence that counts; None when that is yet to come."""
    is_known: bool = True
    """Whether there is such a schedule, and it is not deleted."""
    is_named: bool = True
    """Whether its trigger named a time in question; if not, its last outcome counts."""

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

    def facts(self) -> Facts:
        """Who it is, and how it ended."""
        return {"upstream": self.dependency.schedule_id, "phase": str(self.phase or "missing")}


@frozen(kw_only=True)
class Standing:
    """A stored upstream. Without a phase it does not exist, or is deleted."""

    dependency: Dependency
    phase: SchedulePhase | None = None
    fires: Fires | None = None
    """The times that its trigger names, if it names any."""
    watermark: Micros = MIN_INSTANT
    exhausted: bool = False
    newest: tuple[Micros, Phase] | None = None
    """The newest row of its trigger among the times in question: its last time, and its phase."""
    last_phase: Phase | None = None
    ended: Micros | None = None
    """When it last ended in any way; a moment that no schedule which follows it has accounted for before."""
    completed: Micros | None = None
    """When it last completed."""
    leads: Chain | None = None
    """The chain of what its last end triggers, if a schedule depends on it."""

    @property
    def is_over(self) -> bool:
        """Whether it has no further occurrences."""
        return self.phase in (None, SchedulePhase.COMPLETED)

    def between(self, after: Micros, until: Micros) -> Upstream:
        """What it means for an occurrence, given the times in question."""
        if self.phase is None:
            return Upstream(dependency=self.dependency, phase=None, is_known=False)
        unplanned = self._unplanned(until)
        last = after if self.newest is None else self.newest[0]
        if unplanned is not None and unplanned > last:
            # While it is paused, that is what will be written about this time.
            phase = Phase.SKIPPED if self.phase is SchedulePhase.PAUSED else None
            return Upstream(dependency=self.dependency, phase=phase)
        if self.newest is not None:
            return Upstream(dependency=self.dependency, phase=self.newest[1])
        return Upstream(dependency=self.dependency, phase=self.last_phase, is_named=False)

    def since(self, watermark: Micros) -> Upstream:
        """What it means for a schedule that follows it, and has accounted for everything up to an instant."""
        if self.phase is None:
            return Upstream(dependency=self.dependency, phase=None, is_known=False)
        if _is_after(self.completed, watermark):
            return Upstream(dependency=self.dependency, phase=Phase.COMPLETED)
        counts = self.is_over or _is_after(self.ended, watermark)
        return Upstream(dependency=self.dependency, phase=self.last_phase if counts else None)

    def _unplanned(self, until: Micros) -> Micros | None:
        """The newest time up to an instant that it names, and that nothing accounts for yet."""
        if self.fires is None or self.exhausted:
            return None
        named = self.fires.previous_micros(until + 1)
        return named if _is_after(named, self.watermark) else None


@frozen(kw_only=True)
class Standings:
    """All upstreams of a schedule, in one consistent read."""

    each: tuple[Standing, ...] = ()
    news: int = 0
    """The number of news so far; a decision holds only while it is unchanged."""


@frozen(kw_only=True)
class Verdict:
    """What holds an occurrence back: a pending, failed or timed out upstream."""

    reason: Reason
    facts: Facts = field(default_factory=dict)


@frozen(kw_only=True)
class FollowUp:
    """A fire of a schedule without a trigger. With a detail, it must not run: that says who has failed, in JSON."""

    nominal: Micros
    detail: str = ""
    behind: Chain | None = None
    """What led to it; None where its upstreams were all over before."""


def judge(upstreams: Sequence[Upstream], *, first_due: Micros, now: Micros) -> Verdict | None:
    """What holds an occurrence back, if anything does; a failure ends the wait for the others."""
    for upstream in upstreams:
        if upstream.has_failed:
            return Verdict(reason=Reason.DEPENDENCY_FAILED, facts=upstream.facts())
    limit = first_due + WAIT_LIMIT
    for upstream in upstreams:
        if upstream.is_pending:
            facts = {"upstream": upstream.dependency.schedule_id, "waits_until": to_text(limit)}
            return Verdict(
                reason=Reason.DEPENDENCY_PENDING if now < limit else Reason.DEPENDENCY_TIMED_OUT, facts=facts
            )
    return None


def times_in_question(fires: Fires, nominal: Micros) -> tuple[Micros, Micros]:
    """After which time, and up to which, an upstream's occurrence counts for the one of this nominal time."""
    previous = fires.previous_micros(nominal)
    return (MIN_INSTANT - 1 if previous is None else previous, nominal)


def follow_up(standings: Sequence[Standing], *, watermark: Micros, has_fired: bool) -> FollowUp | None:
    """The fire that a schedule without a trigger owes to its upstreams, if it owes one.

    Its nominal time is the newest of the ends that brought it about, so that it is named once, and it stands in its
    chain where the deepest of them stands. Upstreams that were all over before its first fire bring about that one, and
    no other.
    """
    recent = [one for one in standings if _is_after(one.ended, watermark)]
    ends = [one.ended for one in recent if one.ended is not None]
    led = [one.leads for one in recent if one.leads is not None]
    upstreams = [one.since(watermark) for one in standings]
    if any(one.is_pending and not standing.is_over for one, standing in zip(upstreams, standings, strict=True)):
        return None
    if not ends and has_fired:
        return None
    failed = (one.facts() for one in upstreams if one.has_failed or (one.is_pending and one.dependency.require_success))
    details = [json.dumps(dict(facts), sort_keys=True) for facts in failed]
    return FollowUp(
        nominal=max(ends, default=watermark + 1),
        detail=next(iter(details), ""),
        behind=joined(led) if led else None,
    )


def find_cycle(
    schedule_id: str, upstreams: Sequence[Dependency], upstreams_of: Mapping[str, Sequence[str]]
) -> list[str]:
    """The ids of schedules each of which depends on the next, and the last on the first; none if all is in order.

    `known` has what each schedule depends on, as far as one comes from the upstreams.
    """
    graph = {**upstreams_of, schedule_id: [one.schedule_id for one in upstreams]}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # The sorter returns predecessors, and the first of them twice.
        return list(reversed(error.args[1][1:]))
    return []


def check_order(
    schedule_id: str,
    upstreams: Sequence[Dependency],
    upstreams_of: Mapping[str, Sequence[str]],
    names: Mapping[str, str] | None = None,
) -> None:
    """Refuse upstreams that do not exist, or that depend on the schedule themselves, directly or through others.

    `known` is what `find_cycle` takes; the error names the schedules of a cycle by `names`, where they have any.
    """
    for index, upstream in enumerate(upstreams):
        if upstream.schedule_id == schedule_id:
            raise InvalidSchedule("names the schedule itself", field="depends_on")
        if upstream.schedule_id not in upstreams_of:
            message = f"there is no schedule {upstream.schedule_id!r}"
            raise InvalidSchedule(message, field=f"depends_on[{index}].schedule_id")
    if cycle := find_cycle(schedule_id, upstreams, upstreams_of):
        shown = [f"{names[one]!r} ({one})" if names and one in names else one for one in [*cycle, cycle[0]]]
        raise InvalidSchedule(f"makes a cycle: {' depends on '.join(shown)}", field="depends_on")


def _is_after(time: Micros | None, instant: Micros) -> bool:
    return time is not None and time > instant
