"""The triggers that follow a wall clock: cron and calendar share everything but how they are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonmark.core.documents import Reader
from noonmark.core.errors import InvalidTrigger, Problem, refusal
from noonmark.core.instants import SECOND, Micros
from noonmark.core.triggers.dst import NO_OVERRIDE, DstOverride, read_dst
from noonmark.core.triggers.trigger import Trigger
from noonmark.core.triggers.zones import Zone, load_zone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.triggers.recurrence import Recurrence


@dataclass(frozen=True, slots=True, init=False, repr=False)
class WallTrigger(Trigger):
    """Fires at wall-clock times of one zone, which are whole seconds."""

    timezone: str
    dst: DstOverride
    _recurrence: Recurrence = field(compare=False)

    def _next(self, after: Micros) -> Micros | None:
        found = self._recurrence.next_after(after // SECOND)
        return None if found is None else found * SECOND

    def _previous(self, before: Micros) -> Micros | None:
        found = self._recurrence.previous_before(-(-before // SECOND))
        return None if found is None else found * SECOND

    def _count(self, after: Micros, until: Micros) -> int:
        return self._recurrence.count_between(after // SECOND, until // SECOND)


def zone_argument(name: str) -> Zone:
    """A zone given by a caller."""
    try:
        return load_zone(name)
    except ValueError as error:
        raise InvalidTrigger(str(error), field="timezone") from None


def dst_argument(value: Mapping[str, str] | DstOverride | None) -> DstOverride:
    """A daylight-saving override given by a caller, as a value or as its document."""
    if value is None:
        return NO_OVERRIDE
    if isinstance(value, DstOverride):
        return value
    problems: list[Problem] = []
    override = read_dst(Reader(value, path="dst", code=InvalidTrigger.code, problems=problems))
    if problems:
        raise refusal(problems)
    return override
