"""Owners share the threads of a scheduler: the backlog of one does not delay another."""

import threading

from noonmark import OnceTrigger, Scheduler
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.planner import first_plan
from noonmark.core.policies import misfire
from noonmark.core.schedule import Owner
from noonmark.core.targets import FunctionTarget
from noonmark.testing import factories
from tests.embedded.waiting import SOON

MANY = 3_000
FEW = 300
"""So many starts of the one with the backlog may come before the other's, at most: a tenth."""


def declared(scheduler, user, count, due):
    """So many schedules of a user, all due at one instant; the function has the name of the user."""
    schedules = [
        factories.schedule(
            f"{user}-{number}",
            owner=Owner(tenant="acme", user=user),
            created=scheduler._runtime.clock.micros(),
            trigger=OnceTrigger(from_micros(due)),
            target=FunctionTarget(function=user),
            misfire_policy=misfire.CatchUpOne(grace=3_600 * SECOND),
        )
        for number in range(count)
    ]
    lookahead = scheduler._runtime.timing.lookahead
    assert all(scheduler._store.create([first_plan(one, lookahead=lookahead) for one in schedules]))


def test_the_single_run_of_one_owner_does_not_wait_for_the_backlog_of_another(url):
    began, has_begun = [], threading.Event()

    def many():
        began.append(scheduler._runtime.clock.micros())
        threading.Event().wait(0.005)

    def single(context):
        due, now = context.due_at.timestamp() * SECOND, scheduler._runtime.clock.micros()
        began_before.append(sum(one >= due for one in list(began) if one <= now))
        has_begun.set()

    began_before = []
    scheduler = Scheduler(url, max_threads=4)
    scheduler.register_function("many", many)
    scheduler.register_function("single", single)
    now = scheduler._runtime.clock.micros()
    declared(scheduler, "many", MANY, now)
    declared(scheduler, "single", 1, scheduler._runtime.clock.micros() + SECOND // 2)
    try:
        scheduler.start()
        assert has_begun.wait(SOON)
    finally:
        scheduler.stop(wait=False)
        scheduler.close()
    assert began_before[0] < FEW
