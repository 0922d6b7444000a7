"""The target of a simulation: work takes virtual time, and ends as the seed says, or not at all."""

from dataclasses import dataclass

from noonmark.core.instants import SECOND
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, Delivered

MILLISECOND = SECOND // 1_000
LENGTHS = [0, MILLISECOND, 200 * MILLISECOND, SECOND, 4 * SECOND, 20 * SECOND, 90 * SECOND]
FATES = ["completes"] * 8 + ["fails"] * 4 + ["is undeliverable", "hangs", "hangs", "is accepted", "is accepted"]


@dataclass(eq=False)
class Work:
    """One delivery: how long it takes, how it ends, and whether it listens when it is asked to stop."""

    assignment: object
    fate: str
    length: int
    listens: bool


@dataclass(frozen=True)
class Effect:
    """Something that was done in the world, whatever the store knows of it."""

    fence: int
    machine: str
    begun: int


@dataclass(frozen=True)
class Handed:
    """Work that a target accepted; somebody says later how it ended."""

    occurrence: object
    schedule: object


class SimulatedTarget:
    """What one machine can do."""

    def __init__(self, world, machine, routes):
        self._world, self._machine, self._routes = world, machine, tuple(routes)
        self._works = []

    def routes(self):
        return self._routes

    def adopt(self, routes):
        return False

    def open(self, report, now):
        self._report, self._now = report, now

    def deliver(self, assignments):
        rng = self._world.rng
        for assignment in assignments:
            fate = "completes" if self._world.is_calm else rng.choice(FATES)
            length = 0 if self._world.is_calm else rng.choice(LENGTHS)
            self._works.append(Work(assignment, fate, length, listens=rng.random() < 0.7))
        self.pump()

    def withdraw(self):
        return []

    def close(self):
        pass

    def next_time(self):
        """When, by the machine's own time, something begins or ends."""
        times = []
        for work in self._works:
            assignment = work.assignment
            times += (
                [assignment.begins]
                if assignment.started is None
                else [assignment.started + work.length, assignment.ends_by(assignment.started)]
            )
        return min((time for time in times if time is not None and time > self._now()), default=None)

    def pump(self):
        """Let everything begin and end whose time has come."""
        for work in list(self._works):
            assignment, now = work.assignment, self._now()
            if assignment.is_closed:
                self._works.remove(work)
                continue
            if assignment.started is None and now >= assignment.begins:
                assignment.started = now
                self._world.checker.begins(self._machine, assignment)
            if assignment.started is not None and (end := self._end(work, now)) is not None:
                assignment.is_closed = True
                self._works.remove(work)
                self._world.trace.add(self._world.time, self._machine.name, "work", work.fate)
                self._report(assignment, end)

    def _end(self, work, now):
        assignment = work.assignment
        deadline = assignment.ends_by(assignment.started)
        if deadline is not None and now >= deadline:
            timed_out = assignment.is_timeout(now)
            outcome, reason = (Outcome.TIMED_OUT, None) if timed_out else (Outcome.CANCELLED, Reason.WINDOW_CLOSED)
            return Delivered(outcome=outcome, started=assignment.started, ended=now, reason=reason)
        if assignment.stop_reason is not None and work.listens:
            lost = assignment.stop_reason is Reason.LEASE_LOST
            outcome, reason = (Outcome.LEASE_LOST, None) if lost else (Outcome.CANCELLED, assignment.stop_reason)
            return Delivered(outcome=outcome, started=assignment.started, ended=now, reason=reason)
        is_stuck = work.fate == "hangs" and not self._world.is_calm
        return None if is_stuck or now < assignment.started + work.length else self._by_itself(work, now)

    def _by_itself(self, work, now):
        assignment, rng = work.assignment, self._world.rng
        if work.fate == "is accepted":
            self._world.handed.append(Handed(assignment.occurrence, assignment.schedule))
            deadline = now + rng.choice([1, 30, 600]) * SECOND
            return Accepted(started=assignment.started, accepted=now, deadline=deadline)
        outcomes = {"fails": Outcome.FAILED, "is undeliverable": Outcome.DELIVERY_FAILED}
        outcome = outcomes.get(work.fate, Outcome.COMPLETED)
        return Delivered(outcome=outcome, started=assignment.started, ended=now)
