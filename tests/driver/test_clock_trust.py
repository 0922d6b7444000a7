"""A node whose store's time leaps ahead: what it does not do meanwhile, and what it puts right afterwards."""

from dataclasses import replace

import pytest

from noonmark.core.event import Event
from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.limits import Horizon
from noonmark.core.reasons import Reason
from noonmark.core.schedule import AuditEntry
from noonmark.core.triggers import EventTrigger, OnceTrigger
from noonmark.driver.steps.reports import (
    AdmitReport,
    ClaimReport,
    LeadReport,
    MatchReport,
    PlanReport,
    PruneReport,
    ReapReport,
    RewindReport,
)
from noonmark.operations import schedule_edits
from noonmark.ports.records import Heartbeat
from noonmark.stores.memory import MemoryStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.factories import MINUTE, NOW
from noonmark.testing.manual import run_inline
from tests.driver.rig import Rig

LEASE = 15 * SECOND
HOUR = 3_600 * SECOND
YEARS = 10 * 365 * DAY_SECONDS * SECOND


class Leaping(Rig):
    """The store's time may be ahead of the time that passes."""

    def __init__(self, other=None, *, make_store=MemoryStore, **options):
        self.leap = [0] if other is None else other.leap
        super().__init__(other, make_store=lambda clock: make_store(lambda: clock() + self.leap[0]), **options)

    def leap_by(self, micros):
        self.leap[0] = micros

    def kept(self, of):
        return self.store.find(of.owner.tenant, of.schedule_id)

    def notes(self):
        return len(self.store.audit_entries("acme", 9))


@pytest.fixture
def rig():
    """It leads, and has work that is due every minute, some of it claimed, and some that is over."""
    rig = Leaping(keep_for=DAY_SECONDS * SECOND)
    rig.store.add_audit_entries("acme", [AuditEntry(at=NOW, caller="ada", operation="pause")])
    rig.lead_once()
    rig.reap_once()
    return rig


def test_nothing_is_decided_by_a_time_that_leapt_ahead(rig):
    schedule = rig.create()
    once = rig.create("uid-2", trigger=OnceTrigger(from_micros(NOW + DAY_SECONDS * SECOND)))
    listener = rig.create("uid-3", trigger=EventTrigger("paid"))
    rig.advance(MINUTE)
    assert rig.claim_once() == ClaimReport(claimed=1)
    rig.leap_by(YEARS)
    rig.store.emit("acme", [Event(event_id="evt", event_type="paid", source="test", emitted=rig.world.now)])
    rig.renew_once()
    assert rig.node.trust.doubt.ahead == YEARS
    assert rig.node.now == NOW + MINUTE, "it goes by the time that it last believed"
    assert rig.match_once() == MatchReport()
    assert rig.plan_once() == PlanReport()
    assert rig.claim_once() == ClaimReport()
    assert rig.admit_once() == AdmitReport()
    assert rig.lead_once() == LeadReport()
    assert rig.reap_once() == ReapReport()
    assert rig.prune_once() == PruneReport()
    assert rig.rewind_once() == RewindReport()
    assert rig.notes() == 1
    rig.leap_by(0)
    rig.renew_once()
    assert not rig.node.is_in_doubt
    assert rig.admit_once().started == 1
    rig.match_once()
    assert [row.phase for row in rig.rows(listener)] == [Phase.PENDING]
    assert rig.node.now - NOW == MINUTE
    assert [row.phase for row in rig.rows(schedule)] == [Phase.DISPATCHING]
    assert rig.kept(once).schedule.phase is SchedulePhase.ACTIVE


def test_a_lease_that_ends_only_by_a_false_time_is_not_taken_and_its_node_not_lost(rig):
    other = Leaping(rig, node="node-b")
    schedule = rig.create()
    rig.advance(MINUTE)
    other.reap_once()
    other.claim_once()
    other.admit_once()
    rig.leap_by(YEARS)
    assert rig.claim_once() == ClaimReport()
    assert rig.lead_once() == LeadReport()
    assert rig.claim_once() == ClaimReport()
    rig.leap_by(0)
    other.renew_once()
    assert rig.lead_once().lost == 0
    [row] = rig.rows(schedule)
    assert (row.phase, row.node, row.losses) == (Phase.DISPATCHING, "node-b", 0)


