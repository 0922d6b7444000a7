"""Owners share the nodes of a database: the burst of one does not keep another waiting."""

import threading

from noonmark import OnceTrigger, Scheduler
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.planner import first_plan
from noonmark.core.policies import misfire
from noonmark.core.schedule import Owner
from noonmark.core.targets import FunctionTarget
from noonmark.testing import factories
from tests.processes.fleet import PATIENCE
from tests.soak import SCALE

BURST = 6_000 if SCALE == 1 else 12_000
"""Far more than is claimed before an owner's turn comes, so that whoever must wait for all of it sees its end."""
CHUNK = 5_000
SINGLES = 2 if SCALE == 1 else 5
PROMISED = 1.0
MARGIN = 20
"""Seconds beyond what is promised, on a busy machine."""


def declared(scheduler, user, numbers, due):
    """Schedules of a user that are due at one instant; the function has the name of the user."""
    schedules = [
        factories.schedule(
            f"{user}-{number}",
            owner=Owner(tenant="acme", user=user),
            created=scheduler._runtime.clock.micros(),
            trigger=OnceTrigger(from_micros(due)),
            target=FunctionTarget(function=user),
            misfire_policy=misfire.CatchUpOne(grace=3_600 * SECOND),
        )
        for number in numbers
    ]
    lookahead = scheduler._runtime.timing.lookahead
    assert all(scheduler._store.create([first_plan(one, lookahead=lookahead) for one in schedules]))


def test_a_burst_of_one_owner_does_not_delay_the_single_runs_of_another(database, figure):
    late, done, count = [], threading.Semaphore(0), [0]

    def single(context):
        late.append(clock.micros() - context.due_at.timestamp() * SECOND)
        done.release()

    def burst():
        count[0] += 1

    scheduler = Scheduler(database.url)
    clock = scheduler._runtime.clock
    scheduler.register_function("burst", burst)
    scheduler.register_function("single", single)
    for first in range(0, BURST, CHUNK):
        declared(scheduler, "burst", range(first, min(first + CHUNK, BURST)), clock.micros())
    try:
        scheduler.start()
        for number in range(SINGLES):
            declared(scheduler, "single", [number], clock.micros())
            assert done.acquire(timeout=PATIENCE)
        left = BURST - count[0]
    finally:
        scheduler.stop(timeout=5)
        scheduler.close()
    figure(
        f"fairness: beside {BURST:,} of one owner, {left:,} of them left in the end, {SINGLES} of another were late by "
        f"{min(late) / SECOND:.2f} to {max(late) / SECOND:.2f} s (promised {PROMISED:.0f})"
    )
    assert left > 0, "the burst was over before the last was asked for"
    assert max(late) <= (PROMISED + MARGIN) * SECOND
