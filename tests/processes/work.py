"""The functions that nodes run, and the journal outside the store in which they record it.

The journal is named by an environment variable, so that a copy of a database that is opened elsewhere leaves no mark.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import threading
from pathlib import Path

from noonmark.clocks import SystemClock
from noonmark.core.instants import to_micros

JOURNAL = "PROCESS_TEST_JOURNAL"
CLOCK = SystemClock()


def note(what, **facts):
    """Append one line in one write, so that the lines of many processes do not mix."""
    if JOURNAL not in os.environ:
        return
    line = json.dumps({"what": what, "at": CLOCK.micros(), "pid": os.getpid(), **facts})
    descriptor = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


def begin(context, tag):
    note(
        "begin",
        occurrence=context.occurrence_id,
        schedule=context.schedule_id,
        nominal=to_micros(context.nominal_at),
        due=to_micros(context.due_at),
        attempt=context.attempt,
        tag=tag,
    )


def end(context, *, stopped=False):
    note("end", occurrence=context.occurrence_id, schedule=context.schedule_id, stopped=stopped)


def record(seconds=0, tag=None, *, context):
    """Take so long, whoever asks it to stop."""
    begin(context, tag)
    if seconds:
        threading.Event().wait(seconds)
    end(context)
    return os.getpid()


def obey(seconds, tag=None, *, context):
    """Take so long, or until it is asked to stop."""
    begin(context, tag)
    stopped = context.cancelled.wait(seconds)
    end(context, stopped=stopped)
    return os.getpid()


def hold(folder, *, obeys, context):
    """Whoever comes first, and the second too, keeps it until it is let go, or asked to stop, if it obeys."""
    begin(context, folder)
    mine = "first"
    try:
        (Path(folder) / mine).touch(exist_ok=False)
    except FileExistsError:
        mine = "second"
    stopped = False
    while not stopped and not (Path(folder) / f"let-{mine}-go").exists():
        stopped = (context.cancelled if obeys else threading.Event()).wait(0.02)
    end(context, stopped=stopped)
    return mine


def fork(folder, *, hooks, context):
    """Leave a fork behind that lives until it is let go; one that is made without Python's hooks keeps everything."""
    begin(context, folder)
    # `PyDLL` keeps the interpreter lock: a fork that had to take it might wait for a thread that it does not have.
    if (os.fork() if hooks else ctypes.PyDLL(None).fork()) == 0:
        # The folder may be removed before a fork of the second run has looked.
        while Path(folder).exists() and not (Path(folder) / "let-go").exists():
            select.select([], [], [], 0.02)
        os._exit(0)
    threading.Event().wait(60)


WAIT = 'while [ -e "$0" ] && [ ! -e "$0/let-go" ]; do sleep 0.02; done'


def spawn(folder, *, context):
    """Leave a program behind that lives until it is let go; it inherits whatever is not closed when it starts."""
    begin(context, folder)
    subprocess.Popen(["sh", "-c", WAIT, folder], close_fds=False)
    threading.Event().wait(60)


def die(*, context):
    """Take the whole process along."""
    begin(context, None)
    os.kill(os.getpid(), signal.SIGKILL)


def nothing():
    """Leave no mark."""
    return "done"


def fail():
    """Leave no mark, and fail."""
    raise ValueError("it fails")
