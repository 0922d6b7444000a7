"""Bundles: list, get, delete, run; and the intake of an archive, which is stored piece by piece as it arrives.

A push makes the archive the newest of its id, declares the schedules of its manifest, and emits an event.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.bundles.archive import ArchiveLimits, invalid_bundle
from noonmark.core.bundles.manifest import (
    BUNDLE_LABEL,
    Manifest,
    bundle_name,
    needs_of_manifest,
    parse_manifest,
)
from noonmark.core.bundles.zip_file import BundleZip, ChunkReader
from noonmark.core.errors import (
    Conflict,
    InvalidBundle,
    InvalidSchedule,
    NotAllowed,
    NotFound,
    PayloadTooLarge,
    Problem,
)
from noonmark.core.event import Event
from noonmark.core.ids import HIDDEN
from noonmark.core.instants import from_micros, to_text
from noonmark.core.json_values import shown
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import first_plan
from noonmark.core.policies.misfire import Skip
from noonmark.core.policies.overlap import Allow
from noonmark.core.program_ownership import BY_MODULE
from noonmark.core.quotas import Quota, Resource, Scope
from noonmark.core.schedule import Declaration, Schedule, parse_schedule
from noonmark.core.targets import BundleTarget, FunctionTarget
from noonmark.core.triggers import EventTrigger
from noonmark.operations import occurrences, schedule_edits, schedules, workflows
from noonmark.operations.models.arguments import Deletion, RunRequest
from noonmark.operations.models.fields import ArgumentReader
from noonmark.operations.service import cause_of_event
from noonmark.ports.bundles import CHUNK, Bundle
from noonmark.ports.records import ScheduleFilter
from noonmark.ports.workflows import UsedKind

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.bundles.manifest import ManagedSchedule
    from noonmark.core.instants import Micros
    from noonmark.operations.models.arguments import BundleQuery, BundleRun, OneBundle
    from noonmark.operations.service import BundleLimits, Caller, Service

PUSH = "bundle/push"
"""What the audit log calls a push. It is not in the table of operations, because an archive is not JSON."""
EVENT_TYPE = "bundle_uploaded"
SOURCE = "bundle"
RUNS = f"{HIDDEN}bundle:"
"""The ids of the schedules that carry runs without a schedule begin like this; callers cannot choose such an id."""
MAX_MANAGED = 200
MAX_VERSIONS = 100
MAX_MOVED = 10_000
NOT_ALLOWED = "this server takes no bundles, because a bundle is code: `noonmark serve --allow-bundles` allows them"


def list_bundles(service: Service, caller: Caller, arguments: BundleQuery) -> dict[str, Any]:
    """List the bundles by id, each with its newest archive."""
    bundles = service.store.bundles(caller.owner.tenant, arguments.limit + 1, after=arguments.cursor)
    page = bundles[: arguments.limit]
    following = page[-1].bundle_id if len(bundles) > arguments.limit else None
    return {"bundles": [bundle_document(bundle) for bundle in page], "next_cursor": following}


def get_bundle(service: Service, caller: Caller, arguments: OneBundle) -> dict[str, Any]:
    """Get a bundle: its manifest, its archives, newest first, and the schedules that its manifest declares."""
    bundle = _find(service, caller, arguments.bundle_id)
    versions = service.store.bundle_versions(caller.owner.tenant, bundle.bundle_id, MAX_VERSIONS)
    managed = _managed(service, caller.owner.tenant, bundle.bundle_id)
    return bundle_document(bundle) | {
        "manifest": bundle.manifest,
        "versions": [
            {"digest": one.digest, "size": one.size, "pushed_at_utc": to_text(one.pushed)} for one in versions
        ],
        "schedules": sorted(managed),
    }


def delete_bundle(service: Service, caller: Caller, arguments: OneBundle) -> dict[str, Any]:
    """Delete a bundle with all its archives; a conflict while a schedule names it, or a run of it has not ended."""
    bundle = _find(service, caller, arguments.bundle_id)
    entry = caller.audit(f"bundle {bundle.bundle_id}")(None, None, now=service.store.clock())
    used = service.store.delete_bundle(caller.owner.tenant, bundle.bundle_id, note=entry)
    if used and service.store.known(used):
        raise Conflict(f"occurrences run it: {', '.join(used)}; wait for their ends, or cancel them", field="bundle_id")
    if used:
        raise Conflict(f"schedules name it: {', '.join(used)}; delete them first", field="bundle_id")
    return bundle_document(bundle)


def run_bundle(service: Service, caller: Caller, arguments: BundleRun) -> dict[str, Any]:
    """Run a bundle now, without a schedule. The same key again returns the same occurrence."""
    check_allowed(service)
    bundle = _find(service, caller, arguments.bundle_id)
    schedule_id = f"{RUNS}{bundle.bundle_id}"
    if service.store.find(caller.owner.tenant, schedule_id) is None:
        _create_carrier(service, caller, schedule_id, bundle)
    about = f"bundle {bundle.bundle_id} {bundle.digest[:12]}"
    request = RunRequest(schedule_id=schedule_id, payload=arguments.payload, key=arguments.key, reason=about)
    return occurrences.run_schedule(service, caller, request)


def _create_carrier(service: Service, caller: Caller, schedule_id: str, bundle: Bundle) -> None:
    """Create the schedule that carries the runs of a bundle without a schedule; its trigger never fires."""
    now = service.store.clock()
    needed = parse_manifest(bundle.manifest, now=from_micros(now), bundle_id=bundle.bundle_id).resources
    declaration = Declaration(
        target=BundleTarget(bundle_id=bundle.bundle_id, labels=needed.labels, slots=needed.slots),
        trigger=EventTrigger("noonmark.hidden", {"never": []}),
        overlap_policy=Allow(),
        misfire_policy=Skip(),
    )
    schedule = Schedule(
        uid=service.fresh_id(),
        schedule_id=schedule_id,
        owner=caller.owner,
        declaration=declaration,
        revision=1,
        phase=SchedulePhase.ACTIVE,
        source=caller.source,
        created=now,
        updated=now,
    )
    service.store.create([first_plan(schedule, lookahead=service.lookahead)])


def check_allowed(service: Service) -> BundleLimits:
    """How large bundles may be; NotAllowed where none are taken."""
    if service.bundle_limits is None:
        raise NotAllowed(NOT_ALLOWED)
    return service.bundle_limits


def bundle_document(bundle: Bundle) -> dict[str, Any]:
    """A bundle without its manifest."""
    return {
        "bundle_id": bundle.bundle_id,
        "digest": bundle.digest,
        "name": bundle.manifest.get("name") or bundle.manifest.get("job_name") or bundle.bundle_id,
        "size": bundle.size,
        "files": bundle.files,
        "target": _target(bundle),
        "pushed_by": bundle.user,
        "created_at_utc": to_text(bundle.created),
        "pushed_at_utc": to_text(bundle.pushed),
    }


def _target(bundle: Bundle) -> dict[str, Any]:
    return {"target_kind": "bundle", "bundle_id": bundle.bundle_id} | needs_of_manifest(bundle.manifest)


class Intake:
    """The intake of one archive. Always call `drop` in the end, whether or not it was kept."""

    def __init__(self, service: Service, caller: Caller, bundle_id: str | None = None) -> None:
        """Without an id, the name in the manifest is the id."""
        limits = check_allowed(service)
        reader = ArgumentReader({"bundle_id": bundle_id})
        self._bundle_id = reader.read("bundle_id", bundle_name, None)
        reader.done()
        self._service, self._caller = service, replace(caller, operation=PUSH)
        self._tenant, self._content_id = caller.owner.tenant, service.fresh_id()
        self._max_bytes = limits.max_bytes
        self._quota = Quota(Resource.BUNDLE_BYTES, Scope.TENANT, limits.quota_bytes)
        self._buffer, self._digest = bytearray(), hashlib.sha256()
        self._size = self._number = 0

    @property
    def max_bytes(self) -> int:
        """The maximum size of an archive."""
        return self._max_bytes

    def write(self, data: bytes) -> None:
        """Store the next piece; PayloadTooLarge or QuotaExceeded as soon as it exceeds a limit."""
        self._size += len(data)
        if self._size > self._max_bytes:
            raise too_large(self._max_bytes)
        self._digest.update(data)
        self._buffer += data
        while len(self._buffer) >= CHUNK:
            self._store_chunk()

    def finish(self, filename: str | None = None, *, declares: bool = True) -> dict[str, Any]:
        """Check the archive, make it the newest of its id, and do what its manifest says; returns what was done.

        Its schedules are left as they are unless it `declares` them.
        """
        service, caller, store = self._service, self._caller, self._service.store
        if self._buffer or not self._number:
            self._store_chunk()
        manifest, files = self._read()
        if not declares:
            manifest = replace(manifest, schedules=())
        bundle_id = self._bundle_id or manifest.name
        _check_manifest(service, caller, bundle_id, manifest)
        now = store.clock()
        digest = self._digest.hexdigest()
        payload = {
            "bundle_id": bundle_id,
            "name": manifest.name,
            "digest": digest,
            "size": self._size,
            "files": files,
        } | ({} if filename is None else {"filename": filename})
        event = Event(event_type=EVENT_TYPE, emitted=now, source=SOURCE, payload=payload)
        behind = cause_of_event(service, caller, event)
        bundle = Bundle(
            tenant=self._tenant,
            bundle_id=bundle_id,
            digest=digest,
            manifest=manifest.document,
            size=self._size,
            files=files,
            content_id=self._content_id,
            user=caller.owner.user,
            source=caller.source,
            created=now,
            pushed=now,
        )
        if isinstance(manifest.workflow, dict):
            bundle = replace(bundle, workflow_version=_create_workflow(service, caller, bundle_id, manifest.workflow))
        entry = caller.audit(f"bundle {bundle_id} {digest[:12]}")(None, None, now=now)
        before = store.find_bundle(self._tenant, bundle_id)
        stored = store.keep_bundle(bundle, note=entry)
        if stored is None:
            raise Conflict("the push took so long that it was dropped; push it again")
        _move_schedules(service, caller, stored, {} if before is None else needs_of_manifest(before.manifest))
        nothing: dict[str, Any] = {"schedules": [], "triggers": []}
        declared = _declare(service, caller, bundle_id, manifest) if declares else nothing
        event_id = f"evt_bundle_{digest[:16]}_{stored.pushed:x}"
        store.emit(self._tenant, [replace(event, event_id=event_id, behind=behind)])
        service.wake(None)
        return bundle_document(stored) | {"event_id": event_id} | declared

    def drop(self) -> None:
        """Forget what has come, unless it was kept."""
        if self._number:
            self._service.store.drop_bundle_push(self._tenant, self._content_id)

    def _store_chunk(self) -> None:
        chunk = bytes(self._buffer[:CHUNK])
        self._service.store.add_bundle_chunk(self._tenant, self._content_id, self._number, chunk, limits=(self._quota,))
        del self._buffer[:CHUNK]
        self._number += 1

    def _read(self) -> tuple[Manifest, int]:
        """Read the manifest from the stored archive, and every file to its end."""
        read = partial(self._service.store.bundle_chunk, self._tenant, self._content_id)
        stream = io.BufferedReader(ChunkReader(read, self._size, CHUNK))
        archive = BundleZip(stream, self._size, ArchiveLimits(max_bytes=max(4 * self._max_bytes, 1)))
        now = from_micros(self._service.store.clock())
        manifest = parse_manifest(archive.document(), now=now, bundle_id=self._bundle_id)
        if isinstance(manifest.workflow, str):
            manifest = replace(manifest, workflow=archive.document(manifest.workflow))
        archive.check()
        return manifest, archive.files


def too_large(max_bytes: int) -> PayloadTooLarge:
    """The error for an archive that is too large."""
    return PayloadTooLarge(f"the bundle is larger than {max_bytes:,} bytes")


def _find(service: Service, caller: Caller, bundle_id: str) -> Bundle:
    bundle = service.store.find_bundle(caller.owner.tenant, bundle_id)
    if bundle is None:
        raise NotFound(f"there is no bundle {shown(bundle_id)}", field="bundle_id")
    return bundle


def _check_manifest(service: Service, caller: Caller, bundle_id: str, manifest: Manifest) -> None:
    """Refuse a manifest that asks for more than the caller may have, or for a schedule of somebody else."""
    _check_permissions(service, caller.owner.tenant, bundle_id, manifest.function)
    problems: list[Problem] = []
    if manifest.function is not None and BY_MODULE in manifest.function:
        message = "must be the name under which a node has registered the function"
        problems.append(Problem("function", message, InvalidBundle.code))
    now = from_micros(service.store.clock())
    for managed in manifest.schedules:
        stored = service.store.find(caller.owner.tenant, managed.schedule_id)
        if stored is None:
            problems += _schedule_problems(managed, now)
        elif stored.schedule.declaration.labels.get(BUNDLE_LABEL) != bundle_id:
            message = f"there is a schedule {managed.schedule_id} already, which does not belong to this bundle"
            raise Conflict(message, field=managed.place)
    if problems:
        raise invalid_bundle(problems)


def _check_permissions(service: Service, tenant: str, bundle_id: str, function: str | None) -> None:
    if service.permissions is None:
        return
    if (refused := service.permissions.bundle_problem(tenant, bundle_id)) is not None:
        raise NotAllowed(refused[1], field="bundle_id")
    if function is None:
        return
    if (refused := service.permissions.problem(tenant, FunctionTarget(function=function))) is not None:
        raise NotAllowed(refused[1], field="function")


def _schedule_problems(managed: ManagedSchedule, now: datetime) -> list[Problem]:
    """Why a schedule of a manifest cannot be created now: its time has passed."""
    try:
        parse_schedule(managed.document, now=now)
    except InvalidSchedule as error:
        return [Problem(f"{managed.place}.{one.field}", one.message, one.code) for one in error.problems]
    return []


def _create_workflow(service: Service, caller: Caller, bundle_id: str, definition: dict[str, Any]) -> int:
    """Store the workflow of a bundle under the id of the bundle, and return its version."""
    try:
        created = workflows.create_workflow(service, caller, {**definition, "workflow_id": bundle_id})
    except InvalidSchedule as error:
        place = "workflow" if error.field == "" else f"workflow.{error.field}"
        problems = [Problem(f"workflow.{one.field}", one.message, one.code) for one in error.problems]
        raise InvalidBundle(error.message, field=place, problems=problems) from None
    version: int = created["version"]
    return version


def _move_schedules(service: Service, caller: Caller, bundle: Bundle, before: dict[str, Any]) -> None:
    """Lead schedules that asked for the labels and slots of the bundle to nodes that have its new ones."""
    needs = needs_of_manifest(bundle.manifest)
    if needs == before:
        return
    old, new = ((one.get("labels", {}), one.get("slots", 0)) for one in (before, needs))
    using = service.store.schedules_using(bundle.tenant, UsedKind.BUNDLE, bundle.bundle_id, MAX_MOVED)

    def moved(schedule: Schedule, now: Micros) -> Declaration:  # noqa: ARG001 - the signature of an edit
        target = schedule.declaration.target
        if not isinstance(target, BundleTarget) or (target.labels, target.slots) != old:
            return schedule.declaration
        return replace(schedule.declaration, target=replace(target, labels=new[0], slots=new[1]))

    for schedule_id in {*using, f"{RUNS}{bundle.bundle_id}"}:
        if (stored := service.store.find(bundle.tenant, schedule_id)) is not None:
            audit = caller.audit(f"what bundle {bundle.bundle_id} needs of nodes")
            schedule_edits.declare(service.store, stored.schedule.uid, moved, lookahead=service.lookahead, audit=audit)


def _declare(service: Service, caller: Caller, bundle_id: str, manifest: Manifest) -> dict[str, Any]:
    """Declare the schedules of a manifest, and delete those that it no longer has; returns what was done."""
    known = _managed(service, caller.owner.tenant, bundle_id)
    done: dict[str, list[dict[str, Any]]] = {"schedules": [], "triggers": []}
    for managed in manifest.schedules:
        before = known.pop(managed.schedule_id, None)
        written = schedules.upsert_schedule(service, caller, managed.document)
        is_same = before is not None and before == written["revision"]
        action = "created" if before is None else "unchanged" if is_same else "updated"
        kind = "schedules" if managed.place == "schedule" else "triggers"
        done[kind].append({"schedule_id": managed.schedule_id, "name": written["name"], "action": action})
    for schedule_id in sorted(known):
        schedules.delete_schedule(service, caller, Deletion(schedule_id=schedule_id))
        kind = "schedules" if schedule_id == f"{bundle_id}.schedule" else "triggers"
        done[kind].append({"schedule_id": schedule_id, "name": None, "action": "deleted"})
    return done


def _managed(service: Service, tenant: str, bundle_id: str) -> dict[str, int]:
    """The schedules that belong to a bundle, with their revisions."""
    wanted = ScheduleFilter(labels={BUNDLE_LABEL: bundle_id})
    schedules = service.store.schedules(tenant, limit=MAX_MANAGED, wanted=wanted)
    return {one.schedule.schedule_id: one.schedule.revision for one in schedules}
