"""Changes: what must happen to stored schedules so that they are as files declare them.

A document in a file stands for the schedule with its `schedule_id`, or else with the id that follows from its name. The
label `managed_by` names the set of files that a schedule belongs to. Files change only schedules of their own set, and
only those are deleted when no file declares them any more.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidSchedule, Problem
from noonmark.core.frozen import frozen
from noonmark.core.instants import parse_instant
from noonmark.core.json_values import identifier, shown, text_value
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.schedule import (
    RESERVED_IDS,
    Owner,
    Schedule,
    declare_again,
    parse_schedule,
    phase_change,
    restore_schedule,
)
from noonmark.core.secret import header_problems
from noonmark.core.targets.http import HttpTarget
from noonmark.core.triggers import IntervalTrigger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from noonmark.core.schedule import Declaration
    from noonmark.core.secret import Secret

MANAGED_BY = "managed_by"
"""The label that names the set of files to which a schedule belongs."""
MAX_OWNER = 256
BY_TYPE_OF_TRIGGER = ("overlap_policy", "misfire_policy")
"""Policies whose defaults depend on the type of the trigger."""
ALWAYS_WRITTEN = frozenset({"schedule_id", "name", "trigger", "target"})
"""Fields that are never left out of a file."""
MAX_CHANGED = 4_000
"""The characters of a changed value that are recorded."""
_SEPARATORS = re.compile(r"[^a-z0-9]+")


class Action(StrEnum):
    """What happens to a schedule."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@frozen
class Desired:
    """A schedule as a file declares it."""

    document: Mapping[str, Any]
    owner: str | None
    """The `managed_by` of its file; None leaves labels as the document has them."""
    place: str = ""
    """Where it was read, such as a file and a position, for messages about a duplicate."""


@frozen(kw_only=True)
class Stored:
    """A schedule that exists: what it declares, with its id, and as much of its state as a comparison needs."""

    document: Mapping[str, Any]
    phase: SchedulePhase
    created_at_utc: str
    updated_at_utc: str

    @property
    def owner(self) -> str | None:
        """The set of files that it belongs to, if any."""
        labels = self.document.get("labels") or {}
        owner: str | None = labels.get(MANAGED_BY)
        return owner

    def restore(self) -> Schedule:
        """The schedule of the document; an interval keeps its start if the file does not name one."""
        declaration, created = restore_schedule(dict(self.document)), parse_instant(self.created_at_utc)
        anchored, trigger = None, declaration.trigger
        if isinstance(trigger, IntervalTrigger) and trigger.start is not None:
            anchored = trigger.start - trigger.every
        return Schedule(
            uid="",
            schedule_id=self.document["schedule_id"],
            owner=Owner(tenant="", user=""),
            declaration=declaration,
            revision=1,
            phase=self.phase,
            source="",
            created=created,
            updated=created,
            anchored=anchored,
        )

    def expected(self) -> dict[str, Any]:
        """The arguments that make a change fail if another caller was faster."""
        return {"schedule_id": self.document["schedule_id"], "expected_updated_at_utc": self.updated_at_utc}


@frozen
class FieldChange:
    """A field that changes; None is absent."""

    field: str
    before: Any
    after: Any


@frozen(kw_only=True)
class Change:
    """One step: the schedule, the fields that differ, and the arguments of the operation that makes the change."""

    action: Action
    schedule_id: str
    name: str | None
    fields: tuple[FieldChange, ...] = ()
    arguments: Mapping[str, Any]
    index: int | None = None
    """The number of the document that declares it; None for what no file declares."""


@frozen(kw_only=True)
class Changes:
    """All steps in the order in which they are made, or all problems, each with the number of its document."""

    steps: tuple[Change, ...] = ()
    unchanged: int = 0
    problems: tuple[tuple[int, Problem], ...] = ()


def schedule_id_of(document: Mapping[str, Any]) -> str:
    """The id of a declared schedule: its own, or its name, or else the words of its name and a hash of it.

    ValueError if it has neither an id nor a name.
    """
    if (own := document.get("schedule_id")) is not None:
        return identifier(own)
    if (name := document.get("name")) is None:
        raise ValueError("is required: a name or a schedule_id identifies the schedule in later runs")
    return id_of_name(text_value(name, 1, 200, multiline=False))


def id_of_name(name: str) -> str:
    """The name itself, if it can be an id; else its words and a hash of it."""
    if name not in RESERVED_IDS:
        try:
            return identifier(name)
        except ValueError:
            pass
    words = _SEPARATORS.sub("-", name.lower()).strip("-")[:80]
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{words}-{digest}" if words else f"schedule-{digest}"


def owner_name(value: object) -> str:
    """The name of a set of files."""
    return text_value(value, 1, MAX_OWNER, multiline=False)


def upstream_ids(document: Mapping[str, Any]) -> list[str]:
    """The ids of the schedules that a document depends on, as far as they can be read."""
    upstreams = document.get("depends_on")
    ids = [one.get("schedule_id") for one in upstreams or () if isinstance(one, dict)] if _is_list(upstreams) else []
    return [one for one in ids if isinstance(one, str)]


