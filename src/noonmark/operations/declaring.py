"""Declaring schedules by document: create, upsert, update."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import Reader, present
from noonmark.core.errors import Conflict, InvalidRequest, InvalidSchedule, KeyReused, NotFound
from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros
from noonmark.core.json_values import identifier
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.policies.misfire import read_misfire
from noonmark.core.policies.overlap import read_overlap
from noonmark.core.schedule import Owner, declare_again, parse_schedule
from noonmark.operations import schedules
from noonmark.operations.arguments import Arguments
from noonmark.operations.carrying import check_secrets
from noonmark.operations.documents import schedule_document
from noonmark.operations.trusting import trusted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import StoredSchedule

KEY_LIFETIME: Micros = DAY_SECONDS * SECOND
"""An idempotency key means the same request for so long."""
MAX_KEY = 255
READ_ONLY = frozenset(
    {
        "phase",
        "revision",
        "owner",
        "source",
        "next_run_at",
        "next_fire_times",
        "last_run_at",
        "last_phase",
        "counters",
        "created_at_utc",
        "updated_at_utc",
        "deleted_at_utc",
    }
)
"""What a schedule document tells, and nobody can set."""
FIELDS = (
    "name",
    "trigger",
    "target",
    "description",
    "labels",
    "overlap_policy",
    "misfire_policy",
    "missing_target_policy",
    "retry_policy",
    "timeout_seconds",
    "window",
    "delivery",
    "pause_on_failure",
    "concurrency_key",
    "concurrency_limit",
    "depends_on",
    "budget",
    "max_runs",
    "accepts_payload",
    "planning_horizon_days",
    "planning_horizon_occurrences",
    "enabled",
)
"""What a schedule document says; the same to create one and to change it."""
UNREACHABLE = (".", "..", "count", "preview", "upsert")
"""No schedule can have these for its id: in a path, they lead elsewhere."""
EXPECTED = ("expected_revision", "expected_updated_at_utc")
"""How a request says which schedule it means to change, as it was read."""
OF_REQUESTS = ("schedule_id", "user_id", "idempotency_key")
"""What a request to create one may say besides."""


def create(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Keep a new schedule. With an idempotency key, the same request again gives the schedule that it made."""
    document, owner, key = _split(caller, arguments)
    now, uid = service.store.clock(), service.fresh_id()
    if key is not None:
        # A request that is refused has not used its key.
        check_secrets(service.store, owner.tenant, _parse(service, document, now=now, key="").target)
        uid = _uid_for(service, owner, key, document, now=now)
        if service.store.snapshot(uid) is not None:
            return _made_before(service, owner, uid, document, now=now)
    schedule_id = document.get("schedule_id") or f"sch_{uid}"
    schedule = schedules.new_schedule(
        _parse(service, document, now=now, key=str(schedule_id)),
        uid=uid,
        schedule_id=str(schedule_id),
        owner=owner,
        source=caller.source,
        now=now,
    )
    if not schedules.create(service.store, schedule, lookahead=service.lookahead, sign=caller.signed()):
        taken = service.store.find_uid(uid)
        if taken is None:
            raise Conflict(f"there is a schedule {schedule.schedule_id!r} already", field="schedule_id")
        return schedule_document(taken, now=now)
    return told(service, schedule)


def _made_before(
    service: Service, owner: Owner, uid: str, document: Mapping[str, Any], *, now: Micros
) -> dict[str, Any]:
    """The schedule that the same request has made, even if it was deleted since."""
    schedule_id = str(document.get("schedule_id") or f"sch_{uid}")
    kept = service.store.find(owner.tenant, schedule_id, deleted=True)
    if kept is None or kept.schedule.uid != uid:
        raise Conflict("what this request made was deleted, and another one has its id", field="schedule_id")
    return schedule_document(kept, now=now)


