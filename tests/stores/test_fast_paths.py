"""The fast paths of creations, starts and ends change what the rules do that they skip.

Two stores get the same random calls. One of them has no fast paths.
"""

import random  # noqa: TID251 - with a seed
from collections import Counter
from dataclasses import fields, replace
from itertools import product

import pytest

from noonmark.core import edits, ids
from noonmark.core.admission import Busy, Start, admit, refused
from noonmark.core.errors import Conflict
from noonmark.core.halt import Halt
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.occurrence import Overrides
from noonmark.core.planner import first_plan
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.expected_rate import ExpectedRate
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.runaway import RunawayPolicy
from noonmark.core.policies.window import Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import AuditEntry
from noonmark.core.settlement import Accepted, Delivered, expire, settle
from noonmark.core.system_events import SystemEvent
from noonmark.core.triggers import EventTrigger, IntervalTrigger, OnceTrigger
from noonmark.ports.records import Admitted, Lease
from noonmark.stores.memory import MemoryStore
from noonmark.stores.memory.unit_of_work import UnitOfWork
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.rules import plain_starts
from noonmark.stores.sql import fast_path
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE
from noonmark.testing.factories import MINUTE, NOW

STEPS = 300
TABLES = ("schedules", "occurrences", "schedule_states", "runs", "events", "concurrency_keys", "notes")
READ = "SELECT * FROM {}"
RETRIES = RetryPolicy(max_attempts=2, backoff=SECOND)
LISTENERS = (
    SystemEvent.STARTED_LATE,
    SystemEvent.COMPLETED,
    SystemEvent.FAILED,
    SystemEvent.SCHEDULE_COMPLETED,
    SystemEvent.SCHEDULE_CREATED,
)
TRIGGERS = (EventTrigger("seen"), EventTrigger("seen"), IntervalTrigger(1), IntervalTrigger(60))
OVERLAPS = (overlap.Allow(), overlap.Allow(), overlap.Skip(), overlap.Queue(queue_limit=2), overlap.QueueOne())
OPTIONS = (
    {"concurrency": Concurrency(key="key", limit=2)},
    {"max_runs": 2},
    {"expected": SECOND},
    {"expected_rate": ExpectedRate(per=MINUTE, at_most=1, at_least=1)},
    {"runaway": RunawayPolicy(max_fires_per_hour=2, max_identical_results=2)},
    {"timeout": 5 * SECOND},
    {"window": Window(duration=5 * SECOND)},
    {"pause_on_failure": 1},
    {"delivery": Delivery.AT_MOST_ONCE},
    {"retry_policy": RETRIES},
    {"retry_policy": RETRIES, "misfire_policy": misfire.CatchUpAll()},
)
OUTCOMES = (Outcome.COMPLETED,) * 4 + (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED, Outcome.LEASE_LOST, None)
"""None: the target took the work over."""


class FastPaths:
    """The fast paths, which can be turned off; counts which of them were taken."""

    def __init__(self, monkeypatch):
        self.are_on, self.taken = True, Counter()
        for module, name, nothing in (
            (fast_path, "create_plain", lambda _, accepted, __: accepted),
            (fast_path, "start_all", lambda *_, **__: {}),
            (fast_path, "end_all", lambda *_: frozenset()),
            (plain_starts, "start_if_plain", lambda *_, **__: False),
        ):
            monkeypatch.setattr(module, name, self._switched(name, getattr(module, name), nothing))
        heard = UnitOfWork.may_have_subscribers
        monkeypatch.setattr(UnitOfWork, "may_have_subscribers", lambda *args: not self.are_on or heard(*args))

    def _switched(self, name, path, nothing):
        def call(*args, **kwargs):
            without = nothing(*args, **kwargs)
            answer = path(*args, **kwargs) if self.are_on else without
            self.taken[name] += answer != without
            return answer

        return call


class Side:
    """One of the two stores, and what its nodes hold."""

    def __init__(self, store, clock, *, is_fast):
        self.store, self.clock, self.is_fast = store, clock, is_fast
        self.claims, self.running = {}, {}

    def records(self):
        """All that it stores, in no order."""
        if not isinstance(self.store, MemoryStore):
            return self.store._read(lambda uow: {one: Counter(uow.session.query(READ.format(one))) for one in TABLES})
        uow = self.store._uow
        rows, states = uow.rows.values(), [entry.state for entry in uow._by_key.values()]
        kept = [[str(getattr(record, one.name)) for one in fields(record)] for record in (*rows, *states)]
        ended = [(one, self.store.occurrence_runs(one.id)) for one in map(self.store.occurrence, uow.rows)]
        return sorted(kept), sorted(map(repr, ended)), sorted(map(repr, uow.events.moments("acme")))


