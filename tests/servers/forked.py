"""Programs that use Noonmark, each a process of its own, started without the time that imports take."""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE_BYTES = 100


@cache
def fork_server():
    """Where the fork server of this process listens. It ends with this process, and what it has started with it."""
    folder = tempfile.TemporaryDirectory(prefix="fork-")
    path = Path(folder.name) / "socket"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONUTF8": "1"}
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fork_server.py")), str(path)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )

    def close():
        server.stdin.close()
        server.wait()
        folder.cleanup()

    atexit.register(close)
    while not path.exists():
        assert server.poll() is None, "the fork server did not start"
        select.select([], [], [], 0.01)
    return str(path)


def command(*arguments):
    """A command line that runs `noonmark` with these arguments by the fork server."""
    return _command("noonmark", *arguments)


def script(path, *arguments):
    """A command line that runs a script as `python` does, by the fork server; a path is relative to its folder."""
    return _command(str(path), *map(str, arguments))


def _command(program, *arguments):
    shell = Path(__file__).with_name("forked_command.py")
    return [sys.executable, "-I", "-S", str(shell), fork_server(), program, *arguments]


def start_forked(module, *arguments, cwd, env, stdout, stderr, start_new_session=False):
    """As `subprocess.Popen` with `python -m module ..` and no input."""
    request = {
        "program": module,
        "arguments": arguments,
        "folder": str(cwd),
        "environment": dict(env),
        "is_session": start_new_session,
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(fork_server())
    with Path(os.devnull).open("rb") as stdin:
        streams = [stream.fileno() for stream in (stdin, stdout, stderr)]
        socket.send_fds(connection, [json.dumps(request).encode()], streams)
        return ForkedProcess([module, *arguments], connection)


class ForkedProcess:
    """The part of `subprocess.Popen` that tests use."""

    def __init__(self, args, connection):
        self.args, self.returncode = args, None
        self._connection = connection
        self.pid = int(connection.recv(CODE_BYTES))

    def poll(self):
        return self._read(0)

    def wait(self, timeout=None):
        if self._read(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _read(self, timeout):
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            self.returncode = int(self._connection.recv(CODE_BYTES))
            self._connection.close()
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its exit code is on the way
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)
