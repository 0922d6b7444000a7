"""The keeper: a process beside a node that starts its commands, and ends them when the node is gone.

The node is a process with many threads, which cannot safely do anything between fork and exec; and whatever it has
started would outlive it when it is killed. This one has a single thread, and needs nothing but the standard library: it
is run as a file. Each command has a socket of its own. The node writes on it what to start; the keeper says that it is
ready, and starts the command when the node says `GO`, so that a node that has not said it knows that nothing has begun.
Then the node writes one byte for each signal to the whole family; the keeper answers in lines of JSON. When the other
end is closed, the command must end.

A family is known by its session, and by a variable that each of its processes has in its environment. That one also
finds what has left the session, as a daemon does, and what is left when the keeper itself is killed; see `orphans`.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from time import monotonic, sleep  # noqa: TID251 - a program by itself, which only measures how long something takes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = 8
"""Bytes that say how long a request is."""
LAST_WORD = 1.0
"""Seconds that a command has to end when its node is gone."""
LOOK_EVERY = 1.0
"""Seconds between two looks whether the node is there: another process may hold its ends of the sockets."""
LOOK_SELDOM = 10.0
CHUNK = 65_536
FILES = 3
"""A socket, its input and its output: what comes with the byte that announces a command."""
QUIET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The node hears these too, and says what becomes of its commands."""
PR_SET_PDEATHSIG = 1
PROCESSES = "/proc"
OWN_FILES = "/proc/self/fd"
SCRIPT = b"#!"
"""How a file begins that another program reads."""
GO = 0
"""What the node says to have a command started; any other byte is the number of a signal."""
RUN_MARK = "NOONMARK_RUN_ID"
"""The variable by which all processes of one run are found."""
LAST_LOOKS, BETWEEN_LOOKS = 20, 0.005
"""So often, with so many seconds between, the keeper makes sure that all of a family have ended."""
PATIENT_LOOKS = 1_000
"""So often whoever else does so, which keeps nobody waiting."""


class Command:
    """One command, from its request to its end."""

    def __init__(self, line: socket.socket, files: tuple[int, int], prctl: Any) -> None:  # noqa: ANN401 - of ctypes
        """It was announced."""
        self.line, self._files, self._prctl = line, files, prctl
        self._asked = bytearray()
        self._order: dict[str, Any] | None = None
        """What is to be started when the node says so."""
        self._mark = b""
        self._process: subprocess.Popen[bytes] | None = None
        self.kill_at: float | None = None
        """When it is killed, because nobody waits for it any more."""
        self.is_over = False
        self._is_asked = False
        """It was asked to end before its time."""

    def hear(self) -> None:
        """Take in what the node says: the rest of the request, or signals; its silence is one too."""
        try:
            said = self.line.recv(CHUNK)
        except OSError:
            said = b""
        if not said:
            self.put_down()
        elif self._process is not None:
            self.send(*said)
        elif self._order is not None:
            self._start(self._order)  # GO is all that can be said now
            self.send(*said[1:])
        else:
            self._asked += said
            size = int.from_bytes(self._asked[:HEADER], "big")
            if len(self._asked) >= HEADER and len(self._asked) - HEADER >= size:
                self._order = json.loads(self._asked[HEADER:])
                self._say({"ready": True})

    def look(self) -> None:
        """See whether it has ended, or must. What it has left running ends with it."""
        if self._process is None:
            return
        code = self._process.poll()
        if code is not None:
            self.send(signal.SIGKILL, far=self._is_asked)
            if self._is_asked:
                end_bearers(self._mark, LAST_LOOKS)
            self._say({"exit": code})
            self.is_over = True
        elif self.kill_at is not None and monotonic() >= self.kill_at:
            self.send(signal.SIGKILL)

    def send(self, *numbers: int, far: bool = True) -> None:
        """Send signals to its group, to the other groups of its session, and to those who have left the session.

        `timeout` makes a group, for one, and shells with jobs; a daemon leaves. Looking for those costs a look at every
        process there is, so the end of a command that nobody has asked to end is not `far`.
        """
        if self._process is None or not numbers:
            return
        session = self._process.pid
        self._is_asked = self._is_asked or (far and not {signal.SIGTERM, signal.SIGKILL}.isdisjoint(numbers))
        groups, others = relatives(session, self._mark) if far else (set(), set())
        for number in numbers:
            for group in {session, *groups}:
                with suppress(OSError):  # there is nobody left
                    os.killpg(group, number)
            for pid in others:
                strike(pid, self._mark, number)

    def put_down(self) -> None:
        """Nobody waits for it: ask it to end, and make it soon."""
        if self._process is None:
            self._let_go()
            self.is_over = True
        elif self.kill_at is None:
            self.kill_at = monotonic() + LAST_WORD
            self.send(signal.SIGTERM, signal.SIGCONT)  # one that is suspended would not hear the first

    def _start(self, asked: dict[str, Any]) -> None:
        self._mark = f"{RUN_MARK}={asked['env'][RUN_MARK]}".encode()
        try:
            self._process = self._begun(asked)
        except (OSError, ValueError) as error:
            self._say({"error": str(error)})
            self.is_over = True
        else:
            self._say({"pid": self._process.pid})
        finally:
            self._let_go()

    def _begun(self, asked: dict[str, Any]) -> subprocess.Popen[bytes]:
        """The program that was asked for, and no other: one that was checked is run by its open file, if it can be."""
        number = opened(asked)
        try:
            check(asked, number)
            return subprocess.Popen(  # noqa: S603 - the node has judged it
                asked["argv"],
                executable=asked["program"] if number is None else f"{OWN_FILES}/{number}",
                pass_fds=() if number is None else (number,),
                stdin=self._files[0],
                stdout=self._files[1],
                stderr=self._files[1],
                cwd=asked["cwd"],
                env=asked["env"],
                start_new_session=True,
                preexec_fn=partial(become, asked, number, self._prctl, os.getpid()),  # noqa: PLW1509 - one thread
            )
        except subprocess.SubprocessError:  # it does not tell what was raised there
            raise OSError("its limits could not be set, or its file or folder was replaced a moment before") from None
        finally:
            if number is not None:
                os.close(number)

    def _let_go(self) -> None:
        for one in self._files:
            os.close(one)
        self._files = ()  # type: ignore[assignment] # they belong to the command now

    def _say(self, what: dict[str, Any]) -> None:
        with suppress(OSError):  # nobody listens
            self.line.sendall(json.dumps(what).encode() + b"\n")


