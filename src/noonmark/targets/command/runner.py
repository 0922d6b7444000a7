"""The command runner: starts each program when it is due, and waits in a thread until it has ended."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.reported import masked
from noonmark.core.errors import NoonmarkError
from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.instants import to_text
from noonmark.core.redaction import Redactor
from noonmark.core.schedule import TRUSTED
from noonmark.core.settlement import run_id
from noonmark.core.targets import CommandTarget
from noonmark.targets.command.client import CommandRequest, SupervisorClient
from noonmark.targets.command.orphans import NODE_VARIABLE, register_node, unregister_node
from noonmark.targets.command.process import CommandProcess
from noonmark.targets.command.programs import environment
from noonmark.targets.command.run_directories import RunDirectories
from noonmark.targets.command.supervisor import PROGRESS_FD, RUN_VARIABLE
from noonmark.targets.command.usage_file import USAGE_VARIABLE, read_usage_file
from noonmark.targets.outcomes import not_started, undeliverable
from noonmark.targets.usage import usage_reports
from noonmark.targets.worker_pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Delivered, Suspended
    from noonmark.ports.target import Assignment, Report
    from noonmark.targets.command.client import CommandChannel
    from noonmark.targets.command.orphans import OrphanReaper
    from noonmark.targets.command.programs import ProgramPolicy
    from noonmark.targets.secrets import SecretResolver

    RequestMaker = Callable[[Assignment, ExitStack], CommandRequest]

logger = logging.getLogger("noonmark.jobs")

MAX_COMMANDS = 64
"""How many commands run at a time on one node; the others are queued."""
USAGE_FILE = ".noonmark-usage.json"
START_ATTEMPTS = 3
"""How often a program is passed to a supervisor that is lost before it was told to start it."""


class CommandRunner:
    """Runs programs."""

    def __init__(self, programs: ProgramPolicy, orphans: OrphanReaper, secrets: SecretResolver | None = None) -> None:
        """With `secrets`, programs get a proof of the occurrence that they run for."""
        self._programs, self._orphans, self._secrets = programs, orphans, secrets
        self._directories = RunDirectories()
        self._pool: WorkerPool | None = None
        self._running: set[CommandProcess] = set()
        self._lock = Lock()
        self._is_closed = False

    def routes(self) -> tuple[str, ...]:
        """Return the one route of all programs."""
        return (CommandTarget.route,) if self._programs.is_offered else ()

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve commands once a schedule has one."""
        if self._programs.is_offered or CommandTarget.route not in routes:
            return False
        self._programs.is_offered = True
        return True

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Prepare the threads, and clean up after dead nodes."""
        self._report, self._now = report, now
        self._supervisor = SupervisorClient()
        self._node = register_node()
        self._pool = WorkerPool(self._deliver_one, report, None, now, MAX_COMMANDS)
        if self._programs.is_offered:
            # In a thread, not on the loop: there may be a lot to kill and to remove.
            Thread(target=self._clean_up, name="noonmark-orphans", daemon=True).start()

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Start each program when it is due."""
        assert self._pool is not None, "open() comes first"  # noqa: S101 - a programming error
        self._pool.submit(assignments)

    def withdraw(self) -> list[Assignment]:
        """Take back queued assignments that may be delivered again."""
        return [] if self._pool is None else self._pool.withdraw()

    def close(self) -> None:
        """Start nothing more, and end what still runs."""
        if self._pool is None:
            return
        self._pool.close()
        with self._lock:
            self._is_closed = True
            for process in self._running:
                process.abandon()
        self._supervisor.close()
        self._directories.close()
        unregister_node(self._node)

    def _clean_up(self) -> None:
        """Kill orphans of earlier nodes, even if no command is due for long, and remove their directories."""
        try:
            self._orphans.reap(self._now)
        except (NoonmarkError, OSError):
            logger.warning("orphaned processes of an earlier node could not be killed", exc_info=True)
        self._directories.remove_stale()

    def _deliver_one(self, assignment: Assignment) -> Delivered | Suspended | None:
        """Run what an assignment names, in a thread of the pool."""
        return self._run(assignment, self._request)

    def _run(self, assignment: Assignment, make_request: RequestMaker) -> Delivered:
        """Start a program, and wait for its end."""
        for _ in range(START_ATTEMPTS):
            if assignment.stop_reason is not None:
                return not_started(assignment, assignment.stop_reason, now=self._now())
            with ExitStack() as cleanup:
                try:
                    request = make_request(assignment, cleanup)
                    self._reap_orphans(assignment)
                    channel = self._supervisor.start(request)
                except LookupError as error:
                    return undeliverable(str(error.args[0]), now=self._now())
                except OSError as error:
                    return undeliverable(f"no process could be started: {error}", now=self._now())
                if (delivered := self._wait(channel, assignment, request)) is not None:
                    return _with_usage(delivered, assignment, request)
        why = f"the supervisor process was lost {START_ATTEMPTS} times before it started the command"
        return undeliverable(why, now=self._now())

    def _reap_orphans(self, assignment: Assignment) -> None:
        """Make sure that no process of the occurrence is left from a dead node; OSError when that is not certain."""
        try:
            self._orphans.reap(self._now, force=assignment.occurrence.losses > 0)
        except OSError:
            raise
        except Exception as error:
            logger.exception("cannot check for orphaned processes of occurrence %s", assignment.occurrence.id)
            raise OSError("it may still run: the store cannot be read to check for orphaned processes") from error

    def _wait(self, channel: CommandChannel, assignment: Assignment, request: CommandRequest) -> Delivered | None:
        """Wait for the end of a program; None when it surely has not started, so that the caller retries."""
        process = CommandProcess(channel, assignment, request, self._report, self._now)
        with self._lock:
            self._running.add(process)
            if self._is_closed:
                process.abandon()
        try:
            return process.wait()
        finally:
            with self._lock:
                self._running.discard(process)
            channel.close()

    def _request(self, assignment: Assignment, cleanup: ExitStack) -> CommandRequest:
        """Return what to start. A command from the network has a private directory, which `cleanup` removes."""
        occurrence, target = assignment.occurrence, assignment.schedule.declaration.target
        if not isinstance(target, CommandTarget):
            raise LookupError(f"a {target.kind} target is not a command")
        program = self._programs.find(assignment.schedule, target)
        home, cwd_identity = None, None
        own = cleanup.enter_context(self._directories.create())
        if assignment.schedule.source == TRUSTED:
            cwd = str(Path.cwd() / (target.cwd or ""))
        else:
            if target.cwd is not None:
                cwd, cwd_identity = self._programs.directory(target.cwd)
            home = own
            cwd = home if target.cwd is None else cwd
        usage_file = f"{own}/{USAGE_FILE}"
        secrets = self._secret_variables(assignment.schedule.owner.tenant, target)
        return CommandRequest(
            program=program.path,
            argv=target.argv,
            env={**environment(target, self._run_variables(assignment, usage_file), home), **secrets},
            cwd=cwd,
            limits=target.limits.to_document(),
            stdin=_stdin(occurrence, target),
            identity=program.identity,
            cwd_identity=cwd_identity,
            redactor=Redactor(secrets.values()) if secrets else None,
            usage_file=usage_file,
        )

    def _secret_variables(self, tenant: str, target: CommandTarget) -> dict[str, str]:
        """Return the variables of a command that are secret; LookupError if it may not have them."""
        if not target.secret_env:
            return {}
        if self._secrets is None:
            raise LookupError("this node cannot read secrets, which the command needs")
        try:
            return self._secrets.variables(tenant, target.secret_env, target.argv[0])
        except ValueError as error:
            raise LookupError(str(error)) from None

    def _run_variables(self, assignment: Assignment, usage_file: str) -> dict[str, str]:
        """Return the environment variables that describe a run and its node."""
        return {
            **_occurrence_variables(assignment.occurrence),
            USAGE_VARIABLE: usage_file,
            **self._chain(assignment),
            NODE_VARIABLE: self._node,
            "TRACEPARENT": assignment.traceparent,
        }

    def _chain(self, assignment: Assignment) -> dict[str, str]:
        """Return the proof of its occurrence, which it sends back to Noonmark, so that loops through programs end."""
        tenant, occurrence_id = assignment.schedule.owner.tenant, assignment.occurrence.id
        proof = None if self._secrets is None else self._secrets.chain(tenant, occurrence_id)
        return {} if proof is None else {"NOONMARK_CHAIN": proof}


