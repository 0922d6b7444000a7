"""A dump of a working database, restored into a new one: what runs there, what does not, and what is on record."""

import threading
from collections import Counter
from contextlib import closing

import pytest

from noonmark import IntervalTrigger, OnceTrigger, Phase, Scheduler
from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND, from_micros, to_micros
from noonmark.core.lifecycle import FINAL
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.embedded.declarations import OWNER
from noonmark.stores.postgres import PostgresStore
from tests.docs.test_documents import FENCE, ROOT
from tests.servers.postgres import QUICK, running

LEASE = 2
GRACE = 1
WINDOW = max(GRACE, 2 * LEASE) * SECOND
"""What is later than this, in seconds, is not run as if nothing had happened."""
EVERY = SECOND // 4
AHEAD = 6 * SECOND
"""What is to run in the old database alone is due so long after the dump has begun."""
PATIENCE = 120.0
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def server():
    with running(**QUICK) as server:
        yield server


class Site:
    """One database and a node on it, with a record of what its functions were called for."""

    def __init__(self, url):
        self.scheduler = Scheduler(url, lease=LEASE)
        self.store = self.scheduler._store
        self.calls = []
        self.may_end = threading.Event()
        self._functions = {name: self._function(name) for name in ("tick", "bill", "greet", "long", "careful")}
        for name, function in self._functions.items():
            self.scheduler.register_function(name, function)

    def _function(self, name):
        def call(context):
            self.calls.append((name, to_micros(context.nominal_at)))
            if name in {"long", "careful"}:
                self.may_end.wait(PATIENCE)

        return call

    def declare(self, name, trigger=None, **options):
        function = self._functions[name]
        return self.scheduler.schedule(function, name=name, function_name=name, trigger=trigger, **options)

    def times(self, name):
        return [nominal for called, nominal in self.calls if called == name]

    def now(self):
        return self.store.clock()

    def rows(self, job_id):
        """Its occurrences, in the order of time."""
        return self.scheduler.occurrences(job_id)[::-1]

    def close(self):
        self.may_end.set()
        self.scheduler.close()


def until(holds):
    limit = CLOCK.monotonic() + int(PATIENCE * SECOND)
    while not holds():
        assert CLOCK.monotonic() < limit, "it did not come about"
        threading.Event().wait(0.02)


def once(due):
    return OnceTrigger(from_micros(due))


def dump(server, database):
    server.tool("pg_dump", "--format=custom", "--schema=noonmark", f"--file={database}.dump", server.url(database))


def restore(server, dumped, database):
    url = server.create(database)
    server.tool("pg_restore", "--exit-on-error", f"--dbname={url}", f"{dumped}.dump")
    return url


def fires(row):
    """The times that a row stands for."""
    return [*range(row.missed_first, row.missed_last + 1, EVERY)] if row.missed_count else [row.nominal]


def fences(server, database):
    rows = server.sql("SELECT id, fence FROM noonmark.occurrences", database).splitlines()
    return {one: int(fence) for one, fence in (row.split("|") for row in rows)}


def as_its_environment_says(site, job_id):
    """How the node that is delivering a job's occurrence would write its end."""
    until(lambda: [one.phase for one in site.rows(job_id)] == [Phase.DISPATCHING])
    [row] = site.rows(job_id)
    schedule = site.store.snapshot(row.uid).schedule
    delivered = Delivered(outcome=Outcome.COMPLETED, started=row.started, ended=row.started + 1, result="late")
    return settle(row, schedule, delivered, node=row.node)