def test_a_retry_is_due_by_the_time_that_is_believed(rig):
    schedule = rig.create()
    rig.advance(MINUTE)
    rig.claim_once()
    rig.admit_once()
    rig.leap_by(YEARS)
    rig.renew_once()
    [given] = rig.target.given
    rig.target.end(given)
    rig.settle_once()
    [run] = rig.store.runs(schedule.uid)
    assert (run.started, run.ended) == (NOW + MINUTE, NOW + MINUTE)


def test_after_a_lease_the_time_is_taken_for_right_but_nothing_is_pruned_for_an_hour(rig):
    schedule = rig.create()
    rig.leap_by(YEARS)
    rig.renew_once()
    rig.advance(LEASE - 1)
    rig.renew_once()
    assert rig.node.is_in_doubt
    rig.advance(1)
    rig.renew_once()
    assert not rig.node.is_in_doubt
    assert rig.plan_once().planned == 1
    assert rig.rows(schedule)[-1].phase is Phase.MISFIRED
    rig.lead_once()
    assert rig.prune_once() == PruneReport()
    rig.advance(HOUR)
    rig.lead_once()
    assert rig.prune_once() == PruneReport(notes=1)


def test_no_one_is_told_to_be_lost_before_the_others_can_have_believed_the_time_too(rig):
    other = Leaping(rig, node="node-b")
    other.reap_once()
    rig.leap_by(2 * HOUR)
    rig.renew_once()
    rig.advance(LEASE)
    assert rig.lead_once().lost == 0
    assert rig.reap_once().orphans == 0
    rig.advance(2 * LEASE)
    assert rig.lead_once().lost == 1, "it has not said a word"


def test_an_operator_may_confirm_it_at_once(rig):
    rig.leap_by(YEARS)
    rig.renew_once()
    run_inline(rig.node.confirm_time())
    assert rig.node.now == NOW + YEARS
    rig.lead_once()
    assert rig.prune_once() == PruneReport(notes=1)


@pytest.fixture(params=["memory", "sqlite"])
def stored(request, tmp_path):
    """A node on each kind of store."""
    kinds = {"memory": MemoryStore, "sqlite": lambda clock: SqliteStore(tmp_path / "noonmark.db", clock)}
    rig = Leaping(make_store=kinds[request.param])
    rig.store.store.open()
    yield rig
    rig.store.store.close()


