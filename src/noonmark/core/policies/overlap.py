"""Overlap: what happens when an occurrence is due while an earlier one of its schedule is still in flight."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, assert_never

from noonmark.core.documents import named, read_notation
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND, Micros, micros_to_seconds

if TYPE_CHECKING:
    from noonmark.core.documents import Reader

QUEUE_LIMIT = 100
EVENT_QUEUE_LIMIT = 10_000
"""Events come in bursts, and none of them comes again."""
MAX_QUEUE_LIMIT = 100_000
CANCEL_GRACE: Micros = 10 * SECOND
MAX_CANCEL_GRACE_SECONDS = 86_400


class OverlapKind(StrEnum):
    """The canonical names."""

    SKIP = "skip"
    QUEUE = "queue"
    QUEUE_ONE = "queue_one"
    ALLOW = "allow"
    CANCEL_RUNNING = "cancel_running"
    TERMINATE = "terminate"


_NAMES = named(OverlapKind, skip_if_running=OverlapKind.SKIP, allow_concurrent=OverlapKind.ALLOW)
_SETTINGS: dict[OverlapKind, tuple[str, ...]] = {
    OverlapKind.SKIP: (),
    OverlapKind.QUEUE: ("queue_limit",),
    OverlapKind.QUEUE_ONE: (),
    OverlapKind.ALLOW: (),
    OverlapKind.CANCEL_RUNNING: ("cancel_grace_seconds",),
    OverlapKind.TERMINATE: (),
}


@frozen(kw_only=True)
class Skip:
    """The later one does not run."""

    kind: ClassVar[OverlapKind] = OverlapKind.SKIP

    def to_document(self) -> str:
        """Its name says everything."""
        return str(self.kind)


@frozen(kw_only=True)
class Queue:
    """They run one after another, in order; at most `queue_limit` (1 to 100,000) wait."""

    kind: ClassVar[OverlapKind] = OverlapKind.QUEUE
    queue_limit: int = QUEUE_LIMIT

    def to_document(self) -> dict[str, Any]:
        """The limit is always written out, because its default depends on the trigger."""
        return {"type": str(self.kind), "queue_limit": self.queue_limit}


@frozen(kw_only=True)
class QueueOne:
    """One waits, and a newer one replaces it."""

    kind: ClassVar[OverlapKind] = OverlapKind.QUEUE_ONE

    def to_document(self) -> str:
        """Its name says everything."""
        return str(self.kind)


@frozen(kw_only=True)
class Allow:
    """They run side by side."""

    kind: ClassVar[OverlapKind] = OverlapKind.ALLOW

    def to_document(self) -> str:
        """Its name says everything."""
        return str(self.kind)


@frozen(kw_only=True)
class CancelRunning:
    """The earlier one is asked to stop and has `cancel_grace` (up to a day) to do so; then the later one starts."""

    kind: ClassVar[OverlapKind] = OverlapKind.CANCEL_RUNNING
    cancel_grace: Micros = CANCEL_GRACE

    def to_document(self) -> dict[str, Any]:
        """The type and its one setting."""
        return {"type": str(self.kind), "cancel_grace_seconds": micros_to_seconds(self.cancel_grace)}


@frozen(kw_only=True)
class Terminate:
    """The earlier one is killed, without being asked to stop; then the later one starts. A thread is abandoned."""

    kind: ClassVar[OverlapKind] = OverlapKind.TERMINATE
    cancel_grace: ClassVar[Micros] = 0

    def to_document(self) -> str:
        """Its name says everything."""
        return str(self.kind)


OverlapPolicy = Skip | Queue | QueueOne | Allow | CancelRunning | Terminate


def read_overlap(reader: Reader, field: str, *, trigger_type: str) -> OverlapPolicy:
    """Read the policy from a field, as a name or an object, or from `prohibit_overlap`.

    Without either, `skip`; for event triggers `queue`.
    """
    written = read_notation(reader, field, _NAMES, _SETTINGS)
    if reader.raw("prohibit_overlap") is not None:
        if reader.raw(field) is not None:
            reader.problem("prohibit_overlap", f"says the same thing as {field}; give one of the two")
        return Skip() if reader.boolean("prohibit_overlap", default=True) else Allow()
    queue_limit = EVENT_QUEUE_LIMIT if trigger_type == "event" else QUEUE_LIMIT
    if written is None:
        return Queue(queue_limit=queue_limit) if trigger_type == "event" else Skip()
    match written.kind:
        case OverlapKind.SKIP:
            return Skip()
        case OverlapKind.QUEUE:
            limit = written.settings.integer("queue_limit", queue_limit, low=1, high=MAX_QUEUE_LIMIT)
            return Queue(queue_limit=limit)
        case OverlapKind.QUEUE_ONE:
            return QueueOne()
        case OverlapKind.ALLOW:
            return Allow()
        case OverlapKind.CANCEL_RUNNING:
            grace = written.settings.seconds("cancel_grace_seconds", CANCEL_GRACE, high=MAX_CANCEL_GRACE_SECONDS)
            return CancelRunning(cancel_grace=grace)
        case OverlapKind.TERMINATE:
            return Terminate()
    assert_never(written.kind)