class Story:
    """Random calls of two stores; each must have the same answer, and the same effect."""

    def __init__(self, sides, paths, seed):
        self.sides, self.paths, self.uids, self.halts = sides, paths, [], []
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.create_several()
        for _ in range(3):
            self.create()

    @property
    def now(self):
        return self.sides[0].clock.now

    def both(self, ask):
        """The answer of both stores."""
        answers = []
        for side in self.sides:
            self.paths.are_on = side.is_fast
            try:
                answers.append(ask(side))
            except Conflict as error:  # a schedule cannot go from one phase to another
                answers.append(str(error))
        assert answers[0] == answers[1]
        return answers[0]

    def some(self, held):
        """Some of what nodes hold, in any order."""
        return self.random.sample(sorted(held), self.random.randint(min(1, len(held)), len(held)))

    def declared(self):
        chosen = self.random.sample(OPTIONS, self.random.choice([0, 0, 1, 2]))
        options = {name: value for option in chosen for name, value in option.items()}
        if self.uids and self.random.random() < 0.2:
            options["depends_on"] = (Dependency(schedule_id=f"schedule-of-{self.random.choice(self.uids)}"),)
        return {
            "trigger": self.random.choice([*TRIGGERS, IntervalTrigger(60, start_at=from_micros(self.now + SECOND))]),
            "overlap_policy": self.random.choice(OVERLAPS),
            "misfire_policy": misfire.Skip(grace=10 * SECOND),
        } | options

    def create(self):
        declared = self.declared()
        if self.random.random() < 0.1:
            declared = {"trigger": EventTrigger(str(self.random.choice(LISTENERS)))}
        self.create_together([declared])

    def create_several(self):
        """Plain ones, which both sides number alike."""
        starts = [from_micros(self.now + self.random.choice([0, SECOND, MINUTE])) for _ in range(3)]
        triggers = [
            OnceTrigger(starts[0]),
            *(IntervalTrigger(every, start_at=at) for every, at in zip((1, 60), starts[1:], strict=True)),
        ]
        self.create_together([{"trigger": trigger} for trigger in triggers])

    def create_together(self, declared):
        first, plans = len(self.uids), []
        for number, options in enumerate(declared, first):
            schedule_id = self.random.choice([None, f"sch_uid-{number}"])
            schedule = factories.schedule(f"uid-{number}", created=self.now, schedule_id=schedule_id, **options)
            note = AuditEntry(at=self.now, caller="ada", operation="schedule/create") if number % 2 else None
            plans.append(replace(first_plan(schedule, lookahead=LOOKAHEAD), note=note))
        if all(self.both(lambda side: side.store.create(plans))):
            self.uids += [f"uid-{first + number}" for number in range(len(plans))]

    def add(self):
        uid, key = self.random.choice(self.uids), f"key-{self.random.random()}"
        origin = self.random.choice([ids.manual, ids.event, ids.backfill])(key)
        own = {"overrides": Overrides(timeout=3 * SECOND)} if self.random.random() < 0.1 else {}
        nominal = self.now - self.random.choice([0, 0, 0, 1, 5]) * SECOND

        def ask(side):
            schedule = side.store.find_uid(uid).schedule
            return side.store.add([factories.occurrence(schedule, origin, nominal=nominal, **own)])

        self.both(ask)

    def change(self):
        uid, now, declared = self.random.choice(self.uids), self.now, factories.declaration(**self.declared())
        change = self.random.choice(
            [
                *[lambda read: edits.plan_or_resume(read, now=now, lookahead=LOOKAHEAD)] * 8,
                *[lambda read: edits.edit(read, declared, now=now, lookahead=LOOKAHEAD)] * 3,
                *[lambda read: edits.resume(read, now=now, lookahead=LOOKAHEAD)] * 2,
                lambda read: edits.pause(read, now=now),
                lambda read: edits.delete(read, now=now),
            ]
        )

        def ask(side):
            read = side.store.snapshot(uid)
            return None if read is None else side.store.commit_plans([change(read)])

        self.both(ask)

    def claim(self):
        node, limit = self.random.choice("ab"), self.random.choice([1, 3, 100])

        def ask(side):
            now = side.clock.now
            claims = side.store.claim(node, [ROUTE], now=now, until=now, limit=limit, lease=LEASE)
            side.claims.update({one.occurrence.id: one for one in claims})
            return Counter(map(repr, claims))

        self.both(ask)

    def admit(self):
        chosen, now = self.some(self.sides[0].claims), self.now

        def ask(side):
            decisions, answers = [admit(side.claims.pop(one), now=now, lease=LEASE) for one in chosen], []
            while decisions and len(answers) < 4:
                answered = side.store.admit(decisions, now=now, lease=LEASE)
                answers.append(answered)
                both = list(zip(decisions, answered, strict=True))
                started = [(one.claim.schedule, done.occurrence) for one, done in both if self.has_started(one, done)]
                side.running.update({occurrence.id: (occurrence, schedule) for schedule, occurrence in started})
                decisions = [refused(one.claim, busy) for one, busy in both if isinstance(busy, Busy)]
            return answers

        self.both(ask)

    @staticmethod
    def has_started(decision, answer):
        return isinstance(decision, Start) and isinstance(answer, Admitted)

    def settle(self):
        now, running = self.now, self.some(self.sides[0].running)
        chosen = [(one, self.random.choice(OUTCOMES), self.random.choice([1, None])) for one in running]

        def end_of(side, occurrence_id, outcome, result):
            occurrence, schedule = side.running.pop(occurrence_id)
            if outcome is None:
                delivered = Accepted(started=now, accepted=now, deadline=now + 5 * SECOND)
            else:
                reason = Reason.CANCELLED if outcome is Outcome.CANCELLED else None
                delivered = Delivered(outcome=outcome, started=now, ended=now, result=result, reason=reason)
            return settle(occurrence, schedule, delivered, node="a")

        self.both(lambda side: side.store.settle([end_of(side, *one) for one in chosen]))

    def expire(self):
        def ask(side):
            rows = side.store.overdue(now=side.clock.now, limit=10)
            ends = [expire(row, side.store.find_uid(row.uid).schedule, now=side.clock.now) for row in rows]
            return Counter(map(repr, rows)), side.store.settle(ends)

        self.both(ask)

    def stop(self):
        for one in self.some(self.sides[0].running)[:1]:
            self.both(lambda side, one=one: side.store.request_stop(one))

    def release(self):
        for one in self.some(self.sides[0].claims)[:1]:
            self.both(
                lambda side, one=one: side.store.release(
                    [Lease(occurrence_id=one, fence=side.claims.pop(one).occurrence.fence)]
                )
            )

    def halt(self):
        if self.halts:
            halt_id = self.halts.pop()
            self.both(lambda side: side.store.lift_halt("acme", halt_id))
            return
        lineage = f"schedule-of-{self.random.choice(self.uids)}" if self.random.random() < 0.7 else None
        halt = Halt(halt_id=f"halt-{self.random.random()}", tenant="acme", at=NOW, by="ada", lineage=lineage)
        self.halts.append(halt.halt_id)
        self.both(lambda side: side.store.set_halt(halt, most=10))

    def advance(self):
        by = self.random.choice([1, SECOND, SECOND, 4 * SECOND, LEASE])
        for side in self.sides:
            side.clock.now += by


