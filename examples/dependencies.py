"""Jobs that follow other jobs: a nightly load in three steps, and a report that needs two of them."""

import logging
import threading

from noonmark import Dependency, OnceTrigger, Scheduler

logging.getLogger("noonmark").setLevel(logging.ERROR)  # a run that fails is a warning; here one fails on purpose
scheduler = Scheduler()
done = threading.Event()
order: list[str] = []


def extract() -> None:
    """The only one with a time of its own."""
    order.append("extract")


def check() -> None:
    """Finds something wrong."""
    order.append("check")
    raise ValueError("3 rows have no price")


def load() -> None:
    """Runs when extract has succeeded."""
    order.append("load")


def report() -> None:
    """Runs when load has succeeded and check has ended, well or badly."""
    order.append("report")
    done.set()


def publish() -> None:
    """Would run if check succeeded."""


first = scheduler.schedule(extract, name="extract", trigger=OnceTrigger(delay_seconds=0.2))
checked = scheduler.schedule_with_deps(check, [first], name="check")
loaded = scheduler.schedule_with_deps(load, [first], name="load")
reported = scheduler.schedule_with_deps(report, [loaded], name="report")
scheduler.add_dependency(reported, [Dependency(checked, require_success=False)])
published = scheduler.schedule_with_deps(publish, [checked], name="publish")

try:
    scheduler.add_dependency(first, [reported])
except ValueError as error:
    print("a cycle in", str(error).partition(":")[0], "is refused")

with scheduler:
    done.wait(30)
    while not scheduler.occurrences(published):
        threading.Event().wait(0.01)

print("first and last:", order[0], order[-1])
print("in between, in either order:", sorted(order[1:-1]))
for job in scheduler.list_jobs():
    [last] = scheduler.occurrences(job.id)
    print(f"{job.name}: {last.phase}, {last.reason}")

# Output:
# a cycle in depends_on is refused
# first and last: extract report
# in between, in either order: ['check', 'load']
# extract: completed, succeeded
# check: failed, failed
# load: completed, succeeded
# report: completed, succeeded
# publish: skipped, dependency_failed
