"""Two stores with the same calls: they must give the same answers."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from noonmark.core import edits
from noonmark.core.admission import Busy, refused
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.schedule import AuditEntry
from noonmark.core.settlement import Delivered, settle
from noonmark.ports.records import ScheduleFilter
from noonmark.stores.memory import MemoryStore
from noonmark.stores.redis.claims import due_in_turn as in_turn
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.sql.claims import due_in_turn
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE
from tests.conformance.test_memory_model import LIMIT, UIDS, TwoNodes, endings, nodes, overlaps, uids

EVERYTHING = 1_000
COUNTED = """
    SELECT live, history, queued, holder,
        (SELECT count(*) FROM occurrences AS o WHERE ended IS NULL AND o.schedule = s.schedule),
        (SELECT count(*) FROM occurrences AS o WHERE ended IS NOT NULL AND o.schedule = s.schedule),
        (SELECT count(*) FROM occurrences AS o WHERE phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL
            AND o.schedule = s.schedule),
        (SELECT key FROM occurrences AS o WHERE holds_slot = 1 AND o.schedule = s.schedule)
    FROM schedule_states AS s
"""
PLACES = """
    SELECT taken, waiting, (
            SELECT count(*) FROM occurrences
            WHERE place = k.key OR (place IS NOT NULL AND other_keys LIKE '%[' || k.key || ',%')
        ), (SELECT count(*) FROM occurrences WHERE wanted = k.key)
    FROM concurrency_keys AS k
