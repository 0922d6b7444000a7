"""Usage that somebody reports: what is read, what is refused, and how reports add up."""

from dataclasses import replace
from decimal import Decimal

import pytest

from noonmark.core.budgets.reported import combine, from_fields, masked, read_reports, to_fields, total, usage_of
from noonmark.core.budgets.spend import Usage
from noonmark.core.instants import SECOND
from noonmark.core.interruption import alert_at
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import occurrence
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.core.targets import TaskTarget
from tests.core.scheduled import after_noon, at, every, scheduled

CENT = 10_000_000


def test_the_fields_of_a_report():
    found = usage_of(
        model="gpt-5", provider="openai", input_tokens=10, output_tokens=5, cache_read_tokens=2, cache_write_tokens=1,
        model_calls=2, tool_calls=3, cost_usd=0.01,
    )  # fmt: skip
    assert found == Usage(
        model="gpt-5", provider="openai", input_tokens=10, output_tokens=5, cache_read_tokens=2, cache_write_tokens=1,
        model_calls=2, tool_calls=3, cost=CENT,
    )  # fmt: skip
    assert from_fields(to_fields(found)) == found
    assert found.to_document() == {
        "model": "gpt-5", "provider": "openai", "input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 2,
        "cache_write_tokens": 1, "total_tokens": 18, "model_calls": 2, "tool_calls": 3, "cost_usd": 0.01,
    }  # fmt: skip
    assert masked(found, str.upper).model == "GPT-5"
    assert masked(usage_of(), str.upper) == usage_of() == Usage(model_calls=1, cost=None)


@pytest.mark.parametrize(
    ("cost", "nanos"),
    [(0, 0), (1, 100 * CENT), (0.1, 10 * CENT), ("0.000000001", 1), (Decimal("0.0000000001"), 1), ("1e-9", 1)],
)
def test_a_cost_is_exact(cost, nanos):
    assert usage_of(cost_usd=cost).cost == nanos


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([1], "it must be an object, not 1"),
        ({"model": ""}, "model must have 1 to 200 characters, not 0"),
        ({"output_tokens": -1}, "output_tokens must be an integer from 0 to 1,000,000,000,000, not -1"),
        ({"cost_usd": "much"}, 'cost_usd must be a number, not "much"'),
        ({"cost_usd": "NaN"}, 'cost_usd must be a number from 0 to 1,000,000, not "NaN"'),
        ({"cost_usd": Decimal(-1)}, 'cost_usd must be a number from 0 to 1,000,000, not "-1"'),
        ({"cost_usd": True}, "cost_usd must be a number, not true"),
        ({"tokens": 1, "input_tokens": 1}, "tokens is for tokens of unknown kind; leave it out beside"),
        ({"token": 1}, "token unknown field; allowed are cache_read_tokens, "),
        ([{}] * 101, "it has 101 entries; at most 100 are allowed"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_report(document, problem):
    with pytest.raises(ValueError, match="^" + problem.replace(".", "[.]")):
        read_reports(document)


def test_reports_add_up():
    reports = read_reports([{"model": "a", "tokens": 3, "cost_usd": 1}, {"model": "b"}, {"model": "a", "cost_usd": 2}])
    assert [(one.model, one.input_tokens, one.model_calls, one.cost) for one in combine(reports)] == [
        ("a", 3, 2, 300 * CENT),
        ("b", 0, 1, None),
    ]
    assert total(reports) == Usage(model="a", input_tokens=3, model_calls=3, cost=None)
    assert read_reports({"tokens": 7}) == [Usage(input_tokens=7, model_calls=1, cost=None)]
    assert total([]) is None


def test_what_a_run_reports_is_in_its_run_and_beside_it():
    schedule = scheduled()
    row = replace(occurrence(schedule, at(0), at(0)), phase=Phase.DISPATCHING, attempt=1)
    delivered = Delivered(outcome=Outcome.COMPLETED, started=at(1), ended=at(2))
    reported = (Usage(model="a", input_tokens=3, model_calls=1, cost=5), Usage(model="b", cost=None))
    settled = settle(row, schedule, delivered, node="n1", reported=reported)
    assert settled.run.usage == Usage(model="b", input_tokens=3, model_calls=1, cost=None)
    plain = settle(row, schedule, delivered, node="n1")
    assert settled == replace(plain, run=settled.run, user="u", reported=reported)
    counted = replace(delivered, usage=Usage(model="c", output_tokens=1, cost=7))
    both = settle(row, schedule, counted, node="n1", reported=reported[:1])
    assert both.run.usage == Usage(model="a", input_tokens=3, output_tokens=1, model_calls=1, cost=12)


@pytest.mark.parametrize(
    ("trigger", "fields", "alert"),
    [
        (every(100), {"target": TaskTarget(query="what is new")}, 100),
        (every(100), {"target": TaskTarget(query="what is new"), "expected": 250 * SECOND}, 251),
        (every(100, end=0), {"target": TaskTarget(query="what is new")}, None),
        (every(100), {}, None),
    ],
)
def test_a_run_of_an_agent_is_overdue_at_the_next_fire(trigger, fields, alert):
    assert after_noon(alert_at(scheduled(trigger, **fields).declaration, at(1))) == alert
