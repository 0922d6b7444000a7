"""A store with some of everything, for the browser tests and the pictures of the page.

The past is made by a scheduler whose clock is moved by hand: weeks of runs take a second, and every rule of the
scheduler holds in them. What is under way is made by requests to the server, which has the functions of `FUNCTIONS`.
"""

import logging
from datetime import timedelta

from noonmark import CalendarTrigger, Concurrency, CronTrigger, EventTrigger, IntervalTrigger, Scheduler
from noonmark.clocks import SystemClock
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.waiting import FINAL, eventually

FUNCTIONS = """
def report(**words):
    return {"rows": 48_112, "file": "reports/2026.parquet"}

def sync(**words):
    return {"orders": 12}

def rebuild(context, **words):
    context.progress(0.4, "shard 5 of 12")
    context.cancelled.wait(3_600)

def fail(**words):
    raise ConnectionError("inventory.example: connection refused")

def total(orders):
    return sum(orders)

invoices = quick = sync
"""
NAMES = ("report", "invoices", "sync", "quick", "rebuild", "fail", "total")
FLAGS = (
    *(word for name in NAMES for word in ("--function", f"{name}=work:{name}")),
    *("--allow-commands", "true", "--agent-model", "test", "--price", "test=10000,600", "--keep-days", "400"),
)
FLOW = {
    "workflow_id": "publish-sales",
    "name": "Publish the sales of a day",
    "inputs": {"day": {"type": "string"}},
    "steps": [
        {"id": "fetch", "target": {"target_kind": "function", "function": "sync"}},
        {
            "id": "total",
            "depends_on": ["fetch"],
            "target": {"target_kind": "function", "function": "total"},
            "input": {"orders": [20, 22]},
        },
        {"id": "label", "depends_on": ["fetch"], "target": {"target_kind": "function", "function": "report"}},
        {"id": "sign-off", "depends_on": ["total", "label"], "approval": {"message": "Publish the sales of Monday?"}},
        {
            "id": "publish",
            "depends_on": ["sign-off"],
            "target": {"target_kind": "event", "event_type": "sales.published"},
        },
    ],
}


def write_past(path, days=21, hours=26):
    """Write the history of some schedules over days, and of others over hours, into a SQLite file, until now."""
    now = SystemClock().now()
    clock = FakeClock(now - timedelta(days=days))
    logger = logging.getLogger("noonmark")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it says what fails, and much of this is meant to
    try:
        scheduler = Scheduler(f"sqlite:///{path}", clock=clock, keep_days=400)
        driver = ManualDriver(scheduler)
        _declare_old(scheduler, clock)
        driver.run_until(now - timedelta(hours=hours))
        _declare_recent(scheduler, clock)
        driver.run_until(now - timedelta(hours=9))
        scheduler.pause("vacuum", reason="the disk is being replaced")
        driver.run_until(now - timedelta(hours=2))
        scheduler.resume("vacuum")
        scheduler.pause("send-invoices", reason="the accountant is on holiday")
        for amount in (5, 120, 48):
            scheduler.emit("order.placed", {"amount": amount, "currency": "EUR"})
        driver.run_until(now)
        scheduler.stop()
    finally:
        logger.setLevel(level)


def _declare_old(scheduler, clock):
    """Schedules that are weeks old."""

    def report(**words):
        took = 240 + clock.now().day % 5 * 60
        clock.advance(took)
        if clock.now().day % 9 == 4:
            raise ConnectionError("warehouse.example: connection refused")
        return {"rows": 48_112 + took, "file": f"reports/{clock.now():%Y-%m-%d}.parquet"}

    def invoices(**words):
        clock.advance(95)
        return {"sent": 212}

    scheduler.schedule(
        report,
        name="nightly-report",
        function_name="report",
        description="Adds up the sales of the day before.",
        trigger=CronTrigger("30 2 * * *", timezone="Europe/Stockholm"),
        labels={"team": "data", "tier": "1"},
        misfire="catch_up_one",
    )
    scheduler.schedule(
        invoices,
        name="send-invoices",
        function_name="invoices",
        trigger=CalendarTrigger(hour=9, minute=15, day_of_week=(0, 3), timezone="America/New_York"),
        labels={"team": "finance"},
    )


def _declare_recent(scheduler, clock):
    """Schedules of the last day: some fail, some are late, some are skipped."""

    def sync(**words):
        clock.advance(20 + clock.now().hour * 3)
        if clock.now().hour % 8 == 5:
            raise TimeoutError("orders.example did not answer within 30 s")
        return {"orders": clock.now().hour * 7}

    def rebuild(**words):
        clock.advance(14 * 60)
        return {"documents": 190_022}

    def quick(**words):
        clock.advance(4)

    start = clock.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    hour = 3_600
    scheduler.schedule(
        sync,
        name="sync-orders",
        function_name="sync",
        trigger=IntervalTrigger(hour, start_at=start),
        labels={"team": "shop"},
        misfire="catch_up_one",
    )
    scheduler.schedule(
        rebuild,
        name="rebuild-index",
        function_name="rebuild",
        trigger=IntervalTrigger(6 * hour, start_at=start - timedelta(minutes=4)),
        labels={"team": "search"},
        overlap="queue",
        concurrency=Concurrency(key="index", limit=1),
    )
    loaded = scheduler.schedule(
        quick, name="load-prices", function_name="quick", trigger=IntervalTrigger(4 * hour, start_at=start)
    )
    scheduler.schedule_with_deps(quick, [loaded], name="check-prices", function_name="quick", labels={"team": "shop"})
    scheduler.schedule(
        quick,
        name="welcome-mail",
        function_name="quick",
        trigger=EventTrigger("order.placed", {"amount": {"gte": 20}}),
        overlap="allow",
    )
    scheduler.schedule(
        quick,
        name="vacuum",
        function_name="quick",
        trigger=CronTrigger("20 */4 * * *", timezone="Asia/Tokyo"),
        labels={"team": "data"},
    )


