"""A plain start changes a row and its schedule as the rules do that it skips."""

from dataclasses import fields, replace

import pytest

from noonmark.core import ids
from noonmark.core.admission import Claim, Start, admit
from noonmark.core.halt import Halt
from noonmark.core.ids import TRIGGER
from noonmark.core.instants import SECOND
from noonmark.core.occurrence import Overrides
from noonmark.core.planner import first_plan
from noonmark.core.policies import overlap
from noonmark.core.policies.expected_rate import ExpectedRate
from noonmark.core.policies.limits import Concurrency, KeyLimit
from noonmark.core.policies.runaway import RunawayPolicy
from noonmark.core.reasons import Reason
from noonmark.core.targets import BundleTarget, TaskTarget
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import Admitted
from noonmark.stores.memory import MemoryStore
from noonmark.stores.rules.admission import after_start, start_if_free
from noonmark.stores.rules.plain_starts import start_if_plain
from noonmark.stores.rules.system_events import publish
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD
from noonmark.testing.factories import MINUTE, NOW

ORIGINS = {
    "trigger": TRIGGER,
    "manual": ids.manual("key"),
    "event": ids.event("evt"),
    "backfill": ids.backfill("back"),
}
DECLARED = {
    "plain": {},
    "overlapping": {"overlap_policy": overlap.Allow()},
    "queue": {"overlap_policy": overlap.Queue(queue_limit=2)},
    "timeout": {"timeout": SECOND},
}
OTHERS = {
    "concurrency": {"concurrency": Concurrency(key="key", limit=1)},
    "max_runs": {"max_runs": 3},
    "expected": {"expected": SECOND},
    "rate": {"expected_rate": ExpectedRate(per=MINUTE, at_most=1)},
    "runaway": {"runaway": RunawayPolicy()},
    "bundle": {"target": BundleTarget(bundle_id="bundle")},
    "agent": {"target": TaskTarget(query="work")},
}
"""Declarations of which no start is plain."""
NEEDS = [
    {"is_in_line": True},
    {"keys": (KeyLimit("key", 1, Reason.INFLIGHT_LIMIT),)},
    {"reservation": object()},
]
"""What no plain start needs."""
CHANGED = {
    "new": ({}, True),
    "punctual": ({"late": 5}, True),
    "with a deadline": ({"deadline": NOW}, False),
    "begun": ({"attempt": 1}, False),
    "lost": ({"losses": 1}, False),
    "to be retried": ({"reason": Reason.RETRY_SCHEDULED}, False),
    "waited": ({"waiting_for": Reason.QUEUED}, False),
    "asked to stop": ({"stop": Reason.CANCELLED}, False),
    "with overrides": ({"own": Overrides(timeout=SECOND).to_document()}, False),
    "with a place": ({"place": 1}, False),
}
"""Changes of a row, and whether its start is plain then."""


OWN = object()
"""The number of the row itself."""


class Started:
    """A store with one occurrence that is claimed; `way` starts it."""

    def __init__(
        self, way, origin=TRIGGER, row=None, state=None, *, at=0, halted=False, listened=False, needs=None, **declared
    ):
        clock = HandClock()
        self.store = MemoryStore(clock)
        self.uow = self.store._uow
        schedule = factories.schedule(**declared)
        others = []
        if listened:
            trigger = EventTrigger("occurrence.late")
            others = [factories.schedule("listener", trigger=trigger)]
        self.store.create([first_plan(one, lookahead=LOOKAHEAD) for one in (schedule, *others)])
        occurrence = factories.occurrence(schedule, origin)
        assert self.store.add([occurrence]) == [True]
        if halted:
            self.store.set_halt(Halt(halt_id="halt", tenant="acme", at=NOW, by="ada"), most=10)
        [claim] = self.store.claim("node", [occurrence.route], now=NOW, until=NOW, limit=1, lease=LEASE)
        self.row = self.uow.rows[claim.occurrence.id]
        self.state = self.uow.state_of(self.row)
        for record, changes in ((self.row, row or {}), (self.state, state or {})):
            for name, value in changes.items():
                setattr(record, name, self.row.key if value is OWN else value)
        claim = Claim(occurrence=self.uow.occurrence(self.row, schedule), schedule=schedule, claimed=NOW)
        decided = admit(claim, now=NOW, lease=LEASE)
        start = decided if isinstance(decided, Start) else Start(claim=claim, takes_slot=True)
        self.start = replace(start, **needs or {})
        self.before = self.records()
        with self.uow.fixed_subscriptions():
            self.answer = way(self, now=NOW + at, until=NOW + at + LEASE)
        self.uow.write()
        publish(self.uow)

    def records(self):
        """The row and the state, the events, and when something is due."""
        kept = [{one.name: getattr(record, one.name) for one in fields(record)} for record in (self.row, self.state)]
        events = list(self.uow.events.moments("acme"))
        return kept, events, self.store.next_time([self.row.route]), self.store.find_uid(self.state.uid)


def plainly(made, **times):
    """The occurrence, if its start is plain."""
    is_plain = start_if_plain(made.uow, made.row, made.state, made.start, **times)
    return after_start(made.start, times["now"]) if is_plain else None


def by_rules(made, **times):
    """The occurrence, or what is in the way."""
    answer = start_if_free(made.uow, made.row, made.start, **times)
    return answer.occurrence if isinstance(answer, Admitted) else answer


def check(*args, is_plain, **kwargs):
    """The start is plain or not, as it should be; one that is plain changes the same as one by the rules."""
    plain = Started(plainly, *args, **kwargs)
    assert (plain.answer is not None) is is_plain
    if not is_plain:
        assert plain.records() == plain.before
        return
    ruled = Started(by_rules, *args, **kwargs)
    assert plain.answer == ruled.answer
    assert plain.records() == ruled.records()
    assert plain.records() != plain.before


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("changed", CHANGED)
def test_a_plain_start_is_as_by_the_rules(origin, declared, changed):
    row, is_plain = CHANGED[changed]
    check(ORIGINS[origin], row, is_plain=is_plain, **DECLARED[declared])


@pytest.mark.parametrize("declared", OTHERS)
def test_a_start_that_takes_or_counts_more_is_not_plain(declared):
    check(is_plain=False, **OTHERS[declared])


@pytest.mark.parametrize("needs", NEEDS)
def test_a_start_that_needs_more_is_not_plain(needs):
    check(is_plain=False, needs=needs)


def test_a_start_needs_a_free_slot():
    check(state={"holder": 77}, is_plain=False)
    check(state={"holder": OWN}, is_plain=True)
    check(state={"holder": 77}, is_plain=True, overlap_policy=overlap.Allow())


def test_halts_are_left_to_the_rules():
    check(halted=True, is_plain=False)


def test_a_start_that_is_committed_ahead_starts_at_its_due_time():
    check(at=-SECOND, is_plain=True)


@pytest.mark.parametrize(
    ("at", "listened", "is_plain"), [(SECOND, True, True), (SECOND + 1, True, False), (SECOND + 1, False, True)]
)
def test_a_late_start_that_may_be_heard_is_left_to_the_rules(at, listened, is_plain):
    check(at=at, listened=listened, is_plain=is_plain)
