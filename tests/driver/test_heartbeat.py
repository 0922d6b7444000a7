"""Nodes among themselves: what they tell of themselves, who leads, and what only the leader does."""

import asyncio
import logging

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.core.triggers import EventTrigger
from noonmark.driver.steps.reports import LeadReport, PruneReport
from noonmark.ports import events as driver_events
from noonmark.ports.records import NODE_LISTED
from noonmark.ports.runtime import Timing
from noonmark.stores.memory import MemoryStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.factories import NOW
from noonmark.testing.manual import run_inline
from tests.driver.rig import ROUTE, Rig
from tests.driver.test_loop import Place, turns

LEASE = Timing().lease


@pytest.fixture(params=["memory", "sqlite"])
def rig(request, tmp_path):
    """A node on each kind of store, which keeps no history at all."""
    kinds = {"memory": MemoryStore, "sqlite": lambda clock: SqliteStore(tmp_path / "noonmark.db", clock)}
    rig = Rig(make_store=kinds[request.param], keep_for=0)
    rig.store.store.open()
    yield rig
    rig.store.store.close()


def another(rig, node="node-b"):
    return Rig(rig, node=node, keep_for=0)


def nodes(rig):
    return rig.store.store.nodes()


def with_history(rig, key="old"):
    """Something to forget."""
    schedule = rig.create(key, trigger=EventTrigger("seen"))
    rig.target.end(rig.started(schedule, key))
    assert rig.settle_once().settled == 1
    rig.advance(1)
    return schedule


def test_a_heartbeat_describes_the_node(rig):
    rig.advance(SECOND)
    rig.reap_once()
    rig.started(rig.create(trigger=EventTrigger("seen")))
    rig.advance(SECOND)
    rig.reap_once()
    [node] = nodes(rig)
    assert (node.name, node.routes, node.capacity, node.load) == ("node-a", (ROUTE,), Timing().capacity, 1)
    assert (node.started, node.seen, node.is_alive) == (NOW + SECOND, NOW + 2 * SECOND, True)
    rig.advance(2 * LEASE)
    assert not nodes(rig)[0].is_alive


def test_the_first_leads_and_the_second_is_told_who_does(rig, caplog):
    caplog.set_level(logging.INFO, "noonmark")
    other = another(rig)
    assert rig.lead_once() == LeadReport(leads=True, gained=True, term=1)
    assert other.lead_once() == LeadReport(term=1)
    assert rig.lead_once() == LeadReport(leads=True, term=1)
    assert (rig.node.leads, other.node.leads) == (True, False)
    assert rig.sink.take() == [driver_events.LeaderChanged("node-a", 1, "node-a")]
    assert other.sink.take() == []
    assert [line.getMessage() for line in caplog.records] == ["node-a is now the leader, term 1"]


def test_only_the_leader_forgets(rig):
    other = another(rig)
    schedule = with_history(rig)
    assert rig.prune_once() == other.prune_once() == PruneReport()
    rig.lead_once()
    other.lead_once()
    assert other.prune_once() == PruneReport()
    assert rig.store.calls["prune"] == 0
    assert rig.prune_once() == PruneReport(forgotten=1)
    assert rig.rows(schedule) == []


