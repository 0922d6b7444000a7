"""The ping target: a job that runs elsewhere, and calls a URL when it starts and ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.documents import present
from noonmark.core.instants import SECOND, Micros, micros_to_seconds

if TYPE_CHECKING:
    from noonmark.core.documents import Reader

GRACE: Micros = 300 * SECOND
EARLY: Micros = 10 * SECOND
MAX_GRACE_SECONDS = 30 * 86_400
MAX_EARLY_SECONDS = 3_600
MAX_ROTATION = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PingTarget:
    """A job that runs elsewhere and reports by pings; the URL of the schedule is not part of the document."""

    kind: ClassVar[str] = "ping"
    route: ClassVar[str] = "ping"

    grace: Micros = GRACE
    """How long after the due time the first ping may come."""
    early: Micros = EARLY
    """How long before the due time a ping already counts, because the clock of the job may be fast."""
    rotation: int = 0
    """How often the URL was replaced. It is part of the URL, and a declaration without it keeps it."""

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(
            target_kind=self.kind,
            grace_seconds=micros_to_seconds(self.grace),
            early_seconds=micros_to_seconds(self.early),
            rotation=self.rotation or None,
        )


def read_ping(reader: Reader) -> PingTarget:
    """Read how late and how early pings may come."""
    return PingTarget(
        grace=reader.seconds("grace_seconds", GRACE, low=1, high=MAX_GRACE_SECONDS),
        early=reader.seconds("early_seconds", EARLY, low=0, high=MAX_EARLY_SECONDS),
        rotation=reader.integer("rotation", 0, low=0, high=MAX_ROTATION),
    )