def write_present(ask):
    """Make what is under way, by requests to a server. `ask` sends one: method, path and body."""

    def do(method, path, body=None):
        answer = ask(method, path, body)
        assert answer.status < 300, (path, answer.status, answer.text)
        return answer.json

    now = SystemClock().now()
    tomorrow = (now + timedelta(days=1)).replace(hour=10, minute=0, second=0, microsecond=0)
    rare = {"type": "interval", "every_seconds": 6 * 3_600}
    for document in (
        {
            "schedule_id": "move-database",
            "name": "move-database",
            "trigger": {"type": "once", "due_at_utc": f"{tomorrow:%Y-%m-%dT%H:%M:%SZ}"},
            "target": {"target_kind": "command", "argv": ["true"]},
        },
        {
            "schedule_id": "call-webhook",
            "name": "call-webhook",
            "trigger": {"type": "cron", "expression": "0 8 * * MON-FRI", "timezone": "Europe/London"},
            "target": {"target_kind": "http", "url": "http://127.0.0.1:9/hook"},
            "retry_policy": {"max_attempts": 2, "backoff_seconds": 3_600},
        },
        {
            "schedule_id": "morning-brief",
            "name": "morning-brief",
            "description": "An agent reads the numbers and writes three sentences.",
            "trigger": {"type": "cron", "expression": "0 7 * * *", "timezone": "Europe/Stockholm"},
            "target": {
                "target_kind": "session",
                "type": "materialize_on_demand_session",
                "create": {"model": "test"},
                "action": {"type": "prompt", "prompt": "What happened since yesterday?"},
            },
            "labels": {"team": "data"},
        },
        {
            "schedule_id": "deliver-sales",
            "name": "deliver-sales",
            "trigger": {"type": "cron", "expression": "0 6 1 * *", "timezone": "UTC"},
            "target": {"target_kind": "workflow", "workflow_id": "publish-sales", "inputs": {"day": "monday"}},
        },
        {
            "schedule_id": "check-inventory",
            "name": "check-inventory",
            "trigger": {**rare, "start_at_utc": f"{now - timedelta(minutes=50):%Y-%m-%dT%H:%M:%SZ}"},
            "target": {"target_kind": "function", "function": "fail"},
            "labels": {"team": "shop"},
        },
        {
            "schedule_id": "announce",
            "name": "announce",
            "trigger": {**rare, "start_at_utc": f"{now + timedelta(minutes=25):%Y-%m-%dT%H:%M:%SZ}"},
            "target": {"target_kind": "event", "event_type": "bell.rung"},
        },
        {
            "schedule_id": "heartbeat",
            "name": "heartbeat",
            "trigger": {"type": "interval", "every_seconds": 43_200},
            "target": {"target_kind": "ping"},
        },
    ):
        if document["schedule_id"] == "deliver-sales":
            do("POST", "/workflows", FLOW)
        do("POST", "/schedules", document)
    do("PUT", "/budgets/user/local", {"max_cost_usd": 5, "period": "day"})
    named = {one["name"]: one["schedule_id"] for one in do("GET", "/schedules?limit=100")["schedules"]}
    rebuild = named["rebuild-index"]
    running = do("POST", f"/schedules/{rebuild}/run", {})["occurrence_id"]
    queued = do("POST", f"/schedules/{rebuild}/run", {})["occurrence_id"]
    ends = [do("POST", f"/schedules/{name}/run", {})["occurrence_id"] for name in ("check-inventory", "morning-brief")]
    workflow_run = do("POST", "/workflows/publish-sales/runs", {"inputs": {"day": "monday"}})["workflow_run_id"]
    do("POST", "/events", {"event_type": "build.finished", "payload": {"branch": "main", "seconds": 312}})
    eventually(lambda: do("GET", f"/occurrences/{running}")["phase"] in ("dispatching", "running"))
    eventually(lambda: do("GET", "/approvals")["approvals"])
    for one in ends:
        eventually(lambda one=one: do("GET", f"/occurrences/{one}")["phase"] in FINAL)
    return {
        "nightly": named["nightly-report"],
        "running": running,
        "queued": queued,
        "failed": ends[0],
        "agent": ends[1],
        "workflow_run": workflow_run,
        "session": do("GET", "/sessions")["sessions"][0]["session_id"],
    }
