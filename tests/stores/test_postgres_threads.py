"""Several nodes on one PostgreSQL database: no double claims, no wrong counts, no deadlocks."""

# ruff: noqa: S311 - the chance of a test comes from a seed, so that it can be repeated

import random  # noqa: TID251 - likewise
from collections import Counter
from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.admission import (
    Busy,
    Start,
    admit,
    after_upstreams,
    depends_on_others,
    refused,
)
from noonmark.core.causation import Reaction, match
from noonmark.core.event import Event
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import first_plan, plan
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.quotas import Limits, Resource, inflight_keys
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.core.settlement import Accepted, Delivered, expire, settle
from noonmark.core.triggers import EventTrigger, IntervalTrigger
from noonmark.ports.records import Admitted, Heartbeat, Lease, Shares
from noonmark.stores.postgres import PostgresStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE
from noonmark.testing.factories import NOW
from tests.embedded.waiting import together
from tests.stores.connected import ask
from tests.stores.test_sqlite_file import plans

ROWS, CLAIMERS = 2_000, 4
NODES, STEPS = 4, 120
MOST_STEPS = 5 * STEPS
"""What the nodes find to do depends on who comes first: they go on until each verb has had an effect."""
TENANTS = ("acme", "umbrella")
OVERLAPS = (overlap.Skip(), overlap.Queue(queue_limit=3), overlap.QueueOne(), overlap.Allow(), overlap.CancelRunning())
IN_FLIGHT = Limits(per_user={Resource.IN_FLIGHT: {"*": 3}}, per_tenant={Resource.IN_FLIGHT: {"*": 5}})
LIMITS = (None, Concurrency(key="db", limit=2), Concurrency(key="net", limit=1))
COUNTED = """
    SELECT s.uid, live, history, queued, holder,
        (SELECT count(*) FROM occurrences AS o WHERE o.schedule = s.schedule AND ended IS NULL),
        (SELECT count(*) FROM occurrences AS o WHERE o.schedule = s.schedule AND ended IS NOT NULL),
        (SELECT count(*) FROM occurrences AS o WHERE o.schedule = s.schedule AND phase = 'pending'
            AND waiting_for = 'queued' AND ready IS NULL),
        (SELECT key FROM occurrences AS o WHERE o.schedule = s.schedule AND holds_slot = 1)
    FROM schedule_states AS s
"""
PLACES = """
    SELECT name, taken, waiting, (
            SELECT count(*) FROM occurrences
            WHERE place = k.key OR (place IS NOT NULL AND other_keys LIKE '%[' || k.key || ',%')
        ),
        (SELECT count(*) FROM occurrences WHERE wanted = k.key),
        (SELECT min(wanted_limit) FROM occurrences WHERE wanted = k.key AND held = 0)
    FROM concurrency_keys AS k
"""
SLOTS = """
    SELECT uid FROM schedule_states AS s WHERE holder IS NULL AND EXISTS (
        SELECT 1 FROM occurrences AS o WHERE o.schedule = s.schedule AND phase = 'pending' AND waiting_for = 'queued'
        AND ready IS NULL AND held = 0
    )
"""
STREAMS = """
    SELECT tenant, matched, (SELECT count(*) FROM events AS e WHERE e.tenant = s.tenant AND emitted <= matched_until)
    FROM event_streams AS s
"""
DEADLOCKS = "SELECT deadlocks::integer FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
def stores(database):
    """Stores of one database, each as a node of its own would have it, with one clock."""
    clock = HandClock()
    made = [PostgresStore(f"{database.url}?pool=3", clock) for _ in range(NODES)]
    for store in made:
        store.open()
    yield made
    for store in made:
        store.close()


def assert_consistent(store):
    """What is counted is what there is; nobody who may run waits for what is free."""
    counted = ask(store, COUNTED)
    assert all(row[1:5] == row[5:] for row in counted), [row for row in counted if row[1:5] != row[5:]]
    for name, taken, waiting, held, wanting, limit in ask(store, PLACES):
        assert (taken, waiting) == (held, wanting), name
        assert limit is None or taken >= limit, f"somebody waits for {name}, and a place is free"
    assert ask(store, SLOTS) == []
    assert all(matched == there for _, matched, there in ask(store, STREAMS))


