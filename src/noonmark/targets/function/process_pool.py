"""The process pool: each call goes to a worker process, and is watched until it has ended.

Unlike a thread, a process can be killed. So no run is abandoned: the end of a run that timed out, or that does not stop
when asked to, is reported when its process is gone. The next call gets another process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Pipe, wait
from multiprocessing.spawn import get_executable
from operator import itemgetter
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.reported import from_fields
from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.reasons import Reason
from noonmark.core.targets.command import end_of_program
from noonmark.node_locks import shared_descriptors
from noonmark.targets.function.call import prepare_remote_call
from noonmark.targets.function.context import logger
from noonmark.targets.function.process_worker import EXIT_GRACE, MAX_ANSWER
from noonmark.targets.function.registry import main_origin
from noonmark.targets.outcomes import cut_off, failed, not_started, stopped, succeeded, undeliverable
from noonmark.targets.process_control import StopSignal, is_killed, is_process_hidden, stop_grace
from noonmark.targets.serialization import error_from_document
from noonmark.targets.usage import usage_reports

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment
    from noonmark.targets.function.registry import FunctionRegistry

FOREVER: Micros = 2**63
LOAD_LIMIT: Micros = 300 * SECOND
"""How long a process may take to start and to import the function. The timeout of the run does not include it."""
EXIT_CHECK_SECONDS = 1.0
"""Seconds between two checks that a process exists: a process that a function started may hold its end of the pipe."""
MESSAGE_OVERHEAD = 1_048_576
"""Bytes that an answer may have beside its result."""
BOOT = """\
import json, sys
from multiprocessing import connection
pipe = getattr(connection, "PipeConnection", connection.Connection)(int(sys.argv[1]))
setup = json.loads(pipe.recv_bytes())
sys.path[:] = setup["path"]
from noonmark.targets.function.process_worker import serve
serve(pipe, setup, [int(lock) for lock in sys.argv[2:]])
"""
"""The main program of a worker process. It can import only the standard library until it has the parent's path."""


