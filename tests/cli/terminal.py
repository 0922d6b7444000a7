"""Runs commands in processes: in a pipe, or on a terminal of 80 columns."""

import fcntl
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

from tests.servers import forked

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds that a command may take on a busy machine."""
NOONMARK = (sys.executable, "-m", "noonmark")
# The developer's own terminal must not change the outcome.
PERSONAL = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "COLORTERM", "TTY_COMPATIBLE", "PYTHONIOENCODING")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in PERSONAL} | {
    "PYTHONUTF8": "1",
    "TERM": "xterm-256color",
}


def by_fork_server(command, environment):
    """The same command without the time that imports take, unless it depends on how the interpreter starts."""
    if any(name.startswith("PYTHON") for name in environment):
        return command
    if command[: len(NOONMARK)] == NOONMARK:
        return forked.command(*command[len(NOONMARK) :])
    is_script = command[0] == sys.executable and command[1].endswith(".py")
    return forked.script(*command[1:]) if is_script else command


def in_pipe(*command, stdin=b"", **environment):
    """Run to the end; returns the output as text."""
    done = subprocess.run(
        by_fork_server(command, environment),
        input=stdin,
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=ENVIRONMENT | environment,
        timeout=PATIENCE,
    )
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def in_terminal(*command, typed=""):
    """Run to the end on a pseudo-terminal with typed input; returns the exit code and the output."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(by_fork_server(command, {}), cwd=ROOT, env=ENVIRONMENT, **streams) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        os.close(ours)
        return process.wait(timeout=PATIENCE), shown.decode()


def _read(terminal):
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux reports a closed terminal this way
        return b""
