"""Quotas and limits: which count for an owner, and what a refusal says."""

import pytest

from noonmark import IntervalTrigger
from noonmark.core.errors import InvalidSchedule, QuotaExceeded
from noonmark.core.instants import SECOND
from noonmark.core.policies import Budget
from noonmark.core.policies.limits import Concurrency, KeyLimit
from noonmark.core.quotas import UNLIMITED, Limits, Quota, Resource, Scope, check_declaration, inflight_keys
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Owner
from noonmark.testing import factories

LIMITS = Limits(
    per_user={Resource.SCHEDULES: {"acme": 5, "*": 2}},
    per_tenant={Resource.SCHEDULES: {"acme": 50}},
    min_interval=60 * SECOND,
    max_budget_usd=10,
)


def test_a_tenant_has_its_own_quotas_or_those_of_every_other():
    mine, theirs = (LIMITS.quotas(tenant, Resource.SCHEDULES, Resource.TASKS) for tenant in ("acme", "other"))
    assert [(one.scope, one.limit) for one in mine] == [(Scope.USER, 5), (Scope.TENANT, 50)]
    assert [(one.scope, one.limit) for one in theirs] == [(Scope.USER, 2)]
    assert UNLIMITED.quotas("acme", *Resource) == ()


def test_what_is_in_flight_counts_under_a_key_of_the_user_and_one_of_the_tenant():
    limits = Limits(per_user={Resource.IN_FLIGHT: {"*": 2}}, per_tenant={Resource.IN_FLIGHT: {"acme": 5}})
    ada = Owner(tenant="acme", user="ada")
    assert inflight_keys(limits, ada) == (
        KeyLimit("inflight\nada", 2, Reason.INFLIGHT_LIMIT),
        KeyLimit("inflight\n", 5, Reason.TENANT_INFLIGHT_LIMIT),
    )
    assert len(inflight_keys(limits, Owner(tenant="other", user="ada"))) == 1
    assert inflight_keys(UNLIMITED, ada) == ()
    for key in inflight_keys(limits, ada):  # no schedule can name such a key
        with pytest.raises(InvalidSchedule):
            Concurrency(key=key.name)


def test_a_refusal_names_the_limit_its_value_and_its_use():
    quota = Quota(Resource.SCHEDULES, Scope.USER, 50)
    quota.check(49)
    with pytest.raises(QuotaExceeded) as refused:
        quota.check(50)
    assert str(refused.value) == (
        "the limit of 50 schedules per user is reached, 50 are used; delete one that is no longer needed"
    )
    assert refused.value.limit == {"name": "schedules", "scope": "user", "value": 50, "used": 50}


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        (Resource.SCHEDULES, "1 schedule per user"),
        (Resource.EVENTS, "1 event a minute per user"),
        (Resource.QUEUED, "1 waiting occurrence per user"),
        (Resource.UPLOADS, "1 upload per user"),
    ],
)
def test_a_refusal_of_one_is_in_the_singular(resource, words):
    assert str(Quota(resource, Scope.USER, 1).exceeded(1)).startswith(f"the limit of {words} is reached, 1 is used; ")


@pytest.mark.parametrize(
    ("limit", "wait", "message", "seconds"),
    [
        (600, 1_500_000, "the limit of 600 events a minute per tenant is reached, 600 are used; try again in 2 s", 2),
        (0, 0, "the limit of 0 events a minute per tenant is reached, 0 are used; none are allowed", None),
    ],
)
def test_a_refusal_of_events_says_when_to_try_again(limit, wait, message, seconds):
    refused = Quota(Resource.EVENTS, Scope.TENANT, limit).exceeded(limit, wait=wait)
    assert (str(refused), refused.wait) == (message, seconds)


@pytest.mark.parametrize(("limit", "at_once"), [(600, 600), (1, 1), (0, 0)])
def test_a_number_per_minute_may_come_at_once(limit, at_once):
    rate = Quota(Resource.EVENTS, Scope.USER, limit).rate
    taken = rate.take(None, 1_000, now=0)
    assert (taken.granted, taken.left) == (at_once, 0)
    assert rate.take(taken.full_at, 1_000, now=60 * SECOND).granted == at_once


@pytest.mark.parametrize(
    ("used", "wanted", "message"),
    [
        (7, 3, None),
        (10, 1, "is reached, 10 are used"),
        (7, 4, "does not allow 4 more, 7 are used"),
    ],
)
def test_a_queue_takes_all_that_is_wanted_or_nothing(used, wanted, message):
    quota, refused = Quota(Resource.QUEUED, Scope.USER, 10), None
    try:
        quota.check(used, wanted)
    except QuotaExceeded as error:
        refused = str(error)
    words = "the limit of 10 waiting occurrences per user {}; try again when some have started"
    assert refused == (None if message is None else words.format(message))


def test_a_user_and_a_tenant_have_their_own_buckets():
    names = [Quota(Resource.EVENTS, scope, 5).bucket("acme", user) for scope in Scope for user in ("ada", "bob")]
    assert names == [
        "events_per_minute user acme ada",
        "events_per_minute user acme bob",
        "events_per_minute tenant acme",
        "events_per_minute tenant acme",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trigger": IntervalTrigger(59)}, "trigger: can fire 59 s apart; the limit min_interval is 1 min"),
        (
            {"budget": Budget(max_cost_usd=11)},
            "budget.max_cost_usd: must be at most 10, the limit of a budget per run, not 11",
        ),
    ],
)
def test_what_is_too_much_is_refused_unless_it_was_declared_before(changes, message):
    declared = factories.declaration(**changes)
    for before in (None, factories.declaration(budget=Budget(max_cost_usd=3))):
        with pytest.raises(InvalidSchedule) as refused:
            check_declaration(LIMITS, declared, before)
        assert str(refused.value) == message
    check_declaration(LIMITS, declared, declared)
    check_declaration(UNLIMITED, declared, None)


@pytest.mark.parametrize(
    "changes", [{}, {"trigger": None}, {"budget": Budget(max_cost_usd=10)}, {"budget": Budget(max_tokens=5)}]
)
def test_what_is_within_the_limits_is_allowed(changes):
    check_declaration(LIMITS, factories.declaration(**changes), None)
