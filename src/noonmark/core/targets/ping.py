"""Pings in both ways: a job that runs elsewhere and calls our URL, and URLs that a schedule calls."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.documents import present
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND, Micros, micros_to_seconds
from noonmark.core.json_values import text_value
from noonmark.core.lifecycle import Phase
from noonmark.core.urls import parse_url

if TYPE_CHECKING:
    from noonmark.core.documents import Reader

GRACE: Micros = 300 * SECOND
EARLY: Micros = 10 * SECOND
MAX_GRACE_SECONDS = 30 * 86_400
MAX_EARLY_SECONDS = 3_600
MAX_ROTATION = 1_000_000_000
MAX_URL = 4_096


@frozen(kw_only=True)
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


class Moment(StrEnum):
    """When a schedule calls a URL."""

    START = "start"
    SUCCESS = "success"
    FAILURE = "failure"


MOMENTS = {
    Phase.COMPLETED: Moment.SUCCESS,
    Phase.FAILED: Moment.FAILURE,
    Phase.TIMED_OUT: Moment.FAILURE,
    Phase.DELIVERY_FAILED: Moment.FAILURE,
}
"""The moment of each end of a run; a cancelled one has none."""


@frozen(kw_only=True)
class PingUrls:
    """The URLs that a schedule calls when an occurrence starts, succeeds and fails."""

    start: str | None = field(default=None, repr=False)
    """Not shown: the path of such a URL is often its password."""
    success: str | None = field(default=None, repr=False)
    failure: str | None = field(default=None, repr=False)

    def url_for(self, moment: Moment) -> str | None:
        """The URL for a moment."""
        return {Moment.START: self.start, Moment.SUCCESS: self.success, Moment.FAILURE: self.failure}[moment]

    def to_document(self) -> dict[str, Any]:
        """Only the URLs that there are."""
        return present(start=self.start, success=self.success, failure=self.failure)


def read_ping_urls(reader: Reader, name: str) -> PingUrls | None:
    """The URLs in a field; none at all reads as none."""
    if reader.raw(name) is None:
        return None
    fields = reader.child(name)
    urls = PingUrls(**{moment: fields.read(moment, _url, None) for moment in Moment})
    fields.close()
    return None if urls == PingUrls() else urls


def _url(value: object) -> str:
    """An absolute URL; errors do not repeat it."""
    if not isinstance(value, str):
        raise ValueError("must be a URL")
    url = text_value(value, 1, MAX_URL, multiline=False)
    parse_url(url)
    return url
