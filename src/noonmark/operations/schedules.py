"""Schedules: create, upsert, update, pause, resume, delete, get, list and count."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.session import schedule_session
from noonmark.core.agents.turns import agent_target
from noonmark.core.documents import Reader, present, unknown_field
from noonmark.core.errors import Conflict, InvalidRequest, InvalidSchedule, KeyReused, NotAllowed, NotFound
from noonmark.core.ids import default_id, new_uid
from noonmark.core.instants import DAY, from_micros
from noonmark.core.json_values import identifier
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.outcomes import ENDED
from noonmark.core.policies.misfire import read_misfire
from noonmark.core.policies.overlap import read_overlap
from noonmark.core.proposals import ProposedAction
from noonmark.core.schedule import RESERVED_IDS, Owner, declare_again, parse_schedule
from noonmark.core.targets import AGENT_KINDS, WorkflowTarget
from noonmark.operations import occurrences, schedule_edits
from noonmark.operations.creations import create_alone
from noonmark.operations.doctor import unreadable_schedules
from noonmark.operations.errors import MAX_PROBLEMS
from noonmark.operations.lineages import count_new, limits_for, lineage_of, with_default_end
from noonmark.operations.models.arguments import (
    KINDS,
    MAX_KEY,
    USUAL_PAGE,
    Cancellation,
    ExpectedSchedule,
    ScheduleFields,
    ScheduleFilters,
    ScheduleQuery,
)
from noonmark.operations.models.fields import ArgumentReader, write_cursor
from noonmark.operations.pings import url_of
from noonmark.operations.schedule_edits import Expected
from noonmark.operations.secrets import check_secrets
from noonmark.operations.serializers import outcome_document, read_page, schedule_document, schedule_size
from noonmark.operations.service import schedule_quotas
from noonmark.operations.target_policy import check_declaration, schedule_warnings, with_bundle_needs
from noonmark.operations.usage import schedule_forecast
from noonmark.ports.records import Counters, ScheduleFilter, StoredSchedule, lowered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.planner import Plan
    from noonmark.core.proposals import Proposal
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.operations.creations import Creation
    from noonmark.operations.models.arguments import (
        Deletion,
        PauseRequest,
        ScheduleAction,
        ScheduleCheck,
        ScheduleLookup,
        TriggerQuery,
    )
    from noonmark.operations.service import Caller, Service

PROPOSED = frozenset({SchedulePhase.PROPOSED})
KEY_LIFETIME: Micros = DAY
"""How long an idempotency key is remembered."""
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
        "paused",
        "warnings",
        "created_at_utc",
        "updated_at_utc",
        "deleted_at_utc",
        "ping_url",
        "forecast",
        "lineage",
        "proposal",
        "outcomes",
    }
)
"""Fields of a schedule document that callers cannot set."""


def create_schedule(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> Creation[dict[str, Any]]:
    """Create a schedule. The same request with the same idempotency key returns the schedule it has created."""
    document, owner, key = split(service, caller, arguments)
    now, uid = service.store.clock(), service.fresh_uid()
    if key is not None:
        # A refused request must not use up its key.
        check_secrets(service.store, owner.tenant, parse(service, caller, document, now=now, key="").target)
        uid = uid_for(service, owner, key, document, now=now)
        if service.store.snapshot(uid) is not None:
            return created_before(service, owner, uid, document, now=now)
    schedule_id = str(document.get("schedule_id") or default_id(uid))
    schedule = _new_schedule(service, caller, document, uid=uid, schedule_id=schedule_id, owner=owner, now=now)
    plan = yield from _creation(service, caller, schedule, may_exist=key is not None)
    if plan is None:
        existing = service.store.find_uid(uid)
        if existing is None:
            message = f"there is a schedule {schedule.schedule_id!r} already; choose another id, or update that one"
            raise Conflict(message, field="schedule_id")
        return with_ping_url(service, existing.schedule, document_of(service, existing, now=now))
    return with_ping_url(service, schedule, _created(service, plan))


def _new_schedule(  # noqa: PLR0913 - each is a part of the schedule
    service: Service,
    caller: Caller,
    document: dict[str, Any],
    *,
    uid: str,
    schedule_id: str,
    owner: Owner,
    now: Micros,
) -> Schedule:
    """The first revision of what a document declares, with what made it."""
    document = with_default_end(service, caller, document, now=now)
    declaration = parse(service, caller, document, now=now, key=schedule_id)
    return schedule_edits.new_schedule(
        declaration,
        uid=uid,
        schedule_id=schedule_id,
        owner=owner,
        source=caller.source,
        now=now,
        lineage=lineage_of(service, caller, declaration),
    )


def _creation(
    service: Service, caller: Caller, schedule: Schedule, *, may_exist: bool = False
) -> Creation[Plan | None]:
    """Store a new schedule; the plan it was created with, or None if its id is taken."""
    count_new(service, caller, schedule.lineage)
    return schedule_edits.creation(
        service.store,
        schedule,
        lookahead=service.lookahead,
        audit=caller.audit(),
        quotas=schedule_quotas(service, caller),
        agent_limits=limits_for(service, caller),
        may_exist=may_exist,
    )


def with_ping_url(service: Service, schedule: Schedule, document: dict[str, Any]) -> dict[str, Any]:
    """The answer to the creation of a schedule: only this one has the URL that its job calls."""
    url = url_of(service, schedule)
    return document if url is None else document | {"ping_url": url}


def created_before(
    service: Service, owner: Owner, uid: str, document: Mapping[str, Any], *, now: Micros
) -> dict[str, Any]:
    """The schedule that the same request has created, even if it was deleted since."""
    schedule_id = str(document.get("schedule_id") or default_id(uid))
    stored = service.store.find(owner.tenant, schedule_id, deleted=True)
    if stored is None or stored.schedule.uid != uid:
        raise Conflict(
            "the schedule that this request created was deleted, and another has its id", field="schedule_id"
        )
    return with_ping_url(service, stored.schedule, document_of(service, stored, now=now))


def upsert_schedule(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Create a schedule, or replace its declaration; the same declaration again changes nothing.

    It is identified by `schedule_id`, or else by its owner and its workflow or name. A paused schedule stays paused.
    """
    document, owner, _ = split(service, caller, arguments)
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
                continue  # deleted a moment ago, so it is created
            return written(service, edited)
        now, uid = service.store.clock(), service.fresh_uid()
        schedule = _new_schedule(service, caller, document, uid=uid, schedule_id=str(schedule_id), owner=owner, now=now)
        if create_alone(service.store, _creation(service, caller, schedule)) is not None:
            return with_ping_url(service, schedule, written(service, schedule))


