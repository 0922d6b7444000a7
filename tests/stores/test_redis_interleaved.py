"""Another node commits between the reads of a transaction on Redis and its commit: it decides again."""

from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.errors import QuotaExceeded
from noonmark.core.halt import Halt
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND
from noonmark.core.quotas import Quota, Resource, Scope
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import Admitted, Heartbeat, LeaseLost
from noonmark.stores.redis.store import RedisStore
from noonmark.testing import factories
from noonmark.testing.conformance import Bench, HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, hold, start


class LateStore(RedisStore):
    """A store whose next transaction is overtaken once: when it has decided, and before it commits."""

    meanwhile = None
    attempts = 0

    def _commit(self, transaction):
        self.attempts += 1
        change, self.meanwhile = self.meanwhile, None
        if change is not None:
            change()
        return super()._commit(transaction)


@pytest.fixture
def late(redis_url):
    store = LateStore(redis_url, HandClock())
    store.open()
    yield store
    store.close()


@pytest.fixture
def bench(redis_url, late):
    """Another node, which is quicker."""
    clock = HandClock()
    store = RedisStore(redis_url, clock)
    store.open()
    yield Bench(store, clock)
    store.close()


@pytest.mark.parametrize("takes_slot", [True, False])
def test_start_of_a_schedule_that_is_edited(bench, late, takes_slot):
    schedule = bench.create_quiet()
    bench.add(schedule, "a")
    claim = bench.claim_one()
    declared = factories.declaration(trigger=EventTrigger("seen"), max_runs=9)
    edited = edits.edit(bench.snapshot(schedule), declared, now=bench.now, lookahead=LOOKAHEAD)
    late.meanwhile = lambda: bench.commit(edited)
    [answer] = late.admit([replace(start(claim), takes_slot=takes_slot)], now=bench.now, lease=LEASE)
    assert isinstance(answer, LeaseLost)


def test_limit_that_another_schedule_reaches(bench, late):
    first, second = bench.create_quiet("uid-1"), bench.create_quiet("uid-2")
    limit = Quota(Resource.QUEUED, Scope.TENANT, 1)
    late.meanwhile = lambda: bench.add(second, "a")
    with pytest.raises(QuotaExceeded):
        late.add([factories.occurrence(first, manual("b"))], limits=[limit])
    assert bench.store.count_waiting("acme") == 1


def test_halt_stops_what_starts_beside_it(bench, late):
    bench.add(bench.create_quiet(), "a")
    claim = bench.claim_one()
    started = []
    late.meanwhile = lambda: started.append(bench.start(claim))
    assert late.set_halt(Halt(halt_id="h", tenant="acme", at=bench.now, by="ada"), most=1) == 1
    renewed = bench.store.renew([hold(claim)], now=bench.now, lease=LEASE)
    assert renewed.stop == {started[0].id: Reason.HALTED}


def test_start_beside_a_halt(bench, late):
    bench.add(bench.create_quiet(), "a")
    claim = bench.claim_one()
    late.meanwhile = lambda: bench.store.set_halt(Halt(halt_id="h", tenant="acme", at=bench.now, by="ada"), most=1)
    [answer] = late.admit([start(claim)], now=bench.now, lease=LEASE)
    assert not isinstance(answer, Admitted)


def test_takeover_beside_the_renewals_of_other_nodes(bench, late):
    bench.store.beat(Heartbeat(node="node-a", routes=(ROUTE,), process_lock="lock"), now=bench.now)
    bench.run(bench.create_quiet("uid-1"), "a")
    bench.add(bench.create_quiet("uid-2"), "b")
    other = bench.claim_one("node-b")
    bench.advance(SECOND)
    late.meanwhile = lambda: bench.store.renew([hold(other)], now=bench.now, lease=LEASE)
    assert late.expire_leases("node-a", "lock") == 1
    assert (late.meanwhile, late.attempts) == (None, 1), "it reads what others renew all the time, and is in their way"
