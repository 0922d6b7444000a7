"""Misfire: what happens to fires that were not started in time.

Lateness counts from the due time. A fire that is late by at most the grace still runs; what happens to older ones
is the policy. Event, manual and backfill origins never misfire.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, assert_never

from noonmark.core.documents import named, read_notation
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND, Micros, micros_to_seconds
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.documents import Reader

GRACE: Micros = 60 * SECOND
LIMIT = 10
WIDE_LIMIT = 100
"""For the policies that a stretch of time bounds as well."""
SPREAD_WINDOW: Micros = 60 * SECOND
MAX_LIMIT = 1_000
MAX_SECONDS = 31_622_400
"""A leap year, for the grace and for windows; the least is one second."""
PUNCTUAL: Micros = SECOND
"""Less than the smallest grace is not worth calling late."""


class MisfireKind(StrEnum):
    """The canonical names."""

    SKIP = "skip"
    CATCH_UP_ONE = "catch_up_one"
    CATCH_UP_ALL = "catch_up_all"
    CATCH_UP_WITHIN = "catch_up_within"
    SPREAD = "spread"


_AT_ONCE = "fire_immediately"
"""Another name of `catch_up_all`, with the wide limit."""
_NAMES = named(
    MisfireKind,
    none=MisfireKind.SKIP,
    catchup_one=MisfireKind.CATCH_UP_ONE,
    catchup_all=MisfireKind.CATCH_UP_ALL,
) | {_AT_ONCE: MisfireKind.CATCH_UP_ALL}
_SETTINGS: dict[MisfireKind, tuple[str, ...]] = {
    MisfireKind.SKIP: ("grace_seconds",),
    MisfireKind.CATCH_UP_ONE: ("grace_seconds",),
    MisfireKind.CATCH_UP_ALL: ("grace_seconds", "limit"),
    MisfireKind.CATCH_UP_WITHIN: ("grace_seconds", "limit", "window_seconds"),
    MisfireKind.SPREAD: ("grace_seconds", "limit", "window_seconds"),
}


@frozen(kw_only=True)
class Skip:
    """Older fires do not run, and of several in grace only the newest does."""

    kind: ClassVar[MisfireKind] = MisfireKind.SKIP
    grace: Micros = GRACE

    def to_document(self) -> dict[str, Any]:
        """Every setting, written out."""
        return {"type": str(self.kind), "grace_seconds": micros_to_seconds(self.grace)}


@frozen(kw_only=True)
class CatchUpOne:
    """Only the newest fire runs, however late it is."""

    kind: ClassVar[MisfireKind] = MisfireKind.CATCH_UP_ONE
    grace: Micros = GRACE

    def to_document(self) -> dict[str, Any]:
        """Every setting, written out."""
        return {"type": str(self.kind), "grace_seconds": micros_to_seconds(self.grace)}


@frozen(kw_only=True)
class CatchUpAll:
    """Of the older fires the newest `limit` (1 to 1,000) run, oldest first."""

    kind: ClassVar[MisfireKind] = MisfireKind.CATCH_UP_ALL
    grace: Micros = GRACE
    limit: int = LIMIT

    def to_document(self) -> dict[str, Any]:
        """Every setting, written out."""
        return {"type": str(self.kind), "grace_seconds": micros_to_seconds(self.grace), "limit": self.limit}


@frozen(kw_only=True)
class CatchUpWithin:
    """The older fires that are late by at most `window` run, the newest `limit` of them."""

    kind: ClassVar[MisfireKind] = MisfireKind.CATCH_UP_WITHIN
    grace: Micros = GRACE
    limit: int = WIDE_LIMIT
    window: Micros

    def to_document(self) -> dict[str, Any]:
        """Every setting, written out."""
        return _with_window(self)


@frozen(kw_only=True)
class Spread:
    """Of the older fires the newest `limit` run, and those in grace after them, evenly over `window` from now on."""

    kind: ClassVar[MisfireKind] = MisfireKind.SPREAD
    grace: Micros = GRACE
    limit: int = WIDE_LIMIT
    window: Micros = SPREAD_WINDOW

    def to_document(self) -> dict[str, Any]:
        """Every setting, written out."""
        return _with_window(self)


KeepsSeveral = CatchUpAll | CatchUpWithin | Spread
"""The policies that keep several fires of a gap, which form a line."""
MisfirePolicy = Skip | CatchUpOne | KeepsSeveral


@frozen(kw_only=True)
class Lateness:
    """Whether one occurrence may still start: late by `late_by`, when `grace` is allowed."""

    reason: Reason
    late_by: Micros
    grace: Micros

    @property
    def runs(self) -> bool:
        """Whether it starts; otherwise it misfires."""
        return self.reason is not Reason.LATE

    def facts(self) -> Mapping[str, int | float | str]:
        """The numbers behind it."""
        return {"late_by_seconds": micros_to_seconds(self.late_by), "grace_seconds": micros_to_seconds(self.grace)}


def read_misfire(reader: Reader, field: str, *, trigger_type: str) -> MisfirePolicy:
    """The policy in a field, as a name or an object; without one `skip`, for `once` triggers `catch_up_one`."""
    written = read_notation(reader, field, _NAMES, _SETTINGS)
    if written is None:
        return CatchUpOne() if trigger_type == "once" else Skip()
    settings = written.settings
    grace = settings.seconds("grace_seconds", GRACE, low=1, high=MAX_SECONDS)
    match written.kind:
        case MisfireKind.SKIP:
            return Skip(grace=grace)
        case MisfireKind.CATCH_UP_ONE:
            return CatchUpOne(grace=grace)
        case MisfireKind.CATCH_UP_ALL:
            return CatchUpAll(grace=grace, limit=_limit(settings, WIDE_LIMIT if written.name == _AT_ONCE else LIMIT))
        case MisfireKind.CATCH_UP_WITHIN:
            window = settings.seconds("window_seconds", low=1, high=MAX_SECONDS)
            return CatchUpWithin(grace=grace, limit=_limit(settings, WIDE_LIMIT), window=window)
        case MisfireKind.SPREAD:
            window = settings.seconds("window_seconds", SPREAD_WINDOW, low=1, high=MAX_SECONDS)
            return Spread(grace=grace, limit=_limit(settings, WIDE_LIMIT), window=window)
    assert_never(written.kind)


def judge(
    policy: MisfirePolicy,
    *,
    due: Micros,
    now: Micros,
    caught_up_at: Micros | None = None,
    lease_lost: bool = False,
    lease: Micros = 0,
) -> Lateness:
    """Whether an occurrence that is claimed at `now`, and has never started, still runs.

    A caught-up one is late by intent, and is not decided again, however long it waits for a node. Under `skip`, which
    an edit may have put in force since, its lateness counts from the moment at which it was caught up. When a node was
    lost with its claim, finding out took a lease, so the grace is then at least two leases.
    """
    late_by = max(0, now - (due if caught_up_at is None else max(due, caught_up_at)))
    grace = max(policy.grace, 2 * lease) if lease_lost else policy.grace
    is_fixed = caught_up_at is not None and not isinstance(policy, Skip)
    return Lateness(reason=Reason.CAUGHT_UP if is_fixed else reason_for(late_by, grace), late_by=late_by, grace=grace)


def reason_for(late_by: Micros, grace: Micros) -> Reason:
    """What to call a lateness."""
    if late_by > grace:
        return Reason.LATE
    return Reason.ON_TIME if late_by < PUNCTUAL else Reason.WITHIN_GRACE


def _limit(settings: Reader, default: int) -> int:
    limit: int = settings.integer("limit", default, low=1, high=MAX_LIMIT)
    return limit


def _with_window(policy: CatchUpWithin | Spread) -> dict[str, Any]:
    return {
        "type": str(policy.kind),
        "grace_seconds": micros_to_seconds(policy.grace),
        "limit": policy.limit,
        "window_seconds": micros_to_seconds(policy.window),
    }
