"""Children: the processes beside this one that call functions for it, each a fresh interpreter; see `child`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Pipe, wait
from multiprocessing.spawn import get_executable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from noonmark.targets.child import LAST_WORD, MAX_ANSWER
from noonmark.targets.functions import main_origin
from noonmark.targets.hiding import is_hidden

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

LOOK_EVERY = 1.0
"""Seconds between two looks whether it is there: a process that a function left behind may hold its end of the pipe."""
SLACK = 1_048_576
"""Bytes that an answer may have beside its result."""
BOOT = """\
import json, sys
from multiprocessing import connection
pipe = getattr(connection, "PipeConnection", connection.Connection)(int(sys.argv[1]))
setup = json.loads(pipe.recv_bytes())
sys.path[:] = setup["path"]
from noonmark.targets.child import serve
serve(pipe, setup)
"""
"""What it begins with: before it knows the path of its parent, it can import nothing but the standard library."""


class Child:
    """One process, which belongs to one thread at a time; any other may ring."""

    def __init__(self) -> None:
        """It is started, with the path, the folder and the environment of this process. Raises OSError."""
        self._pipe, theirs = Pipe()
        self._ear, self._bell = Pipe(duplex=False)
        self._ringing = Lock()
        self.is_new = True
        """Whether it has yet to make its first call."""
        try:
            self._process = _starter().start(theirs)
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
        path, argv = [str(one) for one in sys.path], [str(one) for one in sys.argv]  # who knows what was put there
        self.say({"path": path, "argv": argv, "main": main_origin(), "is_hidden": is_hidden(), "parent": os.getpid()})

    @property
    def is_quiet(self) -> bool:
        """Whether it waits for a call, as it should between two."""
        return self._process.poll() is None and not self._pipe.poll()

    def say(self, what: dict[str, Any]) -> None:
        """Tell it something. If it is gone, that shows when it is listened to."""
        with suppress(OSError):
            self._pipe.send_bytes(json.dumps(what).encode())

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """What it says within this time, None when that is nothing or somebody rang; EOFError when it is gone."""
        ready = wait([self._pipe, self._ear], min(seconds, LOOK_EVERY))
        if self._ear in ready:
            while self._ear.poll():
                self._ear.recv_bytes()
        if self._pipe in ready:
            try:
                said: dict[str, Any] = json.loads(self._pipe.recv_bytes(MAX_ANSWER + SLACK))
            except (OSError, ValueError) as error:  # or a function has written into the pipe
                raise EOFError from error
            return said
        if self._process.poll() is not None and not self._pipe.poll():
            raise EOFError
        return None

    def ring(self) -> None:
        """Make whoever listens to it look up."""
        with self._ringing:
            if not self._bell.closed:
                self._bell.send_bytes(b"!")

    def end(self) -> int | None:
        """Let it end, or make it; gives its exit code."""
        self._close()
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(LAST_WORD)
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # not even that helps while it waits for a broken disk
            return self._process.wait(LAST_WORD)
        return None

    def _close(self) -> None:
        with self._ringing:
            for one in (self._pipe, self._ear, self._bell):
                one.close()


class _Starter:
    """One thread that starts all of them and lives as long as this process: Linux ends them with their *thread*."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Connection, Future[subprocess.Popen[bytes]]]] = SimpleQueue()
        Thread(target=self._serve, name="noonmark-starter", daemon=True).start()

    def start(self, theirs: Connection) -> subprocess.Popen[bytes]:
        """Have one started; any thread may ask. Raises OSError."""
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._asked.put((theirs, answer))
        return answer.result()

    def _serve(self) -> None:
        while True:
            theirs, answer = self._asked.get()
            try:
                answer.set_result(_start(theirs))
            except BaseException as error:  # noqa: BLE001 - for whoever asked
                answer.set_exception(error)


_starters: dict[int, _Starter] = {}


def _starter() -> _Starter:
    """That of this process; a fork has the object of its parent, but not the thread."""
    return _starters.get(os.getpid()) or _starters.setdefault(os.getpid(), _Starter())


def _start(theirs: Connection) -> subprocess.Popen[bytes]:
    number = theirs.fileno()
    # The interpreter and its options are those that multiprocessing uses. With -P, no module in the current folder can
    # stand in the way of one that it begins with.
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001
    command = [os.fsdecode(get_executable()), *options, "-P", "-c", BOOT, str(number)]
    if sys.platform == "win32":
        os.set_handle_inheritable(number, True)  # noqa: FBT003 - as it is declared
        startup = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [number]})
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, startupinfo=startup)  # noqa: S603 - ours
    # Until it has handlers of its own it must not hear of a Ctrl-C; what its parent's thread has blocked, it has too.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[number])  # noqa: S603 - ours
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