def check_schedules(service: Service, caller: Caller, arguments: ScheduleCheck) -> dict[str, Any]:
    """Check schedules as if they were created, or changed where they exist. Nothing is changed.

    The checks are those of this server: where requests may go, which commands may run, which targets live nodes serve.
    """
    return {"checks": [_checked(service, caller, document) for document in arguments.schedules]}


def _checked(service: Service, caller: Caller, document: dict[str, Any]) -> dict[str, Any]:
    schedule_id, now = document.get("schedule_id"), service.store.clock()
    problems: list[dict[str, Any]] = []
    warnings: list[str] = []
    try:
        schedule = _draft(service, caller, document, now=now)
        check_secrets(service.store, caller.owner.tenant, schedule.declaration.target)
        warnings = schedule_warnings(service, schedule, now=now)
    except InvalidSchedule as error:
        problems = [{"field": one.field, "code": one.code, "detail": one.message} for one in error.problems]
    except NotAllowed as error:
        problems = [{"field": error.field, "code": error.code, "detail": error.message}]
    return {
        "schedule_id": schedule_id if isinstance(schedule_id, str) else None,
        "problems": problems[:MAX_PROBLEMS],
        "warnings": warnings,
    }


def _draft(service: Service, caller: Caller, document: dict[str, Any], *, now: Micros) -> Schedule:
    """The schedule that a document would create, or that its fields would make of the one with its id."""
    _check_writable(document)
    schedule_id = document.get("schedule_id")
    stored = None if schedule_id is None else service.store.find(caller.owner.tenant, _identifier(schedule_id))
    if stored is None or not caller.sees(stored.schedule):
        declaration = parse(service, caller, document, now=now, key=str(schedule_id or ""))
        fresh_id = service.fresh_id()
        return schedule_edits.new_schedule(
            declaration,
            uid=fresh_id,
            schedule_id=str(schedule_id or default_id(fresh_id)),
            owner=caller.owner,
            source=caller.source,
            now=now,
        )
    changes = {name: value for name, value in document.items() if name != "schedule_id"}
    declared = declare_again(changed(stored.schedule.declaration, changes), stored.schedule, now=from_micros(now))
    return replace(
        stored.schedule, declaration=check_declaration(service, caller, declared, stored.schedule), updated=now
    )