CALLS = (
    *[Story.add] * 6,
    *[Story.claim] * 6,
    *[Story.admit] * 6,
    *[Story.settle] * 6,
    *[Story.advance] * 4,
    *[Story.change] * 3,
    *[Story.create] * 2,
    Story.create_several,
    *[Story.expire] * 2,
    *(Story.stop, Story.release, Story.halt),
)


@pytest.fixture
def make_side(request, tmp_path):
    stores = []

    def make(kind, *, is_fast):
        clock = HandClock()
        if kind == "memory":
            store = MemoryStore(clock)
        elif kind == "sqlite":
            store = SqliteStore(str(tmp_path / f"{is_fast}.db"), clock)
        else:
            store = PostgresStore(f"{request.getfixturevalue('database').url}?schema=fast_{is_fast}".lower(), clock)
        stores.append(store)
        store.open()
        return Side(store, clock, is_fast=is_fast)

    yield make
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    ("kind", "seed"),
    [*product(["memory", "sqlite"], range(12)), *product(["postgres"], range(100, 103))],
)
def test_a_store_with_fast_paths_is_as_one_without(make_side, monkeypatch, kind, seed):
    paths = FastPaths(monkeypatch)
    fast, slow = make_side(kind, is_fast=True), make_side(kind, is_fast=False)
    story = Story([fast, slow], paths, seed)
    for step in range(STEPS):
        story.random.choice(CALLS)(story)
        if step % 10 == 0 or kind == "memory":
            assert fast.records() == slow.records()
    assert fast.records() == slow.records()
    assert paths.taken["start_if_plain"] + paths.taken["start_all"] > 0
    assert kind == "memory" or paths.taken["create_plain"] > 0
