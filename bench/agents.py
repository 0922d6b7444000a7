"""Turns of agents: what an occurrence adds to a call of a model that answers at once, beside pydantic-ai alone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from bench.report import Table, duration
from noonmark import CronTrigger, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.settings import Settings

PROMPT = "What is new?"
NEVER = CronTrigger("0 0 29 2 *")
PYDANTIC_AI = "pydantic-ai alone"


def tables(settings: Settings) -> Iterator[Table]:
    """One table: the time of one turn after another."""
    table = Table(
        f"Agents: one turn with the model `test`, {settings.turns} in a row",
        ("what", "p50", "p99", "more than alone, p50"),
        notes=(
            "A task has a session of its own; the other turns go on in one, so each sends what was said before.",
            "Each turn is an occurrence with a run, a transcript, a reservation and its settlement.",
        ),
    )
    from pydantic_ai import Agent  # noqa: PLC0415 - the other suites do without the extra of agents
    from pydantic_ai.models.test import TestModel  # noqa: PLC0415 - likewise

    agent = Agent(TestModel())
    alone = _times(settings.turns, lambda: agent.run_sync(PROMPT))
    table.add(PYDANTIC_AI, *_shown(alone), "")
    with tempfile.TemporaryDirectory() as folder:
        for store in ("memory://", f"sqlite:///{Path(folder) / 'agents.db'}"):
            for kind, target in _targets().items():
                times = _turns(store, kind, target, settings.turns)
                more = duration(median(times) - median(alone))
                table.add(f"a {kind}, {store.partition(':')[0]}", *_shown(times), more)
    yield table


def _targets() -> dict[str, dict[str, object]]:
    prompt = {"type": "prompt", "prompt": PROMPT}
    session = {"type": "materialize_on_demand_session", "create": {"model": "test"}, "action": prompt}
    return {"task": {"target_kind": "task", "query": PROMPT}, "session": {"target_kind": "session", **session}}


def _turns(store: str, name: str, target: dict[str, object], count: int) -> list[float]:
    with Scheduler(store, agents="embedded", agent_model="test") as scheduler:
        job = scheduler.schedule(target, name=name, trigger=NEVER)
        times = _times(count, lambda: scheduler.run_now(job))
        runs = scheduler.runs(job, limit=1)
        assert runs[0].usage is not None, "the turn has no usage"
        return times


def _times(count: int, turn: Callable[[], object]) -> list[float]:
    """The seconds of each turn, after one that loads what is needed."""
    turn()
    times = []
    for _ in range(count):
        start = perf_counter()
        turn()
        times.append(perf_counter() - start)
    return sorted(times)


def _shown(times: list[float]) -> tuple[str, str]:
    return duration(median(times)), duration(times[int(0.99 * (len(times) - 1))])
