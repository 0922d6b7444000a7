"""Random schedules: every trigger, every policy, around the nights when a clock is changed."""

from datetime import UTC, datetime, timedelta

from noonmark.core.instants import SECOND, from_micros, to_micros
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.delivery import Delivery, MissingTargetPolicy
from noonmark.core.policies.limits import Concurrency, Horizon
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.schedule import Declaration
from noonmark.core.targets.work import FunctionTarget
from noonmark.core.triggers import CalendarTrigger, CronTrigger, EventTrigger, IntervalTrigger, OnceTrigger

FUNCTIONS = ("tidy", "count")
EVENTS = ("uploaded", "removed")
NIGHTS = (
    ("Europe/Stockholm", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Stockholm", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
)
"""Where the clock is changed, and when."""
CRONS = (
    "* * * * *",
    "*/5 * * * *",
    "*/20 * * * * *",
    "30 2 * * *",
    "0 2 * * *",
    "45 1 * * *",
    "15 1-3 * * *",
    "*/30 1-3 * * *",
    "0 3 * * *",
    "0 * * * *",
)
CHANGING = (
    "trigger",
    "overlap_policy",
    "misfire_policy",
    "max_runs",
    "concurrency",
    "target",
    "window",
    "timeout",
    "delivery",
    "retry_policy",
)
JITTERS = (0, 0, 0, 0.3, 5, 40, 1_000)
OVERRIDES = (None, None, {"gap": "skip"}, {"fold": "both"}, {"gap": "after", "fold": "second"})


class Workload:
    """Draws declarations for one seed."""

    def __init__(self, rng):
        self._rng = rng
        self.zone, night = rng.choice(NIGHTS)
        self.begins = to_micros(night - timedelta(seconds=rng.choice([30, 600, 3_600, 5 * 3_600, 40 * 86_400])))
        self._is_fast = rng.random() < 0.3

    def trigger(self, now):
        kind = self._rng.choice([self._interval, self._interval, self._cron, self._cron, self._calendar, self._once])
        return self._event(now) if self._rng.random() < 0.3 else kind(now)

    def declaration(self, now):
        rng = self._rng
        return Declaration(
            target=FunctionTarget(function=rng.choice(FUNCTIONS)),
            trigger=self.trigger(now),
            overlap_policy=self.overlap(),
            misfire_policy=self.misfire(),
            missing_target_policy=rng.choice(list(MissingTargetPolicy)),
            retry_policy=self._retry(),
            delivery=rng.choice([Delivery.AT_LEAST_ONCE, Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE]),
            horizon=Horizon(days=rng.choice([1, 30]), occurrences=rng.choice([1, 1, 1, 2, 5])),
            timeout=rng.choice([None, None, SECOND, 30 * SECOND]),
            window=self._window(),
            concurrency=self._concurrency(),
            pause_on_failure=rng.choice([None, None, None, 2]),
            max_runs=rng.choice([None, None, None, 1, 3, 10]),
            enabled=rng.random() < 0.95,
        )

    def changes(self, now):
        """Some fields of a declaration, with new values."""
        rng = self._rng
        fresh = self.declaration(now)
        chosen = rng.sample(CHANGING, rng.choice([1, 1, 1, 2, 4]))
        changed = {name: getattr(fresh, name) for name in chosen}
        return {"name": f"renamed at {now}"} if rng.random() < 0.1 else changed

    def overlap(self):
        rng = self._rng
        cancelling = overlap.CancelRunning(cancel_grace=rng.choice([0, SECOND, 10 * SECOND]))
        queue = overlap.Queue(queue_limit=rng.choice([1, 3, 100]))
        return rng.choice([overlap.Skip(), overlap.Skip(), queue, overlap.QueueOne(), overlap.Allow(), cancelling])

    def misfire(self):
        rng = self._rng
        grace, limit = rng.choice([1, 5, 60, 400]) * SECOND, rng.choice([1, 2, 5])
        window = rng.choice([5, 90, 2_000]) * SECOND
        return rng.choice(
            [
                misfire.Skip(grace=grace),
                misfire.CatchUpOne(grace=grace),
                misfire.CatchUpAll(grace=grace, limit=limit),
                misfire.CatchUpWithin(grace=grace, limit=limit, window=window),
                misfire.Spread(grace=grace, limit=limit, window=window),
            ]
        )

    def _retry(self):
        backoff = self._rng.choice([0, SECOND, 20 * SECOND])
        return RetryPolicy(max_attempts=self._rng.choice([1, 1, 2, 3]), backoff=backoff)

    def _window(self):
        action = self._rng.choice([EndAction.CANCEL, EndAction.NONE])
        duration = self._rng.choice([SECOND, 30 * SECOND, 2_000 * SECOND])
        return self._rng.choice([None, None, Window(duration=duration, end_action=action)])

    def _concurrency(self):
        places = Concurrency(key=self._rng.choice(["database", "printer"]), limit=self._rng.choice([1, 1, 2]))
        return self._rng.choice([None, None, places])

    def _jitter(self):
        return self._rng.choice(JITTERS)

    def _event(self, now):
        rng = self._rng
        end = from_micros(now + rng.choice([1, 60, 3_600]) * SECOND) if rng.random() < 0.3 else None
        types, filters = rng.choice([EVENTS[0], EVENTS[1], EVENTS]), rng.choice([None, None, {"size": {"gt": 3}}])
        return EventTrigger(types, filters, end_at=end, jitter_seconds=self._jitter())

    def _interval(self, now):
        rng = self._rng
        every = rng.choice([0.25, 0.7, 1, 5] if self._is_fast else [5, 20, 61.5, 300, 3_600])
        start = from_micros(now + rng.randrange(-600, 600) * SECOND)
        end = from_micros(now + rng.randrange(601, 6_000) * SECOND) if rng.random() < 0.2 else None
        return IntervalTrigger(every, start, end, jitter_seconds=self._jitter())

    def _cron(self, now):
        expression, override = self._rng.choice(CRONS), self._rng.choice(OVERRIDES)
        return CronTrigger(expression, self.zone, override, jitter_seconds=self._jitter())

    def _calendar(self, now):
        rng = self._rng
        minute, hour = rng.choice([None, [0, 10, 30, 45]]), rng.choice([None, [1, 2, 3], [2]])
        override, jitter = rng.choice(OVERRIDES), self._jitter()
        return CalendarTrigger(minute=minute, hour=hour, timezone=self.zone, dst=override, jitter_seconds=jitter)

    def _once(self, now):
        seconds = self._rng.choice([-1, 0, 3, 60, 3_600, 20_000])
        return OnceTrigger(from_micros(now + seconds * SECOND), jitter_seconds=self._jitter())
