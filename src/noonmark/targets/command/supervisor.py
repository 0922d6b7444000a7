"""The supervisor: a child process of a node that starts its commands, and ends them when the node is gone.

A node has many threads, so it cannot safely do anything between fork and exec; and what it started would outlive it
when it is killed. The supervisor has a single thread and imports only the standard library: it is run as a file. Each
command has its own socket. The node writes the request on it; the supervisor answers that it is ready, and starts the
command when the node says `GO`, so a node that has not said it knows that nothing has started. Then the node writes one
byte per signal, which goes to all processes of the command; the supervisor answers in lines of JSON. When the other end
is closed, the command must end. The supervisor holds the locks of its node (`noonmark.node_locks`): no other node takes
over before its commands have ended.

The processes of a command are found by their session, and by a variable that each has in its environment. The variable
also finds daemons, which have left the session, and what is left when the supervisor itself is killed; see `orphans`.
"""

from __future__ import annotations

import fcntl
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
from time import monotonic, sleep  # noqa: TID251 - a separate program, which only measures how long something takes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = 8
"""Bytes that hold the length of a request."""
EXIT_GRACE = 1.0
"""Seconds that a command has to end when its node is gone."""
NODE_CHECK_SECONDS = 1.0
"""Seconds between two checks that the node exists: another process may hold its ends of the sockets."""
IDLE_NODE_CHECK_SECONDS = 10.0
CHUNK = 65_536
FD_COUNT = 4
"""A socket, stdin, stdout and the pipe for progress: the file descriptors that announce a command with a byte."""
PROGRESS_FD = 3
"""The file descriptor on which a command says how far it has come; a number that every shell can name."""
FIRST_LOCK_FD = 10
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The node gets these too, and decides what happens to its commands."""
PR_SET_PDEATHSIG = 1
PROC = "/proc"
OWN_FDS = "/proc/self/fd"
SHEBANG = b"#!"
GO = 0
"""The byte that starts a command; any other byte is the number of a signal."""
RUN_VARIABLE = "NOONMARK_RUN_ID"
"""The environment variable by which all processes of a run are found."""
KILL_ROUNDS, KILL_INTERVAL = 20, 0.005
"""How often, and at which interval in seconds, the supervisor checks that all processes of a run have ended."""
MAX_KILL_ROUNDS = 1_000
"""The same for callers that nothing waits for."""


class Command:
    """One command, from its request to its end."""

    def __init__(self, channel: socket.socket, fds: tuple[int, int, int], prctl: Any) -> None:
        self.channel, self._fds, self._prctl = channel, fds, prctl
        self._received = bytearray()
        self._request: dict[str, Any] | None = None
        """What to start when the node says so."""
        self._variable = b""
        self._process: subprocess.Popen[bytes] | None = None
        self.kill_at: float | None = None
        """When it is killed, because its node no longer waits for it."""
        self.has_ended = False
        self._was_stopped = False
        """It was asked to end early."""

    def receive(self) -> None:
        """Read from the node: the rest of the request, GO, or signals. A closed socket stops the command."""
        try:
            received = self.channel.recv(CHUNK)
        except OSError:
            received = b""
        if not received:
            self.stop()
        elif self._process is not None:
            self.send_signals(*received)
        elif self._request is not None:
            self._start(self._request)  # the first byte can only be GO
            self.send_signals(*received[1:])
        else:
            self._received += received
            size = int.from_bytes(self._received[:HEADER], "big")
            if len(self._received) >= HEADER and len(self._received) - HEADER >= size:
                self._request = json.loads(self._received[HEADER:])
                self._send({"ready": True})

    def poll(self) -> None:
        """Check whether it has ended, or must. Processes that it left running are killed when it ends."""
        if self._process is None:
            return
        code = self._process.poll()
        if code is not None:
            self.send_signals(signal.SIGKILL, everywhere=self._was_stopped)
            if self._was_stopped:
                kill_all(self._variable, KILL_ROUNDS)
            self._send({"exit": code})
            self.has_ended = True
        elif self.kill_at is not None and monotonic() >= self.kill_at:
            self.send_signals(signal.SIGKILL)

    def send_signals(self, *numbers: int, everywhere: bool = True) -> None:
        """Send signals to its group, to the other groups of its session, and to processes that left the session.

        `timeout` and shells with job control make groups; daemons leave the session. Finding those means reading every
        process of the system, so it is skipped (`everywhere=False`) when a command ends by itself.
        """
        if self._process is None or not numbers:
            return
        session = self._process.pid
        self._was_stopped = self._was_stopped or (
            everywhere and not {signal.SIGTERM, signal.SIGKILL}.isdisjoint(numbers)
        )
        groups, others = find_relatives(session, self._variable) if everywhere else (set(), set())
        for number in numbers:
            for group in {session, *groups}:
                with suppress(OSError):  # the group is empty
                    os.killpg(group, number)
            for pid in others:
                send_signal(pid, self._variable, number)

    def stop(self) -> None:
        """Ask it to end, and kill it soon after: its node no longer waits for it."""
        if self._process is None:
            self._close_fds()
            self.has_ended = True
        elif self.kill_at is None:
            self.kill_at = monotonic() + EXIT_GRACE
            self.send_signals(signal.SIGTERM, signal.SIGCONT)  # a suspended process would not get the first

    def _start(self, request: dict[str, Any]) -> None:
        self._variable = f"{RUN_VARIABLE}={request['env'][RUN_VARIABLE]}".encode()
        try:
            self._process = self._spawn(request)
        except (OSError, ValueError) as error:
            self._send({"error": str(error)})
            self.has_ended = True
        else:
            self._send({"pid": self._process.pid})
        finally:
            self._close_fds()

    def _spawn(self, request: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start exactly the requested program: one that was checked is run by its open file, where possible."""
        fd = open_program(request)
        try:
            check_program(request, fd)
            return subprocess.Popen(  # noqa: S603 - checked by the node
                request["argv"],
                executable=request["program"] if fd is None else f"{OWN_FDS}/{fd}",
                pass_fds=(PROGRESS_FD,) if fd is None else (PROGRESS_FD, fd),
                stdin=self._fds[0],
                stdout=self._fds[1],
                stderr=self._fds[1],
                cwd=request["cwd"],
                env=request["env"],
                start_new_session=True,
                preexec_fn=partial(before_exec, request, fd, self._fds[2], self._prctl, os.getpid()),  # noqa: PLW1509 - one thread
            )
        except subprocess.SubprocessError:  # it hides the error that was raised in before_exec
            raise OSError("its limits could not be set, or its file or directory has just been replaced") from None
        finally:
            if fd is not None:
                os.close(fd)

    def _close_fds(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = ()  # type: ignore[assignment] # the command owns them now

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the node is gone
            self.channel.sendall(json.dumps(message).encode() + b"\n")


def open_program(request: dict[str, Any]) -> int | None:
    """Open the file of a checked program. None for scripts, which their interpreter opens again by path."""
    if request["identity"] is None or not os.path.isdir(OWN_FDS):  # noqa: PTH112 - without pathlib
        return None
    try:
        fd = os.open(request["program"], os.O_RDONLY)
    except PermissionError:  # executable, but not readable
        return None
    if os.pread(fd, len(SHEBANG), 0) != SHEBANG:
        return fd
    os.close(fd)
    return None


def check_program(request: dict[str, Any], fd: int | None) -> None:
    """Refuse a program that was replaced since the node checked it; OSError."""
    if request["identity"] is not None:
        status = os.stat(request["program"]) if fd is None else os.fstat(fd)  # noqa: PTH116 - without pathlib
        if [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns] != request["identity"]:
            raise OSError(f"{request['program']} has just been replaced")


def before_exec(
    request: dict[str, Any],
    fd: int | None,
    progress: int,
    prctl: Any,
    supervisor: int,
) -> None:
    """In the new process, in its directory, right before exec: apply limits, and check for replaced files again."""
    os.dup2(progress, PROGRESS_FD)
    apply_limits(request["limits"], prctl, supervisor)
    check_program(request, fd)
    here = os.stat(".")  # noqa: PTH116 - without pathlib
    if request["cwd_identity"] is not None and [here.st_dev, here.st_ino] != request["cwd_identity"]:
        raise OSError("the directory has just been replaced")
    if fd is not None:
        os.set_inheritable(fd, False)  # noqa: FBT003 - as it is declared


def apply_limits(limits: dict[str, int], prctl: Any, supervisor: int) -> None:
    """In the new process: die with the supervisor, and set the resource limits."""
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)
    if "nice" in limits:
        os.nice(limits["nice"])
    set_limit(resource.RLIMIT_CORE, 0)
    if "cpu_seconds" in limits:
        set_limit(resource.RLIMIT_CPU, limits["cpu_seconds"], slack=1)
    if "memory_mb" in limits:
        set_limit(resource.RLIMIT_AS, limits["memory_mb"] * 1_048_576)


