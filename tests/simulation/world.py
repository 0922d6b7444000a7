"""The world of a simulation: one thread, virtual time, and a seed that decides the next event."""

import random

from noonmark.core.instants import SECOND
from noonmark.ports.runtime import Timing
from noonmark.stores.memory import MemoryStore
from tests.conformance.paired_stores import Both
from tests.simulation.calls import Stage, WatchedStore
from tests.simulation.checker import Checker
from tests.simulation.machines import Machine
from tests.simulation.trace import Trace, Violation, summary
from tests.simulation.users import Users
from tests.simulation.workload import FUNCTIONS, Workload

ROUTES = tuple(f"function:{name}" for name in FUNCTIONS)
MOST_MACHINES = 4
HOUR = 3_600 * SECOND
YEAR = 365 * 24 * HOUR
CONFIRMED = 0.5
"""So often, an operator believes a clock that jumped."""
DRAIN_STEPS = 80
BACKLOG = 60
"""More than so many at once are not worked off in that time, one after another."""


class World:
    """Everything in one place. Actions are drawn one at a time; each seed has weights of its own."""

    def __init__(self, seed, make_twin=None, *, leaps=False):
        """With a way to make another store of a clock, that is asked all that the memory store is asked.

        With leaps, the store's clock is ahead by hours or a year again and again, and is believed.
        """
        self.rng = rng = random.Random(seed)
        self.trace = Trace()
        self.workload = Workload(rng)
        self.time = self.workload.begins
        self.shift = 0
        """How far the store's clock is from the time that really passes."""
        self.went_back = self.time - 1
        self.steps = 0
        self.actor = "nobody"
        self.is_calm = False
        self.handed = []
        self.timing = Timing(
            batch=rng.choice([1, 3, 1_000]),
            capacity=rng.choice([3, 20, 25_000]),
            keep_count=rng.choice([300, 10_000]),
            keep_events=rng.choice([3, 100_000]),
            lookahead=rng.choice([0, 2 * SECOND, 2 * SECOND]),
        )
        self.memory = MemoryStore(lambda: self.store_time)
        self.uow = self.memory._uow
        self.checker = Checker(self)
        self.twin = None if make_twin is None else make_twin(lambda: self.store_time)
        self.store = WatchedStore(self._both(), self)
        self.machines, self.others, self._booted = [], [], 0
        self.users = Users(self)
        self._errors = rng.choice([0, 0, 0.01, 0.1])
        self._diligence = rng.choice([0, 0.5, 0.9, 1])
        self._weights = {
            self.go_on: 60,
            self.begin_duty: rng.choice([2, 10, 25]),
            self.pass_time: rng.choice([1, 2, 6]),
            self.use: rng.choice([0.2, 0.5, 2]),
            self.crash: rng.choice([0, 0.05, 0.3]),
            self.freeze: rng.choice([0, 0.1, 0.4]),
            self.retire: rng.choice([0, 0.05, 0.2]),
            self.set_machine_clock: rng.choice([0, 0.1]),
            self.set_store_clock: 0.6 if leaps else rng.choice([0, 0, 0, 0.02, 0.1]),
        }
        self._jumps = (2 * HOUR, YEAR) if leaps else (SECOND, 30 * SECOND, 300 * SECOND, 2 * HOUR)
        self._confirmed = 1 if leaps else CONFIRMED
        for _ in range(rng.choice([1, 2, 3])):
            self.boot()
        self.others += [self.users.create() for _ in range(rng.choice([1, 3, 5]))]

    def _both(self):
        if self.twin is None:
            return self.memory
        self.twin.open()
        return Both(self.memory, self.twin)

    @property
    def store_time(self):
        return self.time + self.shift

    def step(self):
        """One thing happens."""
        self.steps += 1
        if len(self.machines) < MOST_MACHINES and self.rng.random() < (0.01 if self.machines else 0.3):
            self.boot()
        [action] = self.rng.choices(list(self._weights), list(self._weights.values()))
        action()

    def go_on(self):
        """Some task goes on to its next await, perhaps with an error."""
        tasks = [*self.others, *(task for one in self.awake() for task in one.tasks)]
        if tasks:
            task = self.rng.choice(tasks)
            self._resume(task, fails=task.stage in (Stage.BEFORE, Stage.AFTER) and self.rng.random() < self._errors)

    def begin_duty(self):
        if machines := self.awake():
            machine = self.rng.choice(machines)
            if duties := machine.duties():
                machine.begin(self.rng.choice(duties))

    def pass_time(self):
        rng, kind = self.rng, self.rng.random()
        if kind < 0.5 and (upcoming := self._next_time()) is not None:
            self.advance(upcoming - self.time)
        elif kind < 0.75:
            self.advance(rng.randrange(1, SECOND))
        elif kind < 0.95:
            self.advance(rng.randrange(SECOND, 10 * SECOND))
        elif kind < 0.99:
            self.advance(rng.randrange(10 * SECOND, 120 * SECOND))
        else:
            self.advance(rng.randrange(600 * SECOND, 3 * HOUR))

    def advance(self, length):
        """Time passes; most nodes use it for what they have to do."""
        self.time += length
        for machine in self.awake():
            machine.target.pump()
            if length > SECOND and self.rng.random() < self._diligence and "turn" in machine.duties():
                machine.begin("turn")

    def use(self):
        self.others.append(self.users.act())

    def boot(self):
        rng = self.rng
        self._booted += 1
        routes = rng.choice([ROUTES, ROUTES, ROUTES, ROUTES[:1], ROUTES[1:]])
        skew = rng.choice([0, 0, -HOUR, 5 * SECOND, 24 * HOUR])
        machine = Machine(self, f"node-{self._booted}", routes=routes, skew=skew, drift=rng.choice([0, 0, -200, 200]))
        self.trace.add(self.time, machine.name, "boots")
        self.machines.append(machine)

    def crash(self):
        if self.machines:
            machine = self.rng.choice(self.machines)
            self.trace.add(self.time, machine.name, "is lost")
            machine.lose()
            self._bury()

    def freeze(self):
        if machines := self.awake():
            length = int(self.rng.choice([0.1, 0.5, 1, 1.5, 4, 100]) * self.timing.lease)
            self.rng.choice(machines).freeze(length)

    def retire(self):
        """A node is asked to stop."""
        if staying := [one for one in self.awake() if not one.is_leaving]:
            self.rng.choice(staying).leave()

    def set_machine_clock(self):
        if self.machines:
            self.rng.choice(self.machines).clock.skew = self.rng.choice([0, -HOUR, HOUR, 365 * 24 * HOUR])

    def set_store_clock(self):
        """It jumps ahead, and some day back again."""
        jump = self.rng.choice(self._jumps)
        self._set_shift(0 if self.shift else jump)
        if self.shift and self.rng.random() < self._confirmed:
            for machine in self.awake():
                machine.begin("confirm")

    def awake(self):
        return [one for one in self.machines if not one.is_frozen]

    def drain(self):
        """Faults end, every node does its duties, and whatever is due is brought to an end."""
        self.is_calm = True
        self._errors = 0
        self._change_shifts()
        # What was leased while the store's clock was ahead is free when it has come that far again.
        self.time += 3 * HOUR if self.went_back >= self.workload.begins else 0
        if self.went_back >= self.workload.begins or any(one.node.is_in_doubt for one in self.machines):
            self._rewind()
        began = self.store_time
        self._match_events()
        self._work_off(lambda: self._overdue(began))
        self.others.append(self.users.delete_all(list(self.uow.ids.values())))
        self._finish_tasks()
        self._work_off(self._live_occurrences)
        self.checker.check_everything()
        self.checker.check_gaps()
        self.checker.event_outcomes.check_ends()
        for uid, entry in self.uow.entries.items():
            self.trace.add(uid, *(summary(self.uow.occurrence_of(row)) for row in entry.ended.values()))

    def _change_shifts(self):
        """Most nodes go, two fresh ones come, and all of them know the time."""
        for index, machine in enumerate(self.machines):
            machine.frozen_until = 0
            machine.is_gone = machine.is_leaving or index > 1
        self._bury()
        for _ in range(2):
            self._booted += 1
            self.machines.append(Machine(self, f"node-{self._booted}", routes=ROUTES, skew=0, drift=0))
        for machine in self.machines:
            self._finish_tasks()
            machine.begin("renew")
        self._finish_tasks()

    def _rewind(self):
        """For a lease nobody writes times that lie ahead; then what was planned by them is planned anew.

        And a time that is in doubt is taken for right, without which nobody matches or starts anything.
        """
        for _ in range(3):
            self.advance(self.timing.lease)
            for machine in self.machines:
                self._finish_tasks()
                machine.begin("turn")
            self._finish_tasks()

    def _match_events(self):
        """Every look matches a page at least."""
        for _ in range(DRAIN_STEPS * DRAIN_STEPS):
            if self.uow.events.behind.first() is None:
                return
            self.machines[0].begin("match")
            self._finish_tasks()

    def _work_off(self, left):
        backlog = self._live()
        for _ in range(DRAIN_STEPS):
            if not (occurrences := left()):
                return
            self.advance(self.rng.choice([SECOND, 10 * SECOND, 30 * SECOND]))
            for machine in self.machines:
                self._finish_tasks()
                machine.begin("turn")
            self._finish_tasks()
        if max(backlog, self._live()) < BACKLOG:
            one = occurrences[0]
            raise Violation("not drained", f"{summary(one)} of {one.uid} was first due at {one.first_due}: {one}")

    def _live(self):
        return sum(len(entry.live) for entry in self.uow.entries.values())

    def _live_occurrences(self):
        return [self.uow.occurrence_of(row) for entry in self.uow.entries.values() for row in entry.live.values()]

    def _overdue(self, began):
        """What was due when the faults ended, unless a pause holds it, or whoever is before it in the slot."""
        late = []
        for entry in self.uow.entries.values():
            holder = self.uow.row_of_key(entry.state.holder)
            is_held = holder is not None and entry.state.holds_back(holder)
            rows = [row for row in entry.live.values() if not is_held and not entry.state.holds_back(row)]
            late += [self.uow.occurrence_of(row) for row in rows if max(row.due, row.first_due) <= began]
        return late

    def _finish_tasks(self):
        for _ in range(100_000):
            tasks = [*self.others, *(task for one in self.machines for task in one.tasks)]
            if not tasks:
                return
            self._resume(self.rng.choice(tasks))
            self.time += 1
        raise Violation("not drained", "tasks go on for ever")

    def _resume(self, task, *, fails=False):
        self.actor = f"{task.actor}:{task.name}"
        task.resume(self.trace, fails=fails)
        self._bury()

    def _bury(self):
        self.others = [task for task in self.others if not task.is_over]
        for machine in self.machines:
            if not machine.is_gone:
                machine.tasks = [task for task in machine.tasks if not task.is_over]
        for gone in [one for one in self.machines if one.is_gone]:
            gone.lose()
            self.machines.remove(gone)

    def _set_shift(self, shift):
        if shift < self.shift:
            self.went_back = self.time
        self.shift = shift
        self.trace.add(self.time, "the store's clock is off by", shift)

    def _next_time(self):
        """When something is due next, by the time that really passes."""
        uow = self.uow
        agendas = [uow.plans, uow.deadlines, *uow.ready.values(), *uow.leases.values()]
        times = [first[0] - self.shift for one in agendas if (first := one.first()) is not None]
        times += [time - self.shift for one in self.awake() if (time := one.target.next_time()) is not None]
        times += [time - self.shift for one in self.awake() if (time := one.node.next_decision) is not None]
        return min((time for time in times if time > self.time), default=None)
