"""Accounts: for each schedule, how many fires the rules in force have named, and what became of them."""

from dataclasses import dataclass, field

from noonmark.core.ids import TRIGGER, occurrence_id
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import in_force_after, is_used_up
from noonmark.core.triggers import EventTrigger, IntervalTrigger, OnceTrigger
from tests.simulation.trace import Violation


@dataclass
class Rule:
    """A trigger, and the stretch of time (after, until] in which its schedule named fires by it."""

    trigger: object
    after: int
    until: int | None = None

    def count(self, after, until):
        if self.trigger is None or isinstance(self.trigger, EventTrigger):
            return 0
        after, until = max(after, self.after), until if self.until is None else min(until, self.until)
        return self.trigger.count_micros(after, until)

    def stop(self, until):
        self.until = until if self.until is None else min(self.until, until)


@dataclass
class Account:
    """One schedule: the rules that were in force, one after another."""

    uid: str
    rules: list = field(default_factory=list)
    since: int = 0
    """When the trigger that is in force was declared."""
    ahead: set = field(default_factory=set)
    """Times that had an outcome before they came, and that the rule in force then does not name."""
    withdrawn: set = field(default_factory=set)
    """Occurrences that were planned beyond the end of a deleted schedule; no rule named them."""
    is_blurred: bool = False
    """A gap reached beyond an edit, because the clock went back: some of it was named by nobody."""

    def committed(self, plan, entry, known, runs):
        """A plan was written; `known` are the rows as they were before, `runs` how often it has run."""
        before, after = plan.snapshot.schedule, plan.schedule
        if plan.rewound is not None:
            self._rewound(plan, entry, known)
        if plan.rewound is not None or not plan.snapshot.exhausted:
            # Two may plan at once: one finds `max_runs` used up, the other names some more times all the same.
            self.rules[-1].until = None
            self.ahead = {time for time in self.ahead if not self.rules[-1].count(time - 1, time)}
        if after is not None and after.revision != before.revision:
            self._put_in_force(plan, entry, known)
        elif after is not None and after.phase is SchedulePhase.DELETED:
            self.withdrawn.update(plan.cancelled)
            self._withdraw(entry, after.updated, None)
        elif after is not None and after.phase is SchedulePhase.PAUSED:
            self._go_on(entry, after.updated)
        if plan.exhausted and is_used_up(entry.schedule, runs):
            self._stop(entry)

    def paused(self, entry, runs):
        """It was paused by its failures, in the same step as the last of them."""
        self._go_on(entry, entry.schedule.updated)
        if is_used_up(entry.schedule, runs):
            self._stop(entry)

    def check(self, entry, known):
        """Every fire up to the watermark has exactly one outcome, or one to come."""
        if self.is_blurred:
            return
        rows = [one for one in known.values() if self._counts(one) and one.nominal <= entry.state.watermark]
        outcomes = sum(max(1, one.missed_count) for one in rows)
        named = sum(rule.count(rule.after, entry.state.watermark) for rule in self.rules)
        named += sum(time <= entry.state.watermark for time in self.ahead)
        if outcomes != named:
            what = "lost" if outcomes < named else "counted twice"
            raise Violation("nominal fires", f"of {self.uid}, {named} were named, {outcomes} have a row: some {what}")

    def check_gaps(self, known):
        """A gap counts no more than was named within it, and no fire that has a row of its own."""
        if self.is_blurred or self.ahead:
            return
        rows = [one for one in known.values() if self._counts(one)]
        for gap in (one for one in rows if one.missed_count):
            alone = sum(not one.missed_count and gap.nominal <= one.nominal <= gap.missed_last for one in rows)
            named = sum(rule.count(gap.nominal - 1, gap.missed_last) for rule in self.rules)
            if gap.missed_first != gap.nominal or gap.missed_count + alone > named:
                what = f"{gap.missed_count} missed and {alone} others, but {named} were named"
                raise Violation("gap rows", f"{gap.id} of {self.uid}: {what}")

    def _rewound(self, plan, entry, known):
        """A gap that is forgotten, or a rule that begins later than the time it is, blurs how much was named."""
        is_forgotten = any(
            one.missed_count and one.missed_last > plan.watermark and one.id not in entry.ended
            for one in known.values()
        )
        self.is_blurred = self.is_blurred or is_forgotten or self.rules[-1].after > plan.watermark

    def _counts(self, one):
        return one.origin == TRIGGER and one.phase != Phase.SUPERSEDED and one.id not in self.withdrawn

    def _put_in_force(self, plan, entry, known):
        before, after = plan.snapshot.schedule, plan.schedule
        now, trigger = after.updated, after.declaration.trigger
        renewed = before.declaration.trigger != trigger
        # If the clock went back, a trigger that stays goes on from where it began.
        self.since = now if renewed else self.since
        rule = Rule(trigger, max(now, self.since))
        if is_used_up(after, plan.snapshot.runs):
            rule.stop(now)
        elif renewed and isinstance(trigger, OnceTrigger) and before.phase is not SchedulePhase.PAUSED:
            # A single moment just past was accepted, so it runs, unless the old rule has named it already.
            same = known.get(occurrence_id(self.uid, TRIGGER, trigger.due))
            rule.after = now if same is not None and self._counts(same) else in_force_after(after, now)
        elif renewed and isinstance(trigger, IntervalTrigger) and before.phase is not SchedulePhase.PAUSED:
            # So does a start just past.
            start = min(now, in_force_after(after, now)) + 1
            same = known.get(occurrence_id(self.uid, TRIGGER, start))
            is_named = (same is not None and self._counts(same)) or self.rules[-1].count(start - 1, start)
            rule.after = now if is_named else start - 1
        self._withdraw(entry, now, rule)

    def _go_on(self, entry, now):
        """The rule in force stays so, and if the clock went back, from then on."""
        rule = self.rules.pop()
        rule.after = min(rule.after, max(now, self.since))
        self._withdraw(entry, now, rule)

    def _stop(self, entry):
        """It has run as often as it may, and names nothing more."""
        rule = self.rules.pop()
        rule.stop(entry.state.watermark)
        self._withdraw(entry, entry.state.watermark, rule)

    def _withdraw(self, entry, now, rule):
        """From now on only this rule names times, or none does; earlier ones reached further if the clock was ahead.

        Times after now that have an outcome already were cancelled, or the clock was ahead.
        """
        for earlier in self.rules:
            earlier.stop(now)
        self.rules += [] if rule is None else [rule]
        self.ahead = {time for time in self.ahead if time <= now}
        for row in entry.rows:
            if row.last_nominal <= now or not self._counts(row) or row.is_projection:
                continue
            self.is_blurred = self.is_blurred or (row.missed_count > 0 and (rule is None or len(self.rules) > 1))
            if rule is None or not rule.count(row.nominal - 1, row.nominal):
                self.ahead.add(row.nominal)
