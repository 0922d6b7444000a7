"""Measuring: contestants take turns, and the best of several rounds counts."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

Name = TypeVar("Name", bound="Hashable")


def best_of(rounds: int, contestants: Mapping[Name, Callable[[], Callable[[], object]]]) -> dict[Name, float]:
    """The shortest time of each, in seconds. Each round prepares it again, and only what follows is timed."""
    best: dict[Name, float] = {}
    with garbage_kept():
        for _ in range(rounds):
            for name, prepare in contestants.items():
                run = prepare()
                seconds, _ = timed(run)
                best[name] = min(seconds, best.get(name, seconds))
    return best


def timed(run: Callable[[], object]) -> tuple[float, object]:
    """How many seconds a call took, and what it answered."""
    start = perf_counter()
    answer = run()
    return perf_counter() - start, answer


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Keep the garbage collector from striking one contestant and sparing another."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
