"""Runs a simulation: a seed always gives the same trace; a failure says how to reproduce it."""

from dataclasses import dataclass

from noonmark.core.instants import DAY_SECONDS, SECOND
from tests.simulation.trace import Violation
from tests.simulation.world import World

STEPS = 5_000


@dataclass(frozen=True)
class Result:
    """What came of one seed."""

    seed: int
    digest: str
    lines: int
    days: float
    """How much time has passed in it."""


class SimulationFailed(AssertionError):
    """An invariant was broken, or the code raised something that it must not."""

    def __init__(self, message, invariant):
        super().__init__(message)
        self.invariant = invariant


def simulate(seed, steps=STEPS, make_twin=None, *, leaps=False):
    """Play one seed to its end; with a way to make another store, that must give the same answers all the while."""
    world = World(seed, make_twin, leaps=leaps)
    try:
        for _ in range(steps):
            world.step()
        world.drain()
    except (Exception, Violation) as error:
        invariant = error.invariant if isinstance(error, Violation) else type(error).__name__
        raise SimulationFailed(_message(world, seed, steps, error), invariant) from error
    finally:
        abandon(world)
    days = (world.time - world.workload.begins) / (DAY_SECONDS * SECOND)
    return Result(seed, world.trace.digest(), world.trace.lines, days)


def abandon(world):
    """Close what is left, so that nothing is finished later, elsewhere."""
    for machine in list(world.machines):
        machine.lose()
    for task in world.others:
        task.drop()
    if world.twin is not None:
        world.twin.close()


def _message(world, seed, steps, error):
    lines = "\n".join(f"  {line}" for line in world.trace.last)
    return (
        f"seed {seed}, step {world.steps}: {error!r}\n{lines}\n"
        f"replay it with: python -m tests.simulation --seed {seed} --steps {steps}"
    )
