"""Which calls of a model budgets and run limits allow, and how long each waits."""

from dataclasses import replace

import pytest

from noonmark.core.budgets.breaker import MAX_FAILURES, OPEN_FOR, Breaker
from noonmark.core.budgets.budget import (
    Budget,
    BudgetScope,
    Period,
    Refused,
    Reservation,
    Reserved,
    RunLimits,
    Standing,
    WhenExhausted,
    WholeRun,
    approval_id,
)
from noonmark.core.budgets.reservation import RunSpend, decide, is_beyond_threshold, owners
from noonmark.core.budgets.spend import Amount
from noonmark.core.instants import parse_instant, to_text

CALL = Reservation(
    call_id="c",
    tenant="acme",
    user="ada",
    schedule_id="s",
    session_id="t",
    occurrence_id="o",
    fence=1,
    model="m",
    provider="p",
    most=Amount(tokens=10, cost=100),
)
BUDGET = Budget(tenant="acme", scope=BudgetScope.USER, scope_id="ada", period=Period.DAY, warning_threshold=None)
UNPRICED = replace(CALL, most=Amount(tokens=10, cost=None))


def standing(settled=(0, 0), reserved=(0, 0), **changes):
    return Standing(
        budget=replace(BUDGET, **changes),
        settled=Amount(tokens=settled[0], cost=settled[1]),
        reserved=Amount(tokens=reserved[0], cost=reserved[1]),
        period_start=0,
        period_end=86_400,
    )


