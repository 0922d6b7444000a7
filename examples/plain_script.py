"""Schedule a function in a plain script: it is kept in a file, runs in a thread, and its result can be read later."""

import logging
import os
import tempfile
import threading
from typing import Any

from noonmark import IntervalTrigger, Scheduler

os.chdir(tempfile.mkdtemp())  # yours would use a folder that stays
logging.getLogger("noonmark").setLevel(logging.ERROR)  # a run that fails is a warning; here one fails on purpose
seen_all = threading.Event()


def sample(context: Any) -> Any:
    """Fail the second time, to show a retry."""
    if context.payload == "last":
        seen_all.set()
        return "by hand"
    number = len(scheduler.runs(job))  # this one is among them
    if number == 2:
        raise ValueError("no answer")
    return number


scheduler = Scheduler("sqlite:///jobs.db")
job = scheduler.schedule(sample, name="sample", trigger=IntervalTrigger(3_600), retries=1, labels={"team": "ops"})

# The same declaration again, as after a restart: nothing changes.
again = Scheduler("sqlite:///jobs.db").schedule(
    sample, name="sample", trigger=IntervalTrigger(3_600), retries=1, labels={"team": "ops"}
)
print("still the same schedule:", job == again)

with scheduler:
    for _ in range(2):
        print("ran by hand:", scheduler.run_now(job))
    scheduler.run_now(job, payload="last", wait=False)
    seen_all.wait(30)

print("oldest first:")
for run in reversed(scheduler.runs(job)):
    print(f"  attempt {run.attempt}: {run.outcome}, result {run.result}")

# Output:
# still the same schedule: True
# ran by hand: 1
# ran by hand: 3
# oldest first:
#   attempt 1: completed, result 1
#   attempt 1: failed, result None
#   attempt 2: completed, result 3
#   attempt 1: completed, result by hand
