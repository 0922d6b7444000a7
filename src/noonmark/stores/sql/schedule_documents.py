"""Schedules as text, in parts that many schedules share, so that reading one is cheap.

The trigger is one part, the target with all policies another; names and labels have columns of their own. Parts and
schedules that were read before are cached.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import maker
from noonmark.core.instants import EPOCH
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.lineage import read_lineage
from noonmark.core.schedule import Declaration, Owner, Pause, Schedule, restore_schedule
from noonmark.core.targets import FunctionTarget
from noonmark.core.triggers import EventTrigger, parse_trigger
from noonmark.stores.rules.records import SCHEDULE_PHASES, Unreadable
from noonmark.stores.sql.records import from_json
from noonmark.stores.sql.row_checks import DamageLog, RowCheck, describe_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.core.lineage import Lineage
    from noonmark.core.triggers import Trigger
    from noonmark.stores.sql.session import Session

COLUMNS = (
    "key",
    "tenant",
    "username",
    "schedule_id",
    "declared_id",
    "name",
    "description",
    "labels",
    "trigger_type",
    "trigger_document",
    "terms_document",
    "source",
    "route",
    "created",
    "anchored",
    "deleted",
    "is_listed",
    "pause",
    "lineage",
    "parent",
    "fingerprint",
)
_SELECTED = ", ".join(
    [*(f"schedules.{name}" for name in COLUMNS), "uid", "schedule_states.phase", "revision", "version", "updated"]
)
_SOURCE = """
    schedules CROSS JOIN schedule_states ON schedule = schedules.key WHERE schedules.key IN EACH(bigint)
"""
_JUDGE = RowCheck("schedules", COLUMNS)
_STATE = RowCheck("schedule_states", ("uid", "phase", "revision", "version", "updated"))
_POLICIES = tuple(
    field.name
    for field in fields(Declaration)
    if field.name not in {"target", "trigger", "schedule_id", "name", "description", "labels"}
)
_policies_of: Callable[[Declaration], tuple[Any, ...]] = attrgetter(*_POLICIES)
_encode = json.JSONEncoder().encode
_compact = json.JSONEncoder(separators=(",", ":")).encode
_KNOWN = 8_192
"""How many schedules, and how many parts, are cached."""
_ANY_TRIGGER = {"type": "event", "event_type": "any"}
"""The terms are parsed with this trigger: no policy depends on it."""
OMITTED = {
    "missing_target_policy": "mark_misfired",
    "retry_policy": {"max_attempts": 1, "backoff_seconds": 1, "multiplier": 2, "max_backoff_seconds": 300},
    "delivery": "at_least_once",
    "enabled": True,
    "planning_horizon_days": 30,
    "planning_horizon_occurrences": 1,
}
"""Policies that are left out of the terms if they have these values: they were half of the row of most schedules.

Rows of any age are read with these values, so they never change, even if the defaults of documents do. Policies whose
default depends on the trigger or the target are always written out.
"""


def to_columns(key: int, schedule: Schedule) -> tuple[Any, ...]:
    """The row of a schedule."""
    declared = schedule.declaration
    trigger, terms = _written(declared)
    kind = "" if declared.trigger is None else declared.trigger.type
    return (
        key, schedule.owner.tenant, schedule.owner.user, schedule.schedule_id, declared.schedule_id,
        declared.name, declared.description,
        _lines(declared.labels) if declared.labels else None, kind, trigger, terms, schedule.source,
        declared.target.route, schedule.created, schedule.anchored, schedule.deleted,
        int(schedule.phase is not SchedulePhase.DELETED), _pause_text(schedule.pause),
        *_lineage_columns(schedule.lineage),
    )  # fmt: skip


def _pause_text(pause: Pause | None) -> str | None:
    return None if pause is None else _encode(asdict(pause))


def _lineage_columns(lineage: Lineage | None) -> tuple[str | None, ...]:
    if lineage is None:
        return None, None, None
    return _encode(lineage.to_record()), lineage.parent, lineage.fingerprint


def _lineage(text: str | None) -> Lineage | None:
    value: Any = from_json(text, "lineage")
    return None if value is None else read_lineage(value)


def _pause(text: str | None) -> Pause | None:
    value: Any = from_json(text, "pause")
    if value is None:
        return None
    pause = Pause(**value)
    texts, times = (pause.by, pause.reason), (pause.at, 0 if pause.until is None else pause.until)
    if not all(one is None or isinstance(one, str) for one in texts) or not all(type(one) is int for one in times):
        raise Unreadable("its pause is invalid")
    return pause


def label_line(name: str, value: str) -> str:
    """A label in the text of all labels, on a line of its own.

    JSON text has no line ends within, so the line is found only where there is such a label.
    """
    return f"\n{_encode(name)}: {_encode(value)}"


def _lines(labels: Mapping[str, str]) -> str:
    return f"{{{','.join(label_line(*label) for label in labels.items())}}}"


class ScheduleCache:
    """A cache of schedules."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._known: dict[int, tuple[int, Schedule]] = {}
        self._lock = Lock()  # one thread may read while another one writes
        self.damage = DamageLog()

    def forget(self) -> None:
        """Clear the cache after a rollback: its versions will be used again."""
        with self._lock:
            self._known.clear()

    def find(self, key: int, version: int) -> Schedule | None:
        """A cached schedule, if it is cached at that version."""
        cached = self._known.get(key)
        return None if cached is None or cached[0] != version else cached[1]

    def keep(self, fresh: Mapping[int, tuple[int, Schedule]]) -> None:
        """Cache schedules, by key, each at a version."""
        with self._lock:
            known = self._known
            for key in fresh:
                known.pop(key, None)
            known.update(fresh)
            if len(known) > _KNOWN:
                for key in list(islice(known, len(known) - _KNOWN)):
                    del known[key]

    def read(self, session: Session, versions: Mapping[int, int]) -> dict[int, Schedule | Unreadable]:
        """The schedules with some keys, at these versions; for one that cannot be read, what is wrong with it."""
        schedules: dict[int, Schedule | Unreadable] = {}
        missing: list[int] = []
        for key, version in versions.items():
            cached = self.find(key, version)
            if cached is None:
                missing.append(key)
            else:
                schedules[key] = cached
        if missing:
            fresh: dict[int, tuple[int, Schedule]] = {}
            for columns in session.gather(_SELECTED, _SOURCE, missing):
                try:
                    schedules[columns[0]] = schedule = restored(columns)
                except Unreadable as error:
                    schedules[columns[0]] = error
                    self.damage.note("schedules", columns[0], str(error))
                else:
                    fresh[columns[0]] = (columns[-2], schedule)
            self.keep(fresh)
            for key in missing:
                if key not in schedules:
                    schedules[key] = Unreadable("its record is missing")
                    self.damage.note("schedules", key, "its record is missing")
        return schedules


