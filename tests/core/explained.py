"""Occurrences and their runs around one noon, for the tables of explanations."""

import json
import re

from noonmark.core.explain import Rule, explain_occurrence
from noonmark.core.frozen import evolve
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import occurrence
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from tests.core.scheduled import at, scheduled

NOW = at(300)
ERROR = "Traceback ..\nValueError: no disk\n"
GAP = {"missed_count": 12, "missed_first": 0, "missed_last": 1_100}


def row(schedule, nominal=0, *, phase=Phase.PENDING, **fields):
    """An occurrence of the trigger; facts are written as a store does, and times in seconds from noon."""
    facts = fields.pop("facts", None)
    made = occurrence(schedule, at(nominal), at(fields.pop("due", nominal)))
    for name in ("first_due", "missed_first", "missed_last", "caught_up", "started", "deadline"):
        if name in fields:
            fields[name] = at(fields[name])
    return evolve(made, phase=phase, detail="" if facts is None else json.dumps(facts), **fields)


def run(of, started=1, ended=3, *, outcome=Outcome.COMPLETED, **fields):
    return Run(
        id=f"{of.id}-{fields.get('attempt', 1)}",
        occurrence_id=of.id,
        attempt=fields.pop("attempt", 1),
        node="n1",
        started=at(started),
        ended=None if ended is None else at(ended),
        outcome=outcome if ended is not None else None,
        **fields,
    )


def step(explanation, rule):
    return next(one for one in explanation.steps if one.rule == rule)


def decisions(explanation):
    """What the rules that apply have decided."""
    return {str(one.rule): one.decision for one in explanation.steps if one.decision != "does_not_apply"}


def check(explanation):
    """What holds of every explanation."""
    document = explanation.to_document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert [one.rule for one in explanation.steps] == list(Rule)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", one.decision) for one in explanation.steps)
    assert re.fullmatch(r"[A-Z].*[^.]\.", explanation.summary)
    assert "None" not in explanation.summary


def explained(reason, declared, fields, outcomes, *, now=NOW):
    """Why an occurrence carries a reason, after runs that ended so, ten seconds apart; None has not ended."""
    schedule, fields = scheduled(**declared), dict(fields)
    carried = None if fields.get("waiting_for") or reason in (Reason.NOT_DUE, Reason.ON_TIME) else reason
    occurrence = row(schedule, fields.pop("nominal", 0), reason=carried, **fields)
    runs = []
    for place, outcome in enumerate(outcomes):
        error = None if outcome in (None, Outcome.COMPLETED) else ERROR
        ended = None if outcome is None else 10 * place + 3
        runs.append(run(occurrence, 10 * place + 1, ended, outcome=outcome, attempt=place + 1, error=error))
    explanation = explain_occurrence(schedule, occurrence, list(reversed(runs)), now=now)
    check(explanation)
    assert (explanation.occurrence_id, explanation.phase) == (occurrence.id, occurrence.phase)
    return explanation
