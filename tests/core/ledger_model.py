"""A ledger in a few dicts, for the tests of the rules: it writes down what it is told, and decides nothing."""

from dataclasses import dataclass, field, replace
from itertools import takewhile

from noonmark.core.admission import MAX_LOSSES, Busy, Claim, End, Place, Replan, Start, Wait, admit, refused
from noonmark.core.ids import TRIGGER
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import ENDINGS, FINAL, LIVE, Phase, SchedulePhase
from noonmark.core.planner import Snapshot, first_plan, is_used_up, projection
from noonmark.core.policies.jitter import due_at
from noonmark.core.reasons import Reason
from noonmark.core.settlement import settle
from noonmark.core.triggers import EventTrigger

LEASE = 15 * SECOND
LOOKAHEAD = 2 * SECOND


@dataclass
class InForce:
    """A trigger, and the stretch of time (after, until] in which its schedule named fires by it."""

    trigger: object
    after: int
    until: int | None = None

    def count(self, after, until):
        if self.trigger is None or isinstance(self.trigger, EventTrigger):
            return 0
        until = until if self.until is None else min(until, self.until)
        return self.trigger.count_micros(max(after, self.after), until)

    def has_times_of(self, other):
        """Whether both name the same times; jitter moves only when they are due."""
        return _without_jitter(self.trigger) == _without_jitter(other.trigger)


