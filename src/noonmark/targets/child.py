"""The child: a process that calls functions for a scheduler, one at a time, each in its main thread.

Its parent speaks to it through a pipe, in JSON. It is told what to `call`, and to `cancel` what it calls; it answers
that the function is `loaded`, or `unloadable`. A loaded function is called when the parent says `go`, and not before:
so a parent that has not said it knows that nothing has begun. Then the child says what there is to `log`, and in the
end the `result` or the `error`. When the pipe is closed it ends. For a function that still runs then, SIGTERM is raised
as SystemExit, so that it can tidy up; it has little time for that.

It does not outlive its parent, however that came to its end. A function may keep the interpreter to itself, so that
nobody else in this process hears of that; on Linux, the kernel ends it then.

Its parent alone decides when it ends. A Ctrl-C in a terminal and the SIGTERM of a service manager reach whole groups of
processes; those are for the parent, which may want to wait for what runs.
"""

from __future__ import annotations

import _thread
import inspect
import json
import logging
import os
import runpy
import signal
import sys
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue
from threading import Event, Lock, Thread, main_thread
from types import ModuleType
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict
from noonmark.targets.answers import as_json, shown_error, told_error
from noonmark.targets.functions import MAIN, StopSignal, import_function, make_context
from noonmark.targets.hiding import hide, prctl
from noonmark.targets.keeper import PR_SET_PDEATHSIG

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from types import FrameType

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of JSON that a result may have to get from one process to another."""
LAST_WORD = 2.0
"""Seconds that a function has to tidy up when its process has to end."""
LOOK_EVERY = 5.0
"""Seconds between two looks whether the parent is there: a fork of it may hold the other end of the pipe."""
STAND_IN = "__mp_main__"
"""What the program that was started is called in a process that only borrows its functions, as by multiprocessing."""

_loading = Event()


def check_not_loading() -> None:
    """Refuse to start a scheduler in a program that was only loaded to find a function in it."""
    if _loading.is_set():
        raise Conflict(
            "this process has loaded the program only to call one of its functions, and must not start a scheduler: "
            'put what does so under `if __name__ == "__main__":`'
        )


def serve(pipe: Connection, setup: dict[str, Any]) -> None:
    """Be a child until the pipe is closed."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != setup["parent"]:  # it was gone before that
        os._exit(1)
    if setup["is_hidden"]:  # it has the environment of its parent
        hide()
    sys.argv[:] = setup["argv"]
    _Child(pipe, setup["main"]).run()


