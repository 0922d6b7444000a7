"""Play seeds from the command line: `python -m tests.simulation --seed 7`, or `--seeds 1..500`, or `--seconds 600`.

With `--store postgres` or `--store redis`, a server is started, and asked all that the memory store is asked.
"""

import argparse
import itertools
import logging
import sys
import time
from contextlib import contextmanager

from noonmark.stores.postgres import PostgresStore
from noonmark.stores.redis.store import RedisStore
from tests.servers import postgres, redis
from tests.simulation.runner import STEPS, SimulationFailed, simulate


def seeds_of(text):
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


@contextmanager
def twins(store):
    """A way to make another store, as long as the block; None for none."""
    if store == "memory":
        yield None
        return
    numbers = itertools.count(1)
    if store == "redis":
        with redis.running(**redis.QUICK) as server:
            yield lambda clock: RedisStore(server.url(prefix=f"seed_{next(numbers)}"), clock)
        return
    with postgres.running(**postgres.QUICK) as server:
        yield lambda clock: PostgresStore(f"{server.url()}?schema=seed_{next(numbers)}", clock)


def main():
    logging.getLogger("noonmark").setLevel(logging.CRITICAL)  # runs fail by design here
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=seeds_of, help="one seed")
    parser.add_argument("--seeds", type=seeds_of, metavar="A..B", help="a range of seeds")
    parser.add_argument("--seconds", type=float, help="new seeds for so long")
    parser.add_argument("--first", type=int, default=1, help="where --seconds begins")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--store", choices=["memory", "postgres", "redis"], default="memory")
    given = parser.parse_args()
    with twins(given.store) as make_twin:
        return play(given, make_twin)


def play(given, make_twin):
    seeds = given.seed or given.seeds or itertools.count(given.first)
    began, count, days, failed = time.monotonic(), 0, 0.0, 0
    for seed in seeds:
        if given.seconds is not None and time.monotonic() - began > given.seconds:
            break
        try:
            result = simulate(seed, given.steps, make_twin)
        except SimulationFailed as error:
            failed += 1
            print(error, file=sys.stderr)
        else:
            days += result.days
            if given.seed:
                print(f"seed {seed}: {result.lines:,} lines, {result.digest}")
        count += 1
    lasted = time.monotonic() - began
    print(f"{count:,} seeds in {lasted:.1f} s, {failed} failed; {days / 365.25:.2f} years of virtual time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
