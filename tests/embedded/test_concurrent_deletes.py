"""A declaration beside concurrent deletes of the same schedule always holds."""

import pytest

from noonmark import Scheduler
from noonmark.core.errors import NotFound
from tests.embedded.waiting import NEVER, keep, together

TIMES = 8


def work():
    return "done"


@pytest.fixture(params=["sqlite", "postgres"])
def schedulers(request, tmp_path):
    """Two on one store, each with connections of its own, as in two processes."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    if request.param == "postgres":
        url = request.getfixturevalue("database").url
    made = [Scheduler(url) for _ in range(2)]
    yield made
    for one in made:
        one.close()


def test_a_name_is_declared_run_and_changed_while_others_delete_it(schedulers):
    collected = []

    def act(number):
        """Each scheduler declares in one thread, and deletes what the other declares in the next."""
        scheduler, what = schedulers[number % 2], ("declare", "delete", "use")[number // 2]
        for turn in range(TIMES):
            if what == "declare":
                collected.append(keep(scheduler, work, name="shared", trigger=NEVER, labels={"by": f"{number}/{turn}"}))
                continue
            try:
                if what == "delete":
                    scheduler.delete(collected[-1] if collected else "shared")
                else:
                    scheduler.update(collected[-1] if collected else "shared", timeout=turn + 1)
                    scheduler.run_now(collected[-1], wait=False)
                    scheduler.emit("seen")
            except NotFound:
                pass  # it was deleted, and nobody has declared it again yet

    together(6, act)
    assert len(collected) == 2 * TIMES
    assert len(set(collected)) == 1, "a name stands for one id"
    last = keep(schedulers[0], work, name="shared", trigger=NEVER)
    assert schedulers[1].get_job(last).name == "shared"
