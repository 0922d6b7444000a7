"""Refused calls, in words and figures."""

import pytest

from noonmark.core.budgets.budget import BudgetScope, Refused
from noonmark.core.budgets.reservation import refusal_text
from noonmark.core.instants import SECOND


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (
            Refused(
                scope=BudgetScope.USER,
                scope_id="ann",
                what="cost",
                limit=1_000_000_000,
                settled=930_000_000,
                reserved=20_000_000,
                requested=100_000_000,
                resets_at=86_400 * SECOND,
            ),
            (
                "the budget of user ann is $1; used $0.93, reserved $0.02, and this call needs up to $0.1; a new period"
                " begins at 1970-01-02T00:00:00Z"
            ),
        ),
        (
            Refused(scope=BudgetScope.RUN, scope_id="o", what="tokens", limit=5_000, settled=4_000, requested=1_500),
            (
                "the budget of the run is 5,000 tokens; used 4,000 tokens, reserved 0 tokens, and this call needs up to"
                " 1,500 tokens"
            ),
        ),
        (
            Refused(scope=BudgetScope.RUN, scope_id="o", what="model_calls", limit=50, settled=50, requested=1),
            (
                "the budget of the run is 50 model calls; used 50 model calls, reserved 0 model calls, and this call"
                " needs one more"
            ),
        ),
        (
            Refused(scope=BudgetScope.SESSION, scope_id="desk", what="price"),
            (
                "the price of the model is unknown, and the budget of session desk limits its cost alone; set its price"
                " (`prices`), or limit tokens (max_tokens)"
            ),
        ),
        (
            Refused(scope=BudgetScope.USER, scope_id="ann", what="breaker"),
            "the provider failed too often in a row, so it is not asked for a while",
        ),
    ],
)
def test_a_refusal_says_whose_limit_it_is_and_what_is_left(refused, text):
    assert refusal_text(refused) == text
