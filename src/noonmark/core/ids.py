"""Ids and jitter fractions, computed instead of random: the same input gives the same result on every node.

Both are hashes over a sequence of parts in which each part carries its kind and its length, so that no two different
sequences read alike. What is computed here is stored and compared across releases: it must never change.

A *timed* uid says so at its beginning. Where the nominal time is part of an identity, the ids of such a schedule begin
with it, in seconds: databases store ids in their order, so what belongs to one time lies side by side. Ids of schedules
with other uids, which earlier versions have made, are hashes alone.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NewType

from noonmark.core.errors import InvalidSchedule
from noonmark.core.instants import SECOND
from noonmark.core.json_values import text_problem

if TYPE_CHECKING:
    from noonmark.core.instants import Micros

Origin = NewType("Origin", str)
"""What asked for an occurrence, as it is stored: `trigger`, `backfill:<id>`, `manual:<key>` or `event:<event id>`."""

HIDDEN = "~"
"""What the ids of hidden schedules begin with: no caller can choose such an id, and it sorts after all others."""
STEPS, TRUSTED_STEPS = f"{HIDDEN}steps:", f"{HIDDEN}trusted-steps:"
"""What the ids of those begin with that carry the steps of a workflow; the second, one that a program declared."""
TIMED = "t"
"""What timed uids begin with. Those of earlier versions are hexadecimal."""
MAX_ORIGIN_KEY = 200
MAX_OWNER = 2**63 - 1
_ID_DIGITS = 32
_FRACTION_BITS = 53


class OriginKind(StrEnum):
    """The four ways in which an occurrence comes about."""

    TRIGGER = "trigger"
    BACKFILL = "backfill"
    MANUAL = "manual"
    EVENT = "event"


TRIGGER = Origin("trigger")
"""The schedule's own trigger named the time."""

_KINDS = {str(kind): kind for kind in OriginKind}
_NAMED_BY_TIME = frozenset({OriginKind.TRIGGER, OriginKind.BACKFILL})


def new_uid(fresh_id: str, *, is_timed: bool) -> str:
    """The uid of a new schedule."""
    return f"{TIMED}{fresh_id}" if is_timed else fresh_id


def job_id(uid: str) -> str:
    """The id of a schedule that a program has declared without a name."""
    return f"job_{uid}"


def default_id(uid: str) -> str:
    """The id of a schedule that was created without one."""
    return f"sch_{uid}"


def is_own_id(schedule_id: str, uid: str) -> bool:
    """Whether an id is made from a uid: only a copy of the request can have made it, and none depends on it yet."""
    return schedule_id in (job_id(uid), default_id(uid))


def is_hidden(schedule_id: str) -> bool:
    """Whether a schedule only carries runs without a schedule, or steps: it is in no list and no count of schedules."""
    return schedule_id.startswith(HIDDEN)


def visible_id(schedule_id: str) -> str | None:
    """The id of a schedule; None if it is hidden."""
    return None if is_hidden(schedule_id) else schedule_id


def carries_steps(schedule_id: str) -> bool:
    """Whether a schedule carries steps of workflow runs: its occurrences are in no list either."""
    return schedule_id.startswith((STEPS, TRUSTED_STEPS))


def shown_name(schedule_id: str) -> str:
    """What people call a schedule without a name: its id, or what a hidden one runs, such as `workflow sales`."""
    if not is_hidden(schedule_id):
        return schedule_id
    kind, _, name = schedule_id.removeprefix(HIDDEN).partition(":")
    return f"workflow {name}" if carries_steps(schedule_id) else f"{kind} {name}"


def backfill(backfill_id: str) -> Origin:
    """One request to run past times again."""
    return _origin(OriginKind.BACKFILL, backfill_id, field="backfill_id")


def manual(key: str) -> Origin:
    """One request to run now; the same key again is the same request."""
    return _origin(OriginKind.MANUAL, key, field="key")


def event(event_id: str) -> Origin:
    """One event that matched."""
    return _origin(OriginKind.EVENT, event_id, field="event_id")


def kind_of(origin: Origin) -> OriginKind:
    """Which of the four ways it is."""
    return _KINDS[origin.partition(":")[0]]


def occurrence_id(uid: str, origin: Origin, nominal: Micros) -> str:
    """The identity of an occurrence of the schedule `uid`.

    A trigger and a backfill name many times, so the nominal time counts. A manual run and an event name one
    occurrence by themselves: asked again at another moment, it is still the same one.
    """
    is_named_by_time = kind_of(origin) in _NAMED_BY_TIME
    parts = (uid, origin, nominal) if is_named_by_time else (uid, origin)
    digits = blake2b(_sequence(parts), digest_size=_ID_DIGITS // 2, person=b"noonmark-id").hexdigest()
    if is_named_by_time and uid.startswith(TIMED):
        # Ten digits, with which the year 9999 has room; what was before 1970 has zeros.
        digits = f"{max(0, nominal // SECOND):010x}{digits}"[:_ID_DIGITS]
    return f"occ_{digits}"


def step_occurrence_id(run_id: str, step_id: str, index: int | None, *, undoes: bool = False) -> str:
    """The id of a step that the node of its workflow run delivers, of one element of its list, or of what undoes it.

    What undoes a step needs an id of its own: receivers, and the store of events, ignore an id that they know.
    """
    parts = [run_id, step_id, *([] if index is None else [str(index)])]
    return "/".join([*parts, "undo"] if undoes else parts)


def stored_id(occurrence_id: str) -> str:
    """The id under which an occurrence is stored; for a step that a node delivers, that of its workflow run."""
    return occurrence_id.partition("/")[0]


def fact_id(*parts: str | int) -> str:
    """The id of a system event, computed from what it is about, so that a repeat has the same id."""
    return "fact_" + blake2b(_sequence(parts), digest_size=16, person=b"noonmark-fact").hexdigest()


def fraction(*parts: str | int) -> float:
    """A number in [0, 1) that looks random and depends on the parts alone."""
    digest = blake2b(_sequence(parts), digest_size=8, person=b"noonmark-share").digest()
    # As many bits as a float holds exactly, so that no rounding can reach 1.
    return (int.from_bytes(digest) >> (64 - _FRACTION_BITS)) / (1 << _FRACTION_BITS)


@lru_cache(maxsize=4096)
def owner_number(tenant: str, user: str) -> int:
    """A number for an owner, up to `MAX_OWNER`. Two may share one; then they also share their turns."""
    digest = blake2b(_sequence((tenant, user)), digest_size=8, person=b"noonmark-owner").digest()
    return int.from_bytes(digest) >> 1


def _origin(kind: OriginKind, key: str, *, field: str) -> Origin:
    if not 1 <= len(key) <= MAX_ORIGIN_KEY:
        msg = f"must have 1 to {MAX_ORIGIN_KEY} characters, not {len(key):,}"
        raise InvalidSchedule(msg, field=field)
    if (problem := text_problem(key)) is not None:
        raise InvalidSchedule(problem, field=field)
    return Origin(f"{kind}:{key}")


def _sequence(parts: tuple[str | int, ...]) -> bytes:
    return b"".join(_part(part) for part in parts)


def _part(part: str | int) -> bytes:
    kind, content = ("i", str(part).encode()) if isinstance(part, int) else ("s", part.encode())
    return f"{kind}{len(content)}:".encode() + content
