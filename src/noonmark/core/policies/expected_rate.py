"""The expected rate: how often a schedule is expected to start and to succeed, and what is reported if it does not.

Windows follow one another from the moment a schedule is created or resumed. Starts and successes are counted in the
window they fall into. The start that exceeds `at_most` is reported at once, and once in a window. When a window ends
with fewer successes than `at_least`, that is reported; windows that ended while no node was running are one report.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import present
from noonmark.core.frozen import frozen
from noonmark.core.instants import micros_to_seconds

if TYPE_CHECKING:
    from noonmark.core.documents import Reader
    from noonmark.core.instants import Micros

COUNTS = ("ends", "started", "succeeded", "started_after", "succeeded_after")
MAX_RATE = 1_000_000_000
MIN_WINDOW_SECONDS = 1
MAX_WINDOW_SECONDS = 31_622_400
"""A leap year."""


@frozen(kw_only=True)
class ExpectedRate:
    """The least successes and the most starts in each window."""

    per: Micros
    at_least: int | None = None
    at_most: int | None = None

    def to_document(self) -> dict[str, Any]:
        """The field of the schedule document."""
        return present(at_least=self.at_least, at_most=self.at_most, per_seconds=micros_to_seconds(self.per))


class RateProblem(StrEnum):
    """How a schedule missed its expected rate."""

    TOO_OFTEN = "too_often"
    TOO_RARE = "too_rare"


@frozen(kw_only=True)
class RateAlert:
    """A report: the problem, the window or windows it is about, and what was counted there."""

    problem: RateProblem
    rate: ExpectedRate
    first: Micros
    """The beginning of the first of the windows."""
    last: Micros
    """The end of the last."""
    count: int
    """Starts, if it is too often; successes, if it is too rare."""
    windows: int = 1

    def to_sentence(self) -> str:
        """What happened, in words."""
        seconds = f"{micros_to_seconds(self.rate.per):g} s"
        if self.problem is RateProblem.TOO_OFTEN:
            return (
                f"{self.count} starts within {seconds}; at most {self.rate.at_most} {_are(self.rate.at_most)} expected"
            )
        many = "" if self.windows == 1 else f", {self.windows} times in a row"
        counted = f"{self.count} {'success' if self.count == 1 else 'successes'} within {seconds}"
        return f"{counted}; at least {self.rate.at_least} {_are(self.rate.at_least)} expected{many}"


@frozen(kw_only=True)
class RateWindow:
    """The current window of a schedule: when it ends, and what was counted in it.

    What happens after its end, before it is judged, counts for the next one.
    """

    ends: Micros
    started: int = 0
    succeeded: int = 0
    started_after: int = 0
    succeeded_after: int = 0
    is_begun: bool = False
    """A ping said that a job starts, and none has said yet how it ended."""
    last_alert: RateAlert | None = None
    """The newest report of a problem."""

    @property
    def recent_alert(self) -> RateAlert | None:
        """The report about this window, the next one, or the one before it; an older problem is over."""
        alert = self.last_alert
        return None if alert is None or alert.last < self.ends - alert.rate.per else alert

    def to_document(self) -> dict[str, Any]:
        """The window as JSON, for a store."""
        return asdict(self)


@frozen(kw_only=True)
class Counted:
    """A window after a count or a judgement, and the alert that follows, if any."""

    window: RateWindow
    alert: RateAlert | None = None


def read_expected_rate(reader: Reader, name: str) -> ExpectedRate | None:
    """The rate in a field of a document, if there is one."""
    if reader.raw(name) is None:
        return None
    fields = reader.child(name)
    at_least = fields.integer("at_least", None, low=1, high=MAX_RATE)
    at_most = fields.integer("at_most", None, low=1, high=MAX_RATE)
    per: Micros = fields.seconds("per_seconds", low=MIN_WINDOW_SECONDS, high=MAX_WINDOW_SECONDS)
    if fields.raw("at_least") is None and fields.raw("at_most") is None:
        fields.problem("at_least", "is required, unless at_most is given")
    if at_least is not None and at_most is not None and at_least > at_most:
        fields.problem("at_most", f"must not be less than at_least, {at_least}")
    fields.close()
    return ExpectedRate(per=per, at_least=at_least, at_most=at_most)


def read_window(document: object) -> RateWindow | None:
    """The window that a store has kept; None if its record is damaged, so that a new one begins."""
    if not isinstance(document, dict):
        return None
    counts = {name: count for name in COUNTS if type(count := document.get(name)) is int}
    if len(counts) < len(COUNTS):
        return None
    return RateWindow(
        **counts, is_begun=document.get("is_begun") is True, last_alert=_read_alert(document.get("last_alert"))
    )


def _read_alert(document: object) -> RateAlert | None:
    """The alert that a store has kept; none if its record is damaged, or of an earlier version."""
    match document:
        case {
            "problem": str(problem),
            "rate": {"per": int(per), "at_least": int() | None as at_least, "at_most": int() | None as at_most},
            "first": int(first),
            "last": int(last),
            "count": int(count),
            "windows": int(windows),
        } if problem in {*RateProblem}:
            rate = ExpectedRate(per=per, at_least=at_least, at_most=at_most)
            return RateAlert(
                problem=RateProblem(problem), rate=rate, first=first, last=last, count=count, windows=windows
            )
        case _:
            return None


def open_window(rate: ExpectedRate, *, now: Micros) -> RateWindow:
    """The first window of a schedule that was created, resumed or edited now."""
    return RateWindow(ends=now + rate.per)


def count_start(rate: ExpectedRate, window: RateWindow, *, now: Micros) -> Counted:
    """Count a start; the first beyond `at_most` is reported."""
    if now < window.ends:
        counted, ends = replace(window, started=window.started + 1), window.ends
        started = counted.started
    else:
        counted, ends = replace(window, started_after=window.started_after + 1), _current_end(rate, window, now=now)
        started = counted.started_after
    alert = _too_often(rate, started, ends=ends)
    return Counted(window=_noted(counted, alert), alert=alert)


def count_success(window: RateWindow, *, now: Micros) -> RateWindow:
    """Count a success."""
    if now < window.ends:
        return replace(window, succeeded=window.succeeded + 1)
    return replace(window, succeeded_after=window.succeeded_after + 1)


def count_ping(rate: ExpectedRate, window: RateWindow, *, is_start: bool, is_success: bool, now: Micros) -> Counted:
    """Count a ping: a start, or an end without a start before it, is a start; a success is a success as well."""
    counted = Counted(window=window)
    if is_start or not window.is_begun:
        counted = count_start(rate, window, now=now)
    after = replace(counted.window, is_begun=is_start)
    return replace(counted, window=count_success(after, now=now) if is_success else after)


def close(rate: ExpectedRate, window: RateWindow, *, now: Micros) -> Counted:
    """Judge a window that has ended by now, and those that ended after it while nobody judged."""
    ends = _current_end(rate, window, now=now)
    following = replace(
        window,
        ends=ends,
        started=window.started_after,
        succeeded=window.succeeded_after,
        started_after=0,
        succeeded_after=0,
    )
    alert = None
    if rate.at_least is not None:
        is_rare = window.succeeded < rate.at_least
        # In the windows between that one and the present one nothing was counted.
        first = window.ends - (rate.per if is_rare else 0)
        windows = (ends - rate.per - first) // rate.per
        if windows:
            alert = RateAlert(
                problem=RateProblem.TOO_RARE,
                rate=rate,
                first=first,
                last=ends - rate.per,
                count=window.succeeded if is_rare else 0,
                windows=windows,
            )
    return Counted(window=_noted(following, alert), alert=alert)


def since(decided: RateWindow, read: RateWindow, stored: RateWindow) -> RateWindow | None:
    """A window as it was decided from one that was read, with what was counted since; None if it was judged since.

    After its end, a window counts only for the next one.
    """
    if _before_end(stored) != _before_end(read):
        return None
    return replace(
        _noted(decided, stored.last_alert),
        started=decided.started + stored.started_after - read.started_after,
        succeeded=decided.succeeded + stored.succeeded_after - read.succeeded_after,
    )


def _before_end(window: RateWindow) -> RateWindow:
    """A window without what was counted after its end."""
    return replace(window, started_after=0, succeeded_after=0, last_alert=None)


def _noted(window: RateWindow, alert: RateAlert | None) -> RateWindow:
    """A window that remembers an alert, unless it knows of a later one."""
    last_alert = window.last_alert
    if alert is None or (last_alert is not None and last_alert.last > alert.last):
        return window
    return replace(window, last_alert=alert)


def _are(count: int | None) -> str:
    return "is" if count == 1 else "are"


def _too_often(rate: ExpectedRate, started: int, *, ends: Micros) -> RateAlert | None:
    if rate.at_most is None or started != rate.at_most + 1:
        return None
    return RateAlert(problem=RateProblem.TOO_OFTEN, rate=rate, first=ends - rate.per, last=ends, count=started)


def _current_end(rate: ExpectedRate, window: RateWindow, *, now: Micros) -> Micros:
    """The end of the window that a moment at or after the end of this one falls into."""
    return window.ends + ((now - window.ends) // rate.per + 1) * rate.per