def plan_changes(
    desired: Sequence[Desired],
    stored: Mapping[str, Stored],
    *,
    now: datetime,
    prune: Collection[str] = (),
    adopts: bool = False,
    secrets: Mapping[str, Secret] | None = None,
) -> Changes:
    """Compare declared documents with stored ones, by id; a problem anywhere leaves no steps.

    `stored` has the declared schedules that exist, those they depend on, and all of the owners in `prune`. With
    `adopts`, schedules of others are taken over. Without `secrets`, the secrets of requests are not checked.
    """
    comparison = _Comparison(stored, now=now, adopts=adopts, secrets=secrets)
    for index, declared in enumerate(desired):
        comparison.add(index, declared)
    pruned = {
        schedule_id: schedule
        for schedule_id, schedule in stored.items()
        if schedule_id not in comparison.ids and schedule.owner in prune
    }
    order = comparison.order(pruned)
    if comparison.problems:
        return Changes(problems=tuple(sorted(comparison.problems, key=lambda problem: problem[0])))
    steps = sorted(comparison.steps, key=lambda step: order[step.schedule_id])
    # A schedule that depends on others comes before them.
    deleted = sorted(pruned, key=order.__getitem__, reverse=True)
    steps += [_deletion(schedule_id, pruned[schedule_id]) for schedule_id in deleted]
    return Changes(steps=tuple(steps), unchanged=len(desired) - len(comparison.steps))


def file_document(stored: Stored, *, owner: str | None) -> dict[str, Any]:
    """The document that declares a stored schedule in a file of this owner, without what defaults say anyway."""
    declared = restore_schedule(dict(stored.document))
    full = declared.to_document()
    document = dict(full)
    for field in full.keys() - ALWAYS_WRITTEN:
        rest = {name: value for name, value in document.items() if name != field}
        if _declares(rest, full):
            document = rest
    if owner is not None:
        labels = {name: value for name, value in declared.labels.items() if name != MANAGED_BY}
        document = {name: labels if name == "labels" else value for name, value in document.items()}
        if not labels:
            del document["labels"]
    if declared.name is not None and id_of_name(declared.name) == declared.schedule_id:
        del document["schedule_id"]
    return document


class _Comparison:
    """Reads documents one after another; notes steps and problems."""

    def __init__(
        self,
        stored: Mapping[str, Stored],
        *,
        now: datetime,
        adopts: bool,
        secrets: Mapping[str, Secret] | None,
    ) -> None:
        self._stored, self._now, self._adopts, self._secrets = stored, now, adopts, secrets
        self.ids: dict[str, int] = {}
        self.steps: list[Change] = []
        self.problems: list[tuple[int, Problem]] = []
        self._desired: list[Desired] = []
        self._names: dict[str, int] = {}

    def add(self, index: int, desired: Desired) -> None:
        """Compare a document with the stored schedule of its id."""
        self._desired.append(desired)
        document = dict(desired.document)
        schedule_id = self._identify(index, document)
        if desired.owner is not None and isinstance(document.get("labels"), dict | None):
            document["labels"] = {MANAGED_BY: desired.owner, **(document.get("labels") or {})}
        declared = self._read(index, document, schedule_id)
        if declared is None or schedule_id is None:
            return
        before = self._stored.get(schedule_id)
        if before is None:
            self.steps.append(_creation(index, schedule_id, document))
            return
        if not self._adopts and before.owner != declared.labels.get(MANAGED_BY):
            self._problem(index, "", _foreign(schedule_id, before.owner))
        elif (step := _edit(index, document, declared, before)) is not None:
            self.steps.append(step)

    def order(self, pruned: Collection[str]) -> dict[str, int]:
        """The position of each schedule, upstreams first; notes upstreams that do not exist, and cycles."""
        graph = {one: upstream_ids(stored.document) for one, stored in self._stored.items() if one not in pruned}
        graph |= {one: upstream_ids(self._desired[index].document) for one, index in self.ids.items()}
        for schedule_id, index in self.ids.items():
            for number, upstream in enumerate(graph[schedule_id]):
                if upstream not in graph:
                    self._problem(index, f"depends_on[{number}].schedule_id", f"there is no schedule {shown(upstream)}")
        whole = graph | {one: upstream_ids(self._stored[one].document) for one in pruned}
        try:
            ordered = list(TopologicalSorter(whole).static_order())
        except CycleError as error:
            cycle = list(reversed(error.args[1]))
            first = min(self.ids[one] for one in cycle if one in self.ids)
            self._problem(first, "depends_on", f"makes a cycle: {' depends on '.join(cycle)}")
            return {}
        return {schedule_id: position for position, schedule_id in enumerate(ordered)}

    def _identify(self, index: int, document: Mapping[str, Any]) -> str | None:
        """The id of a document; two documents must not have the same one, nor the same name unless both have an id."""
        own, name = document.get("schedule_id"), document.get("name")
        try:
            schedule_id = schedule_id_of(document)
        except ValueError as error:
            if own is None and name is None:
                self._problem(index, "name", str(error))
            return None
        if schedule_id in RESERVED_IDS:
            self._problem(index, "schedule_id", f"must not be {schedule_id!r}: it means something else in a path")
            return None
        other, field = self.ids.setdefault(schedule_id, index), "name" if own is None else "schedule_id"
        if isinstance(name, str) and other == index:
            namesake = self._names.setdefault(name, index)
            if own is None or self._desired[namesake].document.get("schedule_id") is None:
                other, field = namesake, "name"
        if other != index:
            self._problem(index, field, f"is that of {self._desired[other].place} too; each may occur once")
            return None
        return schedule_id

    def _read(self, index: int, document: dict[str, Any], schedule_id: str | None) -> Declaration | None:
        """The declaration of a document; notes everything that is wrong with it."""
        trigger = document.get("trigger")
        if isinstance(trigger, dict) and trigger.get("delay_seconds") is not None:
            message = "counts from the moment of each apply; give due_at_utc instead"
            self._problem(index, "trigger.delay_seconds", message)
            return None
        stored = None if schedule_id is None else self._stored.get(schedule_id)
        known = None if stored is None else stored.restore()
        try:
            if known is None:
                declared = parse_schedule(document, now=self._now, key=schedule_id or "")
            else:
                declared = declare_again(document, known, now=self._now)
        except InvalidSchedule as error:
            self.problems += [(index, problem) for problem in error.problems]
            return None
        target = declared.target
        is_new = known is None or known.declaration.target != target
        if self._secrets is not None and is_new and isinstance(target, HttpTarget):
            problems = header_problems(target.secret_headers, target.address, self._secrets)
            self.problems += [(index, problem) for problem in problems]
        return declared

    def _problem(self, index: int, field: str, message: str) -> None:
        self.problems.append((index, Problem(field, message)))