def test_a_leader_renews_in_time_and_emits_no_event(rig):
    rig.lead_once()
    rig.sink.take()
    for _ in range(9):
        rig.advance(LEASE // 3)
        assert rig.lead_once() == LeadReport(leads=True, term=1)
    assert rig.sink.take() == []


@pytest.mark.parametrize("clock_stood_still", [False, True])
def test_a_leader_that_was_frozen_past_its_lease_forgets_nothing_when_it_wakes(rig, clock_stood_still, caplog):
    caplog.set_level(logging.INFO, "noonmark")
    other = another(rig)
    with_history(rig)
    rig.lead_once()
    rig.sink.take()
    rig.advance(LEASE)
    if clock_stood_still:  # the machine was suspended
        rig.node.store_clock.note(rig.world.now - LEASE)
        assert rig.node.leads
    assert other.lead_once() == LeadReport(leads=True, gained=True, term=2)
    assert rig.prune_once() == PruneReport()
    assert rig.store.calls["prune"] == 0
    assert rig.lead_once() == LeadReport(term=2)
    assert rig.sink.take() == [driver_events.LeaderChanged("node-a", 2, "node-b")]
    assert caplog.records[-1].getMessage() == "node-a is no longer the leader: node-b is, term 2"
    assert other.prune_once() == PruneReport(forgotten=1)


def test_a_leader_whose_lease_ran_out_leads_again_under_a_new_term(rig):
    rig.lead_once()
    rig.sink.take()
    rig.advance(LEASE)
    assert rig.prune_once() == PruneReport()
    assert rig.store.calls["prune"] == 0
    assert rig.lead_once() == LeadReport(leads=True, gained=True, term=2)
    assert rig.sink.take() == [driver_events.LeaderChanged("node-a", 2, "node-a")]


def test_two_that_forget_at_once_do_no_harm(rig):
    other = another(rig)
    schedule = with_history(rig)
    occurrence = rig.add(schedule, "live", 3_600 * SECOND)
    rig.lead_once()

    def freeze():
        """Just after its look at the clock."""
        rig.advance(LEASE)
        assert other.lead_once().term == 2
        assert other.prune_once() == PruneReport(forgotten=1)

    rig.store.meanwhile("prune", freeze)
    assert rig.prune_once() == PruneReport()
    assert [row.id for row in rig.rows(schedule)] == [occurrence.id]
    assert rig.store.find("acme", schedule.schedule_id).counters.total == 1


def test_a_lead_whose_answer_is_lost_is_kept(rig):
    rig.store.fail("lead", after=True)
    with pytest.raises(StoreUnavailable):
        rig.lead_once()
    assert not rig.node.leads
    assert rig.lead_once() == LeadReport(leads=True, gained=True, term=1)


def test_a_node_that_leaves_is_gone_at_once_and_another_leads(rig, caplog):
    caplog.set_level(logging.INFO, "noonmark")
    other = another(rig)
    rig.reap_once()
    rig.lead_once()
    rig.sink.take()
    rig.leave()
    assert rig.sink.take() == [driver_events.LeaderChanged("node-a", 1, None)]
    assert caplog.records[-1].getMessage() == "node-a stops and gives up leadership, term 1"
    [node] = nodes(rig)
    assert (node.is_alive, node.is_leader, node.left) == (False, False, rig.world.now)
    assert not rig.node.leads
    assert other.lead_once() == LeadReport(leads=True, gained=True, term=2)


def test_a_node_that_does_not_lead_leaves_without_a_word(rig):
    other = another(rig)
    rig.lead_once()
    other.lead_once()
    other.leave()
    assert other.sink.take() == []
    assert rig.lead_once() == LeadReport(leads=True, term=1)


def leaders(told):
    return [one for one in told if isinstance(one, driver_events.LeaderChanged)]


def test_a_loop_leads_and_keeps_the_lead_until_it_stops():
    async def story():
        place = Place(lease=SECOND * 3 // 10)
        async with place.running():
            await place.sink.until_kind(driver_events.LeaderChanged)
            renewed = place.store.calls["lead"] + 3
            await turns(lambda: place.store.calls["lead"] >= renewed)
        # On a machine that is very busy a renewal may come too late, and then the term is another.
        last = leaders(place.sink.told)[-2].term
        assert leaders(place.sink.told)[-1] == driver_events.LeaderChanged("node-a", last, None)
        [node] = place.store.store.nodes()
        assert (node.is_alive, node.is_leader, node.left is not None) == (False, False, True)

    asyncio.run(story())


def test_when_a_leader_stops_another_loop_leads_before_the_lease_would_have_ended():
    async def story():
        first = Place(lease=3_600 * SECOND)
        second = Place(store=first.store, node="node-b", lease=SECOND)
        async with first.running():
            await first.sink.until_kind(driver_events.LeaderChanged)
            async with second.running():
                first.loop.stop(0)
                await first.ended()
                await second.sink.until_kind(driver_events.LeaderChanged)
                assert leaders(second.sink.told) == [driver_events.LeaderChanged("node-b", 2, "node-b")]

    asyncio.run(story())


def test_a_loop_that_only_fetches_never_leads_but_says_when_it_is_gone():
    async def story():
        place = Place()
        async with place.running(claims=False):
            await turns(lambda: place.store.calls["orphans"])
        assert place.store.calls["lead"] == 0
        [node] = place.store.store.nodes()
        assert (node.is_alive, node.left is not None) == (False, True)

    asyncio.run(story())


def test_a_loop_that_is_cancelled_gives_up_the_lead():
    async def story():
        place = Place()
        async with place.running():
            await place.sink.until_kind(driver_events.LeaderChanged)
            place.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await place.ended()
            place.task = asyncio.ensure_future(asyncio.sleep(0))  # noqa: TID251 - it has ended already
        assert leaders(place.sink.told)[-1].leader is None
        assert place.store.store.lead("node-b", now=place.system.micros(), lease=LEASE).leader == "node-b"

    asyncio.run(story())


def told_lost(rig):
    return [one.payload["node"] for one in reversed(rig.store.store.events("acme", 9))]


def test_the_leader_tells_once_which_nodes_were_lost(rig, caplog):
    rig.create("alert", trigger=EventTrigger("node.lost"))
    killed, stopped = another(rig, "node-b"), another(rig, "node-c")
    for one in (rig, killed, stopped):
        one.reap_once()
    run_inline(stopped.driver.leave())
    assert rig.lead_once().lost == killed.lead_once().lost == 0
    rig.advance(2 * LEASE - 1)
    rig.reap_once()
    assert rig.lead_once().lost == 0
    rig.advance(1)
    assert another(rig, "node-d").lead_once() == LeadReport(term=2)  # whoever does not lead tells nothing
    assert rig.lead_once().lost == 1
    assert rig.lead_once().lost == 0
    assert told_lost(rig) == ["node-b"]
    assert "node node-b is lost: its last heartbeat was at 2030-03-17T17:47:00Z" in caplog.text


def test_a_node_is_told_to_be_lost_although_all_were_silent_for_days(rig):
    rig.create("alert", trigger=EventTrigger("node.lost"))
    another(rig).reap_once()
    rig.advance(3 * NODE_LISTED)
    rig.reap_once()  # what it would forget, nobody was told
    assert rig.lead_once().lost == 1
    assert told_lost(rig) == ["node-b"]
    rig.reap_once()
    assert [node.name for node in nodes(rig)] == ["node-a"]


def test_no_node_takes_itself_for_lost(rig):
    rig.create("alert", trigger=EventTrigger("node.lost"))
    rig.reap_once()
    rig.advance(10 * LEASE)  # it stood still, and others did too
    assert rig.lead_once() == LeadReport(leads=True, gained=True, term=1)
    assert told_lost(rig) == []


def test_a_node_that_was_lost_and_came_back_can_be_lost_again(rig):
    rig.create("alert", trigger=EventTrigger("node.lost"))
    other = another(rig)
    for _ in range(2):
        other.reap_once()
        rig.advance(2 * LEASE)
        rig.reap_once()
        assert rig.lead_once().lost == 1
    assert told_lost(rig) == ["node-b", "node-b"]
    assert len(rig.store.store.unmatched(9)) == 2


def test_the_leader_finds_what_hides_from_everybody(tmp_path):
    rig = Rig(make_store=lambda clock: SqliteStore(tmp_path / "noonmark.db", clock))
    store = rig.store.store
    store.open()
    rig.create("hidden")
    with store._connections.writing() as connection:
        connection.execute("UPDATE schedule_states SET plan_at = 'soon'")
    assert rig.plan_once().planned == 0
    assert not store.damage()
    assert rig.lead_once().leads
    rig.prune_once()
    assert store.damage() == {"schedule_states": 1}
    store.close()