class ProcessPool:
    """Calls functions in worker processes, which it reuses. Each waiting thread needs at most one."""

    def __init__(self, functions: FunctionRegistry, now: Callable[[], Micros]) -> None:
        self._functions, self._now = functions, now
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._lock = Lock()
        self._is_closed = False

    def call(self, assignment: Assignment) -> Delivered:
        """Call a function, and wait for its end."""
        delivered = None
        while delivered is None:
            if assignment.stop_reason is not None:
                return not_started(assignment, assignment.stop_reason, now=self._now())
            try:
                call = prepare_remote_call(self._functions, assignment)
                process = self._acquire()
            except LookupError as error:
                return undeliverable(str(error.args[0]), now=self._now())
            except OSError as error:
                return undeliverable(f"no process could be started: {error}", now=self._now())
            process_call = _ProcessCall(process, assignment, self._now)
            try:
                delivered = process_call.run(call, lambda: self._is_closed)
            finally:
                self._release(process, is_usable=process_call.is_usable)
        return delivered

    def release_idle(self) -> None:
        """End one idle process, because a waiting thread has ended."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is not None:
            process.end()

    def close(self) -> None:
        """End busy processes; idle ones end with their threads."""
        with self._lock:
            self._is_closed = True
            for process in self._busy:
                process.wake()

    def _acquire(self) -> WorkerProcess:
        while True:
            with self._lock:
                process = self._idle.pop() if self._idle else None
            if process is None:
                process = WorkerProcess()
            elif not process.is_ready:  # it was killed while it was idle
                process.end()
                continue
            with self._lock:
                self._busy.add(process)
            return process

    def _release(self, process: WorkerProcess, *, is_usable: bool) -> None:
        with self._lock:
            self._busy.discard(process)
            if is_usable:
                process.is_new = False
                self._idle.append(process)
        if not is_usable:
            process.end()


class WorkerProcess:
    """One worker process. One thread at a time uses it; any other may wake that thread."""

    def __init__(self) -> None:
        """Start it, with the import path, the directory and the environment of this process. Raises OSError."""
        self._pipe, theirs = Pipe()
        self._wakeup_reader, self._wakeup_writer = Pipe(duplex=False)
        self._wakeup_lock = Lock()
        self.is_new = True
        """Whether it has yet to make its first call."""
        try:
            self._process = _starter().start(theirs)
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
        path, argv = [str(one) for one in sys.path], [str(one) for one in sys.argv]  # may hold objects of any type
        self.send(
            {"path": path, "argv": argv, "main": main_origin(), "is_hidden": is_process_hidden(), "parent": os.getpid()}
        )

    @property
    def is_ready(self) -> bool:
        """Whether it waits for a call, as it should between two."""
        return self._process.poll() is None and not self._pipe.poll()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. If the process is gone, `receive` raises."""
        with suppress(OSError):
            self._pipe.send_bytes(json.dumps(message).encode())

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message; None after this time or a wake-up. EOFError when the process is gone."""
        ready = wait([self._pipe, self._wakeup_reader], min(seconds, EXIT_CHECK_SECONDS))
        if self._wakeup_reader in ready:
            while self._wakeup_reader.poll():
                self._wakeup_reader.recv_bytes()
        if self._pipe in ready:
            try:
                message: dict[str, Any] = json.loads(self._pipe.recv_bytes(MAX_ANSWER + MESSAGE_OVERHEAD))
            except (OSError, ValueError) as error:  # or a function has written into the pipe
                raise EOFError from error
            return message
        if self._process.poll() is not None and not self._pipe.poll():
            raise EOFError
        return None

    def wake(self) -> None:
        """Wake the thread that waits in `receive`."""
        with self._wakeup_lock:
            if not self._wakeup_writer.closed:
                self._wakeup_writer.send_bytes(b"!")

    def end(self, *, at_once: bool = False) -> int | None:
        """End the process, by force if need be or at once, and return its exit code."""
        if at_once:
            self._process.kill()
        self._close()
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(EXIT_GRACE)
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # even SIGKILL waits for a broken disk
            return self._process.wait(EXIT_GRACE)
        return None

    def _close(self) -> None:
        with self._wakeup_lock:
            for connection in (self._pipe, self._wakeup_reader, self._wakeup_writer):
                connection.close()


class _ProcessCall:
    """One call in a worker process, from the side of the thread that waits for its end."""

    def __init__(self, process: WorkerProcess, assignment: Assignment, now: Callable[[], Micros]) -> None:
        self._process, self._assignment, self._now = process, assignment, now
        self._stop = assignment.signal = StopSignal(process.wake)
        self._load_by = now() + LOAD_LIMIT
        self._has_begun = False
        """The process was told to call the function. Before that it has not started; after it, it may have."""
        self._stop_requested: Micros | None = None
        """When it was asked to stop."""
        self.is_usable = False
        """Whether the process can make another call."""

    def run(self, call: dict[str, Any], is_closing: Callable[[], bool]) -> Delivered | None:
        """Send the call, and wait for the answer; without one in time, the process is ended.

        None when a reused process was gone before the call: it may have died earlier, so the caller retries.
        """
        root = logging.getLogger()
        levels = {root.name: root.level, logger.name: logger.getEffectiveLevel()}
        self._process.send({"call": {**call, "levels": levels}})
        while not is_closing():
            self._forward_stop()
            ends, outcome = min(self._limits(), key=itemgetter(0))
            if (left := ends - self._now()) <= 0:
                self._process.end(at_once=is_killed(self._assignment))
                return outcome()
            try:
                message = self._process.receive(left / SECOND)
            except EOFError:
                return self._exited()
            if message is not None and (delivered := self._handle(message)) is not None:
                return delivered
        self._process.end()
        return stopped(self._assignment, self._assignment.stop_reason or Reason.LEASE_LOST, None, now=self._now())

    def _forward_stop(self) -> None:
        if self._assignment.stop_reason is not None and self._stop_requested is None:
            self._stop_requested = self._now()
            if not is_killed(self._assignment):
                self._process.send({"cancel": True})

    def _limits(self) -> list[tuple[Micros, Callable[[], Delivered]]]:
        """When the process is ended, and the outcome that is recorded then."""
        limits: list[tuple[Micros, Callable[[], Delivered]]] = [(FOREVER, self._cut_off)]
        begins = self._assignment.started if self._has_begun else None
        if begins is None:
            limits.append((self._load_by, self._load_timed_out))
        # While the function is loaded only its window can close: its timeout counts from its start.
        if (ends := self._assignment.ends_by(self._load_by if begins is None else begins)) is not None:
            limits.append((ends, self._cut_off))
        if self._stop_requested is not None:
            limits.append((self._stop_requested + stop_grace(self._assignment), self._killed))
        return limits

    def _handle(self, message: dict[str, Any]) -> Delivered | None:
        """Handle a message of the process; None unless it is the answer."""
        if "log" in message:
            _log(message["log"])
            return None
        if "progress" in message:
            if self._assignment.progress is not None:
                self._assignment.progress(message["progress"])
            return None
        if "usage" in message:
            usage_reports(self._assignment).add(from_fields(message["usage"]))
            return None
        if "loaded" in message:
            return self._begin()
        self._stop.was_seen = message["seen"]
        if "unloadable" in message:  # the process is not reused: a half-loaded module may have done anything
            return self._unloadable(f"the function could not be loaded in a worker process\n{message['unloadable']}")
        self.is_usable = True
        if "error" in message:
            error = message["error"]
            text, raised = error["trace"], error["raised"]
            return failed(self._assignment, error_from_document(error), now=self._now(), text=text, raised=raised)
        return succeeded(self._assignment, json.loads(message["result"]), now=self._now(), note=message["note"])

    def _begin(self) -> Delivered | None:
        """Tell the process to call the function, unless the run was asked to stop."""
        if (reason := self._assignment.stop_reason) is not None:
            return not_started(self._assignment, reason, now=self._now())
        self._has_begun, self._assignment.started = True, self._now()
        self._assignment.ends_soon = True
        self._process.send({"go": True})
        return None

    def _exited(self) -> Delivered | None:
        """The process ended without an answer. If the function was called, how far it got is unknown."""
        if not self._has_begun and not self._process.is_new:
            return None
        code = self._process.end()
        ended = end_of_program(code) if code is not None and code < 0 else f"ended with exit code {code}"
        text = f"the process {ended} before it answered"
        delivered = failed(self._assignment, RuntimeError(text), now=self._now(), text=text, raised=())
        return replace(delivered, is_unknown=self._has_begun)

    def _cut_off(self) -> Delivered:
        if not self._has_begun:
            self._assignment.started = self._now()
        return cut_off(self._assignment, now=self._now())

    def _load_timed_out(self) -> Delivered:
        seconds = micros_to_seconds(LOAD_LIMIT)
        return self._unloadable(f"a worker process did not load the function within {seconds} s")

    def _unloadable(self, text: str) -> Delivered:
        reason = self._assignment.stop_reason
        if reason is not None:
            return stopped(self._assignment, reason, text, now=self._now())
        return undeliverable(text, now=self._now())

    def _killed(self) -> Delivered:
        reason = self._assignment.stop_reason or Reason.CANCELLED
        seconds = micros_to_seconds(stop_grace(self._assignment))
        text = "its process was killed"
        if not is_killed(self._assignment):
            text += f": it did not end within {seconds} s of being asked to"
        return stopped(self._assignment, reason, text, now=self._now())


def _log(fields: dict[str, Any]) -> None:
    """Log a record of a worker process as if it came from this one."""
    record = logging.makeLogRecord(fields)
    origin = logging.getLogger(record.name)
    if origin.isEnabledFor(record.levelno):
        with suppress(Exception):  # a handler that fails must not fail the run
            origin.handle(record)


class _Starter:
    """The thread that starts all worker processes. It never ends: Linux kills a process with the *thread* above it."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[tuple[Connection, Future[subprocess.Popen[bytes]]]] = SimpleQueue()
        Thread(target=self._serve, name="noonmark-starter", daemon=True).start()

    def start(self, theirs: Connection) -> subprocess.Popen[bytes]:
        """Start a process; safe to call from any thread. Raises OSError."""
        started: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((theirs, started))
        return started.result()

    def _serve(self) -> None:
        while True:
            theirs, started = self._requests.get()
            try:
                started.set_result(_start(theirs))
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                started.set_exception(error)


_starters: dict[int, _Starter] = {}


def _starter() -> _Starter:
    """Return the starter of this process; a fork has its parent's object, but not the thread."""
    return _starters.get(os.getpid()) or _starters.setdefault(os.getpid(), _Starter())


def _start(theirs: Connection) -> subprocess.Popen[bytes]:
    fd = theirs.fileno()
    # The interpreter and its options are those that multiprocessing uses. With -P, no module in the current directory
    # shadows one that the boot script imports.
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001
    command = [os.fsdecode(get_executable()), *options, "-P", "-c", BOOT, str(fd)]
    if sys.platform == "win32":
        os.set_handle_inheritable(fd, True)  # noqa: FBT003 - as it is declared
        startup = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [fd]})
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, startupinfo=startup)  # noqa: S603 - our own
    # A Ctrl-C must not reach it before it has handlers. It inherits the signal mask of this thread.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with shared_descriptors() as locks:
            command += map(str, locks)
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[fd, *locks])  # noqa: S603 - our own
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
