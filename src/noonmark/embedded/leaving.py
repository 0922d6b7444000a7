"""Leaving: a program that ends without `stop` hands back what it holds."""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noonmark.embedded.engine import AnyEngine

_finalizers: dict[AnyEngine, Any] = {}


def register(engine: AnyEngine) -> None:
    """Stop an engine when the program ends, whether or not anybody still knows its scheduler."""
    atexit.register(engine.leave)
    if "multiprocessing.process" in sys.modules:
        # A process that multiprocessing has forked ends without those that were registered above.
        from multiprocessing import parent_process, util  # noqa: PLC0415 - only where it is used anyway

        if parent_process() is not None:
            _finalizers[engine] = util.Finalize(None, engine.leave, exitpriority=0)


def unregister(engine: AnyEngine) -> None:
    """It has stopped."""
    atexit.unregister(engine.leave)
    finalizer = _finalizers.pop(engine, None)
    if finalizer is not None:
        finalizer.cancel()
