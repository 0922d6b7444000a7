"""Results of upstreams: what a run learns about the runs that it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.admission import times_in_question
from noonmark.core.ids import TRIGGER
from noonmark.core.instants import MAX_INSTANT
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.run import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.limits import Dependency
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.ports.store import Store

PAGE = 100
FEW = 5
"""Runs are read with their results, which may be large."""
COMPLETED = frozenset({Phase.COMPLETED})
ENDED = FINAL - {Phase.SUPERSEDED}


def read_upstream_results(store: Store, claims: Sequence[Claim]) -> list[dict[str, dict[str, Any]]]:
    """The name and the result of each upstream of each claim, by id; without those that have not run."""
    return [_results(store, claim) for claim in claims]


def _results(store: Store, claim: Claim) -> dict[str, dict[str, Any]]:
    found = {}
    for dependency in claim.schedule.declaration.depends_on:
        stored = store.find(claim.schedule.owner.tenant, dependency.schedule_id)
        if stored is not None and (run := _counted(store, claim, dependency, stored.schedule)) is not None:
            found[dependency.schedule_id] = {"name": stored.schedule.declaration.name, "result": run.result}
    return found


def _counted(store: Store, claim: Claim, dependency: Dependency, upstream: Schedule) -> Run | None:
    """The run of an upstream that counts for a claim: that of its newest fire in the times in question, or its last.

    What follows its upstreams has the time of their ends, so a retry finds the same one.
    """
    is_timed = claim.schedule.declaration.trigger is not None
    if is_timed and claim.occurrence.origin == TRIGGER:
        fire = _newest_fire(store, claim, upstream, COMPLETED if dependency.require_success else ENDED)
        if fire is not None:
            last = store.last_runs([fire.id]).get(fire.id)
            stored = None if last is None else store.run(last.id)
            return None if stored is None else stored[1]
    until = MAX_INSTANT if is_timed else claim.occurrence.nominal
    return _last_run(store, upstream, until, completed=dependency.require_success)


def _last_run(store: Store, upstream: Schedule, until: Micros, *, completed: bool) -> Run | None:
    """The run that started last, of those that had ended by an instant."""
    before = None
    while True:
        runs = store.runs(upstream.uid, FEW, before=before)
        for run in runs:
            has_ended = run.ended is not None and run.ended <= until and run.outcome is not Outcome.LEASE_LOST
            if has_ended and (run.outcome is Outcome.COMPLETED or not completed):
                return run
        if len(runs) < FEW:
            return None
        before = (runs[-1].started, runs[-1].id)


def _newest_fire(store: Store, claim: Claim, upstream: Schedule, phases: frozenset[Phase]) -> Occurrence | None:
    after, until = times_in_question(claim)
    before = (until + 1, "")
    while True:
        rows = store.occurrences(upstream.uid, PAGE, before=before, phases=phases)
        for row in rows:
            if row.nominal <= after:
                return None
            if row.origin == TRIGGER:
                return row
        if len(rows) < PAGE:
            return None
        before = (rows[-1].nominal, rows[-1].id)
