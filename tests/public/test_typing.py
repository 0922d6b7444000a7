"""Type checks of a program that uses Noonmark: typos in options and settings are errors, correct code is not."""

import re
import subprocess
import sys

PROGRAM = """
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from noonmark import AsyncScheduler, CatchUpAll, CronTrigger, IntervalTrigger, OnceTrigger, Queue, Retry, Scheduler
from noonmark import Window


def work() -> None: ...


# Accepted.
jobs = Scheduler("memory://", max_workers=3, timezone=ZoneInfo("UTC"), lease=timedelta(seconds=10))
tasks = AsyncScheduler("memory://", max_workers=3, timezone="UTC", keep_days=timedelta(days=3))
jobs.schedule(work, "name", IntervalTrigger(timedelta(seconds=3)), overlap="skip_if_running", misfire="catchup_one")
jobs.schedule(work, trigger=IntervalTrigger(minutes=1, start_at=datetime.now(UTC)), overlap=Queue(limit=5))
jobs.schedule(work, trigger=CronTrigger("* * * * *", timezone=ZoneInfo("UTC")), misfire=CatchUpAll(limit=3))
jobs.schedule(work, overlap={"type": "queue", "queue_limit": 3}, executor="process", timeout=timedelta(minutes=3))
jobs.schedule(work, misfire={"type": "catch_up_all", "limit": 3, "grace_seconds": timedelta(minutes=1)})
jobs.schedule(work, window=Window(timedelta(hours=1)), jitter=timedelta(seconds=1), retries=Retry(3))
jobs.schedule(work, window={"duration_seconds": timedelta(hours=1), "end_action": "cancel"}, delivery="at_most_once")
jobs.schedule(work, expected_rate={"at_least": 1, "per_seconds": timedelta(days=1)}, overlap="terminate")
jobs.daily("09:00", timezone=ZoneInfo("Europe/Berlin"))(work)

# Refused.
Scheduler("memory://", max_worker=3)  # typo
Scheduler("memory://", timezone=5)  # typo
AsyncScheduler("memory://", max_worker=3)  # typo
AsyncScheduler("memory://", lease="15 s")  # typo
jobs.schedule(work, overlap="skipp")  # typo
jobs.schedule(work, overlap={"type": "queue", "queue_limt": 3})  # typo
jobs.schedule(work, misfire="catch_up")  # typo
jobs.schedule(work, misfire={"type": "catch_up_al"})  # typo
jobs.schedule(work, misfire={"type": "catch_up_all", "limt": 3})  # typo
jobs.schedule(work, misfire=Queue(limit=5))  # typo
jobs.schedule(work, executor="proces")  # typo
jobs.schedule(work, delivery="at_most_onc")  # typo
jobs.schedule(work, retries={"max_attempt": 3})  # typo
jobs.schedule(work, window={"duration_second": 3})  # typo
jobs.schedule(work, expected_rate={"at_lest": 3, "per_seconds": 3})  # typo
jobs.schedule(work, timeot=3)  # typo
jobs.schedule(work, timeout="3")  # typo
jobs.schedule_command(["true"], overlap="skipp")  # typo
jobs.schedule_http("https://example.org", misfire="nope")  # typo
jobs.update("name", overlap="skipp")  # typo
jobs.run_now("name", overlap="skipp")  # typo
jobs.every(10, overlap="skipp")(work)  # typo
jobs.cron("* * * * *", executor="proces")(work)  # typo
tasks.every(10, misfire="nope")(work)  # typo
OnceTrigger("2027-01-01")  # typo


async def main() -> None:
    await tasks.schedule(work, overlap="skip")
    await tasks.schedule(work, overlap="skipp")  # typo
    await tasks.schedule(work, misfire="nope")  # typo
    await tasks.schedule(work, executor="proces")  # typo
    await tasks.schedule_command(["true"], overlap="skipp")  # typo
    await tasks.update("name", overlap="skipp")  # typo
"""


def test_typos_are_errors_and_nothing_else_is(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    checker = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*checker, str(program)], capture_output=True, text=True, cwd=tmp_path, check=False)
    refused = {int(number) for number in re.findall(r"^program\.py:(\d+): error: ", done.stdout, re.MULTILINE)}
    typos = {number for number, line in enumerate(PROGRAM.splitlines(), start=1) if line.endswith("# typo")}
    assert refused == typos, done.stdout + done.stderr