def test_an_edit_after_a_short_leap_starts_nothing_that_is_counted_as_missed(stored):
    """A leap of minutes is believed at once, and is not rewound: what it has closed stays closed."""
    rig = stored
    schedule = rig.create()
    rig.advance(MINUTE - SECOND)
    assert rig.claim_once() == ClaimReport(claimed=1)
    rig.leap_by(10 * MINUTE)
    renamed = replace(schedule.declaration, name="Edited by a clock that is ahead")
    schedule_edits.edit(rig.store, schedule.uid, renamed, lookahead=rig.timing.lookahead)
    rig.leap_by(0)
    extended = replace(renamed, horizon=Horizon(occurrences=2))
    schedule_edits.edit(rig.store, schedule.uid, extended, lookahead=rig.timing.lookahead)
    for _ in range(13):
        rig.advance(MINUTE)
        rig.renew_once()
        rig.plan_once()
        rig.claim_once()
        rig.admit_once()
        for given in [one for one in rig.target.given if not one.is_closed]:
            rig.target.end(given)
        rig.settle_once()
    past = [row for row in rig.rows(schedule) if row.nominal <= rig.world.now]
    [gap] = [row for row in past if row.missed_count]
    started = {(row.nominal - NOW) // MINUTE for row in past if row.attempt}
    missed = set(range((gap.missed_first - NOW) // MINUTE, (gap.missed_last - NOW) // MINUTE + 1))
    assert gap.missed_count == len(missed)
    assert not started & missed
    assert started | missed == set(range(1, 14))


class TestStarting:
    def test_a_node_that_starts_while_the_clock_is_wrong_does_nothing(self, rig):
        schedule = rig.create()
        rig.leap_by(YEARS)
        other = Leaping(rig, node="node-b", keep_for=DAY_SECONDS * SECOND)
        assert other.lead_once() == LeadReport()
        assert other.plan_once() == PlanReport()
        other.reap_once()
        assert rig.store.newest_time() == NOW, "it leaves no time behind that others would go by"
        assert [row.phase for row in rig.rows(schedule)] == [Phase.PENDING]
        rig.leap_by(0)
        other.advance(MINUTE)
        assert other.claim_once().claimed == 1

    def test_a_false_time_that_was_taken_for_right_is_not_borne_out_by_what_was_written_since(self, rig):
        """Whoever does not see why nothing runs starts the service anew."""
        rig.leap_by(YEARS)
        for _ in range(3):
            rig.advance(LEASE)
            rig.renew_once()
            rig.lead_once()
            rig.reap_once()
        assert rig.store.newest_time() >= NOW + YEARS
        other = Leaping(rig, node="node-b", keep_for=DAY_SECONDS * SECOND)
        rig.leave()
        other.lead_once()
        assert other.lead_once().leads
        assert other.prune_once() == PruneReport()
        assert other.notes() == 1

    def test_a_service_that_was_down_for_a_year_goes_on_after_a_lease_and_prunes_after_an_hour(self, rig):
        """Time has really passed; the machine of the new node was booted since."""
        rig.advance(YEARS)
        other = Leaping(rig, node="node-b", keep_for=DAY_SECONDS * SECOND)
        assert other.lead_once() == LeadReport()
        other.advance(LEASE)
        assert other.lead_once().leads
        assert other.prune_once() == PruneReport()
        other.advance(HOUR)
        other.lead_once()
        assert other.prune_once() == PruneReport(notes=1)

    def test_one_that_was_down_overnight_goes_on_at_once(self, rig):
        schedule = rig.create()
        rig.advance(8 * HOUR)
        other = Leaping(rig, node="node-b")
        assert other.plan_once().planned == 1
        assert rig.rows(schedule)[-1].phase is Phase.MISFIRED


class TestRewinding:
    def believed(self, rig):
        """Plan by a time that was ahead and believed, and then fell back."""
        rig.leap_by(YEARS)
        run_inline(rig.node.confirm_time())
        rig.plan_once()
        rig.reap_once()
        rig.leap_by(0)

    def test_what_was_planned_ahead_is_planned_anew_by_the_node_that_saw_it(self, rig, caplog):
        schedule = rig.create()
        self.believed(rig)
        rig.advance(2 * MINUTE)
        rig.renew_once()
        assert rig.node.must_rewind
        rig.reap_once()
        assert rig.rewind_once() == RewindReport(), "others may still write by that time"
        rig.advance(LEASE)
        rig.renew_once()
        report = rig.rewind_once()
        assert report.rewound == 1
        assert not rig.node.must_rewind
        assert "planning it again from" in caplog.text
        pending, gap = rig.rows(schedule)
        assert (pending.phase, pending.nominal) == (Phase.PENDING, NOW + 3 * MINUTE)
        assert (gap.phase, gap.reason, gap.missed_count) == (Phase.MISFIRED, Reason.LATE, 2)
        assert rig.kept(schedule).counters.missed == 2
        assert rig.rewind_once() == RewindReport()

    def test_or_by_any_other_that_finds_what_the_store_remembers(self, rig):
        rig.create()
        self.believed(rig)
        other = Leaping(rig, node="node-b")
        other.reap_once()
        assert other.rewind_once() == RewindReport()
        other.advance(LEASE)
        assert other.rewind_once().rewound == 1
        assert rig.store.newest_time() <= rig.world.now

    def test_a_node_whose_own_clock_is_behind_does_not_take_the_others_for_ahead(self, rig):
        schedule = rig.create()
        self.believed(rig)
        other = Leaping(rig, node="node-b")
        for _ in range(4):
            assert other.rewind_once() == RewindReport()
            other.advance(LEASE)
            rig.store.beat(Heartbeat(node="right", lease=LEASE), now=rig.world.now + YEARS)
        assert rig.kept(schedule).counters.missed > 2

    def test_more_than_fit_in_a_page_are_all_looked_at(self):
        rig = Leaping(batch=2)
        for number in range(5):
            rig.create(f"uid-{number}")
        rig.lead_once()
        rig.leap_by(YEARS)
        run_inline(rig.node.confirm_time())
        while rig.plan_once().more:
            pass
        rig.leap_by(0)
        rig.renew_once()
        rig.rewind_once()
        rig.advance(LEASE)
        rig.renew_once()
        assert rig.rewind_once().rewound == 5
