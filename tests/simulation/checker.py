"""The checker: reads every answer of the store, and checks the invariants after every step."""

from dataclasses import replace

from noonmark.core.admission import Start
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import FINAL, LIVE, TRANSITIONS, Phase, SchedulePhase
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.overlap import Allow
from noonmark.core.reasons import Reason
from noonmark.ports.records import Admitted
from noonmark.stores.rules.records import DELIVERING
from tests.simulation.accounts import Account, Rule
from tests.simulation.event_outcomes import EventOutcomes
from tests.simulation.targets import Effect
from tests.simulation.trace import Violation, short, summary

READS = frozenset(
    {"clock", "find", "snapshot", "plannable", "overdue", "routes", "next_time", "occurrence", "beat", "newest_time"}
)
READS |= {"unmatched", "lead", "leave", "planned_ahead"}
FULL_EVERY = 50
"""So many writes lie between two looks at everything that has ended."""
REACH = {phase: ways.union(*map(TRANSITIONS.get, ways)) for phase, ways in TRANSITIONS.items()}
"""One call may move a row twice: a lease that was lost is claimed, a batch admits what it just handed a place."""


class Checker:
    """What must hold, as the outside sees it."""

    def __init__(self, world):
        self._world, self._uow = world, world.uow
        self.known = {}
        """Every schedule's rows as they were last seen; what was pruned stays."""
        self.accounts = {}
        self.event_outcomes = EventOutcomes(self._uow, self.known)
        self._fences = {}
        self._accepted = set()
        self._exclusive = set()
        self._keys = {}
        self._limits = {}
        """The highest under which each occurrence has waited or begun, by occurrence and key."""
        self._effects = {}
        self._may_repeat = set()
        self._writes = 0
        self._phases = {}
        self._changed = set()
        self._leaders = {}
        """By term."""

    def before(self, verb, args):
        """What the answer will be measured by."""
        if verb == "settle":
            return [self._row(one.occurrence.id) for one in args[0]]
        return [self._row(one.claim.occurrence.id) for one in args[0]] if verb == "admit" else None

    def after(self, verb, args, answer, before):
        """Judge an answer, then what was written."""
        if verb == "lead":
            self._judge_lead(answer)
        if verb in READS:
            return
        self._judge(verb, args, answer, before)
        self._look()
        self.event_outcomes.look()
        self._note_pauses()
        if verb == "commit_plans":
            for plan in args[0]:
                self.check_account(plan.snapshot.schedule.uid)
        self._writes += 1
        if self._writes % FULL_EVERY == 0:
            self.check_everything()

    def _judge(self, verb, args, answer, before):
        match verb:
            case "settle":
                self._judge_settlements(args[0], answer, before)
            case "admit":
                self._judge_admissions(args[0], answer, before)
            case "create":
                self._note_created(args[0], answer)
            case "commit_plans":
                self._note_plans(args[0], answer)
            case "repair":
                self._note_mended()

    def begins(self, machine, assignment):
        """A delivery begins; what it does cannot be undone."""
        one, store_now = assignment.occurrence, self._world.store_time
        self._world.trace.add(self._world.time, machine.name, "begins", summary(one))
        ahead = machine.ahead()
        if ahead is not None and store_now + ahead < one.due:
            raise Violation("early start", f"{short(one.id)} begins {one.due - store_now} us before it is due")
        effects = self._effects.setdefault(one.id, [])
        at_most_once = assignment.schedule.declaration.delivery is Delivery.AT_MOST_ONCE
        if at_most_once and effects and one.id not in self._may_repeat:
            raise Violation("at most once", f"{short(one.id)} was begun by {effects} and begins again")
        self._may_repeat.discard(one.id)
        if not at_most_once:
            self._may_repeat.add(one.id)
        effects.append(Effect(one.fence, machine.name, store_now))

    def check_everything(self):
        """Also what has ended: it stays as it is, and everything is counted."""
        for uid, entry in self._uow.entries.items():
            known = self.known[uid]
            for one, row in entry.ended.items():
                if known.get(one) != (now := self._uow.occurrence_of(row)):
                    raise Violation("final rows", f"{summary(known[one])} has become {summary(now)}")
            self.check_account(uid)

    def check_account(self, uid):
        self.accounts[uid].check(self._uow.entries[uid], self.known[uid])

    def check_gaps(self):
        for uid, account in self.accounts.items():
            account.check_gaps(self.known[uid])

    def _row(self, occurrence_id):
        row = self._uow.rows.get(occurrence_id)
        return None if row is None else self._uow.occurrence_of(row)

    def _runs(self, uid):
        return self._world.memory.snapshot(uid).runs

    def _judge_settlements(self, settlements, answers, before):
        for settlement, accepted, was in zip(settlements, answers, before, strict=True):
            if not accepted:
                continue
            one = settlement.occurrence
            if was is None or was.fence != one.fence or was.phase not in DELIVERING:
                raise Violation("stale fence", f"fence {one.fence} was settled for {was and summary(was)}")
            if settlement.phase in FINAL:
                if one.id in self._accepted:
                    raise Violation("double result", f"{short(one.id)} has a second accepted result")
                self._accepted.add(one.id)
            elif settlement.phase is Phase.PENDING:
                self._may_repeat.add(one.id)

    def _judge_lead(self, answer):
        """Whoever leads has a term of its own, whatever the others believe."""
        if answer.term < max(self._leaders, default=0):
            raise Violation("leaders", f"term {answer.term} comes after term {max(self._leaders)}")
        if self._leaders.setdefault(answer.term, answer.leader) != answer.leader:
            raise Violation("leaders", f"term {answer.term} is that of {self._leaders[answer.term]}: {answer}")
        terms = [one.node.leadership.term for one in self._world.machines if one.node.leads]
        if len(set(terms)) < len(terms):
            raise Violation("leaders", f"two lead under one term: {terms}")

    def _judge_admissions(self, admissions, answers, before):
        started = []
        for admission, answer, was in zip(admissions, answers, before, strict=True):
            if not isinstance(answer, Admitted):
                continue
            one = admission.claim.occurrence
            if was is None or was.fence != one.fence:
                raise Violation("stale fence", f"fence {one.fence} was admitted for {was and summary(was)}")
            self._note_limit(admission.claim.schedule.declaration.concurrency, one)
            if isinstance(admission, Start):
                self._check_turn(admission, was)
                self._note_start(admission, one)
                started.append(one)
        # All of them have begun by now, and one may have begun before under a key that its schedule has no more.
        for one in started:
            if one.id in self._keys:
                self._check_limit(self._keys[one.id].key)

    def _check_turn(self, start, was):
        """What was caught up begins after every fire before it that was caught up and is still to end."""
        is_alone = not isinstance(start.claim.schedule.declaration.overlap_policy, Allow)
        if was.caught_up is None or was.has_begun or was.origin != TRIGGER or not is_alone:
            return
        for row in self._uow.entries[was.uid].live.values():
            if row.origin == TRIGGER and row.caught_up is not None and row.nominal < was.nominal:
                raise Violation("line", f"{summary(was)} begins before {summary(self._uow.occurrence_of(row))}")

    def _note_limit(self, concurrency, one):
        """It may be handed a place while it waits, or keep one after a lost lease, and begin under a lower limit."""
        if concurrency is not None:
            place = (one.id, concurrency.key)
            self._limits[place] = max(concurrency.limit, self._limits.get(place, 0))

    def _note_start(self, start, one):
        declared = start.claim.schedule.declaration
        if not isinstance(declared.overlap_policy, Allow):
            self._exclusive.add(one.id)
        if declared.concurrency is None:
            self._keys.pop(one.id, None)
        else:
            self._keys[one.id] = declared.concurrency

    def _check_limit(self, key):
        others = {other: self._limits[other, key] for other, held in self._keys.items() if held.key == key}
        together = {other: limit for other, limit in others.items() if self._is_delivered(other)}
        # Whoever asks for a low limit may have come before somebody with a higher one.
        if len(together) > max(together.values(), default=0):
            raise Violation("concurrency limit", f"{len(together)} at once under {key}: {sorted(map(short, together))}")

    def _is_delivered(self, occurrence_id):
        one = self._row(occurrence_id)
        return one is not None and one.phase in DELIVERING

    def _note_created(self, plans, answers):
        for plan, written in zip(plans, answers, strict=True):
            if written:
                made = plan.schedule or plan.snapshot.schedule
                self.known[made.uid] = {}
                rule = Rule(made.declaration.trigger, plan.snapshot.watermark)
                self.accounts[made.uid] = Account(made.uid, [rule], rule.after)

    def _note_plans(self, plans, answers):
        for plan, written in zip(plans, answers, strict=True):
            if written:
                uid = plan.snapshot.schedule.uid
                entry = self._uow.entries[uid]
                self._changed.add(uid)
                if plan.rewound is not None:
                    self._note_rewound(plan, entry, self.known[uid])
                self.accounts[uid].committed(plan, entry, self.known[uid], self._runs(uid))

    def _note_rewound(self, plan, entry, known):
        """Of what has ended, only gaps that a clock ahead had closed may change, and only to count less."""
        for undone in plan.rewound.undone:
            known.pop(undone, None)
        for gap in plan.rewound.shortened:
            was, row = known.get(gap.id), entry.ended.get(gap.id)
            if was is not None and row is not None:
                now = self._uow.occurrence_of(row)
                if not was.missed_count >= now.missed_count >= 1:
                    raise Violation("gap rows", f"{summary(was)} has become {summary(now)}")
                known[gap.id] = now

    def _note_mended(self):
        """Times of ends that lay ahead are set back; nothing else about them changes."""
        for uid, entry in self._uow.entries.items():
            known = self.known[uid]
            for one, row in entry.ended.items():
                now = self._uow.occurrence_of(row)
                if one in known and replace(known[one], ended=now.ended) == now:
                    known[one] = now

    def _note_pauses(self):
        for uid, entry in self._uow.entries.items():
            before, self._phases[uid] = self._phases.get(uid), entry.schedule.phase
            failed = before is SchedulePhase.ACTIVE and entry.schedule.phase is SchedulePhase.PAUSED
            if failed and uid not in self._changed:
                self.accounts[uid].paused(entry, self._runs(uid))
        self._changed.clear()

    def _look(self):
        for uid, entry in self._uow.entries.items():
            known = self.known[uid]
            for one in [one for one, was in known.items() if was.phase in LIVE and one not in entry.live]:
                if one not in entry.ended:  # a plan has withdrawn it
                    del known[one]
            for one, row in reversed(entry.ended.items()):
                if known.get(one) is self._uow.occurrence_of(row):
                    break
                self._saw(known, row)
            for row in entry.live.values():
                if known.get(row.id) is not self._uow.occurrence_of(row):
                    self._saw(known, row)
                self._check_live(entry, row)
            self._check_slot(uid, entry)

    def _saw(self, known, row):
        """A row is new, or not what it was."""
        one = self._uow.occurrence_of(row)
        was = known.get(one.id)
        highest = self._fences.get(one.id, -1)
        if one.fence < highest or (was is None and one.fence == highest):
            raise Violation("fences rise", f"{summary(one)} after fence {highest}")
        self._fences[one.id] = one.fence
        if was is not None and one.phase is not was.phase and one.phase not in REACH[was.phase]:
            raise Violation("phases", f"{summary(was)} has become {summary(one)}")
        if was is not None and was.phase in FINAL and was.phase is not Phase.SUPERSEDED and was != one:
            raise Violation("final rows", f"{summary(was)} has become {summary(one)}")
        runs = self._uow.runs.get(row.key, ())
        if len({run.id for run in runs}) != len(runs):
            raise Violation("runs", f"{short(one.id)} has two runs of one id")
        known[one.id] = one
        if one.phase in FINAL:
            self._exclusive.discard(one.id)
            self._keys.pop(one.id, None)

    def _check_live(self, entry, row):
        """It has an owner with a lease, a time at which somebody can take it, or something it waits for."""
        one = self._uow.occurrence_of(row)
        match one.phase:
            case Phase.PENDING:
                fine = entry.state.holds_back(row) or row.ready is not None or self._waits(entry.state, row)
            case Phase.AWAITING_COMPLETION:
                fine = one.deadline is not None and row.lease_end is None
            case _:
                fine = one.node is not None and row.lease_end is not None
        if not fine:
            raise Violation("stranded row", f"{summary(one)} of {one.uid} has no owner and no time")

    def _waits(self, state, row):
        match row.waiting_for:
            case None:
                return state.plan_at is not None and state.phase == SchedulePhase.ACTIVE
            case Reason.QUEUED:
                is_kept = state.holder is not None or self._uow.late_fire_before(row) is not None
                return is_kept and self._uow.slot_lines[row.schedule].time_of(row.id) == row.due
            case _:
                return row.wanted is not None and self._uow.key_lines[row.wanted].time_of(row.id) == row.due

    def _check_slot(self, uid, entry):
        """From its start to its end, retries included, nothing else of its schedule runs."""
        running = [one for one in entry.live if one in self._exclusive]
        if len(running) > 1:
            raise Violation("overlap", f"{uid} has {len(running)} in flight at once: {sorted(map(short, running))}")
