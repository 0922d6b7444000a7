"""The workflow runner: carries out the runs that this node holds, from one thread.

The thread takes what has happened since it last looked (runs that begin, steps that ended, stop requests, timers),
decides what follows for each run it concerns, writes all of it in one transaction, and only then starts the next steps.
So steps of many runs that end at about the same time share a commit, and a step that was written as ended never begins
again. If nothing of a run is left to do here, the run is suspended, and gives up its node.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import replace
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, cast

from noonmark.core.budgets.reported import total
from noonmark.core.bundles.manifest import needs_of_manifest
from noonmark.core.errors import NoonmarkError
from noonmark.core.ids import is_hidden
from noonmark.core.instants import SECOND
from noonmark.core.occurrence import CONTINUED
from noonmark.core.occurrence_facts import occurrence_facts
from noonmark.core.reasons import Reason
from noonmark.core.run import progress_result
from noonmark.core.schedule import TRUSTED
from noonmark.core.settlement import Delivered, RunInProgress
from noonmark.core.targets import AGENT_KINDS, BundleTarget, WorkflowTarget
from noonmark.core.targets.http import HttpTarget
from noonmark.core.workflows.definition import check_inputs, restore_definition
from noonmark.core.workflows.flows import flow_definition, flow_inputs, flow_of
from noonmark.core.workflows.progress import for_next_attempt
from noonmark.core.workflows.run import Compensation, WorkflowRun
from noonmark.ports.workflows import WorkflowVersion
from noonmark.targets.outcomes import not_started, stopped, undeliverable
from noonmark.targets.process_control import StopSignal
from noonmark.targets.worker_pool import may_redeliver
from noonmark.targets.workflow.active_run import LOST_GRACE, ActiveRun
from noonmark.targets.workflow.deliveries import HiddenSchedules, child_occurrence, step_assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from noonmark.core.budgets.spend import Usage
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.targets import Target as TargetDocument
    from noonmark.core.targets.mob import MobFlowTarget
    from noonmark.core.workflows.definition import Definition
    from noonmark.core.workflows.progress import Start
    from noonmark.core.workflows.run import StepKey, StepRecord
    from noonmark.ports.store import Store
    from noonmark.ports.target import Assignment, Report, Reported, Target
    from noonmark.targets.workflow.active_run import Commit

    Message = tuple[str, Assignment, Reported | None]

logger = logging.getLogger("noonmark.jobs")

HOLD: Micros = 2 * SECOND
"""A run that waits no longer than this keeps its node."""
LOOK_PAUSE: Micros = SECOND // 5
"""The least time between two looks for ends that others have written: a busy node is woken many times a second."""
STORE_PAUSE: Micros = SECOND // 2
"""Time between two tries to reach a store that is away."""
MAX_BATCH = 500
"""How many runs are written in one transaction."""
REDRIVE = "redrive:"
"""Begins the key of an occurrence that runs an ended one again; the id of that one follows."""
BEGIN, REPORT, STOP = "begin", "report", "stop"


class WorkflowRunner:
    """Runs workflows."""

    def __init__(self, store: Store, *, has_callbacks: bool = False, is_inline: bool = False) -> None:
        """With `has_callbacks`, receivers of requests may report the end of the work later.

        Then requests are occurrences of their own, which such a report can name. Inline, everything happens in the
        thread that delivers.
        """
        self._store, self._has_callbacks, self._is_inline = store, has_callbacks, is_inline
        self._targets: Target | None = None
        self._hidden = HiddenSchedules(store)
        self._lock = threading.Condition()
        self._messages: deque[Message] = deque()
        self._queued: set[Assignment] = set()
        """Assignments that have not begun."""
        self._runs: dict[str, ActiveRun] = {}
        self._steps: dict[Assignment, tuple[ActiveRun, StepKey]] = {}
        """The step of each assignment that was delivered."""
        self._timers: list[tuple[Micros, int, Assignment]] = []
        """When to begin a run, or to look at one again."""
        self._awaiting: dict[str, ActiveRun] = {}
        """The runs that are held here, and of which others are to end something."""
        self._is_woken = False
        """Whether somebody may have ended something of them since the last look."""
        self._look_at: Micros = 0
        """When to look at the earliest."""
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._is_closed = self._is_draining = False
        self._restore = lru_cache(maxsize=256)(_restore)
        self._versions: dict[tuple[str, str, int | None], WorkflowVersion] = {}
        """The versions that were looked up in this turn: runs that begin together are often of one workflow."""
        self._served: frozenset[str] | None = None
        """The routes that are served, once they were asked for in this turn."""

    def attach(self, targets: Target) -> None:
        """Deliver steps to these targets."""
        self._targets = targets

    def routes(self) -> tuple[str, ...]:
        """Return the one route of all workflows."""
        return (WorkflowTarget.route,)

    def adopt(self, routes: Collection[str]) -> bool:  # noqa: ARG002 - required by the port
        """Return False: the only route is always served."""
        return False

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Remember where to report. The thread starts with the first run."""
        self._report, self._now = report, now

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Begin each run when it is due."""
        for assignment in assignments:
            assignment.signal = StopSignal(partial(self._put, (STOP, assignment, None)))
            assignment.ends_soon = True
        with self._lock:
            self._queued.update(assignments)
            self._messages.extend((BEGIN, assignment, None) for assignment in assignments)
            if self._thread is None and not self._is_inline and not self._is_closed:
                self._thread = threading.Thread(target=self._serve, name="noonmark-workflows", daemon=True)
                self._thread.start()
            self._lock.notify()
        if self._is_inline:
            self._drain()

    def withdraw(self) -> list[Assignment]:
        """Take back runs that have not begun and may be delivered again."""
        with self._lock:
            queued = [assignment for assignment in self._queued if may_redeliver(assignment)]
            self._queued.difference_update(queued)
        return queued

    def close(self) -> None:
        """Begin nothing more. What still runs is handed back by the node."""
        with self._lock:
            self._is_closed = True
            self._lock.notify()

    def wake(self) -> None:
        """Look soon for ends that others have written. From any thread."""
        with self._lock:
            self._is_woken = True
            if self._awaiting:
                self._lock.notify()

    def _put(self, message: Message) -> None:
        with self._lock:
            self._messages.append(message)
            self._lock.notify()
        if self._is_inline:
            self._drain()

    def _on_report(self, assignment: Assignment, reported: Reported) -> None:
        """Take the end of a step; from any thread."""
        if not isinstance(reported, RunInProgress):
            self._put((REPORT, assignment, reported))

    # The thread

    def _serve(self) -> None:
        while not self._is_closed:
            messages = self._wait()
            try:
                self._handle(messages)
            except Exception:
                logger.exception("a workflow could not go on")

    def _drain(self) -> None:
        """Handle everything in this thread, and what follows from it."""
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while messages := self._take():
                self._handle(messages)
        finally:
            self._is_draining = False

    def _take(self) -> list[Message]:
        with self._lock:
            messages = list(self._messages)
            self._messages.clear()
            return messages

    def _wait(self) -> list[Message]:
        with self._lock:
            while not self._messages and not self._is_closed:
                times = [self._timers[0][0]] if self._timers else []
                times += [self._look_at] if self._is_woken and self._awaiting else []
                pause = max(0, min(times) - self._now()) / SECOND if times else None
                if pause == 0:
                    break
                self._lock.wait(pause)
            messages = list(self._messages)
            self._messages.clear()
            return messages

    def _handle(self, messages: Iterable[Message]) -> None:
        """Take new events, and continue the runs that they concern."""
        now = self._now()
        self._versions.clear()
        self._served = None
        touched: dict[str, ActiveRun] = {}
        begun: list[Assignment] = []
        for kind, assignment, reported in messages:
            if kind == BEGIN:
                begun.append(assignment)
            elif (run := self._note(assignment, reported, now)) is not None:
                touched[run.occurrence.id] = run
        for assignment in self._due(now):
            if (run := self._run_of(assignment)) is not None:
                touched[run.occurrence.id] = run
            elif assignment in self._queued:
                begun.append(assignment)
        touched |= {run.occurrence.id: run for one in begun if (run := self._begin(one, now)) is not None}
        touched |= self._look_elsewhere(touched, now)
        for run in touched.values():
            if run.is_given_up:
                self._give_up(run, now)
        runs = [run for run in touched.values() if not run.is_given_up]
        for start in range(0, len(runs), MAX_BATCH):
            self._go_on(runs[start : start + MAX_BATCH], now)

    def _due(self, now: Micros) -> list[Assignment]:
        """The runs whose timers have come."""
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heappop(self._timers)[2])
        return due

    def _note(self, assignment: Assignment, reported: Reported | None, now: Micros) -> ActiveRun | None:
        """The run that a message concerns: one that is to stop, or one of whose steps has ended."""
        if reported is None:
            return self._run_of(assignment)
        run, key = self._steps.pop(assignment, (None, None))
        if run is None or key is None or self._run_of(run.assignment) is None:
            return None
        run.note_end(key, assignment, _ended(reported, now), now=now)
        return run

    def _run_of(self, assignment: Assignment) -> ActiveRun | None:
        """The run of an assignment that this node still holds."""
        run = self._runs.get(assignment.occurrence.id)
        return run if run is not None and run.assignment is assignment else None

    def _begin(self, assignment: Assignment, now: Micros) -> ActiveRun | None:
        """Take up a run; None if it has ended, or is to be tried again a little later."""
        with self._lock:
            if assignment not in self._queued:
                return None  # it was withdrawn
            self._queued.discard(assignment)
        if assignment.is_closed:
            return None
        if now < assignment.begins and not self._is_inline:
            self._begin_at(assignment, assignment.begins)
            return None
        assignment.started = max(now, assignment.begins)
        if assignment.stop_reason is Reason.LEASE_LOST:
            self._end(assignment, not_started(assignment, Reason.LEASE_LOST, now=now))
            return None
        try:
            run = self._load(assignment, now, may_have_begun=_may_have_begun(assignment.occurrence))
        except NoonmarkError as error:
            if error.code == "store_unavailable" and not self._is_inline:
                self._begin_at(assignment, now + STORE_PAUSE)
                return None
            self._end(assignment, replace(undeliverable(str(error), now=now), is_final=True))
            return None
        except (LookupError, ValueError) as error:
            self._end(assignment, replace(undeliverable(str(error.args[0]), now=now), is_final=True))
            return None
        self._runs[run.occurrence.id] = run
        return run

    def _begin_at(self, assignment: Assignment, when: Micros) -> None:
        with self._lock:
            self._queued.add(assignment)
        heappush(self._timers, (when, next(self._numbers), assignment))

    def _load(self, assignment: Assignment, now: Micros, *, may_have_begun: bool) -> ActiveRun:
        occurrence, tenant = assignment.occurrence, assignment.schedule.owner.tenant
        facts = occurrence_facts(assignment.schedule, occurrence)
        stored = self._store.workflow_run(occurrence.id) if may_have_begun else None
        clears = False
        if stored is None or not stored[0].has_begun:
            redriven = self._redriven(occurrence)
            run, version, records = self._new_run(assignment, redriven, now=now)
            clears = bool(records)
        else:
            run, steps = stored
            version = self._version(tenant, run.workflow_id, run.version)
            records = {record.key: record for record in steps}
            if occurrence.attempt > run.attempt:
                records, clears = for_next_attempt(records) or {}, True
                run = replace(run, attempt=occurrence.attempt, started=now, closing=None)
        definition = self._restore(_Document(version))
        facts["inputs"] = run.inputs
        return ActiveRun(assignment, version, definition, run, records, facts, clears=clears)

    def _target(self, assignment: Assignment) -> WorkflowTarget:
        """The workflow to run. A flow of a mob is run as a workflow, which is stored when it is first run."""
        target, owner = assignment.schedule.declaration.target, assignment.schedule.owner
        if isinstance(target, WorkflowTarget):
            return target
        if target.route != WorkflowTarget.route:
            raise LookupError(f"a {target.kind} target is not a workflow")
        target = cast("MobFlowTarget", target)
        mob = self._store.mob(owner.tenant, target.mob_id)
        flow = None if mob is None else flow_of(mob, target.flow_id)
        if mob is None or flow is None:
            raise LookupError(f"the mob {target.mob_id!r} has no flow {target.flow_id!r}")
        definition = restore_definition(flow_definition(target.mob_id, target.flow_id, flow))
        version = self._store.put_workflow(
            WorkflowVersion(
                tenant=owner.tenant,
                workflow_id=definition.workflow_id,
                document=definition.to_document(),
                digest=definition.digest,
                source=target.kind,
                created=self._now(),
                user=mob.user,
            )
        )
        number = None if version is None else version.version
        return WorkflowTarget(workflow_id=definition.workflow_id, version=number, inputs=flow_inputs(target.params))

    def _redriven(self, occurrence: Occurrence) -> tuple[WorkflowRun, list[StepRecord]] | None:
        """The run of the ended occurrence that this one runs again, if it does."""
        key = occurrence.origin.partition(":")[2]
        return self._store.workflow_run(key.removeprefix(REDRIVE)) if key.startswith(REDRIVE) else None

    def _new_run(
        self,
        assignment: Assignment,
        redriven: tuple[WorkflowRun, list[StepRecord]] | None,
        *,
        now: Micros,
    ) -> tuple[WorkflowRun, WorkflowVersion, dict[StepKey, StepRecord]]:
        occurrence, tenant = assignment.occurrence, assignment.schedule.owner.tenant
        records: dict[StepKey, StepRecord] = {}
        if redriven is None:
            target = self._target(assignment)
            version, schedule = self._version(tenant, target.workflow_id, target.version), assignment.schedule
            if not is_hidden(schedule.schedule_id):  # what a hidden one carries was checked before
                self._check_accepted(version, target, schedule.source)
            inputs = check_inputs(self._restore(_Document(version)), target.inputs)
        else:
            version = self._version(tenant, redriven[0].workflow_id, redriven[0].version)
            inputs = redriven[0].inputs
            records = for_next_attempt({record.key: record for record in redriven[1]}) or {}
        run = WorkflowRun(
            occurrence_id=occurrence.id,
            workflow_id=version.workflow_id,
            version=version.version,
            inputs=inputs,
            started=now,
            attempt=occurrence.attempt,
        )
        return run, version, records

    def _check_accepted(self, version: WorkflowVersion, target: WorkflowTarget, source: str) -> None:
        """Refuse inputs that callers would pass to the functions of a program that did not ask for any."""
        is_open = self._restore(_Document(version)).inputs is None
        if version.source == TRUSTED and source != TRUSTED and target.inputs and is_open:
            raise ValueError("a program declared this workflow without `inputs`, so it takes none from callers")

    def _version(self, tenant: str, workflow_id: str, number: int | None) -> WorkflowVersion:
        key = (tenant, workflow_id, number)
        if key not in self._versions:
            version = self._store.workflow(tenant, workflow_id, number, deleted=number is not None)
            if version is None:
                which = "" if number is None else f" version {number}"
                raise LookupError(f"there is no workflow {workflow_id!r}{which}")
            self._versions[key] = version
        return self._versions[key]

    def _look_elsewhere(self, touched: dict[str, ActiveRun], now: Micros) -> dict[str, ActiveRun]:
        """Take over the ends of steps that others have written; returns the runs that have some.

        That is done for runs that are looked at anyway, and for all that are held here when this node was woken. A
        suspended run needs no look: such an end resumes it.
        """
        waiting = {key: run for key, run in touched.items() if run.has_open_externals and run.under_way}
        with self._lock:
            if self._is_woken and now >= self._look_at:
                self._is_woken, self._look_at = False, now + LOOK_PAUSE
                waiting |= self._awaiting
        if not waiting:
            return {}
        try:
            ended = self._store.open_steps(list(waiting))
        except NoonmarkError:
            self._is_woken = True  # the next look will tell
            return {}
        return {key: waiting[key] for key, records in ended.items() if waiting[key].take_external(records)}

    def _go_on(self, runs: list[ActiveRun], now: Micros) -> None:
        """Decide what follows for some runs, write it together, and do it."""
        commits = [run.look(now=now, deliver=self._prepare) for run in runs]
        if self._is_closed:
            return
        try:
            written = self._store.commit_steps([commit.writes for commit in commits])
        except NoonmarkError as error:
            self._try_again(runs, commits, error)
            return
        starts: list[Assignment] = []
        for run, commit, is_held in zip(runs, commits, written, strict=True):
            if not is_held:
                self._lose(run, commit, now)
                continue
            run.note_written(commit)
            for key, assignment in commit.starts:
                self._steps[assignment] = run, key
                starts.append(assignment)
            is_dropped = self._drop(commit.dropped)
            if commit.writes.children or commit.dropped:
                self._report_progress(run, now, adds_work=True, stops_work=bool(commit.dropped))
            if is_dropped:
                self._conclude(run, now)
            else:  # an inner workflow that goes on would be waited for in vain
                self._wake_at(run, now + STORE_PAUSE)
        if starts and self._targets is not None:
            self._targets.deliver(starts)

    def _try_again(self, runs: list[ActiveRun], commits: list[Commit], error: NoonmarkError) -> None:
        """The store is away: nothing was started. What was decided is written as soon as it is back."""
        logger.warning("steps of %d workflow runs could not be written: %s; trying again", len(runs), error)
        for run, commit in zip(runs, commits, strict=True):
            run.put_off(commit)
            self._wake_at(run, self._now() + STORE_PAUSE)

    def _conclude(self, run: ActiveRun, now: Micros) -> None:
        """Report the end of a run, or that it waits; or look at it again at its time."""
        if run.end is not None:
            delivered = run.delivered(run.end, now=max(now, self._now()))
            self._finish(run, replace(delivered, usage=self._usage_of_agents(run)))
            return
        wake_at = run.wake_at
        if not run.under_way:
            is_soon = wake_at is not None and wake_at - now <= HOLD and not self._is_inline
            if not is_soon and not (wake_at is not None and wake_at <= now):
                self._finish(run, run.suspension(now=now))
                return
        self._note_awaiting(run)
        if wake_at is not None:
            self._wake_at(run, wake_at)
        if now - run.last_progress >= SECOND and run.under_way:
            self._report_progress(run, now)

    def _report_progress(self, run: ActiveRun, now: Micros, **work: bool) -> None:
        run.last_progress = now
        started, result = run.assignment.started or now, progress_result(run.progress)
        self._report(run.assignment, RunInProgress(started=started, result=result, **work))

    def _note_awaiting(self, run: ActiveRun) -> None:
        if run.has_open_externals:
            self._awaiting[run.occurrence.id] = run
        else:
            self._awaiting.pop(run.occurrence.id, None)

    def _usage_of_agents(self, run: ActiveRun) -> Usage | None:
        """What the agents in its steps have used, which ran as occurrences of their own."""
        if not any(step.kind in AGENT_KINDS for step in run.definition.steps):
            return None
        children = [record.child for record in run.records.values() if record.child is not None]
        try:
            reports = [self._store.run_usage(child) for child in children]
        except NoonmarkError:
            return None  # it is on record; only the sum is missing
        return total(one for one in reports if one is not None)

    def _wake_at(self, run: ActiveRun, when: Micros) -> None:
        if self._is_inline:
            with self._lock:
                self._messages.append((STOP, run.assignment, None))  # look again at once
            return
        heappush(self._timers, (when, next(self._numbers), run.assignment))

    def _prepare(
        self, run: ActiveRun, start: Start, target: TargetDocument
    ) -> Assignment | tuple[Occurrence, StepRecord]:
        """The delivery of a step here, or the occurrence that does it elsewhere, with the record that names it."""
        now = self._now()
        if self._runs_here(target, run.version.source):
            return step_assignment(
                run.assignment,
                run.version.source,
                start.step,
                start.record,
                target,
                self._on_report,
                undoes=start.is_compensation,
                now=now,
            )
        if isinstance(target, WorkflowTarget):
            inner = self._store.workflow(run.version.tenant, target.workflow_id, target.version)
            if inner is not None:
                self._check_accepted(inner, target, run.version.source)
        if isinstance(target, BundleTarget):
            bundle = self._store.find_bundle(run.version.tenant, target.bundle_id, digest=target.digest)
            needs = {} if bundle is None else needs_of_manifest(bundle.manifest)
            labels, slots = target.labels or needs.get("labels", {}), target.slots or needs.get("slots", 0)
            target = replace(target, labels=labels, slots=slots)
        schedule = self._hidden.for_child(run.version, run.assignment.schedule, now=now)
        child = child_occurrence(
            schedule, run.assignment, run.run, start.step, start.record, target, undoes=start.is_compensation, now=now
        )
        if start.is_compensation:
            return child, replace(start.record, compensation=Compensation.ELSEWHERE, child=child.id)
        return child, replace(start.record, is_external=True, child=child.id)

    def _runs_here(self, target: TargetDocument, source: str) -> bool:
        """Whether this node delivers a step itself.

        The turns of agents are occurrences of their own: those of a session come one after another. So are bundles: one
        may have to wait for resources, and keeps the archive that it began with.
        """
        if target.route == WorkflowTarget.route or target.kind in AGENT_KINDS or isinstance(target, BundleTarget):
            return False
        if isinstance(target, HttpTarget) and self._has_callbacks:
            return False
        return self._is_served(target) or (source == TRUSTED and self._adopt(target))

    def _is_served(self, target: TargetDocument) -> bool:
        if self._served is None:
            self._served = frozenset(() if self._targets is None else self._targets.routes())
        return target.route in self._served

    def _adopt(self, target: TargetDocument) -> bool:
        """Serve what a program declared in its own process, if this one can."""
        self._served = None
        return self._targets is not None and self._targets.adopt([target.route])

    def _drop(self, children: Iterable[str]) -> bool:
        """Cancel child occurrences; whether all of them could be."""
        try:
            for occurrence_id in children:
                if not self._store.cancel(occurrence_id):
                    self._store.request_stop(occurrence_id)
        except NoonmarkError as error:
            logger.warning("child occurrences could not be cancelled: %s; trying again", error)
            return False
        return True

    def _lose(self, run: ActiveRun, commit: Commit, now: Micros) -> None:
        """Another node has the run: what was to start does not, and what runs here is stopped."""
        for key, _ in commit.starts:
            run.under_way.pop(key, None)
        run.assignment.stop_reason = Reason.LEASE_LOST
        self._give_up(run, now)

    def _give_up(self, run: ActiveRun, now: Micros) -> None:
        """Stop the steps of a run that another node goes on with; once they have stopped, say so."""
        if run.stopping_since is None:
            run.stopping_since = now
            for assignment in run.under_way.values():
                assignment.stop(Reason.LEASE_LOST)
        is_busy = any(assignment.ends_soon and not assignment.is_closed for assignment in run.under_way.values())
        if is_busy and now - run.stopping_since < LOST_GRACE:
            self._wake_at(run, run.stopping_since + LOST_GRACE)
            return
        self._finish(run, stopped(run.assignment, Reason.LEASE_LOST, None, now=now))

    def _finish(self, run: ActiveRun, reported: Reported) -> None:
        self._runs.pop(run.occurrence.id, None)
        self._awaiting.pop(run.occurrence.id, None)
        for assignment in run.under_way.values():
            self._steps.pop(assignment, None)
        self._end(run.assignment, reported)

    def _end(self, assignment: Assignment, reported: Reported) -> None:
        if not assignment.is_closed:
            assignment.is_closed = True
            self._report(assignment, reported)


class _Document:
    """A version as the key of a cache: what it says never changes."""

    def __init__(self, version: WorkflowVersion) -> None:
        self.version = version
        self._key = (version.tenant, version.workflow_id, version.version, version.digest)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Document) and self._key == other._key


def _restore(document: _Document) -> Definition:
    return restored(document.version)


def restored(version: WorkflowVersion) -> Definition:
    """The definition that a version has."""
    return restore_definition(dict(version.document))


def _may_have_begun(occurrence: Occurrence) -> bool:
    """Whether something of a run may be stored already."""
    return occurrence.attempt > 1 or occurrence.losses > 0 or occurrence.reason in CONTINUED


def _ended(reported: Reported, now: Micros) -> Delivered:
    """The end of a step. A receiver that reports later could not be told apart from one that never does."""
    if isinstance(reported, Delivered):
        return reported
    return undeliverable("the receiver would report later, and a step here cannot wait for that", now=now)
