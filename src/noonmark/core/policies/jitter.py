"""Jitter: a due time is a little after its nominal time, by a fixed amount, and before the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from noonmark.core.ids import fraction
from noonmark.core.instants import MAX_INSTANT

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


class Fires(Protocol):
    """The nominal times of a schedule, as the policies ask for them."""

    @property
    def jitter(self) -> Micros:
        """How far a due time may lie after its nominal time."""

    def next_micros(self, after: Micros) -> Micros | None:
        """The first fire strictly after an instant."""

    def previous_micros(self, before: Micros) -> Micros | None:
        """The last fire strictly before an instant."""

    def count_micros(self, after: Micros, until: Micros) -> int:
        """How many fires there are with after < fire <= until."""


def due_at(trigger: Fires, uid: str, nominal: Micros) -> Micros:
    """When the fire at `nominal` is due in the schedule `uid`.

    The jitter ends one microsecond before the next nominal time, so due times keep the order of the nominal ones.
    """
    if not trigger.jitter:
        return nominal
    following = trigger.next_micros(nominal)
    room = MAX_INSTANT - nominal if following is None else following - nominal - 1
    return nominal + int(fraction(uid, nominal) * min(trigger.jitter, room))


def newest_due(trigger: Fires, uid: str, *, after: Micros, by: Micros) -> Micros:
    """The newest nominal time later than `after` that is due at `by`; `after` itself when there is none."""
    if by <= after:
        return after
    nominal = trigger.previous_micros(by + 1)
    if nominal is not None and due_at(trigger, uid, nominal) > by:
        # The one before is due before this nominal time, hence before `by`: one step back is enough.
        nominal = trigger.previous_micros(nominal)
    return after if nominal is None else max(after, nominal)
