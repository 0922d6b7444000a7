"""Several processes on one file: all declare and start the same jobs, and each fire runs once, in one of them."""

import multiprocessing
import os
import tempfile
import threading
from collections import Counter
from multiprocessing.synchronize import Event

from noonmark import CronTrigger, IntervalTrigger, JobStatus, Queue, Scheduler

FIRES = 20
ALL = {"type": "catch_up_all", "limit": FIRES}


def sample() -> int:
    """Say which process ran it."""
    return os.getpid()


def declare(scheduler: Scheduler) -> list[str]:
    """What every process does when it starts; the name makes it the same job for all of them."""
    ten_a_second = IntervalTrigger(0.1)
    nightly = CronTrigger("0 3 * * *", timezone="Europe/Stockholm")
    return [
        scheduler.schedule(sample, "sample", ten_a_second, max_runs=FIRES, overlap=Queue(limit=1_000), misfire=ALL),
        scheduler.schedule(sample, name="nightly", trigger=nightly),
    ]


def worker(store: str, leave: Event) -> None:
    """A process of its own, as another program or another worker of a web server would be."""
    scheduler = Scheduler(store)
    declare(scheduler)
    with scheduler:
        leave.wait()


def main() -> None:
    """Start three of them, and look at what they did."""
    store = f"sqlite:///{tempfile.mkdtemp()}/jobs.db"
    context = multiprocessing.get_context("spawn")
    leave = context.Event()
    workers = [context.Process(target=worker, args=(store, leave)) for _ in range(3)]
    for process in workers:
        process.start()

    scheduler = Scheduler(store)  # this one only looks
    job, _ = declare(scheduler)
    while (seen := scheduler.get_job(job)) is None or seen.status is not JobStatus.COMPLETED:
        threading.Event().wait(0.05)
    leave.set()
    for process in workers:
        process.join()

    runs = scheduler.runs(job)
    print("processes that declared the jobs: 4, jobs:", len(scheduler.list_jobs()))
    print("fires:", sum(one.phase == "completed" for one in scheduler.occurrences(job)), "runs:", len(runs))
    print("most runs of one fire:", max(Counter(run.occurrence_id for run in runs).values()))
    print("all by the workers:", {run.result for run in runs} <= {process.pid for process in workers})


if __name__ == "__main__":
    main()

# Output:
# processes that declared the jobs: 4, jobs: 2
# fires: 20 runs: 20
# most runs of one fire: 1
# all by the workers: True