_make_schedule = maker(Schedule)


def restored(columns: tuple[Any, ...]) -> Schedule:
    """The schedule of the columns of its record, and of its state's uid, phase, revision, version and updated."""
    (_, tenant, user, schedule_id, declared_id, name, description, labels, _, trigger, terms, source) = columns[:12]
    (_, created, anchored, deleted, _, pause, lineage, _, _, uid, phase, revision, _, updated) = columns[12:]
    problems = _JUDGE.problems(columns[: len(COLUMNS)])
    problems = problems or {name: one for name, one in _STATE.problems(columns[-5:]).items() if name != "version"}
    if problems:
        raise Unreadable(describe_problems(problems))
    try:
        declared = _declared(trigger, terms)
        if name is not None or declared_id is not None or description or labels is not None:
            read: Any = from_json(labels, "labels") or {}
            declared = replace(
                declared, schedule_id=declared_id, name=name, description=description, labels=_labels(read)
            )
        return _make_schedule(
            uid=uid,
            schedule_id=schedule_id,
            owner=_owner(tenant, user),
            declaration=declared,
            revision=revision,
            phase=SCHEDULE_PHASES[phase],
            source=source,
            created=created,
            updated=updated,
            deleted=deleted,
            anchored=anchored,
            pause=_pause(pause) if phase == SchedulePhase.PAUSED else None,
            lineage=None if lineage is None else _lineage(lineage),
        )
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Unreadable(f"its document cannot be read ({error})") from None


def _labels(read: object) -> dict[str, str]:
    if not isinstance(read, dict) or not all(isinstance(value, str) for value in read.values()):
        raise Unreadable("its labels are invalid")
    return read


@lru_cache(maxsize=256)
def _owner(tenant: str, user: str) -> Owner:
    return Owner(tenant=tenant, user=user)


@lru_cache(maxsize=_KNOWN)
def _declared(trigger: str | None, terms: str) -> Declaration:
    return replace(_terms(terms), trigger=None if trigger is None else _trigger(trigger))


@lru_cache(maxsize=_KNOWN)
def _trigger(text: str) -> Trigger:
    return parse_trigger(json.loads(text), now=EPOCH)


@lru_cache(maxsize=_KNOWN)
def _terms(text: str) -> Declaration:
    return restore_schedule({**OMITTED, **json.loads(text), "trigger": _ANY_TRIGGER})


def _written(declared: Declaration) -> tuple[str | None, str]:
    """The two parts of a document. Policies repeat, targets do not: the parts are joined as text."""
    trigger = None if declared.trigger is None else _trigger_text(declared.trigger)
    target = _compact(declared.target.to_document())
    return trigger, f'{{"target":{target},{_policies(_policies_of(declared))[1:]}'


def _trigger_text(trigger: Trigger) -> str:
    # Filters of events are no part of a hash.
    return _compact(trigger.to_document()) if isinstance(trigger, EventTrigger) else _text_of_times(trigger)


@lru_cache(maxsize=_KNOWN)
def _text_of_times(trigger: Trigger) -> str:
    return _compact(trigger.to_document())


@lru_cache(maxsize=256)
def _policies(values: tuple[Any, ...]) -> str:
    declared = Declaration(
        target=FunctionTarget(function="any"), trigger=None, **dict(zip(_POLICIES, values, strict=True))
    )
    document = declared.to_document()
    del document["target"]
    return _compact({name: value for name, value in document.items() if OMITTED.get(name) != value})
