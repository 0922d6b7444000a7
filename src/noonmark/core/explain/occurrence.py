"""Why an occurrence is as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.explain.deciding_rule import Case, standing
from noonmark.core.explain.explanation import Explanation
from noonmark.core.explain.sentence import sentence
from noonmark.core.explain.steps import chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule


def explain_occurrence(
    schedule: Schedule,
    occurrence: Occurrence,
    runs: Sequence[Run] = (),
    *,
    now: Micros,
    gap: Occurrence | None = None,
) -> Explanation:
    """Explain a stored occurrence of a schedule; runs of others are passed over.

    `gap` is the row of the fires that were missed just before it, where there is one.
    """
    own = sorted((run for run in runs if run.occurrence_id == occurrence.id), key=lambda run: (run.started, run.id))
    case = Case(schedule=schedule, occurrence=occurrence, now=now, runs=tuple(own), gap=gap)
    at = standing(case)
    return Explanation(
        summary=sentence(case, at),
        steps=chain(case, at),
        occurrence_id=occurrence.id,
        phase=str(occurrence.phase),
    )
