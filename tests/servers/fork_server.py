"""Starts programs that use Noonmark by a fork of a process that has imported it, which saves half a second each.

`python fork_server.py SOCKET` is run by `tests.servers.forked`. One connection is one program: the request names the
module or script, its arguments, folder and environment, and carries its three standard streams. The answers are its
process id, and, at its end, its exit code. When the other side hangs up, the program is killed.
"""

import atexit
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

IMPORTED = (
    *("noonmark.cli.app", "noonmark.server.host", "noonmark.embedded.scheduler", "noonmark.embedded.async_scheduler"),
    *("noonmark.client", "noonmark.stores.sqlite", "noonmark.stores.postgres", "psycopg_pool"),
    *(f"noonmark.cli.commands.{name}" for name in ("event", "files", "run", "schedule", "server", "store", "upload")),
    *("noonmark.targets.command", "noonmark.targets.http", "json", "multiprocessing", "sqlite3", "http.client"),
)
REQUEST_BYTES = 1_000_000


class ForkServer:
    """The processes that were started, and the connections of those who asked for them."""

    def __init__(self, path):
        self._children = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"{path}.new")
        self._listener.listen(100)
        Path(f"{path}.new").rename(path)
        self._wakeup, wakeup = socket.socketpair()
        wakeup.settimeout(0)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        self._selector = selectors.DefaultSelector()
        for source in (sys.stdin, self._listener, self._wakeup):
            self._selector.register(source, selectors.EVENT_READ)
        self._open = [self._listener, self._wakeup, wakeup, self._selector]

    def run(self):
        """Serve until the tests are over. Returns in each new process, with what it is to run."""
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            # Whoever was killed is gone before the next program is started: it may want the same port.
            for connection in ready - {sys.stdin, self._listener, self._wakeup}:
                self._kill(connection)
            if self._wakeup in ready:
                self._wakeup.recv(REQUEST_BYTES)
                self._reap()
            if sys.stdin in ready:
                for connection in list(self._children):
                    self._kill(connection)
                os._exit(0)
            if self._listener in ready and (request := self._start()) is not None:
                return request

    def _start(self):
        """Fork. None in the server itself."""
        connection, _ = self._listener.accept()
        data, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 3)
        pid = os.fork()
        if pid:
            for stream in streams:
                os.close(stream)
            self._children[connection] = pid
            self._selector.register(connection, selectors.EVENT_READ)
            connection.send(str(pid).encode())
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for opened in (*self._open, *self._children, connection):
            opened.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return json.loads(data)

    def _kill(self, connection):
        with suppress(ProcessLookupError):
            os.kill(self._children[connection], signal.SIGKILL)
            os.waitpid(self._children[connection], 0)
        self._forget(connection)

    def _reap(self):
        for connection, pid in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with suppress(OSError):  # the other side has hung up meanwhile
                    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                self._forget(connection)

    def _forget(self, connection):
        del self._children[connection]
        self._selector.unregister(connection)
        connection.close()


def become(folder, environment, is_session):
    """Take over what a new process finds: folder, environment, streams, time zone, warnings and module path."""
    if is_session:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = open(0), _stream(1), _stream(2, errors="backslashreplace")  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.path[:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    for option in filter(None, environment.get("PYTHONWARNINGS", "").split(",")):
        warnings._setoption(option)


def _stream(number, errors=None):
    is_at_once = number == 2 or os.isatty(number)
    return open(number, "w", errors=errors, buffering=1 if is_at_once else -1)  # noqa: PTH123


def run(program):
    """Run a module, or a script. What it leaves behind is not torn down: that would copy each page of the server."""
    code = 0
    try:
        if program.endswith(".py"):
            run_script(program)
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_script(path):
    """Run a file as Python does: it stays the main module until the last thread and exit handler has ended."""
    sys.path[0] = str(Path(path).resolve().parent)
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = path
    exec(compile(Path(path).read_bytes(), path, "exec"), vars(main))  # noqa: S102 - the program of a test


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()
    asked = ForkServer(sys.argv[1]).run()
    sys.argv = [asked["program"], *asked["arguments"]]
    become(asked["folder"], asked["environment"], asked["is_session"])
    run(asked["program"])
