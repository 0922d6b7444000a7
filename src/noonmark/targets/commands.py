"""The command target: programs started at their time, each watched by a thread until it has ended, or must."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import NoonmarkError
from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.instants import to_text
from noonmark.core.policies.delivery import Delivery
from noonmark.core.schedule import TRUSTED
from noonmark.core.settlement import run_id
from noonmark.core.targets import CommandTarget
from noonmark.targets.endings import not_begun, undeliverable
from noonmark.targets.keeper import RUN_MARK
from noonmark.targets.keeping import Keeping, Order
from noonmark.targets.node_marks import NODE_MARK, drop_mark, make_mark
from noonmark.targets.programs import environment
from noonmark.targets.run_folders import RunFolders
from noonmark.targets.watching import Watch
from noonmark.targets.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment, Report
    from noonmark.targets.keeping import Kept
    from noonmark.targets.orphans import OrphanedPrograms
    from noonmark.targets.programs import Programs
    from noonmark.targets.unsealing import Unsealer

logger = logging.getLogger("noonmark.jobs")

MAX_COMMANDS = 64
"""So many run at a time on one node; the others wait for their turn."""
TRIES = 3
"""So often a program is given to a keeper, when that one is lost before it was told to start it."""


class CommandRunner:
    """Delivers to programs."""

    def __init__(self, programs: Programs, orphans: OrphanedPrograms, unsealer: Unsealer | None = None) -> None:
        """Nothing runs until it is opened. With the key of the store, programs can prove which run they are."""
        self._programs, self._orphans, self._unsealer = programs, orphans, unsealer
        self._folders = RunFolders()
        self._workers: Workers | None = None
        self._watched: set[Watch] = set()
        self._lock = Lock()
        self._is_closed = False

    def routes(self) -> tuple[str, ...]:
        """One for all programs."""
        return (CommandTarget.route,) if self._programs.is_offered else ()

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve commands if a program has made one."""
        if self._programs.is_offered or CommandTarget.route not in routes:
            return False
        self._programs.is_offered = True
        return True

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Make ready."""
        self._report, self._now = report, now
        self._keeping = Keeping()
        self._mark = make_mark()
        self._workers = Workers(self._work, report, None, now, MAX_COMMANDS)
        if self._programs.is_offered:
            # Not here, on the loop: there may be a lot to end and to remove.
            Thread(target=self._tidy_up, name="noonmark-orphans", daemon=True).start()

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Begin each at its time."""
        assert self._workers is not None, "open() comes first"  # noqa: S101 - a mistake of the programmer
        self._workers.submit(assignments)

    def withdraw(self) -> list[Assignment]:
        """Take back what waits for its turn; but what must not begin twice has begun as far as the store knows."""
        return [] if self._workers is None else self._workers.withdraw(_may_begin_twice)

    def close(self) -> None:
        """Begin nothing more, and end what still runs."""
        if self._workers is None:
            return
        self._workers.close()
        with self._lock:
            self._is_closed = True
            for watch in self._watched:
                watch.give_up()
        self._keeping.close()
        self._folders.close()
        drop_mark(self._mark)

    def _tidy_up(self) -> None:
        """End what an earlier start has left, also where nothing is to be started for long, and remove its folders."""
        try:
            self._orphans.end(self._now)
        except (NoonmarkError, OSError):
            logger.warning("what an earlier start may have left running could not be ended", exc_info=True)
        if self._programs.is_open:
            self._folders.sweep()

    def _work(self, assignment: Assignment) -> Delivered:
        """Have a program started, and wait for its end."""
        for _ in range(TRIES):
            if assignment.stop_reason is not None:
                return not_begun(assignment, assignment.stop_reason, now=self._now())
            with ExitStack() as cleanup:
                try:
                    order = self._order(assignment, cleanup)
                    self._end_orphans(assignment)
                    kept = self._keeping.start(order)
                except LookupError as error:
                    return undeliverable(str(error.args[0]), now=self._now())
                except OSError as error:
                    return undeliverable(f"no process could be started: {error}", now=self._now())
                if (delivered := self._see_through(kept, assignment)) is not None:
                    return delivered
        return undeliverable(f"the process that starts commands was lost {TRIES} times before it did", now=self._now())

    def _end_orphans(self, assignment: Assignment) -> None:
        """Nothing that a dead node has left of it may still be there; OSError when that is not certain."""
        try:
            self._orphans.end(self._now, at_once=assignment.occurrence.losses > 0)
        except OSError:
            raise
        except Exception as error:
            logger.exception("nobody knows whether anything is left of occurrence %s", assignment.occurrence.id)
            raise OSError("nobody knows whether it still runs, since the store cannot be read") from error

    def _see_through(self, kept: Kept, assignment: Assignment) -> Delivered | None:
        """Wait for the end of a program; None when it surely has not begun, so that it is tried again."""
        watch = Watch(kept, assignment, self._report, self._now)
        with self._lock:
            self._watched.add(watch)
            if self._is_closed:
                watch.give_up()
        try:
            return watch.see_through()
        finally:
            with self._lock:
                self._watched.discard(watch)
            kept.close()

    def _order(self, assignment: Assignment, cleanup: ExitStack) -> Order:
        """What to start. A command that came over the network has a folder of its own, which goes with the cleanup."""
        occurrence, target = assignment.occurrence, assignment.schedule.declaration.target
        if not isinstance(target, CommandTarget):
            raise LookupError(f"a {target.kind} target is not a command")
        program = self._programs.find(assignment.schedule, target)
        home, place = None, None
        if assignment.schedule.source == TRUSTED:
            cwd = str(Path.cwd() / (target.cwd or ""))
        else:
            if target.cwd is not None:
                cwd, place = self._programs.folder(target.cwd)
            home = cleanup.enter_context(self._folders.lend())
            cwd = home if target.cwd is None else cwd
        return Order(
            program=program.path,
            argv=target.argv,
            env=environment(target, {**_told(occurrence), **self._chain(assignment), NODE_MARK: self._mark}, home),
            cwd=cwd,
            limits=target.limits.to_document(),
            stdin=_stdin(occurrence, target),
            identity=program.identity,
            place=place,
        )

    def _chain(self, assignment: Assignment) -> dict[str, str]:
        """What it says of itself when it asks Noonmark for something, so that circles through programs end, too."""
        tenant, one_id = assignment.schedule.owner.tenant, assignment.occurrence.id
        proof = None if self._unsealer is None else self._unsealer.chain(tenant, one_id)
        return {} if proof is None else {"NOONMARK_CHAIN": proof}