def opened(asked: dict[str, Any]) -> int | None:
    """The file of a program that was checked, open; None where its path must do: for a script, which is read again."""
    if asked["identity"] is None or not os.path.isdir(OWN_FILES):  # noqa: PTH112 - nothing to load
        return None
    try:
        number = os.open(asked["program"], os.O_RDONLY)
    except PermissionError:  # it may be run and not read
        return None
    if os.pread(number, len(SCRIPT), 0) != SCRIPT:
        return number
    os.close(number)
    return None


def check(asked: dict[str, Any], number: int | None) -> None:
    """Refuse a program that was replaced since it was checked; OSError."""
    if asked["identity"] is not None:
        found = os.stat(asked["program"]) if number is None else os.fstat(number)  # noqa: PTH116 - nothing to load
        if [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns] != asked["identity"]:
            raise OSError(f"{asked['program']} was replaced a moment before")


def become(asked: dict[str, Any], number: int | None, prctl: Any, keeper: int) -> None:  # noqa: ANN401 - of ctypes
    """In the new process, in its folder, right before it becomes the program: nothing was replaced meanwhile."""
    prepare(asked["limits"], prctl, keeper)
    check(asked, number)
    here = os.stat(".")  # noqa: PTH116 - nothing to load
    if asked["place"] is not None and [here.st_dev, here.st_ino] != asked["place"]:
        raise OSError("the folder was replaced a moment before")
    if number is not None:
        os.set_inheritable(number, False)  # noqa: FBT003 - as it is declared


def prepare(limits: dict[str, int], prctl: Any, keeper: int) -> None:  # noqa: ANN401 - of ctypes
    """In the new process, before it becomes the program: it dies with the keeper, and is held to its limits."""
    for number in QUIET:
        signal.signal(number, signal.SIG_DFL)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(1)
    if "nice" in limits:
        os.nice(limits["nice"])
    limit(resource.RLIMIT_CORE, 0)
    if "cpu_seconds" in limits:
        limit(resource.RLIMIT_CPU, limits["cpu_seconds"], slack=1)
    if "memory_mb" in limits:
        limit(resource.RLIMIT_AS, limits["memory_mb"] * 1_048_576)


def limit(what: int, most: int, slack: int = 0) -> None:
    """Allow so much, and never more than was allowed before. Within the slack, it is told before it is killed."""
    _, hard = resource.getrlimit(what)
    soft, last = (one if hard == resource.RLIM_INFINITY else min(one, hard) for one in (most, most + slack))
    resource.setrlimit(what, (soft, last))