"""


class Both:
    """The first is the memory store, and what it answers is passed on."""

    def __init__(self, one, other):
        self._one, self._other = one, other

    @property
    def traits(self):
        return self._one.traits

    def __getattr__(self, verb):
        def asked(*args, **kwargs):
            if verb == "claim" and kwargs.get("shares") is not None:
                return self._share(*args, **kwargs)
            if verb in ("claim", "orphans"):
                return self._lease(verb, *args, **kwargs | {"limit": EVERYTHING})
            if verb == "lead":  # by the store's own clock, as a claim
                kwargs["now"] = min(kwargs["now"], self._one.clock())
            if verb == "inspect":  # each has rows of its own, and places among them; none may be damaged
                return self._inspect(*args, **kwargs)
            expected = getattr(self._one, verb)(*args, **kwargs)
            assert getattr(self._other, verb)(*args, **kwargs) == expected, verb
            return expected

        return asked

    def prune(self, **limits):
        """All that there is: either store may begin with any."""
        return self.__getattr__("prune")(**limits | {"limit": EVERYTHING})

    def commit_plans(self, plans):
        """Each with a note, so that these are compared as well."""
        noted = [replace(one, note=AuditEntry(at=one.watermark, caller="ada", operation="commit")) for one in plans]
        return self.__getattr__("commit_plans")(noted)

    def change(self, uid, decide):
        """Decided once, on what both have read alike."""
        decided = []

        def noted(snapshot, now):
            decision = decide(snapshot, now)
            note = decision and replace(decision, note=AuditEntry(at=now, caller="ada", operation="change"))
            decided.append((snapshot, note))
            return note

        def again(snapshot, _):
            before, note = decided[-1]
            assert snapshot == before
            return note

        expected = self._one.change(uid, noted)
        assert self._other.change(uid, again) == expected
        return expected

    def unmatched(self, limit):
        """All that there is: each store has an order of its own."""
        expected, found = self._one.unmatched(EVERYTHING), self._other.unmatched(EVERYTHING)
        assert [unpaged(one) for one in found] == [unpaged(one) for one in expected]
        return expected

    def commit_reactions(self, reactions):
        expected = self._one.commit_reactions(reactions)
        assert self._other.commit_reactions(reactions) == expected
        return expected

    def _inspect(self, after, *, limit):
        """All of the other store each time: a place in one of them means nothing in the other."""
        found = self._other.inspect(None, limit=EVERYTHING)
        assert found.damaged == ()
        return self._one.inspect(after, limit=limit)

    def _lease(self, verb, *args, **kwargs):
        """All that there is: of rows with the same times, either store may take any first.

        By the store's own clock: whoever is ahead of it is told apart only where that is another machine's.
        """
        kwargs["now"] = min(kwargs["now"], self._one.clock())
        expected, found = [getattr(store, verb)(*args, **kwargs) for store in (self._one, self._other)]
        assert sorted(found, key=identity) == sorted(expected, key=identity), verb
        return expected

    def _share(self, node, routes, *, now, until, limit, lease, shares, only=None):
        """The same owners, in the same order; then the same rows, one by one."""
        assert only is None
        now = min(now, self._one.clock())
        found = ids_in_turn(self._other, routes, shares, now=now, until=until, limit=limit)
        rows = [self._one._uow.rows[occurrence_id] for occurrence_id in found]
        expected = self._one.claim(node, routes, now=now, until=until, limit=limit, lease=lease, shares=shares)
        owners = [claim.schedule.owner for claim in expected]
        assert list(dict.fromkeys(row.owner for row in rows)) == list(dict.fromkeys(one.number for one in owners))
        for claim in expected:
            only = claim.occurrence.id
            [same] = self._other.claim(node, routes, now=now, until=until, limit=1, lease=lease, only=only)
            assert same == claim
        return expected


def ids_in_turn(store, routes, shares, **limits):
    """The ids of the rows that a claim with shares would take of a store, in its order."""
    if isinstance(store, RedisStore):
        return store._read(lambda uow: [row.id for row in in_turn(uow, sorted(routes), shares, **limits)])
    found = store._write_unlocked(lambda uow: due_in_turn(uow.session, routes, shares, **limits))
    return [columns[2] for columns in found]


def identity(claim):
    return claim.occurrence.id


def unpaged(audience):
    assert audience.next_cursor is None
    return replace(audience, cursor="", listeners=tuple(sorted(audience.listeners, key=lambda one: one.uid)))


class TwoNodesOnTwoStores(TwoNodes):
    """The memory store, and another beside it."""

    def __init__(self):
        super().__init__()
        memory = MemoryStore(self.clock)
        self.uow = memory._uow
        self.twin = self.make_twin()
        self.twin.open()
        self.store = Both(memory, self.twin)

    def make_twin(self):
        raise NotImplementedError

    def counted(self):
        """Of each schedule, what its state has counted, and what its rows say."""
        return self.twin._read(lambda uow: uow.session.query(COUNTED))

    def places(self):
        """Of each concurrency key, what it has counted, and what rows say."""
        return self.twin._read(lambda uow: uow.session.query(PLACES))

    def teardown(self):
        self.twin.close()

    @rule(uid=uids, way=st.sampled_from(["edit", "pause", "resume", "delete"]), data=st.data())
    def change(self, uid, way, data):
        """As its base does, but an edit must be one that a document can say: a database keeps documents."""
        snapshot = self.snapshot(uid)
        if way != "edit":
            super().change(uid, way, data)
        elif snapshot.schedule.phase is not SchedulePhase.DELETED:
            changed = replace(
                snapshot.schedule.declaration,
                overlap_policy=data.draw(overlaps),
                concurrency=data.draw(st.sampled_from([None, LIMIT])),
                max_runs=data.draw(st.sampled_from([None, 3, 5])),
                timeout=data.draw(st.integers(1, 3)) * SECOND,
            )
            self.relimited.add(uid)
            self.plans.append(edits.edit(snapshot, changed, now=self.now(), lookahead=LOOKAHEAD))

    @precondition(lambda self: any(self.decisions.values()))
    @rule(node=nodes)
    def carry_out_together(self, node):
        """All that was decided, in one call."""
        decisions, self.decisions[node] = self.decisions[node], []
        answers = self.store.admit(decisions, now=self.now(), lease=LEASE)
        for decision, answer in zip(decisions, answers, strict=True):
            if isinstance(answer, Busy):
                self.decisions[node].append(refused(decision.claim, answer, decision.keys))
            self.hear(node, decision, answer)

    @precondition(lambda self: any(self.started.values()))
    @rule(node=nodes, outcomes=st.lists(endings, min_size=6, max_size=6))
    def settle_together(self, node, outcomes):
        runs, self.started[node] = self.started[node][:6], self.started[node][6:]
        settlements = [
            settle(one, schedule, Delivered(outcome=outcome, started=self.now(), ended=self.now()), node=node)
            for (one, schedule), outcome in zip(runs, outcomes, strict=False)
        ]
        for one, accepted in zip(settlements, self.store.settle(settlements), strict=True):
            if accepted and one.retry_at is None:
                self.finals[one.occurrence.id] = self.finals.get(one.occurrence.id, 0) + 1

    @rule(
        limit=st.integers(1, 3),
        age=st.sampled_from([0, LEASE]),
        phases=st.sets(st.sampled_from(Phase), max_size=3),
        of=st.sets(st.sampled_from(SchedulePhase), max_size=2),
        newest_first=st.booleans(),
    )
    def look_up(self, limit, age, phases, of, newest_first):
        for uid in UIDS:
            self.store.find("acme", f"schedule-of-{uid}")
            for occurrence in self.store.occurrences(uid, limit, phases=phases):
                self.store.occurrences(uid, limit, before=(occurrence.nominal, occurrence.id), phases=phases)
                self.store.occurrence_runs(occurrence.id)
                self.store.last_runs([occurrence.id])
            for run in self.store.runs(uid):
                self.store.runs(uid, limit, before=(run.started, run.id))
                assert self.store.run(run.id) == (uid, run)
        wanted = ScheduleFilter(phases=frozenset(of))
        for after in (None, *UIDS):
            self.store.schedules("acme", limit=limit, after=after, wanted=wanted, newest_first=newest_first)
        self.store.count_schedules("acme", wanted)
        self.store.audit_entries("acme", limit, before=4)
        self.store.overdue(now=self.now() + age, limit=limit)

    @invariant()
    def both_know_the_same(self):
        self.store.next_time([ROUTE])
        self.store.backlog(self.now(), 1_000)
        self.store.plannable(self.now(), 10)
        for uid in UIDS:
            if self.store.snapshot(uid) is not None:
                self.store.occurrences(uid)

    @invariant()
    def counters_count(self):
        counted, places = self.counted(), self.places()
        assert all(row[:4] == row[4:] for row in counted), counted
        assert all(row[:2] == row[2:] for row in places), places