def _told(occurrence: Occurrence) -> dict[str, str]:
    """What a command learns about its run."""
    told = {
        "NOONMARK_OCCURRENCE_ID": occurrence.id,
        RUN_MARK: run_id(occurrence),
        "NOONMARK_SCHEDULE_ID": occurrence.schedule_id,
        "NOONMARK_NOMINAL_TIME": to_text(occurrence.nominal),
        "NOONMARK_ATTEMPT": str(occurrence.attempt),
    }
    event = _event(occurrence)
    if event is not None:
        told |= {"NOONMARK_EVENT_ID": event["event_id"], "NOONMARK_EVENT_TYPE": event["event_type"]}
    return told


def _stdin(occurrence: Occurrence, target: CommandTarget) -> bytes:
    """What it reads. An event brings its payload, a call that asked for the run may; else the schedule has it."""
    if target.stdin is not None:
        return target.stdin.encode()
    event = _event(occurrence)
    payload = occurrence.payload if event is None else event["payload"]
    payload = target.payload if payload is None else payload
    return b"" if payload is None else json.dumps(payload, ensure_ascii=False).encode()


def _event(occurrence: Occurrence) -> dict[str, Any] | None:
    return occurrence.payload if kind_of(occurrence.origin) is OriginKind.EVENT else None


def _may_begin_twice(assignment: Assignment) -> bool:
    return assignment.schedule.declaration.delivery is Delivery.AT_LEAST_ONCE
