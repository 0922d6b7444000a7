"""Takeover: a node ends the leases of a neighbour whose process is gone, and of no other."""

import asyncio

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.lifecycle import Phase
from noonmark.core.triggers import EventTrigger
from noonmark.driver.steps.heartbeat import leave
from noonmark.driver.steps.reports import TakeoverReport
from noonmark.driver.steps.takeover import freshen_lock, lock_process
from noonmark.node_locks import NodeLocks
from noonmark.testing.manual import run_inline
from tests.driver.rig import Rig

NOTHING = TakeoverReport()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "nodes"


@pytest.fixture
def pair(folder):
    """Two nodes on one store, each with the locks of a process of its own, and a run on the first."""
    one = Rig(locks=NodeLocks(lambda: folder))
    two = Rig(one, node="node-b", locks=NodeLocks(lambda: folder))
    for rig in (one, two):
        run_inline(lock_process(rig.node))
        rig.reap_once()
    one.started(one.create(trigger=EventTrigger("seen")))
    yield one, two
    for rig in (one, two):
        rig.node.runtime.locks.after_fork()


def end_process(rig):
    rig.node.runtime.locks.after_fork()


def test_the_work_of_a_gone_neighbour_begins_again_at_once(pair, caplog):
    one, two = pair
    assert (two.take_over_once(), two.claim_once().claimed) == (NOTHING, 0)
    end_process(one)
    assert two.take_over_once() == TakeoverReport(gone=1, expired=1)
    assert two.claim_once().claimed == 1
    assert two.admit_once().started == 1
    assert two.target.given[0].occurrence.losses == 1
    assert "the process of node node-a is gone: its lease ends now" in caplog.text


def test_the_file_of_a_gone_neighbour_is_removed_when_nothing_more_can_come_from_it(pair, folder):
    one, two = pair
    end_process(one)
    two.take_over_once()
    assert two.take_over_once() == TakeoverReport(gone=1)
    assert [file.name for file in folder.iterdir()] == ["node-b.lock"]
    assert two.take_over_once() == NOTHING


def test_the_file_of_an_idle_neighbour_stays_for_a_second_look(pair, folder):
    one, two = pair
    one.target.end(one.target.given[0])
    one.settle_once()
    end_process(one)
    assert two.take_over_once() == TakeoverReport(gone=1)
    assert len(list(folder.iterdir())) == 2
    two.take_over_once()
    assert len(list(folder.iterdir())) == 1


def test_a_store_that_does_not_answer_is_asked_again(pair):
    one, two = pair
    end_process(one)
    two.store.fail("expire_leases")
    with pytest.raises(StoreUnavailable):
        two.take_over_once()
    assert two.take_over_once().expired == 1


def test_a_file_of_the_same_name_that_is_another_says_nothing(pair, folder):
    """As in another container: the name is that of the node, and the file is not."""
    _, two = pair
    (folder / "node-a.lock").unlink()
    (folder / "node-a.lock").touch()
    assert two.take_over_once() == TakeoverReport(gone=1)
    assert two.claim_once().claimed == 0
    [row] = two.store.store.occurrences("uid-1")
    assert row.phase is Phase.DISPATCHING


def test_a_node_that_could_not_ask_the_store_for_its_folder_locks_its_file_before_it_claims(folder):
    answers = [StoreUnavailable("connection refused")]

    def find_folder():
        if answers:
            raise answers.pop()
        return folder

    one = Rig(locks=NodeLocks(find_folder))
    one.add(one.create(trigger=EventTrigger("seen")), "one")
    with pytest.raises(StoreUnavailable):
        one.claim_once()
    assert one.claim_once().claimed == 1
    assert one.node.process_lock
    assert [file.name for file in folder.iterdir()] == ["node-a.lock"]
    end_process(one)


class ThreadExecutor:
    """Makes each call in a thread, so that two steps can be under way at once."""

    async def call(self, function, *args, **kwargs):
        return await asyncio.to_thread(function, *args, **kwargs)


def test_a_lock_that_two_steps_take_at_once_is_released_with_the_node(folder):
    one = Rig(locks=NodeLocks(lambda: folder))
    one.node.executor = ThreadExecutor()

    async def live():
        await asyncio.gather(lock_process(one.node), lock_process(one.node))
        await freshen_lock(one.node)
        assert len(list(folder.iterdir())) == 1
        await leave(one.node)

    asyncio.run(live())
    assert not folder.exists()


def test_a_node_that_leaves_removes_its_file_and_one_that_cannot_keeps_it(pair, folder):
    one, two = pair
    one.store.fail("leave")
    with pytest.raises(StoreUnavailable):
        run_inline(leave(one.node))
    assert len(list(folder.iterdir())) == 2
    assert two.take_over_once() == NOTHING
    run_inline(leave(one.node))
    assert [file.name for file in folder.iterdir()] == ["node-b.lock"]


def test_a_node_without_locks_takes_nothing_over(pair):
    one, _ = pair
    other = Rig(one, node="node-c")
    run_inline(lock_process(other.node))
    other.reap_once()
    end_process(one)
    assert other.take_over_once() == NOTHING
    run_inline(leave(other.node))


def test_a_node_sends_a_heartbeat_before_its_first_claim(folder):
    """Killed at any moment, it holds nothing that its neighbours could not take over."""
    one = Rig(locks=NodeLocks(lambda: folder))
    two = Rig(one, node="node-b", locks=NodeLocks(lambda: folder))
    for rig in (one, two):
        run_inline(lock_process(rig.node))
    one.store.fail("claim", after=True)
    one.add(one.create(trigger=EventTrigger("seen")), "one")
    with pytest.raises(StoreUnavailable):
        one.claim_once()
    assert one.store.calls["beat"] == 1
    end_process(one)
    assert two.take_over_once().expired == 1
    end_process(two)
