"""Noonmark's side: workflows of functions that do nothing, on one node."""

from __future__ import annotations

import tempfile
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bench.ledger import ours
from noonmark import OnceTrigger, Scheduler
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase
from noonmark.core.schedule import TRUSTED
from noonmark.core.workflows.definition import parse_definition
from noonmark.ports.workflows import WorkflowVersion

if TYPE_CHECKING:
    from noonmark.ports.store import Store

WARM = 3
"""Steps that run before the clock does."""
LEAD = 1.0
"""Seconds from the call that stores runs until they are due; more of them take longer."""
NOTHING = {"target_kind": "function", "function": "nothing"}
LATENESS: list[float] = []


def noonmark_chains(url: str, chains: int, steps: int) -> dict[str, float]:
    """Runs of `steps` steps that are due at one instant: from then until the last end is written."""
    scheduler = _warm_scheduler(url)
    store_workflow(scheduler._store, "timed", _chain(steps))
    return _measure(scheduler, runs=chains, steps=steps)


def noonmark_called(url: str, chains: int, steps: int) -> dict[str, float]:
    """The same runs, started by one call after another: from the first call until the last end is written."""
    scheduler = _warm_scheduler(url)
    store_workflow(scheduler._store, "timed", _chain(steps))
    far = OnceTrigger(from_micros(scheduler._store.clock() + 86_400 * SECOND))
    target = {"target_kind": "workflow", "workflow_id": "timed"}
    job = scheduler.schedule(target, trigger=far, overlap="allow")
    begun = time.time()
    for _ in range(chains):
        scheduler.run_now(job, wait=False)
    return _outcome(scheduler, begun, runs=chains, steps=steps)


def noonmark_fan_out(url: str, count: int) -> dict[str, float]:
    """One run of one step for each element of a list, side by side: from its due time until its end is written."""
    scheduler = _warm_scheduler(url)
    step = {"id": "each", "target": NOTHING, "for_each": list(range(count)), "concurrency": min(count, 1_000)}
    store_workflow(scheduler._store, "timed", [step])
    return _measure(scheduler, runs=1, steps=count)


def noonmark_many_runs(runs: int, steps: int) -> dict[str, float]:
    """Runs that are due at one instant, on SQLite; and how late the first step of each begins."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _warm_scheduler(f"sqlite:///{folder}/bench.db")
        scheduler.register_function("begin", _note_lateness)
        begin = {"id": "s0", "target": {"target_kind": "function", "function": "begin"}}
        begin["input"] = {"due": "{{ due_at }}"}  # type: ignore[assignment] # JSON
        store_workflow(scheduler._store, "timed", [begin, *_chain(steps)[1:]])
        return {**_measure(scheduler, runs=runs, steps=steps), **ours.percentiles(LATENESS)}


def store_workflow(store: Store, workflow_id: str, steps: list[dict[str, Any]]) -> None:
    """Store a workflow as a program would."""
    definition, _ = parse_definition({"workflow_id": workflow_id, "steps": steps})
    version = WorkflowVersion(
        tenant=ours.OWNER.tenant,
        workflow_id=workflow_id,
        document=definition.to_document(),
        digest=definition.digest,
        source=TRUSTED,
        created=store.clock(),
        user=ours.OWNER.user,
    )
    store.put_workflow(version, version_number=None)


def _warm_scheduler(url: str) -> Scheduler:
    """A scheduler that has run a workflow: connections are open, and code is loaded."""
    scheduler = Scheduler(url)
    scheduler.register_function("nothing", ours.nothing)
    store_workflow(scheduler._store, "warm", _chain(WARM))
    scheduler.schedule({"target_kind": "workflow", "workflow_id": "warm"})
    scheduler.start()
    ours.settled(scheduler, WARM)
    return scheduler


def _measure(scheduler: Scheduler, *, runs: int, steps: int) -> dict[str, float]:
    due = round(time.time() + LEAD + runs / 500, 3)
    triggers = [OnceTrigger(from_micros(int(due * SECOND)))] * runs
    target = {"target_kind": "workflow", "workflow_id": "timed"}
    ours.keep(scheduler, ours._schedules(scheduler, target, triggers))
    scheduler._runners.wake()
    assert time.time() < due, "they were due before all of them were there"
    return _outcome(scheduler, due, runs=runs, steps=steps)


def _outcome(scheduler: Scheduler, begun: float, *, runs: int, steps: int) -> dict[str, float]:
    seconds = ours.settled(scheduler, WARM + runs * steps) - begun
    completed = scheduler._store.workflow_runs(
        ours.OWNER.tenant, runs + 1, workflow_id="timed", phases=frozenset({Phase.COMPLETED})
    )
    assert len(completed) == runs, f"{len(completed):,} of {runs:,} runs have completed"
    scheduler.stop()
    scheduler.close()
    return {"rate": runs * steps / seconds, "seconds": seconds, "rss_mb": ours._resident()}


def _chain(steps: int) -> list[dict[str, Any]]:
    return [
        {"id": f"s{number}", "target": NOTHING, "depends_on": [f"s{number - 1}"] if number else []}
        for number in range(steps)
    ]


def _note_lateness(due: str) -> None:
    LATENESS.append(time.time() - datetime.fromisoformat(due).timestamp())
    ours.nothing()