def set_limit(resource_id: int, limit: int, slack: int = 0) -> None:
    """Set a soft limit, and a hard one `slack` above it; neither exceeds the present hard limit."""
    _, present = resource.getrlimit(resource_id)
    soft, hard = (
        value if present == resource.RLIM_INFINITY else min(value, present) for value in (limit, limit + slack)
    )
    resource.setrlimit(resource_id, (soft, hard))


def find_relatives(session: int, variable: bytes) -> tuple[set[int], set[int]]:
    """Return the process groups of a session besides its first, and the processes of the run in other sessions.

    Both are empty where /proc is missing.
    """
    groups, others = set(), set()
    for pid in list_processes():
        with suppress(OSError, ValueError, IndexError):
            group, process_session = _read(pid, "stat").rpartition(b")")[2].split()[2:4]
            if int(process_session) == session:
                groups.add(int(group))
            elif has_variable(pid, variable):
                others.add(pid)
    return groups - {session}, others


def list_processes() -> Iterator[int]:
    """Yield the ids of all processes; none where /proc is missing."""
    if os.path.isdir(PROC):  # noqa: PTH112 - without pathlib
        yield from map(int, filter(str.isdigit, os.listdir(PROC)))  # noqa: PTH208 - likewise


def has_variable(pid: int, variable: bytes) -> bool:
    """Whether a process of this user was started with an environment variable, given as `NAME=value`."""
    return b"\0" + variable + b"\0" in b"\0" + read_environment(pid)