def _creation(index: int, schedule_id: str, document: dict[str, Any]) -> Change:
    arguments = document | {"schedule_id": schedule_id}
    given = {name: value for name, value in document.items() if name not in {"schedule_id", "name"}}
    return Change(
        action=Action.CREATE,
        schedule_id=schedule_id,
        name=document.get("name"),
        fields=tuple(differences("", {}, given)),
        arguments=arguments,
        index=index,
    )


def _edit(index: int, document: dict[str, Any], declared: Declaration, stored: Stored) -> Change | None:
    """The change of a stored schedule; None if it is as declared.

    Without `enabled` it stays paused or active. A completed schedule is neither.
    """
    schedule_id = stored.document["schedule_id"]
    before = stored.restore().declaration.to_document()
    after = declared.to_document() | {"schedule_id": schedule_id}
    if document.get("enabled") is None or stored.phase is SchedulePhase.COMPLETED:
        after["enabled"] = before["enabled"]
    changed = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    if not changed:
        return None
    fields = [one for name in changed for one in differences(name, before.get(name), after.get(name))]
    arguments = {name: after.get(name) for name in changed}
    if "trigger" in changed:
        # As it is in the file: the server anchors what is relative.
        given = document.get("trigger")
        arguments |= {"trigger": given} | {name: after[name] for name in BY_TYPE_OF_TRIGGER}
        if given is not None and given.get("start_at_utc") is None:
            fields = [one for one in fields if one.field != "trigger.start_at_utc" or one.after is None]
    return Change(
        action=Action.CHANGE,
        schedule_id=schedule_id,
        name=declared.name,
        fields=tuple(fields),
        arguments=stored.expected() | arguments,
        index=index,
    )


def _deletion(schedule_id: str, stored: Stored) -> Change:
    reason = f"no longer declared by the files of {stored.owner}"
    return Change(
        action=Action.DELETE,
        schedule_id=schedule_id,
        name=stored.document.get("name"),
        arguments=stored.expected() | {"reason": reason},
    )


def _foreign(schedule_id: str, owner: str | None) -> str:
    owner_text = "is not managed by files" if owner is None else f"is managed by {shown(owner)}"
    return f"the schedule {shown(schedule_id)} exists and {owner_text}; choose another id, or take it over with --adopt"


def differences(path: str, before: object, after: object) -> Iterator[FieldChange]:
    """The fields that differ, objects field by field."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from differences(f"{path}.{name}" if path else name, before.get(name), after.get(name))
    elif before != after:
        yield FieldChange(path, before, after)


def schedule_changes(before: Schedule, after: Schedule) -> list[dict[str, Any]]:
    """What an edit changed of a schedule, as JSON; long values are cut."""
    phases = [] if before.phase is after.phase else [phase_change(before.phase, after.phase)]
    fields = differences("", before.declaration.to_document(), after.declaration.to_document())
    return phases + [{"field": one.field, "before": _short(one.before), "after": _short(one.after)} for one in fields]


def _short(value: object) -> object:
    text = json.dumps(value)
    return value if len(text) <= MAX_CHANGED else f"{text[:MAX_CHANGED]}.."


def _declares(document: dict[str, Any], full: dict[str, Any]) -> bool:
    """Whether a document means the same as one with every field written out."""
    try:
        return restore_schedule(document).to_document() == full
    except InvalidSchedule:  # some fields need each other
        return False


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)