def relatives(session: int, mark: bytes) -> tuple[set[int], set[int]]:
    """The groups of processes of a session, besides its first, and the processes of its run that are in another one.

    None where there is no way to tell.
    """
    groups, others = set(), set()
    for pid in processes():
        with suppress(OSError, ValueError, IndexError):
            group, of = _read(pid, "stat").rpartition(b")")[2].split()[2:4]
            if int(of) == session:
                groups.add(int(group))
            elif bears(pid, mark):
                others.add(pid)
    return groups - {session}, others


def processes() -> Iterator[int]:
    """All there are; none where there is no way to tell."""
    if os.path.isdir(PROCESSES):  # noqa: PTH112 - nothing to load
        yield from map(int, filter(str.isdigit, os.listdir(PROCESSES)))  # noqa: PTH208 - as above


def bears(pid: int, mark: bytes) -> bool:
    """Whether a process of this user was started with a variable, name and value."""
    return b"\0" + mark + b"\0" in b"\0" + environment_of(pid)


def environment_of(pid: int) -> bytes:
    """The variables that a process of this user was started with; nothing of any other, or of one that has ended."""
    try:
        is_ours = os.stat(f"{PROCESSES}/{pid}").st_uid == os.geteuid()  # noqa: PTH116 - as above
        return _read(pid, "environ") if is_ours else b""
    except OSError:
        return b""


def strike(pid: int, mark: bytes, number: int) -> None:
    """Send a signal to a process, if it is still the one that bears the mark: its number may be another's by now."""
    with suppress(OSError):
        try:
            handle = os.pidfd_open(pid)
        except (AttributeError, OSError):  # an old system
            if bears(pid, mark):
                os.kill(pid, number)
            return
        try:
            if bears(pid, mark):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def end_bearers(mark: bytes, looks: int = PATIENT_LOOKS) -> bool:
    """Kill all processes of a run, and those that they make meanwhile; whether all of them are gone."""
    for _ in range(looks):
        found = [pid for pid in processes() if bears(pid, mark)]
        if not found:
            return True
        for pid in found:
            strike(pid, mark, signal.SIGKILL)
        sleep(BETWEEN_LOOKS)
    return False


def _read(pid: int, name: str) -> bytes:
    with open(f"{PROCESSES}/{pid}/{name}", "rb") as file:  # noqa: PTH123 - nothing to load
        return file.read()


class Keeper:
    """All commands of one node."""

    def __init__(self, door: socket.socket, node: int) -> None:
        """Commands are announced at the door."""
        self._door, self._node = door, node
        self._commands: set[Command] = set()
        self._prctl = _prctl()
        self._selector = selectors.DefaultSelector()
        self._selector.register(door, selectors.EVENT_READ, self._admit)
        self._is_open = True
        # Whenever a process has ended, this wakes the loop.
        ear, mouth = socket.socketpair()
        for one in (ear, mouth):
            one.setblocking(False)  # noqa: FBT003 - as it is declared
        self._mouth = mouth
        self._selector.register(ear, selectors.EVENT_READ, partial(ear.recv, CHUNK))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Until the node is gone, and all its commands with it."""
        while self._is_open or self._commands:
            for key, _ in self._selector.select(self._patience()):
                key.data()
            if os.getppid() != self._node:
                self._is_open = False
                for one in self._commands:
                    one.put_down()
            for one in list(self._commands):
                one.look()
                if one.is_over:
                    self._dismiss(one)

    def _patience(self) -> float:
        soon = [one.kill_at - monotonic() for one in self._commands if one.kill_at is not None]
        return max(0.01, min([LOOK_EVERY if self._commands else LOOK_SELDOM, *soon]))

    def _admit(self) -> None:
        said, files, _, _ = socket.recv_fds(self._door, 1, FILES)
        if not said:
            self._selector.unregister(self._door)
            self._is_open = False
        elif len(files) == FILES:
            one = Command(socket.socket(fileno=files[0]), (files[1], files[2]), self._prctl)
            self._commands.add(one)
            self._selector.register(one.line, selectors.EVENT_READ, partial(self._hear, one))

    def _hear(self, one: Command) -> None:
        one.hear()
        if one.kill_at is not None:  # there is no more to hear
            self._selector.unregister(one.line)

    def _dismiss(self, one: Command) -> None:
        self._commands.discard(one)
        with suppress(KeyError):
            self._selector.unregister(one.line)
        one.line.close()


def _prctl() -> Any:  # noqa: ANN401 - of ctypes
    """The call with which a process asks Linux to be killed when its parent is gone."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only here, and not in the node

    return ctypes.CDLL(None).prctl


def main() -> None:
    """Serve the node that has started this."""
    for number in QUIET:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    Keeper(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).run()


if __name__ == "__main__":
    main()
