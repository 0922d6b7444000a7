"""The users of a simulation: they create, change, delete and request at random, and may be interrupted."""

from dataclasses import replace

from noonmark.core import edits
from noonmark.core.event import parse_event
from noonmark.core.ids import backfill, event, occurrence_id
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import LIVE, Phase
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.core.settlement import Delivered, settle
from noonmark.operations import schedule_edits
from noonmark.operations.events import emit
from tests.simulation.calls import Caller, RemoteStore, Task
from tests.simulation.workload import EVENTS

TENANT = "acme"
MOST = 6
"""So many schedules at once."""
ENDS = (Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED, Outcome.CANCELLED, Outcome.TIMED_OUT)


class Users:
    """Everybody who uses the store from outside of a node."""

    def __init__(self, world):
        self._world, self._rng = world, world.rng
        self._store = RemoteStore(world.store)
        self._numbers = 0

    def act(self):
        """Begin something, as a task of its own."""
        ways = [self.edit, self.edit, self.pause, self.resume, self.resume, self.run_now, self.run_now, self.emit]
        ways += [self.emit, self.emit, self.emit, self.hear]
        ways += [self.fill, self.cancel, self.stop, self.tell, self.tell]
        ways += [self.delete] if self._rng.random() < 0.3 else []
        uids = self._uids()
        if len(uids) < MOST and (not uids or self._rng.random() < 0.15):
            return self.create()
        return self._task(self._rng.choice(ways))

    def create(self):
        return self._task(self.create_one)

    def create_one(self):
        now = self._store.clock()
        number = self._next()
        made = schedule_edits.new_schedule(
            self._world.workload.declaration(now),
            uid=f"uid-{number}",
            schedule_id=f"schedule-{self._rng.randrange(12)}",
            owner=Owner(tenant=TENANT, user="ada"),
            source="simulation",
            now=now,
        )
        schedule_edits.create(self._store, made, lookahead=self._world.timing.lookahead)

    def edit(self):
        def decide(snapshot, now):
            declaration = replace(snapshot.schedule.declaration, **self._world.workload.changes(now))
            return edits.edit(snapshot, declaration, now=now, lookahead=self._world.timing.lookahead)

        schedule_edits.change(self._store, self._uid(), decide)

    def pause(self):
        schedule_edits.pause(self._store, self._uid())

    def resume(self):
        schedule_edits.resume(self._store, self._uid(), lookahead=self._world.timing.lookahead)

    def delete(self):
        schedule_edits.delete(self._store, self._uid())

    def run_now(self):
        snapshot = self._store.snapshot(self._uid())
        if snapshot is None:
            return
        now = self._store.clock()
        self._store.add([schedule_edits.run_now(snapshot.schedule, key=f"k{self._next()}", payload=None, now=now)])

    def emit(self):
        """A new event or several, or one that somebody does not know to have been kept."""
        stream, rng = self._world.uow.events.streams.get(TENANT), self._rng
        known = [] if stream is None else [one.event_id for one in (*stream.matched, *stream.waiting)]
        for _ in range(rng.choice([1, 1, 4])):
            event_id = rng.choice(known) if known and rng.random() < 0.2 else f"e{self._next()}"
            document = {"event_type": rng.choice(EVENTS), "event_id": event_id, "payload": {"size": rng.randrange(6)}}
            now = from_micros(self._store.clock())
            emit(self._store, TENANT, parse_event(document, now=now), fresh_id="-")

    def hear(self):
        """Occurrences of events that nobody has emitted here, in any schedule."""
        self._add(lambda: event(f"e{self._next()}"), ahead=0)

    def fill(self):
        """A backfill: past times, run again."""
        origin = backfill(f"b{self._next()}")
        self._add(lambda: origin, ahead=self._rng.choice([-3_600, -86_400]))

    def cancel(self):
        if (one := self._occurrence()) is not None:
            self._store.cancel(one)

    def stop(self):
        if (one := self._occurrence(Phase.DISPATCHING)) is not None:
            self._store.request_stop(one)

    def tell(self):
        """The outcome of accepted work comes in: once, twice, too late, or before the acceptance is written."""
        if not self._world.handed:
            return
        handed = self._rng.choice(self._world.handed)
        now = self._store.clock()
        outcome = self._rng.choice(ENDS)
        delivered = Delivered(outcome=outcome, started=handed.occurrence.started or now, ended=now)
        self._store.settle([settle(handed.occurrence, handed.schedule, delivered, node="somewhere")])

    def delete_all(self, uids):
        """Everybody gives up."""

        def delete():
            for uid in uids:
                schedule_edits.delete(self._store, uid)

        return self._task(delete)

    def _add(self, origin, *, ahead):
        snapshot = self._store.snapshot(self._uid())
        if snapshot is None:
            return
        made, now = snapshot.schedule, self._store.clock()
        rows = []
        for index in range(self._rng.choice([1, 1, 3])):
            asked = origin()
            nominal = now + (ahead + index) * SECOND
            row = schedule_edits.run_now(made, key="-", payload=None, now=now)
            name = occurrence_id(made.uid, asked, nominal)
            rows.append(replace(row, id=name, origin=asked, nominal=nominal))
        self._store.add(rows)

    def _task(self, way):
        return Task(f"user-{self._next()}", way.__name__, Caller(way))

    def _next(self):
        self._numbers += 1
        return self._numbers

    def _uids(self):
        return list(self._world.uow.ids.values())

    def _uid(self):
        return self._rng.choice(self._uids() or ["nobody"])

    def _occurrence(self, *phases):
        wanted = phases or LIVE
        rows = [
            one for entry in self._world.uow.entries.values() for one, row in entry.live.items() if row.phase in wanted
        ]
        return self._rng.choice(rows) if rows else None