@pytest.mark.parametrize(
    ("period", "at", "bounds"),
    [
        (Period.DAY, "2026-03-29T23:59:59.999999Z", ("2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z")),
        (Period.DAY, "2026-03-29T00:00:00Z", ("2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z")),
        (Period.MONTH, "2024-02-29T12:00:00Z", ("2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z")),
        (Period.MONTH, "2026-01-01T00:00:00Z", ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")),
        (Period.MONTH, "2026-12-31T23:59:59Z", ("2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z")),
        (Period.TOTAL, "2026-12-31T23:59:59Z", ("1970-01-01T00:00:00Z", None)),
    ],
)
def test_periods_are_days_and_months_of_utc(period, at, bounds):
    start, end = period.bounds(parse_instant(at))
    assert (to_text(start), None if end is None else to_text(end)) == bounds


def test_an_approval_is_named_by_its_occurrence():
    assert approval_id("occ_1") == "occ_1::budget"


def test_the_narrowest_budget_comes_first():
    names = {"tenant": "acme", "user": "ada", "schedule_id": "s", "session_id": "t"}
    assert [f"{scope}:{name}" for scope, name in owners(**names)] == [
        "session:t", "schedule:s", "user:ada", "tenant:acme",
    ]  # fmt: skip
    assert [str(scope) for scope, _ in owners(**names | {"schedule_id": None, "session_id": None})] == [
        "user", "tenant",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("of", "what"),
    [
        (standing(max_cost=100), None),
        (standing(max_cost=99), "cost"),
        (standing(settled=(0, 1), max_cost=100), "cost"),
        (standing(reserved=(0, 1), max_cost=100), "cost"),
        (standing(settled=(0, 1), reserved=(0, 1), max_cost=102), None),
        (standing(max_tokens=10), None),
        (standing(max_tokens=9), "tokens"),
        (standing(settled=(1, 0), max_tokens=10), "tokens"),
        (standing(reserved=(1, 0), max_tokens=10), "tokens"),
        (standing(max_tokens=9, max_cost=99), "tokens"),
        (standing(max_cost=0), "cost"),
        (standing(), None),
        (standing(max_cost=1, hard=False), None),
        (standing(max_cost=1, hard=False, require_approval=True), "cost"),
        (standing(max_cost=100, hard=False, require_approval=True), None),
        (standing(max_cost=99, require_approval=True), "cost"),
    ],
)
def test_a_budget_refuses_what_would_exceed_it(of, what):
    answer = decide(CALL, [standing(max_cost=1000), of], RunSpend())
    assert (answer.what if isinstance(answer, Refused) else None) == what


@pytest.mark.parametrize(("spent", "what"), [(5, None), (6, "tokens")])
def test_a_step_spends_what_its_whole_run_may_spend(spent, what):
    step = replace(CALL, whole=WholeRun(occurrence_id="all", limits=RunLimits(max_tokens=15)))
    answer = decide(step, [], RunSpend(), RunSpend(settled=Amount(tokens=spent)))
    assert (answer.what if isinstance(answer, Refused) else None) == what
    assert what is None or (answer.scope, answer.scope_id, answer.settled) == (BudgetScope.RUN, "all", spent)


def test_a_refusal_says_the_figures():
    of = standing(
        settled=(1, 50), reserved=(2, 60), max_cost=200, when_exhausted=WhenExhausted.PAUSE, scope=BudgetScope.SCHEDULE
    )
    assert decide(CALL, [of], RunSpend()) == Refused(
        scope=BudgetScope.SCHEDULE,
        scope_id="ada",
        what="cost",
        limit=200,
        settled=50,
        reserved=60,
        requested=100,
        resets_at=86_400,
        when_exhausted=WhenExhausted.PAUSE,
    )


@pytest.mark.parametrize(
    ("limits", "run", "refusal"),
    [
        (RunLimits(), RunSpend(model_calls=10**6), None),
        (RunLimits(max_model_calls=3), RunSpend(model_calls=2), None),
        (RunLimits(max_model_calls=3), RunSpend(model_calls=3), ("model_calls", 3, 3, 0, 1)),
        (RunLimits(max_tokens=20), RunSpend(settled=Amount(tokens=4), reserved=Amount(tokens=6)), None),
        (
            RunLimits(max_tokens=20),
            RunSpend(settled=Amount(tokens=4), reserved=Amount(tokens=7)),
            ("tokens", 20, 4, 7, 10),
        ),
        (RunLimits(max_cost=200), RunSpend(settled=Amount(cost=40), reserved=Amount(cost=60)), None),
        (
            RunLimits(max_cost=200),
            RunSpend(settled=Amount(cost=40), reserved=Amount(cost=61)),
            ("cost", 200, 40, 61, 100),
        ),
    ],
)
def test_a_run_has_limits_of_its_own(limits, run, refusal):
    answer = decide(replace(CALL, limits=limits), [], run)
    if refusal is None:
        assert answer == Reserved()
    else:
        what, limit, settled, reserved, requested = refusal
        assert answer == Refused(
            scope=BudgetScope.RUN,
            scope_id="o",
            what=what,
            limit=limit,
            settled=settled,
            reserved=reserved,
            requested=requested,
        )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"max_cost": 10**9}, "price"),
        ({"max_cost": 10**9, "max_tokens": 10}, None),
        ({"max_cost": 10**9, "max_tokens": 9}, "tokens"),
        ({"max_cost": 10**9, "hard": False}, None),
        ({"max_cost": 10**9, "hard": False, "require_approval": True}, None),
        ({"max_tokens": 10}, None),
    ],
)
def test_an_unknown_price_needs_a_limit_of_tokens_beside_a_hard_limit_of_cost(changes, what):
    answer = decide(UNPRICED, [standing(**changes)], RunSpend())
    assert (answer.what if isinstance(answer, Refused) else None) == what


@pytest.mark.parametrize(("limits", "what"), [({"max_cost": 9}, "price"), ({"max_cost": 9, "max_tokens": 10}, None)])
def test_the_limits_of_a_run_are_hard_as_well(limits, what):
    answer = decide(replace(UNPRICED, limits=RunLimits(**limits)), [], RunSpend())
    assert (answer.what if isinstance(answer, Refused) else None) == what


