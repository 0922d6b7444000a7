"""The worker process: calls functions for a scheduler, one at a time, in its main thread.

The parent speaks to it over a pipe, in JSON. It sends a `call`, and `cancel` to stop it. The worker answers `loaded` or
`unloadable`. It calls a loaded function only when the parent says `go`, so a parent that has not said it knows that
nothing has started. Then the worker sends `log` records, `progress` and `usage`, and at the end the `result` or the
`error`.
When the pipe is closed the worker ends. A function that still runs then gets SIGTERM as SystemExit, and a short time to
clean up.

A worker never outlives its parent. A function may hold the GIL, so that no other thread notices that the parent is
gone; on Linux the kernel kills the worker then.

Only the parent decides when the worker ends. A Ctrl-C in a terminal and the SIGTERM of a service manager reach whole
process groups; those are for the parent, which may want to wait for what runs.
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
from functools import partial
from importlib import import_module
from queue import SimpleQueue
from threading import Event, Lock, Thread, main_thread
from types import ModuleType
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.reported import to_fields
from noonmark.core.errors import Conflict
from noonmark.node_locks import adopt
from noonmark.targets.function.context import CancelEvent, make_context
from noonmark.targets.function.registry import MAIN, import_function
from noonmark.targets.process_control import die_with_parent, hide_process
from noonmark.targets.serialization import error_to_document, result_to_json, traceback_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from types import FrameType

    from noonmark.core.budgets.spend import Usage

MAX_ANSWER = 64 * 1024 * 1024
"""Limit for a result passed between processes, in bytes of JSON."""
EXIT_GRACE = 2.0
"""Seconds that a function has to clean up when its process has to end."""
PARENT_CHECK_SECONDS = 5.0
"""Seconds between two checks that the parent exists: a fork of it may hold the other end of the pipe."""
MAIN_ALIAS = "__mp_main__"
"""The module name of the main program in a worker process, as in multiprocessing."""

_loading = Event()


def check_not_loading() -> None:
    """Refuse to start a scheduler in a program that was loaded only to find a function in it."""
    if _loading.is_set():
        raise Conflict(
            "this process has loaded the program only to call one of its functions, and must not start a scheduler: "
            'put what does so under `if __name__ == "__main__":`'
        )


def serve(pipe: Connection, setup: dict[str, Any], locks: Sequence[int] = ()) -> None:
    """Serve calls until the pipe is closed. The inherited locks of the node are held until this process ends."""
    adopt(locks)
    die_with_parent()
    if os.getppid() != setup["parent"]:  # the parent ended before that call
        os._exit(1)
    if setup["is_hidden"]:  # this process has the environment of its parent
        hide_process()
    sys.argv[:] = setup["argv"]
    _Worker(pipe, setup["main"]).run()


class _Worker:
    def __init__(self, pipe: Connection, main: dict[str, str] | None) -> None:
        self._pipe, self._main = pipe, main
        self._send_lock = Lock()
        self._calls: SimpleQueue[tuple[dict[str, Any], CancelEvent] | None] = SimpleQueue()
        self._cancelled = CancelEvent()
        self._go = Event()
        self._parent = os.getppid()
        self._levels: dict[str, int] = {}
        self._is_busy = self._is_ending = False

    def run(self) -> None:
        self._install_signal_handlers()
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._after_fork)
        logging.getLogger().addHandler(_ForwardHandler(self.forward))
        Thread(target=self._listen, name="noonmark-listener", daemon=True).start()
        # At the end the pipe is closed, so no answer can be sent, and SIGTERM may come at any point.
        with suppress(SystemExit, OSError):
            while (call := self._calls.get()) is not None and not self._is_ending:
                self._serve(*call)

    def _listen(self) -> None:
        """Read messages of the parent, in a separate thread."""
        with suppress(EOFError, OSError):
            while self._wait_for_message():
                message = json.loads(self._pipe.recv_bytes())
                if "call" in message:
                    self._cancelled = CancelEvent()
                    self._go.clear()
                    self._calls.put((message["call"], self._cancelled))
                elif "go" in message:
                    self._go.set()
                else:
                    self._cancelled.set()
        self._end()

    def _wait_for_message(self) -> bool:
        """Wait for a message; False when the parent is gone."""
        while not self._pipe.poll(PARENT_CHECK_SECONDS):
            if os.getppid() != self._parent:
                return False
        return True

    def _end(self) -> None:
        """End the process after the grace period, even if its parent ends meanwhile."""
        die_with_parent(enabled=False)
        self._is_ending = True
        self._cancelled.set()
        self._calls.put(None)
        if self._is_busy:
            if sys.platform == "win32":
                _thread.interrupt_main(signal.SIGTERM)
            else:
                signal.pthread_kill(main_thread().ident or 0, signal.SIGTERM)
        Event().wait(EXIT_GRACE)
        os._exit(1)

    def _serve(self, call: dict[str, Any], cancelled: CancelEvent) -> None:
        """Make one call, and answer; `SystemExit` is an answer too."""
        self._is_busy = True
        self._install_signal_handlers()  # the last function may have changed them
        self._set_log_levels(call["levels"])
        try:
            function = self._load(call["function"])
        except BaseException as error:  # noqa: BLE001 - a module may raise anything
            answer: dict[str, Any] = {"unloadable": traceback_text(error)}
        else:
            self._send({"loaded": True})
            self._go.wait()  # if the parent is gone instead, SIGTERM ends this
            answer = _call(
                function, call, cancelled, partial(self._send_progress, cancelled), partial(self._send_usage, cancelled)
            )
        self._is_busy = False
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        self._send({**answer, "seen": cancelled.was_seen})

    def _load(self, reference: str) -> Callable[..., Any]:
        """Import the function from its module, or from the main program of the parent."""
        _loading.set()
        try:
            if reference.startswith(f"{MAIN}:") and self._main is not None:
                _load_main(self._main)
                self._main = None
            return import_function(reference)
        finally:
            _loading.clear()

    def _send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message).encode()
        with self._send_lock:
            self._pipe.send_bytes(text)

    def _send_progress(self, call: CancelEvent, progress: dict[str, Any]) -> None:
        """Send the progress of a call; what a thread of an earlier one says is not for the present one."""
        if self._is_busy and call is self._cancelled:
            self._send({"progress": progress})

    def _send_usage(self, call: CancelEvent, usage: Usage) -> None:
        """Send what a call has used; like its progress."""
        if self._is_busy and call is self._cancelled:
            self._send({"usage": to_fields(usage)})

    def forward(self, record: logging.LogRecord) -> None:
        """Send a log record to the parent, which reads the pipe only while a function is called."""
        if not self._is_busy:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        fields = {name: value for name, value in vars(record).items() if isinstance(value, str | int | float | None)}
        if record.exc_info and not record.exc_text:
            fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
        self._send({"log": {**fields, "msg": record.getMessage(), "args": None, "exc_info": None}})

    def _set_log_levels(self, levels: dict[str, int]) -> None:
        """Use the parent's log levels. Levels that a function sets hold until the parent's change."""
        for name, level in levels.items():
            if self._levels.get(name) != level:
                logging.getLogger(name).setLevel(level)
        self._levels = levels

    def _install_signal_handlers(self) -> None:
        # Handlers, not SIG_IGN, which programs that a function starts would inherit.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        if sys.platform != "win32":
            # The thread that started this process had blocked some signals until the handlers are in place.
            signal.pthread_sigmask(signal.SIG_SETMASK, set())

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as Python calls it
        if self._is_ending and self._is_busy:
            self._is_busy = False
            raise SystemExit("the process has to end")

    def _after_fork(self) -> None:
        """Detach a fork that a function made of this process: it belongs to the function, and ends as it likes."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._is_busy = False
        self._pipe.close()


