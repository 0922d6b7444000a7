"""Why an occurrence ran, runs, will run, or did not: the rules that were asked, and one sentence.

Nothing is decided or changed here: this asks the rules themselves, and reports what they recorded.
"""

from noonmark.core.explain.explanation import Explanation, Rule, Step
from noonmark.core.explain.instant import explain_instant
from noonmark.core.explain.occurrence import explain_latest, explain_occurrence, latest
from noonmark.core.explain.workflow import explain_steps, what_steps_wait_for

__all__ = [
    "Explanation",
    "Rule",
    "Step",
    "explain_instant",
    "explain_latest",
    "explain_occurrence",
    "explain_steps",
    "latest",
    "what_steps_wait_for",
]
