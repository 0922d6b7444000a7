"""Functions that worker processes call. A separate module, which is quick to import."""

import contextlib
import ctypes
import functools
import logging
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path

from noonmark.clocks import SystemClock
from noonmark.targets.function.process_worker import check_not_loading

now = SystemClock().micros
SOON = 30.0
MOMENT = 0.005


def add(one, two=0):
    return one + two


async def add_later(one, two=0):
    return one + two


def disguised(*args):
    return add_later(*args)


class Adder:
    @classmethod
    def make(cls, one):
        return one + 1

    @staticmethod
    def plain(one):
        return one + 1

    def method(self, one):
        return one + 1


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@decorated
def wrapped(one):
    return one + 1


def whoami():
    return os.getpid()


def stamp():
    return now()


def told(context):
    return {
        "occurrence_id": context.occurrence_id,
        "schedule_id": context.schedule_id,
        "times": [context.nominal_at.isoformat(), context.due_at.isoformat()],
        "attempt": context.attempt,
        "payload": context.payload,
        "event": context.event,
        "cancelled": [isinstance(context.cancelled, threading.Event), context.cancelled.is_set()],
        "logger": isinstance(context.logger, logging.LoggerAdapter),
    }


def mine(context):
    return context


def surroundings():
    return {"cwd": str(Path.cwd()), "variable": os.environ.get("NOONMARK_ERRAND"), "path": sys.path, "argv": sys.argv}


def speaks():
    print("from a child")  # noqa: T201 - that is what is tested
    print("and its errors", file=sys.stderr)  # noqa: T201 - likewise


def logs(context):
    context.logger.info("in %s", "a child")
    logging.getLogger("errands").warning("to the root", extra={"number": 7})
    try:
        int("logged")
    except ValueError:
        logging.getLogger("errands").exception("it failed")
    logging.getLogger("errands").debug("too quiet")


class OwnError(Exception):
    pass


class UnshownError(ValueError):
    def __str__(self):
        raise RuntimeError("cannot be shown")


ERRORS = {
    "value": lambda: ValueError("on purpose", 7),
    "key": lambda: KeyError("a"),
    "file": lambda: FileNotFoundError(2, "No such file", "the name"),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "own": lambda: OwnError("on purpose"),
    "unshown": lambda: UnshownError("never seen"),
    "bytes": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "on purpose"),
    "group": lambda: ExceptionGroup("both", [ValueError("on purpose")]),
    "tuple": lambda: KeyError((1, 2)),
}


def fails(how):
    error = ERRORS[how]()
    raise error


def crashes(how):
    match how:
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)


def begins(path, how, seconds=0):
    """Record each start; the first call does as it is told, the others return at once."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"begun\n")
    os.close(descriptor)
    if Path(path).read_bytes() == b"begun\n":
        threading.Event().wait(seconds)
        crashes(how)
        if how in ERRORS:
            fails(how)
    return "done"


def returns(what):
    return {"object": object(), "nan": float("nan"), "tuple": (1, {2: 3}), "big": "x" * 1_000_000}[what]


def touch(path, text=""):
    """Write a file atomically."""
    part = Path(f"{path}.part")
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def wait_for(path):
    for _ in range(int(SOON / MOMENT)):
        if Path(path).exists():
            return True
        threading.Event().wait(MOMENT)
    raise AssertionError(f"{path} did not come")


def meets(here, there):
    """Two of these return only if they run at the same time."""
    touch(here, str(os.getpid()))
    return wait_for(there)


def alone():
    """Return the start, the end and the pid."""
    began = now()
    threading.Event().wait(MOMENT)
    return [began, now(), os.getpid()]


def hangs(folder):
    """Wait until the process has to end, then clean up."""
    touch(f"{folder}/begun", str(os.getpid()))
    try:
        threading.Event().wait(SOON)
    finally:
        touch(f"{folder}/tidied")


def hogs(folder):
    """Hold the GIL, so that no other thread of the process runs."""
    touch(f"{folder}/begun", str(os.getpid()))
    return sum(range(10**15))


def clings(folder):
    """Ignore the end of the process."""
    touch(f"{folder}/begun", str(os.getpid()))
    while True:
        try:
            threading.Event().wait(SOON)
        except SystemExit:
            touch(f"{folder}/clung")


def heeds(folder, how, context):
    """Return when the run is cancelled."""
    assert not context.cancelled.is_set()
    touch(f"{folder}/begun", str(os.getpid()))
    assert context.cancelled.wait(SOON)
    assert context.cancelled.is_set()
    if how == "raises":
        raise InterruptedError("as you wish")
    return "half"


def heedless(folder, context):
    """Return without checking whether the run is cancelled."""
    touch(f"{folder}/begun")
    wait_for(f"{folder}/go on")
    while not threading.Event.is_set(context.cancelled):  # not the way by which it would be seen
        threading.Event().wait(MOMENT)
    return "all"


def signalled():
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    return "still here"


def _double(number):
    logging.getLogger("errands").error("in a pool")
    return 2 * number


def pools(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(_double, [1, 2, 3])


def scribbles():
    """Write into all open files."""
    for number in range(3, 1_024):
        with contextlib.suppress(OSError):
            os.write(number, b"\x00\x00\x00\x03abc")


def forks(folder):
    """Fork a process that inherits the pipe, and exit."""
    if os.fork():
        wait_for(f"{folder}/left")
        os._exit(5)
    touch(f"{folder}/left", str(os.getpid()))
    wait_for(f"{folder}/go on")
    os._exit(0)


def resigns():
    """Remove the signal handlers of the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    return os.getpid()


def quiets(level=None):
    """Set the level of the root logger, if given, and return it."""
    if level is not None:
        logging.getLogger().setLevel(level)
    return logging.getLogger().level


def may_schedule():
    check_not_loading()
    return True


def says_progress(path, context):
    context.progress(0.5, "half")
    while not Path(path).exists():
        context.cancelled.wait(MOMENT)


def reports_usage(context):
    context.report_usage(model="small", provider="acme", input_tokens=10, output_tokens=5, cost_usd="0.001")
    context.report_usage(model="small", provider="acme", input_tokens=1, cost_usd=0.002)
    context.report_usage(model="large")
    try:
        context.report_usage(input_tokens=-1)
    except ValueError as error:
        return str(error)