@dataclass
class Ledger:
    """One schedule with its rows; `ready` and `leased` are the claimable times, `claims` and `runs` the node's own."""

    schedule: object
    now: int
    watermark: int = 0
    plan_at: int | None = None
    exhausted: bool = False
    rows: dict = field(default_factory=dict)
    ready: dict = field(default_factory=dict)
    leased: dict = field(default_factory=dict)
    claims: dict = field(default_factory=dict)
    runs: dict = field(default_factory=dict)
    started: int = 0
    in_force: list = field(default_factory=list)
    repeats: int = 0
    jumped: bool = False
    cancelled_ahead: set = field(default_factory=set)

    @classmethod
    def create(cls, schedule):
        ledger = cls(schedule=schedule, now=schedule.created)
        plan = first_plan(schedule, lookahead=LOOKAHEAD)
        ledger.watermark = plan.snapshot.watermark
        ledger.in_force.append(InForce(schedule.declaration.trigger, plan.snapshot.watermark))
        ledger.commit(plan)
        return ledger

    def snapshot(self):
        projections = [one for row in self.rows.values() if (one := projection(row))]
        known = {one.id for one in projections}
        others = [row for row in self.rows.values() if row.id not in known and row.phase is not Phase.SUPERSEDED]
        return Snapshot(
            schedule=self.schedule,
            watermark=self.watermark,
            projections=tuple(sorted(projections, key=lambda one: one.nominal)),
            admitted=max((_last(row) for row in others), default=None),
            runs=self.started,
            beyond=tuple(sorted((row.nominal, _last(row)) for row in others if _last(row) > self.watermark)),
            exhausted=self.exhausted,
        )

    @property
    def is_used_up(self):
        return is_used_up(self.schedule, self.started)

    def commit(self, plan):
        ids = [row.id for row in (*plan.planned, *plan.closed)]
        ids += [*plan.removed, *plan.superseded, *plan.cancelled]
        assert len(ids) == len(set(ids)), "a plan says two things of one occurrence"
        for row in plan.closed:
            assert self._may_take(row.id), "a closed row would overwrite an outcome"
            assert row.reason in ENDINGS[row.phase]
            self._write(row)
        for row in plan.planned:
            if self._may_take(row.id):
                self._write(row)
                self.ready[row.id] = None if row.waiting_for else row.due
        for one in plan.removed:
            assert projection(self.rows[one]), "only projections may vanish"
            self._let_go(one)
            del self.rows[one]
        for one in plan.superseded:
            self._end(one, Phase.SUPERSEDED, Reason.EDITED)
        for one in plan.cancelled:
            self._end(one, Phase.CANCELLED, Reason.DELETED)
        self.watermark, self.plan_at, self.exhausted = plan.watermark, plan.plan_at, plan.exhausted
        self.schedule = plan.schedule or self.schedule
        if plan.exhausted and self.is_used_up:
            self.stop_naming(plan.watermark)
        self._wake()

    def stop_naming(self, until):
        """The rule in force names nothing after this."""
        rule = self.in_force[-1]
        rule.until = until if rule.until is None else min(rule.until, until)

    def has_named(self, time):
        """Whether the rule before the one in force has named a time, in whichever of its revisions."""
        *_, last, _ = self.in_force
        same = list(takewhile(lambda rule: rule.has_times_of(last), reversed(self.in_force[:-1])))
        return bool(InForce(last.trigger, same[-1].after, last.until).count(time - 1, time))

    def claim(self, rows=None):
        for row in sorted(self.rows.values(), key=lambda row: (row.due, row.nominal)):
            found, ready, leased = row.phase, self.ready.get(row.id), self.leased.get(row.id)
            if found is Phase.PENDING and (ready is None or ready > self.now + LOOKAHEAD or self._is_held(row)):
                continue
            if found in (Phase.CLAIMED, Phase.DISPATCHING) and leased > self.now:
                continue
            if found not in (Phase.PENDING, Phase.CLAIMED, Phase.DISPATCHING):
                continue
            lost = int(found is Phase.DISPATCHING)
            taken = replace(
                row, phase=Phase.CLAIMED, fence=row.fence + 1, losses=row.losses + lost, attempt=row.attempt - lost
            )
            self.rows[row.id] = taken
            self.leased[row.id] = self.now + LEASE
            self.runs.pop(row.id, None)
            self.claims[row.id] = Claim(occurrence=taken, schedule=self.schedule, claimed=self.now, found_in=found)

    def admit(self):
        for claim in list(self.claims.values()):
            if max(claim.occurrence.due, self.ready.get(claim.occurrence.id) or 0) > self.now:
                continue
            del self.claims[claim.occurrence.id]
            row = self.rows.get(claim.occurrence.id)
            if row is None or (row.fence, row.phase) != (claim.occurrence.fence, Phase.CLAIMED):
                continue  # the lease was lost
            decision = admit(claim, now=self.now, lease=LEASE)
            while isinstance(decision, Start) and (busy := self._busy(decision)):
                decision = refused(claim, busy)
            self._carry_out(decision)
            self._wake()

    def _busy(self, start):
        others = [row for row in self.rows.values() if row.id != start.claim.occurrence.id]
        holder = next((row for row in others if row.holds_slot), None)
        waiting = sum(self.ready.get(row.id) is None and row.waiting_for is Reason.QUEUED for row in others)
        if start.takes_slot and holder is not None:
            return Busy(place=Place.SLOT, waiting=waiting)
        running = sum(row.phase is Phase.DISPATCHING for row in others)
        if start.concurrency is not None and running >= start.concurrency.limit:
            return Busy(place=Place.CONCURRENCY)
        if start.max_runs is not None and self.started >= start.max_runs:
            return Busy(place=Place.MAX_RUNS)
        return None

    def _carry_out(self, decision):
        row = self.rows[decision.claim.occurrence.id]
        match decision:
            case Start():
                assert self.now >= row.due, "nothing starts before its due time"
                assert row.losses <= MAX_LOSSES
                self.started += not row.has_begun
                self.rows[row.id] = replace(
                    row,
                    phase=Phase.DISPATCHING,
                    attempt=row.attempt + 1,
                    holds_slot=row.holds_slot or decision.takes_slot,
                    waiting_for=None,
                )
                self.leased[row.id] = self.now + LEASE
                self.runs[row.id] = self.rows[row.id]
            case End():
                assert decision.reason in ENDINGS[decision.phase]
                self._end(row.id, decision.phase, decision.reason)
            case Wait():
                for other in list(self.rows.values()) if decision.replaces else []:
                    waits = other.waiting_for is Reason.QUEUED and other.phase is Phase.PENDING
                    if waits and other.caught_up is None:
                        self._end(other.id, Phase.SKIPPED, Reason.REPLACED)
                self.rows[row.id] = replace(row, phase=Phase.PENDING, waiting_for=decision.waiting_for)
                self.ready[row.id] = None
            case Replan():
                self.rows[row.id] = replace(row, phase=Phase.PENDING)
                self.plan_at = self.now

    def finish(self, delivered):
        """The node's oldest run ends."""
        if not self.runs:
            return
        run = self.runs.pop(next(iter(self.runs)))
        row = self.rows[run.id]
        if (row.fence, row.phase) != (run.fence, Phase.DISPATCHING):
            return  # the lease was lost
        settlement = settle(row, self.schedule, delivered, node="n1")
        self.rows[row.id] = replace(row, attempt=settlement.attempt)
        if settlement.phase is Phase.PENDING:
            self.rows[row.id] = replace(
                self.rows[row.id], phase=Phase.PENDING, due=settlement.retry_at, reason=settlement.reason
            )
            self.ready[row.id] = settlement.retry_at
        else:
            assert settlement.reason in ENDINGS[settlement.phase]
            self._end(row.id, settlement.phase, settlement.reason)
        self._wake()

    def cancel(self, index):
        """Somebody cancels one that has not started."""
        waiting = [row.id for row in self.rows.values() if row.phase in (Phase.PENDING, Phase.CLAIMED)]
        if waiting:
            one = waiting[index % len(waiting)]
            if self.rows[one].nominal > self.now:
                self.cancelled_ahead.add(one)
            self._end(one, Phase.CANCELLED, Reason.CANCELLED)
            self._wake()

    def renew(self):
        for one in (*self.claims, *self.runs):
            self.leased[one] = self.now + LEASE

    def crash(self):
        self.claims.clear()
        self.runs.clear()

    def outcomes(self):
        """How many fires each kind of row stands for; superseded ones stand for none."""
        return sum(max(1, row.missed_count) for row in self._accounted())

    def named(self, after=None, until=None):
        until = self.watermark if until is None else until
        return sum(rule.count(rule.after if after is None else after, until) for rule in self.in_force)

    def check(self):
        if not any(row.nominal <= self.watermark < _last(row) for row in self.rows.values()):
            assert self.outcomes() == self.named() + self.repeats, "a fire was lost, or counted twice"
        assert sum(row.holds_slot for row in self.rows.values()) <= 1, "two hold the slot"
        for row in self.rows.values():
            waits = row.phase is Phase.PENDING and self.ready[row.id] is None
            assert not waits or row.waiting_for is not None, "a live row without a time and without a reason"
            if row.missed_count and not self.repeats and _last(row) <= self.watermark:
                assert row.missed_count == self._alone_in(row), "a gap counts what has a row of its own"

    def check_planned(self):
        """Right after a plan: nothing that is near lies beyond the watermark."""
        trigger = self.schedule.declaration.trigger
        if self.schedule.phase is not SchedulePhase.ACTIVE or isinstance(trigger, EventTrigger):
            return
        upcoming = trigger.next_micros(self.watermark)
        if upcoming is None or self.is_used_up:
            assert self.plan_at is None
            assert self.exhausted
            ahead = [row for row in self.rows.values() if projection(row) and row.nominal > self.now]
            assert not (self.is_used_up and ahead), "max_runs is used up, and something is to come"
        else:
            assert due_at(trigger, self.schedule.uid, upcoming) > self.now + LOOKAHEAD or self.plan_at == self.now
            assert self.plan_at is not None
            assert self.plan_at <= due_at(trigger, self.schedule.uid, upcoming)

    def _alone_in(self, gap):
        """How many fires in the range of a gap row no other row accounts for."""
        first, last = gap.missed_first, gap.missed_last
        assert gap.nominal == first
        inside = [row for row in self._accounted() if row.id != gap.id and first <= row.nominal and _last(row) <= last]
        return self.named(first - 1, last) - sum(max(1, row.missed_count) for row in inside)

    def _accounted(self):
        ended = self.schedule.deleted
        for row in self.rows.values():
            # What was planned beyond the end of a deleted schedule is told as cancelled, but no rule named it.
            ahead = ended is not None and row.nominal > ended and row.reason is Reason.DELETED
            # So is what somebody cancelled ahead, when an edit then moved the times.
            ahead = ahead or (row.id in self.cancelled_ahead and not self.named(row.nominal - 1, row.nominal))
            if row.phase is not Phase.SUPERSEDED and row.nominal <= self.watermark and not ahead:
                yield row

    def _is_held(self, row):
        return row.origin == TRIGGER and self.schedule.phase is SchedulePhase.PAUSED

    def _may_take(self, one):
        row = self.rows.get(one)
        return row is None or row.phase is Phase.SUPERSEDED or projection(row) is not None

    def _write(self, row):
        known = self.rows.get(row.id)
        self._let_go(row.id)
        self.rows[row.id] = row if known is None else replace(row, fence=known.fence + 1)

    def _end(self, one, phase, reason):
        assert self.rows[one].phase in LIVE
        assert phase in FINAL
        self._let_go(one)
        row = self.rows[one]
        self.rows[one] = replace(
            row, phase=phase, reason=reason, fence=row.fence + 1, holds_slot=False, waiting_for=None
        )

    def _let_go(self, one):
        for times in (self.ready, self.leased, self.claims, self.runs):
            times.pop(one, None)

    def _wake(self):
        """What is free goes to the first that waits for it."""
        slot = any(row.holds_slot for row in self.rows.values())
        for reason, taken in ((Reason.QUEUED, slot), (Reason.CONCURRENCY_LIMIT, bool(self.runs))):
            waiting = sorted(
                (row for row in self.rows.values() if row.waiting_for is reason), key=lambda row: row.nominal
            )
            if not taken and waiting and all(self.ready.get(row.id) is None for row in waiting):
                self.ready[waiting[0].id] = self.now
        nothing_live = not any(row.phase in LIVE for row in self.rows.values())
        if self.exhausted and nothing_live and self.schedule.phase is SchedulePhase.ACTIVE:
            self.schedule = replace(self.schedule, phase=SchedulePhase.COMPLETED)


def _without_jitter(trigger):
    return None if trigger is None else trigger.to_document() | {"jitter_seconds": None}


def _last(row):
    return row.missed_last or row.nominal
