"""The bundle runner: finds the bundle that a schedule names, and runs what its manifest says.

A command is started in a copy of the files. A function, a request and a workflow are passed on to their own targets.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noonmark.core.bundles.manifest import Manifest, parse_manifest
from noonmark.core.errors import InvalidBundle, NoonmarkError
from noonmark.core.frozen import frozen
from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.instants import HOUR, from_micros, to_text
from noonmark.core.occurrence import pinned_target
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.reasons import Reason
from noonmark.core.redaction import Redactor
from noonmark.core.settlement import Suspended, run_id
from noonmark.core.targets import BundleTarget, CommandTarget, FunctionTarget, WorkflowTarget, parse_target
from noonmark.core.targets.command import ANY
from noonmark.targets.bundle.preflight import service_problem
from noonmark.targets.command.client import CommandRequest
from noonmark.targets.command.programs import ProgramPolicy, environment, find_program
from noonmark.targets.command.runner import CommandRunner, event_of
from noonmark.targets.outcomes import undeliverable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import ExitStack

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Delivered
    from noonmark.core.targets import Target as TargetDocument
    from noonmark.ports.bundles import Bundle
    from noonmark.ports.store import Store
    from noonmark.ports.target import Assignment, Report, Target
    from noonmark.targets.bundle.cache import BundleCache
    from noonmark.targets.bundle.resources import NodeResources
    from noonmark.targets.command.orphans import OrphanReaper
    from noonmark.targets.secrets import SecretResolver

PYTHON = ("python", "python3")
"""Programs that are the interpreter of this node where PATH has none."""
SERVICE_PATIENCE: Micros = HOUR
"""How long a run waits for a service that does not answer, unless its schedule says otherwise."""


@frozen
class _Job:
    """What an assignment runs."""

    bundle: Bundle
    manifest: Manifest
    inputs: dict[str, Any]


class BundleRunner(CommandRunner):
    """Runs bundles."""

    def __init__(
        self,
        store: Store,
        orphans: OrphanReaper,
        secrets: SecretResolver,
        cache: BundleCache,
        resources: NodeResources,
        others: Mapping[str, Target],
    ) -> None:
        """`others` are the targets for the kinds of work that are not commands."""
        super().__init__(ProgramPolicy((ANY,)), orphans, secrets)
        self._store, self._cache, self._resources, self._others = store, cache, resources, others
        self._resolver = secrets
        self._loop: asyncio.AbstractEventLoop | None = None

    def routes(self) -> tuple[str, ...]:
        """Return the route of bundles without labels, and those of the labels of this node."""
        return self._resources.offer.routes()

    def adopt(self, routes: Collection[str]) -> bool:  # noqa: ARG002 - required by the port
        """Adopt nothing: what it serves is settled."""
        return False

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Prepare the threads. Other targets get their work on the current event loop."""
        super().open(report, now)
        self._loop = asyncio.get_running_loop()

    def _deliver_one(self, assignment: Assignment) -> Delivered | Suspended | None:
        """Find the bundle, and run it, pass it on, or wait for what it needs."""
        try:
            job = self._resolve(assignment)
            assignment.schedule = _with_terms(assignment, job.manifest)
        except LookupError as error:
            return undeliverable(str(error.args[0]), now=self._now())
        except NoonmarkError as error:
            return undeliverable(f"the bundle could not be read: {error}", now=self._now())
        if assignment.occurrence.stop is not None and job.manifest.kind == "workflow":
            return self._pass_on(assignment, job)  # it ends, and may undo something: that needs no resources
        demand = job.manifest.resources
        short = self._resources.take(demand) if demand.is_demanding else None
        if short is not None:
            return self._wait_for(assignment, Reason.RESOURCES_SHORT, short, patience=None)
        try:
            if (problem := service_problem(job.manifest.services)) is not None:
                return self._wait_for(assignment, Reason.SERVICE_UNAVAILABLE, problem, patience=SERVICE_PATIENCE)
            if job.manifest.kind != "command":
                return self._pass_on(assignment, job)
            delivered = self._run(assignment, partial(self._bundle_request, job))
            return _with_bundle(delivered, job.bundle)
        finally:
            if demand.is_demanding:
                self._resources.give_back(demand)

    def _resolve(self, assignment: Assignment) -> _Job:
        """Find the archive that the occurrence began with, or that the target names; LookupError if there is none."""
        schedule = assignment.schedule
        target = pinned_target(schedule.declaration.target, assignment.occurrence.bundle)
        if not isinstance(target, BundleTarget):
            raise LookupError(f"a {target.kind} target is not a bundle")
        bundle = self._store.find_bundle(schedule.owner.tenant, target.bundle_id, digest=target.digest)
        if bundle is None:
            named = target.bundle_id or target.digest
            raise LookupError(f"there is no bundle {named!r}; push it with `noonmark bundle push`")
        manifest = parse_manifest(bundle.manifest, now=from_micros(self._now()), bundle_id=bundle.bundle_id)
        return _Job(bundle, manifest, manifest.inputs | target.inputs)

    def _wait_for(
        self, assignment: Assignment, reason: Reason, problem: str, *, patience: Micros | None
    ) -> Delivered | Suspended:
        """Give the occurrence back until a node may try again; its attempt does not count."""
        target = assignment.schedule.declaration.target
        assert isinstance(target, BundleTarget)  # noqa: S101 - it was resolved
        now, waits = self._now(), target.resource_wait
        longest = patience if waits.max_wait is None else waits.max_wait
        if longest is not None and now >= assignment.occurrence.first_due + longest:
            return replace(undeliverable(f"it waited as long as it may: {problem}", now=now), is_final=True)
        until = now + waits.retry
        if longest is not None:
            until = min(until, assignment.occurrence.first_due + longest)
        return Suspended(
            started=now,
            ended=now,
            until=until,
            waiting_for=reason,
            open_steps=frozenset(),
            error=problem,
        )

    def _pass_on(self, assignment: Assignment, job: _Job) -> Delivered | None:
        """Let the target of another kind deliver it."""
        kind = job.manifest.kind
        other = self._others.get(kind)
        if other is None or self._loop is None:
            return undeliverable(f"this node does not run bundles of kind {kind}", now=self._now())
        declared = replace(assignment.schedule.declaration, target=_target_of(job))
        assignment.schedule = replace(assignment.schedule, declaration=declared)
        try:
            self._loop.call_soon_threadsafe(other.deliver, [assignment])
        except RuntimeError:  # the node has stopped, and handed it back
            return undeliverable("this node is stopping", now=self._now())
        return None

    def _bundle_request(self, job: _Job, assignment: Assignment, cleanup: ExitStack) -> CommandRequest:
        """Return what to start, in a folder of its own that `cleanup` removes."""
        bundle, manifest = job.bundle, job.manifest
        scratch = Path(cleanup.enter_context(self._directories.create()))
        files, home = scratch / "bundle", scratch / "home"
        home.mkdir()
        try:
            self._cache.copy(bundle, partial(self._store.bundle_chunk, bundle.tenant, bundle.content_id), files)
            secrets = self._resolver.variables(bundle.tenant, manifest.secret_env, f"bundle:{bundle.bundle_id}")
        except (InvalidBundle, ValueError) as error:
            raise LookupError(f"the bundle {bundle.bundle_id!r} was not started: {error}") from None
        dispatch, usage_file = scratch / "dispatch.json", scratch / "usage.json"
        document = _dispatch(assignment, job)
        dispatch.write_text(json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8")
        variables = {
            **self._run_variables(assignment, str(usage_file)),
            "NOONMARK_REASON": document["reason"],
            "NOONMARK_BUNDLE_ID": bundle.bundle_id,
            "NOONMARK_BUNDLE_DIGEST": bundle.digest,
            "NOONMARK_DISPATCH_FILE": str(dispatch),
        }
        target = CommandTarget(argv=manifest.command, env=manifest.env | secrets)
        return CommandRequest(
            program=_program(manifest.command[0], files),
            argv=manifest.command,
            env=environment(target, variables, str(home)),
            cwd=str(files),
            limits={},
            stdin=json.dumps(document["payload"], ensure_ascii=False).encode(),
            redactor=Redactor(secrets.values()) if secrets else None,
            usage_file=str(usage_file),
        )


def _with_terms(assignment: Assignment, manifest: Manifest) -> Schedule:
    """The schedule of an assignment with the timeout and the retries of the manifest, where it has none."""
    declared = assignment.schedule.declaration
    if declared.timeout is None and manifest.timeout is not None:
        declared = replace(declared, timeout=manifest.timeout)
    if declared.retry_policy == RetryPolicy():
        declared = replace(declared, retry_policy=manifest.retry)
    return replace(assignment.schedule, declaration=declared)


def _with_bundle(delivered: Delivered, bundle: Bundle) -> Delivered:
    """The end of a run with the bundle that it ran."""
    if not isinstance(delivered.result, dict):
        return delivered
    ran = {"bundle_id": bundle.bundle_id, "digest": bundle.digest}
    return replace(delivered, result={**delivered.result, "bundle": ran})


def _target_of(job: _Job) -> TargetDocument:
    """The target that a bundle without a command stands for."""
    manifest, inputs = job.manifest, job.inputs
    if manifest.function is not None:
        return FunctionTarget(function=manifest.function, kwargs=inputs)
    if manifest.http is not None:
        body = {"body": inputs} if inputs and "body" not in manifest.http else {}
        return parse_target({"target_kind": "http", **manifest.http, **body})
    return WorkflowTarget(workflow_id=job.bundle.bundle_id, version=job.bundle.workflow_version, inputs=inputs)


def _program(name: str, files: Path) -> str:
    """The file of a program: in the bundle, by an absolute path, or from PATH; LookupError if there is none."""
    if "/" in name and not name.startswith("/"):
        path = (files / name).resolve()
        if not path.is_relative_to(files.resolve()) or not path.is_file():
            raise LookupError(f"the bundle has no file {name!r}")
        path.chmod(0o700)  # archives made on some systems do not say what is a program
        return str(path)
    program = find_program(name)
    if program is None and name in PYTHON:
        program = sys.executable
    if program is None:
        raise LookupError(f"{name!r} was not found on this node, or is not a program")
    return program


def _dispatch(assignment: Assignment, job: _Job) -> dict[str, Any]:
    """The environment of a run."""
    occurrence, event = assignment.occurrence, event_of(assignment.occurrence)
    payload = occurrence.payload if event is None else event["payload"]
    return {
        "schedule_id": occurrence.schedule_id,
        "schedule_name": assignment.schedule.declaration.name,
        "occurrence_id": occurrence.id,
        "run_id": run_id(occurrence),
        "attempt": occurrence.attempt,
        "nominal_time": to_text(occurrence.nominal),
        "reason": _reason(assignment),
        "event": event,
        "inputs": job.inputs,
        "payload": job.inputs if payload is None else payload,
        "bundle": {"bundle_id": job.bundle.bundle_id, "digest": job.bundle.digest},
    }


def _reason(assignment: Assignment) -> str:
    """Why it runs, in the words of job manifests."""
    kind = kind_of(assignment.occurrence.origin)
    if kind is not OriginKind.TRIGGER:
        return str(kind)
    trigger = assignment.schedule.declaration.trigger
    return "delayed" if trigger is not None and trigger.type == "once" else "periodic"
