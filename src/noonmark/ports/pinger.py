"""The pinger: calls the URLs that a schedule names for its starts and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets.ping import Moment


class Pinger(Protocol):
    """Calls URLs beside the work: it returns at once, never raises, and a call that fails changes nothing."""

    def ping(self, schedule: Schedule, occurrence: Occurrence, moment: Moment) -> None:
        """Call the URL that the schedule names for that moment, if any. From any thread."""

    @property
    def pending(self) -> int:
        """How many calls have not ended."""
