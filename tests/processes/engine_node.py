"""A node with an engine that kills itself once, in a phase of its first start.

`"dies"` is `before_start`, `before_record` or `after_record`; `"died": FILE` names the file that says that it has done
so.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from noonmark.embedded.runners import ThreadRunner
from noonmark.ports.runtime import Runtime, Timing
from noonmark.targets.command.programs import ProgramPolicy
from noonmark.targets.function.registry import FunctionRegistry
from noonmark.targets.temporal.client import EngineClient
from noonmark.targets.temporal.settings import EngineSettings, parse_engine
from noonmark.wiring import make_runner, make_store, make_target


def main():
    settings = json.loads(sys.argv[1])
    clock, died = SystemClock(), Path(settings["died"])
    store = make_store(settings["store"], clock)
    store.open()

    def die():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    start, settle = EngineClient.start, store.settle

    async def start_or_die(self, order):
        if settings["dies"] == "before_start":
            die()
        await start(self, order)
        if settings["dies"] == "before_record":
            die()

    def settle_and_die(settlements):
        written = settle(settlements)
        if any(one.deadline is not None for one in settlements):
            die()
        return written

    EngineClient.start, store.settle = start_or_die, settle_and_die
    engine = EngineSettings(address=parse_engine(settings["engine"]), routes=("function:record",))
    target = make_target(store, make_runner(FunctionRegistry(), 8, None), ProgramPolicy(()), engine=engine)
    timing = Timing(lease=int(settings["lease"] * SECOND))
    ThreadRunner(Runtime(node="mortal", store=store, clock=clock, target=target, timing=timing))
    threading.Event().wait()


if __name__ == "__main__":
    main()
