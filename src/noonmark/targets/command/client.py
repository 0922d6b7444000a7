"""The client of the supervisor, the process that starts commands for a node; see `supervisor`."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
from contextlib import suppress
from multiprocessing.spawn import get_executable
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import frozen
from noonmark.node_locks import shared_descriptors
from noonmark.targets.command import supervisor
from noonmark.targets.command.output import OutputTail, ProgressLines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noonmark.core.redaction import Redactor

CHUNK = 65_536
INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What the supervisor gets of the environment: commands can read that of the process that started them."""
MAX_DRAINED_CHUNKS = 64
"""How much output is read after a command has ended. A process that goes on writing is not part of it."""


@frozen
class CommandRequest:
    """What to start."""

    program: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int]
    stdin: bytes
    identity: tuple[int, int, int, int] | None = None
    """Device, inode, size and modification time that the file of the program must have."""
    cwd_identity: tuple[int, int] | None = None
    """Device and inode that the directory must have."""
    redactor: Redactor | None = None
    """Masks the secrets that it was given in what it puts out."""
    usage_file: str | None = None
    """Where it may write what it has used."""

    def encode(self) -> bytes:
        """Return the request as the supervisor reads it."""
        fields = {"program": self.program, "argv": self.argv, "env": dict(self.env), "cwd": self.cwd}
        identities = {"identity": self.identity, "cwd_identity": self.cwd_identity}
        body = json.dumps({**fields, **identities, "limits": dict(self.limits)}).encode()
        return len(body).to_bytes(supervisor.HEADER, "big") + body


