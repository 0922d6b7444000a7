"""Repair: what a store is asked to judge its own time by, and to put right what a wrong one has left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.instants import Micros
    from noonmark.core.plans import Snapshot


class ClockRepair(Protocol):
    """Part of a store."""

    def newest_time(self, before: Micros | None = None) -> Micros | None:
        """The newest of the times at which an occurrence ended, a node was heard of, a note was kept, or a lease ends.

        Of those before a time, if one is given. None where nothing of that kind is stored. Costs next to nothing.
        """

    def due_since(self, routes: Collection[str]) -> Micros | None:
        """Since when, or from when, the first row with one of the routes can be claimed; None when there is none."""

    def planned_ahead(self, *, now: Micros, until: Micros, after: str, limit: int) -> list[Snapshot]:
        """Schedules that are not deleted with a watermark after `until` and a uid after that one, by uid.

        Their `beyond` reaches back to `now`, or to the watermark where that is earlier, and they have `gaps`: the rows
        among those that have a last missed time. One whose record cannot be read is left out. Changes nothing.
        """

    def mend(self, *, now: Micros, after: Micros, lease: Micros) -> int:
        """Set back what was written by a clock that was ahead: every time after `after`. Says how many rows.

        The ends of leases, of occurrences and of the lead, to now + lease, so that a holder that lives renews them; and
        to now when nodes were heard of and which routes they served, when occurrences ended, when notes were kept, and
        when keys were first used.

        What waits for a false time gets another, now: a pending row that can be claimed only after its due time, an
        occurrence that somebody asked for, or that is leased, and a retry that is due later than any policy puts it;
        and a schedule that is to be planned after its watermark.
        """
