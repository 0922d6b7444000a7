"""Window: the stretch of time in which an occurrence may run, counted from its first due time."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import named
from noonmark.core.frozen import frozen
from noonmark.core.instants import MAX_INSTANT, Micros, micros_to_seconds, to_text
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.documents import Reader
    from noonmark.core.triggers import Trigger

MAX_WINDOW_SECONDS = 31_622_400
"""A leap year."""

SUSPENDABLE = frozenset({"bundle", "command", "workflow"})
"""The kinds of target whose runs can be suspended and taken up again."""


class EndAction(StrEnum):
    """What happens to a run that is still going when the window closes."""

    CANCEL = "cancel"
    PAUSE = "pause"
    NONE = "none"


@frozen(kw_only=True)
class Window:
    """Open for `duration` (1 ms to a leap year) from the first due time, whatever retries follow."""

    duration: Micros
    end_action: EndAction = EndAction.CANCEL

    def closes_at(self, first_due: Micros) -> Micros:
        """The first instant at which it is closed."""
        return min(first_due + self.duration, MAX_INSTANT)

    def cuts_off_at(self, first_due: Micros) -> Micros | None:
        """When it ends what has begun, if it does.

        Work that the target took over is cut off like any other run, but never suspended: it does not run here.
        """
        return self.closes_at(first_due) if self.end_action is EndAction.CANCEL else None

    def to_document(self) -> dict[str, Any]:
        """Both settings, written out."""
        return {"duration_seconds": micros_to_seconds(self.duration), "end_action": str(self.end_action)}


@frozen(kw_only=True)
class WindowDecision:
    """Whether an occurrence may start: the window is open from its first due time up to, not including, `closes_at`."""

    reason: Reason
    first_due: Micros
    closes_at: Micros
    now: Micros

    @property
    def is_open(self) -> bool:
        """Whether it may start."""
        return self.reason is Reason.WINDOW_OPEN

    def facts(self) -> Mapping[str, int | float | str]:
        """The numbers behind it."""
        return {
            "first_due": to_text(self.first_due),
            "closes_at": to_text(self.closes_at),
            "remaining_seconds": micros_to_seconds(max(0, self.closes_at - self.now)),
        }


def read_window(reader: Reader, field: str, *, target_kind: str | None) -> Window | None:
    """The window in a field, if there is one.

    Only some kinds of target can be suspended; with None, the kind is not known and not judged.
    """
    if reader.raw(field) is None:
        return None
    settings = reader.child(field)
    window = Window(
        duration=settings.seconds("duration_seconds", low=0.001, high=MAX_WINDOW_SECONDS),
        end_action=settings.choice("end_action", named(EndAction), EndAction.CANCEL),
    )
    if window.end_action is EndAction.PAUSE and target_kind is not None and target_kind not in SUSPENDABLE:
        able = ", ".join(sorted(SUSPENDABLE))
        message = f"cannot be pause for a {target_kind} target; only runs of {able} can be suspended"
        settings.problem("end_action", message)
    settings.close()
    return window


def judge(window: Window, *, first_due: Micros, now: Micros) -> WindowDecision:
    """Whether an occurrence that was first due at `first_due` may still start."""
    closes_at = window.closes_at(first_due)
    reason = Reason.WINDOW_OPEN if now < closes_at else Reason.WINDOW_CLOSED
    return WindowDecision(reason=reason, first_due=first_due, closes_at=closes_at, now=now)


@frozen(kw_only=True)
class WindowPeriod:
    """A period in which a window is open, or in which none is: then runs that the window suspends wait."""

    is_open: bool
    since: Micros
    until: Micros | None
    """When it closes, or when the next one opens; None if there is no further one: runs are cancelled then."""


def last_window_warning(window: Window | None, trigger: Trigger | None, *, now: Micros) -> str | None:
    """A warning about a window that suspends runs, if no further one follows in which they could continue."""
    if window is None or window.end_action is not EndAction.PAUSE:
        return None
    first = None if trigger is None else trigger.next_micros(now)
    if trigger is not None and first is not None and trigger.next_micros(first) is not None:
        return None
    return "window.end_action: no further window follows, so a run that has not ended when it closes is cancelled"


def window_period_at(window: Window, trigger: Trigger | None, *, first_due: Micros, now: Micros) -> WindowPeriod:
    """Whether a window is open, some time after a run was first due.

    The first one opens at its first due time, and another one at each fire that the trigger names after that.
    """
    latest = None if trigger is None else trigger.previous_micros(now + 1)
    opened = first_due if latest is None else max(first_due, latest)
    closed = window.closes_at(opened)
    if now < closed:
        return WindowPeriod(is_open=True, since=opened, until=closed)
    return WindowPeriod(is_open=False, since=closed, until=None if trigger is None else trigger.next_micros(now))
