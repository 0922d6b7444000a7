"""A node with agents that kills itself once: between an answer and its record, or right after the record.

`"dies": "before_record"` or `"after_record"` says when; the model of the first is `mortal`. `"died": FILE` names the
file that says that it has done so.
"""

import json
import os
import signal
import sys
from pathlib import Path

from pydantic_ai.models import infer_model
from pydantic_ai.models.wrapper import WrapperModel

from noonmark import AgentSettings, Scheduler
from tests.processes.work import note


class MortalModel(WrapperModel):
    """Asks another model, and dies with the first answer."""

    def __init__(self, wrapped, file):
        super().__init__(wrapped)
        self._file = file

    async def request(self, *arguments, **options):
        response = await super().request(*arguments, **options)
        die_once(self._file)
        return response


def die_once(file):
    if not file.exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def main():
    settings = json.loads(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    died = Path(settings["died"])
    models = {"mortal": MortalModel(infer_model("openai-chat:gpt-4o-mini"), died)}
    scheduler = Scheduler(settings["store"], lease=settings["lease"], agents=AgentSettings(models=models))
    if settings["dies"] == "after_record":
        append = scheduler._store.append_messages

        def append_and_die(*arguments, **options):
            appended = append(*arguments, **options)
            die_once(died)
            return appended

        scheduler._store.append_messages = append_and_die
    scheduler.start()
    note("ready")
    signal.sigwait({signal.SIGTERM})
    scheduler.stop(timeout=5)


if __name__ == "__main__":
    main()
