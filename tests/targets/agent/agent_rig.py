"""A scheduler whose agents ask a server on loopback."""

from dataclasses import replace
from importlib import import_module
from itertools import count

from noonmark import AgentSettings, Scheduler
from noonmark.core.agents.session import schedule_session
from noonmark.embedded.declarations import OWNER
from tests.embedded.waiting import NEVER, eventually
from tests.servers.openai_server import KEY

for name in ("noonmark.targets.agent.embedded", "pydantic_ai.models.openai", "openai.resources.chat"):
    import_module(name)  # the first turn loads them, and that takes longer than a short timeout
MODEL = "openai:gpt-4o-mini"
INPUT, OUTPUT = 150, 600
"""Nano-dollars per token of that model."""


class AgentRig:
    """Creates schedules that talk to a session of their own, runs them, and looks at what became of them."""

    def __init__(self, server, monkeypatch, url="memory://", *, key=KEY, tools=(), secret_key=None, **settings):
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        if key is None:
            monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        else:
            monkeypatch.setenv("OPENAI_API_KEY", key)
        self.server = server
        self.scheduler = Scheduler(url, agents=AgentSettings(model=MODEL, **settings), secret_key=secret_key)
        for tool in tools:
            self.scheduler.agent_tool(tool)
        self._numbers = count()

    def __enter__(self):
        self.scheduler.start()
        return self

    def __exit__(self, *_):
        self.scheduler.stop(wait=False)
        self.scheduler.close()

    @property
    def store(self):
        return self.scheduler._runtime.store

    def schedule(self, prompt="Go.", create=None, action=None, **options):
        """A schedule with a session of its own."""
        target = {
            "target_kind": "session",
            "type": "materialize_on_demand_session",
            "create": {"model": MODEL} | (create or {}),
            "action": {"type": "prompt", "prompt": prompt} if action is None else action,
        }
        return self.scheduler.schedule(target, f"agent-{next(self._numbers)}", NEVER, **options)

    def begin(self, job):
        """Start a run; returns the id of its occurrence."""
        return self.scheduler.run_now(job, wait=False)

    def ended(self, occurrence_id):
        """Wait for the end of an occurrence."""
        result = eventually(
            lambda: (one := self.store.occurrence(occurrence_id)) is not None and one.ended is not None and one
        )
        return replace(result)

    def run(self, job):
        """Run it to its end: phase, reason, and its last run."""
        ended = self.ended(self.begin(job))
        return str(ended.phase), str(ended.reason), next(iter(self.scheduler.runs(job)), None)

    def stop(self, occurrence_id):
        """Ask a run to stop, and wait for that: how it ended."""
        self.store.request_stop(occurrence_id)
        self.scheduler._runners.check_stop_requests()
        return str(self.ended(occurrence_id).phase)

    def session(self, job):
        return self.store.session(OWNER.tenant, self.session_id(job))

    def session_id(self, job):
        return schedule_session(self.store.find(OWNER.tenant, job).schedule.uid)

    def messages(self, job):
        return self.store.messages(OWNER.tenant, self.session_id(job), 1_000)

    def said(self, job):
        """Who has said what, in short."""
        return [(str(one.role), [_short(part) for part in one.parts]) for one in self.messages(job)]


def _short(part):
    match part["type"]:
        case "text":
            return part["text"]
        case "tool_call":
            return f"{part['name']}({part['arguments']})"
        case "tool_result":
            return f"{'!' if part.get('is_error') else ''}{part['content']}"
    return part["type"]
