"""An agent with a clock: it schedules its own next steps, looks at them, and ends them when it is done.

It needs no key: a script plays the model. A real one decides by itself; name it instead, for example
`"model": "openai:gpt-5.2"` with OPENAI_API_KEY set.
"""

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from noonmark import AgentSettings, CronTrigger, Scheduler

DEPLOY_CHECK = {
    "schedule_id": "deploy-check",
    "trigger": {"type": "interval", "every_seconds": 600},
    "target": {
        "target_kind": "session",
        "type": "current_session",
        "action": {
            "type": "prompt",
            "prompt": "Is the deployment finished? If it is, delete the schedule deploy-check.",
        },
    },
    "max_runs": 20,
}


def play(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """What a model would do: schedule a check when it is asked to watch, and delete it when the work is done."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        print("  answer:", str(last.content).splitlines()[0].split(", next")[0])
        return ModelResponse(parts=[TextPart("All right.")])
    if isinstance(last, UserPromptPart) and "Watch" in str(last.content):
        return ModelResponse(parts=[ToolCallPart("noonmark_schedule_create", DEPLOY_CHECK)])
    return ModelResponse(parts=[ToolCallPart("noonmark_schedule_delete", {"schedule_id": "deploy-check"})])


scheduler = Scheduler(agents=AgentSettings(models={"scripted": FunctionModel(play)}))
watch = scheduler.schedule(
    {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": {"model": "scripted", "enable_schedule": True, "preload_skills": ["schedule-workflow"]},
        "action": {"type": "prompt", "prompt": "Watch the deployment of this morning."},
    },
    name="watch",
    trigger=CronTrigger("0 9 * * 1-5", timezone="Europe/Berlin"),
)

with scheduler:
    print("The schedule wakes the agent:")
    scheduler.run_now(watch)
    print("The agent's own schedule wakes it:")
    scheduler.run_now("deploy-check")
    print("Schedules left:", [job.name for job in scheduler.list_jobs()])

# Output:
# The schedule wakes the agent:
#   answer: Created deploy-check: active
# The agent's own schedule wakes it:
#   answer: Deleted deploy-check: it is deleted and does not fire.
# Schedules left: ['watch']