def test_no_one_claims_what_another_has_claimed(stores):
    for number in range(4):
        assert all(stores[0].create(plans(ROWS // 4, f"uid-{number}")))
    stores[0]._clock.now += factories.MINUTE
    now = stores[0]._clock.now

    def claim(number):
        claimed = []
        while found := stores[number].claim(f"node-{number}", [ROUTE], now=now, until=now, limit=50, lease=LEASE):
            claimed += [one.occurrence.id for one in found]
        return claimed

    shares = together(CLAIMERS, claim)
    claimed = Counter(one for share in shares for one in share)
    # One that was locked by another when the last of its neighbours was taken is left for the next claim.
    rest = stores[0].claim("node-x", [ROUTE], now=now, until=now, limit=ROWS, lease=LEASE)
    claimed.update(one.occurrence.id for one in rest)
    assert len(claimed) == ROWS
    assert set(claimed.values()) == {1}
    assert sum(bool(share) for share in shares) > 1, "one of them took it all"


def test_those_who_forget_at_the_same_time_forget_each_thing_once(stores):
    store = stores[0]
    now = store._clock.now
    schedules = [factories.schedule(f"uid-{n}", trigger=EventTrigger("seen")) for n in range(40)]
    assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules]))
    for key in range(8):
        store.add([factories.occurrence(one, manual(f"{key}"), nominal=now) for one in schedules])
    for one in ask(store, "SELECT id FROM occurrences"):
        store.cancel(*one)
    store.emit("acme", [Event(event_type="other", emitted=0, event_id=f"{n}") for n in range(200)])
    while audiences := store.unmatched(100):
        store.commit_reactions([Reaction(audience=one) for one in audiences])
    store._clock.now += SECOND

    def forget(number):
        mine, count = stores[number], 0
        while found := (
            mine.prune(before=now + SECOND, keep=3, limit=7) + mine.prune_events(before=now + SECOND, keep=3, limit=7)
        ):
            count += found
        return count

    forgotten = sum(together(NODES, forget))
    while more := store.prune(before=now + SECOND, keep=3, limit=99):
        forgotten += more
    while more := store.prune_events(before=now + SECOND, keep=3, limit=99):
        forgotten += more
    assert forgotten == 40 * 8 + 200
    assert_consistent(store)


