"""A node with agents: as `node`, and its model `mortal` kills the process once, between an answer and its record.

`"mortal": FILE` names the file that says that it has done so.
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
        if not self._file.exists():
            self._file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return response


def main():
    settings = json.loads(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    models = {"mortal": MortalModel(infer_model("openai-chat:gpt-4o-mini"), Path(settings["mortal"]))}
    scheduler = Scheduler(settings["store"], lease=settings["lease"], agents=AgentSettings(models=models))
    scheduler.start()
    note("ready")
    signal.sigwait({signal.SIGTERM})
    scheduler.stop(timeout=5)


if __name__ == "__main__":
    main()