def test_a_restored_ledger_goes_on_from_what_it_knows(server):
    with closing(Site(server.create("before"))) as old:
        tick = old.declare("tick", IntervalTrigger(EVERY / SECOND), misfire={"type": "skip", "grace_seconds": GRACE})
        long, careful = old.declare("long"), old.declare("careful", delivery="at_most_once")
        old.scheduler.start()
        until(lambda: {"tick", "long", "careful"} <= {name for name, _ in old.calls} and len(old.times("tick")) > 3)
        late_end = as_its_environment_says(old, long)
        due = old.now() + AHEAD
        greet = old.declare("greet", once(due), misfire={"type": "skip", "grace_seconds": GRACE})
        bill = old.declare("bill", once(due))
        dump(server, "before")
        dumped_at = old.now()
        assert dumped_at < due, "the dump took too long for this test"
        until(lambda: max(old.times("tick")) > due + WINDOW + SECOND and old.times("bill"))

        with closing(Site(restore(server, "before", "after"))) as new:
            known = fences(server, "after")
            new.may_end.set()
            started_at = new.now()
            new.scheduler.start()
            until(lambda: len(new.times("tick")) > 3 and new.times("bill") and new.times("long"))
            until(lambda: all(one.phase in FINAL for job in (long, careful, greet) for one in new.rows(job)))
            new.scheduler.stop()

            assert min(new.times("tick")) >= started_at - WINDOW
            is_accounted_for(new, tick)
            gaps = [row for row in new.rows(tick) if row.phase is Phase.MISFIRED]
            missed = sum(row.missed_count for row in gaps)
            assert missed * EVERY >= started_at - dumped_at - WINDOW - SECOND
            # What has no time to be late for: one is over, the other is made up for, as their policies say.
            assert [(row.phase, row.reason) for row in new.rows(greet)] == [(Phase.MISFIRED, Reason.LATE)]
            assert [row.phase for row in new.rows(bill)] == [Phase.COMPLETED]
            assert (len(old.times("bill")), len(new.times("bill"))) == (1, 1)
            # What ran during the dump was lost with its node.
            [again] = new.rows(long)
            assert again.phase is Phase.COMPLETED
            assert again.losses >= 1
            assert [row.reason for row in new.rows(careful)] == [Reason.OUTCOME_UNKNOWN]
            assert new.times("careful") == []

            risen = fences(server, "after")
            assert all(risen[one] >= fence for one, fence in known.items() if one in risen)
            assert risen[again.id] > known[again.id]
            assert new.store.settle([late_end]) == [False]
            assert new.rows(long) == [again]
            assert old.store.occurrence(again.id).phase not in FINAL  # it is another ledger
            assert counters_that_are_wrong(server, "after") == "0"

            twice = Counter(old.times("tick") + new.times("tick"))
            figures = {
                "ran before and after": sum(count > 1 for count in twice.values()),
                "ran in the old one after the dump": sum(time > dumped_at for time in old.times("tick")),
                "misfired in the new one": missed,
                "ran in the new one": len(new.times("tick")),
                "seconds between dump and start": (started_at - dumped_at) / SECOND,
            }
            print(figures)  # noqa: T201 - shown by pytest -rP


def is_accounted_for(site, job_id):
    """Every time that the trigger named has one outcome, and the schedule has counted as many."""
    ended = [row for row in site.rows(job_id) if row.phase in FINAL]
    named = sorted(time for row in ended for time in fires(row))
    assert named == [*range(named[0], named[-1] + 1, EVERY)]
    assert all(len(fires(row)) == row.missed_count for row in ended if row.missed_count)
    assert site.store.find(OWNER.tenant, job_id).counters.total == len(named)


def counters_that_are_wrong(server, database):
    return server.sql(
        """
        SELECT count(*) FROM noonmark.schedule_states AS s CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE ended IS NULL) AS live, count(*) FILTER (WHERE ended IS NOT NULL) AS history
            FROM noonmark.occurrences AS o WHERE o.schedule = s.schedule
        ) AS found WHERE (s.live, s.history) <> (found.live, found.history)
        """,
        database,
    )


def test_no_one_from_before_can_write_once_the_fences_are_raised(server):
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    [raising] = [text for kind, text in FENCE.findall(page) if kind == "sql" and "SET fence = fence +" in text]
    with closing(Site(server.create("working"))) as old:
        long = old.declare("long")
        old.scheduler.start()
        until(lambda: old.times("long"))
        late_end = as_its_environment_says(old, long)
        dump(server, "working")
        as_dumped, raised = restore(server, "working", "as_dumped"), restore(server, "working", "raised")
        server.sql(raising, "raised")
        for url, is_written in ((as_dumped, True), (raised, False)):
            store = PostgresStore(url)
            assert store.settle([late_end]) == [is_written]
            store.close()
