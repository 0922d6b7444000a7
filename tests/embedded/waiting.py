"""Waiting for what a scheduler does in its own threads."""

import threading
from dataclasses import replace

from noonmark import CronTrigger
from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND

CLOCK = SystemClock()
SOON = 60.0
"""Seconds that anything may take on a busy machine."""
NEVER = CronTrigger("0 0 1 1 *")
"""Not while a test runs."""
FINAL = {"completed", "failed", "timed_out", "cancelled", "skipped", "misfired", "delivery_failed"}


def eventually(is_so):
    """Look again and again until it is so, less and less often; gives what it was."""
    pause = 0.005
    deadline = CLOCK.monotonic() + int(SOON * SECOND)
    while not (found := is_so()):
        assert CLOCK.monotonic() < deadline, "it did not happen"
        threading.Event().wait(pause)
        pause = min(1.1 * pause, 0.05)
    return found


def phases(scheduler, job_id):
    """The phases of what a schedule has had so far, oldest first."""
    return [str(one.phase) for one in reversed(scheduler.occurrences(job_id))]


def ended(scheduler, job_id, count=1):
    """Wait until so many occurrences have ended; gives their phases, oldest first."""
    return eventually(
        lambda: len(done := [phase for phase in phases(scheduler, job_id) if phase in FINAL]) >= count and done
    )


def together(count, act):
    """Do something in many threads at once; gives what each got, and raises what any of them raised."""
    barrier, answers, errors = threading.Barrier(count), [], []

    def run(number):
        barrier.wait(SOON)
        try:
            answers.append(act(number))
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
    return answers


def keep(scheduler, func, **options):
    """Keep a schedule for any function, on whichever store."""
    return scheduler.schedule(func, **{"function_name": f"{func!r}", **options})


def status(scheduler, job_id):
    """How a job stands, as text."""
    return str(scheduler.get_job(job_id).status)


def look_far_ahead(scheduler):
    """Let it claim whatever is due within the hour: so a test has all the time it needs while something is claimed."""
    runtime = scheduler._runtime
    scheduler._runtime = replace(runtime, timing=replace(runtime.timing, lookahead=3_600 * SECOND))


class Gate:
    """A function that is in flight until it is let go, or asked to stop."""

    def __init__(self):
        self.entered, self.opened, self.left = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)
        self.runs = self.stops = 0

    def __call__(self, context):
        self.runs += 1
        self.entered.release()
        while not self.opened.is_set():
            if context.cancelled.wait(0.005):
                self.stops += 1
                break
        self.left.release()
        return "done"

    def wait(self):
        """Wait until one more run has begun."""
        assert self.entered.acquire(timeout=SOON)

    def wait_for_end(self):
        """Wait until one more run has ended."""
        assert self.left.acquire(timeout=SOON)