def upsert(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Keep a schedule, or put another declaration in force; the same one again changes nothing.

    It is known by its `schedule_id`, or else by its owner and its workflow, or its name. A paused one stays paused.
    """
    document, owner, _ = _split(caller, arguments)
    if document.get("schedule_id") is None:
        document["schedule_id"] = _id_of(document, owner)
    schedule_id = document["schedule_id"]
    while True:
        stored = service.store.find(owner.tenant, _identifier(schedule_id))
        if stored is not None:
            _check_owner(stored, owner, caller)
            try:
                edited = _declare(service, caller, stored, document)
            except NotFound:
                continue  # it was deleted a moment before, so it is created
            return told(service, edited)
        now, uid = service.store.clock(), service.fresh_id()
        declaration = _parse(service, document, now=now, key=str(schedule_id))
        schedule = schedules.new_schedule(
            declaration, uid=uid, schedule_id=str(schedule_id), owner=owner, source=caller.source, now=now
        )
        if schedules.create(service.store, schedule, lookahead=service.lookahead, sign=caller.signed()):
            return told(service, schedule)


def update(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Change some of what was declared; null takes a field back. Whether it is paused follows `enabled`."""
    changes = dict(arguments)
    asked = Arguments({name: changes.pop(name, None) for name in ("schedule_id", *EXPECTED)})
    expected = asked.expected()
    found_id = asked.read("schedule_id", identifier)
    asked.done()
    _check_writable(changes)
    if unknown := [one for one in changes if one not in FIELDS]:
        raise InvalidSchedule(f"unknown field; allowed are {', '.join(FIELDS)}", field=unknown[0])
    kept = schedules.find(service.store, caller.owner.tenant, found_id)

    def read(schedule: Schedule, now: Micros) -> Declaration:
        expected.check(schedule)
        document = changed(schedule.declaration, changes)
        return trusted(service, declare_again(document, schedule, now=from_micros(now)), schedule)

    sign = caller.signed()
    edited = schedules.declare(service.store, kept.schedule.uid, read, lookahead=service.lookahead, sign=sign)
    if "enabled" in changes and edited.phase is not SchedulePhase.COMPLETED:
        is_paused = edited.phase is SchedulePhase.PAUSED
        if changes["enabled"] is False and not is_paused:
            edited = schedules.pause(service.store, edited.uid, sign)
        elif changes["enabled"] is not False and is_paused:
            edited = schedules.resume(service.store, edited.uid, lookahead=service.lookahead, sign=sign)
    return told(service, edited)


def changed(declared: Declaration, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a schedule of which some fields are said anew; null takes one back.

    A policy that was what its kind of trigger has by default is, with a trigger of another kind, that one's default.
    """
    document = declared.to_document()
    trigger = changes.get("trigger", document.get("trigger"))
    if _kind(trigger) != _kind(document.get("trigger")):
        for field in at_default(declared):
            del document[field]
    return present(**{**document, **changes})


def at_default(declared: Declaration) -> set[str]:
    """Which of the policies that have another default for each kind of trigger are at theirs."""
    kind = "" if declared.trigger is None else declared.trigger.type
    nothing_said = Reader({}, path="", code=InvalidSchedule.code, problems=[])
    usual = {
        "overlap_policy": read_overlap(nothing_said, "overlap_policy", trigger_type=kind),
        "misfire_policy": read_misfire(nothing_said, "misfire_policy", trigger_type=kind),
    }
    return {field for field, policy in usual.items() if getattr(declared, field) == policy}


def _kind(trigger: object) -> object:
    return trigger.get("type") if isinstance(trigger, dict) else None


def _declare(service: Service, caller: Caller, stored: StoredSchedule, document: dict[str, Any]) -> Schedule:
    """Put a document in force; NotFound when the schedule was deleted meanwhile."""

    def read(schedule: Schedule, now: Micros) -> Declaration:
        said = {**document, "enabled": schedule.declaration.enabled}
        return trusted(service, declare_again(said, schedule, now=from_micros(now)), schedule)

    sign = caller.signed()
    return schedules.declare(service.store, stored.schedule.uid, read, lookahead=service.lookahead, sign=sign)


def _split(caller: Caller, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Owner, str | None]:
    """The document that declares a schedule, whose it is to be, and the key of the request."""
    document = dict(arguments)
    asked = Arguments(
        {name: document.pop(name, None) for name in ("user_id", "idempotency_key")},
    )
    user = asked.text("user_id", None)
    key = asked.text("idempotency_key", None, high=MAX_KEY)
    asked.done()
    _check_writable(document)
    if user is not None and user != caller.owner.user and not caller.is_admin:
        raise InvalidRequest("is the caller, unless an admin asks", field="user_id")
    owner = caller.owner if user is None else Owner(tenant=caller.owner.tenant, user=user)
    return document, owner, key


def _check_writable(document: Mapping[str, Any]) -> None:
    """Refuse what only the service can say of a schedule."""
    told = [one for one in document if one in READ_ONLY]
    if told:
        raise InvalidSchedule("is read-only: leave it out", field=told[0])


def _parse(service: Service, document: dict[str, Any], *, now: Micros, key: str) -> Declaration:
    if (wanted := document.get("schedule_id")) in UNREACHABLE:
        message = f"{wanted!r} means something else in the path of a request; take another id"
        raise InvalidSchedule(message, field="schedule_id")
    return trusted(service, parse_schedule(document, now=from_micros(now), key=key), None)


def _check_owner(stored: StoredSchedule, owner: Owner, caller: Caller) -> None:
    if stored.schedule.owner != owner and not caller.is_admin:
        raise Conflict(f"{stored.schedule.schedule_id!r} is the schedule of somebody else", field="schedule_id")


def _identifier(value: object) -> str:
    try:
        return identifier(value)
    except ValueError as error:
        raise InvalidSchedule(str(error), field="schedule_id") from None


def _id_of(document: Mapping[str, Any], owner: Owner) -> str:
    """The id of what a document declares without one: the same for the same workflow, or the same name."""
    target = document.get("target")
    workflow = target.get("workflow_id") if isinstance(target, dict) else None
    what = ("workflow", workflow) if isinstance(workflow, str) else ("name", document.get("name"))
    if not isinstance(what[1], str):
        raise InvalidRequest("is required: nothing else says which schedule is meant", field="schedule_id")
    return "sch_" + _digest(owner.tenant, owner.user, *what)


def _uid_for(service: Service, owner: Owner, key: str, document: Mapping[str, Any], *, now: Micros) -> str:
    """The identity of what a request with this key makes: whoever sends it again, or at once, means the same."""
    said = json.dumps(present(**document), sort_keys=True)
    fingerprint = _digest(owner.user, "schedule/create", said)
    kept = service.store.claim_key(owner.tenant, key, fingerprint, now=now, lifetime=KEY_LIFETIME)
    if kept.fingerprint != fingerprint:
        raise KeyReused("this key came with another request within the last 24 hours", field="idempotency_key")
    return _digest(owner.tenant, key, str(kept.created))


def _digest(*parts: str) -> str:
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=13, person=b"noonmark-key").hexdigest()


def told(service: Service, schedule: Schedule) -> dict[str, Any]:
    """A schedule that has just been written, as it stands."""
    # Not by its id: somebody may have deleted it since, and somebody else created another of that id.
    kept = service.store.find_uid(schedule.uid)
    if kept is None:
        raise NotFound("the schedule was deleted", field="schedule_id")
    service.wake(kept.next_due)
    return schedule_document(kept, now=service.store.clock())