class Node:
    """Does at random whatever a node, or somebody who asks it for something, may do."""

    def __init__(self, number, store, clock):
        self.name, self.store, self.clock = f"node-{number}", store, clock
        self.chance = random.Random(number)
        self.claims, self.decisions, self.started = [], [], []
        self.done, self.made = Counter(), 0

    def now(self):
        return self.clock.now

    def some(self, items, most=4):
        """A few of them, taken away."""
        self.chance.shuffle(items)
        taken, items[:] = items[:most], items[most:]
        return taken

    def snapshot(self):
        tenant, number = self.chance.choice(TENANTS), self.chance.randrange(8)
        found = self.store.find(tenant, f"schedule-{number}", deleted=True)
        return None if found is None else self.store.snapshot(found.schedule.uid)

    def step(self):
        verb = self.chance.choice(VERBS)
        self.done[verb.__name__] += bool(verb(self))

    def advance(self):
        self.clock.now += self.chance.choice([1, SECOND, 4 * SECOND])
        return True

    def create(self):
        number = self.chance.randrange(8)
        schedules = [self.schedule(tenant, number) for tenant in TENANTS]
        return any(self.store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules]))

    def schedule(self, tenant, number):
        """The later ones depend on the earlier ones."""
        upstream = [f"schedule-{number - 3}"] if number >= 3 and self.chance.random() < 0.5 else []
        every = IntervalTrigger(self.chance.choice([2, 5]), start_at=from_micros(self.now() + SECOND))
        self.made += 1
        return factories.schedule(
            f"{tenant}-{self.name}-{self.made}",
            schedule_id=f"schedule-{number}",
            owner=Owner(tenant=tenant, user="ada"),
            created=self.now(),
            trigger=self.chance.choice([every, EventTrigger("seen"), *([None] if upstream else [])]),
            depends_on=tuple(Dependency(schedule_id=one) for one in upstream),
            overlap_policy=self.chance.choice(OVERLAPS),
            concurrency=self.chance.choice(LIMITS),
            retry_policy=RetryPolicy(max_attempts=self.chance.choice([1, 2])),
            pause_on_failure=self.chance.choice([None, 3]),
        )

    def change(self):
        snapshot = self.snapshot()
        if snapshot is None or snapshot.schedule.phase is SchedulePhase.DELETED:
            return False
        phase, declared = snapshot.schedule.phase, snapshot.schedule.declaration
        if phase is SchedulePhase.PAUSED:
            changed = edits.resume(snapshot, now=self.now(), lookahead=LOOKAHEAD)
        elif phase is SchedulePhase.ACTIVE and self.chance.random() < 0.4:
            changed = edits.pause(snapshot, now=self.now())
        elif self.chance.random() < 0.1:
            changed = edits.delete(snapshot, now=self.now())
        else:
            other = replace(
                declared, overlap_policy=self.chance.choice(OVERLAPS), concurrency=self.chance.choice(LIMITS)
            )
            changed = edits.edit(snapshot, other, now=self.now(), lookahead=LOOKAHEAD)
        return self.store.commit_plans([changed]) == [True]

    def plan(self):
        found = self.store.plannable(self.now(), 4)
        plans = [plan(one, now=self.now(), lookahead=LOOKAHEAD) for one in found]
        return any(self.store.commit_plans(plans)) if plans else False

    def add(self):
        snapshot = self.snapshot()
        if snapshot is None:
            return False
        key = manual(f"{self.name}-{self.chance.randrange(10**6)}")
        return any(self.store.add([factories.occurrence(snapshot.schedule, key, nominal=self.now())]))

    def emit(self):
        event_id = f"{self.chance.randrange(60)}"
        return any(
            self.store.emit(self.chance.choice(TENANTS), [Event(event_type="seen", emitted=0, event_id=event_id)])
        )

    def match(self):
        reactions = []
        for one in self.store.unmatched(6):
            rows = [match(one.event, each, now=self.now()) for each in one.listeners]
            reactions.append(Reaction(audience=one, occurrences=tuple(row for row in rows if row is not None)))
        return any(self.store.commit_reactions(reactions)) if reactions else False

    def claim(self):
        now = self.now()
        shares = self.chance.choice([None, Shares(each=2)])
        found = self.store.claim(self.name, [ROUTE], now=now, until=now, limit=6, lease=LEASE, shares=shares)
        self.claims += found
        return found

    def decide(self):
        due = self.some(self.claims, 6)
        for claim in due:
            decision = admit(claim, now=self.now(), lease=LEASE, keys=inflight_keys(IN_FLIGHT, claim.schedule.owner))
            if isinstance(decision, Start) and depends_on_others(claim):
                [standings] = self.store.upstreams([claim])
                decision = after_upstreams(claim, standings, now=self.now()) or decision
            self.decisions.append(decision)
        return due

    def carry_out(self):
        decisions = self.some(self.decisions, 6)
        answers = self.store.admit(decisions, now=self.now(), lease=LEASE) if decisions else []
        for decision, answer in zip(decisions, answers, strict=True):
            if isinstance(answer, Busy):
                self.decisions.append(refused(decision.claim, answer, decision.keys))
            elif isinstance(answer, Admitted) and answer.occurrence.phase is Phase.DISPATCHING:
                self.started.append((answer.occurrence, decision.claim.schedule))
        return answers

    def settle(self):
        runs = self.some(self.started, 6)
        ends = []
        for one, schedule in runs:
            if self.chance.random() < 0.2:
                deadline = self.now() + self.chance.choice([SECOND, 20 * SECOND])
                told = Accepted(started=self.now(), accepted=self.now(), deadline=deadline)
            else:
                told = Delivered(outcome=self.chance.choice(OUTCOMES), started=self.now(), ended=self.now())
            ends.append(settle(one, schedule, told, node=self.name))
        return any(self.store.settle(ends)) if ends else False

    def give_up(self):
        """What is overdue ends, whoever was to tell of it."""
        found = self.store.overdue(now=self.now(), limit=4)
        for one in found:
            snapshot = self.store.snapshot(one.uid)
            self.store.settle([expire(one, snapshot.schedule, now=self.now())])
        return found

    def hold(self):
        holds = [Lease(occurrence_id=one.id, fence=one.fence) for one, _ in self.started]
        self.store.renew(holds, now=self.now(), lease=LEASE)
        claims = self.some(self.claims, 1)
        self.store.release([Lease(occurrence_id=one.occurrence.id, fence=one.occurrence.fence) for one in claims])
        return holds

    def cancel(self):
        snapshot = self.snapshot()
        rows = [] if snapshot is None else self.store.occurrences(snapshot.schedule.uid, 3)
        return [self.store.cancel(row.id) or self.store.request_stop(row.id) for row in rows]

    def forget(self):
        old = self.now() - 10 * SECOND
        return self.store.prune(before=old, keep=2, limit=5) + self.store.prune_events(before=old, keep=2, limit=5)

    def look(self):
        self.store.beat(Heartbeat(node=self.name, routes=(ROUTE, "http")), now=self.now())
        self.store.lead(self.name, now=self.now(), lease=SECOND)
        assert len(self.store.nodes()) <= NODES
        self.store.next_time([ROUTE])
        return self.store.schedules(self.chance.choice(TENANTS), limit=5)


OUTCOMES = (Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED)
WORK = [Node.claim, Node.decide, Node.carry_out, Node.settle]
VERBS = [
    *(3 * WORK), Node.advance, Node.create, Node.change, Node.change, Node.plan, Node.plan, Node.add, Node.add,
    Node.emit, Node.match, Node.give_up, Node.hold, Node.cancel, Node.forget, Node.look,
]  # fmt: skip


def test_concurrent_nodes_stay_consistent(stores, database):
    nodes = [Node(number, store, store._clock) for number, store in enumerate(stores)]
    for node in nodes * 4:
        node.create()

    def in_vain():
        """What none of them has found anything to do for."""
        return {verb.__name__ for verb in VERBS if not any(node.done[verb.__name__] for node in nodes)}

    def work(number):
        for step in range(MOST_STEPS):
            if step >= STEPS and not in_vain():
                break
            nodes[number].step()

    together(NODES, work)
    assert in_vain() == set()
    assert stores[0]._clock.now > NOW
    assert_consistent(stores[0])
    for store in stores:
        store.close()
    assert ask(stores[0], DEADLOCKS) == [(0,)]
