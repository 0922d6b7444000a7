"""Test a schedule without waiting for it: a clock that stands still, and a week in which the network fails once."""

import logging
from datetime import UTC, datetime

from noonmark import CronTrigger, Scheduler
from noonmark.testing import FakeClock, ManualDriver

logging.getLogger("noonmark").setLevel(logging.ERROR)  # a run that fails is a warning; here one fails on purpose
clock = FakeClock(datetime(2026, 10, 23, tzinfo=UTC))
scheduler = Scheduler(clock=clock)
driver = ManualDriver(scheduler)
outages = [datetime(2026, 10, 24, tzinfo=UTC).date()]


def upload() -> str:
    """Fail once on a day with an outage."""
    if clock.now().date() in outages:
        outages.clear()
        raise ConnectionError("the network is down")
    return f"uploaded at {clock.now():%d %b %H:%M} UTC"


job = scheduler.schedule(upload, trigger=CronTrigger("30 2 * * *", timezone="Europe/Stockholm"), retries=1)
for run in driver.run_until(datetime(2026, 10, 27, tzinfo=UTC)):
    print(run.attempt, run.outcome, run.result or run.error.splitlines()[-1])

# Output:
# 1 completed uploaded at 23 Oct 00:30 UTC
# 1 failed ConnectionError: the network is down
# 2 completed uploaded at 24 Oct 00:30 UTC
# 1 completed uploaded at 25 Oct 00:30 UTC
# 1 completed uploaded at 26 Oct 01:30 UTC
