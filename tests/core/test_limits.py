"""Delivery promises, named limits, budgets, dependencies and the planning horizon: documents in, values out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.policies import (
    Budget,
    Concurrency,
    Delivery,
    Dependency,
    Horizon,
    MissingTargetPolicy,
    read_budget,
    read_concurrency,
    read_delivery,
    read_dependencies,
    read_horizon,
    read_missing_target,
)
from tests.core.reading import read


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, Delivery.AT_LEAST_ONCE),
        ("at_least_once", Delivery.AT_LEAST_ONCE),
        ("at_most_once", Delivery.AT_MOST_ONCE),
    ],
)
def test_delivery(written, expected):
    assert read(read_delivery, {"delivery": written}, "delivery") == (expected, {})


def test_delivery_exactly_once_is_not_promised():
    _, problems = read(read_delivery, {"delivery": "exactly_once"}, "delivery")
    assert problems == {"delivery": 'must be one of at_least_once, at_most_once, not "exactly_once"'}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, MissingTargetPolicy.MARK_MISFIRED),
        ("mark_misfired", MissingTargetPolicy.MARK_MISFIRED),
        ("skip", MissingTargetPolicy.SKIP),
    ],
)
def test_missing_target(written, expected):
    document = {"missing_target_policy": written}
    assert read(read_missing_target, document, "missing_target_policy") == (expected, {})


def test_missing_target_refuses_other_names():
    _, problems = read(read_missing_target, {"missing_target_policy": "wait"}, "missing_target_policy")
    assert problems == {"missing_target_policy": 'must be one of mark_misfired, skip, not "wait"'}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, None),
        ({"concurrency_key": "gpu"}, Concurrency(key="gpu", limit=1)),
        ({"concurrency_key": "gpu", "concurrency_limit": 100_000}, Concurrency(key="gpu", limit=100_000)),
    ],
)
def test_concurrency(document, expected):
    assert read(read_concurrency, document) == (expected, {})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"concurrency_limit": 3}, {"concurrency_limit": "needs a concurrency_key"}),
        ({"concurrency_key": ""}, {"concurrency_key": "must have 1 to 200 characters, not 0"}),
        ({"concurrency_key": 7, "concurrency_limit": 3}, {"concurrency_key": "must be text, not 7"}),
        (
            {"concurrency_key": "gpu", "concurrency_limit": 0},
            {"concurrency_limit": "must be an integer from 1 to 100,000, not 0"},
        ),
    ],
)
def test_concurrency_refuses(document, expected):
    assert read(read_concurrency, document)[1] == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, None),
        ({}, None),
        ({"max_cost_usd": None}, None),
        ({"max_cost_usd": 0}, Budget(max_cost_usd=0)),
        ({"max_cost_usd": 2.5}, Budget(max_cost_usd=2.5, max_tokens=None)),
        ({"max_tokens": 10_000}, Budget(max_cost_usd=None, max_tokens=10_000)),
        ({"max_cost_usd": 1, "max_tokens": 0}, Budget(max_cost_usd=1, max_tokens=0)),
        ({"max_model_calls": 5, "max_tool_calls": 0}, Budget(max_model_calls=5, max_tool_calls=0)),
    ],
)
def test_budget(written, expected):
    assert read(read_budget, {"budget": written}, "budget") == (expected, {})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (5, {"budget": "must be an object, not 5"}),
        (
            {"max_cost_usd": -1, "max_tokens": 1.5, "max_time": 3},
            {
                "budget.max_cost_usd": "must be a number from 0 to 1,000,000, not -1",
                "budget.max_tokens": "must be an integer from 0 to 1,000,000,000,000, not 1.5",
                "budget.max_time": (
                    "unknown field; allowed are max_cost_usd, max_model_calls, max_tokens, max_tool_calls"
                ),
            },
        ),
        (
            {"max_cost_usd": float("nan")},
            {"budget.max_cost_usd": "must be a number from 0 to 1,000,000, not NaN"},
        ),
    ],
)
def test_budget_refuses(written, expected):
    assert read(read_budget, {"budget": written}, "budget")[1] == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, ()),
        ([], ()),
        (
            [{"schedule_id": "a"}, {"schedule_id": "b", "require_success": False}],
            (Dependency(schedule_id="a", require_success=True), Dependency(schedule_id="b", require_success=False)),
        ),
    ],
)
def test_dependencies(written, expected):
    assert read(read_dependencies, {"depends_on": written}, "depends_on") == (expected, {})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a", {"depends_on": 'must be an array, not "a"'}),
        (
            ["a", {"schedule_id": "b"}, {}, {"schedule_id": "", "require_success": "yes", "wait": 1}],
            {
                "depends_on[0]": 'must be an object, not "a"',
                "depends_on[2].schedule_id": "is required",
                "depends_on[3].schedule_id": 'must be 1 to 128 letters, digits, -, _, . or :, not ""',
                "depends_on[3].require_success": 'must be true or false, not "yes"',
                "depends_on[3].wait": "unknown field; allowed are require_success, schedule_id",
            },
        ),
        ([{"schedule_id": "a"}, {"schedule_id": "a"}], {"depends_on[1].schedule_id": "is named twice"}),
        (
            [{"schedule_id": str(number)} for number in range(101)],
            {"depends_on": "has 101 entries; at most 100 are allowed"},
        ),
    ],
)
def test_dependencies_refuse(written, expected):
    assert read(read_dependencies, {"depends_on": written}, "depends_on")[1] == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, Horizon(days=30, occurrences=1)),
        ({"planning_horizon_days": None, "planning_horizon_occurrences": None}, Horizon(days=30, occurrences=1)),
        ({"planning_horizon_days": 366, "planning_horizon_occurrences": 64}, Horizon(days=366, occurrences=64)),
    ],
)
def test_horizon(document, expected):
    assert read(read_horizon, document) == (expected, {})


def test_horizon_refuses():
    document = {"planning_horizon_days": 367, "planning_horizon_occurrences": 65}
    assert read(read_horizon, document)[1] == {
        "planning_horizon_days": "must be an integer from 1 to 366, not 367",
        "planning_horizon_occurrences": "must be an integer from 1 to 64, not 65",
    }


def test_values_made_in_code_have_the_defaults_of_documents():
    assert Concurrency(key="gpu") == Concurrency(key="gpu", limit=1)
    assert Dependency(schedule_id="a") == Dependency(schedule_id="a", require_success=True)


IDS = st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1, max_size=200)


@given(st.builds(Concurrency, key=TEXTS, limit=st.integers(1, 100_000)))
def test_a_named_limit_reads_back(value):
    assert read(read_concurrency, value.to_document()) == (value, {})


@given(
    st.floats(0, 1_000_000) | st.none(),
    st.integers(0, 10**12) | st.none(),
)
def test_a_budget_reads_back(cost, tokens):
    value = Budget(max_cost_usd=cost, max_tokens=tokens)
    expected = None if cost is None and tokens is None else value
    assert read(read_budget, {"budget": value.to_document()}, "budget") == (expected, {})


@given(st.lists(st.builds(Dependency, schedule_id=IDS), unique_by=lambda each: each.schedule_id, max_size=5))
def test_dependencies_read_back(values):
    document = {"depends_on": [value.to_document() for value in values]}
    assert read(read_dependencies, document, "depends_on") == (tuple(values), {})


@given(st.builds(Horizon, days=st.integers(1, 366), occurrences=st.integers(1, 64)))
def test_a_horizon_reads_back(value):
    assert read(read_horizon, value.to_document()) == (value, {})