class _ForwardHandler(logging.Handler):
    def __init__(self, forward: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._forward = forward

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._forward(record)
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)


def _load_main(main: dict[str, str]) -> None:
    """Load the main program of the parent under another name, so that it does not start again."""
    if "module" in main:
        content = runpy.run_module(main["module"], run_name=MAIN_ALIAS, alter_sys=True)
    else:
        content = runpy.run_path(main["path"], run_name=MAIN_ALIAS)
    module = ModuleType(MAIN_ALIAS)
    vars(module).update(content)
    sys.modules[MAIN] = sys.modules[MAIN_ALIAS] = module


def _call(
    function: Callable[..., Any],
    call: dict[str, Any],
    cancelled: CancelEvent,
    send: Callable[[dict[str, Any]], None],
    send_usage: Callable[[Usage], None],
) -> dict[str, Any]:
    """Return the result of a function, or what it raises."""
    kwargs = call["kwargs"]
    if call["context"] is not None:
        kwargs["context"] = make_context(call["context"], cancelled, send, send_usage)
    try:
        result = function(*call["args"], **kwargs)
        if inspect.iscoroutine(result):  # an async function behind a decorator
            result = import_module("asyncio").run(result)  # seldom needed, and slow to load
    except BaseException as error:  # noqa: BLE001 - sent to the parent
        return {"error": error_to_document(error)}
    text, note = result_to_json(result)
    if len(text) > MAX_ANSWER:
        text, note = "null", f"the result was not stored: its JSON has {len(text):,} bytes"
    return {"result": text, "note": note}
