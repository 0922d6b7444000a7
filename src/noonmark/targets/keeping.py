"""Keeping: the way of a node to its keeper, the process that starts commands for it; see `keeper`."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.spawn import get_executable
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from noonmark.targets import keeper
from noonmark.targets.output import Tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PIECE = 65_536
NEEDED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What the keeper has of the environment: commands can read that of the process that started them."""
LAST_PIECES = 64
"""So much is read of the output that is left when a command has ended; who writes on then is no part of it."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be started."""

    program: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int]
    stdin: bytes
    identity: tuple[int, int, int, int] | None = None
    """Device, inode, size and time of the last change that the file of the program must have."""
    place: tuple[int, int] | None = None
    """Device and inode that the folder must have."""

    def to_request(self) -> bytes:
        """As the keeper reads it."""
        fields = {"program": self.program, "argv": self.argv, "env": dict(self.env), "cwd": self.cwd}
        checked = {"identity": self.identity, "place": self.place}
        body = json.dumps({**fields, **checked, "limits": dict(self.limits)}).encode()
        return len(body).to_bytes(keeper.HEADER, "big") + body


class Keeping:
    """Starts a keeper when there is something to start, and another one when that was lost."""

    def __init__(self) -> None:
        """There is none yet."""
        self._door: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()
        self._is_closed = False

    def start(self, order: Order) -> Kept:
        """Have a program started; whether it was shows when it is listened to. Raises OSError."""
        ours, theirs = socket.socketpair()
        own_in, their_out = os.pipe()
        their_in, own_out = os.pipe()
        try:
            self._announce([theirs.fileno(), their_in, their_out])
        except BaseException:
            ours.close()
            os.close(own_in)
            os.close(own_out)
            raise
        finally:
            theirs.close()
            os.close(their_in)
            os.close(their_out)
        return Kept(ours, order, own_in, own_out)

    def close(self) -> None:
        """Start nothing more. What still runs is asked to end, and made to."""
        with self._lock:
            self._is_closed = True
            self._let_go()

    def _announce(self, files: list[int]) -> None:
        with self._lock:
            if self._is_closed:
                raise OSError("this node is about to stop")
            if self._process is not None and self._process.poll() is not None:
                self._let_go()
            if self._door is None:
                self._hire()
            assert self._door is not None  # noqa: S101 - it was just made
            socket.send_fds(self._door, [b"+"], files)

    def _hire(self) -> None:
        ours, theirs = socket.socketpair()
        command = [os.fsdecode(get_executable()), "-I", "-S", "-X", "utf8", keeper.__file__]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - ours
                [*command, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={name: value for name in NEEDED if (value := os.environ.get(name)) is not None},
                start_new_session=True,  # a Ctrl-C is for the node, which says what becomes of its commands
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._door = ours

    def _let_go(self) -> None:
        if self._door is not None:
            self._door.close()
        if self._process is not None:
            # It ends when its commands have. The caller may be an event loop, which must not wait for that.
            with suppress(RuntimeError):  # at the very end of a program there are no more threads
                Thread(target=self._process.wait, name="noonmark-keeper", daemon=True).start()
        self._door = self._process = None


class Kept:
    """One command that was given to the keeper. It belongs to one thread; any other may ring."""

    def __init__(self, line: socket.socket, order: Order, output: int, stdin: int) -> None:
        """It may take a moment until it is started."""
        self._line, self._output, self._stdin = line, output, stdin
        self._ear, self._mouth = os.pipe()
        self._ringing = Lock()
        self._is_closed = False
        self._heard = bytearray()
        self._to_say = memoryview(order.to_request())
        self._to_write = memoryview(order.stdin)
        self.tail = Tail()
        """The last of what it wrote."""
        for one in (self._ear, self._mouth, output, stdin):
            os.set_blocking(one, False)
        line.setblocking(False)  # noqa: FBT003 - as it is declared
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._selector.register(output, selectors.EVENT_READ)
        self._selector.register(stdin, selectors.EVENT_WRITE)

    def hear(self, seconds: float | None) -> list[dict[str, Any]]:
        """What the keeper says within this time; nothing, when somebody rang. EOFError when it is gone.

        Meanwhile the command is given its input, and its output is read.
        """
        said: list[dict[str, Any]] = []
        for key, events in self._selector.select(seconds):
            if key.fd == self._ear:
                with suppress(BlockingIOError):
                    os.read(self._ear, PIECE)
            elif key.fd == self._output:
                self._read()
            elif key.fd == self._stdin:
                self._write()
            else:
                said += self._talk(events)
        return said

    def go(self) -> bool:
        """Let the command be started; False when the keeper can no longer hear of it, so that it surely is not."""
        try:
            return self._line.send(bytes([keeper.GO])) == 1
        except OSError:
            return False

    def send(self, number: int) -> None:
        """Send a signal to the command and its children."""
        with suppress(OSError):
            self._line.send(bytes([number]))

    def ring(self) -> None:
        """Make whoever listens look up."""
        with self._ringing:
            if not self._is_closed:
                with suppress(BlockingIOError):  # it was rung often enough
                    os.write(self._mouth, b"!")

    def drain(self) -> None:
        """Read what is left of the output. Not to its end: what has left the group of the command may hold it open."""
        for _ in range(LAST_PIECES):
            if not self._read():
                return

    def close(self) -> None:
        """Let go of it; if it still runs, the keeper ends it."""
        with self._ringing:
            if self._is_closed:
                return
            self._is_closed = True
            self._selector.close()
            self._line.close()
            for one in (self._ear, self._mouth, self._output, self._stdin):
                if one >= 0:
                    os.close(one)

    def _talk(self, events: int) -> Iterator[dict[str, Any]]:
        if events & selectors.EVENT_WRITE:
            with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                self._to_say = self._to_say[self._line.send(self._to_say) :]
            if not self._to_say:
                self._selector.modify(self._line, selectors.EVENT_READ)
        if events & selectors.EVENT_READ:
            try:
                piece = self._line.recv(PIECE)
            except ConnectionError:
                piece = b""
            if not piece:
                raise EOFError
            self._heard += piece
            *lines, self._heard = self._heard.split(b"\n")
            for line in lines:
                yield json.loads(line)

    def _read(self) -> bool:
        """Take in a piece of the output; whether there may be more."""
        if self._output < 0:
            return False
        try:
            piece = os.read(self._output, PIECE)
        except BlockingIOError:
            return False
        if piece:
            self.tail.add(piece)
            return True
        self._selector.unregister(self._output)
        os.close(self._output)
        self._output = -1
        return False

    def _write(self) -> None:
        """Give it a piece of its input; one that does not want it has its reasons."""
        try:
            self._to_write = self._to_write[os.write(self._stdin, self._to_write) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._to_write = memoryview(b"")
        if not self._to_write:
            self._selector.unregister(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