def test_a_refusal_that_nobody_can_lift_comes_first():
    soft = standing(max_cost=1, hard=False, require_approval=True, scope=BudgetScope.SESSION)
    hard = standing(max_cost=1, scope=BudgetScope.TENANT)
    decision = decide(CALL, [soft], RunSpend())
    assert (decision.needs_approval, decision.scope) == (True, BudgetScope.SESSION)
    refused = decide(CALL, [soft, hard], RunSpend())
    assert (refused.needs_approval, refused.scope) == (False, BudgetScope.TENANT)
    approved = replace(CALL, is_approved=True)
    assert isinstance(decide(approved, [soft], RunSpend()), Reserved)
    assert isinstance(decide(approved, [hard], RunSpend()), Refused)


@pytest.mark.parametrize(
    ("used", "delay"),
    [(799, 0), (800, 50), (849, 50), (850, 300), (900, 750), (949, 750), (950, 1_500), (999, 1_500), (1_000, 5_000)],
)
def test_a_call_waits_the_longer_the_more_of_a_budget_is_used(used, delay):
    half = standing(settled=(0, 100), max_cost=1_000)
    for of in (
        standing(settled=(0, used - 200), reserved=(0, 100), max_cost=1_000),
        standing(settled=(used - 10, 0), max_tokens=1_000),
        standing(settled=(used - 10, 0), max_tokens=1_000, max_cost=10**6),
    ):
        assert decide(CALL, [half, of], RunSpend()) == Reserved(delay=delay * 1_000)


def test_beyond_a_soft_limit_a_call_waits_longest():
    soft = {"hard": False}
    assert decide(CALL, [standing(max_cost=1, **soft)], RunSpend()).delay == 5_000_000
    assert decide(CALL, [standing(max_cost=0, **soft)], RunSpend()).delay == 5_000_000
    free = replace(CALL, most=Amount())
    assert decide(free, [standing(max_cost=0)], RunSpend()) == Reserved()


@pytest.mark.parametrize(
    ("of", "is_beyond"),
    [
        (standing(max_cost=125, warning_threshold=0.8), True),
        (standing(max_cost=126, warning_threshold=0.8), False),
        (standing(max_cost=126, max_tokens=12, warning_threshold=0.8), True),
        (standing(max_cost=125), False),
        (standing(warning_threshold=0.8), False),
        # 0.7 is not exactly what a float holds.
        (standing(settled=(0, 600), max_cost=1_000, warning_threshold=0.7), True),
    ],
)
def test_a_threshold_is_crossed_with_the_call(of, is_beyond):
    assert is_beyond_threshold(of, CALL) is is_beyond
    answer = decide(CALL, [of], RunSpend())
    assert answer.warnings == ((of,) if is_beyond else ())
    assert not is_beyond_threshold(of)


def test_a_tier_multiplies_the_limits_of_users_alone():
    gold = replace(CALL, limits=RunLimits(multiplier=2.5))
    assert decide(gold, [standing(max_cost=100, max_tokens=10)], RunSpend()) == Reserved()
    assert isinstance(decide(gold, [standing(settled=(0, 150), max_cost=100)], RunSpend()), Reserved)
    assert decide(gold, [standing(settled=(0, 151), max_cost=100)], RunSpend()).limit == 250
    assert decide(gold, [standing(settled=(16, 0), max_tokens=10)], RunSpend()).limit == 25
    assert isinstance(decide(gold, [standing(max_cost=99, scope=BudgetScope.TENANT)], RunSpend()), Refused)


def test_a_breaker_opens_after_failures_in_a_row_and_tries_one_call_at_a_time():
    breaker, now = Breaker(), 1_000
    for _ in range(MAX_FAILURES - 1):
        breaker = breaker.failed(now)
    assert breaker.opens_at(now) is None
    assert breaker.tried(now + 5) == breaker
    breaker = breaker.failed(now)
    assert breaker.opens_at(now) == now + OPEN_FOR
    assert breaker.opens_at(now + OPEN_FOR - 1) == now + OPEN_FOR
    later = now + OPEN_FOR
    assert breaker.opens_at(later) is None
    tried = breaker.tried(later)
    assert tried.opens_at(later) == later + OPEN_FOR
    assert tried.failed(later + 9) == Breaker(failures=MAX_FAILURES, since=later + 9)
