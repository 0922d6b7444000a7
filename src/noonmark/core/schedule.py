"""Schedules: what a caller declares, and what is stored.

`parse_schedule` is the only reader of schedule documents. It reads the whole document before it complains, so that
its error lists everything that is wrong. `Declaration.to_document` writes every policy out, so that the document
means the same to a later release with other defaults.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import Memory, Reader, fingerprint_of, moment, present
from noonmark.core.errors import InvalidSchedule, InvalidTrigger, Problem, TriggerNeverFires, refusal
from noonmark.core.frozen import evolver, fast_frozen, frozen
from noonmark.core.ids import owner_number
from noonmark.core.instants import EPOCH, MIN_INSTANT, Micros, from_micros, micros_to_seconds, to_text
from noonmark.core.json_values import identifier
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.policies.delivery import Delivery, MissingTargetPolicy, read_delivery, read_missing_target
from noonmark.core.policies.expected_rate import ExpectedRate, read_expected_rate
from noonmark.core.policies.limits import (
    Budget,
    Concurrency,
    Dependency,
    Horizon,
    read_budget,
    read_concurrency,
    read_dependencies,
    read_horizon,
)
from noonmark.core.policies.misfire import PUNCTUAL, MisfirePolicy, read_misfire
from noonmark.core.policies.overlap import OverlapPolicy, read_overlap
from noonmark.core.policies.retry import RetryPolicy, read_retry
from noonmark.core.policies.runaway import Guard, RunawayPolicy, guard_of, read_runaway
from noonmark.core.policies.window import Window, read_window
from noonmark.core.targets import FunctionTarget, TargetKind, note_unfillable, read_target
from noonmark.core.targets.ping import PingTarget, PingUrls, read_ping_urls
from noonmark.core.triggers import EventTrigger, IntervalTrigger, Trigger, parse_trigger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from noonmark.core.lineage import Lineage
    from noonmark.core.targets import Target


@fast_frozen
@frozen(kw_only=True)
class AuditEntry:
    """One change that a caller made."""

    at: Micros
    caller: str
    operation: str
    schedule_id: str | None = None
    uid: str | None = None
    """The schedule itself: after it is deleted, another one may have its id."""
    revision_before: int | None = None
    """None where there was none, as before a schedule is created."""
    revision_after: int | None = None
    reason: str | None = None
    """What the caller gave for one; of a worker, which node it was."""
    request_id: str | None = None
    key_id: str | None = None
    """The API key that the caller used."""
    session_id: str | None = None
    """The session whose agent made the change."""
    tool_call_id: str | None = None
    """The call of a tool by which it did."""
    parent_schedule_id: str | None = None
    """The schedule whose fire began the turn of that session."""
    source: str | None = None
    """The surface by which it was made."""
    changes: Any = field(default=None, hash=False)
    """What changed of a schedule, as JSON: a list of fields with their values before and after; None for nothing."""
    key: int | None = None
    """Its number once it is stored; later entries of a tenant have higher numbers."""


def phase_change(before: SchedulePhase, after: SchedulePhase) -> dict[str, Any]:
    """The change of a phase, as an audit entry has it."""
    return {"field": "phase", "before": str(before), "after": str(after)}


def automatic_entry(schedule: Schedule, phase: SchedulePhase, *, at: Micros, reason: str | None) -> AuditEntry:
    """The audit entry of a pause or resume that Noonmark does by itself."""
    return AuditEntry(
        at=at,
        caller=BY_ITSELF,
        operation="schedule/pause" if phase is SchedulePhase.PAUSED else "schedule/resume",
        schedule_id=schedule.schedule_id,
        uid=schedule.uid,
        revision_before=schedule.revision,
        revision_after=schedule.revision,
        reason=reason,
        changes=[phase_change(schedule.phase, phase)],
    )


MAX_NAME = 200
MAX_DESCRIPTION = 10_000
MAX_TIMEOUT_SECONDS = 31_622_400
"""A leap year."""
AGENT_KINDS = frozenset({TargetKind.SESSION, TargetKind.MOB, TargetKind.TASK})
AGENT_FAILURES = 5
"""So many failures in a row pause a schedule of an agent: each of them may have cost as much as a success."""
RESERVED_IDS = (".", "..", "count", "preview", "upsert")
"""Ids that mean something else in the path of a request."""
TRUSTED = "embedded"
"""The source of schedules that a program created in its own process; they may do whatever the program may."""
BY_ITSELF = "noonmark"
"""The author of automatic pauses and resumptions."""


@fast_frozen
@frozen(kw_only=True)
class Declaration:
    """Everything a caller says about a schedule. Without a trigger it fires when its upstreams have completed."""

    target: Target
    trigger: Trigger | None
    overlap_policy: OverlapPolicy
    misfire_policy: MisfirePolicy
    missing_target_policy: MissingTargetPolicy = MissingTargetPolicy.MARK_MISFIRED
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    horizon: Horizon = field(default_factory=Horizon)
    timeout: Micros | None = None
    expected: Micros | None = None
    """How long a run usually takes; one that takes longer is reported as overdue, and goes on."""
    expected_rate: ExpectedRate | None = None
    window: Window | None = None
    concurrency: Concurrency | None = None
    budget: Budget | None = None
    depends_on: tuple[Dependency, ...] = ()
    pause_on_failure: int | None = None
    """0 is never, where the target has another default."""
    runaway: RunawayPolicy | None = None
    max_runs: int | None = None
    ping_urls: PingUrls | None = None
    schedule_id: str | None = None
    name: str | None = None
    description: str = ""
    labels: dict[str, str] = field(default_factory=dict, hash=False)
    enabled: bool = True
    accepts_payload: bool = False
    """Whether callers may send a payload along with a run, though a program declared what it calls."""

    @property
    def guard(self) -> Guard | None:
        """The rules of the runaway guard that are in force, if there are any."""
        is_agent = self.target.kind in AGENT_KINDS
        return guard_of(self.runaway, is_agent=is_agent) if is_agent or self.runaway is not None else None

    def to_document(self) -> dict[str, Any]:
        """The document that reads back into an equal declaration, whenever it is read."""
        concurrency = self.concurrency.to_document() if self.concurrency else {}
        return (
            present(
                schedule_id=self.schedule_id,
                name=self.name,
                description=self.description or None,
                labels=dict(self.labels) or None,
                trigger=self.trigger.to_document() if self.trigger else None,
                target=self.target.to_document(),
                overlap_policy=self.overlap_policy.to_document(),
                misfire_policy=self.misfire_policy.to_document(),
                missing_target_policy=str(self.missing_target_policy),
                retry_policy=self.retry_policy.to_document(),
                timeout_seconds=None if self.timeout is None else micros_to_seconds(self.timeout),
                expected_seconds=None if self.expected is None else micros_to_seconds(self.expected),
                expected_rate=self.expected_rate.to_document() if self.expected_rate else None,
                window=self.window.to_document() if self.window else None,
                delivery=str(self.delivery),
                pause_on_failure=self.pause_on_failure,
                runaway=self.runaway.to_document() if self.runaway else None,
                depends_on=[upstream.to_document() for upstream in self.depends_on] or None,
                budget=self.budget.to_document() if self.budget else None,
                max_runs=self.max_runs,
                ping_urls=self.ping_urls.to_document() if self.ping_urls else None,
                accepts_payload=self.accepts_payload or None,
                enabled=self.enabled,
            )
            | concurrency
            | self.horizon.to_document()
        )


@frozen(kw_only=True)
class Owner:
    """Whose schedule it is; quotas and visibility follow it."""

    tenant: str
    user: str

    @property
    def number(self) -> int:
        """Its place among the owners when they take turns."""
        return owner_number(self.tenant, self.user)


@frozen(kw_only=True)
class Pause:
    """Why a schedule is paused: since when, by whom, and until when, if it resumes by itself."""

    at: Micros
    by: str | None = None
    """The caller; `noonmark` if it was automatic."""
    reason: str | None = None
    until: Micros | None = None

    def to_document(self) -> dict[str, Any]:
        """The pause in the document of its schedule."""
        until = None if self.until is None else to_text(self.until)
        return {"reason": self.reason, "by": self.by, "at_utc": to_text(self.at), "until_utc": until}


@fast_frozen
@frozen(kw_only=True)
class Schedule:
    """A stored declaration. `uid` is internal and never reused; `schedule_id` is the public name."""

    uid: str
    schedule_id: str
    owner: Owner
    declaration: Declaration
    revision: int
    phase: SchedulePhase
    source: str
    created: Micros
    updated: Micros
    deleted: Micros | None = None
    anchored: Micros | None = None
    """When its trigger was declared, where that was after its creation: what it left relative counts from then."""
    pause: Pause | None = None
    """Why it is paused, if it is; None also if it was paused by an earlier release."""
    lineage: Lineage | None = None
    """The session or the schedule that made it; None if a person or a program did."""


def parse_schedule(document: object, *, now: datetime, key: str = "") -> Declaration:
    """Read a document declared now; the error lists everything wrong with it.

    `now` and `key` fill what the trigger leaves relative, and a trigger whose times are all past is refused. Without a
    key, `H` hashes the schedule's own id, or else its name.
    """
    return _read(document, now=now, key=key, judged_at=moment(now))


def declare_again(document: object, stored: Schedule, *, now: datetime, keeps_past_start: bool = False) -> Declaration:
    """Read a document for a schedule that is there already; a trigger that says the same keeps its anchor.

    "Every 10 seconds", declared again on a restart, is then equal to what is stored, and changes nothing. With
    `keeps_past_start`, neither does "every 10 seconds, starting now".
    """
    anchor = from_micros(stored.created if stored.anchored is None else stored.anchored)
    anchored = _read(document, now=anchor, key=stored.schedule_id, judged_at=None, known=stored.declaration)
    before = stored.declaration
    if anchored.trigger != before.trigger:
        if keeps_past_start and _differ_by_past_start(anchored.trigger, before.trigger, now=moment(now)):
            anchored = replace(anchored, trigger=before.trigger)
        else:
            anchored = parse_schedule(document, now=now, key=stored.schedule_id)
    return _keep_rotation(anchored, before.target)


def _keep_rotation(declared: Declaration, before: Target) -> Declaration:
    """A ping target keeps its URL, whatever a document says: only a rotation replaces it."""
    target = declared.target
    if not isinstance(target, PingTarget) or not isinstance(before, PingTarget):
        return declared
    return replace(declared, target=replace(target, rotation=before.rotation))


def _differ_by_past_start(declared: Trigger | None, stored: Trigger | None, *, now: Micros) -> bool:
    """Whether two intervals differ only in their starts, both of which have passed.

    The program reads its own clock, which may be a little ahead of the store's.
    """
    if not isinstance(declared, IntervalTrigger) or not isinstance(stored, IntervalTrigger):
        return False
    starts = [one.start for one in (declared, stored) if one.start is not None]
    alike = [(one.every, one.end, one.jitter) for one in (declared, stored)]
    return alike[0] == alike[1] and max(starts) <= now + PUNCTUAL


def restore_schedule(document: object) -> Declaration:
    """Read a document that `to_document` wrote; unlike a new one, it may have nothing left to fire."""
    # Every time in it is absolute, so the moment of reading does not matter.
    return _read(document, now=EPOCH, key="", judged_at=None)


_READERS: dict[str, tuple[tuple[str, ...], Callable[[Reader], Any]]] = {
    "missing_target_policy": (
        ("missing_target_policy",),
        lambda reader: read_missing_target(reader, "missing_target_policy"),
    ),
    "timeout": (
        ("timeout_seconds",),
        lambda reader: reader.seconds("timeout_seconds", None, low=0.001, high=MAX_TIMEOUT_SECONDS),
    ),
    "expected": (
        ("expected_seconds",),
        lambda reader: reader.seconds("expected_seconds", None, low=0.001, high=MAX_TIMEOUT_SECONDS),
    ),
    "expected_rate": (("expected_rate",), lambda reader: read_expected_rate(reader, "expected_rate")),
    "delivery": (("delivery",), lambda reader: read_delivery(reader, "delivery")),
    "runaway": (("runaway",), lambda reader: read_runaway(reader, "runaway")),
    "concurrency": (("concurrency_key", "concurrency_limit"), read_concurrency),
    "budget": (("budget",), lambda reader: read_budget(reader, "budget")),
    "max_runs": (("max_runs",), lambda reader: reader.integer("max_runs", None, low=1)),
    "ping_urls": (("ping_urls",), lambda reader: read_ping_urls(reader, "ping_urls")),
    "horizon": (("planning_horizon_days", "planning_horizon_occurrences"), read_horizon),
    "accepts_payload": (("accepts_payload",), lambda reader: reader.boolean("accepts_payload", default=False)),
    "enabled": (("enabled",), lambda reader: reader.boolean("enabled", default=True)),
}
"""What depends on no other field: the fields of each in the document, and how they are read."""
_READ_FIELDS = frozenset(name for fields, _ in _READERS.values() for name in fields)
_DEFAULTS = {
    name: read(Reader({}, path="", code=InvalidSchedule.code, problems=[])) for name, (_, read) in _READERS.items()
}
"""What is read where there are no such fields: most documents have few."""


def _read(
    document: object, *, now: datetime, key: str, judged_at: Micros | None, known: Declaration | None = None
) -> Declaration:
    problems: list[Problem] = []
    reader = Reader(document, path="", code=InvalidSchedule.code, problems=problems)
    if problems:
        raise refusal(problems)
    schedule_id, name, description, labels = None, None, "", {}
    if reader.given(_NAMES):
        schedule_id = reader.read("schedule_id", identifier, None)
        name = reader.text("name", None, high=MAX_NAME)
        description = reader.text("description", "", low=0, high=MAX_DESCRIPTION, multiline=True)
        labels = reader.labels("labels")
    trigger = _read_trigger(reader, now=now, key=key or schedule_id or name or "")
    target = _read_target(reader)
    fingerprint, policies = None, None
    if trigger is not None and target is not None and judged_at is not None and not problems:
        fingerprint = _policies_fingerprint(document, trigger, target)
        policies = _policies_read.find(fingerprint)
        if policies is not None:
            _note_past(reader, trigger, grace=policies.misfire_policy.grace, now=judged_at)
            note_unfillable(reader, "target", target, has_event=isinstance(trigger, EventTrigger))
    if policies is None:
        policies = _read_policies(reader, trigger, target, schedule_id, judged_at=judged_at, known=known)
    if policies is None or target is None or problems:
        raise refusal(problems)
    _policies_read.keep(fingerprint, policies)
    return _with_names(
        policies,
        schedule_id=schedule_id,
        name=name,
        description=description,
        labels=labels,
        trigger=trigger,
        target=target,
    )


_with_names = evolver(Declaration, "schedule_id", "name", "description", "labels", "trigger", "target")
_NAMES = frozenset({"schedule_id", "name", "description", "labels"})
_NO_POLICIES = _NAMES | {"trigger", "target"}
_policies_read: Memory[Declaration] = Memory()
_targets_read: Memory[Target] = Memory()


def _policies_fingerprint(document: object, trigger: Trigger, target: Target) -> bytes | None:
    """What the policies of a document depend on; None if they are not worth remembering."""
    assert isinstance(document, dict)  # noqa: S101 - the reader has found no problem
    if "depends_on" in document:
        return None  # which is compared with the id
    policies = {name: value for name, value in document.items() if name not in _NO_POLICIES}
    return fingerprint_of([trigger.type, str(target.kind), policies])


def _read_target(reader: Reader) -> Target | None:
    fingerprint = fingerprint_of(reader.raw("target"))
    target = _targets_read.find(fingerprint)
    if target is None:
        target = read_target(reader, "target")
        _targets_read.keep(fingerprint, target)
    return target


def _read_policies(
    reader: Reader,
    trigger: Trigger | None,
    target: Target | None,
    schedule_id: str | None,
    *,
    judged_at: Micros | None,
    known: Declaration | None,
) -> Declaration | None:
    """Everything but the names and the trigger; None without a target."""
    trigger_type = trigger.type if trigger else ""
    overlap_policy = read_overlap(reader, "overlap_policy", trigger_type=trigger_type)
    misfire_policy = read_misfire(reader, "misfire_policy", trigger_type=trigger_type)
    if trigger is not None and judged_at is not None:
        _note_past(reader, trigger, grace=misfire_policy.grace, now=judged_at)
    if target is not None and (judged_at is not None or (known is not None and known.target != target)):
        # A trigger that cannot be read says nothing about events.
        has_event = trigger is None and reader.raw("trigger") is not None
        note_unfillable(reader, "target", target, has_event=has_event or isinstance(trigger, EventTrigger))
    retry_policy = read_retry(reader, "retry_policy")
    if isinstance(target, PingTarget) and retry_policy.max_attempts > 1:
        reader.problem("retry_policy", "must not ask for more than one attempt: the job that pings retries by itself")
    if target is not None and not isinstance(target, FunctionTarget):
        for name in [name for name in ("on", "not_on") if getattr(retry_policy, name)]:
            message = f"is for functions alone, and the target is of kind {target.kind}: it raises no exceptions"
            reader.problem(f"retry_policy.{name}", message)
    others = dict(_DEFAULTS)
    given = reader.given(_READ_FIELDS)
    if given:
        others |= {name: read(reader) for name, (fields, read) in _READERS.items() if not given.isdisjoint(fields)}
    others["retry_policy"] = retry_policy
    others["window"] = read_window(reader, "window", target_kind=target.kind if target else None)
    others["pause_on_failure"] = _read_pause(reader, target, is_stored=judged_at is None and known is None)
    others["depends_on"] = _read_upstreams(reader, schedule_id)
    reader.close()
    if target is None:
        return None
    return Declaration(
        trigger=None, target=target, overlap_policy=overlap_policy, misfire_policy=misfire_policy, **others
    )


def _read_pause(reader: Reader, target: Target | None, *, is_stored: bool) -> int | None:
    """After how many failures in a row a schedule is paused. One of an agent is, unless its document says 0."""
    is_agent = target is not None and target.kind in AGENT_KINDS
    failures: int | None = reader.integer("pause_on_failure", None, low=0 if is_agent else 1)
    return AGENT_FAILURES if failures is None and is_agent and not is_stored else failures


def _read_trigger(reader: Reader, *, now: datetime, key: str) -> Trigger | None:
    """The trigger; its problems are reported under `trigger`, with their own codes."""
    document, upstreams = reader.raw("trigger"), reader.raw("depends_on")
    if document is None:
        if not (isinstance(upstreams, list | tuple) and upstreams):
            message = "is required, unless depends_on names the schedules to follow"
            reader.problem("trigger", message, code=InvalidTrigger.code)
        return None
    try:
        return parse_trigger(document, now=now, key=key)
    except InvalidTrigger as error:
        for problem in error.problems:
            where = f"trigger.{problem.field}" if problem.field else "trigger"
            reader.problem(where, problem.message, code=problem.code)
        return None


def _read_upstreams(reader: Reader, schedule_id: str | None) -> tuple[Dependency, ...]:
    upstreams = read_dependencies(reader, "depends_on")
    if schedule_id is not None and schedule_id in {upstream.schedule_id for upstream in upstreams}:
        reader.problem("depends_on", "names the schedule itself")
    return upstreams


def _note_past(reader: Reader, trigger: Trigger, *, grace: Micros, now: Micros) -> None:
    """Refuse a trigger that has nothing left to fire; a fire in grace still counts."""
    if isinstance(trigger, EventTrigger):
        if trigger.end is not None and trigger.end < now:
            message = f"is in the past: no event after now, {to_text(now)}, can match"
            reader.problem("trigger.end_at_utc", message, code=TriggerNeverFires.code)
        return
    oldest = max(now - grace, MIN_INSTANT)
    if trigger.next_micros(oldest - 1) is None:
        where = "trigger.due_at_utc" if trigger.type == "once" else "trigger"
        seconds = micros_to_seconds(grace)
        message = f"is in the past: it names no time from {to_text(oldest)} on (now less {seconds} seconds of grace)"
        reader.problem(where, message, code=TriggerNeverFires.code)
