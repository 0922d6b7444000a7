"""Reminders that wake an agent: one session that remembers, a tool, and limits on what each run may use.

It needs no key: the model `test` calls each tool once and repeats the results. To talk to a real model, set its key and
its name, for example OPENAI_API_KEY=.. NOONMARK_AGENT_MODEL=openai:gpt-5.2.
"""

import os
import threading

from noonmark import CronTrigger, Scheduler

MODEL = os.environ.get("NOONMARK_AGENT_MODEL", "test")
REMINDERS = ["water the plants", "call Ada"]

scheduler = Scheduler(agents="embedded", agent_model=MODEL)


@scheduler.agent_tool
def open_reminders() -> list[str]:
    """List what is to be remembered, the most urgent first."""
    return REMINDERS


# The first fire creates the session; later fires continue it.
reminder = scheduler.schedule(
    {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": {"model": MODEL, "system_prompt": "You remind people of what they wanted to do. Be brief."},
        "action": {"type": "prompt", "prompt": "It is {{ due_at }}. What should I be reminded of?"},
    },
    name="reminder",
    trigger=CronTrigger("0 9 * * *", timezone="Europe/Berlin"),
    budget={"max_cost_usd": 0.05, "max_tokens": 20_000, "max_tool_calls": 10},
)
# A question without a past: each run is a session of its own. This one may not use enough tokens for an answer.
question = scheduler.schedule(
    {"target_kind": "task", "query": "Which reminder is the most urgent?", "context": {"role": "analysis"}},
    name="question",
    budget={"max_tokens": 100},
)

with scheduler:
    # Do now what the next two mornings would do.
    for _ in range(2):
        print("The agent says", scheduler.run_now(reminder)["text"])
        usage = scheduler.runs(reminder)[0].usage
        print(f"  {usage.model}: model calls {usage.model_calls}, tool calls {usage.tool_calls}")
    while (occurrence := scheduler.occurrences(question)[0]).reason is None:
        threading.Event().wait(0.05)
    print(f"question: {occurrence.phase}, {occurrence.reason}")

# Output:
# The agent says {"open_reminders":["water the plants","call Ada"]}
#   test: model calls 2, tool calls 1
# The agent says {"open_reminders":["water the plants","call Ada"]}
#   test: model calls 1, tool calls 0
# question: skipped, budget_exceeded