def _with_usage(delivered: Delivered, assignment: Assignment, request: CommandRequest) -> Delivered:
    """The end of a command that may have written what it has used; what cannot be read is noted in its result."""
    if request.usage_file is None:
        return delivered
    mask = str if request.redactor is None else request.redactor.text
    try:
        reports = read_usage_file(request.usage_file)
    except FileNotFoundError:
        return delivered
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else mask(str(error))
        result = delivered.result if isinstance(delivered.result, dict) else {}
        return replace(delivered, result={**result, "usage_note": f"its usage was not recorded: {why}"})
    usage_reports(assignment).add(*(masked(usage, mask) for usage in reports))
    return delivered


def _occurrence_variables(occurrence: Occurrence) -> dict[str, str]:
    """Return the environment variables that describe a run."""
    variables = {
        "NOONMARK_OCCURRENCE_ID": occurrence.id,
        RUN_VARIABLE: run_id(occurrence),
        "NOONMARK_PROGRESS_FD": str(PROGRESS_FD),
        "NOONMARK_SCHEDULE_ID": occurrence.schedule_id,
        "NOONMARK_NOMINAL_TIME": to_text(occurrence.nominal),
        "NOONMARK_ATTEMPT": str(occurrence.attempt),
    }
    event = event_of(occurrence)
    if event is not None:
        variables |= {"NOONMARK_EVENT_ID": event["event_id"], "NOONMARK_EVENT_TYPE": event["event_type"]}
    return variables


def _stdin(occurrence: Occurrence, target: CommandTarget) -> bytes:
    """Return its stdin: that of the target, else the payload of the event or of the caller, else of the schedule."""
    if target.stdin is not None:
        return target.stdin.encode()
    event = event_of(occurrence)
    payload = occurrence.payload if event is None else event["payload"]
    payload = target.payload if payload is None else payload
    return b"" if payload is None else json.dumps(payload, ensure_ascii=False).encode()


def event_of(occurrence: Occurrence) -> dict[str, Any] | None:
    """Return the event that an occurrence was made for, if any."""
    return occurrence.payload if kind_of(occurrence.origin) is OriginKind.EVENT else None
