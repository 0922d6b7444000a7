"""A state machine of two nodes on a memory store; the invariants hold after every step."""

from collections import Counter
from dataclasses import replace
from itertools import chain

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from noonmark.core import edits
from noonmark.core.admission import (
    Busy,
    Claim,
    Start,
    Wait,
    admit,
    after_upstreams,
    depends_on_others,
    refused,
    times_in_question,
    unserved,
)
from noonmark.core.ids import TRIGGER, backfill, event, manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.planner import first_plan, is_used_up, owed, plan
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.limits import Concurrency, Dependency, Horizon
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.quotas import UNLIMITED, Limits, Resource, Scope, inflight_keys
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.core.settlement import Accepted, Delivered, expire, settle
from noonmark.core.triggers import EventTrigger, IntervalTrigger
from noonmark.ports.records import Admitted, Heartbeat, Lease, Shares
from noonmark.stores.memory import MemoryStore
from noonmark.stores.rules import dependencies, snapshots
from noonmark.stores.rules.records import read_other_keys
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE
from noonmark.testing.factories import NOW
from tests.soak import SCALE

KEY_REASONS = (Reason.CONCURRENCY_LIMIT, Reason.INFLIGHT_LIMIT, Reason.TENANT_INFLIGHT_LIMIT)
UIDS = ("uid-1", "uid-2", "uid-3")
OWNERS = (Owner(tenant="acme", user="ada"), Owner(tenant="acme", user="bob"))
SHARES = (Shares(each=1, after=OWNERS[0]), Shares(each=2, besides=frozenset(OWNERS[:1])))
LIMIT = Concurrency(key="db", limit=1)


def inflight(per_user, per_tenant):
    limits = ({} if limit is None else {Resource.IN_FLIGHT: {"*": limit}} for limit in (per_user, per_tenant))
    return Limits(per_user=next(limits), per_tenant=next(limits))


limits_in_flight = st.sampled_from([UNLIMITED, inflight(1, None), inflight(None, 2), inflight(1, 1), inflight(2, 3)])
overlaps = st.sampled_from(
    [overlap.Skip(), overlap.Queue(queue_limit=2), overlap.QueueOne(), overlap.Allow(), overlap.CancelRunning()]
)
misfires = st.sampled_from(
    [misfire.Skip(grace=SECOND), misfire.CatchUpOne(grace=SECOND), misfire.CatchUpAll(grace=SECOND, limit=3)]
)
uids = st.sampled_from(UIDS)
nodes = st.sampled_from(["node-a", "node-b"])
keys = st.sampled_from("abcdef")
indexes = st.integers(0, 5)
endings = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.SUSPENDED])
"""How a delivery may end: a suspension is not an end."""


def ready_entries(uow):
    return {key: entry for line in uow.ready[ROUTE]._lines.values() for key, entry in line._entries.items()}


