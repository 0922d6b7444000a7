"""A program that uses Noonmark, for the type checker: `make lint` reads it and does not run it.

Correct code is accepted. A typo in an option or a setting is an error: an ignored error that is none is reported.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from noonmark import (
    AsyncScheduler,
    CatchUpAll,
    CronTrigger,
    IntervalTrigger,
    OnceTrigger,
    Queue,
    Retry,
    Scheduler,
    Window,
)


def work() -> None: ...


# Accepted.
jobs = Scheduler("memory://", max_workers=3, timezone=ZoneInfo("UTC"), lease=timedelta(seconds=10))
tasks = AsyncScheduler("memory://", max_workers=3, timezone="UTC", keep_days=timedelta(days=3))
jobs.schedule(work, "name", IntervalTrigger(timedelta(seconds=3)), overlap="skip_if_running", misfire="catchup_one")
jobs.schedule(
    work, trigger=IntervalTrigger(minutes=1, start_at=datetime(2027, 1, 1, tzinfo=UTC)), overlap=Queue(limit=5)
)
jobs.schedule(work, trigger=CronTrigger("* * * * *", timezone=ZoneInfo("UTC")), misfire=CatchUpAll(limit=3))
jobs.schedule(work, overlap={"type": "queue", "queue_limit": 3}, executor="process", timeout=timedelta(minutes=3))
jobs.schedule(work, misfire={"type": "catch_up_all", "limit": 3, "grace_seconds": timedelta(minutes=1)})
jobs.schedule(work, window=Window(timedelta(hours=1)), jitter=timedelta(seconds=1), retries=Retry(3))
jobs.schedule(work, window={"duration_seconds": timedelta(hours=1), "end_action": "cancel"}, delivery="at_most_once")
jobs.schedule(work, expected_rate={"at_least": 1, "per_seconds": timedelta(days=1)}, overlap="terminate")
jobs.daily("09:00", timezone=ZoneInfo("Europe/Berlin"))(work)

# Refused.
Scheduler("memory://", max_worker=3)  # type: ignore[call-arg]
Scheduler("memory://", timezone=5)  # type: ignore[arg-type]
AsyncScheduler("memory://", max_worker=3)  # type: ignore[call-arg]
AsyncScheduler("memory://", lease="15 s")  # type: ignore[arg-type]
jobs.schedule(work, overlap="skipp")  # type: ignore[arg-type]
jobs.schedule(work, overlap={"type": "queue", "queue_limt": 3})  # type: ignore[arg-type]
jobs.schedule(work, misfire="catch_up")  # type: ignore[arg-type]
jobs.schedule(work, misfire={"type": "catch_up_al"})  # type: ignore[arg-type]
jobs.schedule(work, misfire={"type": "catch_up_all", "limt": 3})  # type: ignore[arg-type]
jobs.schedule(work, misfire=Queue(limit=5))  # type: ignore[arg-type]
jobs.schedule(work, executor="proces")  # type: ignore[arg-type]
jobs.schedule(work, delivery="at_most_onc")  # type: ignore[arg-type]
jobs.schedule(work, retries={"max_attempt": 3})  # type: ignore[arg-type]
jobs.schedule(work, window={"duration_second": 3})  # type: ignore[arg-type]
jobs.schedule(work, expected_rate={"at_lest": 3, "per_seconds": 3})  # type: ignore[arg-type]
jobs.schedule(work, timeot=3)  # type: ignore[call-arg]
jobs.schedule(work, timeout="3")  # type: ignore[arg-type]
jobs.schedule_command(["true"], overlap="skipp")  # type: ignore[arg-type]
jobs.schedule_http("https://example.org", misfire="nope")  # type: ignore[arg-type]
jobs.update("name", overlap="skipp")  # type: ignore[arg-type]
jobs.run_now("name", overlap="skipp")  # type: ignore[arg-type]
jobs.every(10, overlap="skipp")(work)  # type: ignore[arg-type]
jobs.cron("* * * * *", executor="proces")(work)  # type: ignore[arg-type]
tasks.every(10, misfire="nope")(work)  # type: ignore[arg-type]
OnceTrigger("2027-01-01")  # type: ignore[arg-type]


async def main() -> None:
    await tasks.schedule(work, overlap="skip")
    await tasks.schedule(work, overlap="skipp")  # type: ignore[arg-type]
    await tasks.schedule(work, misfire="nope")  # type: ignore[arg-type]
    await tasks.schedule(work, executor="proces")  # type: ignore[arg-type]
    await tasks.schedule_command(["true"], overlap="skipp")  # type: ignore[arg-type]
    await tasks.update("name", overlap="skipp")  # type: ignore[arg-type]
