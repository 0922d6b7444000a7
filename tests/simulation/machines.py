"""The machines of a simulation: clocks that are wrong in their own ways, and the nodes that run on them."""

from noonmark.core.instants import SECOND
from noonmark.driver.driver import Driver
from noonmark.driver.store_clock import StoreClock
from noonmark.ports.runtime import Runtime
from tests.simulation.calls import Interruptible, Standstill, Task
from tests.simulation.targets import SimulatedTarget

MILLION = 1_000_000
DUTIES = {"match": 2, "plan": 1, "claim": 2, "admit": 1, "settle": 1}
DUTIES |= {"renew": 1, "reap": 2, "rewind": 1, "lead": 1, "prune": 1, "turn": 1}
"""How many of each a node may have under way at once: a caller may fetch, and a look may reap, beside the loop."""
BEGINNING = frozenset({"match", "plan", "claim", "admit", "turn"})
"""What a node that stops does no more."""


class MachineClock:
    """The time of day with a skew, and a quartz that is a little too fast or too slow."""

    def __init__(self, world, *, skew, drift):
        self._world, self.skew, self.drift = world, skew, drift
        self._booted = world.time

    def micros(self):
        return self._world.time + self.skew

    def monotonic(self):
        return self.lapse(self._booted)

    def boot(self):
        return self.monotonic()

    def lapse(self, since):
        """How long ago that was, as this machine sees it."""
        return (self._world.time - since) * (MILLION + self.drift) // MILLION


class NotedReckoning(StoreClock):
    """Remembers when the store's time was last told."""

    def __init__(self, clock, world):
        super().__init__(clock)
        self._world = world
        self.noted = None

    def note(self, store_time, asked=None):
        super().note(store_time, asked)
        # An answer may have been under way while the store's clock went back.
        was_told_before = store_time > self._world.store_time
        self.noted = self._world.went_back - 1 if was_told_before else self._world.time


class Machine:
    """One process with a node in it. When it is lost, so is everything but what the store has."""

    def __init__(self, world, name, *, routes, skew, drift):
        self.world, self.name = world, name
        self.clock = MachineClock(world, skew=skew, drift=drift)
        self.target = SimulatedTarget(world, self, routes)
        runtime = Runtime(node=name, store=world.store, clock=self.clock, target=self.target, timing=world.timing)
        self.driver = Driver(runtime, Interruptible())
        self.node = self.driver.node
        self.node.store_clock = self.store_clock = NotedReckoning(self.clock, world)
        self.target.open(self.driver.report, self.store_clock.now)
        self.tasks = []
        self.frozen_until = 0
        self.is_leaving = self.is_gone = False

    @property
    def is_frozen(self):
        return self.world.time < self.frozen_until

    def ahead(self):
        """How far its reckoning may honestly be ahead of the store: by what its quartz gained since it was told.

        None if the store's clock went back since then.
        """
        noted = self.store_clock.noted
        if noted is None:
            return 0
        gained = self.clock.lapse(noted) - (self.world.time - noted)
        return max(0, gained) + 1 if noted > self.world.went_back else None

    def duties(self):
        """What it could begin now."""
        possible = [duty for duty in DUTIES if not (self.is_leaving and duty in BEGINNING)]
        under_way = [task.name for task in self.tasks]
        free = [duty for duty in possible if under_way.count(duty) < DUTIES[duty]]
        return [duty for duty in free if not self._clashes(duty, under_way)]

    def begin(self, duty):
        others = {"turn": self._turn, "confirm": self.node.confirm_time}
        work = others[duty]() if duty in others else getattr(self.driver, f"{duty}_once")()
        self.tasks.append(Task(self.name, duty, work))

    def leave(self):
        """Stop as the loop does."""
        self.is_leaving = True
        self.tasks.append(Task(self.name, "leave", self._wind_up()))

    def lose(self):
        """Lose the process, wherever its tasks stand."""
        for task in self.tasks:
            task.drop()
        self.tasks = []
        self.is_gone = True

    def freeze(self, length):
        self.frozen_until = self.world.time + length

    def _clashes(self, duty, under_way):
        """A node admits, and settles, one batch after another."""
        alone = {"admit", "settle", "renew", "plan"}
        return (duty == "turn" and alone & set(under_way)) or (duty in alone and "turn" in under_way)

    async def _turn(self):
        """Every duty once, as a quiet node does them."""
        await self.driver.renew_once()
        await self.driver.lead_once()
        await self.driver.reap_once()
        await self.driver.rewind_once()
        await self.driver.match_once()
        await self.driver.plan_once()
        await self.driver.claim_once()
        await self.driver.admit_once()
        await self.driver.settle_once()

    async def _wind_up(self):
        while any(task.name in BEGINNING for task in self.tasks):
            await Standstill()
        await self.driver.release()
        end = self.node.now + self.world.rng.choice([0, 2, 20]) * SECOND
        while self.node.deliveries and self.node.now < end:
            await Standstill()
        self.driver.hand_back()
        while self.node.finished or any(task.name == "settle" for task in self.tasks):
            await Standstill()
        while any(task.name != "leave" for task in self.tasks):
            await Standstill()
        await self.driver.leave()
        self.is_gone = True