def read_environment(pid: int) -> bytes:
    """Return the environment that a process of this user was started with; empty for others and ended ones."""
    try:
        is_ours = os.stat(f"{PROC}/{pid}").st_uid == os.geteuid()  # noqa: PTH116 - without pathlib
        return _read(pid, "environ") if is_ours else b""
    except OSError:
        return b""


def send_signal(pid: int, variable: bytes, number: int) -> None:
    """Send a signal to a process if it still has the variable: its id may have been reused."""
    with suppress(OSError):
        try:
            handle = os.pidfd_open(pid)
        except (AttributeError, OSError):  # an old system
            if has_variable(pid, variable):
                os.kill(pid, number)
            return
        try:
            if has_variable(pid, variable):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def kill_all(variable: bytes, rounds: int = MAX_KILL_ROUNDS) -> bool:
    """Kill all processes of a run, and those that they start meanwhile. Returns whether all are gone."""
    for _ in range(rounds):
        pids = [pid for pid in list_processes() if has_variable(pid, variable)]
        if not pids:
            return True
        for pid in pids:
            send_signal(pid, variable, signal.SIGKILL)
        sleep(KILL_INTERVAL)
    return False


def _read(pid: int, name: str) -> bytes:
    with open(f"{PROC}/{pid}/{name}", "rb") as file:  # noqa: PTH123 - without pathlib
        return file.read()


class Supervisor:
    """Runs all commands of one node."""

    def __init__(self, listener: socket.socket, node: int) -> None:
        """Commands are announced on `listener`; `node` is the process id of the node."""
        self._listener, self._node = listener, node
        self._commands: set[Command] = set()
        self._prctl = _load_prctl()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._is_open = True
        with suppress(AttributeError, OSError):  # an old system; then the checks alone notice the end of the node
            self._node_handle = os.pidfd_open(node)
            self._selector.register(self._node_handle, selectors.EVENT_READ, self._node_ended)
        # SIGCHLD wakes the loop whenever a process has ended.
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)  # noqa: FBT003 - as it is declared
        self._wakeup_writer = writer
        self._selector.register(reader, selectors.EVENT_READ, partial(reader.recv, CHUNK))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the node and all its commands are gone."""
        while self._is_open or self._commands:
            for key, _ in self._selector.select(self._timeout()):
                key.data()
            if os.getppid() != self._node:
                self._is_open = False
                for command in self._commands:
                    command.stop()
            for command in list(self._commands):
                command.poll()
                if command.has_ended:
                    self._remove(command)

    def _node_ended(self) -> None:
        """Wake the loop, which finds that its parent is another process."""
        self._selector.unregister(self._node_handle)

    def _timeout(self) -> float:
        kills = [command.kill_at - monotonic() for command in self._commands if command.kill_at is not None]
        return max(0.01, min([NODE_CHECK_SECONDS if self._commands else IDLE_NODE_CHECK_SECONDS, *kills]))

    def _accept(self) -> None:
        announced, fds, _, _ = socket.recv_fds(self._listener, 1, FD_COUNT)
        if not announced:
            self._selector.unregister(self._listener)
            self._is_open = False
        elif len(fds) == FD_COUNT:
            command = Command(socket.socket(fileno=fds[0]), (fds[1], fds[2], fds[3]), self._prctl)
            self._commands.add(command)
            self._selector.register(command.channel, selectors.EVENT_READ, partial(self._receive, command))

    def _receive(self, command: Command) -> None:
        command.receive()
        if command.kill_at is not None:  # the channel is closed
            self._selector.unregister(command.channel)

    def _remove(self, command: Command) -> None:
        self._commands.discard(command)
        with suppress(KeyError):
            self._selector.unregister(command.channel)
        command.channel.close()


def _load_prctl() -> Any:
    """Return prctl, with which a process asks Linux to be killed when its parent is gone."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only here, and not in the node

    return ctypes.CDLL(None).prctl


def reserve_progress_fd(listener: int) -> None:
    """Take the number for progress, so that nothing a new process needs until exec has it."""
    if listener != PROGRESS_FD:
        null = os.open(os.devnull, os.O_RDONLY)
        if null != PROGRESS_FD:
            os.dup2(null, PROGRESS_FD)
            os.close(null)


def keep_locks(fds: list[str]) -> list[int]:
    """Hold the locks of the node while this process lives, under numbers that nothing else needs."""
    lock_files = [fcntl.fcntl(int(fd), fcntl.F_DUPFD_CLOEXEC, FIRST_LOCK_FD) for fd in fds]
    for fd in fds:
        os.close(int(fd))
    return lock_files


def main() -> None:
    """Serve the node that started this process. Arguments: a socket, the node's process id and its locks."""
    keep_locks(sys.argv[3:])
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    reserve_progress_fd(int(sys.argv[1]))
    Supervisor(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).run()


if __name__ == "__main__":
    main()
