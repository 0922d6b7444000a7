"""An agent that wakes itself up, again and again: the guard stops it, and a person lets it go on."""

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from noonmark import AgentSettings, Scheduler
from noonmark.core.instants import SECOND, to_text
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from tests.embedded.waiting import NEVER, eventually


class Insomniac:
    """A session whose every turn sets its own schedule to a moment from now, until it is told to sleep."""

    def __init__(self):
        settings = AgentSettings(models={"scripted": FunctionModel(self._answer)}, model="scripted")
        self.scheduler = Scheduler(agents=settings)
        self.scheduler.start()
        self.turns, self.sleeps = 0, False
        self.scheduler.create_session(session_id="s1", model="scripted", enable_schedule=True)
        wake = {"target_kind": "session", "type": "exact_session", "session_id": "s1",
                "action": {"type": "prompt", "prompt": "Go on."}}  # fmt: skip
        # On a busy machine, the next fire is due before the turn that asked for it has ended.
        self.job = self.scheduler.schedule(wake, "insomniac", NEVER, overlap="queue", runaway={"max_fires_per_hour": 5})

    def _answer(self, messages, _):
        answers = [part for part in messages[-1].parts if part.part_kind == "tool-return"]
        if answers or self.sleeps:
            return ModelResponse(parts=[TextPart(f"turn {self.turns}")])
        self.turns += 1
        soon = to_text(self.scheduler._store.clock() + SECOND // 5)
        fields = {"schedule_id": self.job, "trigger": {"type": "once", "due_at_utc": soon}}
        return ModelResponse(parts=[ToolCallPart("noonmark_schedule_update", fields)])


def test_a_session_that_wakes_itself_up_is_stopped():
    one = Insomniac()
    collected = []
    try:
        scheduler, store = one.scheduler, one.scheduler._store
        scheduler.on_event("schedule.runaway")(lambda context: collected.append(context.event["payload"]))
        scheduler.run_now(one.job)
        stored = eventually(
            lambda: (found := store.find("default", one.job).schedule).phase is SchedulePhase.PAUSED and found
        )
        turns = one.turns
        assert 5 <= turns <= 10  # more than 5 if an hour ended meanwhile
        assert "6 starts in the hour from" in stored.pause.reason
        assert [row.reason for row in store.occurrences(stored.uid, 20) if row.phase is Phase.SKIPPED] == [
            Reason.PAUSED
        ]
        assert eventually(lambda: collected)[0]["rule"] == "fires_per_hour"
        assert "by `noonmark` (6 starts in the hour" in scheduler.explain(one.job).summary
        one.sleeps = True
        scheduler.resume(one.job)
        scheduler.run_now(one.job)
        assert one.turns == turns
        assert store.find("default", one.job).schedule.phase is not SchedulePhase.PAUSED
    finally:
        one.scheduler.stop(wait=False)
        one.scheduler.close()