class TwoNodes(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.clock = HandClock()
        self.store = MemoryStore(self.clock)
        self.uow = self.store._uow
        self.claims = {"node-a": [], "node-b": []}
        self.decisions = {"node-a": [], "node-b": []}
        self.started = {"node-a": [], "node-b": []}
        self.plans = []
        self.fences = {}
        self.finals = {}
        self.relimited = set()
        self.leaders = {}
        """By term."""
        self.over = {}
        self.unnamed = dict.fromkeys(UIDS, 0)
        self.depends_on = {}
        self.limits = UNLIMITED

    @initialize(data=st.data())
    def create(self, data):
        self.limits = data.draw(limits_in_flight)
        for number, uid in enumerate(UIDS):
            every = IntervalTrigger(10, start_at=from_micros(NOW + 5 * SECOND))
            named = data.draw(st.lists(st.sampled_from(UIDS[:number]), unique=True)) if number else []
            self.depends_on[uid] = tuple(
                Dependency(schedule_id=f"schedule-of-{one}", require_success=data.draw(st.booleans())) for one in named
            )
            schedule = factories.schedule(
                uid,
                owner=OWNERS[number % 2],
                trigger=data.draw(st.sampled_from([every, EventTrigger("seen"), *([None] if named else [])])),
                depends_on=self.depends_on[uid],
                overlap_policy=data.draw(overlaps),
                misfire_policy=data.draw(misfires),
                concurrency=data.draw(st.sampled_from([None, LIMIT])),
                max_runs=data.draw(st.sampled_from([None, 3])),
                pause_on_failure=data.draw(st.sampled_from([None, 2])),
                retry_policy=RetryPolicy(max_attempts=data.draw(st.integers(1, 2))),
                horizon=Horizon(occurrences=data.draw(st.integers(1, 3))),
            )
            assert self.store.create([first_plan(schedule, lookahead=LOOKAHEAD)]) == [True]

    def now(self):
        return self.clock.now

    def snapshot(self, uid):
        return self.store.snapshot(uid)

    @rule(micros=st.sampled_from([1, SECOND, 5 * SECOND, LEASE, 60 * SECOND]))
    def advance(self, micros):
        self.clock.now += micros

    @rule(uid=uids, chosen=st.lists(keys, min_size=1, unique=True), origin=st.sampled_from([manual, event, backfill]))
    def add(self, uid, chosen, origin):
        made = self.snapshot(uid).schedule
        self.store.add([factories.occurrence(made, origin(key), nominal=self.now()) for key in chosen])

    @rule(limit=st.integers(1, 2))
    def plan_what_is_due(self, limit):
        for snapshot in self.store.plannable(self.now(), limit):
            self.plans.append(plan(snapshot, now=self.now(), lookahead=LOOKAHEAD))

    @rule(uid=uids, way=st.sampled_from(["edit", "pause", "resume", "delete"]), data=st.data())
    def change(self, uid, way, data):
        snapshot = self.snapshot(uid)
        phase, declared = snapshot.schedule.phase, snapshot.schedule.declaration
        if way == "pause" and phase is SchedulePhase.ACTIVE:
            self.plans.append(edits.pause(snapshot, now=self.now()))
        elif way == "resume" and phase is SchedulePhase.PAUSED:
            self.plans.append(edits.resume(snapshot, now=self.now(), lookahead=LOOKAHEAD))
        elif way == "delete" and phase is not SchedulePhase.DELETED and data.draw(st.integers(0, 3)) == 0:
            self.plans.append(edits.delete(snapshot, now=self.now()))
        elif way == "edit" and phase is not SchedulePhase.DELETED:
            changed = replace(
                declared,
                overlap_policy=data.draw(overlaps),
                concurrency=data.draw(st.sampled_from([None, LIMIT])),
                timeout=data.draw(st.integers(1, 3)),
                max_runs=data.draw(st.sampled_from([declared.max_runs, None, 3, 5])),
            )
            if declared.trigger is not None:
                changed = replace(changed, depends_on=data.draw(st.sampled_from([self.depends_on[uid], ()])))
            self.relimited.add(uid)
            self.plans.append(edits.edit(snapshot, changed, now=self.now(), lookahead=LOOKAHEAD))

    @precondition(lambda self: self.plans)
    @rule(index=indexes, forget=st.booleans())
    def commit(self, index, forget):
        index %= len(self.plans)
        self.write(self.plans[index])
        if forget:
            del self.plans[index]

    @rule(uid=uids)
    def change_at_once(self, uid):
        """As callers do it: read, decided and written in one step, so never too late."""
        collected = []

        def decide(snapshot, now):
            if snapshot.schedule.phase is SchedulePhase.ACTIVE:
                collected[:] = [edits.pause(snapshot, now=now)]
            elif snapshot.schedule.phase is SchedulePhase.PAUSED:
                collected[:] = [edits.resume(snapshot, now=now, lookahead=LOOKAHEAD)]
            return collected[0] if collected else None

        assert self.store.change(uid, decide) is bool(collected)
        if collected:
            self.see_whether_it_is_over(uid, collected[0].schedule)

    def write(self, made):
        self.store.commit_plans([made])
        self.see_whether_it_is_over(made.snapshot.schedule.uid, made.schedule)

    def see_whether_it_is_over(self, uid, edited=None):
        """A schedule that has run as often as it may names no times, until an edit lets it run more."""
        entry = self.uow.entries[uid]
        state = entry.state
        over, known = self.over.pop(uid, (None, ()))
        is_over = state.exhausted and is_used_up(entry.schedule, state.admitted)
        if over is not None:
            until = state.watermark if is_over else max(over, edited.updated)
            trigger = entry.schedule.declaration.trigger
            named = 0 if trigger is None else trigger.count_micros(over, until)
            self.unnamed[uid] += named - sum(over < nominal <= until for nominal in known)
        if is_over:
            # What was cancelled ahead of its time has its outcome.
            ahead = [one.nominal for one in self.named(entry) if one.nominal > state.watermark]
            self.over[uid] = (state.watermark, ahead)

    def named(self, entry):
        """The rows of the trigger."""
        return [row for row in entry.rows if row.origin == TRIGGER and row.phase != Phase.SUPERSEDED]

    @rule(
        node=nodes,
        limit=st.integers(1, 4),
        ahead=st.sampled_from([0, LOOKAHEAD]),
        shares=st.sampled_from([None, None, *SHARES]),
    )
    def claim(self, node, limit, ahead, shares=None):
        now = self.now()
        self.claims[node] += self.store.claim(
            node, [ROUTE], now=now, until=now + ahead, limit=limit, lease=LEASE, shares=shares
        )

    @precondition(lambda self: any(self.claims.values()))
    @rule(node=nodes, count=st.integers(1, 4))
    def decide(self, node, count):
        due = [claim for claim in self.claims[node] if claim.occurrence.due <= self.now()][:count]
        for claim in due:
            self.claims[node].remove(claim)
            keys = inflight_keys(self.limits, claim.schedule.owner)
            decision = admit(claim, now=self.now(), lease=LEASE, keys=keys)
            if isinstance(decision, Start) and depends_on_others(claim):
                [standings] = self.store.upstreams([claim])
                decision = after_upstreams(claim, standings, now=self.now()) or decision
            self.decisions[node].append(decision)

    @precondition(lambda self: any(self.decisions.values()))
    @rule(node=nodes, count=st.integers(1, 4), forget=st.booleans())
    def carry_out(self, node, count, forget):
        decisions = self.decisions[node][:count]
        self.decisions[node] = self.decisions[node][count:]
        for decision in decisions:
            [answer] = self.store.admit([decision], now=self.now(), lease=LEASE)
            if isinstance(answer, Busy):
                self.decisions[node].append(refused(decision.claim, answer, decision.keys))
            elif not forget:  # a node that was told, and asks again
                self.decisions[node].append(decision)
            self.hear(node, decision, answer)

    def hear(self, node, decision, answer):
        """Begin what a node is told to have started, unless it was told so before."""
        if isinstance(answer, Admitted) and answer.occurrence.phase is Phase.DISPATCHING:
            begun = {(one.id, one.fence) for one, _ in self.started[node]}
            if (answer.occurrence.id, answer.occurrence.fence) not in begun:
                self.started[node].append((answer.occurrence, decision.claim.schedule))

    @precondition(lambda self: any(self.started.values()))
    @rule(node=nodes, index=indexes, outcome=endings, forget=st.booleans())
    def settle(self, node, index, outcome, forget):
        if not self.started[node]:
            node = next(other for other, runs in self.started.items() if runs)
        index %= len(self.started[node])
        occurrence, schedule = self.started[node][index]
        delivered = Delivered(outcome=outcome, started=self.now(), ended=self.now())
        settlement = settle(occurrence, schedule, delivered, node=node)
        before = self.uow.rows.get(occurrence.id)
        before = before and before.fence
        [accepted] = self.store.settle([settlement])
        assert not accepted or before == occurrence.fence
        if accepted and settlement.phase in FINAL:
            self.finals[occurrence.id] = self.finals.get(occurrence.id, 0) + 1
        if forget:
            del self.started[node][index]

    @precondition(lambda self: any(self.started.values()))
    @rule(node=nodes, index=indexes, within=st.sampled_from([None, 0, SECOND, 60 * SECOND]))
    def accept(self, node, index, within):
        """The target says later how it ended; whoever has the fence may tell."""
        if not self.started[node]:
            node = next(other for other, runs in self.started.items() if runs)
        occurrence, schedule = self.started[node][index % len(self.started[node])]
        deadline = None if within is None else self.now() + within
        accepted = Accepted(started=self.now(), accepted=self.now(), deadline=deadline)
        self.store.settle([settle(occurrence, schedule, accepted, node=node)])

    @rule(limit=st.integers(1, 3))
    def give_up(self, limit):
        """What is overdue ends, or is tried again."""
        for one in self.store.overdue(now=self.now(), limit=limit):
            settlement = expire(one, self.snapshot(one.uid).schedule, now=self.now())
            [accepted] = self.store.settle([settlement])
            assert accepted
            if settlement.phase in FINAL:
                self.finals[one.id] = self.finals.get(one.id, 0) + 1

    @rule(uid=uids, index=indexes)
    def cancel(self, uid, index):
        rows = self.store.occurrences(uid)[index : index + 1]
        for row in rows:
            is_open = row.phase in (Phase.PENDING, Phase.CLAIMED)
            assert self.store.cancel(row.id) is is_open
            self.store.request_stop(row.id)

    @rule(node=nodes, serves=st.booleans())
    def beat(self, node, serves):
        self.store.beat(Heartbeat(node=node, routes=(ROUTE,) if serves else ()), now=self.now())

    @rule(node=nodes, lease=st.sampled_from([LEASE, SECOND]))
    def lead(self, node, lease):
        leadership = self.store.lead(node, now=self.now(), lease=lease)
        assert leadership.term == max([*self.leaders, leadership.term])
        assert self.leaders.setdefault(leadership.term, leadership.leader) == leadership.leader
        assert set(self.leaders) == set(range(1, leadership.term + 1))
        [known] = [one for one in self.store.nodes() if one.name == leadership.leader] or [None]
        assert known is None or known.is_leader

    @rule(node=nodes)
    def leave(self, node):
        self.store.leave(node)
        assert not any(one.is_alive or one.is_leader for one in self.store.nodes() if one.name == node)

    @rule(node=nodes, limit=st.integers(1, 3))
    def adopt(self, node, limit):
        claims = self.store.orphans(node, now=self.now(), limit=limit, lease=LEASE)
        self.decisions[node] += [unserved(claim) for claim in claims]

    @rule(node=nodes, limit=st.integers(1, 4))
    def work(self, node, limit):
        """All of it at once, as most rounds of a node are."""
        self.claim(node, limit, 0)
        self.decide(node, limit)
        self.carry_out(node, limit, forget=True)
        self.carry_out(node, limit, forget=True)

    @rule(micros=st.sampled_from([SECOND, 5 * SECOND, 10 * SECOND]), data=st.data())
    def go_on(self, micros, data):
        """Time passes, and both nodes do all they can; what was decided may be carried out after what it looked at."""
        self.advance(micros)
        for node in self.claims:
            self.plan_what_is_due(3)
            self.claim(node, 4, 0)
            self.decide(node, 4)
            for made in [self.plans.pop() for _ in self.plans]:
                self.write(made)
            if data.draw(st.booleans()):
                self.finish(data.draw(st.sampled_from([Outcome.COMPLETED, Outcome.FAILED])))
            self.carry_out(node, 4, forget=True)

    @precondition(lambda self: any(self.started.values()))
    @rule(outcome=st.sampled_from([Outcome.COMPLETED, Outcome.FAILED]))
    def finish(self, outcome):
        """Whatever runs ends, and both nodes take up what that frees."""
        for node, runs in self.started.items():
            while runs:
                self.settle(node, 0, outcome, forget=True)
            self.work(node, 4)

    def holds(self, node):
        held = chain((claim.occurrence for claim in self.claims[node]), (one for one, _ in self.started[node]))
        return [Lease(occurrence_id=one.id, fence=one.fence) for one in held]

    @rule(node=nodes)
    def renew(self, node):
        self.store.renew(self.holds(node), now=self.now(), lease=LEASE)

    @rule(node=nodes, index=indexes)
    def release(self, node, index):
        self.store.release(self.holds(node)[index : index + 1])

    @invariant()
    def fences_never_fall(self):
        for one, row in self.uow.rows.items():
            assert row.fence >= self.fences.get(one, 0)
            self.fences[one] = row.fence

    @invariant()
    def what_is_delivered_is_known_to_one_node(self):
        for runs in self.started.values():
            current = [one for one, _ in runs if self.fences.get(one.id) == one.fence]
            assert len(current) == len({one.id for one in current})
        both = [{(one.id, one.fence) for one, _ in runs} for runs in self.started.values()]
        assert not both[0] & both[1]

    @invariant()
    def each_result_is_accepted_once(self):
        assert all(count == 1 for count in self.finals.values())

    @invariant()
    def one_row_holds_the_slot_and_none_waits_for_a_free_one(self):
        for entry in self.uow.entries.values():
            state, line = entry.state, self.uow.slot_queue(entry.state)
            assert [row.key for row in entry.live.values() if row.holds_slot] == (
                [] if state.holder is None else [state.holder]
            )
            assert state.queued == len(line)
            if state.holder is None:  # a fire of a gap waits for the older ones, also while they are planned again
                assert all(state.holds_back(row) or self.uow.late_fire_before(row) for row in line)

    @invariant()
    def places_under_a_key_are_counted_and_handed_on(self):
        limits = {key.name: key.limit for owner in OWNERS for key in inflight_keys(self.limits, owner)}
        held = Counter(chain.from_iterable(self.held_keys(row) for row in self.uow.rows.values()))
        for key in self.uow.keys.values():
            limit = limits.get(key.name, LIMIT.limit)
            assert key.taken == held[key.key]
            assert key.taken <= limit
            waiting = [row for row in self.uow.rows.values() if row.wanted == key.key]
            assert key.waiting == len(waiting)
            if any(not self.uow.state_of(row).holds_back(row) for row in waiting):
                assert key.taken == limit

    def held_keys(self, row):
        others = read_other_keys(row, self.uow.unpack)
        return [] if row.place is None else [row.place, *(one.key for one in others)]

    @invariant()
    def no_more_are_in_flight_than_the_limits_allow(self):
        running = [
            entry.schedule.owner
            for entry in self.uow.entries.values()
            for row in entry.live.values()
            if row.phase in (Phase.DISPATCHING, Phase.AWAITING_COMPLETION)
        ]
        for quota in self.limits.quotas("acme", Resource.IN_FLIGHT):
            counts = Counter(running) if quota.scope is Scope.USER else {"acme": len(running)}
            assert max(counts.values(), default=0) <= quota.limit

    @invariant()
    def live_rows_have_a_node_or_a_time_or_a_wait(self):
        for entry in self.uow.entries.values():
            for one, row in entry.live.items():
                ready = ready_entries(self.uow).get(one)
                lease = self.uow.leases[ROUTE]._entries.get(one)
                deadline = self.uow.deadlines._entries.get(one)
                if row.phase in (Phase.DISPATCHING, Phase.AWAITING_COMPLETION):
                    assert (deadline and deadline[0]) == row.deadline
                else:
                    assert deadline is None
                if row.phase == Phase.AWAITING_COMPLETION:
                    assert (ready, lease) == (None, None)
                    assert deadline is not None
                    continue
                if row.phase != Phase.PENDING:
                    assert (ready, lease) == (None, (row.lease_end, row.nominal, one))
                    continue
                assert lease is None
                assert bool(row.held) == entry.state.holds_back(row)
                if row.held:
                    assert ready is None
                elif row.ready is not None:
                    assert ready == (row.ready, row.nominal, one)
                elif row.waiting_for == Reason.QUEUED:
                    assert self.uow.slot_lines[row.schedule]._entries[one] == row.turn
                elif row.waiting_for in KEY_REASONS:
                    assert self.uow.key_lines[row.wanted]._entries[one] == row.turn
                else:
                    assert self.store.plannable(self.now(), 10)

    @invariant()
    def no_occurrence_waits_for_upstreams_in_vain(self):
        for entry in self.uow.entries.values():
            for row in entry.live.values():
                if not row.awaits_upstreams(self.now()):
                    continue
                occurrence = self.uow.occurrence_of(row)
                claim = Claim(occurrence=occurrence, schedule=entry.schedule, claimed=self.now())
                [standings] = dependencies.of_claims(self.uow, [claim])
                upstreams = [one.between(*times_in_question(claim)) for one in standings.each]
                # Of two upstreams, one may get another last outcome while the other is waited for.
                if all(one.is_named for one in upstreams if one.has_failed):
                    assert isinstance(after_upstreams(claim, standings, now=self.now()), Wait)

    @invariant()
    def followers_that_owe_a_fire_are_planned(self):
        for uid, entry in self.uow.entries.items():
            if entry.schedule.phase is SchedulePhase.ACTIVE and owed(snapshots.by_uid(self.uow, uid)) is not None:
                assert entry.state.plan_at is not None
                assert self.uow.plans._entries[uid][0] <= self.now()
            if entry.schedule.phase is SchedulePhase.COMPLETED:
                assert owed(snapshots.by_uid(self.uow, uid)) is None

    @invariant()
    def nothing_that_ended_is_left_in_a_line_or_an_agenda(self):
        live = set(chain.from_iterable(entry.live for entry in self.uow.entries.values()))
        assert ready_entries(self.uow).keys() <= live
        for due_index in (self.uow.leases[ROUTE], self.uow.deadlines):
            assert due_index._entries.keys() <= live
        for line in (*self.uow.slot_lines.values(), *self.uow.key_lines.values()):
            assert line._entries.keys() <= live

    @invariant()
    def tallies_are_the_sum_of_what_ended(self):
        for uid, entry in self.uow.entries.items():
            state = entry.state
            assert (state.live, state.history) == (len(entry.live), len(entry.ended))
            ended = [row for row in entry.ended.values() if row.phase != Phase.SUPERSEDED]
            assert state.total == sum(max(1, one.missed_count) for one in ended)
            declared = entry.schedule.declaration
            assert uid in self.relimited or declared.max_runs is None or state.admitted <= declared.max_runs
            for row in entry.rows:
                runs = self.uow.runs.get(row.key, ())
                assert len({run.id for run in runs}) == len(runs)
                assert sum(run.ended is None for run in runs) == (row.phase == Phase.AWAITING_COMPLETION)

    @invariant()
    def every_fire_up_to_the_watermark_is_accounted_for_once(self):
        for uid, entry in self.uow.entries.items():
            named, state = self.named(entry), entry.state
            trigger = entry.schedule.declaration.trigger
            if trigger is None:
                assert len({one.nominal for one in named}) == len(named)
                assert all(one.nominal <= state.watermark for one in named)
                continue
            # What was cancelled or deleted ahead of its time is counted when that comes.
            counted = sum(max(1, one.missed_count) for one in named if one.nominal <= state.watermark)
            self.see_whether_it_is_over(uid)  # failures may have paused it
            assert counted == trigger.count_micros(NOW - 1, state.watermark) - self.unnamed[uid]


TwoNodes.TestCase.settings = settings(max_examples=35 * SCALE, stateful_step_count=60)
TestTwoNodes = TwoNodes.TestCase
