"""The trace: what happened in a simulation, line by line, and one hash over all of it."""

from collections import deque
from functools import singledispatch
from hashlib import blake2b

from noonmark.core.admission import Busy, Claim
from noonmark.core.causation import UnmatchedEvent
from noonmark.core.occurrence import Occurrence
from noonmark.core.planner import Snapshot
from noonmark.core.run import Run
from noonmark.core.schedule import Schedule
from noonmark.ports.records import Admitted, Leadership, LeaseLost, Renewal, StoredSchedule

SHOWN = 20


class Violation(BaseException):
    """An invariant did not hold. A driver that isolates errors, as it should, must not isolate this one."""

    def __init__(self, invariant, what):
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Trace:
    """Every line counts for the hash; only the last ones are kept."""

    def __init__(self):
        self._hash = blake2b(digest_size=16)
        self.last = deque(maxlen=SHOWN)
        self.lines = 0

    def add(self, *parts):
        line = " ".join(map(str, parts))
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.last.append(line)
        self.lines += 1

    def digest(self):
        return self._hash.hexdigest()


def short(occurrence_id):
    return occurrence_id.removeprefix("occ_")[:8]


@singledispatch
def summary(answer):
    """An answer of the store in a few characters, the same in every process."""
    return type(answer).__name__.lower()


@summary.register
def _(answer: list):
    return f"[{' '.join(summary(one) for one in answer)}]"


@summary.register
def _(answer: bool):  # noqa: FBT001 - the one argument of every summary
    return "yes" if answer else "no"


@summary.register
def _(answer: int | str | None):
    return str(answer)


@summary.register
def _(answer: Occurrence):
    return f"{short(answer.id)}/{answer.fence}:{answer.phase}"


@summary.register
def _(answer: UnmatchedEvent):
    return f"{answer.event.event_id}@{answer.cursor}+{len(answer.listeners)}"


@summary.register
def _(answer: Claim):
    return f"{summary(answer.occurrence)}<{answer.found_in}"


@summary.register
def _(answer: Admitted):
    return summary(answer.occurrence)


@summary.register
def _(answer: Busy):
    return f"busy:{answer.place}"


@summary.register
def _(answer: LeaseLost):
    return f"{short(answer.occurrence_id)}:lost"


@summary.register
def _(answer: Snapshot):
    return f"{answer.schedule.uid}r{answer.schedule.revision}@{answer.watermark}"


@summary.register
def _(answer: Schedule):
    return f"{answer.uid}r{answer.revision}:{answer.phase}"


@summary.register
def _(answer: StoredSchedule):
    return summary(answer.schedule)


@summary.register
def _(answer: Renewal):
    return f"lost {sorted(map(short, answer.lost))} stop {sorted(map(short, answer.stop))}"


@summary.register
def _(answer: Leadership):
    return f"{answer.leader} t{answer.term}"


@summary.register
def _(answer: Run):
    return f"{answer.id}:{answer.outcome}"