def update_schedule(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Change some fields of a schedule; null resets a field, and `enabled` pauses or resumes it."""
    changes = dict(arguments)
    precondition = ExpectedSchedule.read({name: changes.pop(name, None) for name in ExpectedSchedule.fields()})
    expected = Expected(precondition.expected_revision, precondition.expected_updated_at_utc)
    check_changes(changes)
    stored = schedule_edits.find_for(caller, service.store, precondition.schedule_id)
    changes = with_bundle_needs(service.store, stored.schedule.owner.tenant, changes)
    changes = with_default_end(service, caller, changes, now=service.store.clock())

    def read(schedule: Schedule, now: Micros) -> Declaration:
        expected.check(schedule)
        document = changed(schedule.declaration, changes)
        return check_declaration(service, caller, declare_again(document, schedule, now=from_micros(now)), schedule)

    audit = caller.audit()
    edited = schedule_edits.declare(
        service.store,
        stored.schedule.uid,
        read,
        lookahead=service.lookahead,
        audit=audit,
        quotas=schedule_quotas(service, caller),
        agent_limits=limits_for(service, caller),
        scopes=caller.granted,
    )
    if "enabled" in changes and edited.phase is not SchedulePhase.COMPLETED:
        is_paused = edited.phase is SchedulePhase.PAUSED
        if changes["enabled"] is False and not is_paused:
            edited = schedule_edits.pause(
                service.store, edited.uid, audit, by=caller.name, reason="enabled was set to false"
            )
        elif changes["enabled"] is not False and is_paused:
            edited = schedule_edits.resume(
                service.store, edited.uid, lookahead=service.lookahead, audit=audit, is_agent=caller.acts_as_agent
            )
    return written(service, edited)


def check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse fields that a schedule does not have, or that callers cannot set."""
    _check_writable(changes)
    allowed = ScheduleFields.fields()
    if unknown := [name for name in changes if name not in allowed]:
        raise InvalidSchedule(unknown_field(unknown[0], allowed), field=unknown[0])


def changed(declared: Declaration, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a declaration with some fields changed; null resets one.

    A policy at the default of its kind of trigger moves to the default of the new kind.
    """
    document = declared.to_document()
    trigger = changes.get("trigger", document.get("trigger"))
    if _kind(trigger) != _kind(document.get("trigger")):
        for field in at_default(declared):
            del document[field]
    return present(**{**document, **changes})


def at_default(declared: Declaration) -> set[str]:
    """The policies whose default depends on the kind of trigger, and which are at that default."""
    kind = "" if declared.trigger is None else declared.trigger.type
    no_fields = Reader({}, path="", code=InvalidSchedule.code, problems=[])
    usual = {
        "overlap_policy": read_overlap(no_fields, "overlap_policy", trigger_type=kind),
        "misfire_policy": read_misfire(no_fields, "misfire_policy", trigger_type=kind),
    }
    return {field for field, policy in usual.items() if getattr(declared, field) == policy}


def _kind(trigger: object) -> object:
    return trigger.get("type") if isinstance(trigger, dict) else None


def _declare(service: Service, caller: Caller, stored: StoredSchedule, document: dict[str, Any]) -> Schedule:
    """Replace the declaration of a schedule; NotFound if it was deleted meanwhile."""

    def read(schedule: Schedule, now: Micros) -> Declaration:
        declared = declare_again(document, schedule, now=from_micros(now))
        return check_declaration(service, caller, replace(declared, enabled=schedule.declaration.enabled), schedule)

    audit = caller.audit()
    return schedule_edits.declare(
        service.store,
        stored.schedule.uid,
        read,
        lookahead=service.lookahead,
        audit=audit,
        quotas=schedule_quotas(service, caller),
        agent_limits=limits_for(service, caller),
        scopes=caller.granted,
    )


def split(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Owner, str | None]:
    """The document that declares a schedule, its owner, and the idempotency key."""
    document = with_bundle_needs(service.store, caller.owner.tenant, dict(arguments))
    reader = ArgumentReader({name: document.pop(name, None) for name in ("user_id", "idempotency_key")})
    user = reader.text("user_id", None)
    key = reader.text("idempotency_key", None, high=MAX_KEY)
    reader.done()
    _check_writable(document)
    if user is not None and user != caller.owner.user and not caller.is_root:
        raise NotAllowed("must be the user of your key; only a key of tenant * may name another", field="user_id")
    owner = caller.owner if user is None else Owner(tenant=caller.owner.tenant, user=user)
    return document, owner, key


def _check_writable(document: Mapping[str, Any]) -> None:
    read_only = [name for name in document if name in READ_ONLY]
    if read_only:
        raise InvalidSchedule("is read-only: leave it out", field=read_only[0])


def parse(service: Service, caller: Caller, document: dict[str, Any], *, now: Micros, key: str) -> Declaration:
    """Read the document of a new schedule, as far as the caller may declare it."""
    if (schedule_id := document.get("schedule_id")) in RESERVED_IDS:
        message = f"{schedule_id!r} means something else in the path of a request; choose another id"
        raise InvalidSchedule(message, field="schedule_id")
    return check_declaration(service, caller, parse_schedule(document, now=from_micros(now), key=key), None)


def _check_owner(stored: StoredSchedule, owner: Owner, caller: Caller) -> None:
    if stored.schedule.owner != owner and not caller.is_admin:
        raise Conflict(f"{stored.schedule.schedule_id!r} belongs to another owner", field="schedule_id")


def _identifier(value: object) -> str:
    try:
        return identifier(value)
    except ValueError as error:
        raise InvalidSchedule(str(error), field="schedule_id") from None


def _id_of(document: Mapping[str, Any], owner: Owner) -> str:
    """The id of a schedule declared without one: the same for the same workflow, or the same name."""
    target = document.get("target")
    workflow = target.get("workflow_id") if isinstance(target, dict) else None
    what = ("workflow", workflow) if isinstance(workflow, str) else ("name", document.get("name"))
    if not isinstance(what[1], str):
        raise InvalidRequest("is required: nothing else identifies the schedule", field="schedule_id")
    return "sch_" + _digest(owner.tenant, owner.user, *what)


def uid_for(service: Service, owner: Owner, key: str, document: Mapping[str, Any], *, now: Micros) -> str:
    """The uid of the schedule that a request with this key creates: the same for every copy of the request."""
    document_text = json.dumps(present(**document), sort_keys=True)
    request = _digest(owner.user, "schedule/create", document_text)
    # Copies of a request agree on the kind of uid, too: by what the first of them has stored.
    fingerprint = new_uid(request, is_timed=service.store.wants_timed_uids())
    claimed = service.store.claim_key(owner.tenant, key, fingerprint, now=now, lifetime=KEY_LIFETIME)
    if claimed.fingerprint not in (request, timed := new_uid(request, is_timed=True)):
        raise KeyReused("this key came with another request within the last 24 hours", field="idempotency_key")
    digest = _digest(owner.tenant, key, str(claimed.created))
    if claimed.fingerprint != timed:
        return digest
    return new_uid(f"{claimed.created:014x}{digest}"[: len(digest)], is_timed=True)


def _digest(*parts: str) -> str:
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=13, person=b"noonmark-key").hexdigest()


def pause_schedule(service: Service, caller: Caller, arguments: PauseRequest) -> dict[str, Any]:
    """Pause a schedule; fires missed meanwhile are recorded as skipped, and running work is finished.

    With `until`, it resumes by itself at that time.
    """
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id)
    audit, expected = caller.audit(arguments.reason), expected_of(arguments)
    paused = schedule_edits.pause(
        service.store,
        stored.schedule.uid,
        audit,
        expected=expected,
        by=caller.name,
        reason=arguments.reason,
        until=arguments.until,
        is_agent=caller.acts_as_agent,
    )
    return written(service, paused)


def resume_schedule(service: Service, caller: Caller, arguments: ScheduleAction) -> dict[str, Any]:
    """Resume a paused schedule from now on."""
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id)
    resumed = schedule_edits.resume(
        service.store,
        stored.schedule.uid,
        lookahead=service.lookahead,
        audit=caller.audit(arguments.reason),
        expected=expected_of(arguments),
        is_agent=caller.acts_as_agent,
    )
    return written(service, resumed)


def delete_schedule(service: Service, caller: Caller, arguments: Deletion) -> dict[str, Any]:
    """Delete a schedule; its history is kept. Runs go on, unless they are to stop. Deleting it again changes nothing.

    The answer says how many runs were asked to stop, and how many go on.
    """
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id, deleted=True)
    if stored.schedule.phase is not SchedulePhase.DELETED:
        audit = caller.audit(arguments.reason)
        with suppress(NotFound):  # deleted by another caller a moment ago
            schedule_edits.delete(service.store, stored.schedule.uid, audit, expected=expected_of(arguments))
        service.wake(None)
    [activity] = service.store.activities([stored.schedule.uid])
    stopped = _stop_all(service, caller, activity.delivering, arguments.reason) if arguments.stop_running else 0
    deleted = service.store.find_uid(stored.schedule.uid)
    return schedule_document(deleted or stored, now=service.store.clock()) | {
        "stopped_runs": stopped,
        "unfinished_runs": len(activity.delivering) - stopped,
    }


def _stop_all(service: Service, caller: Caller, delivering: Sequence[str], reason: str | None) -> int:
    """Ask runs to stop; returns how many have not ended by themselves."""
    stopped = 0
    for occurrence_id in delivering:
        with suppress(Conflict):  # it has ended a moment ago
            occurrences.cancel(service, caller, Cancellation.read({"occurrence_id": occurrence_id, "reason": reason}))
            stopped += 1
    return stopped


def expected_of(arguments: ScheduleAction) -> Expected:
    """The state of the schedule that a request expects."""
    return Expected(arguments.expected_revision, arguments.expected_updated_at_utc)


def _created(service: Service, plan: Plan) -> dict[str, Any]:
    """The document of a schedule that was just created. Reading it again costs a third of its creation."""
    stored = schedule_edits.as_created(plan)
    if stored is None:
        return written(service, plan.snapshot.schedule)
    return _shown(service, stored, now=stored.schedule.created)


def written(service: Service, schedule: Schedule) -> dict[str, Any]:
    """The document of a schedule that was just written."""
    # Not by its id: it may have been deleted since, and another one created under that id.
    stored = service.store.find_uid(schedule.uid)
    if stored is None:
        raise NotFound("the schedule was deleted", field="schedule_id")
    return _shown(service, stored, now=service.store.clock())


def _shown(service: Service, stored: StoredSchedule, *, now: Micros) -> dict[str, Any]:
    """The document of a schedule that was just written, once the driver knows of it."""
    service.wake(stored.next_due)
    document = document_of(service, stored, now=now)
    if stored.schedule.declaration.target.kind not in AGENT_KINDS or stored.schedule.phase is SchedulePhase.DELETED:
        return document
    return document | {"forecast": schedule_forecast(service.store, stored, now=now)}


def document_of(service: Service, stored: StoredSchedule, *, now: Micros) -> dict[str, Any]:
    """The document of a schedule, with what may surprise about it."""
    document = schedule_document(stored, now=now) | _bound_target(service, stored.schedule)
    if stored.schedule.phase not in (SchedulePhase.ACTIVE, SchedulePhase.PAUSED):
        return document
    return document | {"warnings": schedule_warnings(service, stored.schedule, now=now)}


def _bound_target(service: Service, schedule: Schedule) -> dict[str, Any]:
    """The target with the id of the session that it has created, if it has created one."""
    target = agent_target(schedule.declaration.target)
    if target is None or target.type != "materialize_on_demand_session":
        return {}
    document, session_id = target.to_document(), schedule_session(schedule.uid)
    if "bound_session_id" in document or service.store.session(schedule.owner.tenant, session_id) is None:
        return {}
    return {"target": {**document, "bound_session_id": session_id}}


def get_schedule(service: Service, caller: Caller, arguments: ScheduleLookup) -> dict[str, Any]:
    """Get a schedule; a deleted one only with `include_deleted`."""
    now = service.store.clock()
    proposal = service.store.proposal(caller.owner.tenant, arguments.schedule_id)
    if proposal is not None and proposal.action is ProposedAction.CREATE and caller.sees_owner(proposal.owner):
        return proposed_schedule(service, proposal, now=now)
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id, deleted=arguments.include_deleted)
    return document_of(service, stored, now=now)


def proposed_schedule(service: Service, proposal: Proposal, *, now: Micros) -> dict[str, Any]:
    """The document of a proposed schedule: its next fires, what may surprise about it, and what it will cost."""
    stored = _as_stored(proposal)
    warnings = schedule_warnings(service, stored.schedule, now=now)
    forecast = schedule_forecast(service.store, stored, now=now)
    return schedule_document(stored, now=now) | {"warnings": warnings} | present(forecast=forecast)


def _as_stored(proposal: Proposal) -> StoredSchedule:
    return StoredSchedule(schedule=proposal.schedule(), counters=Counters(), next_due=None, next_own=None)


def _proposed(service: Service, caller: Caller, selection: ScheduleFilter) -> Iterator[Proposal]:
    """The proposed schedules that match a filter, oldest first."""
    after: tuple[Micros, str] | None = None
    while True:
        page = service.store.proposals(caller.owner.tenant, USUAL_PAGE, after=after, user=selection.user)
        yield from (one for one in page if one.action is ProposedAction.CREATE and fits(_as_stored(one), selection))
        if len(page) < USUAL_PAGE:
            return
        after = (page[-1].proposed, page[-1].schedule_id)


def fits(stored: StoredSchedule, wanted: ScheduleFilter) -> bool:
    """Whether a schedule matches a filter; event types and fingerprints are not asked."""
    schedule = stored.schedule
    declared = schedule.declaration
    kind = "" if declared.trigger is None else declared.trigger.type
    texts = (schedule.schedule_id, declared.name or "", declared.description)
    return (
        wanted.user in (None, schedule.owner.user)
        and (not wanted.phases or schedule.phase in wanted.phases)
        and wanted.name in (None, declared.name)
        and wanted.target in (None, declared.target.route)
        and (not wanted.kinds or kind in wanted.kinds)
        and all(declared.labels.get(name) == value for name, value in wanted.labels.items())
        and (not wanted.text or any(lowered(wanted.text) in lowered(one) for one in texts))
        and (not wanted.last_phases or stored.counters.last_phase in wanted.last_phases)
        and wanted.is_next(stored.next_own)
    )


def list_schedules(service: Service, caller: Caller, arguments: ScheduleQuery) -> dict[str, Any]:
    """List the schedules that match every filter, in the order of their creation or newest first."""
    selection, deleted = schedule_filter(caller, arguments)
    selection = replace(selection, kinds=trigger_types(arguments))
    if arguments.workflow_id is not None:
        selection = replace(selection, target="workflow")
    if selection.phases == PROPOSED:
        return _proposed_page(service, caller, arguments, selection)
    page, following = _page(service, caller, arguments, selection, deleted=deleted)
    unreadable = unreadable_schedules(service, caller) if arguments.cursor is None and not deleted else []
    return {"schedules": page, "next_cursor": following} | present(warnings=unreadable or None)


def _proposed_page(
    service: Service, caller: Caller, arguments: ScheduleQuery, selection: ScheduleFilter
) -> dict[str, Any]:
    """A page of proposed schedules, oldest first."""
    now, start = service.store.clock(), None if arguments.cursor is None else arguments.cursor[0]
    proposals = _proposed(service, caller, selection)
    if start is not None:
        proposals = dropwhile(lambda one: one.uid != start, proposals)
        next(proposals, None)
    page = list(islice(proposals, arguments.offset, arguments.offset + arguments.limit + 1))
    following = write_cursor(page[-2].uid) if len(page) > arguments.limit else None
    entries = [schedule_document(_as_stored(one), now=now) for one in page[: arguments.limit]]
    return {"schedules": entries, "next_cursor": following}


def list_triggers(service: Service, caller: Caller, arguments: TriggerQuery) -> dict[str, Any]:
    """List the schedules with an event trigger that match every filter."""
    selection, deleted = schedule_filter(caller, arguments)
    selection = replace(selection, kinds=frozenset(KINDS["event"]), event_type=arguments.event_type)
    page, following = _page(service, caller, arguments, selection, deleted=deleted)
    return {"triggers": page, "next_cursor": following}


def count_schedules(service: Service, caller: Caller, arguments: ScheduleFilters) -> dict[str, Any]:
    """Count the schedules that match every filter."""
    selection, deleted = schedule_filter(caller, arguments)
    selection = replace(selection, kinds=trigger_types(arguments))
    if selection.phases == PROPOSED:
        return {"count": sum(1 for _ in _proposed(service, caller, selection))}
    return {"count": service.store.count_schedules(caller.owner.tenant, selection, deleted=deleted)}


def _page(
    service: Service,
    caller: Caller,
    arguments: ScheduleQuery | TriggerQuery,
    selection: ScheduleFilter,
    *,
    deleted: bool,
) -> tuple[list[dict[str, Any]], str | None]:
    """The documents of a page, and the cursor of the next one."""
    workflow, count = (arguments.workflow_id, arguments.outcomes) if isinstance(arguments, ScheduleQuery) else (None, 0)
    now, skipped, offset = service.store.clock(), 0, arguments.offset
    start = None if arguments.cursor is None else arguments.cursor[0]

    def fetch(count: int, last: StoredSchedule | None) -> list[StoredSchedule]:
        nonlocal start, skipped
        schedules: list[StoredSchedule] = []
        start = start if last is None else last.schedule.uid
        while len(schedules) < count:
            step = count if workflow is None and skipped == offset else max(count, USUAL_PAGE)
            page = service.store.schedules(
                caller.owner.tenant,
                after=start,
                limit=step,
                deleted=deleted,
                wanted=selection,
                newest_first=arguments.newest_first,
            )
            fit = [stored for stored in page if workflow is None or _workflow(stored) == workflow]
            before, skipped = skipped, min(offset, skipped + len(fit))
            schedules += fit[skipped - before :]
            if len(page) < step:
                break
            start = page[-1].schedule.uid
        return schedules

    def serialize(page: Sequence[StoredSchedule]) -> list[dict[str, Any]]:
        documents = [schedule_document(stored, now=now) for stored in page]
        if not count:
            return documents
        marks = service.store.last_marks([stored.schedule.uid for stored in page], count, now=now)
        return [
            document | {"outcomes": [outcome_document(mark) for mark in marks.get(stored.schedule.uid, ())]}
            for document, stored in zip(documents, page, strict=True)
        ]

    entries, end = read_page(arguments.limit, fetch, serialize, None if count else schedule_size)
    return entries, None if end is None else write_cursor(end.schedule.uid)


def schedule_filter(caller: Caller, arguments: ScheduleFilters | TriggerQuery) -> tuple[ScheduleFilter, bool]:
    """The filter of a list of schedules that the caller sees, and whether deleted ones are listed."""
    user = arguments.owner
    if caller.sees_own_only:
        if user not in (None, caller.owner.user):
            raise NotAllowed("must be the user of your key: you see your own schedules only", field="owner")
        user = caller.owner.user
    labels, phases = dict(arguments.labels), arguments.phase or []
    if arguments.label is not None:
        name, _, value = arguments.label.partition("=")
        labels[name] = value
    selection = ScheduleFilter(
        user=user,
        phases=frozenset(phases),
        labels=labels,
        text=arguments.text,
        name=arguments.name,
        target=arguments.route,
    )
    if isinstance(arguments, ScheduleFilters):
        ended_as = {phase for phase, state in ENDED.items() if state in (arguments.last_state or ())}
        selection = replace(
            selection,
            next_since=arguments.next_after,
            next_until=arguments.next_before,
            last_phases=frozenset({*(arguments.last_phase or ()), *ended_as}),
        )
    return selection, arguments.include_deleted or phases == [SchedulePhase.DELETED]


def trigger_types(arguments: ScheduleFilters) -> frozenset[str]:
    """The types of trigger that a filter names."""
    return frozenset(trigger_type for kind in arguments.kind or () for trigger_type in KINDS[kind])


def _workflow(stored: StoredSchedule) -> str | None:
    target = stored.schedule.declaration.target
    return target.workflow_id if isinstance(target, WorkflowTarget) else None
