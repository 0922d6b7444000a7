"""Forks and Redis: parent and child have their own connections."""

import os
import subprocess
import sys
from contextlib import closing

import pytest

from noonmark.stores.redis.store import RedisStore
from tests.stores.test_sqlite_file import plans
from tests.stores.test_sqlite_fork import SECONDS, Child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
# As a server does that prepares everything, forks its workers and goes on itself; the child ends as programs do.
PROGRAM = """
import os, sys, threading
from noonmark.stores.redis.store import RedisStore
from tests.stores.test_sqlite_file import plans

rung = threading.Event()
store, other = (RedisStore(sys.argv[1]) for _ in range(2))
store.open()
store.listen(rung.set)
assert rung.wait(60)
rung.clear()
mine = store._client.run("CLIENT", "ID")
child = os.fork()
if child == 0:
    assert store._client.run("CLIENT", "ID") != mine
    sys.exit()
_, status = os.waitpid(child, 0)
assert status == 0
assert store._client.run("CLIENT", "ID") == mine, "it had to connect again"
assert other.create(plans(1)) == [True]
assert rung.wait(60), "it does not listen any more"
store.close()
other.close()
"""


def test_both_go_on_with_connections_of_their_own(redis_url):
    with closing(RedisStore(redis_url)) as store:
        store.open()
        mine = store._client.run("CLIENT", "ID")
        child = Child(
            lambda: store.create(plans(1, "child")),
            lambda: store._client.run("CLIENT", "ID"),
            store.close,
        )
        with closing(child):
            assert child.next() == [True]
            assert child.next() != mine
            assert store.create(plans(1, "parent")) == [True]
            child.next()
        assert store._client.run("CLIENT", "ID") == mine
        assert all(store.find("acme", f"schedule-of-{who}-0") for who in ("child", "parent"))


def test_a_program_that_forks_goes_on_and_hears_others(redis_url):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, redis_url],
        capture_output=True,
        text=True,
        timeout=3 * SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr.replace("\n", " ").count("Traceback")) == (0, 0), done.stderr
