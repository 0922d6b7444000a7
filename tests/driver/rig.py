"""A driver on a bench: time that is set by hand, a real store, a target that ends its work when the test says so."""

from collections import Counter
from dataclasses import replace

from noonmark.core.errors import StoreUnavailable
from noonmark.core.ids import manual
from noonmark.core.planner import first_plan
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered
from noonmark.driver.driver import Driver
from noonmark.ports.runtime import Runtime, Timing
from noonmark.stores.memory import MemoryStore
from noonmark.testing import factories
from noonmark.testing.factories import NOW
from noonmark.testing.manual import run_inline

ROUTE = "function:work"


class World:
    """The store's time, and nothing else; it moves when the test moves it."""

    def __init__(self):
        self.now = NOW

    def advance(self, micros):
        self.now += micros


class NodeClock:
    """The clock of one machine: its time of day may be wrong, but time passes as it does in the world."""

    def __init__(self, world, ahead=0):
        self._world, self._ahead = world, ahead

    def micros(self):
        return self._world.now + self._ahead

    def monotonic(self):
        return self._world.now - NOW

    def boot(self):
        return self.monotonic()


class Wrapped:
    """A real store that counts its calls, and fails when it is told to: before it has done its work, or after."""

    def __init__(self, store):
        self.store = store
        self.calls = Counter()
        self._before = Counter()
        self._after = Counter()
        self._meanwhile = {}
        self._afterwards = {}
        self.is_down = False
        self.spoiled = None
        """The id of an occurrence that no call can make sense of."""

    @property
    def traits(self):
        return self.store.traits

    def fail(self, verb, *, times=1, after=False):
        (self._after if after else self._before)[verb] += times

    def meanwhile(self, verb, act):
        """Let something happen just before the next call of a verb takes effect."""
        self._meanwhile[verb] = act

    def afterwards(self, verb, act):
        """Let something happen just after the next call of a verb took effect, before its answer arrives."""
        self._afterwards[verb] = act

    def listen(self, ring):
        return self.store.listen(ring)

    def __getattr__(self, verb):
        real = getattr(self.store, verb)

        def call(*args, **kwargs):
            self.calls[verb] += 1
            if self.is_down or self._spend(self._before, verb):
                raise StoreUnavailable(f"{verb} was not done")
            if (
                self.spoiled is not None
                and verb in ("admit", "settle", "renew", "commit_reactions", "commit_plans")
                and self.spoiled in repr(args)
            ):
                raise TypeError("a number was expected")
            if (act := self._meanwhile.pop(verb, None)) is not None:
                act()
            answer = real(*args, **kwargs)
            if (act := self._afterwards.pop(verb, None)) is not None:
                act()
            if self._spend(self._after, verb):
                raise StoreUnavailable(f"{verb} was done, but the answer is lost")
            return answer

        return call

    @staticmethod
    def _spend(stock, verb):
        if stock[verb] == 0:
            return False
        stock[verb] -= 1
        return True


class HandTarget:
    """Takes what it is given; the test says how and when it ends."""

    def __init__(self, *routes):
        self.offered = list(routes or [ROUTE])
        self.can_import = set()
        self.given = []

    def routes(self):
        return tuple(self.offered)

    def adopt(self, routes):
        fresh = [route for route in routes if route in self.can_import and route not in self.offered]
        self.offered += fresh
        return bool(fresh)

    def open(self, report, now):
        self.report, self.now = report, now

    def deliver(self, assignments):
        self.given += assignments

    def withdraw(self):
        return []

    def close(self):
        pass

    def end(self, assignment, outcome=Outcome.COMPLETED, **changes):
        assignment.is_closed = True
        now = self.now()
        self.report(assignment, replace(Delivered(outcome=outcome, started=now, ended=now), **changes))


class Record:
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def report(self, happenings):
        self.told += happenings

    def take(self):
        told, self.told = self.told, []
        return told

    def kinds(self):
        return [type(one).__name__ for one in self.told]


class Rig:
    """One node, with everything within reach. Several may share a world and a store."""

    def __init__(
        self,
        other=None,
        *,
        node="node-a",
        ahead=0,
        routes=(),
        make_store=MemoryStore,
        first_call=None,
        locks=None,
        **timing,
    ):
        self.world = World() if other is None else other.world
        self.store = Wrapped(make_store(lambda: self.world.now)) if other is None else other.store
        self.target = HandTarget(*routes)
        self.sink = Record()
        self.timing = Timing(**timing)
        self.driver = Driver(
            Runtime(
                node=node,
                store=self.store,
                clock=NodeClock(self.world, ahead),
                target=self.target,
                sink=self.sink,
                timing=self.timing,
                first_call=first_call,
                locks=locks,
            )
        )
        self.node = self.driver.node
        self.target.open(self.driver.report, self.node.store_clock.now)

    def __getattr__(self, duty):
        """A duty of the driver, done at once: a store in memory never suspends."""
        real = getattr(self.driver, duty)
        return lambda *args, **kwargs: run_inline(real(*args, **kwargs))

    def create(self, uid="uid-1", **changes):
        schedule = factories.schedule(uid, **{"created": self.world.now} | changes)
        assert self.store.store.create([first_plan(schedule, lookahead=self.timing.lookahead)]) == [True]
        return schedule

    def add(self, of, key, after=0, **changes):
        occurrence = factories.occurrence(of, manual(key), nominal=self.world.now + after, **changes)
        assert self.store.store.add([occurrence]) == [True]
        return occurrence

    def row(self, one):
        return self.store.store.occurrence(one.id)

    def rows(self, of):
        return self.store.store.occurrences(of.uid)

    def runs(self, of):
        return self.store.store.runs(of.uid)

    def advance(self, micros):
        self.world.advance(micros)

    def started(self, of, key="one"):
        """One occurrence, claimed and started; the assignment that came of it."""
        self.add(of, key)
        self.claim_once()
        assert self.admit_once().started == 1
        return self.target.given[-1]
