"""The driver and its ledger under crashes, pauses, errors, wrong clocks and hasty users: the invariants hold."""

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from noonmark.stores.postgres import PostgresStore
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.rules import plan_writes
from tests.simulation import mutants
from tests.simulation.runner import SimulationFailed, simulate
from tests.soak import SCALE

ROOT = Path(__file__).parents[2]
QUICK = range(3, 13)
MORE = (range(1, 3), range(13, 23), range(23, 43), range(43, 72), range(72, 101))
"""Fixed seeds, so that a change is judged by what it changes; `make simulate` plays as many others as you like.

The second seed takes as long as all the others.
"""
SHORT = 1_000
"""Steps where each call goes to a server and back."""
SCHEMAS = count(1)


def play(seeds):
    for seed in seeds:
        simulate(seed)


@pytest.mark.parametrize("seeds", [QUICK, *(pytest.param(one, marks=pytest.mark.soak) for one in MORE)], ids=repr)
def test_the_invariants_of_the_ledger_hold(seeds):
    play(seeds)


@pytest.mark.parametrize("seed", [9, 10, 16])
def test_postgresql_answers_as_the_memory_store_does(seed, postgres):
    simulate(seed, SHORT, lambda clock: PostgresStore(f"{postgres.url()}?schema=seed_{next(SCHEMAS)}", clock))


@pytest.mark.parametrize("seed", [9, 10])
def test_redis_answers_as_the_memory_store_does(seed, redis):
    simulate(seed, SHORT, lambda clock: RedisStore(redis.url(3, prefix=f"seed_{next(SCHEMAS)}"), clock))


def leap(seeds):
    for seed in seeds:
        simulate(seed, SHORT, leaps=True)


def test_a_clock_that_is_ahead_again_and_again_leaves_nothing_lost_silent_or_counted_twice():
    leap(range(2, 13) if SCALE == 1 else range(1, 12 * SCALE))  # the first seed takes as long as thirty others


def test_a_gap_that_is_not_shortened_is_noticed(monkeypatch):
    """What a clock ahead has counted is counted twice, if it is only named again."""
    monkeypatch.setattr(plan_writes, "_rewind", lambda uow, state, rewound: None)
    with pytest.raises(SimulationFailed):
        leap(range(2, 40))


def test_postgresql_answers_as_the_memory_store_does_when_its_clock_is_ahead(postgres):
    make = lambda clock: PostgresStore(f"{postgres.url()}?schema=seed_{next(SCHEMAS)}", clock)  # noqa: E731
    simulate(5, SHORT // 2, make, leaps=True)


def test_redis_answers_as_the_memory_store_does_when_its_clock_is_ahead(redis):
    make = lambda clock: RedisStore(redis.url(3, prefix=f"seed_{next(SCHEMAS)}"), clock)  # noqa: E731
    simulate(5, SHORT // 2, make, leaps=True)


def test_one_seed_gives_one_trace():
    assert simulate(7, steps=3_000) == simulate(7, steps=3_000)
    assert simulate(7, steps=3_000).digest != simulate(8, steps=3_000).digest


def test_another_process_with_other_hashes_gives_the_same_trace():
    command = [sys.executable, "-m", "tests.simulation", "--seed", "7", "--steps", "3000"]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    played = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, text=True)
    environment["PYTHONHASHSEED"] = "2"
    again = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, text=True)
    digest = simulate(7, steps=3_000).digest
    assert digest in played.stdout
    assert digest in again.stdout


@pytest.mark.parametrize(
    ("mutant", "invariants"),
    [
        (mutants.without_fence, {"stale fence"}),
        (mutants.without_slot, {"overlap", "stranded row"}),  # or nobody wakes what waits for the stolen slot
        (mutants.without_turns, {"line"}),
        (mutants.without_watermark, {"nominal fires"}),
        (mutants.without_cursor, {"events"}),
        (mutants.without_term, {"leaders"}),
    ],
)
def test_it_bites(mutant, invariants, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(SimulationFailed) as failure:
        play(range(3, 23))
    assert failure.value.invariant in invariants
    assert "replay it with: python -m tests.simulation --seed" in str(failure.value)
