"""The conformance suite: cases that every store must pass.

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
    def test_my_store(case):
        try_case(case, MyStore)

`MyStore` is called with a clock in microseconds, and returns a new and empty store that uses it. Its verbs are
plain functions, as in `noonmark.ports.store`.
"""

from noonmark.testing.conformance import (
    admission,
    alerts,
    api_keys,
    audit_log,
    budgeted_starts,
    budgets,
    bundles,
    cancellation,
    claims,
    concurrency_keys,
    deliveries,
    dependencies,
    events,
    halts,
    history,
    marks,
    nodes,
    page_sessions,
    pauses,
    plans,
    proposals,
    quotas,
    rates,
    repair,
    runaways,
    schedules,
    secrets,
    sessions,
    settlement,
    slots,
    workflows,
)
from noonmark.testing.conformance.bench import CASES, Bench, HandClock, try_case

__all__ = [
    "CASES",
    "Bench",
    "HandClock",
    "admission",
    "alerts",
    "api_keys",
    "audit_log",
    "budgeted_starts",
    "budgets",
    "bundles",
    "cancellation",
    "claims",
    "concurrency_keys",
    "deliveries",
    "dependencies",
    "events",
    "halts",
    "history",
    "marks",
    "nodes",
    "overdue",
    "page_sessions",
    "pauses",
    "plans",
    "proposals",
    "quotas",
    "rates",
    "repair",
    "runaways",
    "schedules",
    "secrets",
    "sessions",
    "settlement",
    "slots",
    "try_case",
    "workflows",
]
