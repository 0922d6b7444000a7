"""What every store does, as cases that any store can be tried on.

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
    def test_my_store(case):
        try_case(case, MyStore)

`MyStore` is called with a clock that tells microseconds, and gives a new and empty store that uses it. Its verbs are
plain functions, as in `noonmark.ports.store`.
"""

from noonmark.testing.conformance import (
    admitting,
    alerting,
    awaiting,
    cancelling,
    changing,
    claiming,
    completing,
    counting,
    depending,
    discerning,
    emitting,
    following,
    inspecting,
    keeping,
    leading,
    listing,
    noting,
    paging,
    pausing,
    planning,
    reading,
    repairing,
    sealing,
    serving,
    settling,
    sharing,
    telling,
    waiting,
)
from noonmark.testing.conformance.bench import CASES, Bench, HandClock, try_case

__all__ = [
    "CASES",
    "Bench",
    "HandClock",
    "admitting",
    "alerting",
    "awaiting",
    "cancelling",
    "changing",
    "claiming",
    "completing",
    "counting",
    "depending",
    "discerning",
    "emitting",
    "following",
    "inspecting",
    "keeping",
    "leading",
    "listing",
    "noting",
    "paging",
    "pausing",
    "planning",
    "reading",
    "repairing",
    "sealing",
    "serving",
    "settling",
    "sharing",
    "telling",
    "try_case",
    "waiting",
]
