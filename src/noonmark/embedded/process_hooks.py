"""What happens to schedulers when their process exits or forks."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Any, Protocol


class _Runner(Protocol):
    def stop_at_exit(self) -> None: ...


class _Forkable(Protocol):
    def _after_fork(self) -> None: ...


_finalizers: dict[_Runner, Any] = {}
_forkable: weakref.WeakSet[_Forkable] = weakref.WeakSet()


def register_exit(runner: _Runner) -> None:
    """Stop a runner when the program exits, even if its scheduler is gone."""
    atexit.register(runner.stop_at_exit)
    if "multiprocessing.process" in sys.modules:
        # A process forked by multiprocessing exits without running the atexit callbacks.
        from multiprocessing import parent_process, util  # noqa: PLC0415 - only where it is used anyway

        if parent_process() is not None:
            _finalizers[runner] = util.Finalize(None, runner.stop_at_exit, exitpriority=0)


def unregister_exit(runner: _Runner) -> None:
    """Undo `register_exit` for a runner that has stopped."""
    atexit.unregister(runner.stop_at_exit)
    finalizer = _finalizers.pop(runner, None)
    if finalizer is not None:
        finalizer.cancel()


def register_fork(scheduler: _Forkable) -> None:
    """Call `_after_fork` of a scheduler in each forked process. A fork copies its state, but none of its threads."""
    _forkable.add(scheduler)


def _after_fork() -> None:
    for scheduler in list(_forkable):
        scheduler._after_fork()  # noqa: SLF001 - a part of the scheduler


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