class _Child:
    def __init__(self, pipe: Connection, main: dict[str, str] | None) -> None:
        self._pipe, self._main = pipe, main
        self._sending = Lock()
        self._calls: SimpleQueue[tuple[dict[str, Any], StopSignal] | None] = SimpleQueue()
        self._signal = StopSignal()
        self._go = Event()
        self._parent = os.getppid()
        self._levels: dict[str, int] = {}
        self._is_busy = self._is_over = False

    def run(self) -> None:
        self._take_signals()
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._let_go)
        logging.getLogger().addHandler(_Forward(self.forward))
        Thread(target=self._listen, name="noonmark-listener", daemon=True).start()
        # Nobody hears the answer when it is over: the pipe is closed, and SIGTERM may come at any point.
        with suppress(SystemExit, OSError):
            while (call := self._calls.get()) is not None and not self._is_over:
                self._serve(*call)

    def _listen(self) -> None:
        """Hear the parent out, in a thread of its own."""
        with suppress(EOFError, OSError):
            while self._is_heard():
                said = json.loads(self._pipe.recv_bytes())
                if "call" in said:
                    self._signal = StopSignal()
                    self._go.clear()
                    self._calls.put((said["call"], self._signal))
                elif "go" in said:
                    self._go.set()
                else:
                    self._signal.set()
        self._end()

    def _is_heard(self) -> bool:
        """Wait until the parent speaks; False when it is gone."""
        while not self._pipe.poll(LOOK_EVERY):
            if os.getppid() != self._parent:
                return False
        return True

    def _end(self) -> None:
        """Bring the process to its end, soon. It has its time for that also where its parent goes meanwhile."""
        prctl(PR_SET_PDEATHSIG)
        self._is_over = True
        self._signal.set()
        self._calls.put(None)
        if self._is_busy:
            if sys.platform == "win32":
                _thread.interrupt_main(signal.SIGTERM)
            else:
                signal.pthread_kill(main_thread().ident or 0, signal.SIGTERM)
        Event().wait(LAST_WORD)
        os._exit(1)

    def _serve(self, call: dict[str, Any], stop: StopSignal) -> None:
        """Make one call, and answer; `SystemExit` is an answer too."""
        self._is_busy = True
        self._take_signals()  # the last function may have changed them
        self._log_as(call["levels"])
        try:
            function = self._load(call["function"])
        except BaseException as error:  # noqa: BLE001 - a module may raise anything
            answer: dict[str, Any] = {"unloadable": shown_error(error)}
        else:
            self._send({"loaded": True})
            self._go.wait()  # if the parent is gone instead, SIGTERM ends this
            answer = _outcome(function, call, stop)
        self._is_busy = False
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        self._send({**answer, "seen": stop.was_seen})

    def _load(self, reference: str) -> Callable[..., Any]:
        """The function, from its module, or from the program that the parent was started with."""
        _loading.set()
        try:
            if reference.startswith(f"{MAIN}:") and self._main is not None:
                _borrow(self._main)
                self._main = None
            return import_function(reference)
        finally:
            _loading.clear()

    def _send(self, said: dict[str, Any]) -> None:
        text = json.dumps(said).encode()
        with self._sending:
            self._pipe.send_bytes(text)

    def forward(self, record: logging.LogRecord) -> None:
        """Let the parent log what is logged here, where it reads the pipe; that is, while a function is called."""
        if not self._is_busy:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        fields = {name: value for name, value in vars(record).items() if isinstance(value, str | int | float | None)}
        if record.exc_info and not record.exc_text:
            fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
        self._send({"log": {**fields, "msg": record.getMessage(), "args": None, "exc_info": None}})

    def _log_as(self, levels: dict[str, int]) -> None:
        """Log what the parent would; while it does not change its mind, a function may set levels of its own."""
        for name, level in levels.items():
            if self._levels.get(name) != level:
                logging.getLogger(name).setLevel(level)
        self._levels = levels

    def _take_signals(self) -> None:
        # Handlers, not SIG_IGN, which programs that a function starts would inherit.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        if sys.platform != "win32":
            # The thread that made this process had blocked some, so that none came before there were handlers.
            signal.pthread_sigmask(signal.SIG_SETMASK, set())

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as Python calls it
        if self._is_over and self._is_busy:
            self._is_busy = False
            raise SystemExit("the process has to end")

    def _let_go(self) -> None:
        """In a fork that a function made of this process: that one is the function's own, and ends as it likes."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._is_busy = False
        self._pipe.close()


class _Forward(logging.Handler):
    def __init__(self, forward: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._forward = forward

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._forward(record)
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)


def _borrow(main: dict[str, str]) -> None:
    """Load the program that the parent was started with, under another name, so that it does not start again."""
    if "module" in main:
        content = runpy.run_module(main["module"], run_name=STAND_IN, alter_sys=True)
    else:
        content = runpy.run_path(main["path"], run_name=STAND_IN)
    module = ModuleType(STAND_IN)
    vars(module).update(content)
    sys.modules[MAIN] = sys.modules[STAND_IN] = module


def _outcome(function: Callable[..., Any], call: dict[str, Any], stop: StopSignal) -> dict[str, Any]:
    """What a function returns, or raises."""
    kwargs = call["kwargs"]
    if call["context"] is not None:
        kwargs["context"] = make_context(call["context"], stop)
    try:
        result = function(*call["args"], **kwargs)
        if inspect.iscoroutine(result):  # an async function behind a decorator
            result = import_module("asyncio").run(result)  # seldom needed, and slow to load
    except BaseException as error:  # noqa: BLE001 - told to the parent
        return {"error": told_error(error)}
    text, note = as_json(result)
    if len(text) > MAX_ANSWER:
        text, note = "null", f"the result was not kept: it has {len(text):,} bytes of JSON"
    return {"result": text, "note": note}
