"""The nodes of a store, as a program sees them."""

import asyncio
from datetime import UTC, datetime

from noonmark import AsyncScheduler, NodeRecord, Scheduler, __version__
from noonmark.testing import FakeClock, ManualDriver
from tests.embedded.waiting import NEVER, SOON, eventually

START = datetime(2030, 5, 1, tzinfo=UTC)


def nothing():
    pass


def leader(scheduler):
    return eventually(lambda: [node for node in scheduler.nodes() if node.is_leader])[0]


def test_a_scheduler_is_a_node_between_start_and_stop(keeper):
    assert keeper.nodes() == []
    keeper.schedule(nothing, trigger=NEVER, function_name="nothing")
    keeper.start()
    node = leader(keeper)
    assert isinstance(node, NodeRecord)
    assert (node.is_alive, node.version, node.load, node.left_at) == (True, __version__, 0, None)
    assert "function:nothing" in node.routes
    assert node.started_at <= node.seen_at
    keeper.stop()
    [stopped] = keeper.nodes()
    assert (stopped.name, stopped.is_alive, stopped.is_leader) == (node.name, False, False)
    assert stopped.left_at >= stopped.seen_at


def test_one_that_is_started_again_is_another_node(keeper):
    keeper.start()
    first = leader(keeper)
    keeper.stop()
    keeper.start()
    second = leader(keeper)
    assert second.name != first.name
    assert [node.is_alive for node in keeper.nodes() if node.name == first.name] == [False]


def test_of_several_on_one_file_one_leads_and_another_follows_it(open_on_file):
    schedulers = [open_on_file(lease=1) for _ in range(3)]
    for scheduler in schedulers:
        scheduler.start()
    eventually(lambda: sum(node.is_alive for node in schedulers[0].nodes()) == 3)
    leads = leader(schedulers[0])
    for scheduler in schedulers[1:]:
        assert [node.name for node in scheduler.nodes() if node.is_leader] in ([leads.name], [])
    [its_own] = [one for one in schedulers if one._runners.current.loop.driver.node.id == leads.name]
    its_own.stop()
    eventually(lambda: {node.name for node in its_own.nodes() if node.is_leader} - {leads.name})
    assert sum(node.is_alive for node in its_own.nodes()) == 2


def test_a_program_that_only_runs_by_hand_is_a_node_for_that_while_and_never_leads(keeper):
    job = keeper.schedule(nothing, trigger=NEVER)
    for _ in range(3):
        keeper.run_now(job)
    [node] = keeper.nodes()
    assert (node.is_alive, node.is_leader, node.name) == (False, False, keeper.runs(job)[0].node)


def test_one_that_is_driven_by_hand_is_a_node_too():
    scheduler = Scheduler(clock=FakeClock(START))
    ManualDriver(scheduler).run_due()
    [node] = scheduler.nodes()
    assert (node.started_at, node.seen_at, node.is_alive, node.version) == (START, START, True, __version__)


def test_an_async_scheduler_tells_the_same(url):
    async def story():
        async with asyncio.timeout(SOON), AsyncScheduler(url) as scheduler:
            await asyncio.to_thread(leader, scheduler.blocking)
            [node] = await scheduler.nodes()
            assert (node.is_alive, node.version) == (True, __version__)
        [node] = await scheduler.nodes()
        assert not node.is_alive
        await scheduler.close()

    asyncio.run(story())