class SupervisorClient:
    """Starts a supervisor with the first command, and another one when that was lost."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()
        self._is_closed = False

    def start(self, request: CommandRequest) -> CommandChannel:
        """Announce a command; whether it could be started arrives on its channel. Raises OSError."""
        ours, theirs = socket.socketpair()
        output_reader, output_writer = os.pipe()
        stdin_reader, stdin_writer = os.pipe()
        progress_reader, progress_writer = os.pipe()
        try:
            self._announce([theirs.fileno(), stdin_reader, output_writer, progress_writer])
        except BaseException:
            ours.close()
            for fd in (output_reader, stdin_writer, progress_reader):
                os.close(fd)
            raise
        finally:
            theirs.close()
            for fd in (stdin_reader, output_writer, progress_writer):
                os.close(fd)
        return CommandChannel(ours, request, output_reader, stdin_writer, progress_reader)

    def close(self) -> None:
        """Start nothing more. The supervisor ends what still runs."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

    def _announce(self, fds: list[int]) -> None:
        with self._lock:
            if self._is_closed:
                raise OSError("this node is stopping")
            if self._process is not None and self._process.poll() is not None:
                self._disconnect()
            if self._listener is not None:
                try:
                    socket.send_fds(self._listener, [b"+"], fds)
                except (BrokenPipeError, ConnectionResetError):  # it was killed, and only its socket is gone so far
                    self._disconnect()
                else:
                    return
            socket.send_fds(self._start_supervisor(), [b"+"], fds)

    def _start_supervisor(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        command = [os.fsdecode(get_executable()), "-I", "-S", "-X", "utf8", supervisor.__file__]
        try:
            with shared_descriptors() as locks:
                self._process = subprocess.Popen(  # noqa: S603 - our own
                    [*command, str(theirs.fileno()), str(os.getpid()), *map(str, locks)],
                    pass_fds=[theirs.fileno(), *locks],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={name: value for name in INHERITED_VARIABLES if (value := os.environ.get(name)) is not None},
                    start_new_session=True,  # a Ctrl-C is for the node, which decides what happens to its commands
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._listener = ours
        return ours

    def _disconnect(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._process is not None:
            # It ends when its commands have ended. The caller may be an event loop, which must not wait for that.
            with suppress(RuntimeError):  # at interpreter exit no thread can be started
                Thread(target=self._process.wait, name="noonmark-supervisor", daemon=True).start()
        self._listener = self._process = None


class CommandChannel:
    """The connection to one command in the supervisor. One thread uses it; any other may wake that thread."""

    def __init__(self, channel: socket.socket, request: CommandRequest, output: int, stdin: int, progress: int) -> None:
        self._channel, self._output, self._stdin, self._progress = channel, output, stdin, progress
        self._wakeup_reader, self._wakeup_writer = os.pipe()
        self._wakeup_lock = Lock()
        self._is_closed = False
        self._received = bytearray()
        self._unsent_request = memoryview(request.encode())
        self._unsent_stdin = memoryview(request.stdin)
        self.output, self.progress = OutputTail(), ProgressLines()
        for fd in (self._wakeup_reader, self._wakeup_writer, output, stdin, progress):
            os.set_blocking(fd, False)
        channel.setblocking(False)  # noqa: FBT003 - as it is declared
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ)
        self._selector.register(output, selectors.EVENT_READ)
        self._selector.register(stdin, selectors.EVENT_WRITE)
        self._selector.register(progress, selectors.EVENT_READ)

    def receive(self, seconds: float | None) -> list[dict[str, Any]]:
        """Return the supervisor's messages within this time; none after a wake-up. EOFError when it is gone.

        Meanwhile the command gets its stdin, and its output is read.
        """
        messages: list[dict[str, Any]] = []
        for key, events in self._selector.select(seconds):
            if key.fd == self._wakeup_reader:
                with suppress(BlockingIOError):
                    os.read(self._wakeup_reader, CHUNK)
            elif key.fd == self._output:
                self._read_output()
            elif key.fd == self._stdin:
                self._write_stdin()
            elif key.fd == self._progress:
                self._read_progress()
            else:
                messages += self._exchange(events)
        return messages

    def go(self) -> bool:
        """Tell the supervisor to start the command; False if it is gone, so that the command surely does not start."""
        try:
            return self._channel.send(bytes([supervisor.GO])) == 1
        except OSError:
            return False

    def send_signal(self, number: int) -> None:
        """Send a signal to all processes of the command."""
        with suppress(OSError):
            self._channel.send(bytes([number]))

    def wake(self) -> None:
        """Wake the thread that waits in `receive`."""
        with self._wakeup_lock:
            if not self._is_closed:
                with suppress(BlockingIOError):  # enough wake-ups are pending
                    os.write(self._wakeup_writer, b"!")

    def drain(self) -> None:
        """Read the remaining output. Not to its end: a process that has left the group may hold it open."""
        for _ in range(MAX_DRAINED_CHUNKS):
            if not self._read_output():
                return

    def close(self) -> None:
        """Close the connection; if the command still runs, the supervisor ends it."""
        with self._wakeup_lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._selector.close()
            self._channel.close()
            for fd in (self._wakeup_reader, self._wakeup_writer, self._output, self._stdin, self._progress):
                if fd >= 0:
                    os.close(fd)

    def _exchange(self, events: int) -> Iterator[dict[str, Any]]:
        if events & selectors.EVENT_WRITE:
            with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                self._unsent_request = self._unsent_request[self._channel.send(self._unsent_request) :]
            if not self._unsent_request:
                self._selector.modify(self._channel, selectors.EVENT_READ)
        if events & selectors.EVENT_READ:
            try:
                chunk = self._channel.recv(CHUNK)
            except ConnectionError:
                chunk = b""
            if not chunk:
                raise EOFError
            self._received += chunk
            *lines, self._received = self._received.split(b"\n")
            for line in lines:
                yield json.loads(line)

    def _read_output(self) -> bool:
        """Read a chunk of the output; False when there is no more at present."""
        if self._output < 0:
            return False
        try:
            chunk = os.read(self._output, CHUNK)
        except BlockingIOError:
            return False
        if chunk:
            self.output.add(chunk)
            return True
        self._selector.unregister(self._output)
        os.close(self._output)
        self._output = -1
        return False

    def _read_progress(self) -> None:
        try:
            chunk = os.read(self._progress, CHUNK)
        except BlockingIOError:
            return
        if chunk:
            self.progress.add(chunk)
            return
        self._selector.unregister(self._progress)
        os.close(self._progress)
        self._progress = -1

    def _write_stdin(self) -> None:
        """Write a chunk of stdin; a command that has closed its stdin does not get the rest."""
        try:
            self._unsent_stdin = self._unsent_stdin[os.write(self._stdin, self._unsent_stdin) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent_stdin = memoryview(b"")
        if not self._unsent_stdin:
            self._selector.unregister(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
