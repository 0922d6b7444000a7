"""Why a call of a model was refused, in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.budgets.budget import BudgetScope
from noonmark.core.budgets.spend import to_dollars
from noonmark.core.instants import to_text

if TYPE_CHECKING:
    from noonmark.core.budgets.budget import Refused

_UNITS = {"tokens": "tokens", "model_calls": "model calls"}


def refusal_text(refused: Refused) -> str:
    """Whose limit it is, how much of it is used, and what the call needs."""
    owner_text = "of the run" if refused.scope is BudgetScope.RUN else f"of {refused.scope} {refused.scope_id}"
    if refused.what == "price":
        return (
            f"the price of the model is unknown, and the budget {owner_text} limits its cost alone;"
            " set its price (`prices`), or limit tokens (max_tokens)"
        )
    if refused.what == "breaker":
        return "the provider failed too often in a row, so it is not asked for a while"
    resets = "" if refused.resets_at is None else f"; a new period begins at {to_text(refused.resets_at)}"
    needs = f"up to {_shown(refused.what, refused.requested)}" if refused.what != "model_calls" else "one more"
    return (
        f"the budget {owner_text} is {_shown(refused.what, refused.limit)};"
        f" used {_shown(refused.what, refused.settled)}, reserved {_shown(refused.what, refused.reserved)},"
        f" and this call needs {needs}{resets}"
    )


def _shown(what: str, amount: int) -> str:
    return f"{amount:,} {_UNITS[what]}" if what in _UNITS else f"${to_dollars(amount)}"
